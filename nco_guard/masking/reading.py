"""Many tokens read by one automaton at once."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import Automaton
from nco_guard.masking.idsets import Ids
from nco_guard.tokens import Vocabulary

__all__ = ["TokenBytes", "token_bytes"]

_FEW = 24  # tokens that are read one by one rather than together


class TokenBytes:
    """The bytes of all tokens of a vocabulary, side by side."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._tokens = tokens
        self._data: NDArray[np.uint8] = np.frombuffer(b"".join(tokens), np.uint8)
        self._lengths: NDArray[np.int64] = np.fromiter(map(len, tokens), np.int64, len(tokens))
        self._starts: NDArray[np.int64] = np.cumsum(self._lengths) - self._lengths

    def after(self, automaton: Automaton, state: int, ids: Ids) -> NDArray[np.int32]:
        """The states [tokens] that an automaton is in after each of the tokens, from one state; negative: it matched.

        Cost: an array operation a byte of the longest.
        """
        if len(ids) <= _FEW:
            read = automaton.read
            return np.array([read(state, self._tokens[token]) for token in ids.tolist()], np.int32)
        order = np.argsort(-self._lengths[ids], kind="stable")
        begins, sizes = self._starts[ids[order]], self._lengths[ids[order]]
        reached = np.full(len(ids), state, np.int32)
        for place in range(int(sizes[0])):
            # The longest first: those that have a byte here are at the front.
            longer = int(np.searchsorted(-sizes, -place, side="left"))
            alive = np.flatnonzero(reached[:longer] >= 0)
            reached[alive] = automaton.step_many(reached[alive], self._data[begins[alive] + place])
        found = np.empty_like(reached)
        found[order] = reached
        return found


_known: WeakKeyDictionary[Vocabulary, TokenBytes] = WeakKeyDictionary()


def token_bytes(vocabulary: Vocabulary) -> TokenBytes:
    """Those of a vocabulary, one for all who ask."""
    found = _known.get(vocabulary)
    if found is None:
        found = _known[vocabulary] = TokenBytes(vocabulary.tokens)
    return found
