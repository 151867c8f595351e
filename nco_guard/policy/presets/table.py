"""How the patterns of a preset are written down: one frozen record each, with the examples that test it."""

from __future__ import annotations

from dataclasses import dataclass, field

from nco_guard.policy.rules import ChecksumName, RegexRule

__all__ = ["Examples", "Pattern"]


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
class Pattern:
    """One kind of value: what it looks like, from where on it is blocked, and what is known about it.

    `regex` and `stop_at` are in the dialect of Python's `re` without backreferences, conditionals, atomic
    groups and possessive quantifiers. Every text in which `regex` is found has a place where `stop_at` is
    found. `reveals` states what at most can be written of a value; `source` says where its shape is defined.
    `checksum`: what its values pass, looked at by `rule(valid_only=True)`.
    """

    id: str
    regex: str
    description: str
    source: str
    examples: Examples = field(repr=False)
    stop_at: str | None = None
    reveals: str = "all but the last character"
    checksum: ChecksumName = "none"

    @property
    def short_name(self) -> str:
        """The id without the preset's name, as `only` and `except` use it."""
        return self.id.partition(".")[2]

    def rule(self, *, valid_only: bool = False) -> RegexRule:
        """The hard rule for this pattern; `valid_only`: where there is a checksum, only for values that pass it."""
        if valid_only and self.checksum != "none":
            return RegexRule(
                id=self.id,
                regex=self.regex,
                checksum=self.checksum,
                description=(
                    f"{self.description} Only numbers that pass their checksum; reveals all but the last character."
                ),
            )
        unchecked = "" if self.checksum == "none" else " Whether check digits are right is not looked at."
        return RegexRule(
            id=self.id,
            regex=self.regex,
            stop_at=self.stop_at,
            description=f"{self.description}{unchecked} Reveals at most {self.reveals}.",
        )
