"""One hard constraint's automaton run over a prefix tree: from the root once, from every other state by differences.

Search automata forget. From almost every state, after a byte or two of a token, the run is in the same state as the
run that began at the root; from there on the two are identical. And most states are so far from any match that no
token below a node could complete one (`Automaton.distances`): there the run need not go on at all. What is left of a
tree of 275,000 nodes is a few hundred. States from which nearly everything is different ("within a word") are much like
each other: a few of them are kept for comparison too.

Exact for any deterministic search automaton; Aho-Corasick failure links are the special case.

Cost: some 15 NumPy calls per level of the tree that a run reaches, usually two to four levels, and a Python call for
each transition of the automaton not met before.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import Automaton
from nco_guard.tokens import PrefixTree

__all__ = ["SoftRun", "TreeRuns"]

Nodes = NDArray[np.int64]
States = NDArray[np.int32]

# In place of a state:
COMPLETED = -1  # a match completes at this node
UNVISITED = -2  # one has completed above, or none can complete here or below

_REFERENCES = 3  # known runs beside the root's
_LAST = 192  # tokens below some nodes, up to which what is left of a run is looked at so
_FEW = 24  # nodes that are looked at one by one rather than together
_DENSE = 16  # a run that visits one node in so many is kept by node
_WIDE = 400  # a run that differs in so many nodes is worth remembering

_ROOT: Nodes = np.zeros(1, np.int64)
_NO_NODES: Nodes = np.zeros(0, np.int64)
_NO_STATES: States = np.zeros(0, np.int32)


def _unvisited(node: int) -> int:
    return UNVISITED


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the run from some state differs from a run that is known.

    `matched`: nodes at which a match completes that does not in the known run, nor above. `changed` and `states`: nodes
    without a match that are in another state than there, and which. `cleared`: nodes at and below which the known run
    holds something, and this one nothing. No order is promised.
    """

    matched: Nodes
    changed: Nodes
    states: States
    cleared: Nodes

    @property
    def width(self) -> int:
        """How many nodes differ."""
        return len(self.matched) + len(self.changed) + len(self.cleared)


class TreeRun:
    """The run of an automaton over a tree from one state.

    Kept as sorted nodes and their states, or, where these are a good part of the tree, as a state for every node.
    """

    def __init__(self, nodes: Nodes, states: States, size: int) -> None:
        """`states` int32: `COMPLETED` where a match completes. `nodes` in any order. `size`: of the tree, in nodes."""
        self._all: States | NDArray[np.int16] | None = None
        if len(nodes) * _DENSE > size:
            small = int(states.max(initial=0)) <= np.iinfo(np.int16).max
            everywhere: NDArray[Any] = np.full(size, UNVISITED, np.int16 if small else np.int32)
            everywhere[nodes] = states
            self._all = everywhere
        else:
            order = np.argsort(nodes, kind="stable")
            self._nodes: NDArray[np.int32] = nodes[order].astype(np.int32)
            self._states: States = states[order]

    def items(self) -> tuple[Nodes, States]:
        """All nodes that have a state or at which a match completes, sorted, and what is there."""
        if self._all is None:
            return self._nodes.astype(np.int64), self._states
        nodes = np.flatnonzero(self._all != UNVISITED)
        return nodes, self._all[nodes].astype(np.int32)

    def alive(self) -> tuple[Nodes, States]:
        """The nodes that have a state, sorted, and which."""
        nodes, states = self.items()
        on = np.flatnonzero(states >= 0)
        return nodes[on], states[on]

    def tops(self) -> Nodes:
        """The nodes at which matches complete, sorted."""
        nodes, states = self.items()
        return nodes[np.flatnonzero(states == COMPLETED)]

    def at(self, nodes: Nodes) -> NDArray[np.signedinteger[Any]]:
        """The states at some nodes."""
        if self._all is not None:
            return self._all[nodes]
        places = np.minimum(np.searchsorted(self._nodes, nodes), len(self._nodes) - 1)
        return np.where(self._nodes[places] == nodes, self._states[places], UNVISITED)

    def at_one(self, node: int) -> int:
        """The state at one node."""
        if self._all is not None:
            return int(self._all[node])
        place = int(self._nodes.searchsorted(node))
        there = place < len(self._nodes) and self._nodes[place] == node
        return int(self._states[place]) if there else UNVISITED

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._nodes.nbytes + self._states.nbytes if self._all is None else self._all.nbytes


