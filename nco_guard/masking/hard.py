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

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import Automaton
from nco_guard.automata.rewriting import CONTINUATION
from nco_guard.compiler import UTF8_RULE
from nco_guard.errors import StateLimitError
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.masking.idsets import NO_IDS, Ids, minus, union
from nco_guard.masking.tables import ConstraintTable, StateDifference
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["HardConstraints"]

States = tuple[int, ...]
Rows = NDArray[np.int32]

_NO_EXIT = HORIZON + 1

# How far single bytes are tried as ways out before the whole vocabulary is searched.
_EXPLORED_BYTES = 4
_EXPLORED_STATES = 48

# States from which no token leads straight to an allowed end, met while one mask is worked out: more are refused.
_EXPANSION_LIMIT = 1000
# In place of an expansion: some token leads straight to an allowed end.
_STRAIGHT: Rows = np.zeros((0, 0), np.int32)


def _distinct(rows: Rows) -> Rows:
    # Several times faster than numpy.unique with an axis, which sorts.
    distinct = {row.tobytes() for row in np.ascontiguousarray(rows)}
    return np.frombuffer(b"".join(distinct), np.int32).reshape(len(distinct), -1).copy()


def _fed(automaton: Automaton, state: int, data: Iterable[int]) -> int:
    """The state after the bytes; negative if a match completes on the way."""
    for byte in data:
        state = automaton.step(state, byte)
        if state < 0:
            break
    return state


