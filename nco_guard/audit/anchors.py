"""Anchors: where all chains of a log stood at some moment, kept where the log's writer cannot reach it.

An anchor shows later that no line from before that moment is missing. It says what was there, not who wrote it: that
is for signatures, and `Head.signed` says how far they went.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nco_guard.arguments import file_path
from nco_guard.audit.chain import canonical_line
from nco_guard.audit.events import SCHEMA_VERSION, Sha256
from nco_guard.errors import AuditError

__all__ = ["Anchor", "Head", "explaining", "read_anchors"]


class Head(BaseModel):
    """A chain up to one of its lines. signed: the number up to which the anchor's key had signed it, where less."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    chain: str
    seq: int = Field(ge=0)
    sha256: Sha256
    signed: int | None = Field(default=None, ge=0)


class Anchor(BaseModel):
    """The heads of all chains of a log at some moment: kept where the log's writer cannot reach it, it shows later
    that nothing before that moment is missing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["anchor"] = "anchor"
    schema_version: Literal[1] = SCHEMA_VERSION
    time: str
    heads: tuple[Head, ...] = Field(min_length=1)
    signature: dict[str, str] | None = None

    def to_json(self) -> str:
        """One line of canonical JSON."""
        return canonical_line(self.model_dump(mode="json", exclude_none=True))


def read_anchors(path: str | os.PathLike[str]) -> list[Anchor]:
    """The anchors of a file, one a line. Raises `AuditError`, also where there is none: nothing would be checked.

    Examples:
        >>> with JsonLinesSink("audit.jsonl") as log:
        ...     _ = RunRecorder(log).verification(ok=True, length=12)
        >>> _ = open("anchors.jsonl", "w").write(make_anchor(verify_log("audit.jsonl")).to_json() + chr(10))
        >>> len(read_anchors("anchors.jsonl"))
        1
    """
    try:
        lines = file_path("path", path).read_bytes().splitlines()
    except OSError as error:
        raise AuditError(f"cannot read the anchors {path}: {error.strerror}") from error
    anchors = []
    for number, line in enumerate(lines, start=1):
        try:
            anchors.append(Anchor.model_validate_json(line))
        except ValidationError:
            raise AuditError(f"{path}, line {number}: not an anchor") from None
    if not anchors:
        raise AuditError(f"{path} holds no anchor, so nothing would be checked by it")
    return anchors


def explaining(
    anchors: Sequence[Anchor],
    begun: dict[str, tuple[int, str]],
    before: str | None,
    missing: set[tuple[str, int, str]],
) -> tuple[Anchor, dict[str, Head]] | None:
    """The anchor at whose moment the beginning of a log was put away, and how far each chain went up to it.

    begun: the number and `prev` of each chain's first line that is there. before: the hash of the line that stood
    before the log's first one, where that is known. missing: anchored heads that are not there. An anchor explains a
    beginning if every chain goes on exactly where the anchors up to it left that chain, or began after them; one that
    also covers all that is missing is preferred, then the first.
    """
    covered: dict[str, Head] = {}
    found: tuple[Anchor, dict[str, Head]] | None = None
    for anchor in anchors:
        for head in anchor.heads:
            if head.chain not in covered or covered[head.chain].seq <= head.seq:
                covered[head.chain] = head
        if before is not None and all(head.sha256 != before for head in covered.values()):
            continue
        if any(_next(covered.get(chain)) != first for chain, first in begun.items() if first[0]):
            continue
        if any(chain in covered for chain, (first, _) in begun.items() if not first):
            continue
        if all(_covers(covered.get(chain), seq, digest) for chain, seq, digest in missing):
            return anchor, dict(covered)
        found = found or (anchor, dict(covered))
    return found


def _next(head: Head | None) -> tuple[int, str] | None:
    return None if head is None else (head.seq + 1, head.sha256)


def _covers(head: Head | None, seq: int, digest: str) -> bool:
    return head is not None and (head.seq > seq or (head.seq == seq and head.sha256 == digest))
