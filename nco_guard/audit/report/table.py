"""The events of a report's table: which are kept, and the compact form in which the page holds them.

Kept are the last events, and before all others those that tell of something that should not have happened. Columns
hold numbers, and names once each; a page with 100,000 events takes some five megabytes. Memory: two rows of some 300
bytes for each event that is kept.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from nco_guard.audit.events import (
    AnyEvent,
    DeadEnd,
    GuaranteeConfigured,
    Intervention,
    PolicyLoaded,
    RunFinished,
    RunStarted,
    Span,
    Verification,
)
from nco_guard.audit.report.model import notable
from nco_guard.audit.report.runs import RecordedRun, bounded
from nco_guard.audit.report.wording import plural
from nco_guard.visible import visible

__all__ = ["KINDS", "EventTable", "TableBuilder"]

KINDS: Final = (
    "policy_loaded",
    "guarantee_configured",
    "run_started",
    "intervention",
    "dead_end",
    "verification",
    "run_finished",
)
_SPANS: Final = 8

Column = Sequence[int | float | None]


class _Row(NamedTuple):
    place: int
    time: datetime
    kind: str
    run: RecordedRun
    number: int
    what: str
    rules: tuple[str, ...] = ()
    sequence: int | None = None
    step: int | None = None
    removed: float | None = None
    rank: int | None = None
    detail: str | None = None


@dataclass(frozen=True)
class EventTable:
    """Some events as columns: row i of the table is element i of each.

    columns: "time" (milliseconds since `start`), "kind" (place in `kinds`), "run" (in `runs`), "number" (in the run),
        "what" and "detail" (in `strings`; detail None where there is none), "rules" (in `rule_sets`), "sequence",
        "step", "removed" (probability), "rank"; None where the event has no such field.
    runs: id, and places in `strings` of request id, parent id, model id (or None). rule_sets: places in `strings`.
    total: how many events the log holds. left_out: how many are not here; notable_left_out: of these, those that tell
        of something that should not have happened.
    Strings are written visibly: see `nco_guard.visible.visible`.
    """

    start: datetime | None
    columns: dict[str, Column]
    runs: Sequence[Sequence[int | str | None]]
    strings: Sequence[str]
    rule_sets: Sequence[Sequence[int]]
    total: int
    notable_left_out: int
    kinds: Sequence[str] = KINDS

    @property
    def shown(self) -> int:
        """How many events are here."""
        return len(self.columns["time"])

    @property
    def left_out(self) -> int:
        """How many are not."""
        return self.total - self.shown


class _Numbered:
    """Distinct values, numbered as they come."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}

    def of(self, value: Hashable) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def optional(self, value: Hashable | None) -> int | None:
        return None if value is None else self.of(value)


