"""Values of calls in Python, each as a text of its own: `find(q="x", n=[1, True])` shows "q", "x", "n", "1" and "True".

Names of what is called are no values. Keywords and values are given on as JSON has them, as which they are enforced:
strings between double quotes, with escapes as in JSON.
"""

from __future__ import annotations

from typing import NamedTuple

from nco_guard.automata.combine.call_json import ValuesWithin
from nco_guard.automata.combine.json_values import JsonValuesAutomaton

__all__ = ["PythonValuesAutomaton"]

_BLANKS = b" \t\r\n"
_WORDS = {0x54: b"t", 0x46: b"f", 0x4E: b"n"}


class _Within(NamedTuple):
    """where: "beside" calls, before a "key" or in its "name", in a "value", in a "string" of it or an "escape" there.

    depth: of open brackets in the value.
    """

    where: str = "beside"
    depth: int = 0


class PythonValuesAutomaton(ValuesWithin[_Within]):
    """Watches, over calls in Python, what `values` forbids in their arguments."""

    def __init__(self, values: JsonValuesAutomaton) -> None:
        super().__init__(values, _Within(), b'"\\{}[]:,()=' + _BLANKS + bytes(_WORDS))

    def follow(self, at: _Within, byte: int) -> tuple[_Within, bytes]:
        """Where a byte leads, and the JSON that it says."""
        said = bytes([byte])
        if at.where == "beside":
            return (at._replace(where="key") if byte == 0x28 else at), b""
        if at.where == "key":
            if byte == 0x29:
                return _Within(), b""
            return (at, b"") if byte in b"," + _BLANKS else (at._replace(where="name"), b'"' + said)
        if at.where == "name":
            return (at._replace(where="value"), b'":') if byte == 0x3D else (at, said)
        if at.where == "escape":
            return at._replace(where="string"), said
        if at.where == "string":
            return at._replace(where={0x22: "value", 0x5C: "escape"}.get(byte, "string")), said
        return self._in_value(at, byte)

    def _in_value(self, at: _Within, byte: int) -> tuple[_Within, bytes]:
        if byte == 0x22:
            return at._replace(where="string"), b'"'
        if byte in b"([{":
            return at._replace(depth=at.depth + 1), b"["
        if byte in b")]}":
            return (at._replace(depth=at.depth - 1), b"]") if at.depth else (_Within(), b",")
        if byte == 0x2C and not at.depth:
            return _Within("key"), b","
        return at, _WORDS.get(byte, bytes([byte]))
