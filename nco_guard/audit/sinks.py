"""Where events go: plain callables that take one event, and the reader of what one of them writes.

A sink is any `Callable[[Event], None]`. A sink that cannot record raises, and the run stops: an unrecorded
run is not taken for a recorded one (`RunRecorder(on_error="log")` is the way to choose otherwise).
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from nco_guard.audit.events import (
    DeadEnd,
    Event,
    Intervention,
    RunFinished,
    RunStarted,
    Verification,
    parse_event,
)
from nco_guard.errors import AuditError

__all__ = ["EventLog", "JsonLinesSink", "LoggingSink", "MemorySink", "Sink", "fan_out", "read_events"]

Sink = Callable[[Event], None]
"""Any callable that takes one event; it raises where it cannot record it."""


class JsonLinesSink:
    """Appends one line of canonical JSON per event to a file; threads and processes may share the file.

    Each event is one `write` on a descriptor opened for appending: lines of several processes do not
    interleave on a local file system, and what was recorded is with the operating system when the call
    returns (and on the disk too with `fsync=True`, at the price of a disk flush per event). Creates missing
    folders; a new file is readable by its owner only. Raises `AuditError` when the file cannot be opened or a
    line cannot be written whole.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self.path = Path(path)
        self._fsync = fsync
        self._lock = threading.Lock()
        # O_BINARY exists on Windows only, where a text descriptor would rewrite line ends.
        flags = (
            os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise AuditError(f"cannot open the audit log {self.path}: {error.strerror}") from error
        self._open = True
        self._torn = self._ends_torn()

    def _ends_torn(self) -> bool:
        """Whether a previous writer died within a line."""
        try:
            if os.lseek(self._descriptor, 0, os.SEEK_END) == 0:
                return False
            os.lseek(self._descriptor, -1, os.SEEK_END)
            return os.read(self._descriptor, 1) != b"\n"
        except OSError:
            return False  # a pipe or a terminal: nothing was written before

    def __call__(self, event: Event) -> None:
        """Append the event as one line."""
        line = event.to_json().encode("ascii") + b"\n"
        with self._lock:
            if not self._open:
                raise AuditError(f"the audit log {self.path} is closed")
            if self._torn:  # a fresh line, so that the broken one does not swallow this event
                line = b"\n" + line
            try:
                written = os.write(self._descriptor, line)
                if self._fsync:
                    os.fsync(self._descriptor)
            except OSError as error:
                raise AuditError(f"cannot write to the audit log {self.path}: {error.strerror}") from error
            self._torn = written != len(line)
        if self._torn:
            raise AuditError(
                f"only {written} of {len(line)} bytes of an event reached the audit log {self.path}"
            )

    def close(self) -> None:
        """Close the file; closing twice is harmless, writing afterwards raises `AuditError`."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MemorySink:
    """Keeps events in memory, in the order of arrival; for tests and for reading a run right after it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Keep the event."""
        with self._lock:
            self._events.append(event)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events so far."""
        with self._lock:
            return tuple(self._events)


class LoggingSink:
    """Hands each event to `logging` as its line of JSON.

    Dead ends, failed verifications and runs that ended by an error are warnings; everything else has `level`.
    The event itself is at `record.audit_event`. Handlers swallow their own errors: where a record must not be
    lost, use `JsonLinesSink`.
    """

    def __init__(
        self, logger: logging.Logger | str = "nco_guard.audit", *, level: int = logging.INFO
    ) -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = level

    def __call__(self, event: Event) -> None:
        """Log the event."""
        worrying = (
            isinstance(event, DeadEnd)
            or (isinstance(event, Verification) and not event.ok)
            or (isinstance(event, RunFinished) and event.error is not None)
        )
        level = max(logging.WARNING, self._level) if worrying else self._level
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event.to_json(), extra={"audit_event": event})


def fan_out(*sinks: Sink) -> Sink:
    """One sink that hands each event to all of `sinks`, in order; the first that raises stops the rest."""

    def everywhere(event: Event) -> None:
        for sink in sinks:
            sink(event)

    return everywhere


@dataclass(frozen=True)
class EventLog:
    """What `read_events` found.

    `torn` says that the last line is cut (a writer died, or is writing now); `damaged_lines` are the numbers,
    from 1, of all lines that are not whole, the torn one included. Their events are lost.
    """

    events: tuple[RunStarted | Intervention | DeadEnd | RunFinished | Verification, ...]
    torn: bool
    damaged_lines: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Whether every line was read."""
        return not self.damaged_lines


def read_events(path: str | os.PathLike[str]) -> EventLog:
    """Read a log that `JsonLinesSink` wrote; lines that were cut are reported, not raised.

    Raises `AuditError` where the file cannot be read, or where a whole line is no event of this schema
    version. Reads the file into memory.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise AuditError(f"cannot read the audit log {path}: {error.strerror}") from error
    events, damaged = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            json.loads(line)
        except ValueError:
            damaged.append(number)
            continue
        try:
            events.append(parse_event(line))
        except AuditError as error:
            raise AuditError(f"{path}, line {number}: {error}") from None
    return EventLog(
        events=tuple(events),
        torn=bool(damaged) and damaged[-1] == len(lines),
        damaged_lines=tuple(damaged),
    )
