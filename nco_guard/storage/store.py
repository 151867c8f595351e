"""Arrays kept on disk, so that what one process has worked out the next one need not.

A store is a folder of files, each a few named arrays under a kind and a key. Keys are digests of everything that the
arrays were made from, the code that made them and the versions of Python and of its Unicode tables included, so
entries are never out of date: what changes gets another key.

A store is an aid only. A file that is damaged, truncated, foreign or of another version counts as missing and is
removed; a folder that cannot be written or a full disk means that nothing is kept. None of this is ever an error.
Nothing is unpickled. What a store returns is believed, though: whoever may write to the folder could change masks. And
it holds what policies forbid, strings as they are: whoever may read it can learn them. So the folder is made for its
owner alone, and one that is not this user's, or that others may open or replace, is refused (`CacheError`, POSIX only).

Cost: a load reads its file once and checks its SHA-256, about 1 ms a megabyte; a save writes it once, beside, and
renames it, so that processes may share a store.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
import unicodedata
from collections.abc import Mapping
from functools import cache, partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.arguments import file_path, whole
from nco_guard.errors import CacheError
from nco_guard.storage.folders import objection, readable_by_us_alone

__all__ = ["ENVIRONMENT_VARIABLE", "Arrays", "Store", "default_folder", "digest", "made_by"]

Arrays = Mapping[str, NDArray[Any]]

ENVIRONMENT_VARIABLE = "NCO_GUARD_CACHE"

_MAGIC = b"nco-guard store 1\n"
_SUM_BYTES = 32
_ALIGNED = 16
_SUFFIX = ".arrays"
_DTYPES = frozenset({"|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<i8"})
_DEFAULT_LIMIT = 1 << 30
_NO_LINKS_OR_WAITING = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_ABANDONED_SECONDS = 3600  # a temporary file this old belongs to a process that died


def digest(*parts: str | bytes | int | None) -> str:
    """SHA-256, hexadecimal, of some values: equal only for equal values in the same order."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode("utf-8", "surrogatepass")
        hasher.update(b"%d %d:" % (isinstance(part, bytes), len(data)))
        hasher.update(data)
    return hasher.hexdigest()


@cache
def made_by() -> str:
    """A digest of this package's code and of the versions that decide what is worked out; part of every key.

    All of the code, so that nobody has to know which of it matters. Cost: some 20 ms, once.
    """
    sources = _sources(resources.files("nco_guard"))
    # Without sources nobody can tell which code this is: then nothing that others have kept is used.
    code = [part for name, text in sources for part in (name, text)] or [os.urandom(16)]
    return digest(sys.version, sys.byteorder, unicodedata.unidata_version, *code)


def _sources(place: Traversable) -> list[tuple[str, bytes]]:
    if place.is_dir():
        return [s for inner in sorted(place.iterdir(), key=lambda each: each.name) for s in _sources(inner)]
    return [(place.name, place.read_bytes())] if place.name.endswith(".py") and place.is_file() else []


def default_folder() -> Path:
    """Where the platform keeps what can be made again: for example `~/.cache/nco-guard` on Linux."""
    if sys.platform == "win32":
        return (
            Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "nco-guard" / "Cache"
        )
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "nco-guard"
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "nco-guard"


