"""The longest match from given places of a text, in time linear in the text however many places there are.

A *run* follows the matches that start at one place, without those that start later. Runs are determinised and kept, so
a step is a look-up. Two things would make many runs over one text quadratic, and both are remembered instead: what a
run read in vain after its last match (after Reps, "Maximal munch" tokenization in linear time, 1998), and what became
of a lookahead. A run that comes to a place in a state in which another one found nothing more ends there.

Cost: a look-up per character of a run; a state met for the first time some tens of microseconds. Each pair of a place
and a state is read once in vain, so the work is at most the length of the text times the states of the pattern's runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.patterns.alternating import AlternatingMachine
from nco_guard.automata.patterns.checksum import ChecksumMachine, Sum
from nco_guard.automata.patterns.fsm import FsmMachine
from nco_guard.automata.patterns.syntax import Alternation, Assertion, Chars, Look, Node, Repeat, subnodes
from nco_guard.automata.patterns.syntax import Sequence as Items
from nco_guard.automata.patterns.threads import BEFORE, DONE, FALSE, HERE, TRUE, Thread

__all__ = ["FsmRuns", "MachineRuns", "PatternRuns", "SpanFinder", "reach", "runs_of"]

# What a step gives: the next state (`OVER`: no match goes on), and the ends that it completes, each as (0 or 1: before
# or after the character, the duty that it waits for, or `FREE`), later ends first.
OVER = -1
FREE = -1
Step = tuple[int, tuple[tuple[int, int], ...]]
_Ends = tuple[int, tuple[tuple[int, int], ...]]  # the place of a character, and the ends that it completes
_CAME_TRUE, _CAME_FALSE = -1, -2
# Runs and duties shorter than this are not remembered: reading them again is no more work than looking them up.
_SHORT = 8
_WINDOW, _WIDEST = 64, 1 << 12
_MANY = 100_000  # states of runs, after which they are forgotten


class MachineRuns(Protocol):
    """Runs of one machine over classes of characters; `end` is the class of the end of the text."""

    classes: CharClasses
    end: int
    reach: int

    def begin(self, before: Sequence[int], *, at_start: bool) -> int:
        """The run that starts after these characters; `at_start`: nothing precedes them."""

    def step(self, state: int, cls: int) -> Step:
        """What a run becomes by one character."""

    def settle(self, duty: int, cls: int) -> int:
        """What a duty becomes: another one, or whether it came true."""

    @property
    def crowded(self) -> bool:
        """Whether so much was found that it is time to go on with those of `carried`."""

    def carried(self, state: int, duties: Sequence[int]) -> tuple[Self, int, list[int]]:
        """Runs that know nothing but this state and these duties, and their numbers there."""


def reach(node: Node) -> int:
    """How many characters before a place can decide what matches from there: the width of nested lookbehinds."""
    found = 0
    for part in subnodes(node):
        if isinstance(part, Assertion):
            found = max(found, 1)
        elif isinstance(part, Look) and part.behind:
            found = max(found, _width(part.body) + reach(part.body))
    return found


def _width(node: Node) -> int:
    """The greatest number of characters of a lookbehind, whose width `re` wants fixed."""
    if isinstance(node, Chars):
        return 1
    if isinstance(node, Items):
        return sum(map(_width, node.items))
    if isinstance(node, Alternation):
        return max(map(_width, node.options), default=0)
    if isinstance(node, Repeat):
        return _width(node.body) * (node.low if node.high is None else node.high)
    return 0


class PatternRuns:
    """Runs of a pattern; with a checksum, only ends at which it passes count."""

    def __init__(self, machine: AlternatingMachine) -> None:
        self._machine = machine
        self._checksum = machine.checksum if isinstance(machine, ChecksumMachine) else None
        self.classes = machine.classes
        self.end = machine.classes.count
        self.reach = reach(machine.node)
        self._root = machine._intern({machine._root})
        _, self._runners, self._before = machine._states[machine.start]
        self._states: list[tuple[int, tuple[int, ...], int, Sum]] = []
        self._ids: dict[tuple[int, tuple[int, ...], int, Sum], int] = {}
        self._steps: dict[int, Step] = {}
        self._duties: list[tuple[int, tuple[int, ...], int]] = []
        self._duty_ids: dict[tuple[int, tuple[int, ...], int], int] = {}
        self._settled: dict[int, int] = {}
        self._begun: dict[int, int] = {}

    def begin(self, before: Sequence[int], *, at_start: bool) -> int:
        """See `MachineRuns`. `before` holds `reach + 1` characters, or all that there are."""
        machine = self._machine
        if not self._runners:
            last = before[-1] if len(before) else -1
            known = self._begun.get(last)
            if known is None:
                test = machine._before[machine._in_pattern(last)] if last >= 0 else self._before
                known = self._begun[last] = self._state((self._root, (), test, self._first_sum))
            return known
        runners, test = self._runners, self._before
        # Without the start of the text the first character is read for one that follows it; `reach` more forget that.
        for cls in before:
            coarse = machine._in_pattern(cls)
            runners, _ = machine._run_behinds(runners, test, coarse)
            test = machine._before[coarse]
        return self._state((self._root, runners, test, self._first_sum))

    @property
    def _first_sum(self) -> Sum:
        return self._checksum.start if self._checksum is not None else ()

    def _state(self, key: tuple[int, tuple[int, ...], int, Sum]) -> int:
        state = self._ids.get(key)
        if state is None:
            state = len(self._states)
            self._states.append(key)
            self._ids[key] = state
        return state

    def _duty(self, key: tuple[int, tuple[int, ...], int]) -> int:
        duty = self._duty_ids.get(key)
        if duty is None:
            duty = len(self._duties)
            self._duties.append(key)
            self._duty_ids[key] = duty
        return duty

    def step(self, state: int, cls: int) -> Step:
        """See `MachineRuns`."""
        key = state * (self.end + 1) + cls
        known = self._steps.get(key)
        if known is None:
            known = self._steps[key] = self._find_step(state, cls)
        return known

    def _find_step(self, state: int, cls: int) -> Step:
        machine, checksum = self._machine, self._checksum
        main, runners, before, total = self._states[state]
        coarse, values = self._read(cls), tuple[int, ...]()
        if runners:
            runners, values = machine._run_behinds(runners, before, coarse)
        following = total
        if isinstance(machine, ChecksumMachine) and cls != self.end:
            following = machine._read(total, machine._values[cls])
        after = machine._before[coarse] if cls != self.end else before
        ends: set[tuple[int, int]] = set()
        ahead: set[Thread] = set()

        def ended(offset: int, needs: frozenset[int], never: int) -> None:
            if checksum is not None and not checksum.valid(following if offset else total):
                return
            if not needs and never == FALSE:
                ends.add((offset, FREE))
            elif cls != self.end:  # at the end of the text nothing comes that could make it true
                duty = machine._intern({(DONE, needs, never)})
                if duty == TRUE:
                    ends.add((offset, FREE))
                elif duty != FALSE:
                    ends.add((offset, self._duty((duty, runners, after))))

        for source, (cell, needs, never) in machine._step_threads(main, before, coarse, values):
            if cell == BEFORE:
                if not machine._nullable[source]:
                    ended(0, needs, never)
                continue
            if machine._nullable[cell] and cls != self.end:
                ended(1, needs, never)
            if cell != HERE:
                ahead.add((cell, needs, never))
        open_main = machine._intern(ahead) if cls != self.end else FALSE
        reached = OVER if open_main == FALSE else self._state((open_main, runners, after, following))
        return reached, tuple(sorted(ends, key=lambda end: (-end[0], end[1])))

    def _read(self, cls: int) -> int:
        return self._machine.end if cls == self.end else self._machine._in_pattern(cls)

    def settle(self, duty: int, cls: int) -> int:
        """See `MachineRuns`."""
        key = duty * (self.end + 1) + cls
        known = self._settled.get(key)
        if known is None:
            machine = self._machine
            source, runners, before = self._duties[duty]
            coarse, values = self._read(cls), tuple[int, ...]()
            if runners:
                runners, values = machine._run_behinds(runners, before, coarse)
            value = machine._step_set(source, before, coarse, values)
            if value == TRUE:
                known = _CAME_TRUE
            elif value == FALSE or cls == self.end:
                known = _CAME_FALSE
            else:
                known = self._duty((value, runners, machine._before[coarse]))
            self._settled[key] = known
        return known

    @property
    def crowded(self) -> bool:
        """See `MachineRuns`."""
        return self._machine.crowded or len(self._states) + len(self._duties) > _MANY

    def carried(self, state: int, duties: Sequence[int]) -> tuple[Self, int, list[int]]:
        """See `MachineRuns`."""
        main, runners, before, total = self._states[state]
        held = [self._duties[duty] for duty in duties]
        ds = (main, *runners, *(d for source, behind, _ in held for d in (source, *behind)))
        machine, _, numbers = self._machine.carried_with((), ds)
        fresh = type(self)(machine)
        reached = fresh._state((numbers[main], tuple(numbers[d] for d in runners), before, total))
        found = [
            fresh._duty((numbers[source], tuple(numbers[d] for d in behind), after))
            for source, behind, after in held
        ]
        return fresh, reached, found


class FsmRuns:
    """Runs of a ready-made automaton: the words that start at one place."""

    reach = 0

    def __init__(self, machine: FsmMachine) -> None:
        self._machine = machine
        self.classes = machine.classes
        self.end = machine.classes.count
        self._members: list[object] = [machine._initial]
        self._ids: dict[object, int] = {machine._initial: 0}
        self._steps: dict[int, Step] = {}

    def begin(self, before: Sequence[int], *, at_start: bool) -> int:
        """See `MachineRuns`: a word starts alike everywhere."""
        return 0

    def step(self, state: int, cls: int) -> Step:
        """See `MachineRuns`."""
        if cls == self.end:
            return OVER, ()
        key = state * (self.end + 1) + cls
        known = self._steps.get(key)
        if known is None:
            machine = self._machine
            member = machine._map.get(self._members[state], {}).get(machine._keys[cls])
            if member is None or member not in machine._remaining:
                known = OVER, ()
            else:
                found = self._ids.get(member)
                reached = len(self._members) if found is None else found
                if found is None:
                    self._members.append(member)
                    self._ids[member] = reached
                known = reached, ((1, FREE),) if member in machine._finals else ()
            self._steps[key] = known
        return known

    crowded = False  # a run is a state of the automaton

    def carried(self, state: int, duties: Sequence[int]) -> tuple[Self, int, list[int]]:
        """See `MachineRuns`."""
        return self, state, list(duties)

    def settle(self, duty: int, cls: int) -> int:
        """See `MachineRuns`: words wait for nothing, so this is never asked."""
        raise ValueError("an automaton has no duties")


def runs_of(machine: AlternatingMachine | FsmMachine) -> PatternRuns | FsmRuns:
    """The runs of a machine that reports every end of a match."""
    return FsmRuns(machine) if isinstance(machine, FsmMachine) else PatternRuns(machine)


class SpanFinder:
    """Finds matches in `text[low:high]`, a text of its own, or a part of one.

    `opens`: the text begins at `low`; else what precedes is part of it, and at least `reach + 1` characters of it are
    there. `closes`: it ends at `high`; else more is to come, and what that decides is left open. `steps` counts the
    characters that were read, some of them more than once.
    """

    def __init__(
        self, runs: MachineRuns, text: str, low: int, high: int, *, opens: bool = True, closes: bool = True
    ) -> None:
        self._runs = runs
        self._text = text
        self._low, self._high = low, high
        self._opens, self._closes = opens, closes
        self._vain: set[int] = set()
        self._known: dict[int, bool] = {}
        self._window: Sequence[int] = ()
        self._first = 0  # the place of the window's first character
        self.steps = 0

    def longest(self, start: int) -> tuple[int | None, bool]:
        """The end of the longest match from a place, or None; and whether what is to come can change it."""
        step, vain, end = self._runs.step, self._vain, self._runs.end
        before = self._window
        place, state = start, self._begin(start)
        if before is not self._window and self._runs.crowded:
            state = self._make_room(state, [])
            step = self._runs.step
        first, window = self._first, self._window
        last = first + len(window)
        trail: list[int] = []
        found: list[_Ends] = []
        while True:
            if place < last:
                cls = window[place - first]
            elif place < self._high:
                self._fill(place, place - start)
                first, window = self._first, self._window
                last = first + len(window)
                if self._runs.crowded:
                    state = self._make_room(state, found)
                    step, trail = self._runs.step, []
                cls = window[place - first]
            elif self._closes:
                cls = end
            else:
                return None, True
            if place - start > _SHORT:
                key = place << 32 | state
                if key in vain:
                    break
                trail.append(key)
            state, ends = step(state, cls)
            if ends:
                found.append((place, ends))
            if state < 0 or place == self._high:
                break
            place += 1
        self.steps += place - start + 1
        for place, ends in reversed(found):
            for offset, duty in ends:
                value = True if duty == FREE else self._holds(duty, place + 1)
                if value is None:
                    return None, True
                if value:
                    vain.update(key for key in trail if key >> 32 > place)
                    return place + offset, False
        vain.update(trail)
        return None, False

    def _make_room(self, state: int, found: list[_Ends]) -> int:
        """Forget what runs have led to, but for one of them and the ends that it completed; its state from now on."""
        duties = [duty for _, ends in found for _, duty in ends if duty != FREE]
        self._runs, state, carried = self._runs.carried(state, duties)
        numbers = {FREE: FREE, **dict(zip(duties, carried, strict=True))}
        found[:] = [(place, tuple((offset, numbers[duty]) for offset, duty in ends)) for place, ends in found]
        self._vain.clear()
        self._known.clear()
        return state

    def _begin(self, start: int) -> int:
        low = max(self._low if self._opens else 0, start - self._runs.reach - 1)
        if self._first <= low and start < self._first + len(self._window):
            before = self._window[low - self._first : start - self._first]
        else:
            self._first = low
            self._window = self._runs.classes.of_text(self._text[low : min(self._high, start + _WINDOW)])
            before = self._window[: start - low]
        return self._runs.begin(before, at_start=self._opens and low == self._low)

    def _fill(self, place: int, read: int) -> None:
        """Move the window on to a place; the longer the run so far, the larger."""
        size = min(max(_WINDOW, read), _WIDEST)
        self._first = place
        self._window = self._runs.classes.of_text(self._text[place : min(self._high, place + size)])

    def _holds(self, duty: int, place: int) -> bool | None:
        """Whether a duty comes true, reading from a place on; None: that is still to come."""
        start, trail, known = place, list[int](), self._known
        value: bool | None = None
        while value is None:
            if place - start > _SHORT:
                key = place << 32 | duty
                if (value := known.get(key)) is not None:
                    break
                trail.append(key)
            if place < self._high:
                if not self._first <= place < self._first + len(self._window):
                    self._fill(place, place - start)
                cls = self._window[place - self._first]
            elif self._closes:
                cls = self._runs.end
            else:
                return None
            duty = self._runs.settle(duty, cls)
            if duty < 0:
                value = duty == _CAME_TRUE
            place += 1
        self.steps += place - start
        known.update(dict.fromkeys(trail, value))
        return value
