"""The JSON values in a text that somebody will parse: one, several in a row, or some within other text."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["dumped", "json_parts"]

_decoder = json.JSONDecoder()
_TRIES = 8


def json_parts(text: str, *, whole: bool = True) -> list[tuple[int, int, Any]]:
    """(start, end, value) of each JSON value that can be parsed: of the whole text, or of the objects and arrays in it.

    What breaks off or is no JSON is not in the list; without `whole`, nor is a text that is one number, string or word.
    Broken beginnings are tried eight times. Cost: linear in the text.
    """
    if whole:
        try:
            return [(0, len(text), json.loads(text))]
        except (ValueError, RecursionError):
            pass
    found: list[tuple[int, int, Any]] = []
    place, failures = 0, 0
    while failures < _TRIES:
        starts = [at for mark in "{[" if (at := text.find(mark, place)) >= 0]
        if not starts:
            break
        start = min(starts)
        try:
            value, end = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            failures, place = failures + 1, start + 1
            continue
        found.append((start, end, value))
        place = end
    return found


def dumped(value: Any) -> str:
    """A value as JSON text."""
    return json.dumps(value, ensure_ascii=False, default=str)
