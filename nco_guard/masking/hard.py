"""The hard constraints of a policy together: what is forbidden, and what could never end well.

A token is forbidden if

1. a match of some constraint completes with it (each constraint by itself, `tables`), or
2. the text could not be brought to an allowed end within `HORIZON` more tokens. Constraints that are each
   satisfiable can leave no common way out ("ass" may not end, and every way on is forbidden by others); only
   tokens after which some constraint is pending can lead there.

Point 2 is decided from differences too: a token that leads every constraint where it leads from the root has the
root's verdict, worked out once; only the others are looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.rewriting import CONTINUATION
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.masking.idsets import NO_IDS, Ids, minus, union
from nco_guard.masking.tables import ConstraintTable, StateDifference
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["HardConstraints"]

States = tuple[int, ...]
Rows = NDArray[np.int32]

_NO_EXIT = HORIZON + 1


class HardConstraints:
    """All hard constraints over one vocabulary. States are tuples, one entry per constraint, in the order of `tables`.

    Not safe to share between threads by itself; `JointTables` holds a lock.
    """

    def __init__(self, tables: Sequence[ConstraintTable], vocabulary: Vocabulary, tree: PrefixTree) -> None:
        """`tree` holds the tokens that add text and do not end it."""
        self.tables = tuple(tables)
        self._automata = [table.automaton for table in tables]
        self._vocabulary = vocabulary
        self._width = vocabulary.width
        self._unusable = frozenset(vocabulary.unusable_ids)

        self._base_count: NDArray[np.int16] = np.zeros(self._width, np.int16)
        for table in self.tables:
            self._base_count[table.root_completing] += 1
        self._base_count[list(self._unusable)] += 1
        self._base: Ids = np.flatnonzero(self._base_count)
        self._with_text: NDArray[np.bool_] = np.zeros(self._width, bool)
        self._with_text[tree.order] = True
        ends = frozenset(vocabulary.eos_ids)
        self._silent: Ids = np.array(
            [i for i in range(self._width) if not self._with_text[i] and i not in ends], np.int64
        )

        # Ways out that are tried first to show that a text can be ended: bytes that are tokens of their own.
        single = {t[0] for i, t in enumerate(vocabulary.tokens) if len(t) == 1 and self._with_text[i]}
        self._continuations = [byte for byte in range(0x80, 0xC0) if byte in single]
        spread = (0x80, 0x90, 0xA0, 0xB0)
        paths = [
            *([b] for b in b"ea .0-\n"),
            *([b] for b in spread),
            *([b, 0x80] for b in spread),
            [0x90, 0x80, 0x80],
        ]
        # Each with the number of tokens it takes.
        self._exit_paths = [(path, len(path)) for path in paths if single.issuperset(path)]
        # Where single bytes are rare: short pieces of WordPiece vocabularies and the like.
        short = {t for i, t in enumerate(vocabulary.tokens) if len(t) == 2 and self._with_text[i]}
        pairs = [[first, byte] for first in (CONTINUATION, 0x20) for byte in b"ea.0-"]
        self._exit_paths += [(path, 1) for path in pairs if bytes(path) in short]
        self._exits: dict[bytes, int] = {}
        self._searched: dict[tuple[bytes, int], bool] = {}

        # From the root of every constraint: the tokens after which some constraint is pending, and where they lead.
        self._pending_somewhere: NDArray[np.bool_] = np.zeros(self._width, bool)
        for table in self.tables:
            self._pending_somewhere[table.root_pending] = True
        self._base_pending: Ids = minus(np.flatnonzero(self._pending_somewhere), self._base, self._width)
        self._base_rows: Rows = np.stack([t.root_next[self._base_pending] for t in self.tables], axis=1)
        self._base_late: dict[int, Ids] = {}

    # -- each constraint by itself -----------------------------------------------------------------------------

    def may_end(self, states: States) -> bool:
        """Whether every constraint lets the text end."""
        return all(a.may_end(s) for a, s in zip(self._automata, states, strict=True))

    def _all_may_end(self, rows: Rows) -> NDArray[np.bool_]:
        found = np.ones(len(rows), bool)
        for i, automaton in enumerate(self._automata):
            found &= automaton.may_end_many(rows[:, i])
        return found

    def completing(self, states: States) -> Ids:
        """Sorted ids of the tokens with which a match completes, of forbidden ends and of unusable tokens."""
        return self._completing(states, self._differences(states))

    def _differences(self, states: States) -> list[StateDifference]:
        return [t.difference(s) for t, s in zip(self.tables, states, strict=True)]

    def _completing(self, states: States, differences: list[StateDifference]) -> Ids:
        removed = [d.removed for d in differences if len(d.removed)]
        base = self._base
        if removed:
            ids, times = np.unique(np.concatenate(removed), return_counts=True)
            free = ids[self._base_count[ids] == times]
            base = minus(base, free, self._width)
        parts = [base, *(d.added for d in differences if len(d.added))]
        ends = [token for token in self._vocabulary.eos_ids if not self._may_end_with(states, token)]
        if ends:
            parts.append(np.array(ends, np.int64))
        return union(parts, self._width) if len(parts) > 1 else base

    def _may_end_with(self, states: States, token: int) -> bool:
        """Whether this end-of-sequence token, with the text that it may carry, is allowed."""
        if token in self._unusable:
            return False
        return not any(t.completes_end(s, token) for t, s in zip(self.tables, states, strict=True))

    # -- all together ------------------------------------------------------------------------------------------

    def forbidden(self, states: States, tokens_left: int = HORIZON) -> Ids:
        """Sorted ids of the forbidden tokens, where at most `tokens_left` tokens may follow the next one."""
        tokens_left = min(tokens_left, HORIZON)
        differences = self._differences(states)
        completing = self._completing(states, differences)
        pending, rows, inherited = self._pending(states, differences, completing)
        parts = [completing]
        late = minus(self._inherited_late(tokens_left), inherited, self._width)
        if len(late):
            parts.append(minus(late, completing, self._width))
        if len(pending):
            late = pending[~self._can_end(rows, tokens_left)]
            if len(late):
                parts.append(late)
        # Tokens without text leave the state as it is.
        if len(self._silent) and not self._can_end(np.array([states], np.int32), tokens_left)[0]:
            parts.append(self._silent)
        return union(parts, self._width) if len(parts) > 1 else completing

    def _inherited_late(self, tokens_left: int) -> Ids:
        late = self._base_late.get(tokens_left)
        if late is None:
            late = self._base_late[tokens_left] = self._base_pending[
                ~self._can_end(self._base_rows, tokens_left)
            ]
        return late

    def _pending(
        self, states: States, differences: list[StateDifference], completing: Ids
    ) -> tuple[Ids, Rows, Ids]:
        """The tokens that lead some constraint elsewhere than from the root, and leave some constraint pending.

        Also the rows [n, constraints] of states that they lead to, and all tokens that lead elsewhere: what holds at
        the root does not hold for those.
        """
        elsewhere = union([d.tokens for d in differences], self._width)
        if not len(elsewhere):
            return NO_IDS, np.zeros((0, len(states)), np.int32), NO_IDS
        own = [t.changed_pending(s) for t, s in zip(self.tables, states, strict=True)]
        candidates = union([*own, elsewhere[self._pending_somewhere[elsewhere]]], self._width)
        candidates = minus(candidates, completing, self._width)
        columns = [t.next_many(s, candidates) for t, s in zip(self.tables, states, strict=True)]
        rows = np.stack(columns, axis=1)
        pending = ~self._all_may_end(rows)
        return candidates[pending], rows[pending], elsewhere

    def _can_end(self, rows: Rows, tokens: int) -> NDArray[np.bool_]:
        """For each row of states: whether the text can be brought to an allowed end by at most so many tokens.

        Some bytes that are tokens of their own and lead to an end are proof enough; only where no such proof is found
        is the whole vocabulary searched.
        """
        keys = [row.tobytes() for row in np.ascontiguousarray(rows)]
        fresh = {key: i for i, key in enumerate(keys) if key not in self._exits}
        if fresh:
            found = self._find_exits(rows[list(fresh.values())]).tolist()
            self._exits.update(zip(fresh, found, strict=True))
        verdicts = np.array([self._exits[key] <= tokens for key in keys], bool)
        for i in np.flatnonzero(~verdicts).tolist() if tokens else []:
            searched = (keys[i], tokens)
            if searched not in self._searched:
                self._searched[searched] = self._search(tuple(rows[i].tolist()), tokens)
            verdicts[i] = self._searched[searched]
        return verdicts

    def _find_exits(self, rows: Rows) -> NDArray[np.int64]:
        """For each row, how many short tokens can end the text; `_NO_EXIT` where no way was found."""
        depths = np.where(self._all_may_end(rows), 0, _NO_EXIT)
        for path, tokens in self._exit_paths:
            open_rows = np.flatnonzero(depths == _NO_EXIT)
            if not len(open_rows):
                break
            after = rows[open_rows]
            for i, automaton in enumerate(self._automata):
                column = after[:, i]
                for byte in path:
                    column = automaton.step_many(column, np.full(len(column), byte, np.uint8))
                    kept = column >= 0
                    if not kept.all():
                        after, open_rows, column = after[kept], open_rows[kept], column[kept]
                after[:, i] = column
                if not len(open_rows):
                    break
            depths[open_rows[self._all_may_end(after)]] = tokens
        for i in np.flatnonzero(depths == _NO_EXIT).tolist():
            depths[i] = self._finish_character(tuple(rows[i].tolist()), 3)
        return depths

    def _finish_character(self, states: States, depth: int) -> int:
        """The same for one row in the middle of a character, by all bytes that may continue it.

        Level by level over distinct states: most characters lead to the same few.
        """
        level = {states}
        for length in range(1, depth + 1):
            following: set[States] = set()
            for current, byte in itertools.product(level, self._continuations):
                after: list[int] = []
                for automaton, state in zip(self._automata, current, strict=True):
                    reached = automaton.step(state, byte)
                    if reached < 0:
                        break
                    after.append(reached)
                else:
                    following.add(tuple(after))
            if any(map(self.may_end, following)):
                return length
            level = following
        return _NO_EXIT

    def _search(self, states: States, tokens: int) -> bool:
        """The same for one row by all tokens, exactly."""
        differences = self._differences(states)
        completing = self._completing(states, differences)
        pending, rows, elsewhere = self._pending(states, differences, completing)
        inherited = ~np.isin(self._base_pending, union([elsewhere, completing], self._width))
        blocked = np.count_nonzero(self._with_text[completing]) + len(pending) + np.count_nonzero(inherited)
        if blocked < np.count_nonzero(self._with_text):
            return True  # some token leads straight to an allowed end
        following = np.concatenate([rows, self._base_rows[inherited]])
        return len(following) > 0 and bool(self._can_end(following, tokens - 1).any())

    @property
    def nbytes(self) -> int:
        """Bytes held beyond the tables' own (those of dictionaries estimated)."""
        return self._base_rows.nbytes + (len(self._exits) + len(self._searched)) * (
            120 + 4 * len(self.tables)
        )
