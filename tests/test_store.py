"""Arrays on disk: what was kept comes back unharmed or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nco_guard
from nco_guard.storage import store as store_module
from nco_guard.storage.store import Store, digest, made_by

ARRAYS: dict[str, NDArray[Any]] = {
    "table": np.arange(600, dtype=np.int32).reshape(20, 30),
    "flags": np.array([True, False, True]),
    "bytes": np.frombuffer(b"odd", np.uint8),
    "long": np.array([1 << 40], np.int64),
    "nothing": np.zeros((0, 4), np.int32),
}


def same(found: dict[str, NDArray[Any]] | None) -> bool:
    return (
        found is not None
        and found.keys() == ARRAYS.keys()
        and all(found[n].dtype == a.dtype and found[n].shape == a.shape for n, a in ARRAYS.items())
        and all((found[n] == a).all() for n, a in ARRAYS.items())
    )


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "deep" / "store")


def test_arrays_come_back_with_type_and_shape(store: Store) -> None:
    assert store.load("kind", "key") is None
    assert store.save("kind", "key", ARRAYS)
    assert same(store.load("kind", "key"))
    assert same(Store(store.folder).load("kind", "key"))
    assert store.load("other", "key") is None
    assert store.load("kind", "other") is None


def test_the_folder_is_its_owners_alone(store: Store) -> None:
    store.save("kind", "key", ARRAYS)
    if os.name == "posix":
        assert store.folder.stat().st_mode & 0o77 == 0
        assert all(file.stat().st_mode & 0o77 == 0 for file in files(store.folder))


def test_any_changed_byte_is_noticed_and_the_file_removed(store: Store) -> None:
    store.save("kind", "key", ARRAYS)
    (path,) = files(store.folder)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        assert store.load("kind", "key") is None, place
        assert not path.exists()
    path.write_bytes(whole)
    assert same(store.load("kind", "key"))


@pytest.mark.parametrize("kept", [0, 1, 17, 18, 40, 57, 60, 200, -1])
def test_truncated_and_empty_files_count_as_missing(store: Store, kept: int) -> None:
    store.save("kind", "key", ARRAYS)
    (path,) = files(store.folder)
    path.write_bytes(path.read_bytes()[:kept])
    assert store.load("kind", "key") is None
    assert store.save("kind", "key", ARRAYS)
    assert same(store.load("kind", "key"))


def test_foreign_files_and_other_keys_count_as_missing(store: Store) -> None:
    store.save("kind", "key", ARRAYS)
    store.save("kind", "other", {"x": np.zeros(3, np.int32)})
    own, other = store._path("kind", "key"), store._path("kind", "other")
    own.write_bytes(other.read_bytes())
    assert store.load("kind", "key") is None
    for foreign in (b"not ours", b"\x93NUMPY", other.read_bytes().replace(b"store 1", b"store 2")):
        own.write_bytes(foreign)
        assert store.load("kind", "key") is None


@pytest.mark.parametrize(
    "header", [b"[]", b"{}", b"{", b'{"kind": "kind", "key": "key", "arrays": [["x", "|O", [1]]]}']
)
def test_a_right_checksum_over_nonsense_is_not_enough(store: Store, header: bytes) -> None:
    import hashlib

    store.save("kind", "key", ARRAYS)
    content = len(header).to_bytes(8, "little") + header + bytes(64)
    magic = store_module._MAGIC
    store._path("kind", "key").write_bytes(magic + hashlib.sha256(content).digest() + content)
    assert store.load("kind", "key") is None


def test_objects_are_never_kept(store: Store) -> None:
    with pytest.raises(TypeError, match="object"):
        store.save("kind", "key", {"x": np.array([{}], object)})


def test_a_place_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    for folder in (in_the_way, in_the_way / "below"):
        store = Store(folder)
        assert not store.save("kind", "key", ARRAYS)
        assert store.load("kind", "key") is None
        assert store.sizes() == {}
        assert store.clear() == (0, 0)


def test_a_directory_in_the_place_of_an_entry_is_left_alone(store: Store) -> None:
    store.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    store._path("kind", "key").mkdir()
    assert store.load("kind", "key") is None
    assert not store.save("kind", "key", ARRAYS)
    assert len(files(store.folder)) == 1


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    entry = {"x": np.zeros(1000, np.uint8)}
    store = Store(tmp_path, limit=3500)
    for number, key in enumerate("abc"):
        store.save("kind", key, entry)
        os.utime(store._path("kind", key), (1000 + number, 1000 + number))
    assert store.load("kind", "a") is not None
    store.save("kind", "d", entry)
    assert [store.load("kind", key) is not None for key in "abcd"] == [True, False, True, True]
    assert not store.save("kind", "huge", {"x": np.zeros(4000, np.uint8)})
    assert sum(size for _, size in store.sizes().values()) <= 3500


def test_files_of_processes_that_died_are_removed(store: Store) -> None:
    store.save("kind", "key", ARRAYS)
    old, new = store.folder / "tmpx.part", store.folder / "tmpy.part"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert store.sizes()["kind"][0] == 1
    assert not old.exists()
    assert new.exists()


def test_clear_removes_entries_and_nothing_else(store: Store) -> None:
    for key in "ab":
        store.save("kind", key, ARRAYS)
    (store.folder / "mine.txt").write_text("keep")
    count, size = store.clear()
    assert count == 2
    assert size > 4000
    assert [file.name for file in files(store.folder)] == ["mine.txt"]


def test_threads_that_write_and_read_one_key_see_whole_entries(store: Store) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for step in range(40):
            store.save("kind", "key", {"x": np.full(20_000, number * 100 + step, np.int32)})
            found = store.load("kind", "key")
            if found is not None and len(set(found["x"].tolist())) != 1:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert store.load("kind", "key") is not None


def test_digests_tell_values_and_borders_apart() -> None:
    given: list[tuple[str | bytes | int | None, ...]] = [
        (), ("",), (b"",), ("a", "b"), ("ab",), ("a", b"b"), (1,), ("1",), (None,), ("b", "a"), ("\ud800",),
    ]  # fmt: skip
    assert len({digest(*parts) for parts in given}) == len(given)


def test_keys_name_the_code_and_are_equal_in_every_process() -> None:
    code = "from nco_guard.storage.store import made_by; print(made_by())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == made_by()


def test_keys_change_with_any_file_of_the_package(tmp_path: Path) -> None:
    """One of each room is changed; whether it matters for what is kept is nobody's to say."""
    package = tmp_path / "nco_guard"
    shutil.copytree(
        Path(nco_guard.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "data")
    )
    rooms = [package, *(path for path in package.rglob("*") if (path / "__init__.py").is_file())]
    files = [str(next(path for path in sorted(room.glob("*.py")))) for room in rooms]
    assert len(files) > 10
    code = f"""
import pathlib
from nco_guard.storage.store import made_by
keys = [made_by.__wrapped__()]
for name in {files!r}:
    with pathlib.Path(name).open("a") as file:
        file.write("# changed")
    keys.append(made_by.__wrapped__())
print(len(set(keys)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert int(done.stdout) == len(files) + 1


@pytest.mark.parametrize(
    ("wanted", "variable", "expected"),
    [
        (None, None, None),
        (None, "", None),
        (None, "0", None),
        (None, "1", "default"),
        (None, "/x/y", "/x/y"),
        (False, "1", None),
        (True, None, "default"),
        ("/x/z", "/x/y", "/x/z"),
        (Path("/x/z"), None, "/x/z"),
    ],
)
def test_a_store_is_chosen_by_argument_then_by_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: Any, variable: str | None, expected: str | None
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.delenv(store_module.ENVIRONMENT_VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(store_module.ENVIRONMENT_VARIABLE, variable)
    chosen = Store.chosen(wanted)
    folder = store_module.default_folder() if expected == "default" else expected and Path(expected)
    assert (chosen.folder if chosen else None) == folder
