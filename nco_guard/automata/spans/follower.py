"""Matches followed from their starts, in text that is there or comes in pieces: the one way in which spans are found.

The longest match from a start has to be read beyond its end, which would make many starts quadratic. So what was read
in vain is remembered as (place, state): a run that comes to a place in a state in which another one found nothing more
ends there (after Reps, "Maximal munch" tokenization in linear time, 1998). What became of a lookahead is remembered
too. A run that is open where the text has got to is gone on with when more comes.

Cost: a look-up per character of a run. Each pair of a place and a state is read once in vain, so the work of all starts
together is at most the length of the text times the states of the pattern's runs, however the text is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from nco_guard.automata.folding import FoldSpec
from nco_guard.automata.patterns.searching import Machine, Plain, plain
from nco_guard.automata.spans.machines import CAME_TRUE, FREE, OVER, Cursor, Runs, find_quiet, runs_of
from nco_guard.automata.strings.substrings import SubstringSearcher, fold_case

__all__ = [
    "Follower",
    "PatternFollower",
    "Source",
    "Span",
    "StringFollower",
    "follow",
    "source_of",
    "spans_at",
]

Span = tuple[int, int]
Searcher = Machine | SubstringSearcher
"""What finds the spans of a rule."""
Source = Runs | SubstringSearcher
"""What a text is searched with, folded as the rule wants it."""
_Ends = tuple[int, tuple[tuple[int, int], ...]]  # the place of a character, and the ends that it completes
_NEVER = -1
# Runs and duties shorter than this are not remembered: reading them again is no more work than looking them up.
_SHORT = 8
_WINDOW, _WIDEST = 64, 1 << 12
_REMEMBERED = 1 << 16
# After so many steps that no text has taken before, more than one in so many characters, reading ahead is given up.
_NEW, _OFTEN = 4_096, 8


class Follower(Protocol):
    """Follows the matches of one rule from their starts; of a text that goes up to `high` so far.

    `closes`: it ends there; else more is to come, and what that decides is left open. Only matches that end after
    `beyond` count. `steps` counts the characters that runs have read, some of them more than once.
    """

    high: int
    closes: bool
    beyond: int
    steps: int

    def feed(self, text: str) -> None:
        """More of the text, all of which is to be fed then. What was open may be asked for again, what precedes not."""

    def longest(self, start: int) -> tuple[int | None, bool]:
        """The end of the longest match from a place, or None; and whether what is to come can change it."""

    def ends(self, start: int) -> tuple[list[Span], bool]:
        """(end, place of the character that made it certain) of each match from a place; and whether there may be more.

        What the end of the text made certain has the place after its last character. What a match has too from a place
        that was asked for before may be left out: such a follower is not to be asked for the longest.
        """

    def starts(self, place: int) -> Iterator[int]:
        """The places from one on at which a match can begin, in order; the end of the text is the last of them."""

    def candidates(self, place: int) -> Iterator[int]:
        """The places from one on at which a complete match, or an open one, can begin. For text that is there."""

    def next_start(self, place: int) -> int:
        """The first of `starts`; beyond the end of the text the place itself. For text that is fed, in order."""

    def since(self, place: int) -> int:
        """No match that begins before this becomes certain at `place` or later."""

    def matched(self, place: int, *, anew: bool) -> bool:
        """Whether a match is complete that begins at a place or later, in text that is fed.

        `anew`: for one that begins before the place it was asked before.
        """


def source_of(searcher: Searcher) -> tuple[Source, FoldSpec]:
    """What there is to follow of that with which a rule searches, and how text is folded for it."""
    if isinstance(searcher, SubstringSearcher):
        return searcher, FoldSpec()
    machine, spec = plain(searcher)
    return runs_of(machine), spec


def follow(
    source: Source,
    text: str,
    low: int = 0,
    high: int | None = None,
    *,
    opens: bool = True,
    closes: bool = True,
    beyond: int = -1,
) -> Follower:
    """A follower in `text[low:high]`; see `Follower` and `PatternFollower`."""
    high = len(text) if high is None else high
    if isinstance(source, SubstringSearcher):
        return StringFollower(source, text, high, closes=closes, beyond=beyond)
    return PatternFollower(source, text, low, high, opens=opens, closes=closes, beyond=beyond)


def spans_at(
    follower: Follower, places: Iterable[int], position: int = 0
) -> Iterator[tuple[int, int | None]]:
    """The matches that start at some of these places and not before `position`: leftmost, longest, not overlapping.

    Where what is to come decides, (place, None) is the last.
    """
    longest = follower.longest
    for place in places:
        if place < position:
            continue
        end, is_open = longest(place)
        if is_open:
            yield place, None
            return
        if end is not None:
            yield place, end
            position = max(end, place + 1)


class _Run:
    """Where a run has got to, the pairs that it has read, and the ends that it completed."""

    __slots__ = ("found", "place", "start", "state", "trail")

    def __init__(self, start: int, state: int) -> None:
        self.start = self.place = start
        self.state = state
        self.trail: list[int] = []
        self.found: list[_Ends] = []


class PatternFollower:
    """See `Follower`; of a pattern, in `text[low:high]`, a text of its own, or a part of one.

    `opens`: the text begins at `low`; else what precedes is part of it, and at least `reach + 1` characters of it are
    there.
    """

    def __init__(
        self,
        runs: Runs,
        text: str,
        low: int,
        high: int,
        *,
        opens: bool = True,
        closes: bool = True,
        beyond: int = -1,
    ) -> None:
        self._runs = runs
        self._text = text
        self._low = low if opens else 0
        self.high = high
        self.closes = closes
        self.beyond = beyond
        self._vain: set[int] = set()
        self._known: dict[int, int] = {}
        self._waits: dict[int, tuple[int, int]] = {}
        self._most = _REMEMBERED
        self._run: _Run | None = None  # the one that is read, or is open
        self._is_fed = False
        self._window: Sequence[int] = ()
        self._first = self._look = (
            0  # the window's places: the first, and from where on more is to be made ready
        )
        self._bound = 0  # where to look next how much was found
        # What precedes a place, the last that was asked for.
        self._place, self._before = self._low, runs.before
        self._completion: _Completion | None = None
        self.steps = 0

    # -- text that comes in pieces -----------------------------------------------------------------------------

    def feed(self, text: str) -> None:
        """See `Follower`."""
        self._is_fed = True
        more = self._runs.classes.of_text(text)
        kept = self._place if self._run is None else self._run.start
        if kept == self.high:
            self._window = more
        else:
            held = self._window if isinstance(self._window, list) else list(self._window)
            del held[: kept - self._first]
            held.extend(more)
            self._window = held
        self._first = kept
        high = self.high + len(more)
        if self._look == self.high and high < self._bound:
            self._look = high
        self.high = high

    def matched(self, place: int, *, anew: bool) -> bool:
        """See `Follower`: one pass for all starts together."""
        known = self._completion
        if anew or known is None or known.place < place:
            before = self._precedes(place)
            machine = self._runs.machine
            known = self._completion = _Completion(Cursor(machine, machine.planted(before)), place)
        return known.read(self._window[known.place - self._first :], self.beyond)

    # -- matches from one start --------------------------------------------------------------------------------

    def longest(self, start: int) -> tuple[int | None, bool]:
        """See `Follower`."""
        run = self._run
        if run is None or run.start != start:
            run = self._begin(start)
        if self._read(run):
            return None, True
        vain = self._vain
        for place, ends in reversed(run.found):
            for offset, duty in ends:
                if place + offset <= self.beyond:
                    continue
                certain = place if duty == FREE else self._settled(duty, place + 1)
                if certain is None:
                    return None, True
                if certain != _NEVER:
                    self._run = None
                    vain.update(key for key in run.trail if key >> 32 > place)
                    return place + offset, False
        self._run = None
        vain.update(run.trail)
        return None, False

    def ends(self, start: int) -> tuple[list[Span], bool]:
        """See `Follower`."""
        run = self._begin(start)
        is_open = self._read(run)
        self._vain.update(run.trail)
        found: list[Span] = []
        for place, ends in run.found:
            for offset, duty in ends:
                if place + offset <= self.beyond:
                    continue
                certain = place if duty == FREE else self._settled(duty, place + 1)
                if certain is None:
                    is_open = True
                elif certain != _NEVER:
                    found.append((place + offset, certain))
        self._run = None
        return found, is_open

    def _begin(self, start: int) -> _Run:
        before = self._precedes(start)  # which may change the runs
        self._run = run = _Run(start, self._runs.begin(before))
        return run

    def _read(self, run: _Run) -> bool:
        """Read on; whether the run is still open where the text has got to."""
        state = run.state
        if state == OVER:
            return False
        step, vain, end, high = self._runs.step, self._vain, self._runs.end, self.high
        start, place, trail, found = run.start, run.place, run.trail, run.found
        first, window, look = self._first, self._window, self._look
        known = start + _SHORT
        is_open = False
        while True:
            if place < look:
                cls = window[place - first]
            elif place < high:
                run.state = state
                self._fill(place, place - start)
                first, window, look = self._first, self._window, self._look
                step, state, vain = self._runs.step, run.state, self._vain
                cls = window[place - first]
            elif self.closes:
                cls = end
            else:
                is_open = True
                break
            if place > known:
                key = place << 32 | state
                if key in vain:
                    state = OVER
                    break
                trail.append(key)
            state, ends = step(state, cls)
            if ends:
                found.append((place, ends))
            if state < 0:
                break
            if place == high:
                state = OVER
                break
            place += 1
        self.steps += place - run.place + 1
        run.place, run.state = place, state
        return is_open

    def _settled(self, duty: int, place: int) -> int | None:
        """Where a duty comes true, reading from a place on: `_NEVER`, or None where that is still to come."""
        asked, start, trail, known = place << 32 | duty, place, list[int](), self._known
        place, duty = self._waits.pop(asked, (place, duty))
        begun = place
        while True:
            if place - start > _SHORT:
                key = place << 32 | duty
                if (certain := known.get(key)) is not None:
                    break
                trail.append(key)
            if place < self.high:
                if not self._first <= place < self._look:
                    self._move(place, place - start)
                cls = self._window[place - self._first]
            elif self.closes:
                cls = self._runs.end
            else:
                self._waits[asked] = place, duty
                return None
            duty = self._runs.duty_after(duty, cls)
            if duty < 0:
                certain = place if duty == CAME_TRUE else _NEVER
                break
            place += 1
        self.steps += place - begun + 1
        known.update(dict.fromkeys(trail, certain))
        return certain

    # -- where to begin ----------------------------------------------------------------------------------------

    def starts(self, place: int) -> Iterator[int]:
        """See `Follower`. Cost: a look-up for a place with whose character no match begins."""
        while (place := self.next_start(place)) < self.high:
            yield place
            place += 1
        yield self.high

    def candidates(self, place: int) -> Iterator[int]:
        """See `Follower`. One pass sees where matches are complete: a look-up per character, and no run."""
        runs, high = self._runs, self.high
        machine, count, known = runs.machine, runs.end, runs.ahead
        at, new = max(self._low, place - runs.reach - 1), 0
        # No match that is under way began before `fresh`.
        low, fresh, state = at, max(at, place), machine.start
        for cls in runs.classes.of_text(self._text[low:high]):
            move = known.get(state * count + cls)
            if move is None:
                new += 1
                # Where every character leads to something new, to try each place costs less, and far less memory.
                if machine.crowded or (new > _NEW and new * _OFTEN > at - low):
                    yield from range(fresh, high + 1)
                    return
                move = known[state * count + cls] = _moved(machine, state, cls)
            at += 1
            state, matched, clear = move
            if matched:
                yield from range(fresh, at)
                fresh = max(fresh, at)
            elif clear and at > fresh:
                fresh = at
        if not self.closes or not machine.may_end(state):
            yield from range(fresh, high + 1)

    def next_start(self, place: int) -> int:
        """See `Follower`."""
        if self._run is not None and place == self._run.start:
            return place
        before = self._before if place == self._place else self._precedes(place)
        high, width = self.high, self._runs.end + 1
        while place < high:
            if not self._first <= place < self._look:
                self._fill(place, 0)
                before = self._before
            quiet, first, last = self._runs.quiet, self._first, self._look
            if last > place + _WINDOW:
                last = place + _WINDOW
            for cls in self._window[place - first : last - first]:
                following = quiet.get(before * width + cls)
                if following is None:
                    following = find_quiet(self._runs, before, cls)
                if following < 0:
                    self._place, self._before = place, before
                    return place
                before = following
                place += 1
            self._place, self._before = place, before
        return place

    def since(self, place: int) -> int:
        """See `Follower`."""
        return 0

    def _precedes(self, place: int) -> int:
        """What precedes a place, for runs that begin there."""
        if place == self._place:
            return self._before
        if not self._place < place <= self._place + self._runs.reach + 1:
            self._place = max(self._low, place - self._runs.reach - 1)
            self._before = self._runs.before
        if self._place < self._first or place > self._look:
            self._fill(self._place, place - self._place)
        passed, before, first = self._runs.passed, self._before, self._first
        for cls in self._window[self._place - first : place - first]:
            before = passed(before, cls)
        self._place, self._before = place, before
        return before

    def _move(self, place: int, size: int) -> None:
        """Make characters from a place on ready to be read, at least `size`; the more it is, the more of them."""
        last = min(self.high, place + max(_WINDOW, min(size, _WIDEST)))
        if not self._is_fed:
            self._first = place
            self._window = self._runs.classes.of_text(self._text[place:last])
        self._look, self._bound = last, place + _WINDOW

    def _fill(self, place: int, size: int) -> None:
        """`_move`; and where much was found, go on with runs that know nothing but what is in use."""
        self._move(place, size)
        if self._is_fed and len(self._vain) + len(self._known) > self._most:
            self._vain = {key for key in self._vain if key >> 32 >= self._first}
            self._known = {key: value for key, value in self._known.items() if key >> 32 >= self._first}
            self._most = max(_REMEMBERED, 2 * (len(self._vain) + len(self._known)))
        if not self._runs.crowded:
            return
        run = self._run
        states = [] if run is None or run.state == OVER else [run.state]
        found = [] if run is None else run.found
        duties = [duty for _, ends in found for _, duty in ends if duty != FREE]
        self._runs, self._before, states, carried = self._runs.carried(self._before, states, duties)
        if run is not None:
            numbers = {FREE: FREE, **dict(zip(duties, carried, strict=True))}
            found[:] = [(at, tuple((offset, numbers[duty]) for offset, duty in ends)) for at, ends in found]
            run.state = states[0] if states else OVER
            run.trail.clear()
        self._vain.clear()
        self._known.clear()
        self._waits.clear()


def _moved(machine: Plain, state: int, cls: int) -> tuple[int, bool, bool]:
    """The next state, whether a match is complete, and whether none that began before it is under way."""
    reached, under_way = machine.step(state, cls), machine.step(state, cls, seed=False)
    is_clear = machine.is_bare(~under_way if under_way < 0 else under_way)
    return ~reached if reached < 0 else reached, reached < 0, is_clear


class _Completion:
    """Whether a match is complete that begins at a place or later; `place`: how far that is known."""

    def __init__(self, cursor: Cursor[Plain], place: int) -> None:
        self._cursor = cursor
        self.place = place
        self._matched = False

    def read(self, classes: Sequence[int], beyond: int) -> bool:
        """Whether one is, by the end of these characters."""
        for cls in () if self._matched else classes:
            if self.place == beyond:
                self._cursor.pass_prompt()
            completes = self._cursor.read(cls)
            self.place += 1
            if completes and self.place > beyond:
                self._matched = True
                break
        return self._matched


class StringFollower:
    """See `Follower` and `PatternFollower`; of a list of strings. Cost: a look-up for each length that is possible."""

    steps = 0

    def __init__(
        self, strings: SubstringSearcher, text: str, high: int, *, closes: bool = True, beyond: int = -1
    ) -> None:
        self._strings = strings
        self._text = text
        self._first = 0  # the place of the text's first character
        self.high = high
        self.closes = closes
        self.beyond = beyond
        self._starts: Iterator[int] = iter(())
        self._place = 0  # the last start that was asked for, in text that is fed
        self._known = 0  # how far it is known whether a match is complete
        self._matched = False

    def feed(self, text: str) -> None:
        """See `Follower`."""
        done = max(0, self._place - 1 - self._first)  # what precedes a start decides as well
        self._first += done
        self._text = self._text[done:] + text
        self.high += len(text)
        self._starts = self._strings.places(self._text, self._place - self._first, len(self._text))

    def next_start(self, place: int) -> int:
        """See `Follower`."""
        asked = place - self._first
        for at in self._starts:
            if at >= asked:
                self._place = at + self._first
                return self._place
        self._place = self.high
        return max(place, self.high)

    def matched(self, place: int, *, anew: bool) -> bool:
        """See `Follower`."""
        strings, text, first = self._strings, self._text, self._first
        if anew:
            self._known, self._matched = 0, False
        if not self._matched:
            # The end of a whole word is certain with what follows.
            last = self.high - 1 if strings.whole_word else self.high
            stops = strings.stops(text, place - first, max(self._known, self.beyond) - first)
            self._matched = any(stop + first <= last and strings.may_stop(text, stop) for stop in stops)
            self._known = last
        return self._matched

    def _piece(self, start: int) -> str:
        """What stands at a place of the text that is held."""
        piece = self._text[start : min(start + self._strings.longest, self.high - self._first)]
        return fold_case(piece) if self._strings.caseless else piece

    def longest(self, start: int) -> tuple[int | None, bool]:
        """See `Follower`."""
        first = self._first
        at = start - first
        piece = self._piece(at)
        if not self.closes and start + len(piece) == self.high and self._open(at, piece):
            return None, True
        end = self._strings.stop_of(self._text, at, piece)
        return (end + first if end and end + first > self.beyond else None), False

    def _open(self, at: int, piece: str) -> bool:
        pending = self.high > self.beyond
        return self._strings.may_start(self._text, at) and self._strings.goes_on(piece, pending=pending)

    def ends(self, start: int) -> tuple[list[Span], bool]:
        """See `Follower`."""
        piece, strings = self._piece(start), self._strings
        if not strings.begins(piece):
            return [], False
        is_open = not self.closes and start + len(piece) == self.high and self._open(start, piece)
        stops = strings.stops_of(self._text, start, piece)
        whole, last = strings.whole_word, self.high if self.closes else self.high - 1
        places = ((stop, stop if whole else stop - 1) for stop in stops if stop > self.beyond)
        return [(stop, place) for stop, place in places if place <= last], is_open

    def starts(self, place: int) -> Iterator[int]:
        """See `Follower`."""
        return iter(range(place, self.high + 1))

    def candidates(self, place: int) -> Iterator[int]:
        """See `Follower`."""
        return self._strings.places(self._text, place, self.high)

    def since(self, place: int) -> int:
        """See `Follower`."""
        return max(0, place - self._strings.longest)
