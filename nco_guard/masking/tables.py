"""One constraint seen through one vocabulary: masks by differences from the root run.

Search automata forget. From almost every state, after a byte or two of a token, the run is in the same state as the
run that began at the root; from there on the two are identical. So the root's run over the whole prefix tree is
kept once, and every other state is found by what differs:

    walk the tree; keep a child only while its state, coming from q, is not the root's;
    where q's run completes a match, so does every token below.

Exact for any deterministic search automaton; Aho-Corasick failure links are the special case. Bytes that the automaton
cannot tell apart share their nodes (`PrefixTree.quotient`): a rule about digits sees a twentieth of the tree, and a
state that differs from the root nearly everywhere ("after the @ of an address") costs no more than others.
`bruteforce` is the definition.

Cost: the root run once per constraint, some 20 ns a node and a Python call for each transition of the automaton not
met before; a new state some dozen microseconds per level that its walk reaches, usually two to four.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nco_guard.compiler import Constraint
from nco_guard.errors import StateLimitError
from nco_guard.masking.exits import ENDING_NOW, ExitPaths, OpenPaths
from nco_guard.masking.idsets import NO_IDS, Ids, minus, union
from nco_guard.store import Arrays, Store, digest
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["ConstraintTable", "StateView"]

_COMPLETED = -1  # in state arrays of hard constraints: a match has completed on the way
_KEPT_BYTES = 32 << 20
_FOUND = "automaton."  # before the names of what is kept of the automaton
_NO_BITS: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class StateView:
    """What one state of one constraint means for every token. Arrays are shared and never written to.

    `completing`: sorted ids of the tokens that complete a match. Of the tokens that do not: `unusual`, those after
    which other ways out (`exits`) are barred than usual for the constraint, with `barred`, which ones, as bits; and
    `pending`, those after which the text may not end. `may_end`: whether it may end in this state. Only `completing`
    is found for soft constraints.
    """

    completing: Ids
    unusual: Ids
    barred: NDArray[np.int64]
    pending: Ids
    may_end: bool


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
        paths: ExitPaths,
        seen: NDArray[np.bool_],
        store: Store | None = None,
    ) -> None:
        self.constraint = constraint
        self.automaton = constraint.automaton
        self.root = self.automaton.start
        self._tree = tree
        self._width = vocabulary.width
        self._tokens = vocabulary.tokens
        self._paths = paths
        self.open_paths = OpenPaths(paths, self.automaton)
        self._views: dict[int, StateView] = {}
        self.view_bytes = 0
        # Soft constraints go on after a match: whether one has completed is kept apart from the state.
        self._node_completed: NDArray[np.bool_] = np.zeros(0 if constraint.hard else len(tree), bool)
        self._seen = seen
        self._node_state: NDArray[np.int32] | NDArray[np.int16] = np.zeros(0, np.int16)
        self._store = store if constraint.key else None
        self._tops: Ids = NO_IDS
        self._key = digest(constraint.key, vocabulary.digest, tree.merged) if self._store is not None else ""
        self._kept_progress = 0
        if self._recall():
            return
        try:
            self._run_root()
        except StateLimitError as error:
            raise self._named(error) from None

    def emptied(self) -> ConstraintTable:
        """The same table, sharing what was found about the root, before any other state was looked at."""
        table = copy.copy(self)
        table._views, table.view_bytes = {}, 0
        return table

    def _recall(self) -> bool:
        arrays = self._store.load("table", self._key) if self._store is not None else None
        if arrays is None:
            return False
        found = {name[len(_FOUND) :]: array for name, array in arrays.items() if name.startswith(_FOUND)}
        if not self.automaton.recall(found):
            return False
        self._node_state = arrays["states"]
        self.open_paths.recall(arrays["open_paths"])
        completing = arrays["completing"].astype(np.int64)
        if self.constraint.hard:
            self._tops, self._unusual_nodes = (arrays[n].astype(np.int64) for n in ("tops", "unusual_nodes"))
            self._barred_bits, self.usual = arrays["barred_bits"], int(arrays["usual"][0])
            self._root_view = self._view(self.root, completing, self._unusual_nodes, self._barred_bits)
        else:
            self._node_completed = arrays["completed"]
            self._root_view = StateView(completing, NO_IDS, _NO_BITS, NO_IDS, True)
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
        if found is None or self.open_paths.nbytes > _KEPT_BYTES:
            return None
        self._kept_progress = progress
        arrays = {
            **{_FOUND + name: array for name, array in found.items()},
            "states": self._node_state,
            "open_paths": self.open_paths.found(),
            "completing": self._root_view.completing.astype(np.int32),
        }
        if self.constraint.hard:
            arrays |= {
                "tops": self._tops.astype(np.int32),
                "unusual_nodes": self._unusual_nodes.astype(np.int32),
            }
            arrays |= {"barred_bits": self._barred_bits, "usual": np.array([self.usual], np.int64)}
        else:
            arrays["completed"] = self._node_completed
        return self._key, arrays

    def _named(self, error: StateLimitError) -> StateLimitError:
        return StateLimitError(error.message, rule_id=", ".join(self.constraint.rule_ids[:3]))

    def _run_root(self) -> None:
        tree, hard = self._tree, self.constraint.hard
        states: NDArray[np.int32] = np.zeros(len(tree), np.int32)
        states[0] = self.root
        for first, last in tree.levels:
            above = tree.parent[first:last]
            before = states[above]
            dead = before < 0
            if dead.any():
                before[dead] = self.root
            reached = self.automaton.step_many(before, tree.byte[first:last])
            if hard:
                reached[dead | (reached < 0)] = _COMPLETED
            else:
                matched = reached < 0
                self._node_completed[first:last] = matched | self._node_completed[above]
                reached[matched] = ~reached[matched]
            states[first:last] = reached
        small = self.automaton.state_count <= np.iinfo(np.int16).max
        self._node_state = states.astype(np.int16) if small else states
        if not hard:
            completing = np.sort(tree.order[self._node_completed[tree.node_of]])
            self._root_view = StateView(completing, NO_IDS, _NO_BITS, NO_IDS, True)
            return
        completed = states < 0
        # The first nodes on each way at which a match is complete: all below complete too.
        self._tops = np.flatnonzero(completed & ~completed[tree.parent])
        alive = np.flatnonzero(~completed & (tree.exact > 0))
        barred = self._paths.every & ~self.open_paths.of(states[alive])
        # The rest of a character is no way out but of the middle of one: for well-formed UTF-8 nearly all is barred.
        paths = range(1, len(self._paths.tokens)) if np.count_nonzero(barred) * 2 > len(alive) else ()
        self.usual = sum(1 << n for n in paths if np.count_nonzero(barred >> n & 1) * 2 > len(alive))
        some = np.flatnonzero(barred != self.usual)
        self._unusual_nodes, self._barred_bits = alive[some], barred[some]
        completing = union([tree.tokens_below(self._tops)], self._width)
        self._root_view = self._view(self.root, completing, self._unusual_nodes, self._barred_bits)

    def _view(self, state: int, completing: Ids, nodes: Ids, bits: NDArray[np.int64]) -> StateView:
        unusual, at = self._tree.tokens_at(nodes)
        barred = bits[at]
        pending = unusual[(barred & ENDING_NOW).astype(bool)]
        return StateView(completing, unusual, barred, pending, self.automaton.may_end(state))

    # -- one state ---------------------------------------------------------------------------------------------

    def view(self, state: int) -> StateView:
        """What a state means for every token; found on first use."""
        known = self._views.get(state)
        if known is None:
            try:
                known = self._find(state)
            except StateLimitError as error:
                raise self._named(error) from None
            self._keep(state, known, self._root_view)
        return known

    def _keep(self, state: int, view: StateView, shared: StateView) -> StateView:
        """Keep a view, some of whose arrays may be another's."""
        self._views[state] = view
        self.view_bytes += 200
        if view.completing is not shared.completing:
            self.view_bytes += view.completing.nbytes
        if view.unusual is not shared.unusual:
            self.view_bytes += view.unusual.nbytes + view.barred.nbytes + view.pending.nbytes
        return view

    def _find(self, state: int) -> StateView:
        if state == self.root:
            return self._root_view
        if not self.constraint.hard:
            return StateView(self._walk_soft(state), NO_IDS, _NO_BITS, NO_IDS, True)
        matched, changed, states = self._walk(state)
        root, seen = self._root_view, self._seen
        seen[changed] = True
        tops = self._tops[~seen[self._tops]]
        inherited = ~seen[self._unusual_nodes]
        seen[changed] = False
        completing = root.completing
        if len(tops) < len(self._tops):
            completing = union([self._tree.tokens_below(np.concatenate([tops, matched]))], self._width)
        elif len(matched):
            completing = union([completing, self._tree.tokens_below(matched)], self._width)
        exact = self._tree.exact[changed] > 0
        nodes = changed[exact]
        barred = self._paths.every & ~self.open_paths.of(states[exact])
        some = barred != self.usual
        if inherited.all() and not some.any():
            may_end = self.automaton.may_end(state)
            return StateView(completing, root.unusual, root.barred, root.pending, may_end)
        nodes = np.concatenate([self._unusual_nodes[inherited], nodes[some]])
        bits = np.concatenate([self._barred_bits[inherited], barred[some]])
        return self._view(state, completing, nodes, bits)

    def _walk(self, state: int) -> tuple[Ids, Ids, NDArray[np.int32]]:
        """The nodes at which a match completes that does not at the root; those in another state, and which states.

        Of the latter only those below which that can matter.
        """
        tree = self._tree
        matches: list[Ids] = [NO_IDS]
        others: list[Ids] = [NO_IDS]
        states: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
        parents = np.zeros(1, np.int64)
        current = np.array([state], np.int32)
        while len(parents):
            nodes, of = tree.children(parents)
            if not len(nodes):
                break
            reached = self.automaton.step_many(current[of], tree.byte[nodes])
            matched = reached < 0
            if matched.any():
                matches.append(nodes[matched & ~self._tops_among(nodes)])
            on = ~matched & (reached != self._node_state[nodes])
            parents, current = nodes[on], reached[on]
            distances = self.automaton.distances(current)
            if distances is not None:
                # Too far from any match for the tokens below, and for the ways out tried after them, to differ.
                near = distances <= self._tree.heights[parents].astype(np.int16) + self._paths.longest
                parents, current = parents[near], current[near]
            others.append(parents)
            states.append(current)
        return np.concatenate(matches), np.concatenate(others), np.concatenate(states)

    def _tops_among(self, nodes: Ids) -> NDArray[np.bool_]:
        states = self._node_state
        return (states[nodes] < 0) & (states[self._tree.parent[nodes]] >= 0)

    def _walk_soft(self, state: int) -> Ids:
        """Sorted ids of the completing tokens, where matches may complete and the text go on."""
        tree = self._tree
        added: list[Ids] = []
        removed: list[Ids] = []
        parents = np.zeros(1, np.int64)
        current = np.array([state], np.int32)
        completed = np.zeros(1, bool)
        while len(parents):
            nodes, of = tree.children(parents)
            if not len(nodes):
                break
            reached = self.automaton.step_many(current[of], tree.byte[nodes])
            matched = reached < 0
            reached = np.where(matched, ~reached, reached)
            done = matched | completed[of]
            root_completed = self._node_completed[nodes]
            same = reached == self._node_state[nodes]
            added.append(tree.tokens_below(nodes[same & done & ~root_completed]))
            on = ~same | (root_completed & ~done)
            parents, current, completed = nodes[on], reached[on], done[on]
            ids, at = tree.tokens_at(parents)
            added.append(ids[completed[at]])
            removed.append(ids[~completed[at]])
        rest = minus(self._root_view.completing, union(removed, self._width), self._width)
        return union([rest, *added], self._width)

    # -- transitions -------------------------------------------------------------------------------------------

    def next(self, state: int, token: int) -> int:
        """The state after a token; negative if a match of a hard constraint completes. Cost: a step a byte."""
        for byte in self._tokens[token]:
            state = self.automaton.step(state, byte)
            if state < 0:
                if self.constraint.hard:
                    break
                state = ~state
        return state

    def next_many(self, state: int, tokens: Ids) -> NDArray[np.int32]:
        """`next` for many tokens that complete no match here. int32."""
        words = [self._tokens[token] for token in tokens.tolist()]
        lengths = np.array([len(word) for word in words])
        reached = np.full(len(words), state, np.int32)
        for place in range(int(lengths.max(initial=0))):
            longer = np.flatnonzero(lengths > place)
            symbols = np.array([words[i][place] for i in longer.tolist()], np.uint8)
            reached[longer] = self.automaton.step_many(reached[longer], symbols)
        return reached

    def completes_end(self, state: int, token: int) -> bool:
        """Whether ending the text with this end-of-sequence token, and the text it may carry, completes a match."""
        for byte in self._tokens[token]:
            state = self.automaton.step(state, byte)
            if state < 0:
                return True
        return not self.automaton.may_end(state)

    @property
    def nbytes(self) -> int:
        """Bytes held: the root run, the views found so far and the automaton's transitions; not the tree."""
        arrays = [self._node_state, self._node_completed, self._root_view.completing]
        if self.constraint.hard:
            arrays += [self._tops, self._unusual_nodes, self._barred_bits]
            arrays += [self._root_view.unusual, self._root_view.barred, self._root_view.pending]
        held = sum(a.nbytes for a in arrays)
        return held + self.view_bytes + self.open_paths.nbytes + self.automaton.nbytes
