"""One constraint seen through one vocabulary: masks by differences from the root run.

The root's run over the prefix tree is kept once, and every other state is found by what differs (`tree_runs`): where a
run completes a match, so does every token below. Bytes that the automaton cannot tell apart share their nodes
(`PrefixTree.quotient`): a rule about digits sees a twentieth of the tree, and a state that differs from the root nearly
everywhere ("after the @ of an address") costs no more than others. `bruteforce` is the definition.

Cost: see `tree_runs`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nco_guard.compiler import Constraint
from nco_guard.errors import StateLimitError
from nco_guard.masking.idsets import NO_IDS, Ids, minus, union
from nco_guard.masking.short_ways import OpenPaths, ShortWays
from nco_guard.masking.tree_runs import SoftRun, TreeRuns
from nco_guard.storage.store import Arrays, Store, digest
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["MANY", "ConstraintTable", "StateView"]

MANY = 512  # pending tokens, from which on it is kept which states they lead to
# Nodes of a level that are looked at one by one rather than together.
_FEW = 8
_FOUND = "automaton."  # before the names of what is kept of the automaton


#: For each pending token the place of the state after it among distinct ones, and these. int32 [tokens], [states]
PendingAfter = tuple[NDArray[np.int32], NDArray[np.int32]]


@dataclass(frozen=True, slots=True)
class StateView:
    """What one state of one constraint means for every token. Arrays are shared and never written to.

    `completing`: sorted ids of the tokens that complete a match. `pending`: sorted ids of those after which the text
    may not end, some of `completing` perhaps among them. `may_end`: whether it may end in this state. `after`: where
    the pending tokens lead to, if they are more than `MANY`. Only `completing` is found for soft constraints.
    """

    completing: Ids
    pending: Ids
    may_end: bool
    after: PendingAfter | None = None


class PlainParts(NamedTuple):
    """A state as states of another table, `plain`, that reads the same tokens; no states: there is nothing to bar.

    apart: sorted ids of the tokens that mean something else. ways: bits of the short ways that mean the same after all
    other tokens.
    """

    plain: ConstraintTable
    states: tuple[int, ...]
    apart: Ids
    ways: int


class ConstraintTable:
    """Masks and transitions of one constraint over one vocabulary, found state by state.

    `tree`: the tokens that add text, or its quotient by the bytes that the automaton cannot tell apart. `store`: where
    the root run and what was found of the automaton are kept, see `to_keep`. `view_bytes`: how much of `nbytes` views
    of single states hold. `seen` bool [nodes]: scratch, all False between calls.
    Errors: `StateLimitError`, naming the rule.
    """

    def __init__(
        self,
        constraint: Constraint,
        tree: PrefixTree,
        vocabulary: Vocabulary,
        paths: ShortWays,
        seen: NDArray[np.bool_],
        store: Store | None = None,
    ) -> None:
        self.constraint = constraint
        self.automaton = constraint.automaton
        self.root = self.automaton.start
        self._hard = constraint.hard
        self._tree = tree
        self._width = vocabulary.width
        self._tokens = vocabulary.tokens
        self.open_paths = OpenPaths(paths, self.automaton)
        self._views: dict[int, StateView] = {}
        self.view_bytes = 0
        self._seen = seen
        self._store = store if constraint.key else None
        self._key = digest(constraint.key, vocabulary.digest, tree.merged) if self._store is not None else ""
        self._kept_progress = 0
        self._run: TreeRuns | SoftRun
        if self._recall():
            return
        try:
            self._run_root()
        except StateLimitError as error:
            raise self.named(error) from None

    def _run_root(self) -> None:
        if self.constraint.hard:
            self._run = TreeRuns(self.automaton, self._tree, self._seen)
        else:
            self._run = SoftRun(self.automaton, self._tree)
        self._look_at_root()

    @property
    def uncut(self) -> ConstraintTable | None:
        """The table that `parts` speaks of, if there is one."""
        return None

    def parts(self, state: int) -> PlainParts | None:
        """What a state means for most tokens, by states of a table over the same tokens; None: that is not known."""
        del state
        return None

    def emptied(self) -> ConstraintTable:
        """This table, sharing what was found about the root, before any other state was looked at."""
        table = copy.copy(self)
        table._views, table.view_bytes = {}, 0
        table._references = self._references[:1]
        if isinstance(self._run, TreeRuns):
            table._run = self._run.emptied()
        return table

    def _recall(self) -> bool:
        arrays = self._store.load("table", self._key) if self._store is not None else None
        if arrays is None:
            return False
        found = {name[len(_FOUND) :]: array for name, array in arrays.items() if name.startswith(_FOUND)}
        if not self.automaton.recall(found):
            return False
        if self.constraint.hard:
            self._run = TreeRuns(
                self.automaton,
                self._tree,
                self._seen,
                root=(arrays["nodes"].astype(np.int64), arrays["states"]),
            )
        else:
            self._run = SoftRun.of(self.automaton, self._tree, arrays["states"], arrays["completed"])
        self._look_at_root()
        self._kept_progress = self.automaton.progress
        return True

    def to_keep(self, growth: float) -> tuple[str, Arrays] | None:
        """What to keep in the store under which key; None if the automaton has grown less since, or cannot be kept.

        `growth`: by which part of what was found, at least.
        """
        progress = self.automaton.progress
        if self._store is None or progress <= self._kept_progress * (1 + growth):
            return None
        found = self.automaton.found()
        if found is None:
            return None
        self._kept_progress = progress
        arrays = {_FOUND + name: array for name, array in found.items()}
        if isinstance(self._run, SoftRun):
            arrays |= {"states": self._run.states, "completed": self._run.completed}
        else:
            nodes, states = self._run.root.items()
            arrays |= {"states": states, "nodes": nodes.astype(np.int32)}
        return self._key, arrays

    def named(self, error: StateLimitError) -> StateLimitError:
        """The error, with the rules that this constraint stands for."""
        return StateLimitError(error.message, rule_id=", ".join(self.constraint.rule_ids[:3]))

    def _look_at_root(self) -> None:
        tree, run = self._tree, self._run
        # What the known runs come to: the view of each, and its nodes where matches complete or the text may not end.
        self._references: list[tuple[StateView, Ids, Ids]] = []
        if isinstance(run, SoftRun):
            completing = np.sort(tree.order[run.completed[tree.node_of]])
            self._root_view = StateView(completing, NO_IDS, True)
            return
        nodes, states = run.root.alive()
        at = np.flatnonzero(tree.exact[nodes])
        at = at[~self.automaton.may_end_many(states[at])]
        pending = nodes[at]
        tops = run.root.tops()
        completing = union([tree.tokens_below(tops)], self._width)
        self._root_view = self._view(self.automaton.may_end(self.root), completing, pending, states[at])
        self._references.append((self._root_view, tops, pending))

    def _view(self, may_end: bool, completing: Ids, pending: Ids, after: NDArray[np.int32]) -> StateView:
        """`pending`: the nodes at which the text may not end; `after`: the states there."""
        ids, at = self._tree.tokens_at(pending)
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        if len(ids) <= MANY:
            return StateView(completing, ids, may_end)
        distinct, codes = np.unique(after, return_inverse=True)
        places = codes.ravel().astype(np.int32)[at[order]]
        self.view_bytes += places.nbytes
        return StateView(completing, ids, may_end, (places, distinct.astype(np.int32)))

    # -- one state ---------------------------------------------------------------------------------------------

    def view(self, state: int) -> StateView:
        """What a state means for every token; found on first use."""
        known = self._views.get(state)
        if known is None:
            try:
                known = self._find(state)
            except StateLimitError as error:
                raise self.named(error) from None
            self._views[state] = known
            shared = self._root_view
            self.view_bytes += 200
            if known.completing is not shared.completing:
                self.view_bytes += known.completing.nbytes
            if known.pending is not shared.pending:
                self.view_bytes += known.pending.nbytes
        return known

    def _find(self, state: int) -> StateView:
        root, run = self._root_view, self._run
        if state == self.root:
            return root
        if isinstance(run, SoftRun):
            removed, added = run.difference(state)
            rest = minus(root.completing, union([removed], self._width), self._width)
            return StateView(union([rest, added], self._width), NO_IDS, True)
        idle = self.automaton.idle
        if idle is not None and state != idle:
            self.view(idle)  # others are compared with it
        nearest, found = run.difference(state)
        known, all_tops, pending_nodes = self._references[nearest]
        tops, pending = run.left(all_tops, found), run.left(pending_nodes, found)
        completing = known.completing
        if len(tops) < len(all_tops):
            completing = union([self._tree.tokens_below(np.concatenate([tops, found.matched]))], self._width)
        elif len(found.matched):
            completing = union([completing, self._tree.tokens_below(found.matched)], self._width)
        exact = self._tree.exact[found.changed] > 0
        nodes = found.changed[exact]
        ending = self.automaton.may_end_many(found.states[exact])
        waiting = nodes[~ending]
        if not len(waiting) and len(pending) == len(pending_nodes):
            view = StateView(completing, known.pending, self.automaton.may_end(state), known.after)
        else:
            before = run.known[nearest].at(pending).astype(np.int32)
            there = found.states[exact][~ending]
            pending = np.concatenate([pending, waiting])
            after = np.concatenate([before, there])
            view = self._view(self.automaton.may_end(state), completing, pending, after)
        if run.worth_keeping(state, found):
            self._references[len(run.known) :] = [(view, np.concatenate([tops, found.matched]), pending)]
            run.keep(state, nearest, found)
            self.view_bytes += run.known[-1].nbytes + tops.nbytes + found.matched.nbytes + pending.nbytes
        return view

    def tokens_barring(
        self, state: int, beyond: int, opens: Callable[[NDArray[np.int32]], NDArray[np.bool_]]
    ) -> Ids:
        """Sorted ids of the tokens that lead from a state to one that is not open, and complete no match.

        `opens` int32 [states] -> bool [states]: whether a text of `beyond` bytes is open there. Cost: a step for every
        node of the tree below which something can happen within that text.
        """
        tree = self._tree
        parents, current = np.zeros(1, np.int64), np.array([state], np.int32)
        held, states = [NO_IDS], [current[:0]]
        while len(parents) > _FEW or len(held) == 1:
            nodes, counts = tree.children(parents)
            reached = self.automaton.step_many(np.repeat(current, counts), tree.byte[nodes])
            on = np.flatnonzero(reached >= 0)
            nodes, reached = nodes[on], reached[on]
            # 255 stands for more in distances.
            reach = np.minimum(tree.heights[nodes].astype(np.int16) + beyond, 255)
            near = np.flatnonzero(self.automaton.distances(reached) <= reach)
            parents, current = nodes[near], reached[near]
            held.append(parents)
            states.append(current)
        rest = self._near_below(parents, current, beyond)
        found, at = np.concatenate([*held, rest[0]]), np.concatenate([*states, rest[1]])
        exact = np.flatnonzero(tree.exact[found] > 0)
        shut = found[exact[~opens(at[exact])]]
        return union([tree.tokens_at(shut)[0]], self._width)

    def _near_below(
        self, parents: Ids, current: NDArray[np.int32], beyond: int
    ) -> tuple[Ids, NDArray[np.int32]]:
        """The nodes below these, and the states there, as in `tokens_barring`, one by one.

        The last levels are those of a few long tokens, such as lines of dashes.
        """
        step, distance = self.automaton.step, self.automaton.distance
        tree = self._tree
        firsts, counts, letters, heights = (
            array.data for array in (tree.first_child, tree.child_count, tree.byte, tree.heights)
        )
        nodes, states = list[int](), list[int]()
        stack = list(zip(parents.tolist(), current.tolist(), strict=True))
        while stack:
            parent, before = stack.pop()
            first = firsts[parent]
            for node in range(first, first + counts[parent]):
                reached = step(before, letters[node])
                if reached >= 0 and distance(reached) <= min(heights[node] + beyond, 255):
                    nodes.append(node)
                    states.append(reached)
                    stack.append((node, reached))
        return np.array(nodes, np.int64), np.array(states, np.int32)

    # -- transitions -------------------------------------------------------------------------------------------

    def next(self, state: int, token: int) -> int:
        """The state after a token; negative if a match of a hard constraint completes. Cost: a step a byte."""
        if self._hard:
            return self.automaton.read(state, self._tokens[token])
        for byte in self._tokens[token]:
            state = self.automaton.step(state, byte)
            state = ~state if state < 0 else state
        return state

    def completes_end(self, state: int, token: int) -> bool:
        """Whether ending the text with this end-of-sequence token, and the text it may carry, completes a match."""
        state = self.automaton.read(state, self._tokens[token])
        return state < 0 or not self.automaton.may_end(state)

    @property
    def nbytes(self) -> int:
        """Bytes held: the root run, the views found so far and the automaton's transitions; not the tree."""
        root = self._root_view
        run = self._run.root if isinstance(self._run, TreeRuns) else self._run
        held = run.nbytes + sum(t.nbytes + p.nbytes for _, t, p in self._references[:1])
        held += root.completing.nbytes + root.pending.nbytes
        return held + self.view_bytes + self.open_paths.nbytes + self.automaton.nbytes