class TreeRuns:
    """The runs of one automaton over one tree: the root's, some others, and how all further ones differ from these.

    `known`: the root's run, then up to `_REFERENCES` from states that differ much from all before. A rule for whole
    words differs from its start nearly everywhere while a word goes on; but one such state hardly from another.
    """

    def __init__(
        self,
        automaton: Automaton,
        tree: PrefixTree,
        seen: NDArray[np.bool_],
        *,
        slack: int = 0,
        root: tuple[Nodes, States] | None = None,
    ) -> None:
        """`slack`: how many bytes beyond a token a match, or a state that may not end the text, still is of interest.

        `seen` bool [nodes]: scratch, all False between calls. `root`: nodes and states of the root's run, if they are
        known. Errors: `StateLimitError` of the automaton, as for all methods.
        """
        self.automaton = automaton
        self.tree = tree
        self._slack = slack
        self._seen = seen
        self._heights = tree.heights_beyond_ascii if automaton.rests_in_ascii else tree.heights
        self._first: Nodes = np.arange(1, tree.child_count[0] + 1)
        self.known = [TreeRun(*(self._run_from_start() if root is None else root), len(tree))]
        self._starts = [automaton.start]  # where each of these runs began

    def emptied(self) -> TreeRuns:
        """These runs, with the root's alone."""
        runs = copy(self)
        runs.known, runs._starts = self.known[:1], self._starts[:1]
        return runs

    @property
    def root(self) -> TreeRun:
        """The run from the start."""
        return self.known[0]

    def _run_from_start(self) -> tuple[Nodes, States]:
        tree = self.tree
        parents, current = _ROOT, np.array([self.automaton.start], np.int32)
        held, states = [parents], [current]
        while len(parents):
            # The last levels are those of a few long tokens, such as lines of dashes.
            if len(parents) <= _FEW and int((tree.high[parents] - tree.low[parents]).sum()) <= _LAST:
                last = self._one_by_one(_unvisited, parents, current)
                held += [last.matched, last.changed]
                states += [np.full(len(last.matched), COMPLETED, np.int32), last.states]
                break
            nodes, reached = self._step(parents, current)
            matched = nodes[reached < 0]
            held.append(matched)
            states.append(np.full(len(matched), COMPLETED, np.int32))
            on = np.flatnonzero(reached >= 0)
            nodes, reached = nodes[on], reached[on]
            near = self._near(nodes, reached)
            parents, current = nodes[near], reached[near]
            held.append(parents)
            states.append(current)
        return np.concatenate(held), np.concatenate(states)

    def _step(self, parents: Nodes, current: States) -> tuple[Nodes, States]:
        """The children of the nodes, and the states reached there."""
        tree = self.tree
        if parents is _ROOT:
            nodes, states = self._first, np.repeat(current, len(self._first))
        else:
            nodes, counts = tree.children(parents)
            states = np.repeat(current, counts)
        reached = self.automaton.step_many(states, tree.byte[nodes])
        return nodes, np.maximum(reached, COMPLETED, out=reached)

    def _near(self, nodes: Nodes, states: States) -> NDArray[np.bool_]:
        """Whether anything can happen at or below the nodes, from these states on."""
        reach = self._heights[nodes]
        distances = self.automaton.distances(states)
        if self._slack:
            # 255 stands for more in both.
            return distances <= np.minimum(reach.astype(np.int16) + self._slack, 255)
        return distances <= reach

    def difference(self, state: int) -> tuple[int, Difference]:
        """Which known run the one from a state differs least from after one byte, and how it does."""
        if not self.tree.merged:
            apart = [self.automaton.apart(state, start) for start in self._starts[: len(self.known)]]
            ways = [len(letters) if letters is not None else 256 for letters in apart]
            if (fewest := min(ways)) < 256:
                nearest = ways.index(fewest)
                return nearest, self._apart(self.known[nearest], state, self._starts[nearest])
        nodes, reached = self._step(_ROOT, np.array([state], np.int32))
        nearest, usual = 0, self.known[0].at(nodes)
        on = np.flatnonzero(reached != usual)
        for place, run in enumerate(self.known[1:], 1):
            its = run.at(nodes)
            differing = np.flatnonzero(reached != its)
            if len(differing) < len(on):
                nearest, usual, on = place, its, differing
        return nearest, self._differing(self.known[nearest], nodes[on], reached[on], usual[on])

    def _apart(self, run: TreeRun, state: int, start: int) -> Difference:
        """How the run from a state differs from a known one, by the only bytes by which they come apart."""
        tree, step, walk = self.tree, self.automaton.step, _Walk(self)
        firsts, counts, letters = (array.data for array in (tree.first_child, tree.child_count, tree.byte))
        wide: list[tuple[int, int]] = []
        stack = [(0, state, start)]
        while stack:
            parent, before, other = stack.pop()
            ways = self.automaton.apart(before, other)
            if ways is None:
                wide.append((parent, before))
                continue
            first = firsts[parent]
            siblings = letters[first : first + counts[parent]].tobytes()
            for letter in ways:
                at = siblings.find(letter)
                if at < 0:
                    continue
                node = first + at
                reached, usual = max(step(before, letter), COMPLETED), run.at_one(node)
                if walk.goes_on(node, reached, usual):
                    stack.append((node, reached, usual))
        found = walk.found()
        if not wide:
            return found
        parents, current = zip(*wide, strict=True)
        nodes, reached_there = self._step(np.array(parents, np.int64), np.array(current, np.int32))
        usual_there = run.at(nodes)
        on = np.flatnonzero(reached_there != usual_there)
        rest = self._differing(run, nodes[on], reached_there[on], usual_there[on])
        return Difference(
            np.concatenate([found.matched, rest.matched]),
            np.concatenate([found.changed, rest.changed]),
            np.concatenate([found.states, rest.states]),
            np.concatenate([found.cleared, rest.cleared]),
        )

    def _differing(
        self, run: TreeRun, nodes: Nodes, reached: States, usual: NDArray[np.signedinteger[Any]]
    ) -> Difference:
        matches, others, states, cleared = [_NO_NODES], [_NO_NODES], [_NO_STATES], [_NO_NODES]
        while len(nodes):
            if reached.min() < 0:
                matches.append(nodes[reached < 0])
                on = np.flatnonzero(reached >= 0)
                nodes, reached, usual = nodes[on], reached[on], usual[on]
            near = self._near(nodes, reached)
            parents, current = nodes[near], reached[near]
            cleared.append(nodes[~near & (usual != UNVISITED)])
            if not len(parents):
                break
            others.append(parents)
            states.append(current)
            if len(parents) <= _FEW and int(self.tree.child_count[parents].sum()) <= _FEW:
                below = self._one_by_one(run.at_one, parents, current)
                matches.append(below.matched)
                others.append(below.changed)
                states.append(below.states)
                cleared.append(below.cleared)
                break
            nodes, reached = self._step(parents, current)
            usual = run.at(nodes)
            on = np.flatnonzero(reached != usual)
            nodes, reached, usual = nodes[on], reached[on], usual[on]
        return Difference(
            np.concatenate(matches), np.concatenate(others), np.concatenate(states), np.concatenate(cleared)
        )

    def _one_by_one(self, known: Callable[[int], int], parents: Nodes, current: States) -> Difference:
        """How the runs below some nodes differ from a known one, from these states.

        `known`: the state of the known run at a node. For few nodes a loop is quicker than arrays.
        """
        tree, step, walk = self.tree, self.automaton.step, _Walk(self)
        firsts, counts, letters = (array.data for array in (tree.first_child, tree.child_count, tree.byte))
        stack = list(zip(parents.tolist(), current.tolist(), strict=True))
        while stack:
            parent, before = stack.pop()
            first = firsts[parent]
            for node in range(first, first + counts[parent]):
                reached = max(step(before, letters[node]), COMPLETED)
                if walk.goes_on(node, reached, known(node)):
                    stack.append((node, reached))
        return walk.found()

    def worth_keeping(self, state: int, found: Difference) -> bool:
        """Whether the run from a state, which differs from a known one by `found`, is worth being known itself."""
        worth_it = found.width >= _WIDE or state == self.automaton.idle
        return worth_it and len(self.known) <= _REFERENCES

    def keep(self, state: int, nearest: int, found: Difference) -> None:
        """Make the run from a state one more that is known. Whoever keeps something beside it does so before."""
        nodes, states = self.known[nearest].items()
        kept = ~self._within(nodes, np.concatenate([found.cleared, found.matched]))
        kept &= ~np.isin(nodes, found.changed)
        completed = np.full(len(found.matched), COMPLETED, np.int32)
        nodes = np.concatenate([nodes[kept], found.changed, found.matched])
        states = np.concatenate([states[kept], found.states, completed])
        run = TreeRun(nodes, states, len(self.tree))
        self._starts[len(self.known) :] = [state]
        self.known.append(run)

    def left(self, nodes: Nodes, found: Difference) -> Nodes:
        """Those of the nodes at which a run is still the known one that it differs from by `found`."""
        if not len(nodes):
            return nodes
        seen = self._seen
        if seen[0]:  # a call broke off in between; no node of interest is the root
            seen[:] = False
        seen[0] = True
        seen[found.changed] = True
        nodes = nodes[~seen[nodes]]
        seen[found.changed] = False
        seen[0] = False
        return nodes[~self._within(nodes, np.concatenate([found.cleared, found.matched]))]

    def _within(self, nodes: Nodes, tops: Nodes) -> NDArray[np.bool_]:
        """Which of the nodes are one of `tops` or below; no top is below another."""
        tree = self.tree
        if not len(tops):
            return np.zeros(len(nodes), np.bool_)
        low = tree.low[tops]
        order = np.argsort(low)
        tops, low = tops[order], low[order]
        own = tree.low[nodes]
        # The last top that begins before a node is the only one that it can be below. A node above may begin with it,
        # but has a smaller number.
        at = np.searchsorted(low, own, side="right") - 1
        return (at >= 0) & (own < tree.high[tops[at]]) & (nodes >= tops[at])

    @property
    def nbytes(self) -> int:
        """Bytes held; not the tree's nor the automaton's."""
        return sum(run.nbytes for run in self.known)


