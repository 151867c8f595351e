"""Whether a chained log is as it was written: what was edited, removed, moved or cut off, and where.

What the chain shows by itself: any edited line, any line removed or moved from within a chain, lines of several
writers that changed places, files that are missing or stand in another order, a beginning that is gone. What it cannot
show by itself: that lines at the end are gone, unless the chain was closed; that whole chains are gone from the end;
and that somebody without a conscience wrote the whole log anew. For the first two there are anchors (the heads of all
chains at some moment, kept elsewhere), for the last signatures. What could not be told is part of the verdict.

Cost: one pass over the files, some tens of microseconds a line; memory for one entry per chain and anchored head.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nco_guard.arguments import file_path
from nco_guard.audit.anchors import Anchor, Head
from nco_guard.audit.chain import signed_bytes, utc_text
from nco_guard.audit.checking import ChainSummary, LogCheck, Problem, What
from nco_guard.audit.events import AnyEvent
from nco_guard.audit.jsonl import rotated_files
from nco_guard.audit.signing import SignatureVerifier, Signer
from nco_guard.audit.sqlite import is_database
from nco_guard.errors import AuditError

__all__ = ["ChainSummary", "IntegrityReport", "Problem", "make_anchor", "verify_log"]


@dataclass(frozen=True)
class IntegrityReport:
    """What `verify_log` found; `ok` if nothing.

    `counts` says how many problems there are of each kind; `problems` are the first of them where their number was
    bounded, else all. `limits` says what could not be told, a sentence each: they are part of the verdict, of a good
    one too. `absent`: lines that were put away, as far as anchors know; they were not read, the verdict is about the
    others. `unsigned`: lines after the last signature of their chain, where a key was given and the chain has no end.
    """

    files: tuple[str, ...]
    lines: int
    events: int
    chains: tuple[ChainSummary, ...]
    problems: tuple[Problem, ...]
    counts: dict[What, int]
    limits: tuple[str, ...] = ()
    absent: int = 0
    unsigned: int = 0

    @property
    def ok(self) -> bool:
        """Whether what is here is as it was written, and nothing is known to be missing that was not put away."""
        return not self.counts

    @property
    def verdict(self) -> str:
        """The verdict in a line, without `limits`."""
        sizes = ", ".join(
            f"{count:,} {noun}{'' if count == 1 else 's'}"
            for count, noun in (
                (self.events, "event"),
                (len(self.chains), "chain"),
                (len(self.files), "file"),
            )
        )
        if not self.ok:
            found = sum(self.counts.values())
            return f"{found:,} problem{'' if found == 1 else 's'} ({sizes})"
        rest = "; its beginning was put away, and is not part of this verdict" if self.absent else ""
        if not self.unsigned:
            return f"what is here is as it was written ({sizes}){rest}"
        lines = "1 line is" if self.unsigned == 1 else f"{self.unsigned:,} lines are"
        return f"what is signed of it is as it was written, {lines} not signed ({sizes}){rest}"


def make_anchor(report: IntegrityReport, signer: Signer | None = None) -> Anchor:
    """An anchor for a log that was just verified. Raises `AuditError` if anything but open ends was found in it.

    Where the report was made with a key, each head says how far that key had signed its chain: an anchor vouches that
    lines were there, not for who wrote what nobody signed.

    Examples:
        >>> with JsonLinesSink("audit.jsonl") as log:
        ...     _ = RunRecorder(log).verification(ok=True, length=12)
        >>> anchor = make_anchor(verify_log("audit.jsonl"))
        >>> verify_log("audit.jsonl", anchors=[anchor]).problems
        ()
    """
    if set(report.counts) - {"open"} or not report.chains:
        raise AuditError("the log is not as it was written; an anchor would vouch for it")
    anchor = Anchor(
        time=utc_text(),
        heads=tuple(
            Head(
                chain=one.chain,
                seq=one.seq,
                sha256=one.sha256,
                signed=None if one.signed == one.seq else one.signed,
            )
            for one in report.chains
        ),
    )
    if signer is None:
        return anchor
    fields = anchor.model_dump(mode="json", exclude_none=True)
    return anchor.model_copy(update={"signature": signer.signature(signed_bytes(fields))})


def verify_log(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    verifier: SignatureVerifier | None = None,
    anchors: Iterable[Anchor] = (),
    allow_open: bool = False,
    archived: bool = False,
    each: Callable[[AnyEvent], None] | None = None,
    max_problems: int | None = None,
) -> IntegrityReport:
    """Check a log: one file with the files rotated from it, or the files given, in the order of writing.

    verifier: the key that heads and anchors must be signed with; without one, signatures are not looked at.
    anchors: heads that must be in the log, oldest anchor first.
    allow_open: chains without an end are no problem (a log that is being written); with a key, nor are lines after the
        last signature of such a chain. Both are then named in `limits`.
    archived: older files were put away, so the log may begin where one of the anchors ends, and only there: a beginning
        that is gone is a problem otherwise, whatever anchors say.
    each: is handed every event that can be read, in the order of the lines, whatever is wrong with its line; so what
        is done with the events and the verdict are about the same bytes. max_problems: how many to keep.

    Of a file of `SqliteSink` nothing can be told: that is its one problem, and no event is read. Raises `AuditError`
    where a file cannot be read.

    Examples:
        >>> with JsonLinesSink("audit.jsonl") as log:
        ...     _ = RunRecorder(log).verification(ok=True, length=12)
        >>> verify_log("audit.jsonl").problems
        ()
    """
    check = LogCheck(verifier, list(anchors), archived=archived, each=each, max_problems=max_problems)
    plan = _Plan.of(path)
    if len(plan.files) == 1 and is_database(plan.files[0]):
        check.file = str(plan.files[0])
        check.problem("unsealed", "a database has no chain: nobody can tell whether it is as it was written")
        return _result(check, plan, ())
    for file in plan.reading():
        for name, message, at_start in plan.remarks.get(file, ()):
            check.file_problem(name, message, may_be_archived=at_start)
        check.read(file, may_be_cut=allow_open and file == plan.files[-1])
    if len(plan.files) > 1 and plan.log == Path(check.file) and not check.line:
        plan.without_end = str(plan.log), "holds nothing"
    check.finish(allow_open=allow_open)
    if plan.without_end is not None and not allow_open:
        name, state = plan.without_end
        check.file_problem(name, f"{state}, though files were rotated from it", what="open")
    return _result(check, plan, tuple(check.limits(allow_open=allow_open)))


def _result(check: LogCheck, plan: _Plan, limits: Sequence[str]) -> IntegrityReport:
    if plan.without_end is not None:
        limits = (
            f"what was written to {plan.without_end[0]}, which {plan.without_end[1]}, after the rotated files",
            *limits,
        )
    return IntegrityReport(
        files=tuple(map(str, plan.files)),
        lines=check.lines,
        events=sum(chain.events for chain in check.chains.values()),
        chains=tuple(check.chains.values()),
        problems=tuple(check.problems),
        counts=dict(check.counts),
        limits=tuple(limits),
        absent=check.absent,
        unsigned=check.unsigned,
    )


@dataclass
class _Plan:
    """The files of a log in the order of writing, and what is wrong with their numbering.

    remarks: for a file, what is to be said before it is read: a name, a message, and whether files that were put away
    would explain it. without_end: the log itself and its state, if only files rotated from it hold lines.
    """

    files: list[Path]
    remarks: dict[Path, list[tuple[str, str, bool]]] = field(default_factory=dict)
    without_end: tuple[str, str] | None = None
    log: Path | None = None
    last: int = 0

    @classmethod
    def of(cls, path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> _Plan:
        if isinstance(path, Iterable) and not isinstance(path, str | bytes | os.PathLike):
            plan = cls([file_path("path", one) for one in path])
        else:
            plan = cls([])
            plan._number(file_path("path", path))
        if not plan.files:
            raise AuditError(f"cannot read the audit log {path}: No such file")
        for file in plan.files:
            if file.is_dir():
                raise AuditError(f"cannot read the audit log {file}: Is a directory")
            if file.exists() and not file.is_file():
                raise AuditError(
                    f"cannot read the audit log {file}: no regular file, so it may never end; write what it gives "
                    "into one"
                )
        return plan

    def reading(self) -> Iterator[Path]:
        """The files; those that are rotated meanwhile by a writer come before the log itself."""
        for file in [one for one in self.files if one != self.log]:
            yield file
        if self.log is None or self.log not in self.files:
            return
        while late := [(number, file) for number, file in rotated_files(self.log) if number > self.last]:
            for self.last, file in late:
                self.files.insert(-1, file)
                yield file
        yield self.log

    def _number(self, log: Path) -> None:
        self.log = log
        due, waiting = 1, list[tuple[str, str, bool]]()
        for number, file in rotated_files(log):
            if number > due:
                waiting.append((f"{log}.{due:06d}", _gone(due, number - 1), due == 1))
            due, self.last = number + 1, number
            if not file.is_file():
                kind = "a directory" if file.is_dir() else "no regular file"
                waiting.append((str(file), f"{kind}, where a file of the log should be", False))
                continue
            self.files.append(file)
            self.remarks[file], waiting = waiting, []
        if log.exists():
            self.files.append(log)
            self.remarks[log] = waiting
        elif self.files:
            self.without_end = str(log), "is not there"
            self.remarks[self.files[-1]] += waiting


def _gone(first: int, last: int) -> str:
    if first == last:
        return f"the file number {first} is not there, though later ones are"
    return f"the files numbers {first} to {last} are not there, though later ones are"
