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

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import AhoCorasick
from nco_guard.masking.idsets import NO_IDS, Ids, union
from nco_guard.masking.tables import ConstraintTable, StateView
from nco_guard.tokens import PrefixTree

__all__ = ["StringTable"]

States = NDArray[np.int32]

# Up to so many steps from node to node are taken one by one.
_FEW = 96


class StringTable(ConstraintTable):
    """The table of a constraint whose automaton is an `AhoCorasick`; the tree is the whole one, not a quotient."""

    @property
    def _strings(self) -> AhoCorasick:
        if not isinstance(self.automaton, AhoCorasick):
            raise TypeError("this table is for lists of strings")
        return self.automaton

    @cached_property
    def _reach(self) -> int:
        """How many bytes after a token can matter: of the ways out, those that can complete a string."""
        return self._paths.reach(self._strings.last_bytes) if self.constraint.hard else 0

    def _run_root(self) -> None:
        self._node_completed = np.zeros(0, bool)
        walk = self._walk_root(spaceless=False)
        root = np.array([self.root], np.int32)
        self.usual = int(self._barred(root)[0]) if self.constraint.hard else 0
        self._unusual_nodes, self._barred_bits = self._unusual(walk)
        completing = self._completing(walk.completed)
        self._root_view = self._view(self.root, completing, self._unusual_nodes, self._barred_bits)
        _ = self._tree.edges  # so that no step has to

    def _completing(self, nodes: Ids) -> Ids:
        """The tokens that begin with the bytes of one of the nodes, some of which may be below others."""
        tree = self._tree
        low, high = tree.low[nodes], tree.high[nodes]
        if int(high.sum(dtype=np.int64) - low.sum(dtype=np.int64)) < len(tree.order):
            return union([tree.tokens_below(nodes)], self._width)
        size = len(tree.order) + 1
        begun = np.cumsum(np.bincount(low, minlength=size) - np.bincount(high, minlength=size))
        return union([tree.order[begun[:-1] > 0]], self._width)

    def _unusual(self, walk: _Walk) -> tuple[Ids, NDArray[np.int64]]:
        """The nodes after which more is barred than after any text, and what is; the walk began in several places."""
        barred = self._barred(walk.states)
        some = np.flatnonzero(barred != self.usual)
        # Of several states at one node the one that remembers most bars what all of them do: it has the highest number.
        some = some[np.lexsort((-walk.states[some], walk.near[some]))]
        nodes = walk.near[some]
        first = np.ones(len(some), bool)
        first[1:] = nodes[1:] != nodes[:-1]
        return nodes[first], barred[some[first]]

    def _barred(self, states: States) -> NDArray[np.int64]:
        return self._paths.every & ~self.open_paths.of(states)

    def _walk_root(self, *, spaceless: bool) -> _Walk:
        """All strings, from any place within the tokens. `spaceless`: but for a space with which a token begins."""
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
        walk = _Walk(strings, tree, self._reach)
        walk.go_on(*walk.sort_out(nodes, reached[tree.byte[nodes]]))
        return walk

    def _find(self, state: int) -> StateView:
        if state == self.root:
            return self._root_view
        shorter = self._strings.shorter(state)
        if shorter is None:
            return self._find_spaceless(state)
        chain = [state]
        while shorter not in self._views and shorter != self.root:
            chain.append(shorter)
            shorter = self._strings.shorter(shorter) or self.root
        view = self.view(shorter)
        while len(chain) > 1:
            longer = chain.pop()
            view = self._keep(longer, self._with_added(longer, view), view)
        return self._with_added(state, view)

    def _find_spaceless(self, state: int) -> StateView:
        walk = self._walk_root(spaceless=True)
        return self._view(state, self._completing(walk.completed), *self._unusual(walk))

    def _with_added(self, state: int, shorter: StateView) -> StateView:
        tree = self._tree
        walk = _Walk(self._strings, tree, self._reach)
        walk.go_on(np.zeros(1, np.int64), np.array([state], np.int32))
        completing, unusual, barred = shorter.completing, shorter.unusual, shorter.barred
        if len(walk.completed):
            completing = union([completing, tree.tokens_below(walk.completed)], self._width)
        if len(walk.near):
            own = self._barred(walk.states)
            tokens, at = tree.tokens_at(walk.near)
            some = own[at] != self.usual
            inherited = ~np.isin(unusual, tokens)
            if some.any() or not inherited.all():
                unusual = np.concatenate([unusual[inherited], tokens[some]])
                barred = np.concatenate([barred[inherited], own[at][some]])
        # Such an automaton lets the text end anywhere, so nothing is pending.
        return StateView(completing, unusual, barred, shorter.pending, True)