class Store:
    """A folder of arrays under (kind, key). Safe to share between threads and processes.

    `limit`: bytes that it may take; beyond, what was not used for longest is removed. Errors: `CacheError` for a folder
    that is there and is not this user's alone (`storage.folders`); one that becomes so later is not used any more.
    """

    def __init__(self, folder: str | os.PathLike[str], *, limit: int = _DEFAULT_LIMIT) -> None:
        self.folder = file_path("the folder of the cache", folder)
        self.limit = whole("limit", limit, "give a number of bytes", least=0)
        self._size: int | None = None  # of all entries when last looked, and what was written since
        with contextlib.suppress(OSError):  # where nobody can tell, nothing is read or written
            if (found := objection(self.folder)) is not None:
                raise CacheError(f"the cache: {found}")

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), limit=self.limit), (str(self.folder),)

    @classmethod
    def chosen(cls, wanted: bool | str | os.PathLike[str] | Store | None) -> Store | None:
        """The store that a setting names: True the default folder, False none, a path that folder.

        None: what the environment variable `NCO_GUARD_CACHE` says: `1` the default folder, a path that folder, and
        nothing or `0` none.
        """
        if wanted is None:
            named = os.environ.get(ENVIRONMENT_VARIABLE, "")
            wanted = named == "1" if named in ("", "0", "1") else named
        if isinstance(wanted, Store):
            return wanted
        if isinstance(wanted, bool):
            return cls(default_folder()) if wanted else None
        return cls(wanted)

    def _path(self, kind: str, key: str) -> Path:
        return self.folder / f"{kind}-{digest(kind, key)[:40]}{_SUFFIX}"

    def load(self, kind: str, key: str) -> dict[str, NDArray[Any]] | None:
        """The arrays kept under a key, read-only, or None."""
        path = self._path(kind, key)
        try:
            if objection(self.folder) is not None:
                return None
            data = _read(path)
        except OSError:
            return None
        arrays = None if data is None else _unpacked(data, kind, key)
        with contextlib.suppress(OSError):
            if arrays is None:
                path.unlink()
            else:
                os.utime(path)  # used just now
        return arrays

    def save(self, kind: str, key: str, arrays: Arrays) -> bool:
        """Keep arrays under a key, in place of what is there; whether that worked.

        Types: booleans, bytes, and integers of 16, 32 and 64 bits; others are a `TypeError`.
        """
        data = _packed(kind, key, arrays)
        if len(data) > self.limit:
            return False
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if objection(self.folder) is not None:  # somebody else was quicker to make it
                return False
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                os.replace(name, self._path(kind, key))
            except OSError:
                os.unlink(name)
                raise
        except OSError:
            return False
        self._size = None if self._size is None else self._size + len(data)
        if self._size is None or self._size > self.limit:
            self._make_room()
        return True

    def _make_room(self) -> None:
        found = sorted(self._files(), key=lambda file: file[1])
        self._size = sum(size for _, _, size in found)
        for path, _, size in found:
            if self._size <= self.limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            self._size -= size

    def _files(self) -> list[tuple[Path, int, int]]:
        """Path, time of last use and bytes of each entry; removes what processes left behind that died."""
        found: list[tuple[Path, int, int]] = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    about = entry.stat()
                    if entry.name.endswith(_SUFFIX):
                        found.append((Path(entry.path), about.st_mtime_ns, about.st_size))
                    elif entry.name.endswith(".part") and about.st_mtime < time.time() - _ABANDONED_SECONDS:
                        os.unlink(entry.path)
        return found

    def sizes(self) -> dict[str, tuple[int, int]]:
        """For each kind of entry, how many there are and their bytes."""
        counted: dict[str, tuple[int, int]] = {}
        for path, _, size in self._files():
            kind = path.name.rpartition("-")[0]
            count, total = counted.get(kind, (0, 0))
            counted[kind] = (count + 1, total + size)
        return dict(sorted(counted.items()))

    def clear(self) -> tuple[int, int]:
        """Remove all entries; how many were removed, and their bytes. Other files are left alone."""
        count = total = 0
        for path, _, size in self._files():
            with contextlib.suppress(OSError):
                path.unlink()
                count, total = count + 1, total + size
        self._size = None
        return count, total


def _read(path: Path) -> bytes | None:
    """The bytes of an entry; None for what is no file of this user's, whoever placed it while the folder was open."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | _NO_LINKS_OR_WAITING)
    if not readable_by_us_alone(os.fstat(handle)):
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read()


# -- files: magic, SHA-256 of the rest, length of the header, header (JSON), arrays ------------------------------------


def _packed(kind: str, key: str, arrays: Arrays) -> bytes:
    listed: list[tuple[str, str, tuple[int, ...]]] = []
    parts: list[bytes] = []
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        if plain.dtype.str not in _DTYPES:
            raise TypeError(f"array {name!r} has type {array.dtype}; kept are {', '.join(sorted(_DTYPES))}")
        data = plain.tobytes()
        listed.append((name, plain.dtype.str, array.shape))
        parts += [data, bytes(-len(data) % _ALIGNED)]
    header = json.dumps({"kind": kind, "key": key, "arrays": listed}).encode()
    before = len(_MAGIC) + _SUM_BYTES + 8 + len(header)
    content = b"".join([len(header).to_bytes(8, "little"), header, bytes(-before % _ALIGNED), *parts])
    return b"".join([_MAGIC, hashlib.sha256(content).digest(), content])


def _unpacked(data: bytes, kind: str, key: str) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file; None if it is damaged or is another entry's."""
    begin = len(_MAGIC) + _SUM_BYTES
    if (
        not data.startswith(_MAGIC)
        or hashlib.sha256(memoryview(data)[begin:]).digest() != data[len(_MAGIC) : begin]
    ):
        return None
    end = begin + 8 + int.from_bytes(data[begin : begin + 8], "little")
    arrays: dict[str, NDArray[Any]] = {}
    try:
        header = json.loads(data[begin + 8 : end])
        if (header["kind"], header["key"]) != (kind, key):
            return None
        place = end + -end % _ALIGNED
        for name, dtype, shape in header["arrays"]:
            if dtype not in _DTYPES:
                return None
            count = int(np.prod(shape, dtype=np.int64))
            array = np.frombuffer(data, dtype, count, place).reshape(shape)
            arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
            place += array.nbytes + -array.nbytes % _ALIGNED
    except (ValueError, KeyError, TypeError):
        return None  # the checksum is right, but no store of ours wrote this
    return arrays
