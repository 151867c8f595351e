"""A cache that others could read or change is refused, by name and with the mend; on Windows nothing is objected to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nco_guard import Guard, Policy
from nco_guard.errors import CacheError
from nco_guard.policy import StringRule
from nco_guard.storage import folders
from nco_guard.storage.folders import objection
from nco_guard.storage.store import Store, default_folder
from nco_guard.testing import tiny_tokenizer
from tests.commands import call

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="POSIX only")
SECRET = "Project Bluebird"
POLICY = Policy(name="codenames", rules=[StringRule(id="codename", strings=[SECRET])])
ARRAYS = {"a": np.arange(3, dtype=np.int32)}
needs_root = pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="needs two users")
SOMEBODY = 54321


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o700)
    yield tmp_path
    for folder, names, _ in os.walk(tmp_path):
        for name in names:
            (Path(folder) / name).chmod(0o700, follow_symlinks=True) if not (
                Path(folder) / name
            ).is_symlink() else None


def refused(folder: Path, why: str) -> None:
    assert re.search(why, objection(folder) or ""), objection(folder)
    with pytest.raises(CacheError, match=why) as caught:
        Guard(POLICY, cache=folder)
    assert SECRET not in str(caught.value)


def test_a_folder_that_is_made_is_the_owners_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "new" / "cache"))
    monkeypatch.setenv("HOME", str(place))
    before = os.umask(0o022)
    try:
        assert Store(default_folder()).save("kind", "key", ARRAYS)
        assert Store(place / "deep" / "deeper").save("kind", "key", ARRAYS)
    finally:
        os.umask(before)
    for folder in (default_folder(), place / "deep" / "deeper"):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert all(file.stat().st_mode & 0o777 == 0o600 for file in folder.iterdir())
        assert Store(folder).load("kind", "key") is not None


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o720, 0o740, 0o704, 0o702, 0o755, 0o777, 0o1777])
def test_a_folder_that_is_open_to_others_is_refused_with_the_mend(mode: int, place: Path) -> None:
    folder = place / "cache"
    folder.mkdir()
    folder.chmod(mode)
    refused(folder, rf"{re.escape(str(folder))} is open to others \(mode {mode:03o}\).*chmod 700")
    folder.chmod(0o700)
    assert Store(folder).save("kind", "key", ARRAYS)


def test_the_strings_can_be_read_from_it_which_is_why(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the documentation says: whoever may read the folder learns what is forbidden."""
    kept: list[dict[str, Any]] = []

    def saved(self: Store, kind: str, key: str, arrays: dict[str, Any]) -> bool:
        if kind == "strings":
            kept.append(dict(arrays))
        return True

    monkeypatch.setattr(Store, "save", saved)
    Guard(POLICY, cache=place / "cache").bind(tiny_tokenizer())
    (arrays,) = kept
    byte_of = {int(symbol): byte for byte, symbol in enumerate(arrays["classes"])}
    assert bytes(byte_of[int(edge)] for edge in arrays["edges"][3:]).decode() == SECRET


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_a_folder_that_others_can_replace_is_refused(mode: int, place: Path) -> None:
    above, folder = place / "above", place / "above" / "between" / "cache"
    folder.mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    above.chmod(mode)
    os.chown(above, -1, SOMEBODY) if os.geteuid() == 0 else None
    if os.geteuid() == 0 or mode & 0o002:
        refused(folder, rf"{re.escape(str(above))}, above it, can be changed by .*chmod [og]-w")
    above.chmod(mode | 0o1000)  # with the sticky bit nobody can move what is another's
    assert objection(folder) is None


