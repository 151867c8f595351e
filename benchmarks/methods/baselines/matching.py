"""Matching one text byte by byte: the state that rejection sampling keeps, and what is read when a token is chosen.

Strings by the Aho-Corasick automaton; patterns by the set of DFA states that runs from all earlier positions are in
(appendix B, algorithm 3). Steps of sets are remembered, so a text that keeps to known ground costs one look-up a byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.methods.baselines.automata import DFAs, aho_corasick, compile_dfas

__all__ = ["Matcher", "State"]

State = tuple[int, frozenset[int]]
_REMEMBERED = 200_000


class Matcher:
    """Reads bytes and says when a forbidden string or a pattern's match is complete.

    A state is the Aho-Corasick state and the active DFA states without the start states, which always are.
    """

    start: State = (0, frozenset())

    def __init__(self, strings: Sequence[str], patterns: Sequence[str]) -> None:
        table, forbidden = aho_corasick(strings)
        self._goto: list[list[int]] = table.tolist()
        self._complete: list[bool] = forbidden.tolist()
        self._dfas: DFAs = compile_dfas(patterns)
        self._moves: list[list[int]] = self._dfas.table.tolist()
        self._accepting: list[bool] = self._dfas.accepting.tolist()
        started = self._dfas.table[self._dfas.starts]
        sink = self._dfas.sink
        self._fresh = [frozenset(started[:, byte].tolist()) - {sink} for byte in range(256)]
        self._steps: dict[tuple[frozenset[int], int], tuple[frozenset[int], bool]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the transition tables as machine words; the interpreter's objects take more."""
        return 8 * 256 * (len(self._goto) + len(self._moves))

    def step(self, state: State, byte: int) -> tuple[State, bool]:
        """The next state, and whether a match is complete with this byte."""
        node = self._goto[state[0]][byte]
        if not self._dfas.sink:
            return (node, state[1]), self._complete[node]
        key = (state[1], byte)
        known = self._steps.get(key)
        if known is None:
            active = self._fresh[byte].union(self._moves[q][byte] for q in state[1]) - {self._dfas.sink}
            known = active, any(self._accepting[q] for q in active)
            if len(self._steps) >= _REMEMBERED:
                self._steps.clear()
            self._steps[key] = known
        return (node, known[0]), known[1] or self._complete[node]

    def read(self, state: State, data: bytes) -> tuple[State, bool]:
        """The state after all bytes, and whether a match was complete with any of them."""
        matched = False
        for byte in data:
            state, hit = self.step(state, byte)
            matched = matched or hit
        return state, matched
