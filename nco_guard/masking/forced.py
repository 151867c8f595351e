"""What a token leaves behind that the masks forbid and that somebody else wrote all the same.

Masks go on as if the text had been written so: each rule is in the state that its automaton reaches, past the match if
one completed. One thing is left to settle. A rule may be lost already: whatever follows completes its match ("hello" at
the start of a text for `hello.*$`), or all rules together leave no way on. Were it counted, nothing could be written
any more. So it does not count until its match is past, that is until the text may end as far as it is concerned.

Cost: only texts with such a token pay, some milliseconds for each set of lost rules.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import BORDER, Automaton
from nco_guard.automata.automaton import SINK
from nco_guard.compiler import UTF8_RULE
from nco_guard.masking.lookahead import HardConstraints
from nco_guard.masking.quotients import Quotients
from nco_guard.masking.short_ways import ShortWays
from nco_guard.masking.tables import ConstraintTable
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["ForgivingAutomaton", "LostRules", "RulesLeft", "well_formed"]

States = tuple[int, ...]


def well_formed(data: bytes, marks: bytes = b"") -> bytes:
    """Bytes after whole characters, as a reader gets them: what is ill-formed becomes U+FFFD.

    A character that is not complete at the very end stays as it is. `marks`: bytes that may stand between characters.
    """
    pieces = re.split(b"([" + re.escape(marks) + b"])", data) if marks else [data]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    whole = b""
    for place, piece in enumerate(pieces):
        last = place == len(pieces) - 1
        whole += piece if place % 2 else decoder.decode(piece, final=not last).encode()
    return whole + decoder.getstate()[0]


class ForgivingAutomaton(Automaton):
    """An automaton one match of which does not count: that which is under way in a state made by `lost_in`.

    Such a state is left once the text may end in it, between characters; from there on all is as with `inner`. `utf8`:
    tells where characters end; all of its states are known.
    """

    def __init__(self, inner: Automaton, utf8: Automaton) -> None:
        self.inner = inner
        self._utf8 = utf8
        self._factor = (
            1 + utf8.state_count
        )  # a state of the inner one, times this; plus 1 and that of UTF-8, if lost
        self.start = inner.start * self._factor
        self.spaceless_start = inner.spaceless_start * self._factor

    def lost_in(self, state: int, utf8_state: int) -> int:
        """The state of the inner one, its match under way not counting."""
        return state * self._factor + 1 + utf8_state

    def inner_state(self, state: int) -> int:
        """What the inner one is in."""
        return state // self._factor

    def is_lost(self, state: int) -> bool:
        """Whether a match is under way that does not count."""
        return state % self._factor > 0

    def step(self, state: int, byte: int) -> int:
        """The next state; a match that does not count does not show."""
        own, within = divmod(state, self._factor)
        reached = self.inner.step(own, byte)
        if not within:
            return ~(~reached * self._factor) if reached < 0 else reached * self._factor
        place = self._utf8.step(within - 1, byte)
        if place < 0:
            return SINK
        reached = ~reached if reached < 0 else reached
        over = self._utf8.may_end(place) and self.inner.may_end(reached)
        return reached * self._factor if over else self.lost_in(reached, place)

    def step_many(self, states: NDArray[np.int32], symbols: NDArray[np.uint8]) -> NDArray[np.int32]:
        """`step` for arrays; states in which a match does not count cost a Python call each."""
        own, within = np.divmod(states, np.int32(self._factor))
        reached = self.inner.step_many(own, symbols)
        matched = reached < 0
        following = np.where(matched, ~reached, reached) * np.int32(self._factor)
        found: NDArray[np.int32] = np.where(matched, ~following, following).astype(np.int32)
        for place in np.flatnonzero(within).tolist():
            found[place] = self.step(int(states[place]), int(symbols[place]))
        return found

    def may_end(self, state: int) -> bool:
        """Whether the text may end here; a match that does not count keeps it from nothing."""
        own, within = divmod(state, self._factor)
        return bool(within) or self.inner.may_end(own)

    def may_end_many(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """`may_end` for an array."""
        own, within = np.divmod(states, np.int32(self._factor))
        found: NDArray[np.bool_] = (within > 0) | self.inner.may_end_many(own)
        return found

    def distances(self, states: NDArray[np.int32]) -> NDArray[np.int16]:
        """See `Automaton.distances`. Nothing is said about states in which a match does not count."""
        own, within = np.divmod(states, np.int32(self._factor))
        found: NDArray[np.int16] = self.inner.distances(own).astype(np.int16)
        found[within > 0] = 0
        return found

    @property
    def state_count(self) -> int:
        """States found so far, about."""
        return self.inner.state_count * self._factor

    @property
    def nbytes(self) -> int:
        """None beside those of the inner one."""
        return 0


class RulesLeft:
    """The tables of all constraints where the matches under way of some do not count.

    `states` of joint states with these lost rules are those of `tables`.
    """

    def __init__(self, tables: Sequence[ConstraintTable], together: HardConstraints) -> None:
        self.tables = tuple(tables)
        self.followings = [table.next for table in self.tables]
        self.together = together


class LostRules:
    """Which rules are lost after a forced token, and masks without them.

    `tables`: those of all constraints; `together`: of the hard ones. For use under the lock of whoever has them.
    """

    def __init__(
        self,
        tables: Sequence[ConstraintTable],
        together: HardConstraints,
        vocabulary: Vocabulary,
        tree: PrefixTree,
        paths: ShortWays,
        quotients: Quotients,
    ) -> None:
        self._tables = tuple(tables)
        self._together = together
        self._vocabulary = vocabulary
        self._tree, self._paths, self._quotients = tree, paths, quotients
        self._utf8_at = next(i for i, t in enumerate(tables) if UTF8_RULE in t.constraint.rule_ids)
        self._utf8 = tables[self._utf8_at].automaton
        self._marks = vocabulary.rewriting.marks if vocabulary.rewriting is not None else b""
        if vocabulary.borders:
            self._marks += bytes([BORDER])
        self._hard = [i for i, t in enumerate(tables) if t.constraint.hard]
        self._automata: dict[int, ForgivingAutomaton] = {}
        self._forgiving: dict[int, ConstraintTable] = {}
        self._left: dict[States, RulesLeft] = {}

    def between_characters(self, states: States) -> bool:
        """Whether a text may end here as far as UTF-8 is concerned."""
        return self._utf8.may_end(states[self._utf8_at])

    def read(self, states: States, lost: States, tokens: Iterable[int]) -> States:
        """The states after tokens, whatever they complete; ill-formed bytes as U+FFFD, ids of no token as nothing."""
        known = self._vocabulary.tokens
        data = b"".join([known[token] for token in tokens if 0 <= token < len(known)])
        data = well_formed(data, self._marks)
        found: list[int] = []
        for table, state in zip(self.left(lost).tables, states, strict=True):
            for byte in data:
                state = table.automaton.step(state, byte)
                state = ~state if state < 0 else state
            found.append(state)
        return tuple(found)

    def without_past(self, states: States, lost: States) -> tuple[States, States]:
        """The states, without those of the lost rules whose match is past, and the lost rules."""
        found, still = list(states), []
        for i in lost:
            automaton = self._automaton(i)
            if automaton.is_lost(states[i]):
                still.append(i)
            else:
                found[i] = automaton.inner_state(states[i])
        return tuple(found), tuple(still)

    def inner_states(self, states: States, lost: States) -> States:
        """The states of the constraints' own automata."""
        found = list(states)
        for i in lost:
            found[i] = self._automaton(i).inner_state(states[i])
        return tuple(found)

    def more_lost(self, states: States, lost: States) -> Iterable[tuple[States, States]]:
        """Where no token is left: the same with more rules lost, first those that are lost by themselves."""
        place = states[self._utf8_at]
        rest = [i for i in self._hard if i != self._utf8_at and i not in lost]
        doomed = [i for i in rest if self._doomed(self._tables[i].automaton, states[i], place)]
        within = not self._utf8.may_end(place)
        pending = [i for i in rest if within or not self._tables[i].automaton.may_end(states[i])]
        for added in (doomed, pending):
            if added:
                found = list(states)
                for i in added:
                    found[i] = self._automaton(i).lost_in(states[i], place)
                yield tuple(found), tuple(sorted({*lost, *added}))

    def _doomed(self, automaton: Automaton, state: int, place: int) -> bool:
        """Whether each byte that may follow completes a match, and the text may not end here."""
        if self._utf8.may_end(place) and automaton.may_end(state):
            return False
        return all(
            automaton.step(state, byte) < 0 for byte in range(256) if self._utf8.step(place, byte) >= 0
        )

    def left(self, lost: States) -> RulesLeft:
        """The tables in which these rules are lost."""
        known = self._left.get(lost)
        if known is None:
            tables = [self._table(i) if i in lost else table for i, table in enumerate(self._tables)]
            hard = [tables[i] for i in self._hard]
            together = self._together
            if lost:
                together = HardConstraints(
                    hard, self._vocabulary, self._tree, self._paths, self._together, self._together.give_way
                )
            known = self._left[lost] = RulesLeft(tables, together)
        return known

    def _automaton(self, index: int) -> ForgivingAutomaton:
        known = self._automata.get(index)
        if known is None:
            known = self._automata[index] = ForgivingAutomaton(self._tables[index].automaton, self._utf8)
        return known

    def _table(self, index: int) -> ConstraintTable:
        known = self._forgiving.get(index)
        if known is None:
            constraint = replace(
                self._tables[index].constraint, automaton=self._automaton(index), key="", source=()
            )
            scratch = self._quotients.scratch(self._tree)
            known = ConstraintTable(constraint, self._tree, self._vocabulary, self._paths, scratch)
            self._forgiving[index] = known
        return known

    @property
    def nbytes(self) -> int:
        """Bytes held beyond the tables that it was made of."""
        held = sum(table.nbytes for table in self._forgiving.values())
        return held + sum(left.together.nbytes for lost, left in self._left.items() if lost)
