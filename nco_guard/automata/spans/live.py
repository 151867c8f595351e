"""Where the matches began that are under way, in text that is read on and gone back in.

`follower` reads a match from its start, whenever it is asked for; here all that are under way are carried along with
the text, as pairs of a run's state and where it began. Of runs that come to one state only the first is kept: what
comes completes all of them or none. A place in a text is a value that never changes, so to go back is to take an
earlier one. Both step the same runs (`machines`). Two are needed, as they answer two questions: where the longest match
from a start ends, for which a start is read on alone, in a follower that remembers and changes; and which of all starts
is the first under way, for which no end is needed, in texts that go back.

Cost: a look-up per character where nothing is under way, else one for each state that runs have come to; of a list of
strings, those for the places where one may begin. Nothing is read twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nco_guard.automata.folding import FoldSpec
from nco_guard.automata.spans.folds import FoldedText, fold_arrived
from nco_guard.automata.spans.follower import Searcher, Span, StringFollower, source_of
from nco_guard.automata.spans.machines import CAME_TRUE, FREE, OVER, Runs, find_quiet
from nco_guard.automata.strings.substrings import SubstringSearcher

__all__ = ["LiveMatches", "live_matches", "longest_open"]

_Open = tuple[
    tuple[int, int], ...
]  # numbers of states or duties, and where the first match began that came to each
_ROOM = 64  # characters between two looks whether runs are crowded


class LiveMatches(Protocol):
    """The matches of one rule that are under way at a place of a text. Places are offsets in code points."""

    @property
    def first(self) -> int | None:
        """Where the first of them began."""

    @property
    def settled(self) -> int:
        """How much of the text has been looked at: an escape that is under way has not."""

    def read(self, text: str, *, final: bool = False) -> tuple[LiveMatches, int | None]:
        """Read on: what is under way then, and where the first match began that became certain meanwhile.

        `final`: the text ends here, and its end may make one certain.
        """


def live_matches(searcher: Searcher, *, prompt: int = -1) -> LiveMatches:
    """Before any character. `searcher` reports every end of a match.

    `prompt`: so many characters that come first are a prompt: matches that end there do not count, those that begin
    there do.
    """
    source, spec = source_of(searcher)
    if isinstance(source, SubstringSearcher):
        return _LiveStrings(source, prompt)
    return _LiveRuns(spec, prompt, source, source.before, counts=prompt < 0)


def longest_open(searcher: Searcher, text: str) -> Span | None:
    """The longest stretch of the text that could be the beginning of a match, or is one; the first if several.

    A folded rule's is the longest in the folded text, as a span of the original. At each place the match that began
    first, of those that are under way or become certain there, has the longest stretch, so one pass finds it.
    Cost: a look-up per character for each state that the matches under way have come to, however long they live; of a
    list of strings, one for each place where one may begin.
    """
    source, spec = source_of(searcher)
    if isinstance(source, SubstringSearcher):
        return source.beginning(text)
    folded = FoldedText(spec)
    shown = folded.feed(text, final=True)
    step, best = _Step(_LiveRuns(spec, -1, source, source.before, counts=True)), (0, 0)
    for place, cls in enumerate(source.classes.of_text(shown)):
        if place % _ROOM == 0:
            step.make_room()
        first = step.earliest(cls, place)
        if first is not None and place + 1 - first > best[1] - best[0]:
            best = first, place + 1
    return folded.original(best) if best[1] else None


def _earlier(one: int | None, other: int) -> int:
    return other if one is None or other < one else one


@dataclass(slots=True)  # never changed: to say so would cost a microsecond a place
class _LiveRuns:
    """Of a pattern or a ready-made automaton."""

    spec: FoldSpec
    prompt: int
    runs: Runs
    before: int  # what precedes, as far as it decides what matches from here
    counts: bool  # whether a match that ends here does
    open: _Open = ()
    duties: _Open = ()  # what complete matches still wait for
    settled: int = 0
    pending: str = ""  # an escape under way

    @property
    def first(self) -> int | None:
        if not (self.open or self.duties):
            return None
        return min(start for _, start in (*self.open, *self.duties))

    def read(self, text: str, *, final: bool = False) -> tuple[_LiveRuns, int | None]:
        if not (self.open or self.duties or final) and self.spec.trivial:
            passed = self._passed(text)
            if passed is not None:
                return passed, None
        part, read, pending = fold_arrived(self.pending, text, self.spec, final=final)
        step = _Step(self)
        for at, cls in enumerate(step.runs.classes.of_text(part.text)):
            if at % _ROOM == 0:
                step.make_room()
            step.read(cls, self.settled + part.start(at), self.settled + part.end(at) > self.prompt)
        settled = self.settled + read
        if final:
            step.end(settled)
        return step.reached(settled, pending), step.completed

    def _passed(self, text: str) -> _LiveRuns | None:
        """The place after text with no character of which a match begins; None: there may be one."""
        runs, before = self.runs, self.before
        quiet, width = runs.quiet, runs.end + 1
        for cls in runs.classes.of_text(text):
            before = quiet.get(before * width + cls, -1)
            if before < 0:
                return None
        settled = self.settled + len(text)
        return _LiveRuns(self.spec, self.prompt, runs, before, settled > self.prompt, settled=settled)


class _Step:
    """A place that is moved on from."""

    def __init__(self, place: _LiveRuns) -> None:
        self.runs = place.runs
        self.completed: int | None = None
        self._place = place
        self._before = place.before
        self._open = place.open
        self._duties = place.duties
        self._counts = place.counts

    def make_room(self) -> None:
        """Go on with runs that know nothing but what is in use, where much was found."""
        if self.runs.crowded:
            states, duties = [state for state, _ in self._open], [duty for duty, _ in self._duties]
            self.runs, self._before, states, duties = self.runs.carried(self._before, states, duties)
            self._open = tuple(zip(states, (start for _, start in self._open), strict=True))
            self._duties = tuple(zip(duties, (start for _, start in self._duties), strict=True))

    def read(self, cls: int, place: int, counts: bool) -> None:
        """Go on by a character from this place. `counts`: whether what ends after it does."""
        runs = self.runs
        following = runs.quiet.get(self._before * (runs.end + 1) + cls)
        if following is None:
            following = find_quiet(runs, self._before, cls)
        live = self._open
        if following < 0:
            live = (*live, (runs.begin(self._before), place))
            following = runs.passed(self._before, cls)
        if live or self._duties:
            self._follow(cls, live, counts)
        self._before, self._counts = following, counts

    def earliest(self, cls: int, place: int) -> int | None:
        """`read`; and where the first match began that is under way then, or became certain with this character."""
        self.completed = None
        self.read(cls, place, counts=True)
        found = self.completed
        if self._open:
            found = _earlier(found, self._open[0][1])
        for _, start in self._duties:
            found = _earlier(found, start)
        return found

    def end(self, place: int) -> None:
        """The text ends here."""
        self._follow(self.runs.end, (*self._open, (self.runs.begin(self._before), place)), self._counts)

    def _follow(self, cls: int, live: _Open, counts: bool) -> None:
        runs, found = self.runs, self.completed
        waiting: dict[int, int] = {}
        for duty, start in self._duties:
            after = runs.duty_after(duty, cls)
            if after == CAME_TRUE:
                found = _earlier(found, start)
            elif after >= 0:
                waiting[after] = _earlier(waiting.get(after), start)
        kept: dict[int, int] = {}  # those that began first come first
        for state, start in live:
            reached, ends = runs.step(state, cls)
            if reached != OVER:
                kept.setdefault(reached, start)
            for offset, duty in ends:
                if not (counts if offset else self._counts):
                    continue
                if duty == FREE:
                    found = _earlier(found, start)
                else:
                    waiting[duty] = _earlier(waiting.get(duty), start)
        self._open, self._duties, self.completed = tuple(kept.items()), tuple(waiting.items()), found

    def reached(self, settled: int, pending: str) -> _LiveRuns:
        """The place that it has come to."""
        spec, prompt = self._place.spec, self._place.prompt
        return _LiveRuns(
            spec, prompt, self.runs, self._before, self._counts, self._open, self._duties, settled, pending
        )


@dataclass(slots=True)
class _LiveStrings:
    """Of a list of strings."""

    strings: SubstringSearcher
    prompt: int
    settled: int = 0
    first: int | None = None
    text: str = ""  # from the first match under way on, and the character before

    def read(self, text: str, *, final: bool = False) -> tuple[_LiveStrings, int | None]:
        held = self.text + text
        base, high = self.settled - len(self.text), self.settled + len(text)
        strings = StringFollower(
            self.strings, held, len(held), closes=final, beyond=max(-1, self.prompt - base)
        )
        completed, first = None, None
        asked = self.settled if self.first is None else self.first
        for start in strings.candidates(asked - base):
            ends, is_open = strings.ends(start)
            if completed is None and any(place >= len(self.text) for _, place in ends):
                completed = base + start
            if is_open and first is None:
                first = base + start
            if first is not None and completed is not None:
                break
        kept = max(0, (high if first is None else first) - base - 1)
        return _LiveStrings(self.strings, self.prompt, high, first, held[kept:]), completed