class _Walk:
    """What a walk from node to node finds out about how a run differs from a known one."""

    def __init__(self, runs: TreeRuns) -> None:
        self._distance = runs.automaton.distance
        self._heights = runs._heights.data
        self._slack = runs._slack
        self._matched: list[int] = []
        self._changed: list[int] = []
        self._states: list[int] = []
        self._cleared: list[int] = []

    def goes_on(self, node: int, reached: int, usual: int) -> bool:
        """Note the state that is reached at a node, where the known run has `usual`; whether to look below."""
        if reached == usual:
            return False
        if reached == COMPLETED:
            self._matched.append(node)
        elif self._distance(reached) <= min(self._heights[node] + self._slack, 255):
            self._changed.append(node)
            self._states.append(reached)
            return True
        elif usual != UNVISITED:
            self._cleared.append(node)
        return False

    def found(self) -> Difference:
        """All of it."""
        return Difference(
            np.array(self._matched, np.int64),
            np.array(self._changed, np.int64),
            np.array(self._states, np.int32),
            np.array(self._cleared, np.int64),
        )


class SoftRun:
    """The run of a soft constraint: matches may complete, and the text go on.

    Whether one has completed on the way is kept apart from the state: `completed` bool [nodes], `states` of all nodes.
    """

    def __init__(self, automaton: Automaton, tree: PrefixTree) -> None:
        """Errors: `StateLimitError` of the automaton."""
        states: States = np.zeros(len(tree), np.int32)
        states[0] = automaton.start
        completed = np.zeros(len(tree), np.bool_)
        for first, last in tree.levels:
            above = tree.parent[first:last]
            reached = automaton.step_many(states[above], tree.byte[first:last])
            matched = reached < 0
            completed[first:last] = matched | completed[above]
            states[first:last] = np.where(matched, ~reached, reached)
        small = automaton.state_count <= np.iinfo(np.int16).max
        self._automaton, self._tree, self.completed = automaton, tree, completed
        self.states: States | NDArray[np.int16] = states.astype(np.int16) if small else states

    @classmethod
    def of(
        cls,
        automaton: Automaton,
        tree: PrefixTree,
        states: NDArray[np.int16] | NDArray[np.int32],
        completed: NDArray[np.bool_],
    ) -> SoftRun:
        """The run that came to these states."""
        run = cls.__new__(cls)
        run._automaton, run._tree, run.states, run.completed = automaton, tree, states, completed
        return run

    def difference(self, state: int) -> tuple[Nodes, Nodes]:
        """Ids of the tokens that complete a match from the root but not from a state, and the other way round."""
        tree = self._tree
        added: list[Nodes] = [_NO_NODES]
        removed: list[Nodes] = [_NO_NODES]
        parents = np.zeros(1, np.int64)
        current = np.array([state], np.int32)
        completed = np.zeros(1, np.bool_)
        while len(parents):
            nodes, counts = tree.children(parents)
            if not len(nodes):
                break
            reached = self._automaton.step_many(np.repeat(current, counts), tree.byte[nodes])
            matched = reached < 0
            reached = np.where(matched, ~reached, reached)
            done = matched | np.repeat(completed, counts)
            root_completed = self.completed[nodes]
            same = reached == self.states[nodes]
            added.append(tree.tokens_below(nodes[same & done & ~root_completed]))
            on = ~same | (root_completed & ~done)
            parents, current, completed = nodes[on], reached[on], done[on]
            ids, at = tree.tokens_at(parents)
            added.append(ids[completed[at]])
            removed.append(ids[~completed[at]])
        return np.concatenate(removed), np.concatenate(added)

    @property
    def nbytes(self) -> int:
        """Bytes held; not the tree's nor the automaton's."""
        return self.states.nbytes + self.completed.nbytes
