"""Values of calls in JSON, each as a text of its own, without what only the form of a call says.

Whoever reads `{"name": "find", "arguments": {"q": "x"}}` shows "find", "q" and "x". The keys "name" and "arguments" are
the form's: nobody is shown them. So around the arguments strings behind one key alone are read, and within them all is.

Cost: a state of `JsonValuesAutomaton` becomes one for each depth of brackets that it is met at.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import SINK, TableAutomaton
from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.combine.cutting import JsonField
from nco_guard.automata.combine.json_values import JsonValuesAutomaton

__all__ = ["CallValuesAutomaton", "ValuesWithin"]

Place = TypeVar("Place", bound=Hashable)

_SIGNS = b'"\\{}[]:,'


class _Standing(NamedTuple):
    """depth: of open brackets. where: "beside", in a "string" or an "escape". read: whether that string is a value.

    key: what is read of a key around the arguments, or was of the last one; valued: whether a colon stands behind it.
    """

    depth: int = 0
    where: str = "beside"
    read: bool = False
    key: bytes = b""
    valued: bool = False


class ValuesWithin(TableAutomaton, Generic[Place]):
    """Watches, over a call, what `values` forbids in what it says; what that is says `follow`.

    alone: bytes that mean something of their own.
    """

    def __init__(self, values: JsonValuesAutomaton, first: Place, alone: bytes) -> None:
        super().__init__()
        self.values = values
        self._alone = bytes(dict.fromkeys(alone))
        self._keys: list[tuple[int, Place]] = [(SINK, first)]
        self._ids: dict[tuple[int, Place], int] = {}
        self.start = self.spaceless_start = self._state((values.start, first))

    @abstractmethod
    def follow(self, at: Place, byte: int) -> tuple[Place, bytes]:
        """Where a byte leads, and the JSON that it says."""

    def waiting(self, at: Place) -> int:
        """How many bytes are read and not said yet."""
        del at
        return 0

    def _state(self, key: tuple[int, Place]) -> int:
        state = self._ids.get(key)
        if state is None:
            state = self._room()
            self._keys[state:] = [key]
            self._ids[key] = self._taken(state)
        return state

    def _find(self, state: int, byte: int) -> int:
        inner, at = self._keys[state]
        after, said = self.follow(at, byte)
        matched = False
        for each in said:
            inner = self.values.step(inner, each)
            matched, inner = (True, ~inner) if inner < 0 else (matched, inner)
        reached = self._state((inner, after))
        reached = ~reached if matched else reached
        self._table[state, self.byte_classes == self.byte_classes[byte]] = reached
        return reached

    def may_end(self, state: int) -> bool:
        """Whether the text may end in this state."""
        return state == SINK or self.values.may_end(self._keys[state][0])

    @cached_property
    def byte_classes(self) -> NDArray[np.uint8]:
        """Those of the values; what means something of its own is by itself."""
        own = np.zeros(256, np.int64)
        own[[*self._alone]] = np.arange(1, len(self._alone) + 1)
        _, numbers = np.unique(self.values.byte_classes + own * 256, return_inverse=True)
        classes: NDArray[np.uint8] = numbers.ravel().astype(np.uint8)
        return classes

    @property
    def kinds(self) -> CharClasses | None:
        """Those of the values; what means something of its own is by itself."""
        kinds = self.values.kinds
        alone = [((ord(sign), ord(sign)),) for sign in dict.fromkeys(self._alone.decode())]
        return None if kinds is None else CharClasses([*kinds.sets(), *alone])

    def distances(self, states: NDArray[np.int32]) -> NDArray[np.int16]:
        """Those of the values, less what is not said yet."""
        places = [self._keys[state] for state in states.tolist()]
        waiting = np.array([self.waiting(at) for _, at in places], np.int16)
        found = self.values.distances(np.array([inner for inner, _ in places], np.int32))
        nearer: NDArray[np.int16] = np.maximum(found - waiting, np.minimum(found, 1))
        return nearer

    @property
    def nbytes(self) -> int:
        """Bytes held by the transition table, the inner automaton's included."""
        return super().nbytes + 300 * len(self._keys) + self.values.nbytes


class CallValuesAutomaton(ValuesWithin[_Standing]):
    """Watches, over the JSON of a call, what `values` forbids in it; `field` says what of it is shown."""

    def __init__(self, values: JsonValuesAutomaton, field: JsonField) -> None:
        self._outer, self._named = field.outer, field.named.encode()
        super().__init__(values, _Standing(), _SIGNS + self._named)

    def follow(self, at: _Standing, byte: int) -> tuple[_Standing, bytes]:
        """Where a byte leads, and whether it is read."""
        after, fed = self._within(at, byte) if at.depth > self._outer else self._around(at, byte)
        return after, bytes([byte]) if fed else b""

    def _within(self, at: _Standing, byte: int) -> tuple[_Standing, bool]:
        """Of arguments all is read."""
        if at.where == "escape":
            return at._replace(where="string"), True
        if at.where == "string":
            where = {0x22: "beside", 0x5C: "escape"}.get(byte, "string")
            return at._replace(where=where), True
        if byte == 0x22:
            return at._replace(where="string"), True
        return self._bracketed(at, byte), True

    def _around(self, at: _Standing, byte: int) -> tuple[_Standing, bool]:
        if at.where == "escape":
            return at._replace(where="string"), at.read
        if at.where == "string":
            if byte == 0x22:
                return at._replace(where="beside", read=False, valued=False), at.read
            key = at.key
            if not at.valued:
                # Of other keys it matters only that they are others.
                key = key + bytes([byte]) if self._named.startswith(key + bytes([byte])) else b"\0"
            return at._replace(where="escape" if byte == 0x5C else "string", key=key), at.read
        if byte == 0x22:
            read = at.valued and bool(self._named) and at.key == self._named
            return at._replace(where="string", read=read, key=at.key if at.valued else b""), read
        if byte == 0x3A:
            return at._replace(valued=True), False
        if byte == 0x2C:
            return at._replace(key=b"", valued=False), False
        after = self._bracketed(at, byte)
        return after, after.depth > self._outer

    def _bracketed(self, at: _Standing, byte: int) -> _Standing:
        if byte in b"{[":
            return at._replace(depth=at.depth + 1, key=b"", valued=False)
        return at._replace(depth=max(0, at.depth - 1)) if byte in b"}]" else at
