"""What becomes of the matches that start at one place, a class of characters at a time: *runs*.

A run follows the matches from one start, without those that start later, and knows of each end of a match what it still
waits for. Runs are determinised and kept with the machine, so a step is a look-up; one that was never met takes some
tens of microseconds. `follower` has what is done with them in a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, Self, TypeVar

from nco_guard.automata.numbered import Numbered
from nco_guard.automata.patterns.alternating import AlternatingMachine
from nco_guard.automata.patterns.checksum import ChecksumMachine
from nco_guard.automata.patterns.fsm import FsmMachine
from nco_guard.automata.patterns.searching import Plain
from nco_guard.automata.patterns.sums import Sum
from nco_guard.automata.patterns.syntax import (
    Alternation,
    Assertion,
    Chars,
    Lookaround,
    Node,
    Repeat,
    subnodes,
)
from nco_guard.automata.patterns.syntax import Sequence as Items
from nco_guard.automata.patterns.threads import BEFORE, DONE, FALSE, HERE, TRUE, Thread

__all__ = ["CAME_TRUE", "FREE", "OVER", "Cursor", "PatternRuns", "Runs", "find_quiet", "runs_of"]

# What a step gives: the next state (`OVER`: no match goes on), and the ends that it completes, each as (0 or 1: before
# or after the character, the duty that it waits for, or `FREE`), later ends first.
Step = tuple[int, tuple[tuple[int, int], ...]]
OVER, FREE = -1, -1
CAME_TRUE, _CAME_FALSE = -1, -2
_NOTHING: Step = (OVER, ())
_MANY = 100_000  # states of runs, after which they are forgotten


def reach(node: Node) -> int:
    """How many characters before a place can decide what matches from there: the width of nested lookbehinds."""
    found = 0
    for part in subnodes(node):
        if isinstance(part, Assertion):
            found = max(found, 1)
        elif isinstance(part, Lookaround) and part.behind:
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
    """Runs of a pattern over classes of characters; with a checksum, only ends at which it passes count.

    `end` is the class of the end of the text. `before` is what precedes a text, as far as it decides what matches from
    a place: `reach + 1` characters lead to the same from anywhere. `quiet` is for whoever looks for starts: by
    `before * (end + 1) + class` what `passed` gives where no match begins with that character, else -1. `ahead` is for
    whoever looks for complete matches: by `state * end + class` of the machine what a character makes of all matches.
    """

    def __init__(self, machine: AlternatingMachine) -> None:
        self.machine = machine
        self._checksum = machine.checksum if isinstance(machine, ChecksumMachine) else None
        self.classes = machine.classes
        self.end = machine.classes.count
        self.reach = reach(machine.node)
        self._root = machine._intern({machine._root})
        self.before = machine.bare_start
        self.quiet: dict[int, int] = {}
        self.ahead: dict[int, tuple[int, bool, bool]] = {}
        self._states: Numbered[tuple[int, tuple[int, ...], int, Sum]] = Numbered()
        self._begun: dict[int, int] = {}
        self._passed: dict[int, int] = {}
        self._steps: dict[int, Step] = {}
        self._duties: Numbered[tuple[int, tuple[int, ...], int]] = Numbered()
        self._duties_after: dict[int, int] = {}

    def passed(self, before: int, cls: int) -> int:
        """What precedes the next place."""
        key = before * self.end + cls
        known = self._passed.get(key)
        if known is None:
            known = self._passed[key] = self.machine.step(before, cls, seed=False)
        return known

    def begin(self, before: int) -> int:
        """The run that starts here."""
        known = self._begun.get(before)
        if known is None:
            _, runners, test = self.machine._states[before]
            first = self._checksum.start if self._checksum is not None else ()
            known = self._begun[before] = self._states.number((self._root, runners, test, first))
        return known

    def step(self, state: int, cls: int) -> Step:
        """What a run becomes by one character."""
        key = state * (self.end + 1) + cls
        known = self._steps.get(key)
        if known is None:
            known = self._steps[key] = self._find_step(state, cls)
        return known

    def _find_step(self, state: int, cls: int) -> Step:
        machine, checksum = self.machine, self._checksum
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
                    ends.add((offset, self._duties.number((duty, runners, after))))

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
        reached = OVER if open_main == FALSE else self._states.number((open_main, runners, after, following))
        return reached, tuple(sorted(ends, key=lambda end: (-end[0], end[1])))

    def _read(self, cls: int) -> int:
        return self.machine.end if cls == self.end else self.machine._in_pattern(cls)

    def duty_after(self, duty: int, cls: int) -> int:
        """What a duty becomes: another one, or whether it came true."""
        key = duty * (self.end + 1) + cls
        known = self._duties_after.get(key)
        if known is None:
            machine = self.machine
            source, runners, before = self._duties[duty]
            coarse, values = self._read(cls), tuple[int, ...]()
            if runners:
                runners, values = machine._run_behinds(runners, before, coarse)
            value = machine._step_set(source, before, coarse, values)
            if value == TRUE:
                known = CAME_TRUE
            elif value == FALSE or cls == self.end:
                known = _CAME_FALSE
            else:
                known = self._duties.number((value, runners, machine._before[coarse]))
            self._duties_after[key] = known
        return known

    @property
    def crowded(self) -> bool:
        """Whether so much was found that it is time to go on with those of `carried`."""
        return self.machine.crowded or len(self._states) + len(self._duties) > _MANY

    def carried(
        self, before: int, states: Sequence[int], duties: Sequence[int]
    ) -> tuple[Self, int, list[int], list[int]]:
        """Runs that know nothing but these, and their numbers there."""
        going, held = [self._states[state] for state in states], [self._duties[duty] for duty in duties]
        ds = [d for main, runners, *_ in going for d in (main, *runners)]
        ds += [d for source, behind, _ in held for d in (source, *behind)]
        machine, (place,), numbers = self.machine.carried_with((before,), ds)
        fresh = type(self)(machine)
        reached = [
            fresh._states.number((numbers[main], tuple(numbers[d] for d in runners), test, total))
            for main, runners, test, total in going
        ]
        found = [
            fresh._duties.number((numbers[source], tuple(numbers[d] for d in behind), after))
            for source, behind, after in held
        ]
        return fresh, place, reached, found


class FsmRuns:
    """Runs of a ready-made automaton: the words that start at one place."""

    reach = before = 0

    def __init__(self, machine: FsmMachine) -> None:
        self.machine = machine
        self.quiet: dict[int, int] = {}
        self.ahead: dict[int, tuple[int, bool, bool]] = {}
        self.classes = machine.classes
        self.end = machine.classes.count
        self._members: Numbered[object] = Numbered([machine._initial])
        self._steps: dict[int, Step] = {}

    def passed(self, before: int, cls: int) -> int:
        """See `PatternRuns`: a word starts alike everywhere."""
        return 0

    def begin(self, before: int) -> int:
        """See `PatternRuns`."""
        return 0

    def step(self, state: int, cls: int) -> Step:
        """See `PatternRuns`."""
        if cls == self.end:
            return _NOTHING
        key = state * (self.end + 1) + cls
        known = self._steps.get(key)
        if known is None:
            machine = self.machine
            member = machine._map.get(self._members[state], {}).get(machine._keys[cls])
            if member is None or member not in machine._remaining:
                known = _NOTHING
            else:
                known = self._members.number(member), ((1, FREE),) if member in machine._finals else ()
            self._steps[key] = known
        return known

    crowded = False  # a run is a state of the automaton

    def carried(
        self, before: int, states: Sequence[int], duties: Sequence[int]
    ) -> tuple[Self, int, list[int], list[int]]:
        """See `PatternRuns`."""
        return self, before, list(states), list(duties)

    def duty_after(self, duty: int, cls: int) -> int:
        """See `PatternRuns`: words wait for nothing, so this is never asked."""
        raise ValueError("an automaton has no duties")


Runs = PatternRuns | FsmRuns


def runs_of(machine: Plain) -> Runs:
    """The runs of a machine that reports every end of a match: the same for all who ask, until they are crowded."""
    runs: Runs | None = machine.runs
    if runs is None or runs.crowded:
        machine.runs = runs = FsmRuns(machine) if isinstance(machine, FsmMachine) else PatternRuns(machine)
    return runs


def find_quiet(runs: Runs, before: int, cls: int) -> int:
    """What `runs.quiet` is to hold for a character: what then precedes, or -1 where a match may begin with it."""
    over = runs.step(runs.begin(before), cls) == (OVER, ())
    following = runs.quiet[before * (runs.end + 1) + cls] = runs.passed(before, cls) if over else -1
    return following


class _Stepped(Protocol):
    @property
    def crowded(self) -> bool: ...

    def carried(self, states: Sequence[int]) -> tuple[Self, list[int]]: ...

    def step(self, state: int, cls: int) -> int: ...

    def past_prompt(self, state: int) -> int: ...


M = TypeVar("M", bound=_Stepped)


class Cursor(Generic[M]):
    """A machine and where a text has led it. One that has found much is let go of for one with room."""

    def __init__(self, machine: M, state: int) -> None:
        self.machine = machine
        self.state = state

    def read(self, cls: int) -> bool:
        """Go on by one character; whether a match completes with it."""
        self.make_room()
        return self._reached(self.machine.step(self.state, cls))

    def follow(self: Cursor[Plain], cls: int) -> bool:
        """As `read`, of the matches that are under way alone: none begins here."""
        self.make_room()
        return self._reached(self.machine.step(self.state, cls, seed=False))

    def _reached(self, reached: int) -> bool:
        self.state = ~reached if reached < 0 else reached
        return reached < 0

    def make_room(self) -> None:
        """Go on with a machine that knows this state alone, where much was found."""
        if self.machine.crowded:
            self.machine, (self.state,) = self.machine.carried((self.state,))

    def pass_prompt(self) -> None:
        """What was read is a prompt: matches that end in it do not count, whatever follows."""
        self.state = self.machine.past_prompt(self.state)
