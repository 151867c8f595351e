"""Where the harness looks: everything that a route gives, shows, writes, keeps or raises, gathered under names."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nco_guard.audit import JsonLinesSink, LoggingSink, MemorySink, Sink, fan_out
from nco_guard.audit.sqlite import SqliteSink
from tests.leaks.looking import error_texts, leaks_in

__all__ = ["Look", "Places"]


@dataclass(frozen=True)
class Look:
    """One look at one place: its name, and where in it the secret stands."""

    place: str
    leaks: tuple[str, ...]


@dataclass
class Places:
    """Gathers what a route shows, then looks at it."""

    folder: Path
    gathered: list[tuple[str, Any, bool, bool]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    memory: MemorySink = field(default_factory=MemorySink)
    result: Any = None  # what the route returned, to be compared for clean twins

    def add(self, place: str, value: Any, *, parsed: bool = False, printed: bool = True) -> Any:
        """A thing that somebody may see. `parsed`, `printed`: see `leaks_in`."""
        self.gathered.append((place, value, parsed, printed))
        return value

    def returned(self, value: Any, *, parsed: bool = False) -> Any:
        """What the route returned."""
        self.result = value
        return self.add("return value", value, parsed=parsed)

    def chunks(self, chunks: Any, name: str = "chunks", *, parsed: bool = False) -> list[Any]:
        """Pieces of a stream: each by itself, and all of them as a reader has them in the end."""
        kept = []
        for chunk in chunks:
            kept.append(chunk)
            self.add(f"each of the {name}", chunk, parsed=parsed, printed=False)
        self.joined(kept, name, parsed=parsed)
        return kept

    def joined(self, kept: list[Any], name: str = "chunks", *, parsed: bool = False) -> None:
        """The pieces put together as the framework puts them, and read one after the other."""
        if all(isinstance(one, str) for one in kept):
            self.add(f"{name} joined", "".join(kept), parsed=parsed)
            return
        self.add(f"{name} side by side", kept, parsed=parsed, printed=False)
        try:
            whole = kept[0]
            for one in kept[1:]:
                whole = whole + one
        except Exception:
            return
        self.add(f"{name} joined", whole, parsed=parsed)

    def failed(self, error: BaseException) -> None:
        """What the route raised."""
        self.errors.append(error)

    @contextmanager
    def watching(self) -> Iterator[Sink]:
        """Everything that is written while this is open; gives the sink to be used for the audit."""
        log, database = self.folder / "log.jsonl", self.folder / "log.db"
        logged, written, warned = io.StringIO(), io.StringIO(), io.StringIO()
        handler = logging.StreamHandler(logged)
        handler.setFormatter(logging.Formatter("%(name)s %(message)s %(exc_info)s"))
        root = logging.getLogger()
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        lines, rows = JsonLinesSink(log), SqliteSink(database)
        audit = logging.getLogger("leaks.audit")
        try:
            with (
                redirect_stdout(written),
                redirect_stderr(warned),
                warnings.catch_warnings(record=True) as caught,
            ):
                warnings.simplefilter("always")
                yield fan_out(lines, rows, self.memory, LoggingSink(audit))
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
            lines.close()
            rows.close()
            self.add("logs at DEBUG", logged.getvalue())
            self.add("stdout", written.getvalue())
            self.add("stderr", warned.getvalue())
            self.add("warnings", [str(one.message) for one in caught])
            self.add("audit as JSON lines", log.read_text())
            self.add("audit in SQLite", database.read_bytes())
            self.add("audit in memory", [repr(event) for event in self.memory.events])

    def looks(self) -> Iterator[Look]:
        """A look at each thing that was gathered."""
        known: dict[int, Any] = {}
        for place, value, parsed, printed in self.gathered:
            yield Look(place, tuple(leaks_in(value, parsed=parsed, printed=printed, known=known)))
        for error in self.errors:
            for index, text in enumerate(error_texts(error)):
                yield Look(f"raised {type(error).__name__}", tuple(leaks_in(text)) if text else ())
                del index
        self.gathered.clear()
        sys.stdout.flush()
