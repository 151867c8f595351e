"""What every constraint looks like to the rest of the library: a search automaton over UTF-8 bytes.

States are small non-negative integers, found lazily. A step answers with the next state, or with `~next` (negative)
when a match completes with this byte. The end of the text is a symbol of its own: `may_end`.

Automata see only well-formed UTF-8. `Utf8Automaton` enforces that as a constraint of its own; in all others an
ill-formed byte leads to `SINK`, where nothing ever happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.utf8 import ILL_FORMED, utf8_table
from nco_guard.errors import StateLimitError

__all__ = ["SINK", "Automaton", "CharMachine", "ClassAutomaton", "TableAutomaton", "Utf8Automaton"]

SINK = 0
_UNKNOWN = np.iinfo(np.int32).min
_UNASKED = -1
_STATE_LIMIT = 400_000  # 1 KiB each


class Automaton(ABC):
    """A deterministic search automaton over bytes with an end-of-text symbol; the interface.

    `start`: the state of the empty text. `spaceless_start`: the same, but one leading space byte is skipped, for
    decoders that strip it.
    """

    start: int
    spaceless_start: int

    @abstractmethod
    def step(self, state: int, byte: int) -> int:
        """The next state, or `~next` if a match completes with this byte."""

    @abstractmethod
    def step_many(self, states: NDArray[np.int32], symbols: NDArray[np.uint8]) -> NDArray[np.int32]:
        """`step` for arrays of equal length. int32."""

    @abstractmethod
    def may_end(self, state: int) -> bool:
        """Whether the text may end in this state."""

    @abstractmethod
    def may_end_many(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """`may_end` for an array."""

    def past_prompt(self, state: int) -> int:
        """The state after a prompt: what was read so far holds no match that counts, nor one that is about to.

        An automaton whose matches wait for nothing is in that state anyway.
        """
        return state

    @property
    @abstractmethod
    def state_count(self) -> int:
        """States found so far."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held by the transition tables."""

    @property
    def byte_classes(self) -> NDArray[np.uint8]:
        """uint8 [256]: bytes of one class lead from every state to the same state. By default each is its own."""
        return np.arange(256, dtype=np.uint8)


