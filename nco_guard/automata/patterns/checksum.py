"""Check digits as automata: of a pattern's matches, only those whose characters pass one of `sums`.

A match is any span that the pattern matches where it stands; it counts if its characters, read from the left, lead
the checksum to a valid end. So a thread of the search carries, besides its continuation, the checksum's state; threads
that began at the same position always carry the same one. Every end of a match matters, since a shorter match may
fail where a longer one passes.

Cost: a new state about as many microseconds as threads times ten; there are up to as many times as many states as
without a checksum as the checksum has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

import numpy as np

from nco_guard.automata.charsets import CharClasses, both, union
from nco_guard.automata.numbered import Numbered
from nco_guard.automata.patterns.alternating import AlternatingMachine, Room
from nco_guard.automata.patterns.sums import Checksum, Sum
from nco_guard.automata.patterns.syntax import Chars, Node, subnodes
from nco_guard.automata.patterns.threads import BEFORE, DONE, FALSE, HERE, PAST_PROMPT, Thread

__all__ = ["ChecksumMachine"]

_MANY_STATES = 100_000  # after half of which a search goes on with a machine of its own

_Summed = tuple[Thread, Sum]
# What a thread becomes by one character: the thread, whether a match ends before the character, whether one ends after
# it, and whether the match that ends has no more duties.
_Move = tuple[Thread, bool, bool, bool]


class ChecksumMachine(AlternatingMachine):
    """Like an `AlternatingMachine` with `every_end=True`, for those matches that pass a checksum.

    `step` answers `~next` only where a match that passes completes; so do `may_end`, `doomed` and `longest_from`.
    """

    def __init__(self, node: Node, checksum: Checksum, *, state_limit: int = 1_000_000) -> None:
        self.checksum = checksum.narrowed(node)
        # Main Ds: threads with their sums, and what matches that are complete still wait for. 0: nothing.
        self._mains: Numbered[tuple[frozenset[_Summed], int]] = Numbered([(frozenset(), FALSE)])
        self._summed_count = 0  # threads of all main Ds
        self._reads: dict[tuple[Sum, int], Sum] = {}
        self._moves: dict[tuple[Thread, int, int, tuple[int, ...]], tuple[_Move, ...]] = {}
        super().__init__(node, every_end=True, state_limit=state_limit)
        self._refine(node)

    def _refine(self, node: Node) -> None:
        """Classes fine enough for the checksum: of each, its class in the pattern and its symbol (-1: skipped)."""
        coarse = self.classes
        consumed = union(*(part.ranges for part in subnodes(node) if isinstance(part, Chars)))
        values = {value: both(chars, consumed) for value, chars in self.checksum.symbols().items()}
        self.classes = CharClasses([*coarse.sets(), *values.values()])
        self._stride = self.classes.count
        _, first = np.unique(self.classes.range_classes, return_index=True)
        self._coarse: list[int] = coarse.of(self.classes.starts[first].astype(np.uint32)).tolist()
        self._values = [-1] * self.classes.count
        for value, chars in values.items():
            mask = self.classes.mask(chars)
            for cls in range(self.classes.count):
                if mask >> cls & 1:
                    self._values[cls] = value

    # -- main Ds -----------------------------------------------------------------------------------------------

    def _plant(self) -> int:
        return self._main({(self._root, self.checksum.start)}, FALSE)

    def _main(self, threads: set[_Summed], waiting: int) -> int:
        if self.charge is not None:
            self.charge(len(threads) ** 2)
        if len(threads) > 1:
            groups: dict[Sum, set[Thread]] = {}
            for thread, state in threads:
                groups.setdefault(state, set()).add(thread)
            if len(groups) < len(threads):
                threads = {
                    (thread, state)
                    for state, group in groups.items()
                    for thread in (self._subsume(group) if len(group) > 1 else group)
                }
        key = (frozenset(threads), waiting)
        found = self._mains.find(key)
        if found is None:
            found = self._mains.add(key)
            self._summed_count += len(threads)
        return found

    @property
    def crowded(self) -> bool:
        """See `AlternatingMachine.crowded`."""
        states, threads = min(self.state_limit, _MANY_STATES), self._thread_count + self._summed_count
        return self._room.taken(len(self._states), threads, states, self.thread_limit)

    def carried_with(
        self, states: Sequence[int], ds: Iterable[int]
    ) -> tuple[Self, list[int], dict[int, int]]:
        """See `AlternatingMachine.carried_with`."""
        fresh, found, numbers = super().carried_with(states, ds)
        fresh._room = Room(len(fresh._states), fresh._thread_count + fresh._summed_count)
        return fresh, found, numbers

    def _start_over(self) -> None:
        super()._start_over()
        self._mains = Numbered([(frozenset(), FALSE)])
        self._summed_count = 0
        self._reads, self._moves = {}, {}

    def _ds_of(self, main: int) -> Iterable[int]:
        threads, waiting = self._mains[main]
        return {waiting, *(d for (_, needs, never), _ in threads for d in (*needs, never))}

    def _carry_mains(
        self, source: Self, mains: Iterable[int], numbers: Mapping[int, int]
    ) -> Mapping[int, int]:
        found: dict[int, int] = {}
        for main in mains:
            threads, waiting = source._mains[main]
            renumbered = {(self._renumbered(thread, numbers), state) for thread, state in threads}
            found[main] = self._main(renumbered, numbers[waiting])
        return found

    @property
    def nbytes(self) -> int:
        """Bytes held, estimated."""
        held = 150 * self._summed_count + 600 * len(self._mains)
        return super().nbytes + held + 300 * (len(self._moves) + len(self._reads))

    def under_way(self, state: int) -> tuple[frozenset[object], object]:
        """See `AlternatingMachine.under_way`."""
        main, runners, before = self._states[state]
        threads, waiting = self._mains[main]
        return frozenset[object](threads) | self._sets[waiting], (runners, before)

    def distance(self, state: int) -> int:
        """See `AlternatingMachine.distance`."""
        threads, waiting = self._mains[self._states[state][0]]
        if waiting != FALSE:
            return 0
        return min((self._least[thread[0]] for thread, _ in threads), default=self._least[self._root[0]])

    def past_prompt(self, state: int) -> int:
        """See `AlternatingMachine.past_prompt`."""
        main, runners, before = self._states[state]
        open_threads = {summed for summed in self._mains[main][0] if self._last(summed[0][0]) == HERE}
        return self._state((self._main(open_threads, FALSE), runners, before | PAST_PROMPT))

    # -- steps -------------------------------------------------------------------------------------------------

    def _read(self, state: Sum, value: int) -> Sum:
        if value < 0:
            return state
        key = (state, value)
        known = self._reads.get(key)
        if known is None:
            known = self._reads[key] = self.checksum.read(state, value)
        return known

    def _find_step(self, state: int, cls: int, seed: bool) -> int:
        main, runners, before = self._states[state]
        coarse = self._coarse[cls]
        following: tuple[int, ...] = ()
        values: tuple[int, ...] = ()
        if runners:
            following, values = self._run_behinds(runners, before, coarse)
        matched, threads, waiting = self._step_summed(main, before, coarse, values, self._values[cls])
        if seed:
            threads.add((self._root, self.checksum.start))
        duties = self._intern(waiting) if waiting else FALSE
        reached = self._state((self._main(threads, duties), following, self._before[coarse]))
        return ~reached if matched else reached

    def _step_main(
        self, main: int, before: int, cls: int, values: tuple[int, ...]
    ) -> tuple[bool, set[Thread]]:
        """At the end of the text, for `may_end`: nothing is read there."""
        matched, _, waiting = self._step_summed(main, before, cls, values, -1)
        return matched, waiting

    def _step_summed(
        self, main: int, before: int, cls: int, values: tuple[int, ...], value: int
    ) -> tuple[bool, set[_Summed], set[Thread]]:
        """Whether a match completes, the threads after the step, and the duties of matches that are complete."""
        sources, duties = self._mains[main]
        matched, waiting = False, set[Thread]()
        if duties != FALSE:
            matched, waiting = super()._step_main(duties, before, cls, values)
        rest: set[_Summed] = set()
        valid = self.checksum.valid
        for thread, state in sources:
            key = (thread, before, cls, values)
            moves = self._moves.get(key)
            if moves is None:
                moves = self._moves[key] = self._find_moves(*key)
            if not moves:
                continue
            reading = self._read(state, value)
            for moved, ends_before, ends_after, through in moves:
                if not ends_before and moved[0] != HERE:
                    rest.add((moved, reading))
                if (ends_before and not before & PAST_PROMPT and valid(state)) or (
                    ends_after and valid(reading)
                ):
                    if through:
                        matched = True
                    else:
                        waiting.add((DONE, *moved[1:]))
        return matched, rest, waiting

    def _find_moves(
        self, thread: Thread, before: int, cls: int, values: tuple[int, ...]
    ) -> tuple[_Move, ...]:
        moves: list[_Move] = []
        for source, moved in self._step_thread(thread, before, cls, values):
            cell, needs, never = moved
            through = not needs and never == FALSE
            if cell != BEFORE:
                moves.append((moved, False, self._nullable[cell], through))
            elif not self._nullable[source]:
                # Where the continuation may be empty, this end was looked at when the position was reached.
                moves.append((moved, True, False, through))
        return tuple(moves)

    def _in_pattern(self, cls: int) -> int:
        return self._coarse[cls]

    # -- matches from one position -----------------------------------------------------------------------------

    def longest_from(
        self,
        state: int,
        classes: Sequence[int],
        position: int,
        *,
        passes: Callable[[int], bool] | None = None,
    ) -> int | None:
        """The end of the longest match from `position` that passes; see `AlternatingMachine.longest_from`."""
        sums = [self.checksum.start]

        def valid(end: int) -> bool:
            while len(sums) <= end - position:
                sums.append(self._read(sums[-1], self._values[classes[position + len(sums) - 1]]))
            return self.checksum.valid(sums[end - position]) and (passes is None or passes(end))

        return super().longest_from(state, classes, position, passes=valid)
