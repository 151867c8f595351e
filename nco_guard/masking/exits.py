"""Ways out: a few short texts that are tried first to show that a text can be brought to an allowed end.

Whether rules leave each other a common way out takes a search in general. Nearly always a byte or two is proof enough:
a full stop, a space, a letter, or the rest of a character. Which of these *paths* each rule allows is a word of bits
per automaton state; what several rules allow together is their intersection.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import Automaton
from nco_guard.automata.rewriting import CONTINUATION
from nco_guard.tokens import PrefixTree

__all__ = ["Bits", "ExitPaths", "OpenPaths"]

Bits = NDArray[np.int64]


class ExitPaths:
    """The paths that a vocabulary can write with tokens of one byte, or of two where single bytes are rare.

    Bit n of a word stands for path n. `tokens` int64 [paths]: how many tokens each takes; path 0 is to end at once.
    `longest`: bytes of the longest. `single` uint8: the bytes that are tokens of their own. `beyond_ascii` int64: ids
    of the tokens whose first byte is not ASCII.
    """

    def __init__(self, tree: PrefixTree) -> None:
        last = int(tree.child_count[0]) + 1
        self.single: NDArray[np.uint8] = tree.byte[1:last][tree.exact[1:last] > 0]
        single = set(self.single.tolist())
        self.beyond_ascii: NDArray[np.int64] = tree.tokens_below(
            1 + np.flatnonzero(tree.byte[1:last] >= 0x80)
        )
        spread = (0x80, 0x90, 0xA0, 0xB0)
        byte_paths = [
            *([b] for b in b"ea .0-\nxZl_,"),
            *([b] for b in spread),
            *([b, 0x80] for b in spread),
            *([b, 0x80, 0x80] for b in (0x80, 0x90)),
        ]
        # Short pieces of WordPiece vocabularies and the like.
        pairs = [[first, byte] for first in (CONTINUATION, 0x20) for byte in b"ea.0-"]
        found = [([], 0), *((path, len(path)) for path in byte_paths if single.issuperset(path))]
        found += [(path, 1) for path in pairs if bytes(path) in tree]
        self.tokens: NDArray[np.int64] = np.array([tokens for _, tokens in found], np.int64)
        self.every: int = (1 << len(found)) - 1
        self.longest: int = max(len(path) for path, _ in found)
        # Every beginning of a path, by length: where it goes on from in the level before, and its last byte.
        level: dict[tuple[int, ...], int] = {(): 0}
        self._levels: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []
        self._ends = [(0, [0], [0])]  # per level: (length, column of each path that ends there, its number)
        for length in range(1, 1 + max(len(path) for path, _ in found)):
            stems = dict.fromkeys(tuple(path[:length]) for path, _ in found if len(path) >= length)
            above = np.array([level[stem[:-1]] for stem in stems], np.int64)
            self._levels.append((above, np.array([stem[-1] for stem in stems], np.uint8)))
            level = {stem: column for column, stem in enumerate(stems)}
            ending = [(level[tuple(path)], n) for n, (path, _) in enumerate(found) if len(path) == length]
            self._ends.append((length, [column for column, _ in ending], [n for _, n in ending]))

    def within(self, tokens: int) -> int:
        """The paths that take at most so many tokens, as bits."""
        return sum(1 << n for n, needed in enumerate(self.tokens.tolist()) if needed <= tokens)

    def open_from(self, automaton: Automaton, states: NDArray[np.int32]) -> Bits:
        """For each state, the paths that lead the automaton to an allowed end. Cost: a few array passes."""
        reached = states[:, None]
        bits: Bits = np.zeros(len(states), np.int64)
        for length, columns, numbers in self._ends:
            if length:
                above, symbols = self._levels[length - 1]
                before = reached[:, above]
                reached = np.full(before.shape, -1, np.int32)
                alive = before >= 0
                reached[alive] = automaton.step_many(
                    before[alive], np.broadcast_to(symbols, before.shape)[alive]
                )
            final = reached[:, columns]
            alive = final >= 0
            ends = np.zeros(final.shape, np.int64)
            ends[alive] = automaton.may_end_many(final[alive])
            bits |= ends @ (1 << np.array(numbers, np.int64))
        return bits


class OpenPaths:
    """`ExitPaths.open_from` for one automaton, kept by state."""

    def __init__(self, paths: ExitPaths, automaton: Automaton) -> None:
        self._paths = paths
        self._automaton = automaton
        self._known: dict[int, int] = {}

    def of(self, states: NDArray[np.int32]) -> Bits:
        """For each state, the paths that lead to an allowed end, as bits."""
        ways = np.full(len(states), self._paths.every, np.int64)
        near = np.flatnonzero(self._automaton.distances(states) <= self._paths.longest)
        if not len(near):
            return ways
        distinct, places = np.unique(states[near], return_inverse=True)
        known = self._known
        fresh = [state for state in distinct.tolist() if state not in known]
        if fresh:
            found = self._paths.open_from(self._automaton, np.array(fresh, np.int32))
            known.update(zip(fresh, found.tolist(), strict=True))
        ways[near] = np.array([known[state] for state in distinct.tolist()], np.int64)[places.ravel()]
        return ways

    @property
    def nbytes(self) -> int:
        """Bytes held (estimated)."""
        return 150 * len(self._known)
