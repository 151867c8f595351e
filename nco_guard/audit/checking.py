"""One pass over the lines of a log: each held against its own hash, its chain, its neighbours, keys and anchors."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from nco_guard.audit.anchors import Anchor, explaining
from nco_guard.audit.chain import GENESIS, canonical_line, seal_hash, signed_bytes
from nco_guard.audit.events import AnyEvent, parse_event
from nco_guard.audit.jsonl import CHAIN_RECORDS
from nco_guard.audit.signing import SignatureVerifier
from nco_guard.errors import AuditError

__all__ = ["ChainSummary", "LogCheck", "Problem", "What"]

What = Literal[
    "edited", "removed", "moved", "torn", "unsealed", "unknown", "signature", "anchor", "open", "empty"
]
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_CHAIN: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Of so many chains with lines that nobody signed each is named.
_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """Something is not as it was written.

    what: "edited": the line's hash is not that of its content, or another line follows than did; "removed":
        lines of the chain, or files, are missing before this one; "moved": the line stands where it did not; "torn":
        the line is cut, or no JSON; "unsealed": a line without a seal; "unknown": sealed, but no event of this
        schema version; "signature": missing or wrong; "anchor": an anchored head is not in the log; "open": the
        chain has no end: cut off here, or its writer is still at work, or was killed; "empty": no line at all.
    file, line: where, lines counted from 1; line 0: the file as a whole. chain, seq: which chain, and the number in it,
        where known.
    """

    what: What
    file: str
    line: int
    message: str
    chain: str | None = None
    seq: int | None = None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.what}: {self.message}"


@dataclass(slots=True)
class ChainSummary:
    """One writer's chain as far as it was read: its first and last line here, whether it is closed, what is signed.

    `first` is the number of its first line that is here: 0, or its beginning is not. `signed` is the number of the
    last record with a valid signature; None without a key.
    """

    chain: str
    seq: int
    sha256: str
    file: str
    line: int
    events: int = 0
    closed: bool = False
    signed: int | None = None
    woven: bool = False
    first: int = 0


@dataclass
class LogCheck:
    """The state of one pass."""

    verifier: SignatureVerifier | None
    anchors: list[Anchor]
    archived: bool = False
    each: Callable[[AnyEvent], None] | None = None
    max_problems: int | None = None
    lines: int = 0
    absent: int = 0
    chains: dict[str, ChainSummary] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    counts: Counter[What] = field(default_factory=Counter)
    file: str = ""
    previous: str = ""  # the file before
    line: int = 0
    # The line before: its chain and the hash in its seal; None at the beginning of the log, or if it cannot be read.
    before: tuple[str, str] | None = None
    # Whether nothing of this file was read yet but a cut line that a later one may vouch for; the same for the log.
    file_begins: bool = True
    log_begins: bool = True
    # A cut line that the next record may vouch for: its number, its hash, and whether it has a line break.
    torn: tuple[int, str, bool] | None = None
    cut_off: str | None = None  # a last line that was accepted though it is cut
    put_away: Anchor | None = None
    # What stands at the log's beginning, and would be in order if what came before was put away.
    begun: dict[str, tuple[int, str]] = field(default_factory=dict)
    preceded_by: str | None = None
    doubts: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.anchored = {(head.chain, head.seq, head.sha256) for one in self.anchors for head in one.heads}
        self.missing = set(self.anchored)

    # -- what is found -------------------------------------------------------------------------------------------------

    def problem(
        self,
        what: What,
        message: str,
        chain: str | None = None,
        seq: int | None = None,
        *,
        line: int | None = None,
    ) -> None:
        """Something is wrong here."""
        self._found(Problem(what, self.file, self.line if line is None else line, message, chain, seq))

    def file_problem(
        self, file: str, message: str, *, what: What = "removed", may_be_archived: bool = False
    ) -> None:
        """Something is wrong with a whole file."""
        found = Problem(what, file, 0, message)
        if may_be_archived and self.archived:
            self.doubts.append(found)
        else:
            self._found(found)

    def _found(self, problem: Problem) -> None:
        self.counts[problem.what] += 1
        if self.max_problems is None or len(self.problems) < self.max_problems:
            self.problems.append(problem)

    def _begins_late(self, message: str, chain: str, seq: int, *, known: bool) -> None:
        """What the log's beginning lacks; known: an anchor names the last line that is gone."""
        if self.archived and known:
            self.doubts.append(Problem("removed", self.file, self.line, message, chain, seq))
        elif known:
            self.problem(
                "removed",
                f"{message}; an anchor knows them: --archived says that they were put away",
                chain,
                seq,
            )
        else:
            self.problem("removed", message, chain, seq)

    # -- lines ---------------------------------------------------------------------------------------------------------

    def read(self, file: Path, *, may_be_cut: bool) -> None:
        """One more file; its last line may be cut if it is being written, or was when its writer was killed."""
        self.previous, self.file, self.line, self.file_begins = self.file, str(file), 0, True
        for raw in _lines(file):
            self.line += 1
            self.lines += 1
            self._line(raw)
        if may_be_cut and self.torn is not None and not self.torn[2]:
            self.cut_off, self.torn = f"{file}:{self.torn[0]}", None
        self._give_up_torn("the last line is cut")

    def _line(self, raw: bytes) -> None:
        text = raw.removesuffix(b"\n")
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            self._give_up_torn("the line is no JSON")
            self.torn = self.line, hashlib.sha256(text).hexdigest(), raw.endswith(b"\n")
            return
        if self.torn is not None:
            vouched = isinstance(fields, dict) and fields.get("torn") == self.torn[1]
            if vouched:
                self.torn = None
            self._give_up_torn("the line is no JSON, and the next one does not say that it was cut")
        seal: Any = fields.get("seal") if isinstance(fields, dict) else None
        if not _is_seal(seal):
            self.problem("unsealed", "the line has no seal")
            self._gap()
            if isinstance(fields, dict) and fields.get("kind") not in CHAIN_RECORDS:
                self._hand_over(fields)
            return
        chain, seq = seal["chain"], seal["seq"]
        if not _as_sealed(fields, text):
            self.problem("edited", f"number {seq} of its chain is not as it was sealed", chain, seq)
        self._weave(seal, fields)
        summary = self._follow(seal)
        self._content(fields, summary)
        self.missing.discard((chain, seq, seal["sha256"]))
        self.before = chain, seal["sha256"]
        self.file_begins = self.log_begins = False

    def _gap(self) -> None:
        """What stood here is not known, so the next line cannot be held against it."""
        self.before = None
        self.file_begins = self.log_begins = False

    def _hand_over(self, fields: dict[str, Any]) -> str | None:
        """Read an event and pass it on; what is wrong with it if it is none."""
        try:
            event = parse_event(fields)
        except AuditError as error:
            return str(error)
        if self.each is not None:
            self.each(event)
        return None

    def _give_up_torn(self, message: str) -> None:
        if self.torn is not None:
            at, self.torn = self.torn[0], None
            self.problem("torn", message, line=at)
            self._gap()

    def _weave(self, seal: dict[str, Any], fields: dict[str, Any]) -> None:
        """Whether the line before is the one that was before when this one was written."""
        chain, seq, after = seal["chain"], seal["seq"], seal.get("after")
        if self.log_begins:
            self.preceded_by = after
            if after is not None and seq == 0:
                known = any(digest == after for _, _, digest in self.anchored)
                self._begins_late(
                    "the lines before this one, of other chains, are gone", chain, seq, known=known
                )
            return
        if self.before is None:
            return
        before_chain, digest = self.before
        known_chain = self.chains.get(chain)
        woven = fields.get("woven") is True if known_chain is None else known_chain.woven
        if after is None and (before_chain == chain or not woven):
            return  # the chain's own link tells, or its writer could not see what others wrote
        if after == digest:
            return
        if self.file_begins:
            message = (
                f"this file was begun after another line than the last one of {self.previous}: a file that stood "
                f"after {self.previous} is missing, or files have changed places"
            )
        else:
            message = "another line stands before this one than when it was written"
        self.problem("moved", message, chain, seq)

    def _follow(self, seal: dict[str, Any]) -> ChainSummary:
        chain, seq, prev = seal["chain"], seal["seq"], seal["prev"]
        known = self.chains.get(chain)
        expected = 0 if known is None else known.seq + 1
        if known is None:
            self.begun[chain] = seq, prev
        if seq > expected:
            gone = f"number {expected}" if seq == expected + 1 else f"numbers {expected} to {seq - 1}"
            if known is None:
                message = f"the chain begins before this line: {gone} of it must stand there"
                self._begins_late(message, chain, seq, known=(chain, seq - 1, prev) in self.anchored)
            else:
                self.problem("removed", f"{gone} of the chain must stand before this line", chain, seq)
        elif seq < expected:
            self.problem("moved", f"number {seq} of the chain comes after number {expected - 1}", chain, seq)
        elif prev != (GENESIS if known is None else known.sha256):
            self.problem("edited", f"number {seq - 1} of the chain was another line", chain, seq)
        if known is not None and known.closed:
            self.problem("moved", "the chain was closed before", chain, seq)
        if known is None:
            known = self.chains[chain] = ChainSummary(
                chain, seq, seal["sha256"], self.file, self.line, first=seq
            )
        if seq >= known.seq:
            known.seq, known.sha256, known.file, known.line = seq, seal["sha256"], self.file, self.line
        return known

    def _content(self, fields: dict[str, Any], summary: ChainSummary) -> None:
        chain, seq = summary.chain, fields["seal"]["seq"]
        kind = fields.get("kind")
        if kind not in CHAIN_RECORDS:
            summary.events += 1
            if seq == 0:
                self.problem(
                    "removed", "the record that opens the chain must stand before this line", chain, seq
                )
            refused = self._hand_over(fields)
            if refused is not None:
                self.problem("unknown", refused, chain, seq)
            return
        if (kind == "chain_opened") != (seq == 0):
            self.problem("unknown", f"{kind} cannot be number {seq} of its chain", chain, seq)
        if kind == "chain_opened":
            summary.woven = fields.get("woven") is True
        summary.closed = summary.closed or kind == "chain_closed"
        if self.verifier is None:
            return
        if "signature" not in fields:
            self.problem("signature", f"{kind} is not signed", chain, seq)
        elif not _is_signed(fields, self.verifier):
            self.problem("signature", f"the signature of {kind} is not by this key", chain, seq)
        else:
            summary.signed = seq

    # -- the whole -----------------------------------------------------------------------------------------------------

    def finish(self, *, allow_open: bool) -> None:
        """What only the whole log shows: ends, anchors, and whether anchors explain its beginning."""
        if not self.lines:
            self.problem("empty", "the log holds nothing")
        self._explain_beginning()
        for summary in self.chains.values():
            if not summary.closed and not allow_open:
                unsigned = f"; {_not_signed(summary)}" if self._has_unsigned(summary) else ""
                self._found(
                    Problem(
                        "open",
                        summary.file,
                        summary.line,
                        f"the chain has no end after number {summary.seq}{unsigned}",
                        summary.chain,
                        summary.seq,
                    )
                )
        for anchor in self.anchors:
            signed = signed_bytes(anchor.model_dump(mode="json", exclude_none=True))
            if self.verifier is not None and not self.verifier.valid(signed, anchor.signature):
                self.problem("signature", f"the anchor of {anchor.time} is not signed by this key")
        for chain, seq, _ in sorted(self.missing):
            message = f"number {seq} of the anchored chain {chain} is not in the log as it was"
            self.problem("anchor", message, chain, seq)

    def _explain_beginning(self) -> None:
        """What was put away, if the auditor says that something was; else what is missing is a problem."""
        if self.archived and (self.doubts or self.missing):
            found = explaining(self.anchors, self.begun, self.preceded_by, self.missing)
            if found is not None:
                self.put_away, covered = found
                self.doubts.clear()
                self.missing = {
                    (chain, seq, digest)
                    for chain, seq, digest in self.missing
                    if chain not in covered
                    or seq > covered[chain].seq
                    or (seq == covered[chain].seq and digest != covered[chain].sha256)
                }
                self.absent = sum(head.seq + 1 for head in covered.values())
        for doubt in self.doubts:
            self._found(doubt)

    def _has_unsigned(self, summary: ChainSummary) -> bool:
        return self.verifier is not None and not summary.closed and summary.signed != summary.seq

    @property
    def unsigned(self) -> int:
        """Lines after the last signature of a chain without an end."""
        return sum(
            one.seq - (one.first - 1 if one.signed is None else one.signed)
            for one in self.chains.values()
            if self._has_unsigned(one)
        )

    def limits(self, *, allow_open: bool) -> Iterator[str]:
        """What this pass could not tell, a sentence each."""
        if self.put_away is not None:
            yield (
                f"what the {self.absent:,} lines say that were put away, up to the anchor of {self.put_away.time}: "
                "they were not read"
            )
        if self.cut_off is not None:
            yield f"what {self.cut_off} was to say, and who wrote it: the last line is cut"
        opened = [summary for summary in self.chains.values() if not summary.closed]
        since = f" since the anchor of {self.anchors[-1].time}" if self.anchors else ""
        if opened and allow_open:
            yield (
                f"whether lines are gone{since} from the ends of chains that were not closed "
                f"({len(opened):,} of {len(self.chains):,})"
            )
        if self.anchors:
            yield f"whether chains are gone that were begun{since}"
        else:
            yield "whether whole chains are gone from the end of the log: no anchor was given"
        if self.verifier is None:
            yield "whether somebody wrote all of it anew: no key was given"
            return
        unsigned = [summary for summary in opened if self._has_unsigned(summary)]
        for summary in unsigned[:_NAMED]:
            yield f"who wrote the end of the chain {summary.chain}: {_not_signed(summary)}"
        if len(unsigned) > _NAMED:
            yield f"who wrote the ends of {len(unsigned) - _NAMED:,} further chains, which are not signed either"


