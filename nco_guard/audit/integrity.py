"""Whether a chained log is as it was written: what was edited, removed, moved or cut off, and where.

What the chain shows by itself: any edited line, any line removed or moved from within a chain, lines of
several writers that changed places. What it cannot show by itself: that lines at the end are gone, unless the
chain was closed; and that somebody without a conscience wrote the whole log anew. For the first there are
anchors (the heads of all chains at some moment, kept elsewhere) and closed chains, for the second signatures.

Cost: one pass over the files, some tens of microseconds a line; memory for one entry per chain and anchored head.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nco_guard.audit.chain import GENESIS, canonical_line, seal_hash, signed_bytes, utc_text
from nco_guard.audit.events import SCHEMA_VERSION, AnyEvent, Sha256, parse_event
from nco_guard.audit.jsonl import CHAIN_RECORDS, log_files
from nco_guard.audit.signing import SignatureVerifier, Signer
from nco_guard.errors import AuditError

__all__ = [
    "Anchor",
    "ChainSummary",
    "Head",
    "IntegrityReport",
    "Problem",
    "make_anchor",
    "read_anchors",
    "verify_log",
]

What = Literal[
    "edited", "removed", "moved", "torn", "unsealed", "unknown", "signature", "anchor", "open", "empty"
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something is not as it was written.

    what: "edited": the line's hash is not that of its content, or another line follows than did; "removed":
        lines of the chain are missing before this one; "moved": the line stands where it did not; "torn": the
        line is cut, or no JSON; "unsealed": a line without a seal; "unknown": sealed, but no event of this
        schema version; "signature": missing or wrong; "anchor": an anchored head is not in the log; "open": the
        chain has no end: cut off here, or its writer is still at work, or was killed; "empty": no line at all.
    file, line: where, lines counted from 1. chain, seq: which chain, and the number in it, where known.
    """

    what: What
    file: str
    line: int
    message: str
    chain: str | None = None
    seq: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}: {self.message}"


@dataclass(slots=True)
class ChainSummary:
    """One writer's chain as far as it was read: its last line, whether it is closed, what signatures cover.

    `signed` is the number in the chain of the last record with a valid signature; None without a key.
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


@dataclass(frozen=True)
class IntegrityReport:
    """What `verify_log` found; `ok` if nothing.

    `counts` says how many problems there are of each kind; `problems` are the first of them where their number was
    bounded, else all.
    """

    files: tuple[str, ...]
    lines: int
    events: int
    chains: tuple[ChainSummary, ...]
    problems: tuple[Problem, ...]
    counts: dict[What, int]

    @property
    def ok(self) -> bool:
        """Whether the log is as it was written."""
        return not self.counts


class Head(BaseModel):
    """A chain up to one of its lines."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    chain: str
    seq: int = Field(ge=0)
    sha256: Sha256


class Anchor(BaseModel):
    """The heads of all chains of a log at some moment: kept where the log's writer cannot reach it, it shows later
    that nothing before that moment is missing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["anchor"] = "anchor"
    schema_version: Literal[1] = SCHEMA_VERSION
    time: str
    heads: tuple[Head, ...]
    signature: dict[str, str] | None = None

    def to_json(self) -> str:
        """One line of canonical JSON."""
        return canonical_line(self.model_dump(mode="json", exclude_none=True))


def make_anchor(report: IntegrityReport, signer: Signer | None = None) -> Anchor:
    """An anchor for a log that was just verified. Raises `AuditError` if anything but open ends was found in it."""
    if set(report.counts) - {"open"}:
        raise AuditError("the log is not as it was written; an anchor would vouch for it")
    anchor = Anchor(
        time=utc_text(),
        heads=tuple(Head(chain=one.chain, seq=one.seq, sha256=one.sha256) for one in report.chains),
    )
    if signer is None:
        return anchor
    signature = signer.signature(signed_bytes(anchor.model_dump(mode="json", exclude_none=True)))
    return anchor.model_copy(update={"signature": signature})


def read_anchors(path: str | os.PathLike[str]) -> list[Anchor]:
    """The anchors of a file, one a line. Raises `AuditError`."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise AuditError(f"cannot read the anchors {path}: {error.strerror}") from error
    anchors = []
    for number, line in enumerate(lines, start=1):
        try:
            anchors.append(Anchor.model_validate_json(line))
        except ValidationError:
            raise AuditError(f"{path}, line {number}: not an anchor") from None
    return anchors


def verify_log(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    verifier: SignatureVerifier | None = None,
    anchors: Iterable[Anchor] = (),
    allow_open: bool = False,
    each: Callable[[AnyEvent], None] | None = None,
    max_problems: int | None = None,
) -> IntegrityReport:
    """Check a log: one file with the files rotated from it, or the files given, in the order of writing.

    verifier: the key that heads and anchors must be signed with; without one, signatures are not looked at.
    anchors: heads that must be in the log; an anchor also vouches for what came before the first line, where older
        files have been put away. allow_open: chains without an end are no problem (a log that is being written).
    each: is handed every event that can be read, in the order of the lines, whatever is wrong with its line; so what
        is done with the events and the verdict are about the same bytes. max_problems: how many to keep.

    Raises `AuditError` where a file cannot be read.
    """
    files = log_files(path) if isinstance(path, str | os.PathLike) else [Path(one) for one in path]
    if not files:
        raise AuditError(f"cannot read the audit log {path}: No such file")
    check = _Check(verifier, list(anchors), each, max_problems)
    for file in files:
        check.read(file, may_be_cut=allow_open and file == files[-1])
    check.finish(allow_open=allow_open)
    return IntegrityReport(
        files=tuple(map(str, files)),
        lines=check.lines,
        events=sum(chain.events for chain in check.chains.values()),
        chains=tuple(check.chains.values()),
        problems=tuple(check.problems),
        counts=dict(check.counts),
    )


