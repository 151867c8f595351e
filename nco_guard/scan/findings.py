"""What a search of a text finds, without the text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Exposure", "Finding", "Report", "in_text_order"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One match: `text[start:end]`, offsets in code points. `mode` is the rule's.

    Where a text was given in parts, offsets are those in all parts, joined. `part`: the number of the part in which
    the match is by itself; None: of the text as a whole.
    """

    rule_id: str
    start: int
    end: int
    mode: Literal["hard", "soft", "monitor"] = "hard"
    part: int | None = None


def in_text_order(findings: Iterable[Finding]) -> list[Finding]:
    """Findings as reports list them."""
    return sorted(findings, key=lambda found: (found.start, found.end, found.rule_id, found.part or 0))


@dataclass(frozen=True, slots=True)
class Report:
    """What a policy has to say about a text. Holds offsets, never the text.

    `findings` are in order of their start. `ok`: no hard rule has a match; soft and monitor rules may. Of a text in
    parts it is a report on these, joined.
    """

    policy_digest: str
    length: int
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, policy_digest: str, length: int, findings: Iterable[Finding]) -> Report:
        """The report on what was found, in whichever order."""
        return cls(policy_digest, length, tuple(in_text_order(findings)))

    @classmethod
    def somewhere(cls, policy_digest: str, length: int, rules: Iterable[str]) -> Report:
        """The report on a value in which these hard rules match, it is not said where: a span is all of it."""
        return cls(policy_digest, length, tuple(Finding(rule, 0, length) for rule in rules))

    @property
    def ok(self) -> bool:
        """Whether no hard rule has a match."""
        return all(finding.mode != "hard" for finding in self.findings)

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The findings of hard rules."""
        return tuple(finding for finding in self.findings if finding.mode == "hard")


@dataclass(frozen=True, slots=True)
class Exposure:
    """`text[start:end]` could be the beginning of a match of the rule, or is one; none in the text is longer."""

    rule_id: str
    start: int
    end: int
