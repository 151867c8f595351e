"""The vocabulary as a flat prefix tree over bytes.

Built once per tokenizer, independent of any policy. Nodes are numbered level by level; the tokens below a node are
one contiguous range of the sorted order, so "this whole subtree" is a pair of numbers.

Cost: about 0.1 s for 128,000 tokens (275,000 nodes), 24 bytes a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["PrefixTree"]

_Key = TypeVar("_Key", np.int32, np.int64)
_KEPT = ("byte", "low", "high", "child_count", "exact")
_HEIGHTS = ("heights", "heights_beyond_ascii")


class PrefixTree:
    """A trie of the distinct byte strings of a vocabulary; node 0 is the root.

    Arrays over nodes: `byte` uint8 (the last byte on the way to it), `first_child` and `child_count` int32 (children
    are contiguous), `parent` int32 (the root is its own), `low` and `high` int32 (its range in `order`), `exact` int32
    (tokens `order[low : low + exact]` end at this node). `order` int64: token ids in depth-first order, those without
    bytes left out; `node_of` int32: the node of each. `levels`: the node ranges `(first, last + 1)` by depth, the
    root's children first. `merged`: for a quotient, the classes of bytes that share nodes.
    """

    merged: bytes = b""

    def __init__(self, tokens: Sequence[bytes], ids: Sequence[int] | None = None) -> None:
        """`ids`: which tokens to put in (default: all). Tokens without bytes are left out."""
        chosen = [i for i in (range(len(tokens)) if ids is None else ids) if tokens[i]]
        chosen.sort(key=tokens.__getitem__)
        self.order: NDArray[np.int64] = np.array(chosen, dtype=np.int64)
        words = [tokens[i] for i in chosen]
        lengths = np.array([len(w) for w in words], dtype=np.int64)
        buffer = np.frombuffer(b"".join(words), np.uint8)
        offsets = np.cumsum(lengths) - lengths

        byte_parts = [np.zeros(1, np.uint8)]
        low_parts = [np.zeros(1, np.int64)]
        high_parts = [np.array([len(words)], np.int64)]
        parents = [np.zeros(1, np.int32)]
        self.node_of = np.zeros(len(words), np.int32)
        self.levels: list[tuple[int, int]] = []
        count = 1
        # Rows of the sorted list that are longer than the current depth, and the node of each at that depth.
        rows = np.arange(len(words))
        group = np.zeros(len(words), np.int64)
        while len(rows):
            depth = len(self.levels)
            symbols = buffer[offsets[rows] + depth]
            fresh = np.ones(len(rows), bool)
            fresh[1:] = (group[1:] != group[:-1]) | (symbols[1:] != symbols[:-1])
            starts = np.flatnonzero(fresh)
            ends = np.append(starts[1:], len(rows)) - 1
            byte_parts.append(symbols[starts])
            # Rows of one node are neighbours in the sorted order: shorter words with its prefix come first.
            low_parts.append(rows[starts])
            high_parts.append(rows[ends] + 1)
            parents.append((group[starts] + (self.levels[-1][0] if depth else 0)).astype(np.int32))
            group = np.cumsum(fresh) - 1
            self.levels.append((count, count + len(starts)))
            longer = lengths[rows] > depth + 1
            self.node_of[rows[~longer]] = group[~longer] + count
            count += len(starts)
            rows, group = rows[longer], group[longer]

        self.byte: NDArray[np.uint8] = np.concatenate(byte_parts)
        self.low: NDArray[np.int32] = np.concatenate(low_parts).astype(np.int32)
        self.high: NDArray[np.int32] = np.concatenate(high_parts).astype(np.int32)
        self.parent = np.concatenate(parents)
        self._link(count)

    def _link(self, count: int) -> None:
        """Where the children of each node are, and how many tokens end at it."""
        self.child_count: NDArray[np.int32] = np.zeros(count, np.int32)
        self.first_child = np.full(count, count, np.int32)
        self.exact: NDArray[np.int32] = np.zeros(count, np.int32)
        depths = [(0, 1), *self.levels]
        for depth, (first, last) in enumerate(depths):
            low, high = self.low[first:last], self.high[first:last]
            if depth + 1 < len(depths):
                below, beyond = depths[depth + 1]
                child_low = self.low[below:beyond]
                begin = np.searchsorted(child_low, low)
                end = np.searchsorted(child_low, high)
                self.child_count[first:last] = end - begin
                self.first_child[first:last] = begin + below
                # Tokens that end here come before the first child's.
                capped = np.minimum(begin, len(child_low) - 1)
                self.exact[first:last] = np.where(end > begin, child_low[capped], high) - low
            else:
                self.exact[first:last] = high - low

    @cached_property
    def first_child(self) -> NDArray[np.int32]:
        """Children follow each other level by level, in the order of their parents."""
        return (np.cumsum(self.child_count) - self.child_count + 1).astype(np.int32)

    @cached_property
    def node_of(self) -> NDArray[np.int32]:
        """See the class."""
        nodes = np.flatnonzero(self.exact)
        found: NDArray[np.int32] = np.zeros(len(self.order), np.int32)
        found[self.low[nodes]] = nodes
        several = nodes[self.exact[nodes] > 1]
        found[_ranges(self.low[several], self.exact[several])] = np.repeat(several, self.exact[several])
        return found

    @cached_property
    def parent(self) -> NDArray[np.int32]:
        """See the class."""
        found: NDArray[np.int32] = np.zeros(len(self.byte), np.int32)
        found[1:] = np.repeat(np.arange(len(self.byte), dtype=np.int32), self.child_count)
        return found

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What `from_arrays` needs, 17 bytes a node (19 but for quotients) and 4 a token."""
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in _KEPT}
        if not self.merged:
            arrays |= {name: getattr(self, name) for name in _HEIGHTS}
        levels = np.array(self.levels, np.int32).reshape(-1, 2)
        return {**arrays, "order": self.order.astype(np.int32), "levels": levels}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], merged: NDArray[np.uint8] | None = None
    ) -> PrefixTree:
        """The tree that `to_arrays` is of; `merged`: what it is the quotient by. Cost: under a millisecond."""
        tree = cls.__new__(cls)
        tree.merged = b"" if merged is None else merged.tobytes()
        for name in (*_KEPT, *_HEIGHTS):
            if name in arrays:
                setattr(tree, name, arrays[name])
        tree.order = arrays["order"].astype(np.int64)
        tree.levels = [(first, last) for first, last in arrays["levels"].tolist()]
        return tree

    def quotient(self, classes: NDArray[np.uint8]) -> PrefixTree:
        """This tree for automata that cannot tell some bytes apart: words equal under `classes` share a node.

        `classes` uint8 [256]: the class of each byte, numbered from 0. A node's `byte` is one of its class, so any run
        of such an automaton over this tree is its run over the whole one. Cost: some 30 ns a node of the whole tree.
        """
        symbols, count = classes[self.byte], int(classes.max()) + 1
        merged = np.zeros(len(self), np.int32)
        parents, letters = [np.zeros(1, np.int32)], [np.zeros(1, np.uint8)]
        some_byte = np.zeros(count, np.uint8)
        some_byte[classes] = np.arange(256)
        before, total = 0, 1
        levels: list[tuple[int, int]] = []
        for first, last in self.levels:
            # Half as much memory is touched with 32 bits, and nearly always they do.
            bound = (total - before) * count
            own = merged[self.parent[first:last]] - before
            if bound < 1 << 31:
                distinct, merged[first:last] = _numbered(
                    own * np.int32(count) + symbols[first:last], bound, total
                )
            else:
                key = own.astype(np.int64) * count + symbols[first:last]
                distinct, merged[first:last] = _numbered(key, bound, total)
            parents.append((distinct // count + before).astype(np.int32))
            letters.append(some_byte[distinct % count])
            before, total = total, total + len(distinct)
            levels.append((before, total))

        tree = PrefixTree.__new__(PrefixTree)
        tree.merged = classes.tobytes()
        tree.levels = levels
        tree.parent, tree.byte = np.concatenate(parents), np.concatenate(letters)
        tree.child_count = np.bincount(tree.parent[1:], minlength=total).astype(np.int32)
        nodes = merged[self.node_of]
        tree.exact = np.bincount(nodes, minlength=total).astype(np.int32)
        below = tree.exact.astype(np.int64)
        for (upper, end), (first, last) in reversed([*pairwise([(0, 1), *levels])]):
            own = tree.parent[first:last] - upper
            below[upper:end] += np.bincount(own, below[first:last], end - upper).astype(np.int64)
        # Siblings are neighbours: each begins where the tokens below those before it end.
        earlier = np.cumsum(below) - below
        low = np.zeros(total, np.int64)
        for first, last in levels:
            above = tree.parent[first:last]
            low[first:last] = (
                low[above] + tree.exact[above] + earlier[first:last] - earlier[tree.first_child[above]]
            )
        tree.low, tree.high = low.astype(np.int32), (low + below).astype(np.int32)
        ending = np.flatnonzero(tree.exact)
        ranks: NDArray[np.int32] = np.zeros(total, np.int32)
        ranks[ending[np.argsort(tree.low[ending])]] = np.arange(len(ending))
        places = _by_size(ranks[nodes], len(ending))
        tree.order, tree.node_of = self.order[places], nodes[places]
        return tree

    @cached_property
    def heights(self) -> NDArray[np.uint8]:
        """uint8 [nodes]: how many bytes the longest token below a node goes on after it; 255: or more."""
        heights = np.zeros(len(self), np.uint8)
        for (above, below), (first, last) in reversed([*pairwise([(0, 1), *self.levels])]):
            # Siblings are neighbours.
            parents = above + np.flatnonzero(self.child_count[above:below])
            highest = np.maximum.reduceat(heights[first:last], self.first_child[parents] - first)
            heights[parents] = np.minimum(highest, 254) + np.uint8(1)
        return heights

    @cached_property
    def heights_beyond_ascii(self) -> NDArray[np.uint8]:
        """uint8 [nodes]: `heights`, but 0 where all bytes below a node are ASCII. Not for quotients that mix them."""
        beyond = self.byte >= 0x80
        for (above, below), (first, last) in reversed([*pairwise([(0, 1), *self.levels])]):
            parents = above + np.flatnonzero(self.child_count[above:below])
            beyond[parents] |= np.maximum.reduceat(beyond[first:last], self.first_child[parents] - first)
        # What is beyond ASCII itself may have ASCII below; to look there too does no harm.
        return np.where(beyond, self.heights, 0).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.byte)

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays, those that are made on first use included."""
        made = (self.byte, self.low, self.high, self.child_count, self.exact, self.order)
        return sum(array.nbytes for array in made) + 4 * (3 * len(self.byte) + len(self.order))

    def children(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All children of the given nodes, in their order, and how many each node has. int64."""
        counts = self.child_count[nodes].astype(np.int64)
        children = np.repeat(self.first_child[nodes] - np.cumsum(counts) + counts, counts)
        children += np.arange(len(children))
        return children, counts

    def __contains__(self, word: bytes) -> bool:
        """Whether the bytes, one or more, are a token. Not for quotients."""
        return len(self.ids_of(word)) > 0

    def ids_of(self, word: bytes) -> NDArray[np.int64]:
        """Ids of the tokens that are these bytes, one or more. Not for quotients."""
        node = 0
        for byte in word:
            first = int(self.first_child[node])
            last = first + int(self.child_count[node])
            node = first + int(np.searchsorted(self.byte[first:last], byte))
            if node == last or self.byte[node] != byte:
                return np.zeros(0, np.int64)
        return self.tokens_at(np.array([node]))[0]

    @cached_property
    def edges(self) -> NDArray[np.signedinteger[Any]]:
        """[nodes - 1], int32 if that suffices: each node but the root as 256 x its parent + its byte; sorted.

        Not for quotients, as `child_many`.
        """
        wide = np.dtype(np.int32 if len(self) < 1 << 23 else np.int64)
        found: NDArray[np.signedinteger[Any]] = self.parent[1:].astype(wide)
        found <<= 8
        found |= self.byte[1:]
        return found

    def child_many(self, nodes: NDArray[np.int64], symbols: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The child of each node by a byte, -1 where there is none. Cost: a binary search each."""
        edges = self.edges
        if not len(edges):
            return np.full(len(nodes), -1, np.int64)
        wanted = (nodes << 8 | symbols).astype(edges.dtype)
        at = np.searchsorted(edges, wanted)
        np.minimum(at, len(edges) - 1, out=at)
        return np.where(edges[at] == wanted, at + 1, -1)

    def tokens_below(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids of all tokens that begin with the bytes of one of the nodes, none of which is below another."""
        return self.order[_ranges(self.low[nodes], self.high[nodes] - self.low[nodes])]

    def tokens_at(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids of the tokens that are exactly the bytes of a node, and for each the index of its node in `nodes`."""
        counts = self.exact[nodes]
        return self.order[_ranges(self.low[nodes], counts)], np.repeat(np.arange(len(nodes)), counts)


def _numbered(keys: NDArray[_Key], bound: int, first: int = 0) -> tuple[NDArray[_Key], NDArray[np.int32]]:
    """The distinct keys, all below `bound`, sorted; and for each key its number among them, counted from `first`.

    Cost: linear if `bound` is at most some dozen times the number of keys, else that of sorting them.
    """
    if bound > 64 * len(keys) + 4096:
        distinct, numbers = np.unique(keys, return_inverse=True)
        return distinct, (numbers.ravel() + first).astype(np.int32)
    present = np.zeros(bound, bool)
    present[keys] = True
    found = np.flatnonzero(present)
    numbering = np.zeros(bound, np.int32)
    numbering[found] = np.arange(first, first + len(found), dtype=np.int32)
    return found.astype(keys.dtype), numbering[keys]


def _by_size(values: NDArray[np.int32], bound: int) -> NDArray[np.int64]:
    """A stable `argsort` of numbers from 0 and below `bound`: 16 bits at a time, which NumPy sorts by radix."""
    order = np.argsort(values.astype(np.uint16), kind="stable")
    if bound <= 1 << 16:
        return order
    return order[np.argsort((values[order] >> 16).astype(np.uint16), kind="stable")]


def _ranges(starts: NDArray[np.int32], counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """The numbers start, start + 1, ... (count of them) of each pair, one after another."""
    total = int(counts.sum())
    before = np.cumsum(counts, dtype=np.int64) - counts
    return np.repeat(starts.astype(np.int64) - before, counts) + np.arange(total, dtype=np.int64)
