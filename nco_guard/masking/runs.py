"""One hard constraint's automaton run over a prefix tree: from the root once, from every other state by differences.

Search automata forget. From almost every state, after a byte or two of a token, the run is in the same state as the
run that began at the root; from there on the two are identical. And most states are so far from any match that no
token below a node could complete one (`Automaton.distances`): there the run need not go on at all. What is left of a
tree of 275,000 nodes is a few hundred.

Exact for any deterministic search automaton; Aho-Corasick failure links are the special case.

Cost: some 15 NumPy calls per level of the tree that a run reaches, usually two to four levels, and a Python call for
each transition of the automaton not met before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import Automaton
from nco_guard.tokens import PrefixTree

__all__ = ["COMPLETED", "UNVISITED", "Difference", "RootRun", "SoftRun"]

Nodes = NDArray[np.int64]
States = NDArray[np.int32]

COMPLETED = -1  # in place of a state: a match completes at this node
UNVISITED = -2  # the same: one has completed above, or none can complete here or below

_ROOT: Nodes = np.zeros(1, np.int64)
_NO_NODES: Nodes = np.zeros(0, np.int64)
_NO_STATES: States = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the run from some state differs from the root's.

    `matched`: nodes at which a match completes that does not at the root, nor above. `changed` and `states`: nodes
    without a match that are in another state than the root's run, and which. `cleared`: nodes at and below which the
    root's run holds something, and this one nothing. No order is promised.
    """

    matched: Nodes
    changed: Nodes
    states: States
    cleared: Nodes


class RootRun:
    """The run of an automaton over a tree from its start, and how runs from other states differ from it.

    `slack`: at how many bytes beyond a token a match, or a state in which the text may not end, is still of interest.
    `states` int32 or int16 [nodes]; `tops`: the nodes at which matches complete, sorted; `visited`: those that have a
    state, sorted.
    """

    def __init__(self, automaton: Automaton, tree: PrefixTree, slack: int = 0) -> None:
        """Errors: `StateLimitError` of the automaton."""
        self._prepare(automaton, tree, slack)
        states = np.full(len(tree), UNVISITED, np.int32)
        states[0] = automaton.start
        parents, current = _ROOT, np.array([automaton.start], np.int32)
        tops, visited = [_NO_NODES], [parents]
        while len(parents):
            nodes, reached = self._step(parents, current)
            if not len(nodes):
                break
            matched = reached < 0
            near = ~matched & self._near(nodes, reached)
            tops.append(nodes[matched])
            parents, current = nodes[near], reached[near]
            states[tops[-1]] = COMPLETED
            states[parents] = current
            visited.append(parents)
        self.tops: Nodes = np.concatenate(tops)
        self.visited: Nodes = np.concatenate(visited)
        small = automaton.state_count <= np.iinfo(np.int16).max
        self.states: NDArray[np.int32] | NDArray[np.int16] = states.astype(np.int16) if small else states

    def _prepare(self, automaton: Automaton, tree: PrefixTree, slack: int) -> None:
        self.automaton = automaton
        self.tree = tree
        self.slack = slack
        self._first: Nodes = np.arange(1, tree.child_count[0] + 1)

    @classmethod
    def of(
        cls, automaton: Automaton, tree: PrefixTree, states: NDArray[np.int16] | NDArray[np.int32]
    ) -> RootRun:
        """The run without slack that came to these states."""
        run = cls.__new__(cls)
        run._prepare(automaton, tree, 0)
        run.states = states
        run.tops, run.visited = np.flatnonzero(states == COMPLETED), np.flatnonzero(states >= 0)
        return run

    def _step(self, parents: Nodes, current: States) -> tuple[Nodes, States]:
        """The children of the nodes, and the states reached there."""
        tree = self.tree
        if parents is _ROOT:
            nodes = self._first
            return nodes, self._reached(np.repeat(current, len(nodes)), tree.byte[nodes])
        counts = tree.child_count[parents]
        ends = np.cumsum(counts)
        nodes = np.repeat(tree.first_child[parents] - ends + counts, counts)
        nodes += np.arange(len(nodes))
        return nodes, self._reached(np.repeat(current, counts), tree.byte[nodes])

    def _reached(self, states: States, symbols: NDArray[np.uint8]) -> States:
        reached = self.automaton.step_many(states, symbols)
        return np.maximum(reached, COMPLETED, out=reached)

    def _near(self, nodes: Nodes, states: States) -> NDArray[np.bool_]:
        """Whether anything can happen at or below the nodes, from these states on."""
        reach = self.tree.heights[nodes]
        distances = self.automaton.distances(states)
        if self.slack:
            # 255 stands for more in both.
            return distances <= np.minimum(reach.astype(np.int16) + self.slack, 255)
        return distances <= reach

    def difference(self, state: int) -> Difference:
        """How the run from a state differs from the root's. Errors: `StateLimitError` of the automaton."""
        matches, others, states, cleared = [_NO_NODES], [_NO_NODES], [_NO_STATES], [_NO_NODES]
        parents, current = _ROOT, np.array([state], np.int32)
        while True:
            nodes, reached = self._step(parents, current)
            if not len(nodes):
                break
            usual = self.states[nodes]
            on = np.flatnonzero(reached != usual)
            nodes, reached, usual = nodes[on], reached[on], usual[on]
            if not len(nodes):
                break
            if reached.min() < 0:
                matched = reached < 0
                matches.append(nodes[matched])
                on = np.flatnonzero(~matched)
                nodes, reached, usual = nodes[on], reached[on], usual[on]
            near = self._near(nodes, reached)
            parents, current = nodes[near], reached[near]
            cleared.append(nodes[~near & (usual != UNVISITED)])
            if not len(parents):
                break
            others.append(parents)
            states.append(current)
        return Difference(
            np.concatenate(matches), np.concatenate(others), np.concatenate(states), np.concatenate(cleared)
        )

    @property
    def nbytes(self) -> int:
        """Bytes held; not the tree's nor the automaton's."""
        return self.states.nbytes + self.tops.nbytes + self.visited.nbytes


class SoftRun:
    """The same for a soft constraint: matches may complete, and the text go on.

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
        self.states: NDArray[np.int32] | NDArray[np.int16] = states.astype(np.int16) if small else states

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
            nodes, of = tree.children(parents)
            if not len(nodes):
                break
            reached = self._automaton.step_many(current[of], tree.byte[nodes])
            matched = reached < 0
            reached = np.where(matched, ~reached, reached)
            done = matched | completed[of]
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
