"""Which strings of a policy's lists add nothing, since they hold another: by looking up all their pieces.

Exact for strings that are looked for as they are written, in any case or as whole words. Cost: a look-up for each place
of each string and each length that some string has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from nco_guard.automata.charsets import same_letter
from nco_guard.automata.strings.substrings import SubstringSearcher, fold_case
from nco_guard.policy import StringRule

__all__ = ["Cover"]

_WORD = re.compile(r"\w")


@cache
def _has_case(character: str) -> bool:
    return same_letter(character) != ((ord(character), ord(character)),)


class Cover:
    """The strings of one list rule, as what may stand within strings of others. `place`: the rule's in its policy."""

    def __init__(self, rule: StringRule, place: int) -> None:
        self.rule = rule
        self.place = place
        self._caseless, self._whole_word = rule.case == "fold", rule.whole_word
        self._first: dict[str, int] = {}
        for index, string in enumerate(rule.strings):
            self._first.setdefault(self._folded(string), index)
        self._lengths = len({len(s) for s in self._first})
        self._searcher = SubstringSearcher(rule.strings, caseless=self._caseless)

    def _folded(self, string: str) -> str:
        return fold_case(string) if self._caseless else string

    def work(self, other: Cover) -> int:
        """How many look-ups it takes to compare another list with this one, about."""
        return sum(map(len, other.rule.strings)) * self._lengths

    def covers(self, other: Cover) -> Iterator[int | None]:
        """For each string of another list, one of this list's that every text with it has too (its number), or None.

        `other` may be this one: then another string of it. Of strings that cover each other, the first in the policy
        covers the others, so all that are covered may be dropped together.
        """
        for index, string in enumerate(other.rule.strings):
            yield self._cover(other, string, index)

    def _cover(self, other: Cover, string: str, index: int) -> int | None:
        # The shortest first, and of those the first.
        for length, start, inner in sorted(
            (e - s, s, inner) for s, e, inner in self._searcher.occurrences(string)
        ):
            found = self._first[inner]
            if (other is self and found == index) or not self._holds(
                other.rule, string, start, start + length
            ):
                continue
            if length == len(string) and other.place < self.place and other._same(self, found):
                continue
            return found
        return None

    def _same(self, other: Cover, index: int) -> bool:
        """Whether this list has the very string of the other's that texts with that one are sure to have."""
        string = other.rule.strings[index]
        return self._folded(string) in self._first and self._holds(other.rule, string, 0, len(string))

    def _holds(self, rule: StringRule, string: str, start: int, end: int) -> bool:
        """Whether every text in which the rule finds the string has what stands at these places."""
        cased = rule.case == "fold"
        if cased and not self._caseless and any(map(_has_case, string[start:end])):
            return False
        if not self._whole_word:
            return True
        before = rule.whole_word if start == 0 else _divides(string[start - 1], cased)
        after = rule.whole_word if end == len(string) else _divides(string[end], cased)
        return before and after


def _divides(character: str, cased: bool) -> bool:
    # One character outside words has letters as its other cases: U+0345.
    return not _WORD.match(character) and not (cased and _has_case(character))