def test_a_group_of_ones_own_is_nobody_else(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place / "home" / "cache"
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    (place / "home").chmod(0o775)
    monkeypatch.setattr(folders, "_own_group", lambda group: True)
    assert objection(folder) is None
    monkeypatch.setattr(folders, "_own_group", lambda group: False)
    refused(folder, "changed by a group")


@needs_root
def test_a_folder_or_one_above_it_of_somebody_else_is_refused(place: Path) -> None:
    above, folder = place / "above", place / "above" / "cache"
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    os.chown(folder, SOMEBODY, SOMEBODY)
    refused(folder, f"belongs to somebody else .user {SOMEBODY}.")
    os.chown(folder, 0, 0)
    os.chown(above, SOMEBODY, SOMEBODY)
    refused(folder, "above it, belongs to somebody else")


def test_links_are_followed_and_each_place_on_the_way_counts(place: Path) -> None:
    open_to_all, mine = place / "open", place / "mine"
    for folder in (open_to_all, mine, mine / "cache", open_to_all / "cache"):
        folder.mkdir()
        folder.chmod(0o700)
    (place / "link").symlink_to(mine / "cache")
    assert objection(place / "link") is None
    (place / "round").symlink_to(Path("mine", "..", "mine", "cache"))
    assert objection(place / "round") is None
    open_to_all.chmod(0o777)
    (place / "bad").symlink_to(open_to_all)
    refused(place / "bad" / "cache", "changed by everybody")
    refused(place / "bad", "open to others")
    (open_to_all / "away").symlink_to(mine / "cache")
    refused(open_to_all / "away", "changed by everybody")
    # `..` behind a link is above where the link leads, not where it stands.
    (mine / "deep").symlink_to(open_to_all / "cache")
    refused(mine / "deep" / "..", "changed by everybody")
    assert objection(mine / "cache" / ".." / "cache") is None
    (place / "loop").symlink_to(place / "loop")
    refused(place / "loop", "too many symbolic links")
    (place / "file").touch()
    assert objection(place / "file" / "cache") is None  # nothing can be kept there, so nothing is believed
    assert not Store(place / "file" / "cache").save("kind", "key", ARRAYS)


@needs_root
def test_a_link_of_somebody_else_is_refused(place: Path) -> None:
    shared, mine = place / "tmp", place / "mine"
    for folder, mode in ((shared, 0o1777), (mine, 0o700)):
        folder.mkdir()
        folder.chmod(mode)
    link = shared / "cache"
    link.symlink_to(mine)
    assert objection(link) is None
    os.lchown(link, SOMEBODY, SOMEBODY)
    refused(link, "a symbolic link of somebody else")


def test_what_becomes_open_later_is_not_used_any_more(place: Path) -> None:
    folder = place / "cache"
    store = Store(folder)
    assert store.save("kind", "key", ARRAYS)
    folder.chmod(0o777)
    assert store.load("kind", "key") is None
    assert not store.save("kind", "other", ARRAYS)
    folder.chmod(0o700)
    assert store.load("kind", "key") is not None


def test_an_entry_that_another_could_have_placed_counts_as_missing(place: Path) -> None:
    store = Store(place / "cache")
    assert store.save("kind", "key", ARRAYS)
    path = store._path("kind", "key")
    data = path.read_bytes()
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        assert store.load("kind", "key") is None
        assert not path.exists()
        path.write_bytes(data)
        path.chmod(0o600)
        assert store.load("kind", "key") is not None
    elsewhere = place / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert store.load("kind", "key") is None
    path.unlink()
    os.mkfifo(path)
    assert store.load("kind", "key") is None  # nor is it waited on
    if os.geteuid() == 0:
        path.write_bytes(data) if path.exists() and path.is_file() else elsewhere.rename(path)
        os.chown(path, SOMEBODY, SOMEBODY)
        assert store.load("kind", "key") is None


def test_the_environment_variable_and_the_command_are_held_to_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place / "cache"
    folder.mkdir()
    folder.chmod(0o755)
    monkeypatch.setenv("NCO_GUARD_CACHE", str(folder))
    with pytest.raises(CacheError, match="chmod 700"):
        Guard(POLICY)
    assert Guard(POLICY, cache=False).verify("x").ok
    done = call("cache")
    assert done.exit_code == 2
    assert "chmod 700" in done.output


def test_where_there_are_no_owners_nothing_is_objected_to(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.delattr(os, "geteuid")
    store = Store(folder)
    assert store.save("kind", "key", ARRAYS)
    assert store.load("kind", "key") is not None
