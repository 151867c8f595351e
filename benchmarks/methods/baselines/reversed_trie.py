"""The paper's ablation without failure links: a trie of the reversed strings, read back through the text each step.

Source: the paper, "Ablation Implementation Details", first paragraph on finite hard constraints. There is no state but
the end of the text. A candidate completes a string if some reversed string leads from a place inside the candidate
back to its beginning and on through the end of the text. The part inside the candidates is the same at every step, so
it is read once, at set-up (the paper reports none); the part in the text is read at each step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.methods.baselines.base import Stateful, fill
from nco_guard.errors import UnsupportedError
from nco_guard.tokens import Vocabulary

__all__ = ["ReversedTrie"]

_DEAD = 0
_ROOT = 1


class ReversedTrie(Stateful[list[bytes]]):
    """One step of one row: the trie's nodes that candidates begin at, walked back through at most the longest string.

    Exact for strings over every text that is its tokens' bytes, joined. Its masks are those of Aho-Corasick.
    """

    def __init__(
        self,
        strings: Sequence[str],
        patterns: Sequence[str],
        vocabulary: Vocabulary,
        device: torch.device,
        name: str,
    ) -> None:
        if patterns:
            raise UnsupportedError("the reversed trie is an ablation for strings; leave the patterns out")
        self.name, self.width = name, vocabulary.width
        self._tokens = vocabulary.tokens
        self._device = device
        self._longest = max(len(string.encode()) for string in strings)
        self._table, self._complete = _trie(strings)
        quiet = set(vocabulary.eos_ids)
        always, waiting = self._read_candidates(
            [b"" if i in quiet else t for i, t in enumerate(self._tokens)]
        )
        self._always: NDArray[np.int64] = np.flatnonzero(always)
        # Tokens by the node that their beginning is at.
        order = np.argsort(waiting[1], kind="stable")
        self._waiting: NDArray[np.int64] = waiting[0][order]
        self._nodes, self._first = np.unique(waiting[1][order], return_index=True)
        self._last = np.append(self._first[1:], len(order))

    def _read_candidates(self, tokens: Sequence[bytes]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Tokens with a whole string inside: bool [width]. And [2, n]: tokens, and nodes at their beginnings."""
        lengths = np.array([len(token) for token in tokens])
        buffer = np.frombuffer(b"".join(tokens), np.uint8)
        owner = np.repeat(np.arange(len(tokens)), lengths)
        place = np.arange(len(buffer))
        beginning = (np.cumsum(lengths) - lengths)[owner]
        node = np.full(len(buffer), _ROOT)
        always = np.zeros(len(tokens), bool)
        found: list[NDArray[np.int64]] = []
        while len(place):
            node = self._table[node, buffer[place]]
            always[owner[self._complete[node]]] = True
            alive = (node != _DEAD) & ~self._complete[node]
            over = alive & (place == beginning)
            found.append(np.stack([owner[over], node[over]]))
            alive &= ~over
            owner, beginning, node, place = owner[alive], beginning[alive], node[alive], place[alive] - 1
        return always, np.concatenate(found, axis=1) if found else np.zeros((2, 0), np.int64)

    @property
    def device(self) -> torch.device:
        """Where scores lie; the trie is on the host."""
        return self._device

    @property
    def nbytes(self) -> int:
        """Bytes of the trie and of what is kept of the candidates."""
        arrays = (
            self._table,
            self._complete,
            self._always,
            self._waiting,
            self._nodes,
            self._first,
            self._last,
        )
        return sum(array.nbytes for array in arrays)

    def start(self, batch: int) -> list[bytes]:
        """See `Stateful.start`."""
        return [b""] * batch

    def advance(self, states: list[bytes], tokens: torch.Tensor) -> list[bytes]:
        """See `Stateful.advance`; the tokens come to the host."""
        following = [text + self._tokens[token] for text, token in zip(states, tokens.tolist(), strict=True)]
        return [text[-self._longest :] for text in following]

    def apply(self, states: list[bytes], scores: torch.Tensor) -> torch.Tensor:
        """See `Stateful.apply`; row by row."""
        return fill(scores, [self._forbidden(text) for text in states])

    def reorder(self, states: list[bytes], rows: torch.Tensor) -> list[bytes]:
        """See `Stateful.reorder`."""
        return [states[row] for row in rows.tolist()]

    def _forbidden(self, text: bytes) -> NDArray[np.int64]:
        group, node = np.arange(len(self._nodes)), self._nodes
        parts = [self._always]
        for byte in reversed(text):
            node = self._table[node, byte]
            hits = group[self._complete[node]].tolist()
            parts.extend(self._waiting[self._first[hit] : self._last[hit]] for hit in hits)
            alive = (node != _DEAD) & ~self._complete[node]
            group, node = group[alive], node[alive]
            if not len(node):
                break
        return np.concatenate(parts)


def _trie(strings: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Children int64 [nodes, 256], `_DEAD` where there is none, and whether a string is complete, bool [nodes]."""
    children: list[dict[int, int]] = [{}, {}]
    complete = [False, False]
    for string in strings:
        node = _ROOT
        for byte in reversed(string.encode()):
            if byte not in children[node]:
                children[node][byte] = len(children)
                children.append({})
                complete.append(False)
            node = children[node][byte]
        complete[node] = True
    table = np.full((len(children), 256), _DEAD, np.int64)
    for node, moves in enumerate(children):
        table[node, list(moves)] = list(moves.values())
    return table, np.array(complete)
