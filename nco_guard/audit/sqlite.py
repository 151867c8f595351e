"""Events in an SQLite file, to ask questions of: which rule, which run, since when.

Not tamper-evident: who can write the file can change it. Where that matters keep a chained log of JSON lines
beside it (`fan_out`). Cost: a transaction per event, some tens of microseconds; several processes may write to
one file, one after another.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Final, Literal, Self
from uuid import UUID

from nco_guard.arguments import file_path
from nco_guard.audit.events import (
    AnyEvent,
    DeadEnd,
    Event,
    Intervention,
    Verification,
    parse_event,
    time_text,
)
from nco_guard.copies import Staying
from nco_guard.errors import ArgumentValueError, AuditError

__all__ = ["SqliteSink", "is_database", "stored_lines"]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, time TEXT NOT NULL,
    request_id TEXT, parent_id TEXT, line TEXT NOT NULL, UNIQUE (run_id, number));
CREATE TABLE IF NOT EXISTS rules (event INTEGER NOT NULL REFERENCES events (id), rule_id TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_time ON events (time);
CREATE INDEX IF NOT EXISTS events_kind ON events (kind, time);
CREATE INDEX IF NOT EXISTS events_request ON events (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS rules_rule ON rules (rule_id, event);
"""
_COUNTED: Final = {
    "kind": "kind",
    "run_id": "run_id",
    "request_id": "request_id",
    "day": "substr(time, 1, 10)",
}


class SqliteSink(Staying):
    """Writes events to an SQLite file and answers questions about them.

    An event is in the file when the call returns, and stays there if the process is killed; with `fsync=True`
    also if the machine loses its power. A new file is readable by its owner only. Raises `AuditError` where
    the file cannot be opened, read or written.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self.path = file_path("path", path)
        self._fsync = fsync
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        with self._lock, self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = self._connected()

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30, check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._fsync else 'NORMAL'}")
        connection.executescript(_SCHEMA)
        return connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            # SQLite's messages name tables and columns, never values.
            full = getattr(error, "sqlite_errorname", "").startswith("SQLITE_FULL") or (
                getattr(error, "errno", None) == errno.ENOSPC
            )
            hint = f"; make room on the disk of {self.path.parent}" if full else ""
            raise AuditError(f"the audit database {self.path}: {error}{hint}") from error

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            raise AuditError(f"the audit database {self.path} is closed")
        if self._process != os.getpid():  # a connection must not be used on both sides of a fork
            self._connection, self._process = self._connected(), os.getpid()
        return self._connection

    def __call__(self, event: Event) -> None:
        """Write the event."""
        rules: set[str] = set()
        if isinstance(event, Intervention | DeadEnd):
            rules.update(event.rule_ids)
        elif isinstance(event, Verification):
            rules.update(span.rule_id for span in event.findings)
        line = event.to_json()
        when = time_text(event.time)
        with self._lock, self._errors():
            connection = self._ready()
            connection.execute("BEGIN IMMEDIATE")
            try:
                row = connection.execute(
                    "INSERT INTO events (run_id, number, kind, time, request_id, parent_id, line) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        str(event.run_id),
                        event.number,
                        event.kind,
                        when,
                        event.request_id,
                        event.parent_id,
                        line,
                    ),
                )
                connection.executemany(
                    "INSERT INTO rules (event, rule_id) VALUES (?, ?)",
                    [(row.lastrowid, rule) for rule in sorted(rules)],
                )
                connection.execute("COMMIT")
            except BaseException:
                # On a full disk SQLite has gone back by itself; what it says then must not hide what went wrong.
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    def events(
        self,
        *,
        kind: str | None = None,
        run_id: UUID | str | None = None,
        request_id: str | None = None,
        rule_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[AnyEvent]:
        """The events that fit all that is given, in the order of writing; `until` is exclusive, `limit` takes the
        first.
        """
        where, values = _conditions(kind, run_id, request_id, rule_id, since, until)
        with self._lock, self._errors():
            rows = (
                self._ready()
                .execute(
                    f"SELECT line FROM events WHERE {where} ORDER BY id LIMIT ?",
                    (*values, -1 if limit is None else limit),
                )
                .fetchall()
            )
        return [parse_event(line) for (line,) in rows]

    def counts(
        self,
        by: Literal["kind", "rule_id", "run_id", "request_id", "day"],
        *,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> dict[str, int]:
        """How many events there are for each value; by rule, an event with several rules counts for each."""
        where, values = _conditions(kind, None, None, None, since, until)
        if by == "rule_id":
            what, table = "rule_id", "events JOIN rules ON rules.event = events.id"
        elif by in _COUNTED:
            what, table = _COUNTED[by], "events"
        else:
            raise ArgumentValueError(f"by: one of rule_id, {', '.join(_COUNTED)}")
        query = f"SELECT {what} AS value, count(*) FROM {table} WHERE {where} GROUP BY value ORDER BY value"
        with self._lock, self._errors():
            rows = self._ready().execute(query, values).fetchall()
        return {value: count for value, count in rows if value is not None}

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_database(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a file of SQLite's, by its first bytes. Raises `AuditError` where it cannot be read."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as stream:
            return stream.read(16) == b"SQLite format 3\0"
    except OSError as error:
        raise AuditError(f"cannot read the audit log {os.fspath(path)}: {error.strerror}") from error


def stored_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """The events of a file of `SqliteSink` as their JSON, in the order of writing, one by one; writes nothing.

    Raises `AuditError` where the file cannot be read, or is no such database.
    """
    name = file_path("path", path).absolute().as_uri()
    try:
        with closing(sqlite3.connect(f"{name}?mode=ro", uri=True, timeout=30)) as connection:
            for (line,) in connection.execute("SELECT CAST(line AS TEXT) FROM events ORDER BY id"):
                yield line
    except (sqlite3.Error, OSError) as error:
        raise AuditError(f"the audit database {os.fspath(path)}: {error}") from error


def _conditions(
    kind: str | None,
    run_id: UUID | str | None,
    request_id: str | None,
    rule_id: str | None,
    since: datetime | None,
    until: datetime | None,
) -> tuple[str, tuple[str, ...]]:
    """SQL and the values that it leaves open."""
    for moment in (since, until):
        if moment is not None and moment.tzinfo is None:
            raise ArgumentValueError("since and until need a time zone")
    wanted = {
        "kind = ?": kind,
        "run_id = ?": None if run_id is None else str(run_id),
        "request_id = ?": request_id,
        "id IN (SELECT event FROM rules WHERE rule_id = ?)": rule_id,
        "time >= ?": None if since is None else time_text(since),
        "time < ?": None if until is None else time_text(until),
    }
    given = {sql: value for sql, value in wanted.items() if value is not None}
    return " AND ".join(given) or "1", tuple(given.values())
