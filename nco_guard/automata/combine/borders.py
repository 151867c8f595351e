"""Text that is cut at borders, and automata that watch its parts, each alone and all joined.

A reply is cut where special tokens stand (`<|python_tag|>`, `[TOOL_CALLS]`), and its parts are shown as texts of their
own, or one after another. `\\bass\\b` is in "ass<|x|>ume" read one way, `assume` in the other. So each rule is followed
twice: with a border as nothing, and with a border as the end of one text and the beginning of the next.

A border is one byte, `BORDER`, that no well-formed text has. What a border itself says is not read.

Cost: search automata forget, so soon after a border both readings are in the same state again: there the states are
those of the inner automaton, and so are all steps. Apart from each other they are pairs, found as they are met.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import Automaton
from nco_guard.automata.charsets import CharClasses

__all__ = ["BORDER", "BorderedAutomaton", "parts_of_bytes"]

#: In the bytes of a text: one part ends here, and the next begins. Only between characters.
BORDER = 0xFD

_BORDER = bytes([BORDER])


def parts_of_bytes(raw: bytes) -> list[bytes]:
    """The parts that borders cut some bytes into: one more than there are borders; some may be empty."""
    return raw.split(_BORDER)


class BorderedAutomaton(Automaton):
    """Watches, over text with borders, what `inner` forbids: in the parts joined, and in the last part alone.

    A match completes with a byte if it does in either reading, and with a border if the last part, a text of its own,
    may not end there. The text may end where both readings may. The readings are at `whole(state)` and `last(state)`,
    states of `inner`, which are one as long as there was no border, and soon after each. A prompt has no borders; the
    first part continues it.

    States: twice the state of `inner` where both readings are in that, odd numbers for pairs of different ones.
    """

    def __init__(self, inner: Automaton) -> None:
        self.inner = inner
        self.rests_in_ascii = inner.rests_in_ascii
        self.start = 2 * inner.start
        self.spaceless_start = 2 * inner.spaceless_start
        self._whole: NDArray[np.int32] = np.zeros(16, np.int32)
        self._last: NDArray[np.int32] = np.zeros(16, np.int32)
        self._pairs: dict[tuple[int, int], int] = {}

    def whole(self, state: int) -> int:
        """The state of `inner` after all parts, joined."""
        return int(self._whole[state >> 1]) if state & 1 else state >> 1

    def last(self, state: int) -> int:
        """The state of `inner` after the last part alone."""
        return int(self._last[state >> 1]) if state & 1 else state >> 1

    def alone(self, state: int) -> int:
        """The state after the last part, had it been the only one."""
        return 2 * self.last(state)

    def readings(self, state: int) -> tuple[int, ...]:
        """The distinct states of `inner` that the two readings are in."""
        return (self.whole(state), self.last(state)) if state & 1 else (state >> 1,)

    def both(self, whole: int, last: int) -> int:
        """The state in which the readings are in these states of `inner`."""
        if whole == last:
            return 2 * whole
        key = (whole, last)
        number = self._pairs.get(key)
        if number is None:
            number = len(self._pairs)
            if number == len(self._whole):
                room = np.zeros(number, np.int32)
                self._whole, self._last = (
                    np.concatenate([known, room]) for known in (self._whole, self._last)
                )
            # What a step that broke off has left of the same number is overwritten.
            self._whole[number], self._last[number] = key
            self._pairs[key] = number
        return 2 * number + 1

    def step(self, state: int, byte: int) -> int:
        """The next state, or `~next` if a match completes with this byte."""
        if byte == BORDER:
            return self._cut(state)
        if not state & 1:
            reached = self.inner.step(state >> 1, byte)
            return 2 * reached + (reached < 0)
        whole, last = (self.inner.step(own, byte) for own in self.readings(state))
        matched = whole < 0 or last < 0
        following = self.both(~whole if whole < 0 else whole, ~last if last < 0 else last)
        return ~following if matched else following

    def _cut(self, state: int) -> int:
        whole, last, start = self.whole(state), self.last(state), self.inner.start
        # The first space of a text is dropped at its very beginning only, and there is the border now.
        following = self.both(start if whole == self.inner.spaceless_start else whole, start)
        return following if self.inner.may_end(last) else ~following

    def step_many(self, states: NDArray[np.int32], symbols: NDArray[np.uint8]) -> NDArray[np.int32]:
        """`step` for arrays of equal length. A border, and a pair of different states, cost a Python call each."""
        apart = (states & 1 > 0) | (symbols == BORDER)
        if not apart.any():
            reached = self.inner.step_many(states >> 1, symbols)
            doubled: NDArray[np.int32] = 2 * reached + (reached < 0)
            return doubled
        found = np.empty(len(states), np.int32)
        found[~apart] = self.step_many(states[~apart], symbols[~apart])
        places = np.flatnonzero(apart)
        known: dict[tuple[int, int], int] = {}
        for place, key in zip(
            places.tolist(), zip(states[places].tolist(), symbols[places].tolist(), strict=True), strict=True
        ):
            if key not in known:
                known[key] = self.step(*key)
            found[place] = known[key]
        return found

    def read(self, state: int, data: Iterable[int]) -> int:
        """See `Automaton.read`."""
        raw = bytes(data)
        for place, byte in enumerate(raw):
            if not state & 1 and BORDER not in raw[place:]:
                reached = self.inner.read(state >> 1, raw[place:])
                return 2 * reached + (reached < 0)
            state = self.step(state, byte)
            if state < 0:
                break
        return state

    def may_end(self, state: int) -> bool:
        """Whether both readings may end here."""
        return all(map(self.inner.may_end, self.readings(state)))

    def may_end_many(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """`may_end` for an array."""
        whole, last = self._split(states)
        found: NDArray[np.bool_] = self.inner.may_end_many(whole) & self.inner.may_end_many(last)
        return found

    def _split(self, states: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        halves: NDArray[np.int32] = states >> 1
        if not (states & 1).any():
            return halves, halves
        apart = states & 1 > 0
        places = np.where(apart, halves, 0)
        return np.where(apart, self._whole[places], halves), np.where(apart, self._last[places], halves)

    def past_prompt(self, state: int) -> int:
        """The state after a prompt, in which there were no borders."""
        return self.both(*(self.inner.past_prompt(own) for own in (self.whole(state), self.last(state))))

    def distances(self, states: NDArray[np.int32]) -> NDArray[np.int16]:
        """The least of both readings, and of what a border leads to."""
        whole, last = self._split(states)
        nearest = np.minimum(self.inner.distances(whole), self.inner.distances(last)).astype(np.int16)
        return np.minimum(nearest, np.int16(min(255, 1 + self.inner.distance(self.inner.start))))

    @property
    def state_count(self) -> int:
        """States found so far."""
        return self.inner.state_count + len(self._pairs)

    @property
    def nbytes(self) -> int:
        """Bytes held by the inner automaton, and by the pairs (estimated)."""
        return self.inner.nbytes + self._whole.nbytes + self._last.nbytes + 200 * len(self._pairs)

    @property
    def byte_classes(self) -> NDArray[np.uint8]:
        """Those of the inner automaton; a border is one of its own."""
        _, numbers = np.unique(self.inner.byte_classes, return_inverse=True)
        classes: NDArray[np.uint8] = numbers.ravel().astype(np.uint8)
        if np.count_nonzero(classes == classes[BORDER]) > 1:
            classes[BORDER] = classes.max() + 1
        return classes

    @property
    def kinds(self) -> CharClasses | None:
        """Those of the inner automaton; a border is no character."""
        return self.inner.kinds

    @property
    def idle(self) -> int | None:
        """That of the inner automaton, in both readings."""
        idle = self.inner.idle
        return None if idle is None else 2 * idle

    def apart(self, state: int, other: int) -> bytes | None:
        """As of the inner automaton, and a border."""
        if state & 1 or (other >= 0 and other & 1):
            return None
        found = self.inner.apart(state >> 1, other if other < 0 else other >> 1)
        return None if found is None else found + _BORDER

    def forgets(self, byte: int) -> bool:
        """As the inner automaton; a border is forgotten in one reading only."""
        return byte != BORDER and self.inner.forgets(byte)

    @property
    def progress(self) -> int:
        """What the inner automaton has found, and pairs."""
        return self.inner.progress + len(self._pairs)