def _leads_out(automaton: Automaton, state: int, path: Iterable[int]) -> bool:
    reached = _fed(automaton, state, path)
    return reached >= 0 and automaton.may_end(reached)


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
        spread = (0x80, 0x90, 0xA0, 0xB0)
        paths = [
            *([b] for b in b"ea .0-\nxZl_,"),
            *([b] for b in spread),
            *([b, 0x80] for b in spread),
            *([b, 0x80, 0x80] for b in (0x80, 0x90)),
        ]
        # Each with the number of tokens it takes; the first is to end at once.
        exits = [([], 0), *((path, len(path)) for path in paths if single.issuperset(path))]
        # Where single bytes are rare: short pieces of WordPiece vocabularies and the like.
        short = {t for i, t in enumerate(vocabulary.tokens) if len(t) == 2 and self._with_text[i]}
        pairs = [[first, byte] for first in (CONTINUATION, 0x20) for byte in b"ea.0-"]
        exits += [(path, 1) for path in pairs if bytes(path) in short]
        self._exit_paths = [path for path, _ in exits]
        self._exit_tokens: NDArray[np.int64] = np.array([tokens for _, tokens in exits], np.int64)
        # For each constraint and each of its states: the paths that lead it to an allowed end, as bits.
        self._open_paths: list[NDArray[np.int64]] = [np.zeros(0, np.int64) for _ in self._automata]
        # Well-formed UTF-8 is a constraint like others; how many tokens a character still needs bounds the rest.
        self._utf8 = next(i for i, t in enumerate(self.tables) if UTF8_RULE in t.constraint.rule_ids)
        self._tails = {
            t for i, t in enumerate(vocabulary.tokens) if t and t[0] >= 0x80 and self._with_text[i]
        }
        self._needed_by: dict[int, int] = {}
        self._single: NDArray[np.uint8] = np.array(sorted(single), np.uint8)
        self._exits: dict[bytes, int] = {}
        self._searched: dict[tuple[bytes, int], bool] = {}
        self._expansions: dict[States, Rows] = {}
        self._expansion_bytes = 0
        self._expanded = 0

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

    def _differences(self, states: States) -> list[StateDifference]:
        return [t.difference(s) for t, s in zip(self.tables, states, strict=True)]

    def _completing(self, states: States, differences: list[StateDifference]) -> Ids:
        """Sorted ids of the tokens with which a match completes, of forbidden ends and of unusable tokens."""
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
        """Sorted ids of the forbidden tokens, where at most `tokens_left` tokens may follow the next one.

        Errors: `StateLimitError` where the search for an end takes too long.
        """
        tokens_left = min(tokens_left, HORIZON)
        self._expanded = 0
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
        open_rows = np.flatnonzero(~verdicts) if tokens else NO_IDS
        for i in open_rows[self._character_tokens(rows[open_rows]) <= tokens].tolist():
            searched = (keys[i], tokens)
            if searched not in self._searched:
                self._searched[searched] = self._search(tuple(rows[i].tolist()), tokens)
            verdicts[i] = self._searched[searched]
        return verdicts

    def _character_tokens(self, rows: Rows) -> NDArray[np.int64]:
        """For each row, how many tokens the character that it is in the middle of needs at least; 0 outside one."""
        return np.array([self._needed(state) for state in rows[:, self._utf8].tolist()], np.int64)

    def _needed(self, state: int) -> int:
        known = self._needed_by.get(state)
        if known is None:
            automaton, level, known = self._automata[self._utf8], {state}, 0
            while known < _NO_EXIT and level and not any(map(automaton.may_end, level)):
                known += 1
                level = {r for s in level for t in self._tails if (r := _fed(automaton, s, t)) >= 0} - level
            self._needed_by[state] = known = known if level else _NO_EXIT
        return known

    def _find_exits(self, rows: Rows) -> NDArray[np.int64]:
        """For each row, how many short tokens can end the text; `_NO_EXIT` where no way was found.

        A path is a way out of a row if it is one for every constraint: what each has open is kept, and intersected.
        """
        open_paths = np.full(len(rows), -1, np.int64)
        for i in range(len(self._automata)):
            open_paths &= self._paths_open(i, rows[:, i])
        depths = np.full(len(rows), _NO_EXIT, np.int64)
        for path in range(len(self._exit_paths) - 1, -1, -1):
            found = (open_paths >> path & 1).astype(bool)
            depths[found] = np.minimum(depths[found], self._exit_tokens[path])
        for i in np.flatnonzero(depths == _NO_EXIT).tolist():
            depths[i] = self._explore(rows[i : i + 1])
        return depths

    def _paths_open(self, index: int, states: NDArray[np.int32]) -> NDArray[np.int64]:
        """The paths that lead one constraint from each of its states to an allowed end, as bits; -1 is not a value."""
        automaton, known = self._automata[index], self._open_paths[index]
        if len(known) < automaton.state_count:
            grown = np.full(2 * automaton.state_count, -1, np.int64)
            grown[: len(known)] = known
            known = self._open_paths[index] = grown
        found = known[states]
        if (found < 0).any():
            for state in set(states[found < 0].tolist()):
                known[state] = sum(
                    1 << n for n, path in enumerate(self._exit_paths) if _leads_out(automaton, state, path)
                )
            found = known[states]
        return found

    def _explore(self, level: Rows) -> int:
        """The same for one row by all bytes that are tokens of their own, a few bytes deep, a few states wide."""
        for length in range(1, _EXPLORED_BYTES + 1):
            symbols = np.tile(self._single, len(level))
            following = np.repeat(level, len(self._single), axis=0)
            for i, automaton in enumerate(self._automata):
                column = automaton.step_many(following[:, i], symbols)
                kept = column >= 0
                following, symbols = following[kept], symbols[kept]
                following[:, i] = column[kept]
            if not len(following):
                break
            following = _distinct(following)
            if self._all_may_end(following).any():
                return length
            level = following[:_EXPLORED_STATES]
        return _NO_EXIT

    def _search(self, states: States, tokens: int) -> bool:
        """The same for one row by all tokens, exactly."""
        expansion = self._expansions.get(states)
        if expansion is None:
            expansion = self._expansions[states] = self._expand(states)
            self._expansion_bytes += expansion.nbytes
        return expansion is _STRAIGHT or (
            len(expansion) > 0 and bool(self._can_end(expansion, tokens - 1).any())
        )

    def _expand(self, states: States) -> Rows:
        """The distinct rows of states, none of which may end, that allowed tokens lead to; or `_STRAIGHT`."""
        differences = self._differences(states)
        completing = self._completing(states, differences)
        pending, rows, elsewhere = self._pending(states, differences, completing)
        inherited = ~np.isin(self._base_pending, union([elsewhere, completing], self._width))
        blocked = np.count_nonzero(self._with_text[completing]) + len(pending) + np.count_nonzero(inherited)
        if blocked < np.count_nonzero(self._with_text):
            return _STRAIGHT
        self._expanded += 1
        if self._expanded > _EXPANSION_LIMIT:
            open_tables = [t for t, s in zip(self.tables, states, strict=True) if not t.automaton.may_end(s)]
            at_fault = [r for t in open_tables for r in t.constraint.rule_ids if r != UTF8_RULE]
            raise StateLimitError(
                f"no end of the text that it allows was found within {_EXPANSION_LIMIT} states; once this rule has "
                "matched so far, too much text is needed to get out of the match: make counted repeats shorter",
                rule_id=", ".join(at_fault) or UTF8_RULE,
            )
        following = np.concatenate([rows, self._base_rows[inherited]])
        return _distinct(following) if len(following) else following

    @property
    def nbytes(self) -> int:
        """Bytes held beyond the tables' own (those of dictionaries estimated)."""
        entries = len(self._exits) + len(self._searched) + len(self._expansions)
        return self._base_rows.nbytes + self._expansion_bytes + entries * (120 + 4 * len(self.tables))
