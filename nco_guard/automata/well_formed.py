"""Well-formed UTF-8 as a constraint: always on, joined with all others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import SINK, Arrays, TableAutomaton
from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.utf8 import ILL_FORMED, utf8_table

__all__ = ["Utf8Automaton"]


class Utf8Automaton(TableAutomaton):
    """Forbids ill-formed UTF-8, and text that ends within a character.

    `marks`: bytes, ill-formed in any text, that may stand between characters.

    Decoders disagree about what ill-formed bytes read as, so no other promise can be kept without this one.
    Source: The Unicode Standard, table 3-7.
    """

    rests_in_ascii = True

    def __init__(self, marks: bytes = b"") -> None:
        super().__init__()
        decoder = utf8_table(CharClasses([]))
        while self._count < 1 + len(decoder):
            self._taken(self._room())
        inside = decoder <= -2
        self._table[1 : 1 + len(decoder)] = np.where(
            inside, 1 + (-2 - decoder), np.where(decoder == ILL_FORMED, ~SINK, 1)
        )
        self.start = 1
        self.spaceless_start = 1
        self._table[1, list(marks)] = 1

    def distances(self, states: NDArray[np.int32]) -> NDArray[np.uint8]:
        """One byte is enough to be within a character."""
        found: NDArray[np.uint8] = (states == self.start).astype(np.uint8)
        return found

    def found(self) -> Arrays:
        """Nothing: it is complete."""
        return {}

    def recall(self, arrays: Arrays) -> bool:
        """There is nothing to take up."""
        return True

    def may_end(self, state: int) -> bool:
        """Only between characters."""
        return state == self.start
