"""What strings must be like: patterns, formats, as automata that say how much is still needed.

Of JSON Schema, and of the library's own formats; what a policy leaves of such strings `allowed` says, how they are
brought to their end `rests`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from nco_guard.automata import AlternatingMachine, ClassAutomaton
from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.patterns.parsing import parse

__all__ = ["FORMATS", "NUMBERS", "OUT_OF_REACH", "NeededPattern", "ecma", "some_characters"]

# States of a pattern whose distances are known.
_DISTANCES = 3000
_DONE = -1  # what is required has been read
OUT_OF_REACH = 1 << 30
_SURROGATES = (0xD800, 0xE000)

_HEX = "[0-9a-fA-F]"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_GROUP = f"{_HEX}{{1,4}}"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_IPV6 = "|".join(
    [
        f"(?:{_GROUP}:){{7}}{_GROUP}",
        f"(?:{_GROUP}:){{6}}{_IPV4}",
        f"(?:{_GROUP}:){{1,7}}:",
        f":(?::{_GROUP}){{0,6}}:(?:{_GROUP}|{_IPV4})?",
        *(f"(?:{_GROUP}:){{1,{before}}}(?::{_GROUP}){{1,{7 - before}}}" for before in range(1, 7)),
        *(f"(?:{_GROUP}:){{1,{before}}}(?::{_GROUP}){{0,{5 - before}}}:{_IPV4}" for before in range(1, 6)),
    ]
)
_ATEXT = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_DATE = "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[^\]]*\])"
#: What strings of a format look like; at least those that are of it.
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "duration": "P[0-9YMWDTHS]+",
    "uuid": f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "hostname": rf"{_LABEL}(?:\.{_LABEL})*",
    "email": rf'(?:{_ATEXT}(?:\.{_ATEXT})*|"[ -~]*")@{_DOMAIN}',
    "uri": "[A-Za-z][A-Za-z0-9+.-]*:[!-~]*",
}
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
NUMBERS = {"integer": "-?(?:0|[1-9][0-9]*)", "number": _NUMBER}
_SPACES = r" \t\n\v\f\r\u00a0\ufeff\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def ecma(pattern: str) -> str:
    r"""A pattern of JSON Schema for Python's `re` with `re.ASCII`, which is ECMA-262's but for `$`, `.`, `\s`."""
    outside = {"$": r"\Z", ".": r"[^\n\r\u2028\u2029]", r"\s": f"[{_SPACES}]", r"\S": f"[^{_SPACES}]"}
    found: list[str] = []
    inside = False
    for piece in re.findall(r"\\.|[\s\S]", pattern):
        if inside:
            inside = piece != "]"
            found.append(_SPACES if piece == r"\s" else piece)
        else:
            inside = piece == "["
            found.append(outside.get(piece, piece))
    return "".join(found)


class NeededPattern:
    """A pattern that a string must hold a match of, as an automaton; `whole`: must be a match of.

    Errors: `PatternError` for what cannot be read.
    """

    def __init__(self, pattern: str, *, whole: bool = False) -> None:
        node = parse(rf"\A(?:{pattern})\Z" if whole else ecma(pattern), re.ASCII)
        self.automaton = ClassAutomaton(AlternatingMachine(node), absorbing=True)
        self._left: dict[int, int] | None = None

    def step(self, state: int, text: bytes) -> int:
        """The state after a character."""
        return state if state == _DONE else max(self.automaton.read(state, text), _DONE)

    def met(self, state: int) -> bool:
        """Whether the string may end there."""
        return state == _DONE or not self.automaton.may_end(state)

    def left(self, state: int) -> int:
        """How many characters are needed at least before it is met; 0 where that is not known."""
        if state == _DONE:
            return 0
        if self._left is None:
            self._left = self._distances()
        return self._left.get(state, OUT_OF_REACH) if self._left else 0

    def _distances(self) -> dict[int, int]:
        characters = [code.encode() for code in some_characters([self.automaton.kinds])]
        found, waiting, back = {self.automaton.start}, [self.automaton.start], dict[int, set[int]]()
        while waiting:
            state = waiting.pop()
            for character in characters:
                after = self.step(state, character)
                back.setdefault(after, set()).add(state)
                if after != _DONE and after not in found:
                    found.add(after)
                    waiting.append(after)
            if len(found) > _DISTANCES:
                return {}
        level = {state for state in found if self.met(state)} | {_DONE}
        left = dict.fromkeys(level, 0)
        steps = 0
        while level:
            steps += 1
            level = {one for state in level for one in back.get(state, ())} - left.keys()
            left |= dict.fromkeys(level, steps)
        return left


def some_characters(kinds: Iterable[CharClasses]) -> list[str]:
    """A character of each kind that any of these tell apart; one that can be seen where there is one."""
    kinds = list(kinds)
    starts = {_SURROGATES[1], *(start for one in kinds for start in one.starts.tolist())}
    edges = np.array(sorted(starts), np.uint32)
    ascii_ = np.arange(0x21, 0x7F, dtype=np.uint32)
    codes = np.concatenate([ascii_, edges])
    rows = zip(*(one.of(codes).tolist() for one in kinds), strict=True) if kinds else iter([()] * len(codes))
    found: dict[tuple[int, ...], str] = {}
    for code, row in zip(codes.tolist(), rows, strict=True):
        if not _SURROGATES[0] <= code < _SURROGATES[1]:
            found.setdefault(row, chr(code))
    return [*found.values()]
