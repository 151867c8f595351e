"""One text that arrives in pieces, searched as it is written and as its JSON escapes read, and shown with its places.

The same text comes out, joined, as from `Cleaner.text` of the whole; what it takes place by place is what lets pieces
of it go back into the blocks that they came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from nco_guard.arguments import OnMatch
from nco_guard.automata.folding import FoldSpec
from nco_guard.automata.spans.folds import FoldedText
from nco_guard.compiler import CompiledRule
from nco_guard.scan.findings import Finding
from nco_guard.scan.holding import HeldText
from nco_guard.scan.replacing import Placed
from nco_guard.scan.safe_ends import SafeEnds
from nco_guard.scan.streams import RuleStreams
from nco_guard.values.finding import Finder
from nco_guard.values.readings import ESCAPES, LEVELS

__all__ = ["TextFlow"]


class TextFlow(HeldText):
    """Text in, piece by piece; out come pieces that may be shown, as soon as that is certain.

    What is held back is the text from the first place on at which a match began that could still be completed. Errors:
    `ViolationError` ("raise") from the call that completes a match; `RedactionError`.
    """

    def __init__(self, finder: Finder, action: OnMatch, where: str) -> None:
        self._finder = finder
        self._levels = _Levels(finder.compiled.rules)
        self._escaped_ends: _ReadEnds | None = None
        self._shown: list[str] = []
        super().__init__(finder.compiled, self._levels, action, replacement=finder.replacement, where=where)

    def feed(self, text: str) -> list[Placed]:
        """Read on; what may be shown now."""
        return self.read(text, final=False) if text else []

    def finish(self) -> list[Placed]:
        """The text ends here; the rest."""
        return self.read("", final=True)

    def read(self, text: str, *, final: bool) -> list[Placed]:
        """See `HeldText`."""
        shown = super().read(text, final=final)
        if self.action != "report":
            self._check_read("".join(piece.text for piece in shown), final)
        return shown

    def _check_read(self, shown: str, final: bool) -> None:
        """What was shown, its escapes read, may hold no match either."""
        self._shown.append(shown)
        if self._escaped_ends is None:
            if not self._levels.has_escapes:
                return
            self._escaped_ends = _ReadEnds(self._finder)
            shown = "".join(self._shown)
        self._escaped_ends.feed(shown, final)


class _Levels:
    """What all readings find: the text as it is, then with its escapes read, and so on. See `Search`."""

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self._rules = rules
        self._levels = [_Level(rules)]

    def feed(self, text: str, *, final: bool = False) -> list[Finding]:
        """See `Search`."""
        found: list[Finding] = []
        for depth in range(LEVELS + 1):
            if depth == len(self._levels):
                if "\\" not in text:
                    break
                # Before the first backslash both read the same, so this one catches up.
                text = self._levels[-1].so_far
                self._levels.append(_Level(self._rules, self._levels[-1]))
            text, more = self._levels[depth].feed(text, final)
            found += more
        return found

    @property
    def has_escapes(self) -> bool:
        """Whether a backslash has come."""
        return len(self._levels) > 1

    @property
    def safe(self) -> int:
        """See `Search`."""
        return min(level.safe for level in self._levels)

    @property
    def matched(self) -> set[str]:
        """See `Search`."""
        return set().union(*(level.matched for level in self._levels))


class _Level:
    """The text with its escapes read once more than at the level below, and the search in it."""

    def __init__(self, rules: Sequence[CompiledRule], below: _Level | None = None) -> None:
        self._folded = FoldedText(FoldSpec() if below is None else ESCAPES)
        # The way back to the text that was fed.
        self._back: tuple[FoldedText, ...] = (self._folded, *(() if below is None else below._back))
        self._search = RuleStreams(rules)
        self._parts: list[str] = []

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
        added = self._folded.feed(text, final=final)
        self._parts.append(added)
        return added, [self._original(one) for one in self._search.feed(added, final=final)]

    def _original(self, found: Finding) -> Finding:
        """What was found, in the text that was fed."""
        start, end = reduce(lambda span, level: level.original(span), self._back, (found.start, found.end))
        return replace(found, start=start, end=end)


class _ReadEnds:
    """Refuses a text that holds a match once its escapes are read: what replacements can bring about."""

    def __init__(self, finder: Finder) -> None:
        self._levels = [(FoldedText(ESCAPES), SafeEnds(finder.compiled)) for _ in range(LEVELS)]

    def feed(self, text: str, final: bool) -> None:
        """Read on. Errors: `RedactionError`."""
        for folded, ends in self._levels:
            text = folded.feed(text, final=final)
            folded.forget(folded.length)
            ends.feed(text, final=final)
