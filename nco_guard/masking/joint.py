"""All constraints of a policy together, joined lazily.

A joint state is a tuple of constraint states, interned as an integer when first seen, with its mask and its transitions
kept: one look-up a step afterwards, as if there were one automaton, though no product is ever built (the paper's
reason for simulation, section 4.2).

Cost: a joint state seen before, one dictionary look-up; a new one, a few microseconds per constraint plus the walks of
constraint states not met before.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.rewriting import CONTINUATION
from nco_guard.compiler import Constraint
from nco_guard.masking.idsets import NO_IDS, minus, union
from nco_guard.masking.tables import ConstraintTable
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["ENDED", "HORIZON", "VIOLATED", "JointTables"]

VIOLATED = -1
ENDED = -2

# With more tokens left than this, no token is withheld for the sake of the end: every rule met in practice can be
# brought to an allowed end within a few tokens.
HORIZON = 16
_NO_EXIT = HORIZON + 1
_BYTES_OF_UTF8 = frozenset({*range(0xC0), *range(0xC2, 0xF5)})


class JointTables:
    """Masks, penalties and transitions of a whole policy over one vocabulary.

    `start`: the joint state of the empty text. Besides joint states (>= 0) there are `VIOLATED`, after a token that
    the mask forbids was forced by something else, and `ENDED`, after end-of-sequence; in both, nothing is masked.

    `full`: the memory limit was passed. Everything still works; whoever owns the tables replaces them by fresh ones,
    and sequences replay their tokens (a state is a function of the text).

    Safe to share between threads: look-ups take no lock, first visits do.
    """

    def __init__(
        self,
        constraints: Sequence[Constraint],
        vocabulary: Vocabulary,
        tree: PrefixTree,
        *,
        memory_limit: int = 512 << 20,
    ) -> None:
        """`tree` holds the tokens that add text and do not end it; `memory_limit` in bytes, see `full`."""
        self.vocabulary = vocabulary
        self.memory_limit = memory_limit
        self.full = False
        self.constraints = tuple(constraints)
        self.tables = tuple(ConstraintTable(c, tree, vocabulary) for c in constraints)
        self._hard = [i for i, c in enumerate(self.constraints) if c.hard]
        self._soft = [i for i, c in enumerate(self.constraints) if not c.hard and c.penalty]
        self._eos = frozenset(vocabulary.eos_ids)
        self._unusable = frozenset(vocabulary.unusable_ids)
        self._lock = threading.RLock()

        self._base_count: NDArray[np.int16] = np.zeros(vocabulary.width, np.int16)
        for i in self._hard:
            self._base_count[self.tables[i].root_completing] += 1
        self._base_count[list(self._unusable)] += 1
        self._base: NDArray[np.int64] = np.flatnonzero(self._base_count)
        self._with_text: NDArray[np.bool_] = np.zeros(vocabulary.width, bool)
        self._with_text[tree.order] = True
        # Ways out that are tried first to show that a text can be ended: bytes that are tokens of their own.
        single = {t[0] for i, t in enumerate(vocabulary.tokens) if len(t) == 1 and self._with_text[i]}
        self._continuations = [byte for byte in range(0x80, 0xC0) if byte in single]
        spread = [0x80, 0x90, 0xA0, 0xB0]
        paths = [
            *([b] for b in b"ea .0-\n"),
            *([b] for b in spread),
            *([b, 0x80] for b in spread),
            [0x90, 0x80, 0x80],
        ]
        # Each with the number of tokens it takes.
        self._exit_paths = [(path, len(path)) for path in paths if single.issuperset(path)]
        short = {t for i, t in enumerate(vocabulary.tokens) if len(t) == 2 and self._with_text[i]}
        pairs = [[first, b] for first in (CONTINUATION, 0x20) for b in b"ea.0-"]
        self._exit_paths += [(path, 1) for path in pairs if bytes(path) in short]
        # Automata count on every text being possible. Where it is not, a rule can leave a way on that no token takes:
        # then ends are looked for among the tokens at every step.
        self._any_text = single.issuperset(_BYTES_OF_UTF8)
        self._silent: NDArray[np.int64] = np.array(
            [i for i in range(vocabulary.width) if not self._with_text[i] and i not in self._eos], np.int64
        )

        self._states: list[tuple[int, ...]] = []
        self._ids: dict[tuple[int, ...], int] = {}
        self._next: list[dict[int, int]] = []
        self._forbidden: dict[int, NDArray[np.int64]] = {}
        self._may_end: dict[int, bool] = {}
        self._exits_within: dict[bytes, int] = {}
        self._ends_within: dict[tuple[bytes, int], bool] = {}
        self._late: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._penalties: dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}
        self._mask_bytes = 0
        self.start = self._intern(tuple(self._first(c) for c in self.constraints))

    def _first(self, constraint: Constraint) -> int:
        automaton, vocabulary = constraint.automaton, self.vocabulary
        first = vocabulary.strips_first_space or vocabulary.rewriting is not None
        return automaton.spaceless_start if first else automaton.start

    def _intern(self, states: tuple[int, ...]) -> int:
        found = self._ids.get(states)
        if found is None:
            with self._lock:
                found = self._ids.get(states)
                if found is None:
                    found = len(self._states)
                    self._states.append(states)
                    self._next.append({})
                    self._ids[states] = found
                    if found % 256 == 255:
                        self.full = self.full or self.nbytes > self.memory_limit
        return found

    def components(self, state: int) -> tuple[int, ...]:
        """The states of the single constraints in a joint state, in the order of `constraints`."""
        return self._states[state]

    def start_after(self, context: bytes) -> int:
        """The joint state of an empty output after a prompt, for rules that read the prompt.

        Matches within the prompt do not count; one that the output would complete does. `context` is well-formed
        UTF-8.
        """
        states: list[int] = []
        for constraint in self.constraints:
            state = self._first(constraint)
            if constraint.reads_prompt and context:
                state = constraint.automaton.start
                with self._lock:
                    for byte in context:
                        state = constraint.automaton.step(state, byte)
                        state = ~state if state < 0 else state
            states.append(state)
        return self._intern(tuple(states))

    # -- steps -------------------------------------------------------------------------------------------------

    def next(self, state: int, token: int) -> int:
        """The joint state after a token; `VIOLATED` if it is forbidden, `ENDED` if it ends the text."""
        if state < 0:
            return state
        known = self._next[state].get(token)
        if known is None:
            with self._lock:
                known = self._next[state][token] = self._find_next(state, token)
        return known

    def _find_next(self, state: int, token: int) -> int:
        if not 0 <= token < self.vocabulary.width:
            return VIOLATED
        forbidden = self.forbidden(state)
        at = int(np.searchsorted(forbidden, token))
        if at < len(forbidden) and forbidden[at] == token:
            return VIOLATED
        if token in self._eos:
            return ENDED
        if not self.vocabulary.tokens[token]:
            return state
        states = self._states[state]
        return self._intern(tuple([t.next(s, token) for t, s in zip(self.tables, states, strict=True)]))

    def may_end(self, state: int) -> bool:
        """Whether the text may end here."""
        if state < 0:
            return True
        known = self._may_end.get(state)
        if known is None:
            with self._lock:
                states = self._states[state]
                known = all(self.constraints[i].automaton.may_end(states[i]) for i in self._hard)
                self._may_end[state] = known
        return known

    # -- masks -------------------------------------------------------------------------------------------------

    def forbidden(self, state: int, remaining: int | None = None) -> NDArray[np.int64]:
        """Sorted int64 ids of the tokens forbidden here. The array is shared: do not write into it.

        `remaining`: how many more tokens may follow the one about to be chosen; `HORIZON` or more: enough. Then tokens
        from which the text could not be brought to an allowed end in time are forbidden too. None: the definition
        alone, as `bruteforce` has it.
        """
        if state < 0:
            return NO_IDS
        known = self._forbidden.get(state)
        if known is None:
            with self._lock:
                known = self._find_forbidden(state)
                known.flags.writeable = False
                self._forbidden[state] = known
                self._mask_bytes += known.nbytes
        if remaining is None or (remaining >= HORIZON and self._any_text):
            return known
        late = self._too_late(state, min(remaining, HORIZON))
        return union([known, late], self.vocabulary.width) if len(late) else known

    def _find_forbidden(self, state: int) -> NDArray[np.int64]:
        states = self._states[state]
        differences = [self.tables[i].difference(states[i]) for i in self._hard]
        removed = [d.removed for d in differences if len(d.removed)]
        base = self._base
        if removed:
            ids, times = np.unique(np.concatenate(removed), return_counts=True)
            free = ids[self._base_count[ids] == times]
            base = minus(base, free, self.vocabulary.width)
        parts = [base, *(d.added for d in differences if len(d.added))]
        ends = [token for token in self.vocabulary.eos_ids if not self._may_end_with(states, token)]
        if ends:
            parts.append(np.array(ends, np.int64))
        return union(parts, self.vocabulary.width) if len(parts) > 1 else base.copy()

    def _may_end_with(self, states: tuple[int, ...], token: int) -> bool:
        """Whether this end-of-sequence token, with the text that it may carry, is allowed."""
        if token in self._unusable:
            return False
        return not any(self._completes_end(i, states[i], token) for i in self._hard)

    def _completes_end(self, index: int, state: int, token: int) -> bool:
        automaton = self.constraints[index].automaton
        for byte in self.vocabulary.tokens[token]:
            state = automaton.step(state, byte)
            if state < 0:
                return True
        return not automaton.may_end(state)

    def _too_late(self, state: int, remaining: int) -> NDArray[np.int64]:
        """Allowed tokens after which the text could not end within `remaining` more tokens."""
        key = (state, remaining)
        late = self._late.get(key)
        if late is not None:
            return late
        with self._lock:
            late = NO_IDS
            pending, following = self._pending(state)
            if len(pending):
                distinct, inverse = np.unique(following, axis=0, return_inverse=True)
                late = pending[~self._can_end(distinct, remaining)[inverse.reshape(-1)]]
            if not self._can_end(np.array([self._states[state]], np.int32), remaining)[0]:
                late = union([late, self._silent], self.vocabulary.width)  # these leave the state as it is
            self._late[key] = late
            self._mask_bytes += late.nbytes
            return late

    def _pending(self, state: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Allowed tokens after which the text may not end, and the constraint states [tokens, constraints] after."""
        states = self._states[state]
        parts = [self.tables[i].pending(states[i]) for i in self._hard]
        width = self.vocabulary.width
        pending = minus(union(parts, width), self.forbidden(state), width)
        columns = [t.next_many(s, pending) for t, s in zip(self.tables, states, strict=True)]
        return pending, np.stack(columns, axis=1)

    def _can_end(self, rows: NDArray[np.int32], tokens: int) -> NDArray[np.bool_]:
        """For joint states given as rows [n, constraints]: whether the text may end after at most so many tokens.

        A single byte that is a token and leads to an allowed end is proof enough; only where no such proof is found is
        the vocabulary searched.
        """
        keys = [row.tobytes() for row in rows]
        known = [self._exits_within.get(key, _NO_EXIT) for key in keys]
        fresh = [i for i, key in enumerate(keys) if key not in self._exits_within]
        if fresh:
            for i, depth in zip(fresh, self._find_exits(rows[fresh]).tolist(), strict=True):
                known[i] = self._exits_within[keys[i]] = depth
        verdicts = np.array([depth <= tokens for depth in known], bool)
        for i in np.flatnonzero(~verdicts).tolist() if tokens else []:
            key = (keys[i], tokens)
            if key not in self._ends_within:
                self._ends_within[key] = self._search_end(tuple(rows[i].tolist()), tokens)
            verdicts[i] = self._ends_within[key]
        return verdicts

    def _all_may_end(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        found = np.ones(len(rows), bool)
        for i in self._hard:
            found &= self.constraints[i].automaton.may_end_many(rows[:, i])
        return found

    def _find_exits(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """For each row, how many short tokens can end the text; `_NO_EXIT` where no way was found."""
        depths = np.where(self._all_may_end(rows), 0, _NO_EXIT)
        for path, tokens in self._exit_paths:
            open_rows = np.flatnonzero(depths == _NO_EXIT)
            if not len(open_rows):
                break
            after = rows[open_rows]
            allowed = np.ones(len(after), bool)
            for i, constraint in enumerate(self.constraints):
                for byte in path:
                    reached = constraint.automaton.step_many(after[:, i], np.full(len(after), byte, np.uint8))
                    if constraint.hard:
                        allowed &= reached >= 0
                    after[:, i] = np.where(reached < 0, ~reached, reached)
                if not allowed.any():
                    break
            else:
                ended = open_rows[allowed][self._all_may_end(after[allowed])]
                depths[ended] = tokens
        for i in np.flatnonzero(depths == _NO_EXIT).tolist():
            depths[i] = self._finish_character(tuple(rows[i].tolist()), 3)
        return depths

    def _finish_character(self, states: tuple[int, ...], depth: int) -> int:
        """The same for one row in the middle of a character, by all bytes that may continue it."""
        best = _NO_EXIT
        for byte in self._continuations:
            after: list[int] = []
            for constraint, state in zip(self.constraints, states, strict=True):
                reached = constraint.automaton.step(state, byte)
                if reached < 0 and constraint.hard:
                    break
                after.append(~reached if reached < 0 else reached)
            else:
                if all(self.constraints[i].automaton.may_end(after[i]) for i in self._hard):
                    return 1
                if depth > 1:
                    best = min(best, 1 + self._finish_character(tuple(after), depth - 1))
                    if best < _NO_EXIT:
                        return best  # the number of bytes that a character needs does not depend on which
        return best

    def _search_end(self, states: tuple[int, ...], tokens: int) -> bool:
        """The same by all tokens, exactly."""
        state = self._intern(states)
        pending, following = self._pending(state)
        blocked = len(pending) + int(np.count_nonzero(self._with_text[self.forbidden(state)]))
        if blocked < np.count_nonzero(self._with_text):
            return True  # some token leads straight to an allowed end
        return len(following) > 0 and bool(self._can_end(np.unique(following, axis=0), tokens - 1).any())

    def penalties(self, state: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ids (int64, sorted) and what soft rules subtract from their logits (float32), once per rule."""
        if state < 0 or not self._soft:
            return NO_IDS, NO_IDS.astype(np.float32)
        known = self._penalties.get(state)
        if known is None:
            with self._lock:
                known = self._penalties[state] = self._find_penalties(state)
                self._mask_bytes += known[0].nbytes + known[1].nbytes
        return known

    def _find_penalties(self, state: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        amounts = np.zeros(self.vocabulary.width, np.float64)
        for i in self._soft:
            amounts[self.completing(state, i)] += self.constraints[i].penalty
        ids = np.flatnonzero(amounts)
        return ids, amounts[ids].astype(np.float32)

    def completing(self, state: int, index: int) -> NDArray[np.int64]:
        """Sorted ids of the tokens that complete a match of constraint `index` here, end-of-sequence included."""
        own = self._states[state][index]
        with self._lock:
            ids = self.tables[index].completing(own)
            ends = [t for t in self.vocabulary.eos_ids if self._completes_end(index, own, t)]
        return union([ids, np.array(ends, np.int64)], self.vocabulary.width) if ends else ids

    def rules_completing(self, state: int, token: int) -> tuple[str, ...]:
        """The rules, hard, soft or monitored, whose match this token would complete here; by feeding its bytes."""
        if state < 0 or not 0 <= token < self.vocabulary.width or token in self._unusable:
            return ()
        found: dict[str, None] = {}
        with self._lock:
            for constraint, own in zip(self.constraints, self._states[state], strict=True):
                current = own
                for byte in self.vocabulary.tokens[token]:
                    current = constraint.automaton.step(current, byte)
                    if current < 0:
                        current = ~current
                        rules = constraint.rules_at(current) if constraint.rules_at else constraint.rule_ids
                        found.update(dict.fromkeys(rules))
                if token in self._eos and not constraint.automaton.may_end(current):
                    at_end = constraint.rules_at_end
                    found.update(dict.fromkeys(at_end(current) if at_end else constraint.rule_ids))
        return tuple(found)

    # -- sizes -------------------------------------------------------------------------------------------------

    @property
    def state_count(self) -> int:
        """Joint states met so far."""
        return len(self._states)

    @property
    def nbytes(self) -> int:
        """Bytes held by tables, masks and transitions (those of dictionaries estimated)."""
        links = sum(map(len, self._next))
        return sum(t.nbytes for t in self.tables) + self._mask_bytes + 100 * links + 300 * len(self._states)
