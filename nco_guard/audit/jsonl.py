"""A log as a file of JSON lines: the sink that writes it, chained by default, and the reader.

Each event is one `write` on a descriptor opened for appending, under a lock that other processes respect
(POSIX `flock`; elsewhere, and on what is no regular file, appending alone has to do). So lines do not mix, a
process that is killed leaves whole lines and at most one that is cut, and a file can be rotated while others
write to it. When the call returns, the line is with the operating system, or on the disk, as `fsync` says.

Not for a file that a program of another kind writes to as well.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import stat
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

try:
    import fcntl
except ImportError:  # Windows
    _flock = None
else:
    _flock = fcntl.flock

from nco_guard.arguments import file_path, whole
from nco_guard.audit.chain import Chain
from nco_guard.audit.events import AnyEvent, Event, parse_event
from nco_guard.audit.signing import Signer
from nco_guard.copies import Staying
from nco_guard.errors import AuditError

__all__ = ["CHAIN_RECORDS", "EventLog", "JsonLinesSink", "log_files", "read_events", "rotated_files"]

CHAIN_RECORDS: Final = ("chain_opened", "chain_head", "chain_closed")
_BLOCK = 1 << 16
_sinks: weakref.WeakSet[JsonLinesSink] = weakref.WeakSet()


class JsonLinesSink(Staying):
    """Appends one line of canonical JSON per event to a file; threads and processes may share the file.

    Creates missing folders; a new file is readable by its owner only. A line that cannot be written whole is
    taken back, and `AuditError` raised; so it is where the file cannot be opened. A process forked from this
    one goes on with a chain of its own.

    chain: seal each line, see `nco_guard.audit.chain`; otherwise lines can be changed without a trace.
    signer: signs the chain's heads: the first and last one, and one after every `head_every` events.
    fsync: True: the disk has an event when the call returns (a disk flush each, milliseconds); "heads": it has
        all when a head is written, the file rotated or closed; False: when the operating system sees fit. A
        killed process loses nothing either way, a machine without power may.
    max_bytes: from this size on the file is renamed (`log.jsonl` to `log.jsonl.000001`, then `.000002`, ...)
        and a new one begun; chains go on there. Nothing is ever deleted. All writers should say the same.

    Examples:
        >>> with JsonLinesSink("audit.jsonl") as log:
        ...     _ = RunRecorder(log).verification(ok=True, length=12)
        >>> [event.kind for event in read_events("audit.jsonl").events]
        ['verification']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool | Literal["heads"] = False,
        chain: bool = True,
        signer: Signer | None = None,
        head_every: int = 256,
        max_bytes: int | None = None,
    ) -> None:
        head_every = whole("head_every", head_every, "as head_every=256", least=1)
        if max_bytes is not None:
            max_bytes = whole("max_bytes", max_bytes, "as max_bytes=10_000_000, or None", least=1)
        if signer is not None and not chain:
            raise AuditError("a signer signs the heads of a chain; leave chain=True")
        if max_bytes is not None and _flock is None:
            raise AuditError("max_bytes: files are rotated on POSIX systems only")
        self.path = file_path("path", path)
        self._fsync = fsync
        self._signer = signer
        self._head_every = head_every
        self._max_bytes = max_bytes
        self._chained = chain
        self._chain: Chain | None = None
        self._since_head = 0
        self._lock = threading.Lock()
        self._stale = False
        self._end = -1  # where our last line ended, if the file has not grown since
        self._where = os.fspath(self.path)
        self._identity = 0, 0  # inode and device of what is open
        self._regular = True
        self._descriptor = self._opened()
        self._open = True
        _sinks.add(self)

    def _opened(self) -> int:
        # O_BINARY exists on Windows only, where a text descriptor would rewrite line ends.
        flags = (
            os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise AuditError(f"cannot open the audit log {self.path}: {error.strerror}") from error
        opened = os.fstat(descriptor)
        self._regular = stat.S_ISREG(opened.st_mode)
        self._identity = opened.st_ino, opened.st_dev
        return descriptor

    def __call__(self, event: Event) -> None:
        """Append the event as one line."""
        with self._lock:
            if not self._open:
                raise AuditError(f"the audit log {self.path} is closed")
            if self._stale:  # after a fork: neither the chain nor the lock can be shared with the parent
                before = self._descriptor
                self._descriptor, self._stale = self._opened(), False
                self._chain, self._end = None, -1
                os.close(before)
            self._append(event)

    def close(self) -> None:
        """Close the chain and the file; closing twice is harmless, writing afterwards raises `AuditError`."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            try:
                if self._chain is not None and self._chain.length and not self._stale:
                    self._append(None)
            finally:
                os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, event: Event | None) -> None:
        """Write what is due: the event, and around it the chain's own records; None closes the chain."""
        try:
            size = self._acquire()
            try:
                self._write(event, size)
            finally:
                self._release()
        except OSError as error:
            raise AuditError(f"cannot write to the audit log {self.path}: {error.strerror}") from error
        finally:
            if self._chain is not None:
                self._chain.discard()

    def _write(self, event: Event | None, size: int) -> None:
        torn, after, repair = None, None, b""
        if self._regular and size != self._end:
            unfinished, torn, after = _tail(self._descriptor, size)
            if not size:  # a new file goes on where the one before it ended
                after = _last_seal(self.path)
            repair = b"\n" if unfinished else b""
        data = repair + self._lines(event, torn, after)
        written = os.write(self._descriptor, data)
        if written != len(data):
            if self._regular:  # nobody else has written since: the lock is ours
                os.ftruncate(self._descriptor, size)
            raise AuditError(
                f"only {written} of {len(data)} bytes of an event reached the audit log {self.path}"
            )
        if self._chain is not None:
            self._chain.commit()
        self._end = size + written
        if self._fsync is True or (self._fsync == "heads" and (self._since_head == 0 or event is None)):
            os.fsync(self._descriptor)

    def _lines(self, event: Event | None, torn: str | None, after: str | None) -> bytes:
        if not self._chained:
            return b"" if event is None else event.to_json().encode("ascii") + b"\n"
        lines = []
        if self._chain is None:
            self._chain = Chain(self._signer)
            self._since_head = 0
        if self._chain.length == 0:
            lines.append(self._chain.record("chain_opened", after, woven=_flock is not None, torn=torn))
            after = None
        elif torn is not None:
            lines.append(self._chain.record("chain_head", after, torn=torn))
            after = None
        if event is None:
            lines.append(self._chain.record("chain_closed", after))
            return b"".join(lines)
        lines.append(self._chain.event(event, after))
        self._since_head += 1
        if self._signer is not None and self._since_head >= self._head_every:
            self._since_head = 0
            lines.append(self._chain.record("chain_head"))
        return b"".join(lines)

    def _acquire(self) -> int:
        """Hold the file that is at the path now, rotated if it is full, for this process alone; gives its size."""
        if _flock is None or not self._regular:
            return os.fstat(self._descriptor).st_size if self._regular else 0
        while True:
            _flock(self._descriptor, fcntl.LOCK_EX)
            try:
                there = os.stat(self._where)
            except FileNotFoundError:
                there = None
            if there is not None and (there.st_ino, there.st_dev) == self._identity:
                size = there.st_size
                # A line that is cut is first made up for, in its own file.
                if (
                    self._max_bytes is None
                    or size < self._max_bytes
                    or os.pread(self._descriptor, 1, size - 1) != b"\n"
                ):
                    return size
                self._rotate()
            # Somebody, perhaps we, renamed it. Closing gives the lock back.
            before = self._descriptor
            self._descriptor, self._end = self._opened(), -1
            os.close(before)

    def _release(self) -> None:
        if _flock is not None and self._regular:
            _flock(self._descriptor, fcntl.LOCK_UN)

    def _rotate(self) -> None:
        if self._fsync:
            os.fsync(self._descriptor)
        last = max((number for number, _ in rotated_files(self.path)), default=0)
        os.rename(self.path, f"{self.path}.{last + 1:06d}")


def _tail(descriptor: int, size: int) -> tuple[bool, str | None, str | None]:
    """Of a file that somebody else wrote to last: whether its last line lacks its end, the hash of that line if it is
    cut, and the hash in the seal of the last line that is not.
    """
    data, start = b"", size
    while start > 0 and data.count(b"\n") < 2:
        step = min(_BLOCK, start)
        start -= step
        os.lseek(descriptor, start, os.SEEK_SET)  # no `pread` on Windows; writes append wherever this stands
        data = os.read(descriptor, step) + data
    whole, _, piece = data.rpartition(b"\n")
    if not piece:
        return False, None, _sealed_hash(whole.rpartition(b"\n")[2])
    if _is_json(piece):  # only the line break is missing
        return True, None, _sealed_hash(piece)
    return True, hashlib.sha256(piece).hexdigest(), _sealed_hash(whole.rpartition(b"\n")[2])


def _last_seal(log: Path) -> str | None:
    """The hash in the seal of the last line of the file that was rotated last; None where there is none."""
    rotated = [file for _, file in rotated_files(log) if file.is_file()]
    if not rotated:
        return None
    try:
        descriptor = os.open(rotated[-1], os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    try:
        return _tail(descriptor, os.fstat(descriptor).st_size)[2]
    finally:
        os.close(descriptor)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _sealed_hash(line: bytes) -> str | None:
    """The hash in a line's seal; None where it has none."""
    try:
        value = json.loads(line)["seal"]["sha256"]
    except (ValueError, KeyError, TypeError):
        return None
    # Only a hash: a forged line must not speak through the lines of others.
    return value if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else None


def _after_fork() -> None:
    for sink in _sinks:
        sink._lock = threading.Lock()  # a thread that is not there any more may have held it
        sink._stale = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def log_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a log in the order in which they were written: rotated ones, then `path`; those that exist.

    Examples:
        >>> with JsonLinesSink("audit.jsonl", max_bytes=2000) as log:
        ...     for length in range(9):
        ...         _ = RunRecorder(log).verification(ok=True, length=length)
        >>> [path.name for path in log_files("audit.jsonl")][-1]
        'audit.jsonl'
    """
    log = file_path("path", path)
    return [*(file for _, file in rotated_files(log)), *([log] if log.exists() else [])]


def rotated_files(log: Path) -> list[tuple[int, Path]]:
    """What has the name of a file rotated from a log, by its number; whether it is a file is not looked at."""
    found = []
    for path in log.parent.glob(f"{glob.escape(log.name)}.*"):
        suffix = path.name.rpartition(".")[2]
        if re.fullmatch("[0-9]{6,18}", suffix) and int(suffix) and suffix == f"{int(suffix):06d}":
            found.append((int(suffix), path))
    return sorted(found)


@dataclass(frozen=True)
class EventLog:
    """What `read_events` found.

    `torn` says that the last line is cut (a writer died, or is writing now); `damaged_lines` are the numbers,
    from 1, of all lines that are not whole, the torn one included. Their events are lost.
    """

    events: tuple[AnyEvent, ...]
    torn: bool
    damaged_lines: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Whether every line was read."""
        return not self.damaged_lines


def read_events(path: str | os.PathLike[str]) -> EventLog:
    """Read one file that `JsonLinesSink` wrote; lines that were cut are reported, not raised.

    The chain's own records are passed over, and seals are not checked: see `nco_guard.audit.verify_log`.
    Raises `AuditError` where the file cannot be read, or where a whole line is no event of this schema
    version. Reads the file into memory.

    Examples:
        >>> with JsonLinesSink("audit.jsonl") as log:
        ...     _ = RunRecorder(log).verification(ok=True, length=12)
        >>> read_events("audit.jsonl").events[0].length
        12
    """
    try:
        lines = file_path("path", path).read_bytes().split(b"\n")
    except OSError as error:
        raise AuditError(f"cannot read the audit log {path}: {error.strerror}") from error
    events, damaged = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            damaged.append(number)
            continue
        if isinstance(fields, dict) and fields.get("kind") in CHAIN_RECORDS:
            continue
        try:
            events.append(parse_event(fields))
        except AuditError as error:
            raise AuditError(f"{path}, line {number}: {error}") from None
    return EventLog(
        events=tuple(events),
        torn=bool(damaged) and damaged[-1] == len(lines),
        damaged_lines=tuple(damaged),
    )
