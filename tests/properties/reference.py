"""What a rule means, slowly and obviously: Python's `re`, `in`, plain sums, all spans of a text.

Nothing here looks at masks, automata or the verifier. Two things are taken from the library because they *are* the
definitions: how a text folds (`fold_text`, plain Python) and the table of look-alikes.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from nco_guard.automata.folding import FoldSpec, fold_text
from nco_guard.automata.patterns.look_alikes import LEET, LETTERS
from nco_guard.policy import AutomatonRule, Policy, Rule, StringRule
from tests.automata.checksum_reference import passes_check

Span = tuple[int, int]


def _characters(character: str, rule: StringRule) -> str:
    """A regular expression for the characters that may stand for one of a rule's string."""
    accepted = {character}
    if rule.confusables != "none":
        same = {character}
        if rule.case == "fold":
            same |= {
                c for c in map(chr, range(0x3000)) if re.fullmatch(re.escape(character), c, re.IGNORECASE)
            }
        for letter in sorted(same):
            accepted.add(letter)
            for plain, others in LETTERS.items():
                if letter in plain + others:
                    accepted |= {plain, *others}
            if rule.confusables == "leet" and letter.isascii():
                accepted |= set(LEET.get(letter.lower(), ""))
    return "(?:" + "|".join(map(re.escape, sorted(accepted))) + ")"


def _string_source(rule: StringRule) -> str:
    """The strings of a rule, as they stand in folded text: each accented letter composed, or followed by its marks."""
    plain = FoldSpec(rule.normalize, rule.ignore)
    options = []
    for string in rule.strings:
        source = ""
        for character in fold_text(string, plain)[0]:
            spelled = {character}
            if rule.normalize == "nfkc":
                spelled.add(fold_text(unicodedata.normalize("NFD", character), plain)[0])
            source += (
                "(?:" + "|".join("".join(_characters(c, rule) for c in s) for s in sorted(spelled)) + ")"
            )
        options.append(source)
    return "(?:" + "|".join(options) + ")"


def _scoped(pattern: str) -> str:
    """The same pattern with its leading flags as a group, so that something can be put around it."""
    flags = re.match(r"\(\?([aimsx]+)\)", pattern)
    return f"(?{flags[1]}:{pattern[flags.end() :]})" if flags else pattern


@dataclass(frozen=True)
class Reference:
    """One rule, by its definition."""

    rule: Rule

    @property
    def exact(self) -> bool:
        """Whether this is all of what the rule matches; look-alikes in a regex are beyond `re`."""
        return self.rule.confusables == "none" or isinstance(self.rule, StringRule)

    @property
    def fold(self) -> FoldSpec:
        return FoldSpec(self.rule.normalize, self.rule.ignore, self.rule.json_escapes)

    def source(self, *, stop: bool) -> str:
        """The pattern, or the one that blocks: the stop point where there is one."""
        rule = self.rule
        assert not isinstance(rule, AutomatonRule)
        if isinstance(rule, StringRule):
            source = _string_source(rule)
        elif stop and rule.stop_at is not None:
            return _scoped(rule.stop_at)
        else:
            source = _scoped(rule.regex)
        return rf"(?<!\w)(?:{source})(?!\w)" if rule.whole_word else source

    @property
    def flags(self) -> int:
        return int(re.IGNORECASE) if self.rule.case == "fold" else 0

    def folded_spans(self, text: str, *, stop: bool = False) -> tuple[set[Span], list[Span]]:
        """All spans of the folded text that the rule matches where they stand, and where folded characters come from.

        Of one start there may be several: whichever way a match can be had.
        """
        folded, origin = fold_text(text, self.fold)
        rule, size = self.rule, len(folded)
        found: set[Span] = set()
        if isinstance(rule, AutomatonRule):
            for start in range(size):
                found |= {
                    (start, end) for end in range(start + 1, size + 1) if rule.fsm.accepts(folded[start:end])
                }
            return found, origin
        stops = stop and rule.stop_at is not None
        check = (
            "none" if stops else rule.model_dump(mode="json", exclude_defaults=True).get("checksum", "none")
        )
        source = self.source(stop=stop)
        if re.search(source, folded, self.flags) is None:
            return found, origin
        for end in range(size + 1):
            ends = re.compile(rf"(?:{source})(?=[\s\S]{{{size - end}}}\Z)", self.flags)
            for start in range(end + 1):
                if (check == "none" or passes_check(check, folded[start:end])) and ends.match(folded, start):
                    found.add((start, end))
        return found, origin

    def ends(self, text: str, context: str = "", *, stop: bool = False) -> set[int]:
        """Where matches end, as positions in the text; with `context="prompt"` only those within the text."""
        before = len(context) if self.rule.context == "prompt" else 0
        spans, origin = self.folded_spans(context + text if before else text, stop=stop)
        if not before:
            return {origin[end - 1][1] if end else 0 for _, end in spans}
        return {origin[end - 1][1] - before for _, end in spans if end and origin[end - 1][1] > before}

    def blocks(self, text: str, context: str = "") -> bool:
        """Whether a hard rule forbids the text as a whole."""
        if self.rule.context == "prompt" and context:
            # A prompt may hold the stop point already; then the rest of the match is still forbidden.
            return bool(self.ends(text, context, stop=True) or self.ends(text, context))
        if isinstance(self.rule, AutomatonRule) or getattr(self.rule, "checksum", "none") != "none":
            return bool(self.folded_spans(text, stop=True)[0])
        return re.search(self.source(stop=True), fold_text(text, self.fold)[0], self.flags) is not None

    def findings(self, text: str, context: str = "") -> list[Span]:
        """What a verifier should report: leftmost, then longest, not overlapping, each piece of the original once."""
        before = len(context) if self.rule.context == "prompt" else 0
        spans, origin = self.folded_spans(context + text if before else text)
        size = len(context + text) if before else len(text)
        longest: dict[int, int] = {}
        for start, end in spans:
            if not before or (end > 0 and origin[end - 1][1] > before):
                longest[start] = max(end, longest.get(start, 0))
        found: list[Span] = []
        position = 0
        for start, end in sorted(longest.items()):
            if start < position:
                continue
            position = max(end, start + 1)
            first = origin[start][0] if start < len(origin) else size
            last = origin[end - 1][1] if end > start else first
            if found and first < found[-1][1]:
                found[-1] = (found[-1][0], max(found[-1][1], last))
            else:
                found.append((first, last))
        return [(max(0, start - before), end - before) for start, end in found]


def broken(policy: Policy, text: str, context: str = "") -> list[str]:
    """The hard rules that a text breaks."""
    return [rule.id for rule in policy.rules if rule.mode == "hard" and Reference(rule).blocks(text, context)]
