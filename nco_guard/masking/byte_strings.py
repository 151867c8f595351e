"""Many tokens, or texts, read by one automaton at once."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import Automaton
from nco_guard.masking.idsets import Ids
from nco_guard.tokens import Vocabulary

__all__ = ["ByteStrings", "token_bytes"]

_FEW = 24  # strings that are read one by one rather than together


class ByteStrings:
    """Byte strings side by side, such as the tokens of a vocabulary."""

    def __init__(self, strings: Sequence[bytes]) -> None:
        self._strings = strings
        self._data: NDArray[np.uint8] = np.frombuffer(b"".join(strings), np.uint8)
        self._lengths: NDArray[np.int64] = np.fromiter(map(len, strings), np.int64, len(strings))
        self._starts: NDArray[np.int64] = np.cumsum(self._lengths) - self._lengths

    def __len__(self) -> int:
        return len(self._strings)

    def after(self, automaton: Automaton, state: int, ids: Ids) -> NDArray[np.int32]:
        """The states [strings] that an automaton is in after some of the strings, from one state; negative: it matched.

        Cost: an array operation a byte of those that are longer than a few others; one by one for these.
        """
        read = automaton.read
        if len(ids) <= _FEW:
            return np.array([read(state, self._strings[one]) for one in ids.tolist()], np.int32)
        order = np.argsort(-self._lengths[ids], kind="stable")
        begins, sizes = self._starts[ids[order]], self._lengths[ids[order]]
        reached = np.full(len(ids), state, np.int32)
        for place in range(int(sizes[0])):
            # The longest first: those that have a byte here are at the front.
            longer = int(np.searchsorted(-sizes, -place, side="left"))
            alive = np.flatnonzero(reached[:longer] >= 0)
            if len(alive) <= _FEW:
                for one in alive.tolist():
                    reached[one] = read(int(reached[one]), self._strings[ids[order[one]]][place:])
                break
            reached[alive] = automaton.step_many(reached[alive], self._data[begins[alive] + place])
        found = np.empty_like(reached)
        found[order] = reached
        return found


_known: WeakKeyDictionary[Vocabulary, ByteStrings] = WeakKeyDictionary()


def token_bytes(vocabulary: Vocabulary) -> ByteStrings:
    """The tokens of a vocabulary, one for all who ask."""
    found = _known.get(vocabulary)
    if found is None:
        found = _known[vocabulary] = ByteStrings(vocabulary.tokens)
    return found
