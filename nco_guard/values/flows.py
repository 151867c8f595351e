"""One text that arrives in pieces, searched as it is written and as its JSON escapes read, and shown with its places.

The same text comes out, joined, as from `Cleaner.text` of the whole; what it takes place by place is what lets pieces
of it go back into the blocks that they came in.
"""

from __future__ import annotations

from collections.abc import Sequence

from nco_guard.arguments import OnMatch
from nco_guard.automata.folding import read_escapes, settle_escapes
from nco_guard.automata.spans.streaming import SpanStream, span_stream
from nco_guard.compiler import CompiledRule
from nco_guard.errors import ViolationError
from nco_guard.scan.findings import Finding, Report
from nco_guard.scan.replacing import Placed, Replacer
from nco_guard.scan.safe_ends import SafeEnds
from nco_guard.values.finding import Finder
from nco_guard.values.readings import LEVELS

__all__ = ["TextFlow"]


Read = tuple[str, Sequence[int], Sequence[int]]
# A text, and where in the text that was fed each of its characters begins and ends.


class TextFlow:
    """Text in, piece by piece; out come pieces that may be shown, as soon as that is certain.

    What is held back is the text from the first place on at which a match began that could still be completed. Errors:
    `ViolationError` ("raise") from the call that completes a match; `RedactionError`.
    """

    def __init__(self, finder: Finder, action: OnMatch, where: str) -> None:
        self._finder = finder
        self._action = action
        self._where = where
        self._replacer = Replacer(finder.compiled, finder.replacement)
        self._levels = [_Level(finder.compiled.rules, 0)]
        self._ends = SafeEnds(finder.compiled)
        self._escaped_ends: _ReadEnds | None = None
        self._waiting: list[Placed] = []  # replaced, and not yet where the text may end
        self._shown: list[str] = []
        self._length = 0
        self._findings: dict[Finding, None] = {}
        self._altered: int | None = None  # where the first match begins

    @property
    def clear(self) -> int:
        """No match touches what comes before this place, however the text goes on."""
        return self.decided if self._altered is None else min(self.decided, self._altered)

    @property
    def decided(self) -> int:
        """What comes before this place is shown, or never will be."""
        if self._action == "report":
            return self._length
        return self._waiting[0].place if self._waiting else self._replacer.decided

    @property
    def report(self) -> Report:
        """What was found so far; spans are those of the text as it was fed."""
        found = sorted(self._findings, key=lambda f: (f.start, f.end, f.rule_id))
        return Report(self._finder.compiled.digest, self._length, tuple(found))

    def feed(self, text: str) -> list[Placed]:
        """Read on; what may be shown now."""
        return self._read(text, final=False) if text else []

    def finish(self) -> list[Placed]:
        """The text ends here; the rest."""
        return self._read("", final=True)

    def _read(self, text: str, *, final: bool) -> list[Placed]:
        first = self._length
        self._length += len(text)
        found = self._search(text, first, final)
        new = [one for one in found if one not in self._findings]
        self._findings.update(dict.fromkeys(new))
        if self._action == "report":
            return [Placed(first, text)] if text else []
        hard = [one for one in new if one.mode == "hard"]
        if hard:
            first_match = min(one.start for one in hard)
            self._altered = first_match if self._altered is None else min(self._altered, first_match)
        if self._action == "raise":
            self._refuse(hard)
        safe = self._length if final else min(level.safe for level in self._levels)
        self._waiting += self._replacer.feed_placed(text, hard, safe=safe, final=final)
        return self._fit(final)

    def _search(self, text: str, first: int, final: bool) -> list[Finding]:
        """What all readings find: the text as it is, then with its escapes read, and so on."""
        found: list[Finding] = []
        last = first + len(text)
        read: Read = (text, range(first, last), range(first + 1, last + 1))
        for depth in range(LEVELS + 1):
            if depth == len(self._levels):
                if "\\" not in read[0]:
                    break
                # Before the first backslash both read the same, so this one catches up.
                below = self._levels[depth - 1]
                self._levels.append(_Level(self._finder.compiled.rules, depth))
                read = below.so_far
            found += self._levels[depth].feed(read, final)
            read = self._levels[depth].added
        return found

    def _refuse(self, hard: Sequence[Finding]) -> None:
        broken = {one.rule_id for one in hard}
        broken.update(rule for level in self._levels for rule in level.matched)
        if broken:
            raise ViolationError(self._finder.compiled.in_order(broken), self._where)

    def _fit(self, final: bool) -> list[Placed]:
        """Of what is replaced, as much as may be shown if the text ended there."""
        new = "".join(piece.text for piece in self._waiting)[len(self._ends.held) :]
        size = len(self._ends.feed(new, final=final))
        shown: list[Placed] = []
        while self._waiting and size:
            piece = self._waiting.pop(0)
            if len(piece.text) > size:
                piece, rest = piece.cut(size)
                self._waiting.insert(0, rest)
            shown.append(piece)
            size -= len(piece.text)
        self._check_read("".join(piece.text for piece in shown), final)
        return shown

    def _check_read(self, shown: str, final: bool) -> None:
        """What was shown, its escapes read, may hold no match either."""
        self._shown.append(shown)
        if self._escaped_ends is None:
            if len(self._levels) == 1:
                return
            self._escaped_ends = _ReadEnds(self._finder)
            shown = "".join(self._shown)
        self._escaped_ends.feed(shown, final)


class _Level:
    """The text with its escapes read `depth` times, and the search in it."""

    def __init__(self, rules: Sequence[CompiledRule], depth: int) -> None:
        self._depth = depth
        self._streams: list[tuple[CompiledRule, SpanStream]] = []
        for rule in rules:
            with rule.lock:
                self._streams.append((rule, span_stream(rule.stepper)))
        self._hard = [(rule.id, stream) for rule, stream in self._streams if rule.rule.mode == "hard"]
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
        first = min((stream.safe for _, stream in self._hard), default=len(self._starts))
        if first < len(self._starts):
            return self._starts[first]
        return self._pending_starts[0] if self._pending_starts else self._end

    @property
    def matched(self) -> list[str]:
        """The rules of which a match is complete, though its end is not certain."""
        return [rule_id for rule_id, stream in self._hard if stream.matched]

    def feed(self, read: Read, final: bool) -> list[Finding]:
        """Read on in the level below; what is certain now."""
        self.added = text, starts, ends = self._unescaped(read, final)
        self._parts.append(text)
        self._starts += starts
        self._ends += ends
        found: list[Finding] = []
        for rule, stream in self._streams:
            with rule.lock:
                spans = stream.feed(text) if text else []
                if final:
                    spans += stream.finish()
            if spans:
                found += [Finding(rule.id, *self._original(span), rule.rule.mode) for span in spans]
        return found

    def _original(self, span: tuple[int, int]) -> tuple[int, int]:
        start, end = span
        first = self._starts[start] if start < len(self._starts) else self._end
        return first, self._ends[end - 1] if end > start else first

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
