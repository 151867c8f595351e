"""What the library enforces too widely of a JSON Schema, narrowed; what cannot be, refused.

Of some formats it takes more than their documents let be: 29 February of every year, a second 60 of every minute, names
of hosts of any length. Patterns beside them say the rest. Divisors that floats do not hold are refused: 0.3 is a
multiple of 0.1 as it is written, and none to whoever divides floats, which validators do.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any
from urllib.parse import quote

from nco_guard.errors import ShapeError
from nco_guard.shapes.dialect import searched_pattern
from nco_guard.shapes.exact_numbers import (
    holds_wide,
    says_wide,
    several_divisors,
    whole_values,
    without_wide_numbers,
)
from nco_guard.shapes.keywords import schema_parts
from nco_guard.shapes.library import check_items

__all__ = ["narrowed"]

_FOURTHS = "0[48]|[2468][048]|[13579][26]"
_LEAP = f"(?:[0-9]{{2}}(?:{_FOURTHS})|(?:{_FOURTHS})00)"
# Python has no year 0.
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DATE = f"(?:{_LEAP}-02-29|{_YEAR}-02-(?:[01][0-9]|2[0-8])|{_YEAR}-(?:0[13-9]|1[0-2])-[0-9]{{2}})"
_TIME = "[0-9]{2}:[0-9]{2}:[0-5].*"
_LABEL = "[A-Za-z0-9-]{1,63}"
_DOMAIN = rf"(?:\[.*\]|(?:{_LABEL}\.)*{_LABEL})"
# What is to hold beside what the library takes for a format, and the most characters.
_BESIDE: dict[str, tuple[str | None, int | None]] = {
    "date": (f"^{_DATE}$", None),
    "time": (f"^{_TIME}$", None),
    "date-time": (f"^{_DATE}[Tt]{_TIME}$", None),
    "email": (f"^[^@]{{1,64}}@{_DOMAIN}$", 254),
    "hostname": (None, 253),
}


def narrowed(schema: Any) -> Any:
    """A schema of which the library takes what its documents let be, but for numbers that `shapes.places` follows.

    Works on the schema itself, which is a copy. Errors: `ShapeError` for what cannot be enforced.
    """
    if not isinstance(schema, dict):
        return schema
    return _narrowed(schema, "#", several_divisors(schema))


def _narrowed(schema: Any, place: str, several: bool) -> Any:
    if not isinstance(schema, dict):
        return schema
    _check_numbers(schema, place)
    check_items(schema, place)
    for pointer, inner, _ in schema_parts(schema):
        _narrowed(inner, place + pointer, several)
    if says_wide(schema, several=several):
        without_wide_numbers(schema)
    schema.update(whole_values(schema, schema.get("type")))
    try:
        _spell(schema)
    except ShapeError as error:
        raise ShapeError(error.message, place=place) from None
    pattern, longest = _BESIDE.get(str(schema.get("format")), (None, None))
    if longest is not None:
        schema["maxLength"] = min(longest, schema.get("maxLength", longest))
    if pattern is not None and "pattern" not in schema:
        schema["pattern"] = pattern
    elif pattern is not None:
        schema["allOf"] = [*schema.get("allOf", ()), {"pattern": pattern}]
    return schema


def _spell(schema: dict[str, Any]) -> None:
    """Patterns and references as the library reads them."""
    if "pattern" in schema:
        schema["pattern"] = _whole("pattern", schema["pattern"])
    if "patternProperties" in schema:
        name = "patternProperties"
        spelled = {_whole(name, each): inner for each, inner in schema[name].items()}
        if len(spelled) < len(schema["patternProperties"]):
            raise ShapeError("patternProperties: two patterns say the same; write one")
        schema["patternProperties"] = spelled
    if "$ref" in schema:
        schema["$ref"] = quote(schema["$ref"], safe="#/~$!'()*+,;=:@?")


def _whole(name: str, pattern: str) -> str:
    try:
        return f"^(?:{searched_pattern(pattern)})$"
    except ShapeError as error:
        raise ShapeError(f"{name}: {error.message}") from None


def _check_numbers(schema: dict[str, Any], place: str) -> None:
    divisor = schema.get("multipleOf")
    if isinstance(divisor, float) and not _held_exactly(divisor):
        raise ShapeError(
            f"multipleOf: floats do not hold {divisor}, so its multiples divided by it are none; give one that they "
            "hold (1, 0.5, 0.25), an enum, or a string with a pattern",
            place=place,
        )
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
    if any(isinstance(each, dict | list) and holds_wide(each) for each in values):
        raise ShapeError(
            "a value holds a whole number beyond 2**53, which is not enforced exactly there; write the value as "
            "properties or prefixItems with a const for each",
            place=place,
        )


def _held_exactly(divisor: float) -> bool:
    return Fraction(divisor) == Fraction(repr(divisor))
