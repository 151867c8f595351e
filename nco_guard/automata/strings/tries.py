"""Many sequences of symbols, searched for all at once: Aho-Corasick in flat arrays, built level by level.

Source: Aho and Corasick, 1975; NCO paper, section 4.1. `exact` reads bytes with it, `folded` characters.

Nodes are numbered level by level, so the children of a node are neighbours and those of the next node come right
after: one array of first children, one of the symbols on the edges, one of failure links, one of outputs. The first
nodes, near the root, where most steps land, have full rows of transitions besides: as many as fit a fixed budget, all
of them for lists of some thousand strings. From the others the failure links are followed until a row or a child is
met; for arrays of states, in a loop that shrinks.

Cost: 11 bytes a node (12 with more than 256 symbols) and at most 16 MiB of rows; building takes one array pass per
level for the tree and one for the failure links, about 0.3 us a node altogether.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.errors import StateLimitError

__all__ = ["ROOT", "SPACELESS", "SymbolTrie"]

# Node 0 is `automaton.SINK`, where nothing ever happens; 2 is a second root, for automata that need one.
ROOT = 1
SPACELESS = 2
_FIRST = 3

_ROW_BUDGET = 4 << 20  # entries of 4 bytes
_STATE_LIMIT = 1 << 30
_FAR = 255
_PART = 1 << 18
_SHARED = 16  # from so many steps on it pays to ask whether they all leave one node

Symbols = NDArray[np.unsignedinteger[Any]]  # uint8 or uint16


class SymbolTrie:
    """The automaton that finds every occurrence of any of the sequences, over symbols `0 .. symbol_count - 1`.

    Immutable once built, so it may be shared between threads. `outputs[node]`: whether some sequence ends in the node.
    `distances[node]` uint8: after how many symbols, at least one, the next sequence can end, each counted by its weight
    (see `build`); 255: as many or more.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """From the arrays of `to_arrays`; see `build`. Errors: `ValueError` for arrays that cannot belong together."""
        _check(arrays)
        self._arrays = {name: arrays[name] for name in _DTYPES}
        self.symbol_count = int(arrays["symbol_count"][0])
        self.node_count = len(arrays["fail"])
        self.edges: Symbols = arrays["edges"]
        self.first_child: NDArray[np.int32] = arrays["first_child"]
        self.fail: NDArray[np.int32] = arrays["fail"]
        self.outputs: NDArray[np.bool_] = arrays["outputs"]
        self._rows: NDArray[np.int32] = arrays["rows"]
        self.distances: NDArray[np.uint8] = arrays["distances"]
        self._end_nodes: NDArray[np.int32] = arrays["end_nodes"]
        self._end_indices: NDArray[np.int32] = arrays["end_indices"]
        self._row_count = len(self._rows) // self.symbol_count
        # Single items of a memoryview cost a fraction of those of an array.
        self._first_view = self.first_child.data
        self._fail_view = self.fail.data
        self._output_view = self.outputs.data
        self._row_view = self._rows.data
        self._edge_view = self.edges.data
        self._narrow = self.edges.dtype == np.uint8

    @classmethod
    def build(
        cls,
        buffer: Symbols,
        lengths: NDArray[np.integer[Any]],
        indices: NDArray[np.integer[Any]],
        symbol_count: int,
        *,
        starts: NDArray[np.int64] | None = None,
        spaceless: int | None = None,
        weights: NDArray[np.uint8] | None = None,
        state_limit: int = _STATE_LIMIT,
        row_budget: int = _ROW_BUDGET,
    ) -> SymbolTrie:
        """From sequences in sorted order, one after another in `buffer`, or each where `starts` says.

        `lengths`: how many symbols each has, at least one. `indices`: the caller's number of each. `spaceless`: the
        symbol that leads from the second root to the root. `weights`: what each symbol counts for in distances,
        the first one of a sequence at least 1 (default: all 1). Sequences may be there several times.

        Errors: `StateLimitError` for more than `state_limit` nodes.
        """
        levels, first_child, edges, end_nodes = _tree(buffer, lengths, starts, state_limit)
        count = len(edges)
        rows = max(_FIRST, min(count, row_budget // symbol_count))
        order = np.argsort(end_nodes, kind="stable")
        outputs = np.zeros(count, np.bool_)
        outputs[end_nodes] = True
        trie = cls(
            {
                "symbol_count": np.array([symbol_count], np.int64),
                "edges": edges,
                "first_child": first_child,
                "fail": np.full(count, ROOT, np.int32),
                "outputs": outputs,
                "rows": np.zeros(rows * symbol_count, np.int32),
                "distances": np.full(count, _FAR, np.uint8),
                "end_nodes": end_nodes[order],
                "end_indices": indices[order].astype(np.int32),
            }
        )
        trie._link(levels)
        trie._measure(levels, np.ones(symbol_count, np.uint8) if weights is None else weights)
        trie._rows[ROOT * symbol_count : _FIRST * symbol_count] = np.tile(
            trie._rows[ROOT * symbol_count : (ROOT + 1) * symbol_count], 2
        )
        if spaceless is not None:
            trie._rows[SPACELESS * symbol_count + spaceless] = ROOT
        return trie

    def _link(self, levels: list[tuple[int, int]]) -> None:
        """Failure links, outputs that they pass on, and rows, from the root downwards."""
        width, rows = self.symbol_count, self._rows.reshape(-1, self.symbol_count)
        rows[ROOT] = ROOT
        for depth, (first, last) in enumerate(levels):
            parents, _ = self._parents(first, last, levels[depth - 1] if depth else (ROOT, ROOT + 1))
            # Children of the root fail to the root. Large levels are done in parts, whose arrays fit the caches.
            for begin in range(first, last if depth else first, _PART):
                end = min(begin + _PART, last)
                above = self.fail[parents[begin - first : end - first]]
                reached = self.step_many(above, self.edges[begin:end])
                np.bitwise_xor(reached, reached >> 31, out=reached)
                self.fail[begin:end] = reached
                self.outputs[begin:end] |= self.outputs[reached]
            known = int(np.searchsorted(parents, self._row_count))
            if known:
                # A node may fail to its parent's level, whose children must be in place before rows are copied.
                nodes = np.arange(first, first + known, dtype=np.int32)
                at = parents[:known].astype(np.int64) * width + self.edges[first : first + known]
                self._rows[at] = np.where(self.outputs[nodes], ~nodes, nodes)
            below = min(last, self._row_count)
            if first < below:
                rows[first:below] = rows[self.fail[first:below]]

    def _measure(self, levels: list[tuple[int, int]], weights: NDArray[np.uint8]) -> None:
        """Distances: first within the tree, from the leaves upwards, then by way of the failure links."""
        for depth in range(len(levels) - 1, -1, -1):
            first, last = levels[depth]
            above, below = levels[depth - 1] if depth else (ROOT, ROOT + 1)
            begins = self.first_child[above:below]
            parents = np.flatnonzero(begins < self.first_child[above + 1 : below + 1])
            costs = weights[self.edges[first:last]]
            if not depth:
                costs = np.maximum(costs, 1)
            on = np.minimum(self.distances[first:last], _FAR - costs) + costs
            steps = np.where(self.outputs[first:last], costs, on)
            self.distances[above + parents] = np.minimum.reduceat(steps, begins[parents] - first)
        self.distances[SPACELESS] = self.distances[ROOT]
        for first, last in levels:
            nearer = self.distances[self.fail[first:last]]
            np.minimum(self.distances[first:last], nearer, out=self.distances[first:last])

    def _parents(
        self, first: int, last: int, above: tuple[int, int]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The parents of the nodes of a level, in order, and how many children each node above has."""
        start, stop = above
        counts = np.diff(self.first_child[start : stop + 1])
        return np.repeat(np.arange(start, stop, dtype=np.int32), counts), counts

    # -- steps -------------------------------------------------------------------------------------------------

    def step(self, node: int, symbol: int) -> int:
        """The next node, or `~next` if some sequence ends in it."""
        while node >= self._row_count:
            first = self._first_view[node]
            last = self._first_view[node + 1]
            if first < last:
                if self._narrow:
                    at = self._edge_view[first:last].tobytes().find(symbol)
                else:
                    siblings = self._edge_view[first:last].tolist()
                    at = siblings.index(symbol) if symbol in siblings else -1
                if at >= 0:
                    child = first + at
                    return ~child if self._output_view[child] else child
            node = self._fail_view[node]
        reached: int = self._row_view[node * self.symbol_count + symbol]
        return reached

    def step_many(self, nodes: NDArray[np.int32], symbols: Symbols) -> NDArray[np.int32]:
        """`step` for arrays of equal length. int32."""
        width = self.symbol_count
        if self._row_count == self.node_count:
            complete: NDArray[np.int32] = self._rows[nodes.astype(np.int64) * width + symbols]
            return complete
        if len(nodes) >= _SHARED and bool((nodes == nodes[0]).all()):
            return self._row(int(nodes[0]))[symbols]
        near = nodes < self._row_count
        reached: NDArray[np.int32] = self._rows[np.where(near, nodes, 0).astype(np.int64) * width + symbols]
        waiting = np.flatnonzero(~near)
        nodes, symbols = nodes[waiting], symbols[waiting]
        while len(waiting):
            children = self._children(nodes, symbols)
            missed = np.flatnonzero(children < 0)
            if len(missed) < len(waiting):
                reached[waiting] = np.where(self.outputs[children], ~children, children)
            waiting, symbols, nodes = waiting[missed], symbols[missed], self.fail[nodes[missed]]
            near = nodes < self._row_count
            if near.any():
                at = nodes[near].astype(np.int64) * width + symbols[near]
                reached[waiting[near]] = self._rows[at]
                far = ~near
                waiting, symbols, nodes = waiting[far], symbols[far], nodes[far]
        return reached

    def _row(self, node: int) -> NDArray[np.int32]:
        """All steps of one node."""
        path: list[int] = []
        while node >= self._row_count:
            path.append(node)
            node = self._fail_view[node]
        row = self._rows[node * self.symbol_count : (node + 1) * self.symbol_count].copy()
        for longer in reversed(path):
            first, last = self._first_view[longer], self._first_view[longer + 1]
            if first < last:
                children = np.arange(first, last, dtype=np.int32)
                row[self.edges[first:last]] = np.where(self.outputs[first:last], ~children, children)
        return row

    def _children(self, nodes: NDArray[np.int32], symbols: Symbols) -> NDArray[np.int32]:
        """The child of each node by a symbol, -1 where there is none."""
        low = self.first_child[nodes]
        high = self.first_child[nodes + 1]
        some = low < high
        several = np.flatnonzero(high - low > 1)
        if len(several):
            # The last child whose symbol is not beyond the one wanted.
            first, last, wanted = low[several], high[several], symbols[several]
            while int((last - first).max()) > 1:
                middle = (first + last) >> 1
                beyond = self.edges[middle] > wanted
                first = np.where(beyond, first, middle)
                last = np.where(beyond, np.maximum(middle, first + 1), last)
            low[several] = first
        np.minimum(low, self.node_count - 1, out=low)
        found: NDArray[np.int32] = np.where(some & (self.edges[low] == symbols), low, -1)
        return found

    def children(self, node: int) -> tuple[int, bytes]:
        """The first child of a node, and the symbols that lead to it and to its siblings; at most 256 symbols."""
        first, last = self._first_view[node], self._first_view[node + 1]
        return first, self._edge_view[first:last].tobytes()

    def symbols(self, node: int) -> list[int]:
        """The symbols that lead to the children of a node, sorted."""
        return self._edge_view[self._first_view[node] : self._first_view[node + 1]].tolist()

    def descendants(self, nodes: NDArray[np.int32]) -> int:
        """How many children and grandchildren the nodes have together."""
        if len(nodes) == 1:
            node = int(nodes[0])
            first, last = self._first_view[node], self._first_view[node + 1]
            return int(last - first + self._first_view[last] - self._first_view[first])
        firsts, lasts = self.first_child[nodes], self.first_child[nodes + 1]
        below = self.first_child[lasts] - self.first_child[firsts]
        return int((lasts - firsts).sum()) + int(below.sum())

    def children_many(self, nodes: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """All children of the nodes, and for each the index of its parent in `nodes`."""
        firsts = self.first_child[nodes]
        counts = self.first_child[nodes + 1] - firsts
        parents = np.repeat(np.arange(len(nodes)), counts)
        skipped = np.cumsum(counts) - counts
        found = np.arange(len(parents)) + (firsts - skipped)[parents]
        return found.astype(np.int32), parents

    def child_many(self, nodes: NDArray[np.int32], symbols: Symbols) -> NDArray[np.int32]:
        """The child of each node by a symbol, -1 where there is none."""
        if self._row_count < self.node_count:
            return self._children(nodes, symbols)
        reached: NDArray[np.int32] = self._rows[nodes.astype(np.int64) * self.symbol_count + symbols]
        np.bitwise_xor(reached, reached >> 31, out=reached)
        below = (reached >= self.first_child[nodes]) & (reached < self.first_child[nodes + 1])
        reached[~below] = -1
        return reached

    # -- what ends where ---------------------------------------------------------------------------------------

    def ending(self, node: int) -> list[int]:
        """The caller's numbers of the sequences that end in a node, longest first."""
        found: list[int] = []
        while node >= _FIRST and self.outputs[node]:
            low, high = np.searchsorted(self._end_nodes, [node, node + 1])
            found.extend(self._end_indices[low:high].tolist())
            node = int(self.fail[node])
        return found

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that it consists of, shared and not to be written to; `SymbolTrie(arrays)` reads them back."""
        return dict(self._arrays)


_DTYPES: dict[str, tuple[type[np.generic], ...]] = {
    "symbol_count": (np.int64,),
    "edges": (np.uint8, np.uint16),
    "first_child": (np.int32,),
    "fail": (np.int32,),
    "outputs": (np.bool_,),
    "distances": (np.uint8,),
    "rows": (np.int32,),
    "end_nodes": (np.int32,),
    "end_indices": (np.int32,),
}


def _check(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays by which a step could leave them; whether they say the right thing is for a checksum to tell."""
    for name, dtypes in _DTYPES.items():
        array = arrays.get(name)
        if array is None or array.dtype not in dtypes or array.ndim != 1:
            raise ValueError(f"array {name!r} is missing, or not what an automaton for strings is made of")
    count, width = len(arrays["fail"]), int(arrays["symbol_count"][0]) if len(arrays["symbol_count"]) else 0
    first_child, rows = arrays["first_child"], arrays["rows"]
    if (
        not 0 < width <= 1 << 16
        or count < _FIRST
        or not len(arrays["edges"])
        == len(arrays["outputs"])
        == len(arrays["distances"])
        == len(first_child) - 1
        == count
        or len(rows) % width
        or not _FIRST <= len(rows) // width <= count
        or len(arrays["end_nodes"]) != len(arrays["end_indices"])
    ):
        raise ValueError("these arrays do not belong to one automaton for strings")
    if (
        int(arrays["fail"].min()) < 0
        or any(
            bool((arrays["fail"][begin : begin + _PART] >= np.arange(begin, min(begin + _PART, count))).any())
            for begin in range(_FIRST, count, _PART)
        )
        or int(first_child[0]) < _FIRST
        or int(first_child[-1]) > count
        or bool((first_child[1:] < first_child[:-1]).any())
        or int((rows ^ (rows >> 31)).max()) >= count
    ):
        raise ValueError("these arrays lead out of the automaton for strings that they describe")


def _tree(
    buffer: Symbols,
    lengths: NDArray[np.integer[Any]],
    starts: NDArray[np.int64] | None,
    state_limit: int,
) -> tuple[list[tuple[int, int]], NDArray[np.int32], Symbols, NDArray[np.int32]]:
    """Levels (first node, last + 1), first children, edges, and the node in which each sequence ends."""
    end_nodes = np.zeros(len(lengths), np.int32)
    # Rows that are longer than the current depth: where they begin, what is left of them, their node there.
    rows = np.arange(len(lengths), dtype=np.int32)
    at = np.cumsum(lengths, dtype=np.int64) - lengths if starts is None else starts
    left = lengths.astype(np.int32)
    owner = np.full(len(lengths), ROOT, np.int32)
    edge_parts: list[Symbols] = [np.zeros(_FIRST, buffer.dtype)]
    child_parts: list[NDArray[np.int32]] = [np.full(2, _FIRST, np.int32)]  # of the sink and of the root
    levels: list[tuple[int, int]] = []
    count, above = _FIRST, (ROOT, ROOT + 1)
    while len(rows):
        symbols = buffer[at]
        fresh = np.empty(len(rows), np.bool_)
        fresh[0] = True
        np.not_equal(owner[1:], owner[:-1], out=fresh[1:])
        fresh[1:] |= symbols[1:] != symbols[:-1]
        begins = np.flatnonzero(fresh)
        if count + len(begins) > state_limit:
            raise StateLimitError(
                f"these {len(lengths):,} strings need more than {state_limit:,} states; split the list"
            )
        children = np.bincount(owner[begins] - above[0], minlength=above[1] - above[0])
        # One entry for each node above: where its children stop, so where those of the next begin.
        child_parts.append((count + np.cumsum(children)).astype(np.int32))
        if not levels:  # the second root has none
            child_parts.append(np.array([count + len(begins)], np.int32))
        owner = np.cumsum(fresh, dtype=np.int32)
        owner += count - 1
        edge_parts.append(symbols[begins])
        above = (count, count + len(begins))
        levels.append(above)
        count = above[1]
        left -= 1
        ending = left == 0
        end_nodes[rows[ending]] = owner[ending]
        longer = np.flatnonzero(~ending)
        rows, at, left, owner = rows[longer], at[longer] + 1, left[longer], owner[longer]
    child_parts.append(np.full(above[1] - above[0], count, np.int32))
    return levels, np.concatenate(child_parts), np.concatenate(edge_parts), end_nodes
