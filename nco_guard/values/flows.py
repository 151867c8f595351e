"""One text that arrives in pieces, searched as it is written and as its JSON escapes read, and shown with its places.

The same text comes out, joined, as from `Cleaner.text` of the whole; what it takes place by place is what lets pieces
of it go back into the blocks that they came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nco_guard.arguments import OnMatch
from nco_guard.automata.folding import read_escapes, settle_escapes
from nco_guard.compiler import CompiledRule
from nco_guard.scan.findings import Finding
from nco_guard.scan.holding import HeldText
from nco_guard.scan.replacing import Placed
from nco_guard.scan.safe_ends import SafeEnds
from nco_guard.scan.streams import RuleStreams
from nco_guard.values.finding import Finder
from nco_guard.values.readings import LEVELS

__all__ = ["TextFlow"]


Read = tuple[str, Sequence[int], Sequence[int]]
# A text, and where in the text that was fed each of its characters begins and ends.


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
        self._levels = [_Level(rules, 0)]
        self._length = 0

    def feed(self, text: str, *, final: bool = False) -> list[Finding]:
        """See `Search`."""
        found: list[Finding] = []
        first, self._length = self._length, self._length + len(text)
        read: Read = (text, range(first, self._length), range(first + 1, self._length + 1))
        for depth in range(LEVELS + 1):
            if depth == len(self._levels):
                if "\\" not in read[0]:
                    break
                # Before the first backslash both read the same, so this one catches up.
                read = self._levels[-1].so_far
                self._levels.append(_Level(self._rules, depth))
            found += self._levels[depth].feed(read, final)
            read = self._levels[depth].added
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
    """The text with its escapes read `depth` times, and the search in it."""

    def __init__(self, rules: Sequence[CompiledRule], depth: int) -> None:
        self._depth = depth
        self._search = RuleStreams(rules)
        self._pending = ""
        self._pending_starts: list[int] = []
        self._pending_ends: list[int] = []
        self._parts: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._end = 0  # in the text that was fed
        self.added: Read = ("", (), ())

    @property
    def so_far(self) -> Read:
        """All of the text at this level, and where each character comes from."""
        return "".join(self._parts), self._starts, self._ends

    @property
    def safe(self) -> int:
        """Every match that is yet to be found begins here or later, in the text that was fed."""
        first = self._search.safe
        if first < len(self._starts):
            return self._starts[first]
        return self._pending_starts[0] if self._pending_starts else self._end

    @property
    def matched(self) -> set[str]:
        """See `Search`."""
        return self._search.matched

    def feed(self, read: Read, final: bool) -> list[Finding]:
        """Read on in the level below; what is certain now."""
        self.added = text, starts, ends = self._unescaped(read, final)
        self._parts.append(text)
        self._starts += starts
        self._ends += ends
        found = self._search.feed(text, final=final)
        return [self._original(one) for one in found]

    def _original(self, found: Finding) -> Finding:
        """What was found, in the text that was fed."""
        first = self._starts[found.start] if found.start < len(self._starts) else self._end
        last = self._ends[found.end - 1] if found.end > found.start else first
        return replace(found, start=first, end=last)

    def _unescaped(self, read: Read, final: bool) -> Read:
        text, starts, ends = read
        if len(ends):
            self._end = ends[-1]
        if not self._depth:
            return read
        text = self._pending + text
        starts, ends = [*self._pending_starts, *starts], [*self._pending_ends, *ends]
        cut = len(text) if final else len(text) - len(settle_escapes(text)[1])
        found = list(read_escapes(text[:cut]))
        self._pending, self._pending_starts, self._pending_ends = text[cut:], starts[cut:], ends[cut:]
        return (
            "".join(character for character, _, _ in found),
            [starts[start] for _, start, _ in found],
            [ends[end - 1] for _, _, end in found],
        )


class _ReadEnds:
    """Refuses a text that holds a match once its escapes are read: what replacements can bring about."""

    def __init__(self, finder: Finder) -> None:
        self._ends = [SafeEnds(finder.compiled) for _ in range(LEVELS)]
        self._pending = [""] * LEVELS

    def feed(self, text: str, final: bool) -> None:
        """Read on. Errors: `RedactionError`."""
        for level, ends in enumerate(self._ends):
            text = self._pending[level] + text
            cut = len(text) if final else len(text) - len(settle_escapes(text)[1])
            self._pending[level] = text[cut:]
            text = "".join(character for character, _, _ in read_escapes(text[:cut]))
            ends.feed(text, final=final)
