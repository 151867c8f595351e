"""From a log to a report: one pass over its files verifies them and counts their events.

Both happen on the same bytes, so a file that changes meanwhile cannot be verified as one thing and counted as another.
Cost: that of `audit verify` and some ten microseconds an event; memory does not grow with the log beyond the events
that the table keeps, a few hundred bytes each.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nco_guard.arguments import file_path, whole
from nco_guard.audit.anchors import Anchor
from nco_guard.audit.events import parse_event
from nco_guard.audit.integrity import IntegrityReport, verify_log
from nco_guard.audit.report.aggregate import Aggregator
from nco_guard.audit.report.model import Integrity, LoggedProblem, LogReport
from nco_guard.audit.report.table import EventTable, TableBuilder
from nco_guard.audit.signing import SignatureVerifier
from nco_guard.audit.sqlite import is_database, stored_lines
from nco_guard.errors import AuditError

__all__ = ["AuditReport", "read_report"]

PROBLEMS: Final = 100


@dataclass(frozen=True)
class AuditReport:
    """What a log says: `numbers`, and the events of the page's table."""

    numbers: LogReport
    table: EventTable


def read_report(
    path: str | os.PathLike[str],
    *,
    verifier: SignatureVerifier | None = None,
    anchors: Iterable[Anchor] = (),
    allow_open: bool = False,
    archived: bool = False,
    max_events: int = 100_000,
    exposure_from: int = 8,
    generated: datetime | None = None,
) -> AuditReport:
    """Verify a log and count what it says.

    path: a file of JSON lines, those rotated from it are read first; or a database of `SqliteSink`, of which nobody can
        tell whether it is as it was written. verifier, anchors, allow_open, archived: as for
        `nco_guard.audit.verify_log`.
    max_events: how many events the table keeps: the last ones, and before all others violations, dead ends and errors.
    exposure_from: from how many code points of a would-be match on a text counts as exposing a rule.
    generated: the time that the report bears; now.

    A log that is not as it was written is read as far as it can be; the numbers are then those of what stands there,
    and `integrity` says so. Raises `AuditError` where a file cannot be read.

    Examples:
        >>> from nco_guard.audit import JsonLinesSink, RunRecorder
        >>> with JsonLinesSink("audit.jsonl") as log:
        ...     _ = RunRecorder(log).verification(ok=True, length=12)
        >>> read_report("audit.jsonl").numbers.integrity.state
        'intact'
    """
    path = file_path("path", path)
    max_events = whole("max_events", max_events, "as max_events=100_000", least=0)
    exposure_from = whole("exposure_from", exposure_from, "as exposure_from=8", least=1)
    aggregator, table = Aggregator(exposure_from=exposure_from), TableBuilder(max_events)
    if is_database(path):
        if verifier is not None or list(anchors):
            raise AuditError(
                f"{os.fspath(path)} is a database: it has no chain that a key or anchors could vouch for"
            )
        integrity = _read_database(path, aggregator, table)
    else:
        held = list(anchors)
        report = verify_log(
            path,
            verifier=verifier,
            anchors=held,
            allow_open=allow_open,
            archived=archived,
            each=lambda event: table.add(event, aggregator.add(event)),
            max_problems=PROBLEMS,
        )
        integrity = _integrity(report, signatures_checked=verifier is not None, anchors=len(held))
    return AuditReport(aggregator.result(integrity, generated), table.result())


def _read_database(path: str | os.PathLike[str], aggregator: Aggregator, table: TableBuilder) -> Integrity:
    problems: list[LoggedProblem] = []
    lines = refused = 0
    for line in stored_lines(path):
        lines += 1
        try:
            event = parse_event(line)
        except AuditError as error:
            refused += 1
            if len(problems) < PROBLEMS:
                problems.append(LoggedProblem(what="unknown", file=str(path), line=lines, message=str(error)))
        else:
            table.add(event, aggregator.add(event))
    return Integrity(
        state="altered" if refused else "untold",
        files=(str(path),),
        lines=lines,
        chains=0,
        open_chains=0,
        signatures_checked=False,
        signed_chains=0,
        anchors=0,
        problems=tuple(problems),
        problem_counts={"unknown": refused} if refused else {},
        limits=(),
        absent=0,
    )


def _integrity(report: IntegrityReport, *, signatures_checked: bool, anchors: int) -> Integrity:
    kinds = set(report.counts)
    state: str
    if not kinds:
        state = "intact"
    elif kinds == {"open"}:
        state = "open"
    elif kinds == {"unsealed"} and not report.chains:
        state = "untold"
    else:
        state = "altered"
    return Integrity.model_validate(
        {
            "state": state,
            "files": report.files,
            "lines": report.lines,
            "chains": len(report.chains),
            "open_chains": sum(not chain.closed for chain in report.chains),
            "signatures_checked": signatures_checked,
            "signed_chains": sum(chain.signed == chain.seq for chain in report.chains),
            "anchors": anchors,
            "problems": [
                {"what": one.what, "file": one.file, "line": one.line, "message": one.message}
                for one in report.problems
            ],
            "problem_counts": report.counts,
            "limits": report.limits,
            "absent": report.absent,
        }
    )
