"""All rules over one text that comes piece by piece, in bulk or at once.

`FindingStream` is for files: it waits for much text and searches it as `Verifier` does, conditions first, some ten
nanoseconds a character. `RuleStreams` is for text that somebody waits for: each rule follows it character by character,
some microseconds each, and says as early as can be what has matched, and where a match may still begin.
"""

from __future__ import annotations

from collections.abc import Iterable

from nco_guard import arguments
from nco_guard.automata.spans.folds import FoldedText, Originals
from nco_guard.automata.spans.span_stream import SpanStream
from nco_guard.compiler import CompiledRule
from nco_guard.errors import ClosedError
from nco_guard.scan.findings import Finding
from nco_guard.scan.lanes import Lane, finding
from nco_guard.scan.scanner import OpenRow, Stretch

__all__ = ["FindingStream", "RuleStreams"]


class RuleStreams:
    """Each match of each rule as soon as its end is certain. `context`: what the text continues."""

    def __init__(self, rules: Iterable[CompiledRule], context: str = "") -> None:
        self._streams: list[tuple[CompiledRule, SpanStream]] = []
        for rule in rules:
            with rule.lock:
                stream = SpanStream(rule.searcher, context if rule.rule.context == "prompt" else "")
            self._streams.append((rule, stream))
        self._hard = [(rule, stream) for rule, stream in self._streams if rule.rule.mode == "hard"]
        self._length = 0

    def feed(self, text: str, *, final: bool = False) -> list[Finding]:
        """Read on; what is certain now and was not before. `final`: the text ends here."""
        self._length += len(text)
        found: list[Finding] = []
        for rule, stream in self._streams:
            with rule.lock:
                spans = stream.feed(text) if text else []
                if final:
                    spans += stream.finish()
            found += [finding(rule, span) for span in spans]
        return found

    @property
    def safe(self) -> int:
        """Every match of a hard rule that is yet to be found begins here or later."""
        return min((stream.safe for _, stream in self._hard), default=self._length)

    @property
    def matched(self) -> set[str]:
        """The hard rules of which a match is complete, though its end is not certain."""
        found: set[str] = set()
        for rule, stream in self._hard:
            with rule.lock:
                if stream.matched:
                    found.add(rule.id)
        return found


class FindingStream:
    """One text, piece by piece: `feed` and `finish` give findings as soon as nothing to come can change them.

    Joined and sorted they are the findings of `Verifier.verify` on the whole text, however it is cut. Offsets count
    from the start of the text. Findings come in order of their start for each rule, not across rules.

    Memory: the characters from the first place on at which a match may have begun that is still open, and a piece; for
    a rule such as `(?s)begin.*end` that can be all from the first "begin" on. Cost: as `Verifier.verify`.

    Examples:
        >>> stream = Verifier(Policy.from_presets("pii")).stream()
        >>> found = [one for piece in ("Write to jane.d", "oe@example.com, please.") for one in stream.feed(piece)]
        >>> [(one.start, one.end) for one in found + stream.finish()]
        [(9, 29)]
    """

    def __init__(self, lanes: Iterable[Lane], *, piece: int) -> None:
        self._lanes = [_LaneStream(lane, piece) for lane in lanes]
        self._closed = False
        self.length = 0

    def feed(self, text: str) -> list[Finding]:
        """Read on; what is certain now and was not before."""
        arguments.text("text", text)
        self._check_open()
        self.length += len(text)
        return [found for lane in self._lanes for found in lane.feed(text, final=False)]

    def finish(self) -> list[Finding]:
        """The text ends here; the rest of the findings."""
        self._check_open()
        self._closed = True
        return [found for lane in self._lanes for found in lane.feed("", final=True)]

    @property
    def safe(self) -> int:
        """Every finding that is yet to come starts here or later."""
        return self.length if self._closed else min((lane.safe for lane in self._lanes), default=self.length)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this text is over; use a new stream for another one")


class _LaneStream:
    """What one lane has read of a text."""

    def __init__(self, lane: Lane, piece: int) -> None:
        self._lane = lane
        self._piece = piece
        self._waiting: list[str] = []
        self._waits = 0
        self._folded = FoldedText(lane.spec)
        self._text = ""  # folded, from `_base` on
        self._base = 0
        self._cursors = dict.fromkeys(lane.scanners, 0)
        self._originals = {scanner: Originals(self._folded) for scanner in lane.scanners}

    @property
    def safe(self) -> int:
        """Every span that is yet to come starts here or later, in characters of the original."""
        first = self._folded.place(min(self._cursors.values()))
        return min((first, *(each.kept for each in self._originals.values() if each.kept is not None)))

    def feed(self, text: str, *, final: bool) -> list[Finding]:
        self._waiting.append(text)
        self._waits += len(text)
        # Where much is held, much has to come before it is read again: so all reading together stays linear.
        if not final and self._waits < max(self._piece, len(self._text)):
            return []
        self._text += self._folded.feed("".join(self._waiting), final=final)
        self._waiting, self._waits = [], 0
        found: list[Finding] = []
        for scanner, hits, codes in self._lane.places(self._text, is_open=not final):
            cursor = self._cursors[scanner] - self._base
            stretch = Stretch(0, len(self._text), self._base == 0, final, cursor)
            with scanner.rule.lock:
                spans = scanner.found(OpenRow(self._text, stretch), codes, hits)
            left = len(self._text) if stretch.left is None else stretch.left
            self._cursors[scanner] = place = self._base + left
            folded = ((self._base + start, self._base + end) for _, start, end in spans)
            found += [
                finding(scanner.rule, s) for s in self._originals[scanner].of(folded, place, final=final)
            ]
        self._forget()
        return found

    def _forget(self) -> None:
        reach = max((scanner.reach for scanner in self._lane.scanners), default=0)
        done = max(0, min(self._cursors.values()) - reach - 1 - self._base)
        if done:
            self._text = self._text[done:]
            self._base += done
            self._folded.forget(self._base)
