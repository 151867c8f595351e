"""Where matches are in a text that is still arriving: the spans of the finished text, each as soon as it is certain.

A follower goes on with the first match that is open; what lies before its start can be in no match any more (`safe`).
Later starts are looked at once that one is decided. Whether any of them is complete already is another question
(`matched`), for those who ask.

Nothing is kept for good of what a text leads to, so no text is too long for a rule, and what others do with its machine
changes nothing here.

Cost: as `follower`, linear in the text however it is cut. Memory: the characters from `safe` on.
"""

from __future__ import annotations

from nco_guard.automata.spans.folds import FoldedText, Originals
from nco_guard.automata.spans.follower import Searcher, Span, follow, source_of

__all__ = ["SpanStream"]


class SpanStream:
    """Text in, spans out; offsets count from the start of the stream, without the context.

    `searcher` reports every end of a match. `context`: text before the stream; matches that begin there count if they
    end in the stream.
    """

    def __init__(self, searcher: Searcher, context: str = "") -> None:
        source, spec = source_of(searcher)
        self._folded = None if spec.trivial else FoldedText(spec)
        self._originals = None if self._folded is None else Originals(self._folded)
        beyond = (len(context) if spec.trivial else 0) if context else -1
        self._follower = follow(source, "", closes=False, beyond=beyond)
        self._context = len(context)
        self._place = 0  # no match that is yet to be given begins before it
        self._given = False  # spans, since it was asked whether a match is complete
        if context:
            self.feed(context)

    def feed(self, text: str) -> list[Span]:
        """The spans that are certain by the end of `text` and were not before, from left to right."""
        return self._read(text, final=False)

    def finish(self) -> list[Span]:
        """The rest of the spans: the text ends here."""
        return self._read("", final=True)

    def _read(self, text: str, *, final: bool) -> list[Span]:
        follower, folded = self._follower, self._folded
        if folded is None:
            follower.feed(text)
        else:
            of_context = follower.beyond == follower.high  # what comes may be the context's too
            follower.feed(folded.feed(text, final=final))
            if of_context:
                follower.beyond = folded.upto(self._context)
        follower.closes = final
        found: list[Span] = []
        place = follower.next_start(self._place)
        while place < follower.high or (final and place == follower.high):
            end, is_open = follower.longest(place)
            if is_open:
                break
            if end is not None:
                found.append((place, end))
            place = follower.next_start(place + 1 if end is None or end == place else end)
        self._place = place
        self._given |= bool(found)
        if folded is not None and self._originals is not None:
            found = self._originals.of(found, place, final=final)
            folded.forget(place)
        return [(max(0, start - self._context), end - self._context) for start, end in found] if found else []

    @property
    def steps(self) -> int:
        """How many characters were read by runs, some of them more than once."""
        return self._follower.steps

    @property
    def safe(self) -> int:
        """Every span that is yet to come starts here or later."""
        place = self._place
        if self._folded is not None:
            place = self._folded.place(place) if self._kept is None else self._kept
        return max(0, place - self._context)

    @property
    def matched(self) -> bool:
        """Whether a match is complete that no span was given for yet, as its end is not certain."""
        if self._kept is not None or self._place >= self._follower.high:
            return self._kept is not None
        anew, self._given = self._given, False
        return self._follower.matched(self._place, anew=anew)

    @property
    def _kept(self) -> int | None:
        return None if self._originals is None else self._originals.kept
