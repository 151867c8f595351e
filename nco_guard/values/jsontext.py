"""The JSON values in a text that somebody will parse: one, several in a row, or some within other text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from nco_guard.values.scalars import prints

__all__ = ["dumped", "json_parts"]

_decoder = json.JSONDecoder()
_TRIES = 8
_NUMBER = re.compile(r"(?<![0-9])-?[0-9]++(?:\.[0-9]++)?[eE][+-]?[0-9]++|(?<![0-9])-?[0-9]++\.0++(?![0-9])")


class Rest(str):
    """A stretch of a JSON text that breaks off: no value, but text with numbers in it."""


def json_parts(text: str, *, whole: bool = True) -> list[tuple[int, int, Any]]:
    """(start, end, value) of each JSON value that can be parsed: of the whole text, or of the objects and arrays in it.

    What breaks off or is no JSON is not in the list; without `whole`, nor is a text that is one number, string or word.
    Broken beginnings are tried eight times. What is not taken apart from the first of them on comes as text (`Rest`) in
    which numbers are written out, where that makes a difference. Cost: linear in the text.
    """
    if whole:
        try:
            return [(0, len(text), json.loads(text))]
        except (ValueError, RecursionError):
            pass
    found: list[tuple[int, int, Any]] = []
    place, failures, broken = 0, 0, len(text)
    while failures < _TRIES:
        starts = [at for mark in "{[" if (at := text.find(mark, place)) >= 0]
        if not starts:
            break
        start = min(starts)
        try:
            value, end = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            failures, place, broken = failures + 1, start + 1, min(broken, start)
            continue
        found.append((start, end, value))
        place = end
    return sorted([*found, *_between(text, broken, found)], key=lambda part: part[0])


def _between(text: str, broken: int, found: list[tuple[int, int, Any]]) -> Iterator[tuple[int, int, Any]]:
    """What is not taken apart from a broken beginning on, where its numbers look different written out."""
    ends = [broken, *(end for start, end, _ in found if start >= broken)]
    starts = [*(start for start, _, _ in found if start >= broken), len(text)]
    for place, end in zip(ends, starts, strict=True):
        rest = text[place:end]
        if (plain := _NUMBER.sub(_written_out, rest)) != rest:
            yield place, end, Rest(plain)


def _written_out(number: re.Match[str]) -> str:
    """A number with an exponent, or with nothing after its point, without these where that is possible."""
    return (prints(float(number[0])) or (number[0],))[-1]


def dumped(value: Any) -> str:
    """A value as JSON text."""
    if isinstance(value, Rest):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)
