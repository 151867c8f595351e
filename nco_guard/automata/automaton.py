"""What every constraint looks like to the rest of the library: a search automaton over UTF-8 bytes.

States are small non-negative integers, found lazily. A step answers with the next state, or with `~next` (negative)
when a match completes with this byte. The end of the text is a symbol of its own: `may_end`.

Automata see only well-formed UTF-8. `well_formed` enforces that as a constraint of its own; in all others an
ill-formed byte leads to `SINK`, where nothing ever happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.charsets import CharClasses
from nco_guard.errors import StateLimitError

__all__ = ["SINK", "UNASKED", "UNKNOWN", "Arrays", "Automaton", "TableAutomaton"]

SINK = 0
UNKNOWN = np.iinfo(np.int32).min  # a transition that nobody has asked for yet
UNASKED = -1  # an answer
_STATE_LIMIT = 400_000  # 1 KiB each

Arrays = Mapping[str, NDArray[Any]]


class Automaton(ABC):
    """A deterministic search automaton over bytes with an end-of-text symbol; the interface.

    `start`: the state of the empty text. `spaceless_start`: the same, but one leading space byte is skipped, for
    decoders that strip it.
    """

    start: int
    spaceless_start: int
    # Whether ASCII leads from the start to the start, so that nothing happens in text of nothing else.
    rests_in_ascii = False

    @property
    def idle(self) -> int | None:
        """The state that is left where nothing of a text matters any more, if there is one besides the start."""
        return None

    def apart(self, state: int, other: int) -> bytes | None:
        """The only bytes by which two states may lead to different ones; None: that is not known.

        `other` may be negative, for states that are further from a match than any text that is read from there: by
        other bytes than the ones given, `state` leads to such a one too.
        """
        return None

    def forgets(self, byte: int) -> bool:
        """Whether a byte is known to lead from every state that lets the text end to where it leads from the start.

        And without completing a match there. By default nothing is known.
        """
        return False

    @abstractmethod
    def step(self, state: int, byte: int) -> int:
        """The next state, or `~next` if a match completes with this byte."""

    @abstractmethod
    def step_many(self, states: NDArray[np.int32], symbols: NDArray[np.uint8]) -> NDArray[np.int32]:
        """`step` for arrays of equal length. int32."""

    def read(self, state: int, data: Iterable[int]) -> int:
        """The state after some bytes; negative if a match completes on the way."""
        for byte in data:
            state = self.step(state, byte)
            if state < 0:
                break
        return state

    @abstractmethod
    def may_end(self, state: int) -> bool:
        """Whether the text may end in this state."""

    @abstractmethod
    def may_end_many(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """`may_end` for an array."""

    def read_prompt(self, context: Iterable[int]) -> int:
        """The state of an empty text that continues a prompt, well-formed UTF-8.

        Matches within the prompt do not count.
        """
        state = self.start
        for byte in context:
            state = self.step(state, byte)
            state = ~state if state < 0 else state
        return self.past_prompt(state)

    def past_prompt(self, state: int) -> int:
        """The state after a prompt: what was read so far holds no match that counts, nor one that is about to.

        An automaton whose matches wait for nothing is in that state anyway.
        """
        return state

    def distances(self, states: NDArray[np.int32]) -> NDArray[np.uint8] | NDArray[np.int16]:
        """A bound from below: with fewer bytes than this no match completes, and the text may end after all of them.

        So 0 where the text may not end; 255: or more. By default nothing is known, and all are 0.
        """
        return np.zeros(len(states), np.uint8)

    def distance(self, state: int) -> int:
        """`distances` for one state."""
        return int(self.distances(np.array([state], np.int32))[0])

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

    @property
    def kinds(self) -> CharClasses | None:
        """The characters that it can tell apart, each kind being a class; None: that is not known."""
        return None

    @property
    def progress(self) -> int:
        """A number that grows with what is found lazily."""
        return self.state_count

    def found(self) -> Arrays | None:
        """What was found lazily so far, for a store; None where that cannot be kept or is too much to keep."""
        return None

    def recall(self, arrays: Arrays) -> bool:
        """Take up what an equal automaton has found, states by the same numbers; whether that was possible.

        Only before the first step. Further states are found as ever.
        """
        return False


class TableAutomaton(Automaton):
    """An automaton with a dense table: `table[state, byte]`, filled by a subclass, wholly or on demand.

    Cost: 1 KiB a state.
    """

    def __init__(self, rule_id: str | None = None) -> None:
        self.rule_id = rule_id
        self._table: NDArray[np.int32] = np.full((16, 256), UNKNOWN, np.int32)
        self._table[SINK] = SINK
        self._endings: NDArray[np.int8] = np.zeros(0, np.int8)
        self._count = 1
        self._finds = 0

    def _room(self) -> int:
        """The number of the next state, with a row for it.

        It is `_taken` once all is there that the number stands for: whatever breaks a step off before leaves no state
        of which half is known.
        """
        if self._count >= _STATE_LIMIT:
            raise StateLimitError(
                f"the automaton of this pattern passed its limit of {_STATE_LIMIT:,} byte states; make counted repeats "
                "shorter or split the rule",
                rule_id=self.rule_id,
            )
        if self._count == len(self._table):
            grown = np.full((2 * len(self._table), 256), UNKNOWN, np.int32)
            grown[: self._count] = self._table
            self._table = grown
        return self._count

    def _taken(self, state: int) -> int:
        self._count = state + 1
        return state

    def _find(self, state: int, byte: int) -> int:
        """Work out one transition that is not in the table yet; complete tables never come here."""
        raise LookupError(state, byte)

    def step(self, state: int, byte: int) -> int:
        """The next state, or `~next` if a match completes with this byte."""
        reached = int(self._table[state, byte])
        if reached == UNKNOWN:
            self._finds += 1
            reached = self._find(state, byte)
            self._table[state, byte] = reached
        return reached

    def read(self, state: int, data: Iterable[int]) -> int:
        """See `Automaton.read`."""
        # Single items of a memoryview cost a third of those of an array.
        row_of = self._table.data
        for byte in data:
            reached = row_of[state, byte]
            if reached == UNKNOWN:
                reached = self.step(state, byte)
                row_of = self._table.data
            if reached < 0:
                return reached
            state = reached
        return state

    def step_many(self, states: NDArray[np.int32], symbols: NDArray[np.uint8]) -> NDArray[np.int32]:
        """`step` for arrays of equal length. Transitions never taken before cost a Python call each."""
        reached: NDArray[np.int32] = self._table[states, symbols]
        if len(reached) and reached.min() == UNKNOWN:
            missing = reached == UNKNOWN
            unknown, bytes_ = states[missing], symbols[missing]
            # One byte of each class will do: the others are settled with it.
            _, some = np.unique(unknown.astype(np.int64) << 8 | self.byte_classes[bytes_], return_index=True)
            steps: dict[int, list[int]] = {}
            for state, byte in zip(unknown[some].tolist(), bytes_[some].tolist(), strict=True):
                steps.setdefault(state, []).append(byte)
            for state, wanted in steps.items():
                self._find_some(state, wanted)
            reached = self._table[states, symbols]
        return reached

    def _find_some(self, state: int, wanted: list[int]) -> None:
        """Work out several transitions of a state."""
        for byte in wanted:
            self.step(state, byte)

    def may_end_many(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """`may_end` for an array. States never asked about before cost a Python call each."""
        self._grow_endings()
        verdicts = self._endings[states]
        missing = verdicts == UNASKED
        if missing.any():
            for state in set(states[missing].tolist()):
                self._endings[state] = self.may_end(state)
            verdicts = self._endings[states]
        return verdicts.astype(bool)

    @property
    def progress(self) -> int:
        """Transitions found, about."""
        return self._count + self._finds

    def _grow_endings(self) -> None:
        if len(self._endings) < self._count:
            grown = np.full(len(self._table), UNASKED, np.int8)
            grown[: len(self._endings)] = self._endings
            self._endings = grown

    @property
    def state_count(self) -> int:
        """States found so far."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held by the transition table."""
        return self._table.nbytes + self._endings.nbytes
