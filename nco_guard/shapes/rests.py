"""How what is being written is brought to its end: the shortest rests of strings and of numbers, as proposals.

What a pattern, a format or a length still asks for is read off automata, where looking at what may come next, byte by
byte, would go on for ever: after `fo` of a string that is to hold `foo`, any letter may come. Whoever goes a rest asks
the library first, so proposals may be wrong.

Cost: some milliseconds for a pattern that was not asked about before, then tenths of one.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from itertools import combinations, islice
from math import lcm
from typing import Any, NamedTuple

from nco_guard.errors import PatternError, StateLimitError
from nco_guard.shapes.needed import FORMATS, OUT_OF_REACH, NeededPattern, some_characters

__all__ = ["JsonRests", "letters_first", "texts_of"]

Node = Mapping[str, Any]
_Spelled = tuple["_Spelled", str] | None

# Proposals for each way of reading what schemas ask for together.
_PROPOSED = 4
# Places that one search looks at.
_LOOKED = 20_000
# Schemas for one string of which each two are looked at together.
_PAIRED = 6
# What strings are made longer by.
_FILLERS = ("a", "e ", "0", "x.", "-")
# Texts of which it is remembered where they led.
_REMEMBERED = 50_000
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
# Digits that are proposed behind those that stand.
_DIGITS = 24
# Of formats of which `FORMATS` is too wide: some that there are.
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DAY = "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
_CLOCK = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_NAME = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_SOME = {
    "date": f"{_YEAR}-{_DAY}",
    "time": _CLOCK,
    "date-time": f"{_YEAR}-{_DAY}[Tt]{_CLOCK}",
    "duration": "P(?:[0-9]+[YMWD]|T[0-9]+[HMS])",
    "hostname": rf"{_NAME}(?:\.{_NAME})*",
    "email": rf"[A-Za-z0-9_+.-]+@{_NAME}(?:\.{_NAME})*",
    "uri": "[A-Za-z][A-Za-z0-9]*:[A-Za-z0-9/._~-]*",
}


class _Demand(NamedTuple):
    """What a string is to be like: all of these, and a length."""

    needed: tuple[NeededPattern, ...]
    low: int
    high: int | None


class JsonRests:
    """The rests of strings, keys and numbers of JSON, by the numbers of the schemas that stand for them."""

    def __init__(self) -> None:
        self._strings: dict[int, _StringRests] = {}
        self._names: dict[int, _StringRests] = {}

    def of_string(self, number: int, nodes: Sequence[Node], tail: bytes, length: int) -> list[str]:
        """Of a string of which `tail` was written; or so many characters, where nothing else matters."""
        if length >= 0:
            more = {int(node.get("minLength", 0)) - length for node in nodes}
            return [rest for each in sorted(more) for rest in _rests_of_length(each)]
        if number not in self._strings:
            self._strings[number] = _StringRests(nodes)
        return self._strings[number].after(_read_back(tail))

    def stands(self, number: int, nodes: Sequence[Node], tail: bytes) -> Hashable:
        """What is the same for strings that ask for the same rests, as far as that is known."""
        if number not in self._strings:
            self._strings[number] = _StringRests(nodes)
        return self._strings[number].stands(_read_back(tail))

    def of_name(self, number: int, nodes: Sequence[Node], tail: bytes) -> list[str]:
        """Of a key of which `tail` was written: one of those that schemas name by patterns."""
        if number not in self._names:
            patterns = {name for node in nodes for name in node.get("patternProperties", ())}
            self._names[number] = _StringRests([{"pattern": pattern} for pattern in sorted(patterns)])
        found = self._names[number]
        return found.after(_read_back(tail)) if found.wanted else []

    def of_number(self, nodes: Iterable[Node], tail: bytes) -> Iterator[bytes]:
        """Of a number, begun or not, that is to be a multiple of some others: whole ones."""
        nodes = [*nodes]
        steps = {
            Fraction(str(node["multipleOf"])).numerator for node in nodes if node.get("multipleOf", 0) > 0
        }
        written = tail.removeprefix(b"-").decode()
        if tail and not written.isdigit():
            return
        lows = [node[name] for node in nodes for name in _BOUNDS if name in node]
        # Schemas may stand for one number together, or instead of one another.
        for divisor in dict.fromkeys([lcm(*steps), *sorted(steps)]):
            if divisor > 1:
                found = _rests_of_multiple(written, divisor) if tail else _rests_of_start(divisor, lows)
                yield from (rest.encode() for rest in found)


def _read_back(tail: bytes) -> str:
    """What was written of a string so far says."""
    return str(json.loads(tail + b'"'))


class _StringRests:
    """The rests of strings for which some schemas stand, together or instead of one another."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        patterns: dict[tuple[str, bool], NeededPattern | None] = {}
        groups = [tuple(nodes), *((node,) for node in nodes)]
        if len(nodes) <= _PAIRED:
            groups += combinations(nodes, 2)
        found = {_key(group): _demand(group, patterns) for group in groups if group}
        self._demands = [*found.values()]
        self.wanted = bool(self._demands)
        self._all = dict.fromkeys(one for demand in self._demands for one in demand.needed)
        # What leaves those formats of which some texts are proposed stands somewhere, too.
        wide = {form for node in nodes if (form := str(node.get("format"))) in _SOME}
        self._all |= {one: None for form in sorted(wide) if (one := _needed(FORMATS[form], whole=True))}
        self._known: dict[str, dict[NeededPattern, int]] = {}

    def stands(self, content: str) -> Hashable:
        """The states of all automata, and the length as far as it is asked about."""
        ends = max([0, *(max(demand.low, (demand.high or -1) + 1) for demand in self._demands)])
        return *self._read(content).values(), min(len(content), ends)

    def _read(self, content: str) -> dict[NeededPattern, int]:
        """The states of all automata after some content."""
        known = self._known.get(content)
        if known is None:
            before = self._known.get(content[:-1]) if content else None
            if before is None:
                known = {one: _state_after(one, one.automaton.start, content) for one in self._all}
            else:
                known = {one: _state_after(one, state, content[-1]) for one, state in before.items()}
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            self._known[content] = known
        return known

    def after(self, content: str) -> list[str]:
        """What may follow the content of a string, up to its end; the shortest first."""
        read = self._read(content)
        found = {
            rest for demand in self._demands for rest in islice(_rests(demand, read, len(content)), _PROPOSED)
        }
        return sorted(found, key=lambda rest: (len(rest), rest))