class TableAutomaton(Automaton):
    """An automaton with a dense table: `table[state, byte]`, filled by a subclass, wholly or on demand.

    Cost: 1 KiB a state.
    """

    def __init__(self, rule_id: str | None = None) -> None:
        self.rule_id = rule_id
        self._table: NDArray[np.int32] = np.full((16, 256), _UNKNOWN, np.int32)
        self._table[SINK] = SINK
        self._endings: NDArray[np.int8] = np.zeros(0, np.int8)
        self._count = 1

    def _add_state(self) -> int:
        if self._count >= _STATE_LIMIT:
            raise StateLimitError(
                f"the automaton of this pattern passed its limit of {_STATE_LIMIT:,} byte states; make counted repeats "
                "shorter or split the rule",
                rule_id=self.rule_id,
            )
        if self._count == len(self._table):
            grown = np.full((2 * len(self._table), 256), _UNKNOWN, np.int32)
            grown[: self._count] = self._table
            self._table = grown
        self._count += 1
        return self._count - 1

    def _find(self, state: int, byte: int) -> int:
        """Work out one transition that is not in the table yet; complete tables never come here."""
        raise LookupError(state, byte)

    def step(self, state: int, byte: int) -> int:
        """The next state, or `~next` if a match completes with this byte."""
        reached = int(self._table[state, byte])
        if reached == _UNKNOWN:
            reached = self._find(state, byte)
            self._table[state, byte] = reached
        return reached

    def step_many(self, states: NDArray[np.int32], symbols: NDArray[np.uint8]) -> NDArray[np.int32]:
        """`step` for arrays of equal length. Transitions never taken before cost a Python call each."""
        reached: NDArray[np.int32] = self._table[states, symbols]
        missing = reached == _UNKNOWN
        if missing.any():
            keys = states[missing].astype(np.int64) << 8 | symbols[missing]
            for key in np.unique(keys).tolist():
                self.step(key >> 8, key & 0xFF)
            reached = self._table[states, symbols]
        return reached

    def may_end_many(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """`may_end` for an array. States never asked about before cost a Python call each."""
        if len(self._endings) < self._count:
            grown = np.full(len(self._table), _UNASKED, np.int8)
            grown[: len(self._endings)] = self._endings
            self._endings = grown
        verdicts = self._endings[states]
        missing = verdicts == _UNASKED
        if missing.any():
            for state in set(states[missing].tolist()):
                self._endings[state] = self.may_end(state)
            verdicts = self._endings[states]
        return verdicts.astype(bool)

    @property
    def state_count(self) -> int:
        """States found so far."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held by the transition table."""
        return self._table.nbytes + self._endings.nbytes


class CharMachine(Protocol):
    """A search automaton over character classes, as `AlternatingMachine` and `FsmMachine` are."""

    classes: CharClasses
    start: int

    def step(self, state: int, cls: int) -> int:
        """The next state, or `~next` if a match completes."""

    def may_end(self, state: int) -> bool:
        """Whether the text may end here."""

    def doomed(self, state: int) -> bool:
        """Whether no continuation, ending here included, avoids a match."""

    def past_prompt(self, state: int) -> int:
        """The same state, but without matches that end in what was read."""


class ClassAutomaton(TableAutomaton):
    """A `CharMachine` read byte by byte: a state is a machine state and a place within a character.

    With `absorbing` (hard rules), reaching a doomed state counts as a match: what cannot be avoided any more is
    forbidden while it still can. `rule_id` names the rule in errors.
    """

    def __init__(self, machine: CharMachine, *, absorbing: bool, rule_id: str | None = None) -> None:
        super().__init__(rule_id)
        self.machine = machine
        self.absorbing = absorbing
        self._utf8 = utf8_table(machine.classes)
        self._alike: dict[tuple[int, int], NDArray[np.intp]] = {}
        self._reachable: dict[int, frozenset[int]] = {}
        self._keys: list[tuple[int, int]] = [(-1, 0)]
        self._ids: dict[tuple[int, int], int] = {}
        self.start = self._state(machine.start, 0)
        self.spaceless_start = self._add_state()
        self._keys.append((machine.start, 0))
        self._table[self.spaceless_start, 0x20] = self.start

    def _state(self, inner: int, node: int) -> int:
        key = (inner, node)
        state = self._ids.get(key)
        if state is None:
            state = self._ids[key] = self._add_state()
            self._keys.append(key)
        return state

    def _find(self, state: int, byte: int) -> int:
        inner, node = self._keys[state]
        target = int(self._utf8[node, byte])
        reached = self._follow(inner, target)
        # All bytes that mean the same here are settled at once.
        alike = self._alike.get((node, target))
        if alike is None:
            alike = self._alike[node, target] = np.flatnonzero(self._utf8[node] == target)
        row = self._table[state]
        row[alike[row[alike] == _UNKNOWN]] = reached
        return reached

    def _follow(self, inner: int, target: int) -> int:
        if target == ILL_FORMED:
            return SINK
        if target < 0:
            following = self._state(inner, -2 - target)
            return (
                ~following
                if self.absorbing and self._every_character_matches(inner, -2 - target)
                else following
            )
        reached = self.machine.step(inner, target)
        matched = reached < 0
        inner = ~reached if matched else reached
        if self.absorbing and not matched:
            matched = self.machine.doomed(inner)
        following = self._state(inner, 0)
        return ~following if matched else following

    @cached_property
    def byte_classes(self) -> NDArray[np.uint8]:
        """uint8 [256]: bytes of one class begin, continue and end characters that the machine cannot tell apart.

        The space, which `spaceless_start` tells from all others, has a class of its own.
        """
        space = np.zeros((1, 256), np.int32)
        space[0, 0x20] = 1
        _, classes = np.unique(np.concatenate([self._utf8, space]), axis=1, return_inverse=True)
        return classes.ravel().astype(np.uint8)

    def _classes_within(self, node: int) -> frozenset[int]:
        """The classes of all characters that begin with the bytes that lead to a node."""
        known = self._reachable.get(node)
        if known is None:
            targets = set(self._utf8[node].tolist()) - {ILL_FORMED}
            known = frozenset(t for t in targets if t >= 0)
            known = known.union(*(self._classes_within(-2 - t) for t in targets if t < 0))
            self._reachable[node] = known
        return known

    def _every_character_matches(self, inner: int, node: int) -> bool:
        """Whether all characters that begin with the bytes read complete a match: then these bytes already do."""
        for cls in self._classes_within(node):
            reached = self.machine.step(inner, cls)
            if reached >= 0 and not self.machine.doomed(reached):
                return False
        return True

    def past_prompt(self, state: int) -> int:
        """The state after a prompt, which ends between characters."""
        if state == SINK:
            return SINK
        inner, node = self._keys[state]
        return self._state(self.machine.past_prompt(inner), node)

    def may_end(self, state: int) -> bool:
        """Whether the text may end in this state."""
        return state == SINK or self.machine.may_end(self._keys[state][0])


class Utf8Automaton(TableAutomaton):
    """Forbids ill-formed UTF-8, and text that ends within a character.

    `marks`: bytes, ill-formed in any text, that may stand between characters.

    Decoders disagree about what ill-formed bytes read as, so no other promise can be kept without this one.
    Source: The Unicode Standard, table 3-7.
    """

    def __init__(self, marks: bytes = b"") -> None:
        super().__init__()
        decoder = utf8_table(CharClasses([]))
        while self._count < 1 + len(decoder):
            self._add_state()
        inside = decoder <= -2
        self._table[1 : 1 + len(decoder)] = np.where(
            inside, 1 + (-2 - decoder), np.where(decoder == ILL_FORMED, ~SINK, 1)
        )
        self.start = 1
        self.spaceless_start = 1
        self._table[1, list(marks)] = 1

    def may_end(self, state: int) -> bool:
        """Only between characters."""
        return state == self.start
