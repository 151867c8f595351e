"""What JSON text says as it is written: numbers that print as they stand there, escapes only where they are needed.

Rules read text. A parser makes 4000000000000000 of `4e15`, 1.5 of `1.50` and "a" of `\\u0061`, and whoever prints the
value has text that no rule saw. So where a shape is JSON, a constraint beside the policy's rules keeps to one way of
writing:

* no exponent, no `-0`; behind a point either one 0 or digits that end with another one than 0;
* at most 300 digits, beyond which Python's own readers stop one after another;
* numbers with a point have at most 15 digits (from the first that is not 0) and at most three zeros behind `0.`, so
that
  `str(json.loads(text)) == text`, by the shortest form that floats print as;
* `\\u` escapes stand for control characters alone, and `\\/` for nothing.

Cost: 1 KiB for each of some four hundred states, found when the module is first used.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import TableAutomaton
from nco_guard.automata.charsets import CharClasses

__all__ = ["JSON_START", "OPEN_NUMBERS", "PlainJsonAutomaton", "json_step"]

#: Digits of a decimal number that a float keeps, whatever they are.
_MAX_DIGITS = 15
_MAX_WHOLE = 300
_MAX_ZEROS = 3  # behind "0."; with one more, floats print with an exponent

_BAD = None
# (where, ...): outside of strings; in one; numbers by what was read of them.
State = tuple[str, int]
JSON_START: State = ("outside", 0)
# What may not be the last of a number.
OPEN_NUMBERS = {"minus", "minus zero", "point", "zero point", "zeros", "trailing zero"}


def _in_number(state: State, digit: int) -> State | None:
    """A digit within a number."""
    where, count = state
    zero = digit == 0x30
    if where in ("zero", "minus zero"):
        return _BAD
    if where == "minus":
        return ("minus zero", 0) if zero else ("whole", 1)
    if where == "whole":
        return ("whole", count + 1) if count < _MAX_WHOLE else _BAD
    if where == "zero point":
        return ("zero zero", 1) if zero else ("fraction", 1)
    if where in ("zero zero", "zeros"):
        if zero:
            return ("zeros", count + 1) if count < _MAX_ZEROS else _BAD
        return "fraction", 1
    if where == "point" and zero:
        return "point zero", count + 1
    # A zero as the last digit that there is room for leads nowhere.
    if count + 1 > _MAX_DIGITS - zero:
        return _BAD
    return ("trailing zero" if zero else "fraction"), count + 1


def _after_number(state: State, byte: int) -> State | None:
    where, count = state
    if 0x30 <= byte <= 0x39:
        return _in_number(state, byte)
    if byte in b"eE":
        return _BAD
    if byte == 0x2E:
        if where in ("zero", "minus zero"):
            return "zero point", 0
        return ("point", count) if where == "whole" and count <= _MAX_DIGITS else _BAD
    return _BAD if where in OPEN_NUMBERS else _outside(byte)


def _outside(byte: int) -> State:
    if byte == 0x22:
        return "string", 0
    if byte == 0x2D:
        return "minus", 0
    if byte == 0x30:
        return "zero", 0
    return ("whole", 1) if 0x31 <= byte <= 0x39 else JSON_START


def _in_escape(where: str, byte: int) -> State | None:
    if where == "escape":
        if byte == 0x75:
            return "hex", 0
        return ("string", 0) if byte != 0x2F else _BAD
    if where == "hex":
        return ("hex 0", 0) if byte == 0x30 else _BAD
    if where == "hex 0":
        return ("hex 00", 0) if byte == 0x30 else _BAD
    if where == "hex 00":
        return ("hex 00c", 0) if byte in b"01" else ("hex 007", 0) if byte == 0x37 else _BAD
    return ("string", 0) if where == "hex 00c" or byte in b"fF" else _BAD


def json_step(state: State, byte: int) -> State | None:
    """Where a byte leads; None where JSON would say something else than is written."""
    where = state[0]
    if where == "outside":
        return _outside(byte)
    if where == "string":
        return JSON_START if byte == 0x22 else ("escape", 0) if byte == 0x5C else state
    if where == "escape" or where.startswith("hex"):
        return _in_escape(where, byte)
    return _after_number(state, byte)


@cache
def _found() -> tuple[NDArray[np.int32], tuple[bool, ...]]:
    """The table, and which states may end; state 0 is the sink of every table."""
    numbers: dict[State, int] = {JSON_START: 1}
    rows = [np.zeros(256, np.int32)]
    waiting = [JSON_START]
    for state in waiting:
        row = np.zeros(256, np.int32)
        for byte in range(256):
            reached = json_step(state, byte)
            # Past what may not stand there the text is read as if it stood outside.
            after = JSON_START if reached is None else reached
            if after not in numbers:
                numbers[after] = len(numbers) + 1
                waiting.append(after)
            row[byte] = ~numbers[after] if reached is None else numbers[after]
        rows.append(row)
    return np.stack(rows), (True, *(where not in OPEN_NUMBERS for where, _ in numbers))


class PlainJsonAutomaton(TableAutomaton):
    """Completes a "match" wherever JSON text says what it is not written as; see the module.

    Text may end in a string or an escape, which is the shape's affair; not where a number would have to go on.
    """

    def __init__(self) -> None:
        super().__init__()
        table, self._ends = _found()
        self._table = table.copy()
        self._count = len(table)
        self.start = self.spaceless_start = 1

    @property
    def byte_classes(self) -> NDArray[np.uint8]:
        """See `Automaton.byte_classes`."""
        numbers: dict[bytes, int] = {}
        return np.array([numbers.setdefault(c.tobytes(), len(numbers)) for c in self._table.T], np.uint8)

    @property
    def kinds(self) -> CharClasses:
        """The characters that numbers, strings and escapes are made of, each by itself."""
        return CharClasses([((code, code),) for code in b'"\\/uabcdefABCDEF0123456789-.+'])

    def may_end(self, state: int) -> bool:
        """Whether the text may end in this state."""
        return self._ends[state]