def _not_signed(summary: ChainSummary) -> str:
    begin = summary.first if summary.signed is None else summary.signed + 1
    numbers = f"number {begin} is" if begin == summary.seq else f"numbers {begin} to {summary.seq} are"
    return f"{numbers} not signed, up to {summary.file}:{summary.line}"


def _is_seal(seal: Any) -> bool:
    """Whether this is a seal as writers make them; another has no place in a chain."""
    return (
        isinstance(seal, dict)
        and set(seal) <= {"after", "chain", "prev", "seq", "sha256"}
        and all(_matches(_HASH, seal.get(key)) for key in ("prev", "sha256"))
        and _matches(_CHAIN, seal.get("chain"))
        and type(seal.get("seq")) is int
        and seal["seq"] >= 0
        and ("after" not in seal or _matches(_HASH, seal["after"]))
    )


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _as_sealed(fields: dict[str, Any], text: bytes) -> bool:
    """Whether a line is canonical, and has the hash that its seal says."""
    try:
        return (
            canonical_line(fields).encode("ascii") == text and seal_hash(fields) == fields["seal"]["sha256"]
        )
    except (ValueError, RecursionError):  # infinities or deep nesting, which no sink writes
        return False


def _is_signed(fields: dict[str, Any], verifier: SignatureVerifier) -> bool:
    try:
        return verifier.valid(signed_bytes(fields), fields["signature"])
    except (ValueError, RecursionError):  # as above
        return False


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as stream:
            yield from stream
    except OSError as error:
        raise AuditError(f"cannot read the audit log {file}: {error.strerror}") from error
