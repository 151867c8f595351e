"""One constraint over text that is cut at borders or by marks, seen through one vocabulary.

What a state means for tokens that cut nothing is what the plain automaton says of the texts that it reads (`tables`,
`strings`), so it is looked up there, where nothing is found twice. `bruteforce` is the definition.

Cost: a state in which both readings of borders are the same, that of the plain table; else that of two, and joining
their ids. In a reply in fields, that of the plain table, and of reading the tokens that cut.
"""

from __future__ import annotations

import copy
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import BORDER, Automaton, BorderedAutomaton, Cutter, RegionsAutomaton, UncutText
from nco_guard.compiler import Constraint
from nco_guard.errors import StateLimitError
from nco_guard.masking.byte_strings import token_bytes
from nco_guard.masking.forced import ForgivingAutomaton
from nco_guard.masking.idsets import NO_IDS, Ids, minus, union
from nco_guard.masking.short_ways import Bits, OpenPaths, ShortWays
from nco_guard.masking.tables import ConstraintTable, PlainParts, StateView
from nco_guard.storage.store import Arrays
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["BorderedTable", "RegionTable", "rules_completed"]

#: Bytes of what is kept of the tokens that cut; then all of it is found anew.
_KEPT = 64 << 20


class CutTable(ConstraintTable):
    """The table of a constraint over text that is cut; `plain`: that of the automaton that it reads each text by."""

    def __init__(
        self,
        constraint: Constraint,
        plain: ConstraintTable,
        tree: PrefixTree,
        vocabulary: Vocabulary,
        paths: ShortWays,
    ) -> None:
        self.constraint, self.automaton = constraint, constraint.automaton
        self.root = self.automaton.start
        self._plain = plain
        self._hard = constraint.hard
        self._tree = tree
        self._width = vocabulary.width
        self._tokens = vocabulary.tokens
        self.open_paths = OpenPaths(paths, self.automaton)
        self._views: dict[int, StateView] = {}
        self.view_bytes = 0

    def view(self, state: int) -> StateView:
        """See `ConstraintTable.view`."""
        known = self._views.get(state)
        if known is None:
            try:
                known = self._views[state] = self._find(state)
            except StateLimitError as error:
                raise self.named(error) from None
            self.view_bytes += 200
        return known

    def emptied(self) -> CutTable:
        """This table before any state was looked at."""
        table = copy.copy(self)
        table._views, table.view_bytes = {}, 0
        table._plain = self._plain.emptied()
        return table

    def to_keep(self, growth: float) -> tuple[str, Arrays] | None:
        """What the plain table keeps: nothing else is worth it."""
        return self._plain.to_keep(growth)

    @property
    def nbytes(self) -> int:
        """Bytes held, with what the plain table holds."""
        own = self.automaton.nbytes - self._plain.automaton.nbytes
        return self._plain.nbytes + self.view_bytes + self.open_paths.nbytes + own


class BorderedTable(CutTable):
    """The table of a constraint whose automaton is a `BorderedAutomaton`."""

    def __init__(
        self,
        constraint: Constraint,
        plain: ConstraintTable,
        tree: PrefixTree,
        vocabulary: Vocabulary,
        paths: ShortWays,
    ) -> None:
        super().__init__(constraint, plain, tree, vocabulary, paths)
        if not isinstance(constraint.automaton, BorderedAutomaton):
            raise TypeError("this table is for text with borders")
        self._readings = constraint.automaton
        border = bytes([BORDER])
        ids = [token for token in vocabulary.borders if vocabulary.tokens[token] == border]
        self._borders: Ids = np.array(ids, np.int64)

    def _find(self, state: int) -> StateView:
        inner = self._readings.inner
        whole, last = self._readings.whole(state), self._readings.last(state)
        first = self._plain.view(whole)
        completing, pending = first.completing, first.pending
        after = None if first.after is None else (first.after[0], 2 * first.after[1])
        if last != whole:
            second = self._plain.view(last)
            completing = union([completing, second.completing], self._width)
            pending = union([pending, second.pending], self._width)
            after = None
        if len(self._borders) and not inner.may_end(last):
            completing = union([completing, self._borders], self._width)
        elif len(self._borders) and self._hard and not inner.may_end(whole):
            pending, after = union([pending, self._borders], self._width), None
        self.view_bytes += (completing is not first.completing) * completing.nbytes
        self.view_bytes += (pending is not first.pending) * pending.nbytes
        may_end = not self._hard or self.automaton.may_end(state)
        return StateView(completing, pending, may_end, after)


