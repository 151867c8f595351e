"""What stands where a match was, and how it gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from nco_guard.compiler import CompiledPolicy
from nco_guard.errors import ArgumentError, PolicyError, RedactionError
from nco_guard.policy import Policy
from nco_guard.scan.findings import Finding, Report
from nco_guard.scan.verifier import Verifier

__all__ = ["REDACTED", "Placed", "Replacement", "Replacer", "default_replacement"]

REDACTED = "[redacted]"
"""What stands in the place of a match unless something else is given, or the policy forbids it."""
Replacement = str | Callable[[str], str] | None
"""What stands where a match was: a fixed text, one for each rule id, or the default (None, `default_replacement`)."""

# In their order; no policy forbids the empty text.
_DEFAULTS = (REDACTED, "[removed]", "***", "---", "")


def default_replacement(policy: Policy | CompiledPolicy) -> str:
    """What stands where a match was if nothing else is given: "[redacted]".

    Under a policy that forbids this it is the first of "[removed]", "***", "---" and the empty text that it allows, so
    no policy is refused for a text that nobody chose. Cost: a search of a few characters, once for each policy.

    Examples:
        >>> default_replacement(Policy(name="p", rules=[StringRule(id="a", strings=["redacted"])]))
        '[removed]'
    """
    return next(text for text in _DEFAULTS if Verifier.of(policy).allows(text))


@dataclass(frozen=True, slots=True)
class Placed:
    """A piece of redacted text, and where in the text that was fed it comes from, or what it replaces begins."""

    place: int
    text: str
    replaces: bool = False

    def cut(self, size: int) -> tuple[Placed, Placed]:
        """Its first characters, and the rest."""
        after = self.place if self.replaces else self.place + size
        return replace(self, text=self.text[:size]), replace(self, place=after, text=self.text[size:])


class Replacer:
    """Puts replacements in the place of matches, while text and findings arrive.

    `feed` returns the redacted text up to where a match could still begin. All pieces joined are the text of `redact`,
    but nothing is checked: whoever uses it sees to it that no match is formed. Cost: linear in the text. Errors:
    `PolicyError` for a given replacement that is itself forbidden.
    """

    def __init__(self, compiled: CompiledPolicy, replacement: Replacement = None) -> None:
        self._compiled = compiled
        self._replacements = _replacements(compiled, replacement)
        self._spans: list[Finding] = []  # not yet shown as replaced
        self._text = ""  # from `_base` on
        self._base = 0
        self._hidden = 0  # the end of the last replaced stretch

    @property
    def held(self) -> int:
        """How many characters were fed that are not shown yet."""
        return len(self._text)

    def instead(self, rule_id: str | None = None) -> str:
        """What stands where a match of a rule was, or (None) what cannot be looked into."""
        return self._replacements[self._compiled.rules[0].id if rule_id is None else rule_id]

    def whole(self, text: str, findings: Iterable[Finding]) -> str:
        """A whole text with its findings replaced, whatever was fed before."""
        pieces: list[str] = []
        position = 0
        for start, end, instead in self.stretches(findings):
            pieces += text[position:start], instead
            position = end
        return "".join((*pieces, text[position:]))

    def clean(self, text: str, report: Report, look: Callable[[str], Report]) -> str:
        """A whole text with every match of its report replaced. `look`: what finds matches in such texts.

        Errors: `RedactionError` where what is left forms a match.
        """
        if report.ok:
            return text
        result = self.whole(text, report.violations)
        left = look(result)
        if not left.ok:
            raise RedactionError(self._compiled.in_order(found.rule_id for found in left.violations))
        return result

    def stretches(self, findings: Iterable[Finding]) -> list[tuple[int, int, str]]:
        """(start, end, what stands there) for each stretch of a whole text that its findings leave nothing of."""
        return [
            (start, end, self._replacements[rule]) for start, end, rule in _merged(self._compiled, findings)
        ]

    def feed(self, text: str, findings: Iterable[Finding], *, safe: int, final: bool = False) -> list[Placed]:
        """Read on. `findings`: hard ones that are new; `safe`: those that are yet to come start here or later."""
        self._text += text
        self._spans += findings
        limit = self._base + len(self._text) if final else safe
        certain = [span for span in self._spans if final or span.start < limit]
        self._spans = [span for span in self._spans if not (final or span.start < limit)]
        pieces: list[Placed] = []
        position = max(self._base, self._hidden)
        for start, end, rule_id in _merged(self._compiled, certain):
            # One that overlaps what was replaced before only hides more.
            if start >= self._hidden:
                pieces.append(Placed(position, self._text[position - self._base : start - self._base]))
                pieces.append(Placed(start, self._replacements[rule_id], replaces=True))
            self._hidden = position = max(self._hidden, end)
        if position < limit:
            pieces.append(Placed(position, self._text[position - self._base : limit - self._base]))
        self._text = self._text[max(0, limit - self._base) :]
        self._base = limit
        return [piece for piece in pieces if piece.text]

    @property
    def decided(self) -> int:
        """What comes before this place is shown, or never will be."""
        return max(self._base, self._hidden)


def _replacements(compiled: CompiledPolicy, replacement: Any) -> dict[str, str]:
    """By rule id; each is checked, since it will be shown."""
    found: dict[str, str] = {}
    if replacement is None:
        return dict.fromkeys((rule.id for rule in compiled.rules), default_replacement(compiled))
    if not isinstance(replacement, str) and not callable(replacement):
        kind = type(replacement).__name__
        raise ArgumentError(
            f"replacement: {kind} is no text; give a str, or a function from a rule's id to one"
        )
    verifier = Verifier.of(compiled)
    for rule in compiled.rules:
        text = replacement if isinstance(replacement, str) else replacement(rule.id)
        if not isinstance(text, str):
            raise ArgumentError(f"replacement for rule {rule.id!r} must be a str, got {type(text).__name__}")
        if not verifier.allows(text):
            raise PolicyError(
                f"the replacement itself matches {verifier.verify(text).violations[0].rule_id!r}; choose another",
                rule_id=rule.id,
                field="replacement",
            )
        found[rule.id] = text
    return found


def _merged(compiled: CompiledPolicy, findings: Iterable[Finding]) -> list[tuple[int, int, str]]:
    """Stretches to be replaced, and the rule that each is replaced for."""
    merged: list[tuple[int, int, str]] = []
    for found in sorted(findings, key=lambda f: (f.start, -f.end, compiled.order[f.rule_id])):
        if merged and found.start < merged[-1][1]:
            start, end, rule_id = merged[-1]
            merged[-1] = start, max(end, found.end), rule_id
        else:
            merged.append((found.start, found.end, found.rule_id))
    return merged