class TableBuilder:
    """Takes events one by one and keeps rows of at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._notable: deque[_Row] = deque(maxlen=limit)
        self._ordinary: deque[_Row] = deque(maxlen=limit)
        self._total = 0
        self._notable_total = 0

    def add(self, event: AnyEvent, run: RecordedRun) -> None:
        """One more event, and the run that it belongs to."""
        row = _row(self._total, event, run)
        self._total += 1
        if notable(event) is None:
            self._ordinary.append(row)
        else:
            self._notable_total += 1
            self._notable.append(row)

    def result(self) -> EventTable:
        """The table, its events in the order of the log."""
        room = self._limit - len(self._notable)
        ordinary = list(self._ordinary)[max(0, len(self._ordinary) - room) :]
        rows = sorted([*self._notable, *ordinary])
        strings, rule_sets, runs = _Numbered(), _Numbered(), _Numbered()
        start = min((row.time for row in rows), default=None)
        if start is not None:  # on a whole millisecond, so that sums of the two are what the log says, cut
            start = start.replace(microsecond=start.microsecond // 1000 * 1000)
        millisecond = timedelta(milliseconds=1)
        columns: dict[str, Column] = {
            "time": [(row.time - start) // millisecond for row in rows] if start is not None else [],
            "kind": [KINDS.index(row.kind) for row in rows],
            "run": [runs.of(row.run) for row in rows],
            "number": [row.number for row in rows],
            "what": [strings.of(row.what) for row in rows],
            "rules": [rule_sets.of(tuple(strings.of(rule) for rule in row.rules)) for row in rows],
            "sequence": [row.sequence for row in rows],
            "step": [row.step for row in rows],
            "removed": [None if row.removed is None else round(row.removed, 6) for row in rows],
            "rank": [row.rank for row in rows],
            "detail": [strings.optional(row.detail) for row in rows],
        }
        known = [run for run in runs.numbers if isinstance(run, RecordedRun)]
        listed = [
            (
                str(run.run_id),
                strings.optional(run.request_id),
                strings.optional(run.parent_id),
                strings.optional(run.model_id),
            )
            for run in known
        ]
        return EventTable(
            start=start,
            columns=columns,
            runs=listed,
            strings=[visible(text) for text in strings.numbers if isinstance(text, str)],
            rule_sets=[list(one) for one in rule_sets.numbers if isinstance(one, tuple)],
            total=self._total,
            notable_left_out=self._notable_total - len(self._notable),
        )


def _row(place: int, event: AnyEvent, run: RecordedRun) -> _Row:
    what, detail = _words(event)
    row = _Row(
        place,
        event.time,
        event.kind,
        run,
        bounded(event.number),
        sys.intern(what),
        detail=None if detail is None else sys.intern(detail),
    )
    if isinstance(event, Intervention):
        return row._replace(
            rules=_interned(event.rule_ids),
            sequence=bounded(event.sequence),
            step=bounded(event.step),
            removed=event.removed_probability,
            rank=None if event.first_allowed_rank is None else bounded(event.first_allowed_rank),
        )
    if isinstance(event, DeadEnd):
        return row._replace(
            rules=_interned(event.rule_ids), sequence=bounded(event.sequence), step=bounded(event.step)
        )
    if isinstance(event, Verification):
        return row._replace(
            rules=_interned([span.rule_id for span in event.findings]),
            sequence=None if event.sequence is None else bounded(event.sequence),
        )
    return row


def _interned(rule_ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(sys.intern, dict.fromkeys(rule_ids)))


def _words(event: AnyEvent) -> tuple[str, str | None]:
    """What the event says in a word or two, and in a sentence."""
    if isinstance(event, Intervention):
        return event.action, None
    if isinstance(event, DeadEnd):
        return event.resolution, None
    if isinstance(event, Verification):
        what = "violation" if not event.ok else "findings" if event.findings else "clean"
        said = plural(bounded(event.length), "character") + _spans("; found", event.findings)
        return what, said + _spans("; exposed", event.exposures or ())
    if isinstance(event, RunFinished):
        outcomes: dict[str, int] = {}
        for outcome in event.outcomes:
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        ended = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.items())
        seconds = f"{event.seconds:.3g} seconds"
        said = f"{plural(bounded(event.tokens), 'token')}, {seconds}{_back(event)}"
        return event.error or ended or "ended", said
    if isinstance(event, RunStarted):
        return (
            event.policy_name,
            f"{plural(bounded(event.sequences), 'sequence')}, policy {event.policy_digest}",
        )
    if isinstance(event, PolicyLoaded):
        return event.policy_name, f"{plural(len(event.rules), 'rule')}, policy {event.policy_digest}"
    if isinstance(event, GuaranteeConfigured):
        view = event.decode_view
        special = "without" if view.skip_special_tokens else "with"
        return (
            f"{special} special tokens",
            f"policy {event.policy_digest}, tokenizer {event.tokenizer_digest}, "
            f"ends covered: {', '.join(view.covered_ends) or 'none'}",
        )
    raise TypeError(f"not an event of this schema: {type(event).__name__}")


def _back(event: RunFinished) -> str:
    if event.fallbacks is None:
        return ""
    times, fallen = sum(map(bounded, event.fallbacks)), sum(one > 0 for one in event.fallbacks)
    return f"; back to the {event.back_to}: fell back {plural(times, 'time')}, in {plural(fallen, 'text')}"


def _spans(before: str, spans: Sequence[Span]) -> str:
    if not spans:
        return ""
    listed = [f"{span.rule_id} {bounded(span.start)} to {bounded(span.end)}" for span in spans[:_SPANS]]
    more = [f"and {len(spans) - _SPANS} more"] if len(spans) > _SPANS else []
    return f"{before} {', '.join([*listed, *more])}"
