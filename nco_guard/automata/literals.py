"""Strings, all at once: the Aho-Corasick automaton over bytes, built level by level with arrays.

Source: Aho and Corasick, 1975; NCO paper, section 4.1. Matches are exact-case substrings anywhere. For case folding
and whole words use `AlternatingMachine`.

Cost: one vectorised pass per byte of the longest string; 1 KiB a state. `patterns_ending(state)` names the strings
that end in a state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import TableAutomaton
from nco_guard.errors import StateLimitError

__all__ = ["AhoCorasick"]

_ROOT = 1


class AhoCorasick(TableAutomaton):
    """Finds every occurrence of any of the strings; goes on after a match, so overlapping ones are found too."""

    def __init__(self, patterns: Sequence[bytes], *, state_limit: int = 1_000_000) -> None:
        super().__init__()
        if not patterns or not all(patterns):
            raise ValueError("patterns must be one or more non-empty byte strings")
        # Nodes of level d are the distinct prefixes of length d: `owner[i]` is the node of pattern i at this level.
        lengths = np.array([len(p) for p in patterns])
        depth = int(lengths.max())
        padded = np.zeros((len(patterns), depth), np.uint8)
        for row, pattern in enumerate(patterns):
            padded[row, : len(pattern)] = np.frombuffer(pattern, np.uint8)
        owner = np.full(len(patterns), _ROOT, np.int64)
        levels: list[tuple[np.ndarray, np.ndarray]] = []  # (parents, bytes) of each level's nodes
        count = 2
        ends = np.zeros(len(patterns), np.int64)
        for d in range(depth):
            live = np.flatnonzero(lengths > d)
            keys, inverse = np.unique(owner[live] << 8 | padded[live, d], return_inverse=True)
            owner[live] = count + inverse
            ending = lengths == d + 1
            ends[ending] = owner[ending]
            levels.append((keys >> 8, keys & 0xFF))
            count += len(keys)
            if count > state_limit:
                raise StateLimitError(
                    f"these {len(patterns):,} strings need more than {state_limit:,} states; split the list"
                )

        table = np.zeros((count + 1, 256), np.int32)
        table[_ROOT] = _ROOT
        fail = np.full(count + 1, _ROOT, np.int64)
        output = np.zeros(count + 1, bool)
        output[ends] = True
        first = 2
        for parents, symbols in levels:
            nodes = np.arange(first, first + len(parents))
            if first > 2:  # children of the root fail to the root
                fail[nodes] = table[fail[parents], symbols]
            # A node may fail to its parent's level, whose children must be in place before rows are copied.
            table[parents, symbols] = nodes
            table[nodes] = table[fail[nodes]]
            output[nodes] |= output[fail[nodes]]
            first += len(parents)
        self._fail = fail
        self._ends: dict[int, list[int]] = {}
        for pattern_index, node in enumerate(ends.tolist()):
            self._ends.setdefault(node, []).append(pattern_index)
        self._spaceless = count
        table[count] = table[_ROOT]
        table = np.where(output[table], ~table, table)
        table[count, 0x20] = _ROOT
        self._table = table
        self._count = count + 1
        self.start = _ROOT
        self.spaceless_start = count

    def may_end(self, state: int) -> bool:
        """Always: an occurrence is complete with its last byte."""
        return True

    def may_end_many(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Always."""
        return np.ones(len(states), bool)

    def patterns_ending(self, state: int) -> list[int]:
        """Indices of the strings that end in this state, longest first."""
        found: list[int] = []
        node = _ROOT if state == self._spaceless else state
        while node > _ROOT:
            found.extend(self._ends.get(node, []))
            node = int(self._fail[node])
        return found
