"""What is to be verified: files, folders, standard input, each as text or as JSON lines, packed by gzip or not."""

from __future__ import annotations

import fnmatch
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from nco_guard.errors import InputError

__all__ = ["STDIN", "Form", "Found", "Source", "find_sources", "is_packed", "lines_of", "texts_of"]

STDIN = "-"
Form = Literal["text", "jsonl"]
_JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_CHUNK = 1 << 20
_PROBED = 1 << 13


@dataclass(frozen=True, slots=True)
class Source:
    """One file. `relative` is its path within the folder it was found in, or its name; `size` in bytes, as it lies.

    `first` and `last` bound the part of it that is meant: the lines that begin there.
    """

    name: str
    form: Form
    relative: str
    size: int = 0
    found: bool = False
    first: int = 0
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What `find_sources` found: the files that are meant, in order; what cannot be read; of folders how many binary
    files were passed over, and what else, each with what it is.
    """

    sources: list[Source]
    errors: list[InputError]
    binary: int
    passed: list[InputError]


# Reading one of these can wait for ever, or never end.
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def find_sources(paths: Sequence[str], *, globs: Sequence[str] = (), form: Form | None = None) -> Found:
    """What there is to verify. Nothing is waited on: what is no regular file is not opened.

    Folders are gone through in the order of names; `globs` (any of them) choose from their files, by name or by path
    within the folder. Hidden files and folders, links to folders, and files that hold a zero byte near their beginning
    are passed over, and so are FIFOs, sockets, devices and what has no size of its own (under /proc); named by
    themselves they are errors. `form`: read all as this; else `.jsonl` and `.ndjson` (`.gz` or not) are JSON lines,
    the rest text.
    """
    found: list[Source] = []
    errors: list[InputError] = []
    others: list[InputError] = []
    passed = 0
    for name in paths:
        if name == STDIN:
            found.append(Source(name, form or "text", "stdin"))
        elif os.path.isdir(name):
            for path, relative in _files_of(Path(name), globs):
                try:
                    problem = _endless(str(path))
                    if problem is not None:
                        others.append(InputError(str(path), f"{problem}; passed over"))
                    elif _is_binary(path):
                        passed += 1
                    else:
                        size = path.stat().st_size
                        found.append(Source(str(path), form or _form(path.name), relative, size, True))
                except OSError as error:
                    errors.append(InputError(str(path), error.strerror or "cannot be read"))
        else:
            try:
                problem = _endless(name)
                if problem is not None:
                    errors.append(
                        InputError(name, f"{problem}; pipe what it gives into `nco-guard verify ... -`")
                    )
                    continue
                size = os.stat(name).st_size
                found.append(Source(name, form or _form(name), Path(name).name, size))
            except OSError as error:
                errors.append(InputError(name, error.strerror or "cannot be read"))
    return Found(found, errors, passed, others)


def _endless(name: str) -> str | None:
    """What keeps a file from being read to its end; None for an ordinary one."""
    about = os.stat(name)
    if not stat.S_ISREG(about.st_mode):
        return next((kind for test, kind in _KINDS if test(about.st_mode)), "no file")
    if about.st_size:
        return None
    # Under /proc files say that they are empty, and can wait or never end.
    descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        return "a file without a size of its own" if os.read(descriptor, 1) else None
    except BlockingIOError:
        return "a file without a size of its own"
    finally:
        os.close(descriptor)


def _form(name: str) -> Form:
    return "jsonl" if name.lower().endswith(_JSON_LINES) else "text"


def _files_of(folder: Path, globs: Sequence[str]) -> Iterator[tuple[Path, str]]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(where, name)
            relative = path.relative_to(folder).as_posix()
            if not name.startswith(".") and (
                not globs or any(fnmatch.fnmatch(name, g) or fnmatch.fnmatch(relative, g) for g in globs)
            ):
                yield path, relative


def _is_binary(path: Path) -> bool:
    with opened(str(path)) as file:
        try:
            return b"\0" in file.read(_PROBED)
        except (OSError, EOFError, zlib.error):
            return False  # damaged: what is wrong is said when it is read


def is_packed(name: str) -> bool:
    """Whether a file of this name is read, or written, packed."""
    return name.lower().endswith(".gz")


@contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """A file for reading, unpacked if its name ends in `.gz`; `-` is standard input."""
    if name == STDIN:
        yield sys.stdin.buffer
    elif is_packed(name):
        with gzip.open(name, "rb") as packed:
            yield io.BufferedReader(packed)
    else:
        with open(name, "rb") as file:
            yield file


def texts_of(source: Source) -> Iterator[tuple[str, int, list[InputError]]]:
    """A text file in pieces: the text, how many bytes were read, and the lines in it that are not UTF-8.

    In those lines U+FFFD stands for what could not be read; the rest of the file is not lost. A file that grows is read
    up to the size that it had when it was found.
    """
    rest, offset, line, last_bad = b"", 0, 1, 0
    with opened(source.name) as file:
        left = source.size if source.size and not is_packed(source.name) else None
        while True:
            wanted = _CHUNK if left is None else min(_CHUNK, left)
            data = _read(file, source.name, wanted) if wanted else b""
            if left is not None:
                left -= len(data)
                if not data and rest and _read(file, source.name, 1):
                    rest = b""  # the end of that character came later
            block = rest + data
            cut = len(block) - (_unfinished(block) if data else 0)
            block, rest = block[:cut], block[cut:]
            errors: list[InputError] = []
            try:
                text = block.decode("utf-8")
            except UnicodeDecodeError:
                pieces: list[str] = []
                place = 0
                for number, raw in enumerate(block.split(b"\n"), start=line):
                    try:
                        pieces.append(raw.decode("utf-8"))
                    except UnicodeDecodeError as error:
                        pieces.append(raw.decode("utf-8", "replace"))
                        if number != last_bad:
                            errors.append(_not_utf8(source.name, offset + place + error.start, number))
                        last_bad = number
                    place += len(raw) + 1
                text = "\n".join(pieces)
            line += block.count(b"\n")
            offset += len(block)
            yield text, len(data), errors
            if not data:
                return


def _unfinished(data: bytes) -> int:
    """How many bytes at the end can be the beginning of a character."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            return back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0


def _not_utf8(name: str, offset: int, line: int) -> InputError:
    return InputError(name, f"not UTF-8 at byte {offset}", line=line)


def _read(file: IO[bytes], name: str, size: int, *, line: bool = False) -> bytes:
    try:
        return file.readline() if line else file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "damaged"
        raise InputError(name, reason) from None


def lines_of(source: Source, size: int = 4 * _CHUNK) -> Iterator[tuple[list[bytes], int]]:
    """The lines of a file, some million bytes of them at a time, and how many bytes were read.

    Of a part of a file: the lines that begin in it.
    """
    with opened(source.name) as file:
        place = source.first
        end = source.last
        if end is None and source.size and not is_packed(source.name):
            end = source.size  # a file that grows is read up to here
        if place:
            file.seek(place - 1)
            place += len(_read(file, source.name, 0, line=True)) - 1
        while end is None or place < end:
            wanted = size if end is None else min(size, end - place)
            data = _read(file, source.name, wanted)
            if not data:
                return
            if not data.endswith(b"\n"):
                data += _read(file, source.name, 0, line=True)
            place += len(data)
            lines = data.split(b"\n")
            if lines[-1] == b"":
                lines.pop()
            yield lines, len(data)
