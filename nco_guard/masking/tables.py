"""One constraint seen through one vocabulary: masks and transitions by differences from the root run.

Search automata forget. From almost every state, after a byte or two of a token, the run is in the same state as the
run that began at the root; from there on the two are identical. So the root's run over the whole prefix tree is
kept once, and for every other state only where it differs:

    walk the tree; keep a child only while its state, coming from q, is not the root's;
    where q's run completes a match and the root's does not, the whole subtree is an extra range for q.

Then mask(q) = mask(root) + additions - removals, and next(q, token) = next(root, token) unless listed. Exact for any
deterministic search automaton; Aho-Corasick failure links are the special case. `bruteforce` is the definition.

Cost: the root run once per constraint, one array pass per level of the tree; a new state some dozen microseconds per
level that its walk reaches, usually two to four.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nco_guard.compiler import Constraint
from nco_guard.errors import StateLimitError
from nco_guard.masking.idsets import NO_IDS, minus, union
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["ConstraintTable", "StateDifference"]

_NO_STATES: NDArray[np.int32] = np.zeros(0, np.int32)
_COMPLETED = -1  # in state arrays of hard constraints: a match has completed on the way


@dataclass(frozen=True, slots=True)
class StateDifference:
    """How one state differs from the root; all arrays of token ids sorted.

    `added` ids complete a match here and not at the root, `removed` the other way round; `tokens` lead to `states`
    (int32) instead of where they lead from the root.
    """

    added: NDArray[np.int64]
    removed: NDArray[np.int64]
    tokens: NDArray[np.int64]
    states: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return self.added.nbytes + self.removed.nbytes + self.tokens.nbytes + self.states.nbytes


class ConstraintTable:
    """Masks and transitions of one constraint over one vocabulary, found state by state.

    `root_completing`: sorted ids of the tokens that complete a match from the root. `root_next` int32 [width]: the
    state after each token from the root, `-1` where a hard constraint's match completed on the way. Tokens without
    bytes lead nowhere, from any state.
    """

    def __init__(self, constraint: Constraint, tree: PrefixTree, vocabulary: Vocabulary) -> None:
        self.constraint = constraint
        self.automaton = constraint.automaton
        self.tree = tree
        self.root = self.automaton.start
        self._width = vocabulary.width
        self._tokens = vocabulary.tokens
        self._differences: dict[int, StateDifference] = {}
        self._pending: dict[int, NDArray[np.int64]] = {}
        self._difference_bytes = 0
        self._node_state: NDArray[np.int32] = np.full(len(tree), _COMPLETED, np.int32)
        self._node_completed: NDArray[np.bool_] = np.ones(len(tree), bool)
        try:
            self._run_root()
        except StateLimitError as error:
            raise self._named(error) from None
        completed = self._node_completed[tree.node_of]
        self.root_completing: NDArray[np.int64] = np.sort(tree.order[completed])
        self._root_completes = np.zeros(vocabulary.width, bool)
        self._root_completes[self.root_completing] = True
        self.root_next: NDArray[np.int32] = np.full(vocabulary.width, self.root, np.int32)
        self.root_next[tree.order] = self._node_state[tree.node_of]

    def _named(self, error: StateLimitError) -> StateLimitError:
        return StateLimitError(error.message, rule_id=", ".join(self.constraint.rule_ids[:3]))

    def _run_root(self) -> None:
        tree, hard = self.tree, self.constraint.hard
        self._node_state[0] = self.root
        self._node_completed[0] = False
        parents = np.zeros(1, np.int64)
        for _ in tree.levels:
            # Below a completed match nothing more can be learnt about a hard constraint.
            nodes, of = tree.children(parents)
            reached = self.automaton.step_many(self._node_state[parents][of], tree.byte[nodes])
            matched = reached < 0
            if hard:
                self._node_state[nodes] = np.where(matched, _COMPLETED, reached)
                self._node_completed[nodes] = matched
                parents = nodes[~matched]
            else:
                self._node_state[nodes] = np.where(matched, ~reached, reached)
                self._node_completed[nodes] = matched | self._node_completed[parents][of]
                parents = nodes

    # -- one state ---------------------------------------------------------------------------------------------

    def difference(self, state: int) -> StateDifference:
        """How a state differs from the root; found on first use."""
        known = self._differences.get(state)
        if known is None:
            try:
                known = self._walk(state)
            except StateLimitError as error:
                raise self._named(error) from None
            self._differences[state] = known
            self._difference_bytes += known.nbytes
        return known

    def _walk(self, state: int) -> StateDifference:
        if state == self.root:
            return StateDifference(NO_IDS, NO_IDS, NO_IDS, _NO_STATES)
        tree, hard = self.tree, self.constraint.hard
        added: list[NDArray[np.int64]] = []
        removed: list[NDArray[np.int64]] = []
        tokens: list[NDArray[np.int64]] = []
        states: list[NDArray[np.int32]] = []
        parents = np.zeros(1, np.int64)
        current = np.array([state], np.int32)
        completed = np.zeros(1, bool)
        while len(parents):
            nodes, of = tree.children(parents)
            if not len(nodes):
                break
            reached = self.automaton.step_many(current[of], tree.byte[nodes])
            matched = reached < 0
            root_state, root_completed = self._node_state[nodes], self._node_completed[nodes]
            if hard:
                cut = nodes[matched & ~root_completed]
                if len(cut):
                    below = tree.tokens_below(cut)
                    added.append(below[~self._root_completes[below]])
                on = ~matched & (reached != root_state)
                nodes, current = nodes[on], reached[on]
                ids, at = tree.tokens_at(nodes)
                removed.append(ids[self._root_completes[ids]])
                tokens.append(ids)
                states.append(current[at])
                parents = nodes
                continue
            following = np.where(matched, ~reached, reached)
            done = matched | completed[of]
            same = following == root_state
            cut = nodes[same & done & ~root_completed]
            if len(cut):
                below = tree.tokens_below(cut)
                added.append(below[~self._root_completes[below]])
            on = ~same | (root_completed & ~done)
            nodes, current, completed = nodes[on], following[on], done[on]
            ids, at = tree.tokens_at(nodes)
            added.append(ids[completed[at] & ~self._root_completes[ids]])
            removed.append(ids[~completed[at] & self._root_completes[ids]])
            changed = current[at] != self.root_next[ids]
            tokens.append(ids[changed])
            states.append(current[at][changed])
            parents = nodes
        all_tokens = np.concatenate(tokens) if tokens else NO_IDS
        all_states = np.concatenate(states) if states else _NO_STATES
        order = np.argsort(all_tokens)
        return StateDifference(
            np.sort(np.concatenate(added)) if added else NO_IDS,
            np.sort(np.concatenate(removed)) if removed else NO_IDS,
            all_tokens[order],
            all_states[order],
        )

    def completing(self, state: int) -> NDArray[np.int64]:
        """Sorted ids of the tokens that complete a match from this state."""
        difference = self.difference(state)
        ids = minus(self.root_completing, difference.removed, self._width)
        return union([ids, difference.added], self._width) if len(difference.added) else ids

    def next(self, state: int, token: int) -> int:
        """The state after a token that does not complete a match of a hard constraint."""
        difference = self.difference(state)
        at = int(np.searchsorted(difference.tokens, token))
        if at < len(difference.tokens) and difference.tokens[at] == token:
            return int(difference.states[at])
        # `root_next` names the root itself for tokens without bytes; `JointTables` never asks for those.
        return int(self.root_next[token])

    def next_many(self, state: int, tokens: NDArray[np.int64]) -> NDArray[np.int32]:
        """`next` for many tokens. int32."""
        found = self.root_next[tokens]
        difference = self.difference(state)
        if len(difference.tokens):
            at = np.minimum(np.searchsorted(difference.tokens, tokens), len(difference.tokens) - 1)
            listed = difference.tokens[at] == tokens
            found[listed] = difference.states[at[listed]]
        return found

    @cached_property
    def root_pending(self) -> NDArray[np.int64]:
        """Ids of the tokens, not completing, after which from the root this constraint does not let the text end."""
        ids = self.tree.order[~self._root_completes[self.tree.order]]
        return ids[~self.automaton.may_end_many(self.root_next[ids])]

    def changed_pending(self, state: int) -> NDArray[np.int64]:
        """The same from `state`, but only those tokens that lead elsewhere than from the root. Sorted."""
        known = self._pending.get(state)
        if known is None:
            difference = self.difference(state)
            known = difference.tokens[~self.automaton.may_end_many(difference.states)]
            self._pending[state] = known
            self._difference_bytes += known.nbytes
        return known

    def completes_end(self, state: int, token: int) -> bool:
        """Whether ending the text with this end-of-sequence token, and the text it may carry, completes a match."""
        for byte in self._tokens[token]:
            state = self.automaton.step(state, byte)
            if state < 0:
                return True
        return not self.automaton.may_end(state)

    @property
    def nbytes(self) -> int:
        """Bytes held: the root run, the differences found so far and the automaton's transitions."""
        return (
            self._node_state.nbytes
            + self._node_completed.nbytes
            + self._root_completes.nbytes
            + self.root_completing.nbytes
            + self.root_next.nbytes
            + self._difference_bytes
            + self.automaton.nbytes
        )