class RegionTable(CutTable):
    """The table of a constraint whose automaton is a `RegionsAutomaton`.

    A token that cuts nothing means what it means to the plain automaton, after what is held back. Those that cut are
    read one by one, and so are those of which the end is held back, where the plain automaton says anything of them.
    """

    def __init__(
        self,
        constraint: Constraint,
        plain: ConstraintTable,
        tree: PrefixTree,
        vocabulary: Vocabulary,
        paths: ShortWays,
    ) -> None:
        super().__init__(constraint, plain, tree, vocabulary, paths)
        if not isinstance(constraint.automaton, RegionsAutomaton):
            raise TypeError("this table is for replies that are cut into fields")
        self._reply = constraint.automaton
        self._bytes = token_bytes(vocabulary)
        self._known = cutting_tokens(vocabulary, self._reply.cutter, paths)
        self.open_paths = _RegionPaths(paths, self._reply, plain, self._known)

    def emptied(self) -> RegionTable:
        """See `CutTable.emptied`."""
        table = super().emptied()
        assert isinstance(table, RegionTable)
        table.open_paths = _RegionPaths(table._known.paths, table._reply, table._plain, table._known)
        return table

    @property
    def uncut(self) -> ConstraintTable:
        """See `ConstraintTable.uncut`."""
        return self._plain

    def parts(self, state: int) -> PlainParts:
        """See `ConstraintTable.parts`."""
        own, ending = self._known.at(self._reply.cut(state))
        inner, matched = self._reply.released(state)
        apart = union([own, ending], self._width)
        return PlainParts(
            self._plain, () if matched else inner, apart, self._known.ways_behind(self._reply.cut(state))
        )

    def _find(self, state: int) -> StateView:
        own, ending = self._known.at(self._reply.cut(state))
        inner, matched = self._reply.released(state)
        if matched:
            # What is still held back with a token is not certain to be text.
            completing, pending, own = self._known.every, NO_IDS, union([own, ending], self._width)
        else:
            views = [self._plain.view(each) for each in inner]
            completing = union([view.completing for view in views], self._width) if views else NO_IDS
            pending = union([view.pending for view in views], self._width) if views else NO_IDS
            meant = union([completing, pending], self._width)
            own = union([own, ending[np.isin(ending, meant, assume_unique=True)]], self._width)
        completing, pending = minus(completing, own, self._width), minus(pending, own, self._width)
        reached = self._bytes.after(self.automaton, state, own)
        at_once = own[reached < 0]
        if len(at_once):
            completing = union([completing, at_once], self._width)
        if self._hard:
            alive = np.flatnonzero(reached >= 0)
            late = own[alive[~self.automaton.may_end_many(reached[alive])]]
            pending = union([pending, late], self._width) if len(late) else pending
        self.view_bytes += completing.nbytes + pending.nbytes
        return StateView(completing, pending, not self._hard or self.automaton.may_end(state))


class _RegionPaths(OpenPaths):
    """`OpenPaths` in fields: what cuts nothing is open where it is to the plain automaton, other paths count as barred.

    But for the end at once (bit 0), which is asked.
    """

    def __init__(
        self, paths: ShortWays, reply: RegionsAutomaton, plain: ConstraintTable, known: CuttingTokens
    ) -> None:
        super().__init__(paths, reply)
        self._reply, self._plain, self._tokens = reply, plain, known

    def _find(self, states: NDArray[np.int32]) -> Bits:
        return np.array([self._open(state) for state in states.tolist()], np.int64)

    def _open(self, state: int) -> int:
        end = int(self._reply.may_end(state))
        if not self._reply.cut(state):
            return self._paths.every
        inner, matched = self._reply.released(state)
        bits = 0 if matched else self._tokens.uncut_ways(self._reply.cut(state))
        if bits and inner:
            bits &= int(np.bitwise_and.reduce(self._plain.open_paths.of(np.array(inner, np.int32))))
        return bits & ~1 | end


