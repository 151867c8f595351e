"""What a row knows of the prefixes that it has visited: the mass that leads on from each without a match.

A sampler that begins again wherever it meets what is forbidden, and never draws again what proved so, draws from the
model's own distribution given that nothing forbidden is said (adaptive rejection sampling with a trie: Park et al.,
"Grammar-aligned decoding", arXiv 2405.21047; "Constrained adaptive rejection sampling", arXiv 2510.01902).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Probabilities", "Visited"]

Probabilities = NDArray[np.floating]
Ids = NDArray[np.int64]

_LITTLE = 1e-6  # of mass; whether any is left is looked up where there may be less
_SPARSE = 4  # tokens are kept one by one where fewer than one of so many has any probability


class Visited:
    """A visited prefix of a text.

    mass: the probability, given this prefix, of all that has not proved forbidden; 1 where nothing has. tries: how
    often a text went back to it. The probabilities of the tokens may be let go of (`forget`) and given again: what
    proved forbidden stays known.
    """

    __slots__ = ("_children", "_ids", "_own", "_probabilities", "is_seen", "mass", "tries")

    def __init__(self) -> None:
        self.mass = 1.0
        self.is_seen = False
        self.tries = 0
        self._own = 1.0  # of all tokens that are not forbidden here
        self._children: dict[int, tuple[Visited, float]] = {}
        self._ids: Ids | None = None
        self._probabilities: Probabilities | None = None

    @property
    def is_filled(self) -> bool:
        """Whether the probabilities are known."""
        return self._probabilities is not None

    @property
    def is_spent(self) -> bool:
        """Whether all that could follow has proved forbidden."""
        return self.is_filled and self.mass < _LITTLE and self.best() is None

    @property
    def nbytes(self) -> int:
        """What the probabilities hold."""
        held = 0 if self._probabilities is None else self._probabilities.nbytes
        return held if self._ids is None else held + self._ids.nbytes

    def fill(self, probabilities: Probabilities, forbidden: Ids) -> None:
        """Know the probabilities of all tokens, float [width], of which these are forbidden."""
        allowed = probabilities.copy()
        allowed[forbidden] = 0.0
        self._own = float(allowed.sum(dtype=np.float64))
        some = np.flatnonzero(allowed)
        if len(some) * _SPARSE < len(allowed):
            self._ids, self._probabilities = some, allowed[some]
        else:
            self._ids, self._probabilities = None, allowed
        self.is_seen = True
        self.carry()

    def forget(self) -> None:
        """Let go of the probabilities."""
        self._ids = self._probabilities = None

    def child(self, token: int) -> Visited:
        """The prefix that is longer by this token."""
        found = self._children.get(token)
        if found is None:
            found = self._children[token] = Visited(), self._probability(token)
        return found[0]

    def _probability(self, token: int) -> float:
        if self._probabilities is None:
            return 0.0
        place = self._place(token)
        return 0.0 if place is None else float(self._probabilities[place])

    def carry(self) -> None:
        """Take over what has been found out about the prefixes that are longer by a token."""
        removed = sum(share * (1.0 - child.mass) for child, share in self._children.values())
        self.mass = min(1.0, max(0.0, self._own - removed))

    def _place(self, token: int) -> int | None:
        if self._ids is None:
            return token
        place = int(np.searchsorted(self._ids, token))
        return place if place < len(self._ids) and self._ids[place] == token else None

    def _weights(self) -> NDArray[np.float64]:
        if self._probabilities is None:
            raise ValueError("the probabilities of this prefix were let go of")
        weights = self._probabilities.astype(np.float64)
        for token, (child, _) in self._children.items():
            if child.mass < 1.0 and (place := self._place(token)) is not None:
                weights[place] *= child.mass
        return weights

    def draw(self, uniform: float) -> int | None:
        """A token, by its probability and the mass that is left after it. `uniform`: in [0, 1). None: none is left."""
        return self._token(drawn(self._weights(), uniform))

    def best(self) -> int | None:
        """The token with the most mass, the first of equals. None: none is left."""
        weights = self._weights()
        place = int(weights.argmax()) if len(weights) else None
        return self._token(place if place is not None and weights[place] > 0.0 else None)

    def _token(self, place: int | None) -> int | None:
        return place if place is None or self._ids is None else int(self._ids[place])


def drawn(weights: Probabilities, uniform: float) -> int | None:
    """A place, by its weight. `uniform`: in [0, 1). None: there is no weight."""
    sums = np.cumsum(weights, dtype=np.float64)
    if not len(sums) or not sums[-1] > 0.0:
        return None
    # The last place with a weight, should rounding lead beyond it.
    last = int(np.searchsorted(sums, sums[-1], side="left"))
    return min(int(np.searchsorted(sums, uniform * sums[-1], side="right")), last)
