"""GUARD's hard restriction as the paper reimplements it: a trie of the forbidden strings, candidates suppressed.

Source: the paper, "Baseline Implementation Details" (GUARD): the trie-based suppression alone, without the prompt
classifier and the soft semantic matching. There are no failure links: a row's state is the list of trie nodes that runs
from all earlier positions are at. A candidate is suppressed if its string completes a forbidden one from any of them.
Rows are handled one after another, as in the paper; what a node suppresses is looked up once and kept.

GUARD has no patterns. As in the paper they are replaced by the finitely many spans that they match in given texts.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.methods.baselines.base import Baseline, Stateful, Task, fill
from nco_guard.errors import UnsupportedError
from nco_guard.tokens import Vocabulary

__all__ = ["GuardTrie", "PreparedGuardTrie"]

Nodes = tuple[int, ...]


@dataclass(frozen=True)
class GuardTrie(Baseline):
    """GUARD's trie suppression.

    Attributes:
        corpus: texts in which patterns are searched; the spans they match are forbidden in their place.

    Exact for strings.
    """

    corpus: tuple[str, ...] = ()

    name = "GUARD"
    not_enforced: ClassVar[tuple[str, ...]] = (
        "matches of patterns that are not in the corpus: a finite-string approximation",
        "well-formed UTF-8, unused columns of the logits and ways out of dead ends",
        "a first space that decoding drops: it is read as part of the text",
    )

    def prepare(self, task: Task) -> PreparedGuardTrie:
        """See `Baseline.setup`; patterns without a corpus are refused."""
        if task.patterns and not self.corpus:
            raise UnsupportedError(
                "GUARD has finitely many strings only: give a corpus in which patterns match"
            )
        spans = (
            m[0] for pattern in task.patterns for text in self.corpus for m in re.finditer(pattern, text)
        )
        lexicon = tuple(dict.fromkeys([*task.strings, *filter(None, spans)]))
        if not lexicon:
            raise ValueError("no pattern matches anywhere in the corpus: there is nothing to forbid")
        return PreparedGuardTrie(lexicon, task.vocabulary(self.name), task.device)


class PreparedGuardTrie(Stateful[list[Nodes]]):
    """The trie of one lexicon, and the sorted vocabulary in which candidates are found."""

    def __init__(self, lexicon: Sequence[str], vocabulary: Vocabulary, device: torch.device) -> None:
        self.name = GuardTrie.name
        self.lexicon = tuple(lexicon)
        self.width = vocabulary.width
        self._tokens = vocabulary.tokens
        self._device = device
        self._children: list[dict[int, int]] = [{}]
        self._complete = [False]
        for string in lexicon:
            node = 0
            for byte in string.encode():
                if byte not in self._children[node]:
                    self._children[node][byte] = len(self._children)
                    self._children.append({})
                    self._complete.append(False)
                node = self._children[node][byte]
            self._complete[node] = True
        quiet = {*vocabulary.eos_ids}
        ids = [i for i, token in enumerate(self._tokens) if token and i not in quiet]
        ids.sort(key=self._tokens.__getitem__)
        self._order = np.array(ids, np.int64)
        self._sorted = [self._tokens[i] for i in ids]
        inside = re.compile(b"|".join(re.escape(string.encode()) for string in lexicon))
        self._always = np.array([i for i in ids if inside.search(self._tokens[i])], np.int64)
        self._suppressed: dict[int, NDArray[np.int64]] = {}

    @property
    def device(self) -> torch.device:
        """Where scores lie; the trie is on the host."""
        return self._device

    @property
    def nbytes(self) -> int:
        """Bytes of the trie's edges and marks, of the sorted vocabulary and of what is kept of nodes met so far."""
        edges = sum(map(len, self._children))
        kept = sum(ids.nbytes for ids in self._suppressed.values())
        return 16 * edges + len(self._complete) + sum(map(len, self._sorted)) + 8 * len(self._order) + kept

    def start(self, batch: int) -> list[Nodes]:
        """See `Stateful.start`: runs that began nowhere."""
        return [()] * batch

    def advance(self, states: list[Nodes], tokens: torch.Tensor) -> list[Nodes]:
        """See `Stateful.advance`; the tokens come to the host."""
        return [self._read(nodes, self._tokens[t]) for nodes, t in zip(states, tokens.tolist(), strict=True)]

    def _read(self, nodes: Nodes, data: bytes) -> Nodes:
        for byte in data:
            # Without failure links every position begins a run of its own.
            moved = (self._children[node].get(byte) for node in (*nodes, 0))
            nodes = tuple(node for node in moved if node is not None)
        return nodes

    def apply(self, states: list[Nodes], scores: torch.Tensor) -> torch.Tensor:
        """See `Stateful.apply`; row by row."""
        return fill(
            scores, [np.concatenate([self._always, *map(self._from_node, nodes)]) for nodes in states]
        )

    def _from_node(self, node: int) -> NDArray[np.int64]:
        """Tokens that begin with the rest of a string that is being matched at this node."""
        known = self._suppressed.get(node)
        if known is None:
            parts = [np.zeros(0, np.int64)]
            for rest in self._rests(node):
                low = bisect_left(self._sorted, rest)
                length = len(rest)
                beginnings = range(low, len(self._sorted))
                high = low + bisect_right(beginnings, rest, key=lambda at: self._sorted[at][:length])
                parts.append(self._order[low:high])
            known = self._suppressed[node] = np.concatenate(parts)
        return known

    def _rests(self, node: int) -> list[bytes]:
        rests, stack = [], [(child, bytes([byte])) for byte, child in self._children[node].items()]
        while stack:
            node, read = stack.pop()
            if self._complete[node]:
                rests.append(read)
            else:
                stack.extend((child, read + bytes([byte])) for byte, child in self._children[node].items())
        return rests

    def reorder(self, states: list[Nodes], rows: torch.Tensor) -> list[Nodes]:
        """See `Stateful.reorder`."""
        return [states[row] for row in rows.tolist()]
