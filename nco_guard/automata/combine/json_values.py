"""Strings, keys, numbers and literals of JSON text, each as a text of its own, as whoever parses it gets them.

`^cat$` matches no JSON that holds "cat", and matches what a parser makes of it. So where a shape is JSON, rules for
which that is a difference (`differs_alone`) are also followed within each value: an automaton in front of another one
that begins anew with each, reads escapes as what they stand for, and ends where the value does.

Numbers are read as they are written, which is how they print (`automata.json_text`), and those with `.0` also without
it, as languages print them that have one kind of numbers. `true`, `false` and `null` are read as they are written and
as Python prints them (`LITERALS`); which of them it is, the first letter says.

Cost: a state of the inner automaton becomes one in a string and one in a number, and those of the escapes that are met.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import SINK, UNASKED, Automaton, TableAutomaton
from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.patterns import syntax

__all__ = ["BESIDE_JSON", "LITERALS", "JsonValuesAutomaton", "differs_alone", "forbids_literals"]

LITERALS = {"true": "True", "false": "False", "null": "None"}
"""What is no string and no number in JSON, and what each prints as in Python."""

#: What stands beside values, and what a number that is read without its `.0` goes on with.
BESIDE_JSON = '":,[]{} \t\r\n.'
_AT_EDGES = ("text_start", "text_end", "line_start", "line_end")
_NUMBER = b"0123456789+-.eE"
_ESCAPES = {0x62: b"\b", 0x66: b"\f", 0x6E: b"\n", 0x72: b"\r", 0x74: b"\t"}
_HEX = b"0123456789abcdefABCDEF"
_ALONE = bytes(dict.fromkeys(b'"\\u/' + _NUMBER + _HEX + bytes(_ESCAPES)))


def differs_alone(node: syntax.Node, beside: str = BESIDE_JSON) -> bool:
    """Whether a pattern may match a value alone and not where it stands. beside: what stands beside it, as in JSON.

    No boundary of words tells these apart, since no letter stands beside a value.
    """
    for part in syntax.subnodes(node):
        if isinstance(part, syntax.Assertion) and part.kind in _AT_EDGES:
            return True
        if isinstance(part, syntax.Lookaround) and any(
            _meets(each, beside) for each in syntax.subnodes(part.body)
        ):
            return True
    return False


def _meets(part: syntax.Node, beside: str) -> bool:
    return isinstance(part, syntax.Chars) and any(
        low <= ord(sign) <= high for sign in beside for low, high in part.ranges
    )


def forbids_literals(automaton: Automaton) -> bytes:
    """The first letters of those literals that hold a match as they are written, or as they print."""
    return bytes(
        ord(written[0])
        for written, shown in LITERALS.items()
        if not (_is_free(automaton, written) and _is_free(automaton, shown))
    )


def _is_free(automaton: Automaton, text: str) -> bool:
    reached = automaton.read(automaton.start, text.encode())
    return reached >= 0 and automaton.may_end(reached)


class _Reading(NamedTuple):
    """where: "outside", in a "string", an "escape", a "number", or in one behind a "point" or its first "zero".

    inner: the state of the inner automaton; held: what is read of an escape, or `-` and `-0` of a number; bad: of a
    number, whether its whole part must not stand alone.
    """

    where: str
    inner: int = SINK
    held: bytes = b""
    bad: bool = False


class JsonValuesAutomaton(TableAutomaton):
    """Watches, over JSON text, what `inner` forbids in each string, key, number and literal, as a text of its own.

    A match completes with a byte if it does within the value, with the byte behind a value that must not end there, and
    with the first letter of a literal.
    A text that ends within a string ends anywhere in JSON's eyes; that is the shape's affair.
    """

    def __init__(self, inner: Automaton) -> None:
        super().__init__()
        self.inner = inner
        self._distances: NDArray[np.int16] = np.zeros(0, np.int16)
        self._keys = [_Reading(""), _Reading("outside")]
        self._ids = {self._keys[1]: 1}
        self.start = self.spaceless_start = self._taken(self._room())

    def _state(self, key: _Reading) -> int:
        state = self._ids.get(key)
        if state is None:
            state = self._room()
            self._keys[state:] = [key]
            self._ids[key] = self._taken(state)
        return state

    def _find(self, state: int, byte: int) -> int:
        following, matched = self._follow(self._keys[state], byte)
        reached = self._state(following)
        reached = ~reached if matched else reached
        self._table[state, self.byte_classes == self.byte_classes[byte]] = reached
        return reached

    def _follow(self, at: _Reading, byte: int) -> tuple[_Reading, bool]:
        """Where a byte leads, and whether it completes a match."""
        if at.where == "string":
            if byte == 0x22:
                return _Reading("outside"), not self.inner.may_end(at.inner)
            return (at._replace(where="escape"), False) if byte == 0x5C else self._fed(at, bytes([byte]))
        if at.where == "escape":
            return self._in_escape(at, at.held + bytes([byte]))
        if at.where != "outside":
            if byte in _NUMBER:
                return self._in_number(at, byte)
            following, matched = self._follow(_Reading("outside"), byte)
            return following, matched or self._ends_badly(at)
        if byte == 0x22:
            return _Reading("string", self.inner.start), False
        if byte in self._bad_literals:
            return at, True
        if byte in b"-0123456789":
            begun, matched = self._in_number(_Reading("number", self.inner.start), byte)
            return begun._replace(held=b"-" if byte == 0x2D else b""), matched
        return at, False

    @cached_property
    def _bad_literals(self) -> bytes:
        return forbids_literals(self.inner)

    def _fed(self, at: _Reading, data: bytes) -> tuple[_Reading, bool]:
        inner, matched = at.inner, False
        for byte in data:
            inner = self.inner.step(inner, byte)
            matched, inner = (True, ~inner) if inner < 0 else (matched, inner)
        return at._replace(inner=inner), matched

    def _in_escape(self, at: _Reading, held: bytes) -> tuple[_Reading, bool]:
        whole = _Reading("string", at.inner)
        if held[:1] != b"u":
            return self._fed(whole, _ESCAPES.get(held[0], held))
        if len(held) < 5 and held[-1] in _HEX + b"u":
            return at._replace(held=held), False
        try:
            said = chr(int(held[1:], 16)).encode("utf-8", "replace")
        except ValueError:
            said = b"?"
        return self._fed(whole, said)

    def _in_number(self, at: _Reading, byte: int) -> tuple[_Reading, bool]:
        bad, where = at.bad, "number"
        if byte == 0x2E:
            # Without its `.0`, -0.0 is 0.
            whole = self.inner.step(self.inner.start, 0x30) if at.held == b"-0" else at.inner
            where, bad = "point", whole < 0 or not self.inner.may_end(whole)
        elif at.where == "point" and byte == 0x30:
            where = "zero"
        held = b"-0" if at.held == b"-" and byte == 0x30 else b""
        following = at._replace(where=where, held=held, bad=bad and where != "number")
        return self._fed(following, bytes([byte]))

    def _ends_badly(self, at: _Reading) -> bool:
        return not self.inner.may_end(at.inner) or (at.where == "zero" and at.bad)

    def may_end(self, state: int) -> bool:
        """Whether the text may end in this state."""
        at = self._keys[state]
        return at.where in ("", "outside", "string", "escape") or not self._ends_badly(at)

    @cached_property
    def byte_classes(self) -> NDArray[np.uint8]:
        """Those of the inner automaton; what JSON text is made of is by itself."""
        own = np.zeros(256, np.int64)
        own[[*_ALONE]] = np.arange(1, len(_ALONE) + 1)
        _, numbers = np.unique(self.inner.byte_classes + own * 256, return_inverse=True)
        classes: NDArray[np.uint8] = numbers.ravel().astype(np.uint8)
        return classes

    @property
    def kinds(self) -> CharClasses | None:
        """Those of the inner automaton; what JSON text is made of is by itself."""
        kinds = self.inner.kinds
        return None if kinds is None else CharClasses([*kinds.sets(), *(((code, code),) for code in _ALONE)])

    def distances(self, states: NDArray[np.int32]) -> NDArray[np.int16]:
        """Those of the inner automaton: no byte of JSON says more than one of a value. Or of the next value.

        States never asked about before cost a Python call each.
        """
        known = self._known_distances()
        found = known[states]
        if len(found) and found.min() == UNASKED:
            for state in set(states[found == UNASKED].tolist()):
                known[state] = self._distance(state)
            found = known[states]
        return found

    def distance(self, state: int) -> int:
        """See `Automaton.distance`."""
        known = int(self._known_distances()[state])
        return known if known != UNASKED else super().distance(state)

    def _known_distances(self) -> NDArray[np.int16]:
        if len(self._distances) < self._count:
            grown = np.full(len(self._table), UNASKED, np.int16)
            grown[: len(self._distances)] = self._distances
            self._distances = grown
        return self._distances

    def _distance(self, state: int) -> int:
        if state == SINK:
            return 255
        at, first = self._keys[state], self.inner.distance(self.inner.start)
        first = 1 if self._bad_literals else first
        if at.where == "outside":
            return max(1, first)
        if not self.may_end(state):
            return 0
        if at.where == "escape" or at.bad:
            return 1
        behind = 1 + first if at.where == "string" or not self._bad_literals else 1
        return min(max(1, self.inner.distance(at.inner)), behind)

    @property
    def nbytes(self) -> int:
        """Bytes held by the transition table, the inner automaton's included."""
        return super().nbytes + self._distances.nbytes + 300 * len(self._keys) + self.inner.nbytes
