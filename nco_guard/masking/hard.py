"""The hard constraints of a policy together: what is forbidden, and what could never end well.

A token is forbidden if

1. a match of some constraint completes with it (each constraint by itself, `tables`), or
2. the text could not be brought to an allowed end within `HORIZON` more tokens. Constraints that are each
   satisfiable can leave no common way out ("ass" may not end, and every way on is forbidden by others); only
   tokens after which some constraint is pending can lead there.

Point 2 is shown token by token from what each constraint bars by itself: a way out that none of them bars is proof.
Only tokens without such a proof are followed further, in the end by a search over the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.compiler import UTF8_RULE
from nco_guard.errors import StateLimitError
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.masking.exits import ExitPaths
from nco_guard.masking.idsets import NO_IDS, Ids, minus, union
from nco_guard.masking.tables import ConstraintTable, StateView
from nco_guard.masking.watched import FewTokens, WatchedTokens, WaysOut
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["HardConstraints"]

States = tuple[int, ...]
Rows = NDArray[np.int32]

_NO_EXIT = HORIZON + 1

# How far single bytes are tried as ways out before the whole vocabulary is searched.
_EXPLORED_BYTES = 4
_EXPLORED_STATES = 48

# States from which no token leads straight to an allowed end, met while one mask is worked out: more are refused.
_EXPANSION_LIMIT = 4000
# Up to so many tokens are read one by one rather than by a tree of their own.
_FEW = 8
# In place of an expansion: some token leads straight to an allowed end.
_STRAIGHT: Rows = np.zeros((0, 0), np.int32)


def _distinct(rows: Rows) -> Rows:
    # Several times faster than numpy.unique with an axis, which sorts.
    distinct = {row.tobytes() for row in np.ascontiguousarray(rows)}
    return np.frombuffer(b"".join(distinct), np.int32).reshape(len(distinct), -1).copy()


class HardConstraints:
    """All hard constraints over one vocabulary. States are tuples, one entry per constraint, in the order of `tables`.

    Not safe to share between threads by itself; `JointTables` holds a lock.
    """

    def __init__(
        self,
        tables: Sequence[ConstraintTable],
        vocabulary: Vocabulary,
        tree: PrefixTree,
        paths: ExitPaths,
        like: HardConstraints | None = None,
    ) -> None:
        """`tree` holds the tokens that add text and do not end it. `like`: others, over the same vocabulary."""
        self.tables = tuple(tables)
        self._automata = [table.automaton for table in tables]
        self._vocabulary = vocabulary
        self._width = vocabulary.width
        self._paths = paths
        self._unusable = frozenset(vocabulary.unusable_ids)
        self._never: Ids = np.array(sorted(self._unusable), np.int64)
        self._with_text: NDArray[np.bool_] = np.zeros(self._width, bool)
        self._with_text[tree.order] = True
        self._text_count = len(tree.order)
        self._silent_ends = [
            t for t in vocabulary.eos_ids if not vocabulary.tokens[t] and t not in self._unusable
        ]
        self._ends_with_text = [
            t for t in vocabulary.eos_ids if vocabulary.tokens[t] and t not in self._unusable
        ]
        silent = ~self._with_text
        silent[list(vocabulary.eos_ids)] = False
        self._silent: Ids = np.flatnonzero(silent)
        self._ways_within = [paths.within(tokens) for tokens in range(HORIZON + 1)]

        # Well-formed UTF-8 is a constraint like others; how many tokens a character still needs bounds the rest.
        self._utf8 = next(i for i, t in enumerate(self.tables) if UTF8_RULE in t.constraint.rule_ids)
        self._needed_by: dict[int, int] = {}
        self._exits: dict[bytes, int] = {}
        self._searched: dict[tuple[bytes, int], bool] = {}
        self._expansions: dict[States, Rows] = {}
        self._expansion_bytes = 0
        self._expanded = 0

        pending = [table.view(table.root).pending for table in tables]
        ids = union([part for part in pending if len(part)], self._width)
        earlier = None if like is None else like._watched
        self._watched: WatchedTokens = (
            earlier.kept_for(tables)
            if earlier is not None and np.array_equal(earlier.ids, ids)
            else WatchedTokens(ids, vocabulary.tokens, paths)
        )
        self._ways_out = WaysOut(self._watched, tables)
        self._further_sets: dict[bytes, WaysOut | FewTokens] = {}
        self._further_of: dict[tuple[int, int], WaysOut | FewTokens | None] = {}

    # -- each constraint by itself -----------------------------------------------------------------------------

    def may_end(self, states: States) -> bool:
        """Whether every constraint lets the text end."""
        return all(a.may_end(s) for a, s in zip(self._automata, states, strict=True))

    def _views(self, states: States) -> list[StateView]:
        return [t.view(s) for t, s in zip(self.tables, states, strict=True)]

    def _completing(self, states: States, views: list[StateView]) -> Ids:
        """Sorted ids of the tokens with which a match completes, of forbidden ends and of unusable tokens."""
        parts = [v.completing for v in views if len(v.completing)]
        if len(self._never):
            parts.append(self._never)
        ends = [] if all(v.may_end for v in views) else list(self._silent_ends)
        for token in self._ends_with_text:
            if any(t.completes_end(s, token) for t, s in zip(self.tables, states, strict=True)):
                ends.append(token)
        if ends:
            parts.append(np.array(sorted(ends), np.int64))
        return parts[0] if len(parts) == 1 else union(parts, self._width)

    def _next_rows(self, states: States, tokens: Ids) -> Rows:
        """The states [tokens, constraints] that tokens which complete no match lead to."""
        return np.stack([t.next_many(s, tokens) for t, s in zip(self.tables, states, strict=True)], axis=1)

    # -- all together ------------------------------------------------------------------------------------------

    def forbidden(self, states: States, tokens_left: int = HORIZON) -> Ids:
        """Sorted ids of the forbidden tokens, where at most `tokens_left` tokens may follow the next one.

        Errors: `StateLimitError` where the search for an end takes too long.
        """
        tokens_left = min(tokens_left, HORIZON)
        self._expanded = 0
        views = self._views(states)
        completing = self._completing(states, views)
        parts = [completing]
        doubtful = self._without_proof(states, views, self._ways_within[tokens_left])
        doubtful = minus(doubtful, completing, self._width)
        if len(doubtful):
            late = doubtful[~self._can_end(self._next_rows(states, doubtful), tokens_left)]
            if len(late):
                parts.append(late)
        # Tokens without text leave the state as it is.
        silent = len(self._silent) and not all(v.may_end for v in views)
        if silent and not self._can_end(np.array([states], np.int32), tokens_left)[0]:
            parts.append(self._silent)
        return union(parts, self._width) if len(parts) > 1 else completing

    def _pending(self, views: list[StateView], completing: Ids) -> Ids:
        """The tokens with which no match completes, and after which some constraint does not let the text end."""
        parts = [v.pending for v in views if len(v.pending)]
        if not parts:
            return NO_IDS
        return minus(parts[0] if len(parts) == 1 else union(parts, self._width), completing, self._width)

    def _without_proof(self, states: States, views: list[StateView], ways: int) -> Ids:
        """The tokens after which the text may not end, and none of these ways out was found to be open to all."""
        parts = [self._ways_out.without(states, ways)]
        for i, view in enumerate(views):
            further = self._further(i, states[i], view)
            if further is not None:
                parts.append(further.without(states, ways))
        found = [part for part in parts if len(part)]
        return union(found, self._width) if found else NO_IDS

    def _further(self, index: int, state: int, view: StateView) -> WaysOut | FewTokens | None:
        """The ways out after tokens that are pending in this state of a constraint, and in no start state."""
        table = self.tables[index]
        if state == table.root or not len(view.pending):
            return None
        key = (index, state)
        if key not in self._further_of:
            ids = minus(view.pending, self._watched.ids, self._width)
            place = ids.tobytes()
            if len(ids) and place not in self._further_sets:
                tokens, paths = self._vocabulary.tokens, self._paths
                self._further_sets[place] = (
                    FewTokens(ids, tokens, paths, self.tables)
                    if len(ids) <= _FEW
                    else WaysOut(WatchedTokens(ids, tokens, paths), self.tables)
                )
            self._further_of[key] = self._further_sets[place] if len(ids) else None
        return self._further_of[key]

    def _can_end(self, rows: Rows, tokens: int) -> NDArray[np.bool_]:
        """For each row of states: whether the text can be brought to an allowed end by at most so many tokens.

        Some bytes that are tokens of their own and lead to an end are proof enough; only where no such proof is found
        is the whole vocabulary searched.
        """
        verdicts = self._exits_within(rows, tokens)
        for i in np.flatnonzero(~verdicts).tolist() if tokens else ():
            verdicts[i] = self._search(rows[i], tokens)
        return verdicts

    def _exits_within(self, rows: Rows, tokens: int) -> NDArray[np.bool_]:
        """For each row, whether some bytes that are tokens of their own, at most so many, end the text."""
        keys = [row.tobytes() for row in np.ascontiguousarray(rows)]
        fresh = {key: i for i, key in enumerate(keys) if key not in self._exits}
        if fresh:
            found = self._find_exits(rows[list(fresh.values())]).tolist()
            self._exits.update(zip(fresh, found, strict=True))
        return np.array([self._exits[key] <= tokens for key in keys], bool)

    def _needed(self, state: int) -> int:
        """How many tokens the character that this state of UTF-8 is in the middle of needs at least; 0 outside one."""
        known = self._needed_by.get(state)
        if known is None:
            automaton, level, known = self._automata[self._utf8], {state}, 0
            while known < _NO_EXIT and level and not any(map(automaton.may_end, level)):
                known += 1
                level = {r for s in level for t in self._tails() if (r := automaton.read(s, t)) >= 0} - level
            self._needed_by[state] = known = known if level else _NO_EXIT
        return known

    def _tails(self) -> frozenset[bytes]:
        """The distinct tokens that begin within a character, or with one that is not ASCII."""
        tokens = self._vocabulary.tokens
        return frozenset(tokens[i] for i in self._paths.beyond_ascii.tolist())

    def _find_exits(self, rows: Rows) -> NDArray[np.int64]:
        """For each row, how many short tokens can end the text; `_NO_EXIT` where no way was found.

        A path is a way out of a row if it is one for every constraint: what each has open is intersected.
        """
        ways = np.full(len(rows), self._paths.every, np.int64)
        for i, table in enumerate(self.tables):
            ways &= table.open_paths.of(rows[:, i])
        depths = np.full(len(rows), _NO_EXIT, np.int64)
        for path, tokens in enumerate(self._paths.tokens.tolist()):
            found = (ways >> path & 1).astype(bool)
            depths[found] = np.minimum(depths[found], tokens)
        for i in np.flatnonzero(depths == _NO_EXIT).tolist():
            depths[i] = self._explore(rows[i : i + 1])
        return depths

    def _explore(self, level: Rows) -> int:
        """The same for one row by all bytes that are tokens of their own, a few bytes deep, a few states wide."""
        # Constraints that so few bytes bring to nothing have no say. At least one has: it bars an end at once.
        near = [
            i
            for i, (automaton, state) in enumerate(zip(self._automata, level[0].tolist(), strict=True))
            if automaton.distance(state) <= _EXPLORED_BYTES
        ]
        automata, level = [self._automata[i] for i in near], level[:, near]
        for length in range(1, _EXPLORED_BYTES + 1):
            symbols = np.tile(self._paths.single, len(level))
            following = np.repeat(level, len(self._paths.single), axis=0)
            for i, automaton in enumerate(automata):
                column = automaton.step_many(following[:, i], symbols)
                kept = column >= 0
                following, symbols = following[kept], symbols[kept]
                following[:, i] = column[kept]
            if not len(following):
                break
            following = _distinct(following)
            ends = np.ones(len(following), bool)
            for i, automaton in enumerate(automata):
                ends &= automaton.may_end_many(following[:, i])
            if ends.any():
                return length
            level = following[:_EXPLORED_STATES]
        return _NO_EXIT

    def _search(self, row: NDArray[np.int32], tokens: int) -> bool:
        """The same for one row by all tokens, exactly: the whole vocabulary, as deep as need be."""
        searched = (row.tobytes(), tokens)
        verdict = self._searched.get(searched)
        if verdict is None:
            verdict = self._searched[searched] = self._needed(
                int(row[self._utf8])
            ) <= tokens and self._leads_out(tuple(row.tolist()), tokens)
        return verdict

    def _leads_out(self, states: States, tokens: int) -> bool:
        """Breadth first: the nearest way out is found before anything further away is looked at."""
        frontier, seen = [states], {states}
        for left in range(tokens - 1, -1, -1):
            ahead: dict[States, None] = {}
            for row in frontier:
                expansion = self._expansions.get(row)
                if expansion is None:
                    expansion = self._expansions[row] = self._expand(row)
                    self._expansion_bytes += expansion.nbytes
                if expansion is _STRAIGHT:
                    return True
                ahead.update(dict.fromkeys(map(tuple, expansion.tolist())))
            frontier = [row for row in ahead if row not in seen]
            if not frontier:
                return False
            if self._exits_within(np.array(frontier, np.int32), left).any():
                return True
            seen.update(frontier)
        return False

    def _expand(self, states: States) -> Rows:
        """The distinct rows of states, none of which may end, that allowed tokens lead to; or `_STRAIGHT`."""
        views = self._views(states)
        completing = self._completing(states, views)
        pending = self._pending(views, completing)
        if np.count_nonzero(self._with_text[completing]) + len(pending) < self._text_count:
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
        return (
            _distinct(self._next_rows(states, pending))
            if len(pending)
            else np.zeros((0, len(states)), np.int32)
        )

    @property
    def nbytes(self) -> int:
        """Bytes held beyond the tables' own (those of dictionaries estimated)."""
        entries = len(self._exits) + len(self._searched) + len(self._expansions)
        ways = [self._ways_out, *self._further_sets.values()]
        held = self._expansion_bytes + sum(w.nbytes for w in ways)
        return held + entries * (120 + 4 * len(self.tables))