class CuttingTokens:
    """Which tokens of a vocabulary cut a reply, from where it stands. Arrays of sorted ids.

    every: all tokens that add text and do not end it. paths: short texts, of which it is known which cut nothing.
    nbytes: what is kept, at most `_KEPT`, by all guards with this vocabulary and cutter together.
    """

    def __init__(self, vocabulary: Vocabulary, cutter: Cutter, paths: ShortWays) -> None:
        self.paths = paths
        self._ways: dict[int, int] = {}
        self._behind: dict[int, int] = {}
        outside = {*vocabulary.eos_ids, *vocabulary.unusable_ids}
        every = [token for token, data in enumerate(vocabulary.tokens) if data and token not in outside]
        self.every: Ids = np.array(every, np.int64)
        self._bytes = token_bytes(vocabulary)
        self._uncut = UncutText(cutter)
        self._known: dict[int, tuple[Ids, Ids]] = {}
        self.nbytes = 0

    def at(self, place: int) -> tuple[Ids, Ids]:
        """Those that are more than text of the field at a place, and those of which the end is held back.

        Cost: the first time for a place, an array operation for each byte of the longest token.
        """
        found = self._known.get(place)
        if found is None:
            with self._uncut.lock:
                self._uncut.room_for(place)
                reached = self._bytes.after(self._uncut, place, self.every)
                whole = np.flatnonzero(reached >= 0)
                # What is a mark if nothing follows is more than text already.
                marked = whole[~self._uncut.may_end_many(reached[whole])]
                reached[marked] = ~reached[marked]
                whole = np.flatnonzero(reached >= 0)
                held = self._uncut.waits_many(reached[whole])
            behind = self.paths.every
            for after in np.unique(reached[whole[~held]]).tolist():
                behind &= self.uncut_ways(after)
            found = self.every[reached < 0], self.every[whole[held]]
            self._keep(place, found, behind)
        return found

    def _keep(self, place: int, found: tuple[Ids, Ids], behind: int) -> None:
        size = 300 + found[0].nbytes + found[1].nbytes
        with self._uncut.lock:
            if self.nbytes + size > _KEPT:
                self._known.clear()
                self._behind.clear()
                self._ways.clear()
                self.nbytes = 0
            self._known[place], self._behind[place] = found, behind
            self.nbytes += size

    def uncut_ways(self, place: int) -> int:
        """Those of the paths that are text from a place on, whatever follows, as bits."""
        found = self._ways.get(place)
        if found is None:
            with self._uncut.lock:
                self._uncut.room_for(place)
                found = int(self.paths.open_from(self._uncut, np.array([place], np.int32))[0])
            self._ways[place] = found
        return found

    def ways_behind(self, place: int) -> int:
        """Those that are text behind every token that is text, and nothing of it held back."""
        while (found := self._behind.get(place)) is None:
            self._known.pop(place, None)
            self.at(place)
        return found


_cutting: WeakKeyDictionary[Vocabulary, WeakKeyDictionary[Cutter, CuttingTokens]] = WeakKeyDictionary()


def cutting_tokens(vocabulary: Vocabulary, cutter: Cutter, paths: ShortWays) -> CuttingTokens:
    """Which tokens of a vocabulary cut a reply, one for all who ask."""
    known = _cutting.setdefault(vocabulary, WeakKeyDictionary())
    found = known.get(cutter)
    if found is None:
        found = known[cutter] = CuttingTokens(vocabulary, cutter, paths)
    return found


def rules_completed(constraint: Constraint, automaton: Automaton, before: int, byte: int) -> tuple[str, ...]:
    """The rules of which a step from a state completes a match, which it does; `automaton`: as tables have it."""
    named, state = constraint.rules_at, before
    if byte == BORDER:
        # The last part ends: whatever the step leads to says nothing of it.
        inner = automaton.inner if isinstance(automaton, ForgivingAutomaton) else automaton
        if isinstance(automaton, ForgivingAutomaton):
            state = automaton.inner_state(state)
        named = constraint.rules_at_end
        state = inner.alone(state) if isinstance(inner, BorderedAutomaton) else state
    else:
        state = ~automaton.step(before, byte)
        state = automaton.inner_state(state) if isinstance(automaton, ForgivingAutomaton) else state
    return named(state) if named else constraint.rule_ids
