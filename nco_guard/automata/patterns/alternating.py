"""One regular expression as a lazily determinised alternating automaton over character classes.

Lookarounds, boundaries and anchors need intersection and complement inside one automaton; an alternating automaton
has both without building either. `threads` holds the working parts: what a character does to a set of threads. Here is
what they add up to: states, steps between them, and the questions that are asked of a state.

When not to use it: for plain strings, Aho-Corasick (`strings.exact`) is smaller and faster.
Cost: about 10 microseconds for a step never taken before, linear in the number of threads; a dictionary look-up
afterwards. States are found lazily, and their number is bounded by `state_limit`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

from nco_guard.automata.numbered import Numbered
from nco_guard.automata.patterns.syntax import Assertion, Chars, Lookaround, Node, subnodes
from nco_guard.automata.patterns.threads import (
    AT_START,
    BEFORE,
    DONE,
    FALSE,
    HERE,
    PAST_PROMPT,
    TRUE,
    Thread,
    ThreadSets,
)

__all__ = ["LIVENESS_LIMIT", "AlternatingMachine", "Room"]

# A pending state whose end is not found within this many states counts as alive: then a dead end may come later,
# never a match.
LIVENESS_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Room:
    """How much a machine held when it was made, and when it is time to make another one."""

    states: int = 0
    threads: int = 0

    def taken(self, states: int, threads: int, state_limit: int, thread_limit: int) -> bool:
        """Whether half of the room to a limit is taken; never where what was held at first leaves little of it."""
        return (2 * states > self.states + state_limit and 4 * self.states < 3 * state_limit) or (
            2 * threads > self.threads + thread_limit and 4 * self.threads < 3 * thread_limit
        )


class AlternatingMachine(ThreadSets):
    """Searches for one pattern, a character class at a time.

    `start` is the state of the empty text. `step(state, cls)` gives the next state, or `~next` where a match completes
    with this character; `may_end(state)` is False while the end of the text would complete one.

    With `every_end=False` the shortest way to see that a match exists is taken: nothing is watched beyond the first
    end of a match. With `every_end=True` each position at which some match ends is reported (for soft rules, which
    count completions, and for finding spans).

    `doomed(state)`: no continuation, ending here included, avoids a match.
    """

    def __init__(
        self,
        node: Node,
        *,
        every_end: bool = False,
        state_limit: int = 100_000,
        thread_limit: int = 500_000,
        rule_id: str | None = None,
    ) -> None:
        """`rule_id` names the rule in errors. `thread_limit` bounds the sum of threads of all Ds, and so the memory."""
        super().__init__(node, every_end=every_end, thread_limit=thread_limit, rule_id=rule_id)
        self.state_limit = state_limit
        self._stride = self.classes.count

        # States: (main D, runner Ds, what precedes).
        self._states: Numbered[tuple[int, tuple[int, ...], int]] = Numbered()
        self._steps: dict[int, int] = {}
        self._alive: dict[int, bool] = {}
        self._may_end: dict[int, bool] = {}
        runners = tuple(self._intern({seed}) for seed in self._seeds)
        self.start = self._state((self._plant(), runners, AT_START & self._before_mask))
        self._room = Room()
        self.runs: Any = None  # see `spans.machines`

    def step(self, state: int, cls: int, *, seed: bool = True) -> int:
        """The next state, or `~next` if a match completes with this character.

        `seed=False`: no new match may start here (see `planted`).
        """
        key = (state * self._stride + cls) * 2 + seed
        reached = self._steps.get(key)
        if reached is None:
            reached = self._steps[key] = self._find_step(state, cls, seed)
        return reached

    def _find_step(self, state: int, cls: int, seed: bool) -> int:
        main, runners, before = self._states[state]
        following: tuple[int, ...] = ()
        values: tuple[int, ...] = ()
        if runners:
            following, values = self._run_behinds(runners, before, cls)
        matched, rest = self._step_main(main, before, cls, values)
        if seed:
            rest.add(self._root)
        reached = self._state((self._intern(rest), following, self._before[cls]))
        return ~reached if matched else reached

    @property
    def bare_start(self) -> int:
        """The state of the empty text in which no match has started yet; step it with `seed=False`."""
        _, runners, before = self._states[self.start]
        return self._state((FALSE, runners, before))

    def is_bare(self, state: int) -> bool:
        """Whether no match is under way in this state."""
        return self._states[state][0] == FALSE

    def under_way(self, state: int) -> tuple[frozenset[object], object]:
        """The matches that are under way in a state, and all else that the state holds.

        Of two states that agree in the rest, the one whose matches are a subset completes a match at most as early.
        """
        main, runners, before = self._states[state]
        return frozenset(self._sets[main]), (runners, before)

    def planted(self, state: int) -> int:
        """The state with one match started at this very position and none elsewhere."""
        _, runners, before = self._states[state]
        return self._state((self._plant(), runners, before))

    def _plant(self) -> int:
        return self._intern({self._root})

    def past_prompt(self, state: int) -> int:
        """The state after a prompt: like `state`, but matches that end in what was read do not count any more.

        Neither those that still wait for what follows (`\\bass\\b` after "ass"). Needs `every_end=True`.
        """
        main, runners, before = self._states[state]
        # Duties of complete matches are threads like others, but theirs do not lead to the end of the pattern.
        open_threads = {thread for thread in self._sets[main] if self._last(thread[0]) == HERE}
        return self._state((self._intern(open_threads), runners, before | PAST_PROMPT))

    def _last(self, cell: int) -> int:
        while cell not in (DONE, HERE):
            cell = self._rests[cell]
        return cell

    def _step_main(
        self, main: int, before: int, cls: int, values: tuple[int, ...]
    ) -> tuple[bool, set[Thread]]:
        matched = False
        rest: set[Thread] = set()
        for source, (cell, needs, never) in self._step_threads(main, before, cls, values):
            if cell == BEFORE and (before & PAST_PROMPT or self._nullable[source]):
                continue  # an end within the prompt, or one that was reported when the position was reached
            ended = cell in (DONE, HERE, BEFORE)
            if ended or self._nullable[cell]:
                # The match is complete as soon as its duties are.
                if not needs and never == FALSE:
                    matched = True
                else:
                    rest.add((DONE, needs, never))
            if not ended:
                rest.add((cell, needs, never))
        return matched, rest

    # -- states ------------------------------------------------------------------------------------------------

    def _state(self, key: tuple[int, tuple[int, ...], int]) -> int:
        mend = "make counted repeats shorter or split the rule"
        return self._states.state(key, self.state_limit, "the automaton of this pattern", mend, self.rule_id)

    @property
    def state_count(self) -> int:
        """States found so far."""
        return len(self._states)

    @property
    def nbytes(self) -> int:
        """Bytes held, estimated."""
        asked = len(self._steps) + len(self._alive) + len(self._may_end)
        return super().nbytes + 350 * len(self._states) + 110 * asked

    @property
    def crowded(self) -> bool:
        """Whether half of what its limits allow is found: time to go on with a machine of `carried`."""
        room = self._room
        return room.taken(len(self._states), self._thread_count, self.state_limit, self.thread_limit)

    def carried(self, states: Sequence[int]) -> tuple[Self, list[int]]:
        """A machine that has found nothing but these states, and their numbers there.

        What this one has found is left as it is. Cost: linear in what is carried and in the parts of the pattern.
        """
        return self.carried_with(states, ())[:2]

    def carried_with(
        self, states: Sequence[int], ds: Iterable[int]
    ) -> tuple[Self, list[int], dict[int, int]]:
        """`carried` for states and Ds, and the numbers of Ds there."""
        fresh = copy(self)
        fresh._start_over()
        fresh._states = Numbered()
        fresh._steps, fresh._alive, fresh._may_end = {}, {}, {}
        fresh.runs = None
        keys = [self._states[state] for state in (self.start, *states)]
        roots = {d for main, runners, _ in keys for d in (*self._ds_of(main), *runners)}
        numbers = fresh._carry(self, (*roots, *ds))
        mains = fresh._carry_mains(self, (main for main, _, _ in keys), numbers)
        start, *found = [
            fresh._state((mains[main], tuple(numbers[d] for d in runners), before))
            for main, runners, before in keys
        ]
        fresh.start = start
        fresh._room = Room(len(fresh._states), fresh._thread_count)
        return fresh, found, numbers

    def _ds_of(self, main: int) -> Iterable[int]:
        return (main,)

    def _carry_mains(
        self, source: Self, mains: Iterable[int], numbers: Mapping[int, int]
    ) -> Mapping[int, int]:
        return numbers

    def may_end(self, state: int) -> bool:
        """Whether the text may end here: no match is completed by its end."""
        known = self._may_end.get(state)
        if known is None:
            main, runners, before = self._states[state]
            values = self._run_behinds(runners, before, self.end)[1] if runners else ()
            known = self._may_end[state] = not self._step_main(main, before, self.end, values)[0]
        return known

    def forgets(self, character: str) -> bool:
        """See `characters.CharMachine`: for a sign that is nowhere in the pattern and to its borders like the end.

        What such a sign completes, the end of the text would complete too, and nothing is under way after it.
        """
        code = ord(character)
        if character == "\n" or character.isalnum() or character == "_":
            return False
        parts = list(subnodes(self.node))
        ends = any(isinstance(p, Assertion) and p.kind in ("text_end", "line_end") for p in parts)
        if ends and any(isinstance(p, Lookaround) and p.negative for p in parts):
            return False
        sets = (p.ranges for p in parts if isinstance(p, Chars))
        return not any(low <= code <= high for ranges in sets for low, high in ranges)

    def distance(self, state: int) -> int:
        """See `characters.CharMachine`: what some match reads yet at least, one that begins here included."""
        return min(self._least_ahead(self._states[state][0]), self._least[self._root[0]])

    def doomed(self, state: int) -> bool:
        """Whether every continuation, ending here included, completes a match.

        Looks for a way out: first one class repeated, then breadth-first over new states, at most `LIVENESS_LIMIT`
        of them.
        """
        if state not in self._alive:
            self._alive[state] = self._find_end(state)
        return not self._alive[state]

    def _find_end(self, state: int) -> bool:
        if self.may_end(state):
            return True
        for cls in range(self.classes.count):
            current = state
            for _ in range(80):
                current = self.step(current, cls)
                if current < 0:
                    break
                if self._alive.get(current) or self.may_end(current):
                    return True
        seen = {state}
        queue = deque([state])
        while queue:
            current = queue.popleft()
            for cls in range(self.classes.count):
                reached = self.step(current, cls)
                if reached < 0 or reached in seen:
                    continue
                if self._alive.get(reached) or self.may_end(reached):
                    return True
                if self._alive.get(reached) is False:
                    continue
                seen.add(reached)
                queue.append(reached)
            if len(seen) > LIVENESS_LIMIT:
                return True
        for dead in seen:
            self._alive[dead] = False
        return False

    def _in_pattern(self, cls: int) -> int:
        """The class, of those that the pattern tells apart, that a class of `classes` lies in."""
        return cls

    # -- matches from one position -----------------------------------------------------------------------------

    def longest_from(
        self,
        state: int,
        classes: Sequence[int],
        position: int,
        *,
        passes: Callable[[int], bool] | None = None,
    ) -> int | None:
        """The end of the longest match that starts at `position`, where the search is in `state`; None: no match.

        Needs `every_end=True`. Stops as soon as no match that starts here is alive. `passes`: only ends for which it
        is true count.
        """
        _, runners, before = self._states[state]
        open_main = self._intern({self._root})
        waiting: list[tuple[int, int]] = []  # (end, D): matched at `end`, if D comes true
        best: int | None = None
        while open_main != FALSE or waiting:
            cls = self._in_pattern(classes[position]) if position < len(classes) else self.end
            values: tuple[int, ...] = ()
            if runners:
                runners, values = self._run_behinds(runners, before, cls)
            still: list[tuple[int, int]] = []
            for end, duty in waiting:
                value = self._step_set(duty, before, cls, values)
                if value == TRUE:
                    best = max(best or 0, end)
                elif value != FALSE:
                    still.append((end, value))
            waiting = still
            ahead: set[Thread] = set()
            for source, (cell, needs, never) in self._step_threads(open_main, before, cls, values):
                if cell == BEFORE:
                    if not self._nullable[source] and (passes is None or passes(position)):
                        best = self._ended(position, needs, never, best, waiting)
                    continue
                if self._nullable[cell] and (passes is None or passes(position + 1)):
                    best = self._ended(position + 1, needs, never, best, waiting)
                if cell != HERE:
                    ahead.add((cell, needs, never))
            if position >= len(classes):
                break
            open_main = self._intern(ahead)
            before = self._before[cls]
            position += 1
        return best

    def _ended(
        self, end: int, needs: frozenset[int], never: int, best: int | None, waiting: list[tuple[int, int]]
    ) -> int | None:
        if not needs and never == FALSE:
            return max(best or 0, end)
        waiting.append((end, self._intern({(DONE, needs, never)})))
        return best
