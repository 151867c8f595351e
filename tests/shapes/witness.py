"""Values that a schema allows, found by trying: who says that there is none must be right.

Not all values are tried, so none found proves nothing; one that is found does.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator

from nco_guard.policy import Policy
from tests.shapes.formats import FORMATS
from tests.shapes.judge import Schema, forbidden_in, validates
from tests.shapes.strategies import NUMBERS, STRINGS, parts

_PER_FORMAT = (
    "2024-02-28", "12:30:00Z", "2024-02-28T12:30:00Z", "P1D", "a@b.com", "b.com", "1.2.3.4", "::1",
    "0f9e8d7c-6b5a-4c3d-8e2f-1a0b9c8d7e6f", "a:b", "PT5M", "https://xyz.org", "1999-12-31", "q@x", "8.8.9.9",
)  # fmt: skip
_MATCHING = (
    "aa", "aaa", "aaaa", "bb", "abab", "aabb", "123-45", "987-65", "34", "b1", "é", "xyz", "x", "k@w", '"a"', "a.",
    "a.b", " a", "AF", "0C", "b", "ba", "zzzzzzz", "longer than most words", "12@ab",
)  # fmt: skip
_STRINGS = tuple(dict.fromkeys((*STRINGS, *_MATCHING, *_PER_FORMAT)))
_MOST = 24
_DEEP = 4


def values(schema: Schema, most: int = _MOST, place: str = "#") -> list[Any]:
    """Some values that `jsonschema` takes, small ones; of the part that stands at a place."""
    trying = _Trying(schema, most)
    return trying.of(trying.at(place), _DEEP)


def texts(schema: Schema, policy: Policy) -> Iterator[str]:
    """Texts that the schema and the policy take: a refusal of the two together is wrong where there is one."""
    for value in values(schema):
        for text in writings(value):
            if validates(schema, text) and not forbidden_in(policy, text):
                yield text


def writings(value: Any) -> list[str]:
    """A value as JSON: close together, with spaces, and with characters beyond ASCII escaped."""
    forms = (
        json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        json.dumps(value, ensure_ascii=False),
        json.dumps(value),
    )
    return [*dict.fromkeys(forms)]


class _Trying:
    def __init__(self, schema: Schema, most: int) -> None:
        self._root = schema
        self._validator = Draft202012Validator(schema, format_checker=FORMATS)
        self._most = most
        bounds = [
            value
            for part in parts(schema)
            if isinstance(part, dict)
            for key, value in part.items()
            if key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
        ]
        near = [bound + step for bound in bounds for step in (0, 1, -1, 0.5, -0.5, 0.25, 0.1)]
        spread = [bound * times for bound in bounds for times in (-1, 2, 3, 7)]
        numbers = dict.fromkeys((*near, *spread, *NUMBERS, *range(-12, 13), 4.5, 0.75, 30, 60))
        self._scalars: list[Any] = [None, True, False, *(_plain(number) for number in numbers), *_STRINGS]

    def _valid(self, part: Schema, value: Any) -> bool:
        return bool(self._validator.evolve(schema=part).is_valid(value))

    def of(self, part: Schema, depth: int) -> list[Any]:
        """Values that a part allows; the first of each kind of value first."""
        if depth < 0 or part is False:
            return []
        found: dict[str, Any] = {}
        for value in _alternating(self._candidates(part, depth)):
            written = json.dumps(value)
            if written not in found and self._valid(part, value):
                found[written] = value
                if len(found) >= self._most:
                    break
        return [*found.values()]

    def _candidates(self, part: Schema, depth: int) -> list[Iterable[Any]]:
        if part is True or not part:
            return [self._scalars, [[], {}]]
        if "const" in part:
            return [[part["const"]]]
        if "enum" in part:
            return [part["enum"]]
        below: list[Iterable[Any]] = []
        for key in ("anyOf", "oneOf", "allOf"):
            below += [self.of(each, depth - 1) for each in part.get(key, ())]
        if "$ref" in part:
            below.append(self.of(self.at(part["$ref"]), depth - 1))
        merged = [
            {**first, **second}
            for one, other in itertools.combinations(below, 2)
            for first, second in itertools.islice(itertools.product(one, other), 40)
            if isinstance(first, dict) and isinstance(second, dict)
        ]
        return [self._arrays(part, depth), self._objects(part, depth), self._scalars, *below, merged]

    def at(self, ref: str) -> Schema:
        """What is referred to by a pointer; by an anchor or an address, anything: all is judged in the end."""
        found = self._root
        pointer = unquote(ref).partition("#")[2]
        for each in pointer.split("/")[1:]:
            name = each.replace("~1", "/").replace("~0", "~")
            found = found[int(name) if isinstance(found, list) else name]
        return True if pointer and not pointer.startswith("/") else found

    def _arrays(self, part: Schema, depth: int) -> Iterator[Any]:
        if depth == 0 or "array" not in _types(part):
            return
        first = [self.of(each, depth - 1) for each in part.get("prefixItems", ())]
        rest = self.of(part.get("items", True), depth - 1)
        least = part.get("minItems", 0)
        for length in range(least, least + 3):
            columns = [first[place] if place < len(first) else rest for place in range(length)]
            for number in range(6):
                if all(columns):
                    yield [column[number % len(column)] for column in columns]

    def _objects(self, part: Schema, depth: int) -> Iterator[Any]:
        if depth == 0 or "object" not in _types(part):
            return
        known = {key: self.of(held, depth - 1) for key, held in part.get("properties", {}).items()}
        more = self.of(part.get("additionalProperties", True), depth - 1)
        for held in part.get("patternProperties", {}).values():
            more = [*more, *self.of(held, depth - 1)]
        required = [key for key in part.get("required", ()) if key not in known]
        other = ["x1", "k1", "x2", "k2", "x3"][: part.get("minProperties", 0) + 1]
        for keys in (
            [*known, *required],
            [key for key in (*known, *required) if key in part.get("required", ())],
        ):
            for extra in range(len(other) + 1):
                names = [*keys, *other[:extra]]
                columns = {name: known.get(name, more) for name in names}
                for number in range(8):
                    if all(columns.values()):
                        yield {name: column[number % len(column)] for name, column in columns.items()}


def _types(part: dict[str, Any]) -> Iterable[str]:
    named = part.get("type", ["array", "object"])
    return [named] if isinstance(named, str) else named


def _plain(number: float) -> float:
    rounded = round(number, 6)
    return int(rounded) if isinstance(rounded, float) and rounded.is_integer() else rounded


def _alternating(several: Iterable[Iterable[Any]]) -> Iterator[Any]:
    left = [iter(each) for each in several]
    missing = object()
    while left:
        for each in [*left]:
            value = next(each, missing)
            if value is missing:
                left.remove(each)
            else:
                yield value
