"""Algorithms 1 and 3 of the paper's appendix B as they are printed: loops over states, tokens and characters.

Minutes for a thousand tokens; it is what the fast set-up is tested against, and the ablation's far end. The
Aho-Corasick automaton here is a trie with failure links that are followed while reading, not the folded one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.methods.baselines.automata import DFAs
from benchmarks.methods.baselines.nco_tables import Rows, TokenTables
from nco_guard.tokens import Vocabulary

__all__ = ["naive_regex_tables", "naive_string_tables"]


class _Trie:
    """An Aho-Corasick trie (algorithm 1, lines 1-5)."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.children: list[dict[int, int]] = [{}]
        self.forbidden = [False]
        for string in strings:
            node = 0
            for byte in string.encode():
                if byte not in self.children[node]:
                    self.children[node][byte] = len(self.children)
                    self.children.append({})
                    self.forbidden.append(False)
                node = self.children[node][byte]
            self.forbidden[node] = True
        self.fail = [0] * len(self.children)
        queue = list(self.children[0].values())
        for node in queue:
            self.forbidden[node] = self.forbidden[node] or self.forbidden[self.fail[node]]
            for byte, child in self.children[node].items():
                self.fail[child] = self.read(self.fail[node], byte)
                queue.append(child)

    def read(self, node: int, byte: int) -> int:
        """One character, failure links followed (lines 12-19)."""
        while node and byte not in self.children[node]:
            node = self.fail[node]
        return self.children[node].get(byte, 0)


def naive_string_tables(strings: Sequence[str], vocabulary: Vocabulary, device: torch.device) -> TokenTables:
    """Algorithm 1. Pure Python, states x characters of the vocabulary."""
    trie = _Trie(strings)
    packed = np.zeros((vocabulary.width, len(trie.children)), np.int32)
    for start in range(len(trie.children)):
        for token, data in enumerate(vocabulary.tokens):
            node, blocked = start, False
            for byte in data:
                node = trie.read(node, byte)
                blocked = blocked or trie.forbidden[node]
            packed[token, start] = 2 * node + (blocked and token not in vocabulary.eos_ids)
    return _tables(packed, None, device)


def naive_regex_tables(dfas: DFAs, vocabulary: Vocabulary, device: torch.device) -> TokenTables:
    """Algorithm 3. Pure Python, states x characters and suffixes of the vocabulary."""
    table, accepting, sink = dfas.table.tolist(), dfas.accepting.tolist(), dfas.sink
    owner = dfas.owner.tolist()
    packed = np.zeros((vocabulary.width, sink + 1), np.int32)
    reach = np.zeros((vocabulary.width, sink + 1), bool)
    for token, data in enumerate(vocabulary.tokens):
        for start in range(sink + 1):
            state, blocked = start, accepting[start]
            for byte in data:
                state = table[state][byte]
                blocked = blocked or accepting[state]
            packed[token, start] = 2 * state + blocked
        for first in range(len(data)):
            for initial in dfas.starts.tolist():
                state, accepted = initial, False
                for byte in data[first:]:
                    state = table[state][byte]
                    accepted = accepted or accepting[state]
                if state != sink:
                    reach[token, state] = True
                if accepted:
                    mine = [q for q in range(sink) if owner[q] == owner[initial]]
                    packed[token, mine] |= 1
        if token in vocabulary.eos_ids:
            packed[token] &= -2
    return _tables(packed, reach, device)


def _tables(packed: np.ndarray, reach: np.ndarray | None, device: torch.device) -> TokenTables:
    rows = Rows(
        torch.from_numpy(packed).to(device), None if reach is None else torch.from_numpy(reach).to(device)
    )
    return TokenTables(rows, (rows.packed & 1).bool().t().contiguous())
