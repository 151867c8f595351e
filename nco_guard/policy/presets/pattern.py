"""How the patterns of a preset are written down: one frozen record each, with the examples that test it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nco_guard.policy.check_digits import RuleChecksum
from nco_guard.policy.rules import RegexRule

__all__ = ["ALONE_AFTER", "ALONE_BEFORE", "Early", "Examples", "Pattern", "StopName"]

#: No letter or digit stands before, or after.
ALONE_BEFORE, ALONE_AFTER = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"

StopName = Literal["late", "early"]
"""Where text that is generated is blocked: as early as ordinary text allows, or earlier, at the cost of some."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Texts that say what a pattern does. All values are fictional, reserved or placeholders.

    `match`: the regex is found. `no_match`: neither the regex nor `stop_at` is found, so nothing in the text
    is blocked. `stop`: `stop_at` is found although the value is not complete. `gets_to`: how far the first
    text of `match` gets before `stop_at` blocks it; with it goes the claim of `Pattern.reveals`.
    """

    match: tuple[str, ...]
    no_match: tuple[str, ...]
    stop: tuple[str, ...] = ()
    gets_to: str | None = None


@dataclass(frozen=True, slots=True)
class Early:
    """An earlier point from which a value may be blocked, where ordinary text is blocked too.

    `reveals`: what can be written of a value then; `gets_to`: so much of the pattern's first example. `blocks`: texts
    without a value that are blocked here and not at the usual point.
    """

    stop_at: str
    reveals: str
    gets_to: str = field(repr=False)
    blocks: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of value: what it looks like, from where on it is blocked, and what is known about it.

    `regex` and `stop_at` are in the dialect of Python's `re` without backreferences, conditionals, atomic
    groups and possessive quantifiers. Every text in which `regex` is found has a place where `stop_at` is
    found; so it is of `early`, if there is one. `reveals` states what at most can be written of a value; `source` says
    where its shape is defined. `checksum`: what its values pass, looked at by `rule(valid_only=True)`.
    """

    id: str
    regex: str
    description: str
    source: str
    examples: Examples = field(repr=False)
    stop_at: str | None = None
    reveals: str = "all but the last character"
    checksum: RuleChecksum = "none"
    early: Early | None = None

    def rule(self, *, valid_only: bool = False, stop: StopName = "late") -> RegexRule:
        """The hard rule for this pattern; `valid_only`: where there is a checksum, only for values that pass it.

        `stop`: where it blocks. With both, a valid value is what is found in finished text, and any is blocked early.
        """
        early = self.early if stop == "early" else None
        stop_at, reveals = (
            (early.stop_at, early.reveals) if early is not None else (self.stop_at, self.reveals)
        )
        told = ""
        checksum: RuleChecksum = self.checksum if valid_only else "none"
        if checksum != "none" and early is None:
            stop_at, told = (
                None,
                " Only numbers that pass their checksum; reveals all but the last character.",
            )
        elif checksum != "none":
            told = " Only numbers that pass their checksum, but none can be begun."
        elif self.checksum != "none":
            told = " Whether check digits are right is not looked at."
        if stop_at is not None or checksum == "none":
            told += f" Reveals at most {reveals}."
        return RegexRule(
            id=self.id,
            regex=self.regex,
            stop_at=stop_at,
            checksum=checksum,
            description=f"{self.description}{told}",
        )
