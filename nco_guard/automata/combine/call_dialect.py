"""Values of calls in a dialect of JSON, each as a text of its own: `{q:<escape>x<escape>}` shows "q" and "x".

Keys may be bare, and strings stand between marks of their own, without escapes. All is given on as JSON has it.
"""

from __future__ import annotations

from typing import NamedTuple

from nco_guard.automata.combine.call_json import ValuesWithin
from nco_guard.automata.combine.cutting import StringMarks
from nco_guard.automata.combine.json_values import JsonValuesAutomaton

__all__ = ["DialectValuesAutomaton"]

_BLANKS = b" \t\r\n"
_ESCAPED = b'"\\'


class _Within(NamedTuple):
    """where: "beside" values, in a bare "key", in "said", a string between marks, in a "string" or its "escape".

    within: open brackets. first: whether a key may come, in an object. held: what may be the beginning of a mark.
    """

    where: str = "beside"
    within: bytes = b""
    first: bool = False
    held: bytes = b""


class DialectValuesAutomaton(ValuesWithin[_Within]):
    """Watches, over a call in a dialect of JSON, what `values` forbids in it. marks: around strings."""

    def __init__(self, values: JsonValuesAutomaton, marks: StringMarks) -> None:
        self._opening, self._closing = marks.opening.encode(), marks.closing.encode()
        alone = b'"\\{}[]:,' + _BLANKS + self._opening + self._closing
        super().__init__(values, _Within(), alone)

    def follow(self, at: _Within, byte: int) -> tuple[_Within, bytes]:
        """Where a byte leads, and the JSON that it says."""
        if at.where == "said":
            return self._in_said(at, at.held + bytes([byte]))
        if at.where == "escape":
            return at._replace(where="string"), bytes([byte])
        if at.where == "string":
            return at._replace(where={0x22: "beside", 0x5C: "escape"}.get(byte, "string")), bytes([byte])
        read = at.held + bytes([byte])
        if read == self._opening:
            return at._replace(where="said", first=False, held=b""), b'"'
        if at.where == "beside" and self._opening.startswith(read):
            return at._replace(held=read), b""
        said, at = b"", at._replace(held=b"")
        for each in read:
            at, more = self._beside(at, each)
            said += more
        return at, said

    def _in_said(self, at: _Within, read: bytes) -> tuple[_Within, bytes]:
        if read == self._closing:
            return at._replace(where="beside", held=b""), b'"'
        size = next(size for size in range(len(read) + 1) if self._closing.startswith(read[size:]))
        said = b"".join(b"\\" * (each in _ESCAPED) + bytes([each]) for each in read[:size])
        return at._replace(held=read[size:]), said

    def _beside(self, at: _Within, byte: int) -> tuple[_Within, bytes]:
        said = bytes([byte])
        if at.where == "key":
            return (at._replace(where="beside"), b'":') if byte == 0x3A else (at, said)
        if byte == 0x22:
            return at._replace(where="string", first=False), said
        if byte in b"{[":
            return at._replace(within=at.within + said, first=byte == 0x7B), said
        if byte in b"}]":
            return at._replace(within=at.within[:-1], first=False), said
        if byte == 0x2C:
            return at._replace(first=at.within[-1:] == b"{"), said
        if at.first and byte not in _BLANKS:
            return at._replace(where="key", first=False), b'"' + said
        return at, said

    def waiting(self, at: _Within) -> int:
        """See `ValuesWithin.waiting`."""
        return len(at.held)