class _Walk:
    """Nodes of the tree of tokens and states of the automaton that are reached by the same bytes.

    `completed`: the nodes at which a string is complete; the walk does not go below. `near`, `states`: the nodes at
    which tokens end and after which at most `reach` bytes can complete a string, and the states there.
    """

    def __init__(self, strings: AhoCorasick, tree: PrefixTree, reach: int) -> None:
        self._strings, self._tree, self._reach = strings, tree, reach
        self.completed: Ids = NO_IDS
        self.near: Ids = NO_IDS
        self.states: States = np.zeros(0, np.int32)

    def go_on(self, nodes: Ids, states: States) -> None:
        """From there by all that strings and tokens have in common, but not the first of them themselves."""
        strings, tree = self._strings, self._tree
        while len(nodes) and (ways := strings.ways(states)) > _FEW:
            # From the side that has fewer ways to go on.
            if int(tree.child_count[nodes].sum()) < ways:
                below, of = tree.children(nodes)
                reached = strings.longer_by(states[of], tree.byte[below])
                there = np.flatnonzero(reached >= 0)
            else:
                reached, of, letters = strings.longer_many(states)
                below = tree.child_many(nodes[of], letters)
                there = np.flatnonzero(below >= 0)
            nodes, states = self.sort_out(below[there], reached[there])
        if len(nodes):
            self._one_by_one(list(zip(nodes.tolist(), states.tolist(), strict=True)))

    def sort_out(self, nodes: Ids, states: States) -> tuple[Ids, States]:
        """Note what is complete and what is near; those from where a string can be completed within the tokens."""
        strings, tree = self._strings, self._tree
        ending = strings.outputs[states]
        if ending.any():
            self.completed = np.concatenate([self.completed, nodes[ending]])
            nodes, states = nodes[~ending], states[~ending]
        far = strings.distances(states)
        on = np.flatnonzero(far <= tree.heights[nodes].astype(np.int16) + self._reach)
        nodes, states, far = nodes[on], states[on], far[on]
        close = np.flatnonzero(far <= self._reach)
        if len(close):
            close = close[tree.exact[nodes[close]] > 0]
            self._note(nodes[close], states[close])
        return nodes, states

    def _note(self, near: Ids, states: States) -> None:
        self.near = np.concatenate([self.near, near])
        self.states = np.concatenate([self.states, states])

    def _one_by_one(self, stack: list[tuple[int, int]]) -> None:
        tree, reach, longer = self._tree, self._reach, self._strings.longer
        outputs, distances = self._strings.outputs.data, self._strings.distance_of_all.data
        letters, firsts, counts = tree.byte.data, tree.first_child.data, tree.child_count.data
        heights, exact = tree.heights.data, tree.exact.data
        completed: list[int] = []
        near: list[int] = []
        states: list[int] = []
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
                    else:
                        far = distances[reached]
                        if far <= heights[child] + reach:
                            stack.append((child, reached))
                            if far <= reach and exact[child]:
                                near.append(child)
                                states.append(reached)
                reached += 1
        if completed:
            self.completed = np.concatenate([self.completed, np.array(completed, np.int64)])
        if near:
            self._note(np.array(near, np.int64), np.array(states, np.int32))
