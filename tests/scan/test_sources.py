"""What is no ordinary file is named, passed over or refused, and never waited on; nothing to verify is no success."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nco_guard.scan.files.sources import Source, find_sources, lines_of, texts_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX files")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "corpus"
    place.mkdir()
    os.mkfifo(place / "pipe")
    (place / "link").symlink_to(place / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(place)  # names of sockets must be short
        bound.bind("sock")
        os.chdir(here)
    (place / "zeros").symlink_to("/dev/zero")
    (place / "terminal").symlink_to("/dev/tty")
    (place / "kernel").symlink_to("/proc/kmsg" if Path("/proc/kmsg").exists() else "/dev/zero")
    (place / "processor").symlink_to("/proc/cpuinfo" if Path("/proc/cpuinfo").exists() else "/dev/zero")
    return place


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text("name: p\nrules:\n  - {id: word, strings: [secret]}\n")
    return path


def verify(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which would hang if anything were waited on."""
    return subprocess.run(
        [sys.executable, "-m", "nco_guard.cli", "verify", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_folder_names_what_it_passes_over(folder: Path, policy: Path) -> None:
    (folder / "text.txt").write_text("a secret\n")
    found = verify(policy, folder)
    assert found.returncode in (1, 2), found.stderr  # 2: /proc/kmsg may not be read
    assert "text.txt:1:3: word" in found.stdout
    for name, what in [("pipe", "a FIFO"), ("link", "a FIFO"), ("sock", "a socket"), ("zeros", "a device")]:
        assert f"{folder / name}: {what}; passed over" in found.stderr
    for name in ("terminal", "kernel", "processor"):
        assert f"{folder / name}: " in found.stderr


def test_nothing_to_verify_is_an_error(folder: Path, policy: Path, tmp_path: Path) -> None:
    (folder / "kernel").unlink()
    cases: list[tuple[Path, tuple[str, ...], str]] = [
        (folder, (), "no text file is among"),
        (tmp_path / "empty", (), "there are no files"),
        (tmp_path / "hidden", (), "there are no files, or only hidden ones"),
        (tmp_path / "binary", (), "no text file is among"),
        (tmp_path / "text", ("--glob", "*.md"), "no file fits --glob"),
    ]
    for name in ("empty", "hidden", "binary", "text"):
        (tmp_path / name).mkdir()
    (tmp_path / "hidden" / ".secret").write_text("secret")
    (tmp_path / "binary" / "x").write_bytes(b"secret\0")
    (tmp_path / "text" / "x.txt").write_text("clean")
    for place, options, why in cases:
        found = verify(policy, place, *options)
        assert (found.returncode, found.stdout) == (2, ""), found
        assert f"nothing to verify: {why}" in found.stderr
    found = verify(policy, tmp_path / "empty", "--format", "json")
    assert found.returncode == 2
    assert json.loads(found.stdout)["ok"] is False
    assert verify(policy, tmp_path / "text").returncode == 0


@pytest.mark.parametrize("name", ["pipe", "sock", "zeros", "link"])
def test_named_by_itself_it_is_refused(folder: Path, policy: Path, name: str) -> None:
    found = verify(policy, folder / name)
    assert found.returncode == 2
    assert "pipe what it gives into" in found.stderr


def test_a_file_that_says_it_is_empty_is_not_taken_for_clean() -> None:
    place = Path("/proc/cpuinfo")
    if not place.exists():
        pytest.skip("no /proc")
    found = find_sources([str(place)])
    assert (found.sources, len(found.errors)) == ([], 1)
    assert "without a size" in str(found.errors[0])


@pytest.mark.parametrize("end", ["", "\n", "é"])
def test_a_file_that_grows_is_read_up_to_where_it_ended(tmp_path: Path, end: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text("first line" + end, encoding="utf-8")
    (source,) = find_sources([str(path)]).sources
    text = ""
    with open(path, "a", encoding="utf-8") as growing:
        for piece, _, errors in texts_of(source):
            text += piece
            assert not errors
            growing.write("more and more\n")
            growing.flush()
            assert len(text) < 100
    assert text == "first line" + end
    part = Source(source.name, "jsonl", source.relative, source.size)
    assert sum(len(lines) for lines, _ in lines_of(part)) == 1