def _key(group: Sequence[Node]) -> tuple[object, ...]:
    names = ("pattern", "format", "minLength", "maxLength")
    return tuple(sorted({str([node.get(name) for name in names]) for node in group}))


def _demand(group: Sequence[Node], patterns: dict[tuple[str, bool], NeededPattern | None]) -> _Demand:
    wanted = [(node["pattern"], False) for node in group if isinstance(node.get("pattern"), str)]
    for node in group:
        form = str(node.get("format"))
        if form in FORMATS:
            wanted.append((_SOME.get(form, FORMATS[form]), True))
    for pattern, whole in wanted:
        if (pattern, whole) not in patterns:
            patterns[pattern, whole] = _needed(pattern, whole=whole)
    needed = [patterns[each] for each in dict.fromkeys(wanted)]
    lows = [int(node["minLength"]) for node in group if "minLength" in node]
    highs = [int(node["maxLength"]) for node in group if "maxLength" in node]
    return _Demand(tuple(one for one in needed if one), max(lows, default=0), min(highs, default=None))


def _needed(pattern: str, *, whole: bool) -> NeededPattern | None:
    try:
        return NeededPattern(pattern, whole=whole)
    except PatternError:
        return None


def _rests_of_length(more: int) -> list[str]:
    """What may follow in a string of which nothing but its length is asked, where so many characters are needed."""
    return [(filler * more)[:more] for filler in _FILLERS] if more > 0 else [""]


def _rests(demand: _Demand, read: Mapping[NeededPattern, int], length: int) -> Iterator[str]:
    """The rests behind so many characters, after which the automata are in these states."""
    if not demand.needed:
        yield from _rests_of_length(demand.low - length)
        return
    try:
        yield from _searched(demand, tuple([read[one] for one in demand.needed]), length)
    except StateLimitError:
        return


def _searched(demand: _Demand, states: tuple[int, ...], length: int) -> Iterator[str]:
    """Best first over the automata together."""
    needed, low, high = demand
    letters = letters_first(some_characters([one.automaton.kinds for one in needed]))
    start = states, length if high is not None else min(length, low)
    seen = {start}

    def left(place: tuple[tuple[int, ...], int]) -> int:
        return max(low - place[1], *(one.left(state) for one, state in zip(needed, place[0], strict=True)))

    waiting: list[tuple[int, int, int, Any, _Spelled]] = [(left(start), 0, 0, start, None)]
    number = 0
    for _ in range(_LOOKED):
        if not waiting:
            return
        most, depth, _, place, spelled = heappop(waiting)
        if most >= OUT_OF_REACH:
            return
        states, length = place
        if length >= low and all(one.met(state) for one, state in zip(needed, states, strict=True)):
            yield _spelled_out(spelled)
            continue
        if high is not None and length >= high:
            continue
        for letter in letters:
            text = letter.encode()
            after = tuple([one.step(state, text) for one, state in zip(needed, states, strict=True)])
            following = after, length + 1 if high is not None else min(length + 1, low)
            nearest = left(following)
            # Of texts that lead to where all is met, each is one.
            if following not in seen or (not nearest and number < _LOOKED):
                seen.add(following)
                number += 1
                # Of those that are equally near the deepest first, which is a straight line where there is one.
                heappush(waiting, (1 - depth + nearest, depth - 1, number, following, (spelled, letter)))


def _state_after(one: NeededPattern, state: int, content: str) -> int:
    for character in content:
        state = one.step(state, character.encode("utf-8", "surrogatepass"))
    return state


def _spelled_out(spelled: _Spelled) -> str:
    found: list[str] = []
    while spelled is not None:
        spelled, letter = spelled
        found.append(letter)
    return "".join(reversed(found))


def letters_first(characters: Iterable[str]) -> list[str]:
    """Letters and digits before others: they are barred least, and need no escapes."""
    return sorted(characters, key=lambda one: (not one.isalnum(), not one.isascii(), one))


def texts_of(pattern: str) -> list[str]:
    """Some of the shortest texts that a pattern matches as a whole; none where that is not known."""
    try:
        one = NeededPattern(pattern, whole=True)
        return [*islice(_searched(_Demand((one,), 0, None), (one.automaton.start,), 0), _PROPOSED)]
    except (PatternError, StateLimitError):
        return []


def _rests_of_multiple(written: str, divisor: int) -> Iterator[str]:
    """The digits that may follow those that are written, so that the number is a multiple of a divisor."""
    base = int(written or "0")
    for digits in range(_DIGITS):
        base, more = (base if digits == 0 else base * 10), 10**digits
        rest = -base % divisor
        if rest < more:
            yield str(rest).zfill(digits) if digits else ""


def _rests_of_start(divisor: int, bounds: Iterable[float]) -> Iterator[str]:
    """Multiples of a divisor, those next to some bounds among them."""
    yield from dict.fromkeys(
        str(divisor * number)
        for number in (0, 1, -1, *(int(bound // divisor) + more for bound in bounds for more in (0, 1, -1)))
    )