@dataclass
class _Check:
    """The state of one pass."""

    verifier: SignatureVerifier | None
    anchors: list[Anchor]
    each: Callable[[AnyEvent], None] | None = None
    max_problems: int | None = None
    lines: int = 0
    chains: dict[str, ChainSummary] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    counts: Counter[What] = field(default_factory=Counter)
    file: str = ""
    line: int = 0
    # The line before: its chain and the hash in its seal; None at the beginning of a file, or if it cannot be read.
    before: tuple[str, str] | None = None
    # A cut line that the next record may vouch for: its number, its hash, and whether it has a line break.
    torn: tuple[int, str, bool] | None = None

    def __post_init__(self) -> None:
        self.anchored = {(head.chain, head.seq): head.sha256 for one in self.anchors for head in one.heads}
        self.missing = set(self.anchored)

    def problem(
        self,
        what: What,
        message: str,
        chain: str | None = None,
        seq: int | None = None,
        *,
        line: int | None = None,
    ) -> None:
        self.counts[what] += 1
        if self.max_problems is None or len(self.problems) < self.max_problems:
            at = self.line if line is None else line
            self.problems.append(Problem(what, self.file, at, message, chain, seq))

    def read(self, file: Path, *, may_be_cut: bool) -> None:
        """One more file; its last line may be cut if it is being written, or was when its writer was killed."""
        self.file, self.line, self.before = str(file), 0, None
        for raw in _lines(file):
            self.line += 1
            self.lines += 1
            self._line(raw)
        if may_be_cut and self.torn is not None and not self.torn[2]:
            self.torn = None
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
            self.before = None
            if isinstance(fields, dict) and fields.get("kind") not in CHAIN_RECORDS:
                self._hand_over(fields)
            return
        chain, seq = seal["chain"], seal["seq"]
        if not _as_sealed(fields, text):
            self.problem("edited", f"number {seq} of its chain is not as it was sealed", chain, seq)
        self._weave(seal, fields)
        summary = self._follow(seal)
        self._content(fields, summary)
        key = chain, seq
        if self.anchored.get(key) == seal["sha256"]:
            self.missing.discard(key)
        self.before = chain, seal["sha256"]

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
            self.before = None

    def _weave(self, seal: dict[str, Any], fields: dict[str, Any]) -> None:
        """Whether the line before is the one that was before when this one was written."""
        if self.before is None:
            return
        chain, digest = self.before
        after = seal.get("after")
        known = self.chains.get(seal["chain"])
        woven = fields.get("woven") is True if known is None else known.woven
        if after is None and (chain == seal["chain"] or not woven):
            return  # the chain's own link tells, or its writer could not see what others wrote
        if after != digest:
            self.problem(
                "moved",
                "another line stands before this one than when it was written",
                seal["chain"],
                seal["seq"],
            )

    def _follow(self, seal: dict[str, Any]) -> ChainSummary:
        chain, seq, prev = seal["chain"], seal["seq"], seal["prev"]
        known = self.chains.get(chain)
        expected = 0 if known is None else known.seq + 1
        if seq > expected:
            if known is not None or self.anchored.get((chain, seq - 1)) != prev:
                gone = f"number {expected}" if seq == expected + 1 else f"numbers {expected} to {seq - 1}"
                self.problem("removed", f"{gone} of the chain must stand before this line", chain, seq)
            else:
                self.missing = {one for one in self.missing if one[0] != chain or one[1] >= seq}
        elif seq < expected:
            self.problem("moved", f"number {seq} of the chain comes after number {expected - 1}", chain, seq)
        elif prev != (GENESIS if known is None else known.sha256):
            self.problem("edited", f"number {seq - 1} of the chain was another line", chain, seq)
        if known is not None and known.closed:
            self.problem("moved", "the chain was closed before", chain, seq)
        if known is None:
            known = self.chains[chain] = ChainSummary(chain, seq, seal["sha256"], self.file, self.line)
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

    def finish(self, *, allow_open: bool) -> None:
        end = self.file, self.line
        if not self.lines:
            self.problem("empty", "the log holds nothing")
        for summary in self.chains.values():
            if not summary.closed and not allow_open:
                self.file, self.line = summary.file, summary.line
                self.problem(
                    "open", f"the chain has no end after number {summary.seq}", summary.chain, summary.seq
                )
        self.file, self.line = end
        for anchor in self.anchors:
            signed = signed_bytes(anchor.model_dump(mode="json", exclude_none=True))
            if self.verifier is not None and not self.verifier.valid(signed, anchor.signature):
                self.problem("signature", f"the anchor of {anchor.time} is not signed by this key")
        for chain, seq in sorted(self.missing):
            self.problem(
                "anchor", f"number {seq} of an anchored chain is not in the log as it was", chain, seq
            )


def _is_seal(seal: Any) -> bool:
    return (
        isinstance(seal, dict)
        and set(seal) <= {"after", "chain", "prev", "seq", "sha256"}
        and all(isinstance(seal.get(key), str) for key in ("chain", "prev", "sha256"))
        and isinstance(seal.get("seq"), int)
        and isinstance(seal.get("after"), str | None)
    )


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
