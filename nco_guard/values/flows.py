"""One text that arrives in pieces, searched as written and as parsers read it, and shown with its places.

The same text comes out, joined, as from `Cleaner.text` of the whole; what it takes place by place is what lets pieces
of it go back into the blocks that they came in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from nco_guard.arguments import OnMatch
from nco_guard.automata.folding import FoldSpec
from nco_guard.automata.spans.folds import FoldedText
from nco_guard.compiler import CompiledRule
from nco_guard.errors import RedactionError
from nco_guard.scan.findings import Finding
from nco_guard.scan.holding import HeldText
from nco_guard.scan.replacing import Placed
from nco_guard.scan.streams import RuleStreams
from nco_guard.values.finding import Finder
from nco_guard.values.numbers import BRACKET, NumbersRead
from nco_guard.values.readings import ESCAPES, LEVELS, Way

__all__ = ["TextFlow"]

_BEGINNING = re.compile(r"[-0-9]")  # of a number


class TextFlow(HeldText):
    """Text in, piece by piece; out come pieces that may be shown, as soon as that is certain.

    What is held back is the text from the first place on at which a match began that could still be completed. Errors:
    `ViolationError` ("raise") from the call that completes a match; `RedactionError`.
    """

    def __init__(self, finder: Finder, action: OnMatch, where: str) -> None:
        self._finder = finder
        self._levels = _Levels(finder.compiled.rules)
        self._output: _Levels | None = None
        self._reads = False  # whether what is shown may read otherwise
        self._shown: list[str] = []
        super().__init__(finder.compiled, self._levels, action, replacement=finder.replacement, where=where)

    def feed(self, text: str) -> list[Placed]:
        """Read on; what may be shown now."""
        return self.read(text, final=False) if text else []

    def finish(self) -> list[Placed]:
        """The text ends here; the rest."""
        return self.read("", final=True)

    @property
    def text(self) -> str:
        """All that was fed."""
        return self._levels.text

    def read(self, text: str, *, final: bool) -> list[Placed]:
        """See `HeldText`."""
        shown = super().read(text, final=final)
        if self.action != "report":
            self._check_read("".join(piece.text for piece in shown), final)
        return shown

    def _check_read(self, shown: str, final: bool) -> None:
        """Once something was replaced, what is shown may hold no match either, as parsers read it."""
        self._shown.append(shown)
        self._reads = self._reads or "\\" in shown or BRACKET.search(shown) is not None
        if self._output is None:
            if self._altered is None or not self._reads:
                return
            self._output = _Levels([rule for rule in self._finder.compiled.rules if rule.rule.mode == "hard"])
            shown = "".join(self._shown)
        found = {one.rule_id for one in self._output.feed(shown, final=final)} | self._output.matched
        if found:
            raise RedactionError(self._finder.compiled.in_order(found))


class _Levels:
    """What all readings find: the text as it is, then with its escapes read, and so on. See `Search`.

    Beside each level there is one with its numbers read, from the first digit behind a bracket on.
    """

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self._rules = rules
        self._levels = [_Level(rules, FoldedText(FoldSpec()))]
        self._numbers: dict[int, _Level] = {}  # by depth

    def feed(self, text: str, *, final: bool = False) -> list[Finding]:
        """See `Search`."""
        found: list[Finding] = []
        for depth in range(LEVELS + 1):
            if depth == len(self._levels):
                if "\\" not in text:
                    break
                # Before the first backslash both read the same, so this one catches up.
                text = self._levels[-1].so_far
                self._levels.append(_Level(self._rules, FoldedText(ESCAPES), self._levels[-1]))
            text, more = self._levels[depth].feed(text, final)
            found += more
            found += self._feed_numbers(depth, text, final)
        return found

    def _feed_numbers(self, depth: int, text: str, final: bool) -> list[Finding]:
        """Read on where numbers are read; before the first of them that is the text of the level itself."""
        level = self._levels[depth]
        if depth not in self._numbers:
            if not level.has_numbers:
                return []
            text = level.so_far
            self._numbers[depth] = _Level(self._rules, NumbersRead(), level)
        return self._numbers[depth].feed(text, final)[1]

    @property
    def text(self) -> str:
        """All that was fed."""
        return self._levels[0].so_far

    @property
    def safe(self) -> int:
        """See `Search`."""
        return min(level.safe for level in (*self._levels, *self._numbers.values()))

    @property
    def matched(self) -> set[str]:
        """See `Search`."""
        return set().union(*(level.matched for level in (*self._levels, *self._numbers.values())))


class _Level:
    """The text of the level below, read once more, and the search in it."""

    def __init__(self, rules: Sequence[CompiledRule], way: Way, below: _Level | None = None) -> None:
        self._way = way
        # The way back to the text that was fed.
        self._back: tuple[Way, ...] = (way, *(() if below is None else below._back))
        self._search = RuleStreams(rules)
        self._parts: list[str] = []
        self._bracket = self.has_numbers = False

    @property
    def so_far(self) -> str:
        """All of the text at this level."""
        return "".join(self._parts)

    @property
    def safe(self) -> int:
        """Every match that is yet to be found begins here or later, in the text that was fed."""
        return reduce(lambda place, level: level.place(place), self._back, self._search.safe)

    @property
    def matched(self) -> set[str]:
        """See `Search`."""
        return self._search.matched

    def feed(self, text: str, final: bool) -> tuple[str, list[Finding]]:
        """Read on in the level below; what that reads as, and what is certain now."""
        added = self._way.feed(text, final=final)
        self._parts.append(added)
        if not self.has_numbers:
            bracket = None if self._bracket else BRACKET.search(added)
            self._bracket = self._bracket or bracket is not None
            place = 0 if bracket is None else bracket.start()
            self.has_numbers = self._bracket and _BEGINNING.search(added, place) is not None
        return added, [self._original(one) for one in self._search.feed(added, final=final)]

    def _original(self, found: Finding) -> Finding:
        """What was found, in the text that was fed."""
        start, end = reduce(lambda span, level: level.original(span), self._back, (found.start, found.end))
        return replace(found, start=start, end=end)
