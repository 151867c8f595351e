"""The hard constraints of a policy together: what is forbidden, and what could never end well.

A token is forbidden if

1. a match of some constraint completes with it (each constraint by itself, `tables`), or
2. no way was found to bring the text to an allowed end within `HORIZON` more tokens. Constraints that are each
   satisfiable can leave no common way out ("ass" may not end, and every way on is forbidden by others); only
   tokens after which some constraint is pending can lead there.

What is tried, and within which bound, is defined in `bruteforce`. Here it is tried for many tokens at once. What each
constraint bars by itself is nearly always proof: a way out that none of them bars. Such ways are a few short texts
(`short_ways`), and what the constraints themselves want written next (`ways`). Only tokens without such a proof are
looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from nco_guard.compiler import UTF8_RULE
from nco_guard.masking.bruteforce import HORIZON, rows_searched
from nco_guard.masking.byte_strings import token_bytes
from nco_guard.masking.few_barred import FewBarred
from nco_guard.masking.idsets import NO_IDS, Ids, minus, union
from nco_guard.masking.pending import FewTokens, WatchedTokens, WaysOut
from nco_guard.masking.short_ways import ShortWays
from nco_guard.masking.tables import MANY, ConstraintTable, StateView
from nco_guard.masking.ways import LEFT, ROWS, Way, Ways
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["HardConstraints"]

States = tuple[int, ...]
Rows = NDArray[np.int32]

_NO_EXIT = HORIZON + 1

# Up to so many tokens are read one by one rather than by a tree of their own; more than `MANY` not by a tree either.
_FEW = 8
# From one in so many of all tokens on, what bars a text after them is found for all tokens, by the tree.
_MOSTLY = 8
# Tokens whose states are looked at together.
_AT_ONCE = 512
# Automata of so few states are known to be harmless to a way out or not, in every state at once.
_SMALL = 200
# In place of an expansion: some token leads straight to an allowed end.
_STRAIGHT: Rows = np.zeros((0, 0), np.int32)
# Of a text, in each state, where it is barred; -1: not asked.
_NOT_ASKED: NDArray[np.int16] = np.zeros(0, np.int16)


def _distinct(rows: Rows) -> Rows:
    # Several times faster than numpy.unique with an axis, which sorts.
    distinct = {row.tobytes() for row in np.ascontiguousarray(rows)}
    return np.frombuffer(b"".join(distinct), np.int32).reshape(len(distinct), -1).copy()


class HardConstraints:
    """All hard constraints over one vocabulary. States are tuples, an entry per constraint, in the order of `tables`.

    Not safe to share between threads by itself; `JointTables` holds a lock.
    """

    def __init__(
        self,
        tables: Sequence[ConstraintTable],
        vocabulary: Vocabulary,
        tree: PrefixTree,
        paths: ShortWays,
        like: HardConstraints | None = None,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        """`tree` holds the tokens that add text and do not end it. `like`: others, over the same vocabulary.

        `give_way`: called within long searches wherever nothing is half done, so that others may use these.
        """
        self.tables = tuple(tables)
        self._automata = [table.automaton for table in tables]
        self._vocabulary = vocabulary
        self._width = vocabulary.width
        self._paths = paths
        self._sort_tokens(tree)
        self._ways_within = [paths.within(tokens) for tokens in range(HORIZON + 1)]

        # Well-formed UTF-8 is a constraint like others, but what it wants is among the short texts.
        self._utf8 = next(i for i, t in enumerate(self.tables) if UTF8_RULE in t.constraint.rule_ids)
        utf8 = self.tables[self._utf8]
        self._between = int(utf8.open_paths.of(np.array([utf8.root], np.int32))[0])
        self._bytes = token_bytes(vocabulary)
        self._ways = Ways(self._automata, self._utf8, paths.letters, paths.borders)
        self._rows = rows_searched(self._text_count)
        self._known_ways: dict[bytes, int] = {}
        self._searched: dict[tuple[States, int], tuple[bool | None, int]] = {}
        self._expansions: dict[States, Rows] = {}
        self._expansion_bytes = 0
        self._wants: dict[tuple[int, int], bytes] = {}
        self._closures: dict[int, NDArray[np.int32] | None] = {}
        self._shut_after: dict[tuple[int, int, bytes], Ids] = {}
        self._after_watched: dict[tuple[int, int], NDArray[np.int32]] = {}
        self._barred_in: dict[tuple[int, bytes], NDArray[np.int16]] = {}
        self._few_barred = FewBarred()
        self._bytes_needed: dict[tuple[int, bytes], int] = {}
        self.give_way = give_way

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
        self._further_of: dict[tuple[int, int], WaysOut | FewTokens | Ids | None] = {}

    def _sort_tokens(self, tree: PrefixTree) -> None:
        """Which tokens have text, which end it, and which do neither."""
        vocabulary = self._vocabulary
        self._unusable = frozenset(vocabulary.unusable_ids)
        self._never: Ids = np.array(sorted(self._unusable), np.int64)
        self._with_text: NDArray[np.bool_] = np.zeros(self._width, bool)
        self._with_text[tree.order] = True
        self._text_count = len(tree.order)
        ends = [token for token in vocabulary.eos_ids if token not in self._unusable]
        self._silent_ends = [token for token in ends if not vocabulary.tokens[token]]
        self._ends_with_text = [token for token in ends if vocabulary.tokens[token]]
        silent = ~self._with_text
        silent[list(vocabulary.eos_ids)] = False
        self._silent: Ids = np.flatnonzero(silent)

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
        columns: list[NDArray[np.int32]] = []
        for i, state in enumerate(states):
            self.give_way()
            columns.append(self._after(i, state, tokens))
        return np.stack(columns, axis=1)

    def _after(self, index: int, state: int, tokens: Ids) -> NDArray[np.int32]:
        """The states [tokens] after each of the tokens, from one state. Those of the watched ones are kept."""
        automaton, watched = self._automata[index], self._watched.ids
        if len(tokens) <= _FEW or not len(watched):
            return self._bytes.after(automaton, state, tokens)
        known = self._after_watched.get((index, state))
        if known is None:
            known = self._after_watched[index, state] = self._bytes.after(automaton, state, watched)
        places = np.minimum(np.searchsorted(watched, tokens), len(watched) - 1)
        found = known[places]
        others = np.flatnonzero(watched[places] != tokens)
        if len(others):
            found[others] = self._bytes.after(automaton, state, tokens[others])
        return found

    # -- all together ------------------------------------------------------------------------------------------

    def forbidden(self, states: States, tokens_left: int = HORIZON) -> tuple[Ids, int]:
        """Sorted ids of the forbidden tokens, where at most `tokens_left` tokens may follow the next one.

        And in how many states that tokens lead to it was not decided within the bound whether the text can still be
        brought to an end. Errors: `StateLimitError` of an automaton.
        """
        tokens_left, undecided = min(tokens_left, HORIZON), 0
        views = self._views(states)
        completing = self._completing(states, views)
        parts = [completing]
        doubtful = self._without_proof(states, views, self._ways_within[tokens_left])
        doubtful = minus(doubtful, completing, self._width)
        silent = len(self._silent) and not all(v.may_end for v in views)
        if len(doubtful) or silent:
            tried = self._to_be_tried(states, views, tokens_left)
            late, undecided = self._late(states, views, doubtful, tried, tokens_left)
            if len(late):
                parts.append(late)
            # Tokens without text leave the state as it is.
            goes_on = self._goes_on(states, tried, tokens_left) if silent else True
            if not goes_on:
                parts.append(self._silent)
                undecided += goes_on is None
        return (union(parts, self._width) if len(parts) > 1 else completing), undecided

    def _goes_on(self, states: States, tried: list[bytes], tokens_left: int) -> bool | None:
        """Whether the text can be brought to an end from this state itself; None: that was not decided."""
        if self._can_end_within(np.array([states], np.int32), tokens_left)[0]:
            return True
        if any(all(self._ways.opens(i, s, text) for i, s in enumerate(states)) for text in tried):
            return True
        return self._ends_so(states, tokens_left, self._rows)[0]

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
            if isinstance(further, np.ndarray):
                parts.append(further)
            elif further is not None:
                parts.append(further.without(states, ways))
        found = [part for part in parts if len(part)]
        return union(found, self._width) if found else NO_IDS

    def _further(self, index: int, state: int, view: StateView) -> WaysOut | FewTokens | Ids | None:
        """The ways out after tokens that are pending in this state of a constraint, and in no start state.

        Where these are many, as they are while something is open that has to be closed, only the tokens themselves.
        """
        table = self.tables[index]
        if state == table.root or not len(view.pending):
            return None
        key = (index, state)
        if key not in self._further_of:
            ids = minus(view.pending, self._watched.ids, self._width)
            if len(ids) > MANY:
                self._further_of[key] = ids
                return ids
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

    # -- longer ways out ---------------------------------------------------------------------------------------

    def _to_be_tried(self, states: States, views: list[StateView], tokens_left: int) -> list[bytes]:
        """The longer ways out that are tried after every token: how this text could be brought to an end, and what each
        constraint wants first after a token that leaves it pending.
        """
        way = b"" if all(v.may_end for v in views) else self._ways.way(states)
        base = way if isinstance(way, bytes) else b""
        found = [base] if base else []
        for i, (state, view) in enumerate(zip(states, views, strict=True)):
            want = self._want(i, state, view)
            if want:
                found += [want, want + base, base + want]
        return [x for x in dict.fromkeys(found) if self._paths.tokens_needed(x) <= tokens_left]

    def _want(self, index: int, state: int, view: StateView) -> bytes:
        """What a constraint wants after the first token that leaves it pending; empty if there is none."""
        if index == self._utf8 or not len(view.pending):
            return b""
        key = (index, state)
        known = self._wants.get(key)
        if known is None:
            pending = minus(view.pending, view.completing, self._width)
            way: Way = b""
            if len(pending):
                reached = self._automata[index].read(state, self._vocabulary.tokens[int(pending[0])])
                way = self._ways.own(index, reached)
            known = self._wants[key] = way if isinstance(way, bytes) else b""
        return known

    def _late(
        self, states: States, views: list[StateView], doubtful: Ids, tried: list[bytes], tokens_left: int
    ) -> tuple[Ids, int]:
        """Those of the doubtful tokens after which no way was found to bring the text to an end in time, and after how
        many states that they lead to it was not decided.
        """
        after: dict[int, NDArray[np.int32]] = {}
        for text in tried:
            if not len(doubtful):
                break
            self.give_way()
            barred = self._barred(states, views, doubtful, text, after)[doubtful]
            if not barred.all():
                doubtful, after = doubtful[barred], {}
        doubtful = minus(doubtful, self._beginnings(states, views, tokens_left), self._width)
        closed = self._closed(views, doubtful, self._ways_within[tokens_left])
        maybe = np.flatnonzero(~closed)
        if len(maybe):
            closed[maybe] = ~self._can_end_within(self._next_rows(states, doubtful[maybe]), tokens_left)
        late = doubtful[closed]
        if not len(late):
            return late, 0
        saved, undecided = self._saved(states, late, tokens_left)
        return minus(late, saved, self._width), undecided

    def _beginnings(self, states: States, views: list[StateView], tokens_left: int) -> Ids:
        """Sorted ids of the tokens that begin the way out of this state, if the rest is in time."""
        way = False if all(v.may_end for v in views) else self._ways.way(states)
        if not isinstance(way, bytes):
            return NO_IDS
        needed = self._paths.tokens_needed
        ends = [end for end in range(1, len(way) + 1) if needed(way[end:]) <= tokens_left]
        found = [token for end in ends for token in self._paths.ids_of(way[:end])]
        return np.array(sorted(found), np.int64)

    def _closed(self, views: list[StateView], tokens: Ids, ways: int) -> NDArray[np.bool_]:
        """After which tokens none of these short ways out is open, as far as one constraint by itself can tell.

        Of tokens that end within a character nothing is said.
        """
        shut = np.zeros(self._width, bool)
        # Between two characters the rest of one is no way out.
        ways &= self._between
        for table, view in zip(self.tables, views, strict=True):
            if view.after is not None:
                places, distinct = view.after
                closed = table.open_paths.of(distinct) & ways == 0
                shut[view.pending[closed[places]]] = True
        shut[views[self._utf8].pending] = False
        return shut[tokens]

    def _saved(self, states: States, late: Ids, tokens_left: int) -> tuple[Ids, int]:
        """Those of the tokens after which a way out is found by looking at what they lead to, within the bounds; and
        after how many states that they lead to it was not decided.
        """
        first = late[:LEFT]
        found: dict[bytes, bool | None] = {}
        rows: list[bytes] = []
        searched = self._rows
        for begin in range(0, len(first), _AT_ONCE):
            # Beyond the bound only how many there are is of interest, or which of them were saved.
            if len(found) == ROWS and tokens_left < HORIZON and not any(found.values()):
                break
            part = [row.tobytes() for row in self._next_rows(states, first[begin : begin + _AT_ONCE])]
            for row in part:
                if row not in found and len(found) < ROWS:
                    self.give_way()
                    reached = tuple(np.frombuffer(row, np.int32).tolist())
                    found[row], looked = self._ends_so(reached, tokens_left, searched)
                    searched -= looked
            rows += part
        undecided = sum(way is None for way in found.values())
        # Near a limit, what was not looked at is taken to be too late.
        if tokens_left == HORIZON:
            undecided += len(late) - len(first) + len({*rows}) - len(found)
        return first[[place for place, row in enumerate(rows) if found.get(row)]], undecided

    def _barred(
        self,
        states: States,
        views: list[StateView],
        tokens: Ids,
        text: bytes,
        after: dict[int, NDArray[np.int32]],
    ) -> NDArray[np.bool_]:
        """After which of the tokens some constraint bars a text. bool [width]; of other tokens nothing is said.

        `after`: the states after the tokens, by constraint, where they were asked for before; filled.
        """
        barred = np.zeros(self._width, bool)
        costly: list[int] = []
        for i, view in enumerate(views):
            if self._bytes_barring(i, text):
                costly.append(i)
            elif len(view.pending):
                # Only where it is pending itself.
                barred[self._shut_after_pending(i, states[i], view, text)] = True
                if len(view.pending) >= len(tokens) and barred[tokens].all():
                    return barred
        few, number = self._few_barred, self._few_barred.number_of(tokens)
        for i in costly:
            shut = few.get(i, states[i], number, text)
            if shut is None:
                self.give_way()
                every = len(tokens) * _MOSTLY >= self._text_count or (i, states[i], text) in self._shut_after
                if not every and i not in after:
                    after[i] = self._after(i, states[i], tokens)
                shut = self._all_shut(i, states[i], text) if every else tokens[~self._open(i, after[i], text)]
                few.keep(i, states[i], -1 if every else number, text, shut)
            barred[shut] = True
        return barred

    def _shut_after_pending(self, index: int, state: int, view: StateView, text: bytes) -> Ids:
        """The tokens that leave a constraint pending, and after which it bars a text."""
        if view.after is None:
            reached = self._bytes.after(self._automata[index], state, view.pending)
            return view.pending[~self._open(index, reached, text)]
        places, distinct = view.after
        shut = ~self._open(index, distinct, text)
        if shut.all():
            return view.pending
        return view.pending[shut[places]] if shut.any() else NO_IDS

    def _all_shut(self, index: int, state: int, text: bytes) -> Ids:
        """Sorted ids of all tokens after which a constraint bars a text, but for those that complete a match."""
        key = (index, state, text)
        known = self._shut_after.get(key)
        if known is None:
            opens = partial(self._open, index, text=text)
            beyond = self._bytes_barring(index, text)
            known = self._shut_after[key] = self.tables[index].tokens_barring(state, beyond, opens)
        return known

    def _open(self, index: int, states: NDArray[np.int32], text: bytes) -> NDArray[np.bool_]:
        """In which of the states a constraint leaves a text open, and the end after it."""
        found: NDArray[np.bool_] = self._barred_at(index, states, text) == 0
        return found

    def _barred_at(self, index: int, states: NDArray[np.int32], text: bytes) -> NDArray[np.int16]:
        """`Ways.barred_at`, remembered."""
        known = self._barred_in.get((index, text), _NOT_ASKED)
        if len(states) and (highest := int(states.max())) >= len(known):
            size = max(highest + 1, min(2 * len(known), 2 * highest))
            known = np.concatenate([known, np.full(size - len(known), -1, np.int16)])
        found = known[states]
        if found.min(initial=0) < 0:
            fresh = np.unique(states[found < 0])
            known[fresh] = self._ways.barred_at(index, fresh, text)
            self._barred_in[index, text] = known
            found = known[states]
        return found

    def _bytes_barring(self, index: int, text: bytes) -> int:
        """With how many bytes of a text at most a constraint bars it, from states in which it lets the text end.

        0: in no such state.
        """
        key = (index, text)
        known = self._bytes_needed.get(key)
        if known is None:
            automaton = self._automata[index]
            closure = self._closure(index)
            if automaton.forgets(text[0]) and self._ways.opens(index, automaton.start, text):
                known = 0
            elif closure is None:
                known = len(text)
            else:
                known = int(self._barred_at(index, closure, text).max(initial=0))
            self._bytes_needed[key] = known
        return known

    def _closure(self, index: int) -> NDArray[np.int32] | None:
        """All states of a constraint that let the text end; None if there are many."""
        if index not in self._closures:
            automaton = self._automata[index]
            _, some = np.unique(automaton.byte_classes, return_index=True)
            seen = {automaton.start: None}
            waiting = [automaton.start]
            while waiting and len(seen) <= _SMALL:
                state = waiting.pop()
                for byte in some.tolist():
                    reached = automaton.step(state, byte)
                    if reached >= 0 and reached not in seen:
                        seen[reached] = None
                        waiting.append(reached)
            ending = [s for s in seen if automaton.may_end(s)]
            self._closures[index] = None if waiting else np.array(ending, np.int32)
        return self._closures[index]

    def _ends_so(self, row: States, tokens: int, rows: int) -> tuple[bool | None, int]:
        """Whether there is a way to bring the text from where it may not end to an allowed end in time.

        None: that was not decided within the bound. `rows`: all tokens are searched if there are any left; returned
        too: how many were looked at.
        """
        way = self._ways.way(row) if tokens else False
        if way is False or (isinstance(way, bytes) and self._paths.tokens_needed(way) <= tokens):
            return way is not False, 0
        verdict, looked = self._search(row, tokens) if rows > 0 else (None, 0)
        # Of a way that is known, and too long, no other is looked for.
        return False if verdict is None and isinstance(way, bytes) else verdict, looked

    def _can_end_within(self, rows: Rows, tokens: int) -> NDArray[np.bool_]:
        """For each row, whether some bytes that are tokens of their own, at most so many, end the text."""
        keys = [row.tobytes() for row in np.ascontiguousarray(rows)]
        fresh = {key: i for i, key in enumerate(keys) if key not in self._known_ways}
        if fresh:
            found = self._find_ways(rows[list(fresh.values())]).tolist()
            self._known_ways.update(zip(fresh, found, strict=True))
        return np.array([self._known_ways[key] <= tokens for key in keys], bool)

    def _find_ways(self, rows: Rows) -> NDArray[np.int64]:
        """For each row, how many short tokens can end the text; `_NO_EXIT` where no way was found."""
        ways = np.full(len(rows), self._paths.every, np.int64)
        for i, table in enumerate(self.tables):
            ways &= table.open_paths.of(rows[:, i])
        depths = np.full(len(rows), _NO_EXIT, np.int64)
        for path, tokens in enumerate(self._paths.tokens.tolist()):
            found = (ways >> path & 1).astype(bool)
            depths[found] = np.minimum(depths[found], tokens)
        return depths

    # -- all tokens --------------------------------------------------------------------------------------------

    def _search(self, row: States, tokens: int) -> tuple[bool | None, int]:
        """Whether tokens lead to an end, by all of them, level by level; None where that takes too many rows.

        And how many rows were looked at.
        """
        key = (row, tokens)
        if key not in self._searched:
            self._searched[key] = self._leads_out(row, tokens)
        return self._searched[key]

    def _leads_out(self, states: States, tokens: int) -> tuple[bool | None, int]:
        frontier, seen, looked = [states], {states}, 0
        for left in range(tokens - 1, -1, -1):
            looked += len(frontier)
            if looked > self._rows:
                return None, looked
            ahead: dict[States, None] = {}
            for row in frontier:
                self.give_way()
                expansion = self._expansions.get(row)
                if expansion is None:
                    expansion = self._expansions[row] = self._expand(row)
                    self._expansion_bytes += expansion.nbytes
                if expansion is _STRAIGHT:
                    return True, looked
                ahead.update(dict.fromkeys(map(tuple, expansion.tolist())))
            frontier = [row for row in ahead if row not in seen]
            if not frontier:
                break
            if self._can_end_within(np.array(frontier, np.int32), left).any():
                return True, looked
            seen.update(frontier)
        return False, looked

    def _expand(self, states: States) -> Rows:
        """The distinct rows of states, none of which may end, that allowed tokens lead to; or `_STRAIGHT`."""
        views = self._views(states)
        completing = self._completing(states, views)
        pending = self._pending(views, completing)
        if np.count_nonzero(self._with_text[completing]) + len(pending) < self._text_count:
            return _STRAIGHT
        return (
            _distinct(self._next_rows(states, pending))
            if len(pending)
            else np.zeros((0, len(states)), np.int32)
        )

    # -- ways that somebody else asks for ------------------------------------------------------------------------

    def barring(self, states: States, tokens: Ids, text: bytes) -> NDArray[np.bool_]:
        """After which of some tokens, with none of which a match completes, a text is barred, or the end after it."""
        views = self._views(states)
        if text:
            return self._barred(states, views, tokens, text, {})[tokens]
        shut = np.zeros(self._width, bool)
        for view in views:
            shut[view.pending] = True
        return shut[tokens]

    def after(self, states: States, tokens: Ids) -> list[States]:
        """The states after some tokens, with none of which a match completes."""
        return [tuple(row) for row in self._next_rows(states, tokens).tolist()]

    def read(self, states: States, text: bytes) -> States:
        """The states after a text; none where a match completes."""
        reached = tuple([a.read(s, text) for a, s in zip(self._automata, states, strict=True)])
        return reached if min(reached) >= 0 else ()

    @cached_property
    def kinds(self) -> NDArray[np.int64]:
        """int64 [256]: bytes of one number lead every constraint from every state to the same state."""
        rows = np.stack([automaton.byte_classes for automaton in self._automata], axis=1)
        return np.unique(rows, axis=0, return_inverse=True)[1].ravel()

    @property
    def nbytes(self) -> int:
        """Bytes held beyond the tables' own (those of dictionaries estimated)."""
        entries = len(self._known_ways) + len(self._searched) + len(self._expansions)
        ways = [self._ways_out, *self._further_sets.values()]
        sets = [ids for ids in self._further_of.values() if isinstance(ids, np.ndarray)]
        sets += self._shut_after.values()
        held = self._expansion_bytes + self._ways.nbytes + self._few_barred.nbytes
        held += sum(part.nbytes for part in [*ways, *sets])
        held += sum(part.nbytes for part in self._after_watched.values())
        held += sum(part.nbytes for part in self._barred_in.values())
        return held + entries * (120 + 4 * len(self.tables))
