"""Which ways out all constraints leave open after the tokens after which some constraint does not let the text end.

Those are few and mostly the same ones: pieces of characters, and words that some rule forbids. They get a small prefix
tree of their own, over which each constraint runs once from its start and, for every other state, by differences
(`tree_runs`).

Cost: as in `tree_runs`, but for some hundred to some thousand tokens; known pairs of a constraint and a
state, a look-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from nco_guard.errors import StateLimitError
from nco_guard.masking.idsets import NO_IDS, Ids
from nco_guard.masking.short_ways import Bits, ShortWays
from nco_guard.masking.tables import ConstraintTable, PlainParts
from nco_guard.masking.tree_runs import TreeRuns
from nco_guard.tokens import PrefixTree

__all__ = ["FewTokens", "WatchedTokens", "WaysOut"]

# What is barred after some of the tokens, by their places in `ids`, or by nodes.
_Barred = tuple[Ids, Bits]
_NOTHING: _Barred = (NO_IDS, NO_IDS)


class _Watch:
    """One constraint over the watched tokens; `root`: what is barred after them from its start."""

    def __init__(
        self, table: ConstraintTable, tree: PrefixTree, seen: NDArray[np.bool_], paths: ShortWays
    ) -> None:
        # More bytes than that after a token are of no interest.
        self._runs = TreeRuns(table.automaton, tree, seen, slack=paths.longest)
        self._open_paths = table.open_paths
        self._every = paths.every
        self._known: dict[int, _Barred] = {}
        self._references = [self._barred(*self._runs.root.alive())]
        self.root = self._places(*self._references[0])

    def _barred(self, nodes: Ids, states: NDArray[np.int32]) -> _Barred:
        exact = np.flatnonzero(self._runs.tree.exact[nodes])
        nodes = nodes[exact]
        barred = self._every & ~self._open_paths.of(states[exact])
        some = np.flatnonzero(barred)
        return nodes[some], barred[some]

    def _places(self, nodes: Ids, bits: Bits) -> _Barred:
        places, at = self._runs.tree.tokens_at(nodes)
        return places, bits[at]

    def of(self, state: int) -> _Barred:
        """What is barred after the tokens from a state."""
        known = self._known.get(state)
        if known is None:
            known = self._known[state] = self._find(state)
        return known

    def _find(self, state: int) -> _Barred:
        runs = self._runs
        idle = runs.automaton.idle
        if idle is not None and state != idle:
            self.of(idle)  # others are compared with it
        nearest, found = runs.difference(state)
        nodes, bits = self._references[nearest]
        left = np.flatnonzero(np.isin(nodes, runs.left(nodes, found), assume_unique=True))
        changed, barred = self._barred(found.changed, found.states)
        nodes, bits = np.concatenate([nodes[left], changed]), np.concatenate([bits[left], barred])
        if runs.worth_keeping(state, found):
            self._references[len(runs.known) :] = [(nodes, bits)]
            runs.keep(state, nearest, found)
        return self._places(nodes, bits)

    @property
    def nbytes(self) -> int:
        return self._runs.nbytes + sum(150 + 2 * places.nbytes for places, _ in self._known.values())


class WatchedTokens:
    """Some tokens with text, and each constraint's run over them, made as they are asked for.

    `ids`: sorted int64.
    """

    def __init__(self, ids: Ids, tokens: Sequence[bytes], paths: ShortWays) -> None:
        self.ids = ids
        self._paths = paths
        self._words = [tokens[i] for i in ids.tolist()]
        self._by_state: dict[int, dict[int, _Barred]] = {}
        self._tree = PrefixTree(self._words)
        self._seen: NDArray[np.bool_] = np.zeros(len(self._tree), np.bool_)
        # What is further from a match than that bars nothing.
        self._reach = max((len(tokens[i]) for i in ids.tolist()), default=0) + paths.longest
        self._watches: dict[int, _Watch] = {}  # by the constraint's identity, which its table keeps alive

    def kept_for(self, tables: Sequence[ConstraintTable]) -> WatchedTokens:
        """These tokens, sharing what was found about the constraints of these tables, and nothing else."""
        other = copy(self)
        kept = {id(table.constraint) for table in tables}
        kept |= {id(plain.constraint) for table in tables if (plain := table.uncut) is not None}
        other._watches = {key: watch for key, watch in self._watches.items() if key in kept}
        other._by_state = {}
        return other

    def barred(self, table: ConstraintTable, state: int) -> _Barred:
        """What a constraint bars after the tokens from a state. Errors: `StateLimitError`, naming its rules."""
        parts = table.parts(state)
        if parts is not None:
            return self._by_parts(table, state, parts)
        if table.automaton.distance(state) > self._reach:
            return _NOTHING
        try:
            watch = self._watch(table)
            return watch.root if state == table.root else watch.of(state)
        except StateLimitError as error:
            raise table.named(error) from None

    def _by_parts(self, table: ConstraintTable, state: int, parts: PlainParts) -> _Barred:
        known = self._by_state.setdefault(id(table.constraint), {})
        found = known.get(state)
        if found is None:
            every = self._paths.every
            bits = np.full(len(self.ids), every & ~parts.ways if parts.states else 0, np.int64)
            for own in parts.states:
                places, barred = self.barred(parts.plain, own)
                bits[places] |= barred
            apart = np.flatnonzero(np.isin(self.ids, parts.apart, assume_unique=True))
            bits[apart] = every
            for place in apart.tolist():
                after = table.automaton.read(state, self._words[place])
                if after >= 0:
                    bits[place] &= ~int(table.open_paths.of(np.array([after], np.int32))[0])
            some = np.flatnonzero(bits)
            found = known[state] = some, bits[some]
        return found

    def _watch(self, table: ConstraintTable) -> _Watch:
        watch = self._watches.get(id(table.constraint))
        if watch is None:
            watch = _Watch(table, self._tree, self._seen, self._paths)
            self._watches[id(table.constraint)] = watch
        return watch

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.ids.nbytes + self._tree.nbytes + sum(w.nbytes for w in self._watches.values())


class WaysOut:
    """`WatchedTokens` under all constraints of a policy together."""

    def __init__(self, watched: WatchedTokens, tables: Sequence[ConstraintTable]) -> None:
        self.watched = watched
        self._tables = tuple(tables)
        self._roots = tuple(table.root for table in tables)
        # All constraints in their start states: what any of them bars.
        self._barred: Bits = np.zeros(len(watched.ids), np.int64)
        for table in tables:
            places, bits = watched.barred(table, table.root)
            self._barred[places] |= bits

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.watched.nbytes + self._barred.nbytes

    def without(self, states: Sequence[int], ways: int) -> Ids:
        """Sorted ids of the tokens after which none of these ways out (bits) is sure to be open to all constraints.

        There may be too many: what a constraint bars in its start state counts against it in every state. Tokens
        that complete a match here may be among them.
        """
        barred = self._barred
        for table, state, root in zip(self._tables, states, self._roots, strict=True):
            if state != root:
                places, bits = self.watched.barred(table, state)
                if len(places):
                    barred = barred.copy() if barred is self._barred else barred
                    barred[places] |= bits
        closed = np.flatnonzero(barred & ways == ways)
        return self.watched.ids[closed] if len(closed) else NO_IDS


class FewTokens:
    """`WatchedTokens` for so few that a tree for them would not pay: each constraint reads them one by one."""

    def __init__(
        self, ids: Ids, tokens: Sequence[bytes], paths: ShortWays, tables: Sequence[ConstraintTable]
    ) -> None:
        self.ids = ids
        self._words = [tokens[i] for i in ids.tolist()]
        self._reach = paths.longest
        self._tables = tuple(tables)

    def without(self, states: Sequence[int], ways: int) -> Ids:
        """As `WaysOut.without`, but exact for tokens that complete no match."""
        barred = np.zeros(len(self.ids), np.int64)
        for table, state in zip(self._tables, states, strict=True):
            try:
                reached = [table.automaton.read(state, word) for word in self._words]
                near = [
                    i
                    for i, after in enumerate(reached)
                    if after >= 0 and table.automaton.distance(after) <= self._reach
                ]
                if near:
                    barred[near] |= ~table.open_paths.of(np.array([reached[i] for i in near], np.int32))
            except StateLimitError as error:
                raise table.named(error) from None
        closed = np.flatnonzero(barred & ways == ways)
        return self.ids[closed]

    @property
    def nbytes(self) -> int:
        """Bytes held (estimated)."""
        return 200 + 60 * len(self.ids)
