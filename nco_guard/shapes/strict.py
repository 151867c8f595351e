"""What the library enforces too widely of a JSON Schema, narrowed; what cannot be, refused.

Of some formats it takes more than their documents let be: 29 February of every year, a second 60 of every minute, names
of hosts of any length. Patterns beside them say the rest. Divisors that floats do not hold are refused: 0.3 is a
multiple of 0.1 as it is written, and none to whoever divides floats, which validators do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from nco_guard.errors import ShapeError

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

Parts = Callable[[Mapping[str, Any]], Iterator[tuple[str, Any, bool]]]


def narrowed(schema: Any, parts: Parts, place: str = "#") -> Any:
    """A schema of which the library takes what its documents let be. `parts`: what finds the schemas within one.

    Works on the schema itself, which is a copy. Errors: `ShapeError` for divisors that cannot be enforced.
    """
    if not isinstance(schema, dict):
        return schema
    divisor = schema.get("multipleOf")
    if isinstance(divisor, float) and not _held_exactly(divisor):
        raise ShapeError(
            f"multipleOf: floats do not hold {divisor}, so its multiples divided by it are none; give one that they "
            "hold (1, 0.5, 0.25), an enum, or a string with a pattern",
            place=place,
        )
    for pointer, inner, _ in parts(schema):
        narrowed(inner, parts, place + pointer)
    pattern, longest = _BESIDE.get(str(schema.get("format")), (None, None))
    if longest is not None:
        schema["maxLength"] = min(longest, schema.get("maxLength", longest))
    if pattern is not None and "pattern" not in schema:
        schema["pattern"] = pattern
    elif pattern is not None:
        schema["allOf"] = [*schema.get("allOf", ()), {"pattern": pattern}]
    return schema


def _held_exactly(divisor: float) -> bool:
    return Fraction(divisor) == Fraction(repr(divisor))
