"""Where matches are in a text that is still arriving: the spans of the finished text, each as soon as it is certain.

A follower goes on with the first match that is open; what lies before its start can be in no match any more (`safe`).
Later starts are looked at once that one is decided. Whether any of them is complete already is another question
(`matched`), which the machine answers for all of them at once, for those who ask.

A machine that has found much is let go of: the search goes on with one that knows nothing but the states in use, so no
text is too long for a rule, and what others do with the machine changes nothing here.

Cost: as `follower`, linear in the text however it is cut. Memory: the characters from `safe` on.
"""

from __future__ import annotations

from nco_guard.automata.patterns.alternating import AlternatingMachine
from nco_guard.automata.patterns.folded_text import FoldedMachine
from nco_guard.automata.patterns.fsm import FsmMachine
from nco_guard.automata.spans.folds import FoldedText, joined
from nco_guard.automata.spans.follower import PatternFollower, Span
from nco_guard.automata.spans.machines import runs_of

__all__ = ["SpanStream"]


class SpanStream:
    """Text in, spans out; offsets count from the start of the stream, without the context.

    `machine` reports every end of a match. `context`: text before the stream; matches that begin there count if they
    end in the stream.
    """

    def __init__(self, machine: AlternatingMachine | FoldedMachine | FsmMachine, context: str = "") -> None:
        self._folded = FoldedText(machine.spec) if isinstance(machine, FoldedMachine) else None
        inner = machine.inner if isinstance(machine, FoldedMachine) else machine
        self._follower = PatternFollower(runs_of(inner), "", 0, 0, closes=False)
        self._context = len(context)
        self._place = 0  # no match that is yet to be given begins before it
        self._waiting: list[Span] = []  # a span that a later one can meet in a character
        self._search: _Search | None = None
        if context:
            self._follower.beyond = 0 if self._folded is not None else len(context)
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
        if found:
            self._search = None
        if folded is not None:
            found = self._original(found, folded, final)
        return [(max(0, start - self._context), end - self._context) for start, end in found] if found else []

    def _original(self, spans: list[Span], folded: FoldedText, final: bool) -> list[Span]:
        """Spans of the original; the last one is kept back while a later one can meet it in a character."""
        found = joined([*self._waiting, *map(folded.original, spans)])
        kept = bool(found) and not final and folded.place(self._place) < found[-1][1]
        self._waiting = [found.pop()] if kept else []
        folded.forget(self._place)
        return found

    @property
    def steps(self) -> int:
        """How many characters were read by runs, some of them more than once."""
        return self._follower.steps

    @property
    def safe(self) -> int:
        """Every span that is yet to come starts here or later."""
        place = self._place
        if self._folded is not None:
            place = self._waiting[0][0] if self._waiting else self._folded.place(place)
        return max(0, place - self._context)

    @property
    def matched(self) -> bool:
        """Whether a match is complete that no span was given for yet, as its end is not certain."""
        if self._waiting or self._place >= self._follower.high:
            return bool(self._waiting)
        if self._search is None or self._search.place < self._place:
            self._search = _Search(self._follower, self._place)
        return self._search.matched()


class _Search:
    """Whether a match is complete that begins at a place or later: one pass for all starts together."""

    def __init__(self, follower: PatternFollower, place: int) -> None:
        self._follower = follower
        self._machine, self._state = follower.searching(place)
        self.place = place
        self._matched = False

    def matched(self) -> bool:
        """Whether one is, by now."""
        if self._matched:
            return True
        beyond = self._follower.beyond
        for cls in self._follower.classes(self.place):
            if self.place == beyond:
                self._state = self._machine.past_prompt(self._state)
            if self._machine.crowded:
                self._machine, (self._state,) = self._machine.carried((self._state,))
            reached = self._machine.step(self._state, cls)
            self._state = ~reached if reached < 0 else reached
            self.place += 1
            if reached < 0 and self.place > beyond:
                self._matched = True
                return True
        return False
