"""Numbers that the library does not enforce exactly: followed digit by digit, in whole numbers and fractions.

The library takes bounds and values as floats, and divisors as 32 bits. So what is beyond these is taken out of the
schema that it is given (`without_wide_numbers`), and said by `shapes.places` in its stead: a digit comes only where
some number that the schema lets through begins so, and the number ends only where it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Any

from nco_guard.shapes.keywords import schema_parts
from nco_guard.shapes.library import library_since

__all__ = [
    "NumberSets",
    "holds_wide",
    "is_one",
    "may_begin",
    "numbers_of",
    "says_wide",
    "several_divisors",
    "whole_values",
    "wide_numbers",
    "wide_said",
    "without_wide_numbers",
]

_FLOATS = 2**53  # whole numbers below, and those next to them, are floats one by one
# Below this no number can be written but 0 (`automata.json_text`).
_SMALL = 1e-5
# Beyond it the library needs a second and more for the states of a divisor.
_DIVISOR = 5_000
_DIGITS = 300
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


@dataclass(frozen=True)
class NumberSet:
    """Numbers between two bounds, that are multiples of `step`, and among `values`; each where it is given."""

    low: Fraction | None = None
    high: Fraction | None = None
    above: bool = False  # low itself is none
    below: bool = False
    step: Fraction | None = None
    values: frozenset[Fraction] | None = None

    def both(self, other: NumberSet) -> NumberSet:
        """The numbers that are in both."""
        low, above = max(
            ((each.low, each.above) for each in (self, other) if each.low is not None), default=(None, False)
        )
        high, not_below = min(
            ((each.high, not each.below) for each in (self, other) if each.high is not None),
            default=(None, True),
        )
        steps = [each.step for each in (self, other) if each.step is not None]
        sets = [each.values for each in (self, other) if each.values is not None]
        values = None if not sets else sets[0] if len(sets) == 1 else sets[0] & sets[1]
        step = None if not steps else steps[0] if len(steps) == 1 else _common(*steps)
        return NumberSet(low, high, above, not not_below, step, values)

    def __contains__(self, number: Fraction) -> bool:
        if self.values is not None and number not in self.values:
            return False
        if self.low is not None and (number < self.low or (self.above and number == self.low)):
            return False
        if self.high is not None and (number > self.high or (self.below and number == self.high)):
            return False
        return self.step is None or (number / self.step).denominator == 1

    def meets(self, other: NumberSet) -> bool:
        """Whether any number is in both."""
        found = self.both(other)
        if found.values is not None:
            return any(each in found for each in found.values)
        if found.low is None or found.high is None:
            return True
        if found.step is None:
            return found.low < found.high or (found.low == found.high and not (found.above or found.below))
        least = -(-found.low // found.step) * found.step
        if found.above and least == found.low:
            least += found.step
        return least in found


NumberSets = tuple[NumberSet, ...]
ALL: NumberSets = (NumberSet(),)
_WHOLE = NumberSet(step=Fraction(1))


def _common(one: Fraction, other: Fraction) -> Fraction:
    """The least number that is a multiple of both."""
    return Fraction(
        lcm(one.numerator * other.denominator, other.numerator * one.denominator),
        one.denominator * other.denominator,
    )


def _exactly(number: int | float) -> Fraction:
    """A number as it is written."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def is_number(value: Any) -> bool:
    """Whether a value is a number of JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers_of(schema: Any, target: Callable[[Any], Any], seen: tuple[int, ...] = ()) -> NumberSets:
    """The numbers that a schema lets be. `target`: what a reference leads to."""
    if not isinstance(schema, Mapping):
        return () if schema is False else ALL
    if id(schema) in seen:
        return ALL
    seen = (*seen, id(schema))
    found = _of_types(schema)
    bounds = {name: _exactly(schema[name]) for name in _BOUNDS if name in schema}
    own = [
        NumberSet(low=bounds.get("minimum")),
        NumberSet(high=bounds.get("maximum")),
        NumberSet(low=bounds.get("exclusiveMinimum"), above=True),
        NumberSet(high=bounds.get("exclusiveMaximum"), below=True),
    ]
    if "multipleOf" in schema:
        own.append(NumberSet(step=_exactly(schema["multipleOf"])))
    for name in ("const", "enum"):
        if name in schema:
            listed = [schema["const"]] if name == "const" else schema["enum"]
            own.append(NumberSet(values=frozenset(_exactly(each) for each in listed if is_number(each))))
    for each in own:
        found = _product(found, (each,))
    for name in ("anyOf", "oneOf"):
        if name in schema:
            found = _product(
                found, tuple(one for inner in schema[name] for one in numbers_of(inner, target, seen))
            )
    for inner in schema.get("allOf", ()):
        found = _product(found, numbers_of(inner, target, seen))
    if "$ref" in schema:
        found = _product(found, numbers_of(target(schema["$ref"]), target, seen))
    return found


def _of_types(schema: Mapping[str, Any]) -> NumberSets:
    types = schema.get("type", "number")
    types = [types] if isinstance(types, str) else types
    return ALL if "number" in types else (_WHOLE,) if "integer" in types else ()


def _product(some: NumberSets, others: NumberSets) -> NumberSets:
    return tuple(dict.fromkeys(one.both(other) for one in some for other in others))


# -- digits ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def may_begin(numbers: NumberSets, text: bytes) -> bool:
    """Whether any of these numbers is written with this beginning."""
    negative, digits = text[:1] == b"-", text.lstrip(b"-")
    if not digits.replace(b".", b"", 1).isdigit() and digits:
        return False  # no exponent is written (`automata.json_text`)
    if digits in (b"", b"0") or b"." in digits:
        return any(
            one.meets(other) for one in numbers for other in [_beginning(digits, 0, negative=negative)]
        )
    if any(_endless(one, negative=negative) for one in numbers):
        return True
    for more in range(_DIGITS - len(digits) + 1):
        interval = _beginning(digits, more, negative=negative)
        if any(one.meets(interval) for one in numbers):
            return True
        if all(_beyond(one, interval, negative=negative) for one in numbers):
            return False
    return False


def _beginning(digits: bytes, more: int, *, negative: bool) -> NumberSet:
    """The numbers that begin so and have so many more digits before the point."""
    whole, _, decimals = digits.partition(b".")
    if not digits:
        return NumberSet(high=Fraction(0), below=True)
    unit = Fraction(10**more, 10 ** len(decimals))
    low = int(whole + decimals) * unit
    if negative:
        return NumberSet(low=-(low + unit), high=-low, above=True, below=not low)
    return NumberSet(low=low, high=low + unit, below=True)


def _endless(one: NumberSet, *, negative: bool) -> bool:
    """Whether there are such numbers however many digits follow some that do not begin with 0."""
    end = one.low if negative else one.high
    return end is None and one.values is None and (one.step is None or one.step < 10 ** (_DIGITS // 2))


def _beyond(one: NumberSet, interval: NumberSet, *, negative: bool) -> bool:
    """Whether greater numbers of digits lead further away."""
    if negative:
        return one.low is not None and interval.high is not None and interval.high < one.low
    return one.high is not None and interval.low is not None and interval.low > one.high


def is_one(numbers: NumberSets, text: bytes) -> bool:
    """Whether a number that is written so is one of these."""
    try:
        number = Fraction(text.decode())
    except ValueError:
        return False
    return any(number in one for one in numbers)


# -- schemas -----------------------------------------------------------------------------------------------------------


def wide_numbers(schema: Mapping[str, Any]) -> dict[int, str]:
    """The schemas within one that say of numbers what the library does not hold exactly, by `id`, and their places."""
    several = several_divisors(schema)
    return {id(node): place for place, node in _schemas(schema) if says_wide(node, several=several)}


def several_divisors(schema: Mapping[str, Any]) -> bool:
    """Whether divisors may meet whose product is too much for the library."""
    found = sorted({_exactly(node["multipleOf"]) for _, node in _schemas(schema) if "multipleOf" in node})
    return len(found) > 1 and (
        found[-1] * found[-2] > _DIVISOR * _DIVISOR or any(each.denominator > 1 for each in found)
    )


def _schemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    waiting: list[tuple[str, Any]] = [("#", schema)]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, Mapping):
            yield place, node
            waiting += [(place + pointer, inner) for pointer, inner, _ in schema_parts(node)]


def says_wide(schema: Mapping[str, Any], *, several: bool) -> bool:
    """Whether a schema says something of numbers, right there, that the library does not hold exactly.

    `several`: whether there are other divisors for the same number.
    """
    if any(
        abs(schema[name]) >= _FLOATS or 0 < abs(schema[name]) < _SMALL for name in _BOUNDS if name in schema
    ):
        return True
    if "multipleOf" in schema and (
        several or _coefficient(schema["multipleOf"]) > _DIVISOR or _loses_multiples(schema)
    ):
        return True
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
    return any(is_number(each) and abs(each) >= _FLOATS for each in values)


def _loses_multiples(schema: Mapping[str, Any]) -> bool:
    """Whether there may be multiples below 0, which the library does not write before 1.8."""
    least = [schema[name] for name in ("minimum", "exclusiveMinimum") if name in schema]
    return not library_since(1, 8) and max(least, default=-1) < 0


def wide_said() -> str:
    """What `says_wide` is true of, in words."""
    old = (
        ""
        if library_since(1, 8)
        else ", and with llguidance before 1.8 multipleOf where a number may be below 0,"
    )
    return f"numbers of 2**53 and beyond, divisors above {_DIVISOR:,}{'' if library_since(1, 8) else old}"


def whole_values(schema: dict[str, Any], types: Any) -> dict[str, Any]:
    """A schema of values of some types, without fractions among those it lists where whole numbers are meant.

    The library does not take a whole number that is none before 1.9.
    """
    names = [types] if isinstance(types, str) else types or []
    if "enum" not in schema or "integer" not in names or "number" in names:
        return schema
    values = [each for each in schema["enum"] if not isinstance(each, float) or each.is_integer()]
    return {**schema, "enum": values} if values else schema


def _coefficient(divisor: int | float) -> int:
    exact = _exactly(divisor)
    while exact.denominator > 1:
        exact *= 10
    return exact.numerator


def holds_wide(value: Any) -> bool:
    """Whether a list or an object holds a whole number that floats do not."""
    if isinstance(value, dict | list):
        return any(holds_wide(each) for each in (value.values() if isinstance(value, dict) else value))
    return is_number(value) and abs(value) >= _FLOATS


def without_wide_numbers(schema: dict[str, Any]) -> None:
    """Take out of a schema what it says of numbers right there; other values stay."""
    for name in (*_BOUNDS, "multipleOf"):
        schema.pop(name, None)
    values = schema.pop("enum", None)
    if "const" in schema and is_number(schema["const"]):
        del schema["const"]
        schema["allOf"] = [*schema.get("allOf", ()), _kind_of([0])]
    if values is not None:
        others = [each for each in values if not is_number(each)]
        kind = _kind_of([each for each in values if is_number(each)])
        branches = [*([{"enum": others}] if others else []), *([kind] if kind else [])]
        schema["allOf"] = [
            *schema.get("allOf", ()),
            branches[0] if len(branches) == 1 else {"anyOf": branches},
        ]


def _kind_of(numbers: list[Any]) -> dict[str, Any]:
    if not numbers:
        return {}
    return {"type": "integer" if all(isinstance(each, int) for each in numbers) else "number"}
