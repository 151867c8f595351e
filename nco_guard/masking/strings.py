"""Lists of strings seen through one vocabulary: what each state forbids beyond the state that remembers less.

A token completes a string after some text if the string is within the token, which is so after any text, or if some
ending of the text is the beginning of the string and the token goes on with the rest. The endings of the text that are
beginnings of strings are the automaton's state and what its failure links lead to: so the mask of a state is the mask
of the next shorter one and what its own text adds. To find that, the tree of the strings and that of the tokens are
walked together, only where what is left of the string is no longer than the tokens are. So no run over the whole
prefix tree is needed, and none is kept.

Cost: the root some milliseconds for a million strings, under one for a few; another state some microseconds if few
strings begin with its text, else some dozen for each level of the walk, usually one or two.
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import AhoCorasick
from nco_guard.masking.idsets import NO_IDS, Ids, union
from nco_guard.masking.tables import ConstraintTable, StateView
from nco_guard.storage.store import Arrays
from nco_guard.tokens import PrefixTree

__all__ = ["StringTable"]

States = NDArray[np.int32]

# Up to so many steps from node to node are taken one by one.
_FEW = 96
_HIGHEST = 250  # what `PrefixTree.heights` says of longer tokens too


class StringTable(ConstraintTable):
    """The table of a constraint whose automaton is an `AhoCorasick`; the tree is the whole one, not a quotient."""

    @property
    def _strings(self) -> AhoCorasick:
        if not isinstance(self.automaton, AhoCorasick):
            raise TypeError("this table is for lists of strings")
        return self.automaton

    def _run_root(self) -> None:
        self._root_view = StateView(self._completing(self._walk_root(spaceless=False)), NO_IDS, True)
        _ = self._tree.edges  # so that no step has to

    def _recall(self) -> bool:
        return False

    def to_keep(self, growth: float) -> tuple[str, Arrays] | None:
        """Nothing: the automaton is kept with its group, and the root's walk is as quick as reading it would be."""
        return None

    def emptied(self) -> StringTable:
        """This table before any state but the root was looked at."""
        table = copy.copy(self)
        table._views, table.view_bytes = {}, 0
        return table

    @property
    def nbytes(self) -> int:
        """Bytes held: the views found so far and the automaton; not the tree."""
        held = self._root_view.completing.nbytes + self.view_bytes
        return held + self.open_paths.nbytes + self.automaton.nbytes

    def _completing(self, nodes: Ids) -> Ids:
        """The tokens that begin with the bytes of one of the nodes, some of which may be below others."""
        tree = self._tree
        low, high = tree.low[nodes], tree.high[nodes]
        if int(high.sum(dtype=np.int64) - low.sum(dtype=np.int64)) < len(tree.order):
            return union([tree.tokens_below(nodes)], self._width)
        size = len(tree.order) + 1
        begun = np.cumsum(np.bincount(low, minlength=size) - np.bincount(high, minlength=size))
        return union([tree.order[begun[:-1] > 0]], self._width)

    def _walk_root(self, *, spaceless: bool) -> Ids:
        """Where strings are complete that begin at any place within the tokens.

        `spaceless`: but for a space with which a token begins.
        """
        tree, strings = self._tree, self._strings
        first, letters = strings.longer(self.root)
        begins, reached = np.zeros(256, bool), np.zeros(256, np.int32)
        begins[np.frombuffer(letters, np.uint8)] = True
        reached[begins] = np.arange(first, first + len(letters))
        found = begins[tree.byte]
        found[0] = False
        if spaceless:
            tops = slice(1, 1 + int(tree.child_count[0]))
            found[tops] &= tree.byte[tops] != 0x20
        nodes = np.flatnonzero(found)
        ended, nodes, states = _sorted_out(strings, tree, nodes, reached[tree.byte[nodes]])
        return np.concatenate([ended, _completed(strings, tree, nodes, states)])

    def _find(self, state: int) -> StateView:
        if state == self.root:
            return self._root_view
        shorter = self._strings.shorter(state)
        if shorter is None:
            return StateView(self._completing(self._walk_root(spaceless=True)), NO_IDS, True)
        chain = [state]
        while shorter not in self._views and shorter != self.root:
            chain.append(shorter)
            shorter = self._strings.shorter(shorter) or self.root
        view = self.view(shorter)
        while len(chain) > 1:
            longer = chain.pop()
            added = self._with_added(longer, view)
            self._views[longer] = added
            self.view_bytes += 200 + (0 if added is view else added.completing.nbytes)
            view = added
        return self._with_added(state, view)

    def _with_added(self, state: int, shorter: StateView) -> StateView:
        completed = _completed(self._strings, self._tree, np.zeros(1, np.int64), np.array([state], np.int32))
        if not len(completed):
            return shorter
        # Such an automaton lets the text end anywhere, so nothing is pending.
        found = union([shorter.completing, self._tree.tokens_below(completed)], self._width)
        return StateView(found, NO_IDS, True)


def _completed(strings: AhoCorasick, tree: PrefixTree, nodes: Ids, states: States) -> Ids:
    """The nodes below at which a string is complete that goes on from a node and a state by the same bytes."""
    completed: list[Ids] = []
    while len(nodes) and (ways := strings.ways(states)) > _FEW:
        # From the side that has fewer ways to go on.
        if int(tree.child_count[nodes].sum()) < ways:
            below, counts = tree.children(nodes)
            reached = strings.longer_by(np.repeat(states, counts), tree.byte[below])
            there = np.flatnonzero(reached >= 0)
        else:
            reached, of, letters = strings.longer_many(states)
            below = tree.child_many(nodes[of], letters)
            there = np.flatnonzero(below >= 0)
        ended, nodes, states = _sorted_out(strings, tree, below[there], reached[there])
        completed.append(ended)
    if len(nodes):
        pairs = list(zip(nodes.tolist(), states.tolist(), strict=True))
        completed.append(_one_by_one(strings, tree, pairs))
    return np.concatenate(completed) if completed else NO_IDS


def _sorted_out(
    strings: AhoCorasick, tree: PrefixTree, nodes: Ids, states: States
) -> tuple[Ids, Ids, States]:
    """The nodes at which a string is complete; those from where one can be within the tokens, and their states."""
    ending = strings.outputs[states]
    completed = NO_IDS
    if ending.any():
        completed, nodes, states = nodes[ending], nodes[~ending], states[~ending]
    on = np.flatnonzero(np.minimum(strings.distances(states), _HIGHEST) <= tree.heights[nodes])
    return completed, nodes[on], states[on]


def _one_by_one(strings: AhoCorasick, tree: PrefixTree, stack: list[tuple[int, int]]) -> Ids:
    longer, outputs, distances = strings.longer, strings.outputs.data, strings.distance_of_all.data
    letters, firsts, counts = tree.byte.data, tree.first_child.data, tree.child_count.data
    heights = tree.heights.data
    completed: list[int] = []
    while stack:
        node, before = stack.pop()
        reached, ways = longer(before)
        first = firsts[node]
        siblings = letters[first : first + counts[node]].tobytes()
        for byte in ways:
            place = siblings.find(byte)
            if place >= 0:
                child = first + place
                if outputs[reached]:
                    completed.append(child)
                elif min(distances[reached], _HIGHEST) <= heights[child]:
                    stack.append((child, reached))
            reached += 1
    return np.array(completed, np.int64) if completed else NO_IDS
