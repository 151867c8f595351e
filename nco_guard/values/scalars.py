"""Values that are no text and no container: what they look like when somebody prints them."""

from __future__ import annotations

import codecs
import contextlib
import datetime
import fractions
import ipaddress
import pathlib
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic_core import MultiHostUrl, Url, to_jsonable_python

__all__ = ["decoded", "decoded_wide", "prints"]

_READABLE = bytes((*range(0x20, 0x7F), *b"\t\n\r"))
_READABLE_SHARE = 0.6  # of bytes at random, a bit more than a third are
# Codings of two and four bytes a character: what a text may begin with, and where zeros stand among Latin letters.
_WIDE = (
    ("utf-32-le", codecs.BOM_UTF32_LE, (1, 2, 3)),
    ("utf-32-be", codecs.BOM_UTF32_BE, (0, 1, 2)),
    ("utf-16-le", codecs.BOM_UTF16_LE, (1, 3)),
    ("utf-16-be", codecs.BOM_UTF16_BE, (0, 2)),
)
_WIDE_SHARE = 0.25  # so many more zeros stand there than elsewhere
_LONGEST = 64  # digits before the point that a float is written out with


def prints(value: Any) -> tuple[str, ...] | None:
    """The texts that a scalar shows as, by `str`, as JSON and written out; None for what is no scalar."""
    printer = _PRINTERS.get(type(value))
    if printer is None:
        printer = next((found for kind, found in _KINDS if isinstance(value, kind)), None)
    return None if printer is None else tuple(dict.fromkeys(printer(value)))


def decoded(data: bytes) -> str | None:
    """Bytes as text: UTF-8, or else one character per byte, as they are printed; None for what is no text at all.

    An image or an archive holds any short word somewhere by chance, and nobody reads it there.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        readable = sum(data.count(byte) for byte in _READABLE)
        return data.decode("latin-1") if readable >= _READABLE_SHARE * len(data) else None


def decoded_wide(data: bytes) -> str | None:
    """Bytes as text of two or four bytes a character, where a mark or zeros say so; None elsewhere."""
    for coding, mark, _ in _WIDE:
        if data.startswith(mark):
            with contextlib.suppress(UnicodeDecodeError):
                return data.decode(coding)
    if 0 not in data or len(data) < 4:
        return None
    zeros = [data[place::4].count(0) / len(data[place::4]) for place in range(4)]
    for coding, _, places in _WIDE:
        most = max(zeros[place] for place in range(4) if place not in places)
        if min(zeros[place] for place in places) - most >= _WIDE_SHARE:
            return data.decode(coding, "replace")
    return None


def _truth(value: bool) -> list[str]:
    return ["True", "true"] if value else ["False", "false"]


def _whole(value: int) -> list[str]:
    try:
        return [int.__repr__(value)]
    except ValueError:  # too many digits for Python to print, which nobody else can then
        return [hex(value)]


def _real(value: float) -> list[str]:
    shown = float.__repr__(value)
    found = [shown]
    # As other languages print it, and as somebody who rounds does.
    if "e" in shown or shown.endswith(".0"):
        found += _written_out(Decimal(shown))
    return found


def _decimal(value: Decimal) -> list[str]:
    return [str(value), repr(value), *_written_out(value)]


def _written_out(value: Decimal) -> list[str]:
    if not value.is_finite() or abs(value.adjusted()) > _LONGEST:
        return []
    long = format(value, "f")
    whole = value == value.to_integral_value()
    return [long, long.partition(".")[0]] if whole else [long]


def _date(value: Any) -> list[str]:
    zone = getattr(value, "tzinfo", None)
    shown = [str(value), value.isoformat(), repr(value), *_as_json(value)]
    return shown if zone is None else [*shown, str(zone), value.tzname() or ""]


def _as_json(value: Any) -> list[str]:
    """As pydantic writes a value, where it knows it: `2024-01-02T00:00:00Z`, `P1D`."""
    with contextlib.suppress(Exception):  # such as of a date that is none
        return [str(to_jsonable_python(value))]
    return []


def _enum(value: Enum) -> list[str]:
    name = value.name or ""  # members of a flag together may have none
    return [str(value), repr(value), name, *(prints(value.value) or (str(value.value),))]


def _pattern(value: re.Pattern[Any]) -> list[str]:
    pattern = value.pattern
    # Printed is the beginning alone.
    return [str(value), pattern if isinstance(pattern, str) else decoded(pattern) or ""]


def _address(value: Any) -> list[str]:
    return [str(value), repr(value), value.unicode_string()]


def _text(value: Any) -> list[str]:
    return [str(value), repr(value), *_as_json(value)]


_PRINTERS: dict[type, Callable[[Any], list[str]]] = {
    bool: _truth,
    int: _whole,
    float: _real,
    Decimal: _decimal,
    datetime.date: _date,
    datetime.datetime: _date,
    datetime.time: _date,
    datetime.timedelta: _text,
    uuid.UUID: _text,
}
_KINDS: tuple[tuple[Any, Callable[[Any], list[str]]], ...] = (
    (Enum, _enum),
    (int, _whole),
    (float, _real),
    (Decimal, _decimal),
    ((datetime.date, datetime.time), _date),
    ((datetime.timedelta, datetime.tzinfo, complex, fractions.Fraction, uuid.UUID, pathlib.PurePath), _text),
    ((ipaddress._IPAddressBase, range), _text),
    (re.Pattern, _pattern),
    ((Url, MultiHostUrl), _address),
)
