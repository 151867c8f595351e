"""What a call may say: values that JSON has, each said once, so that what is parsed is all that was written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

__all__ = ["is_json_value", "keys_said_once", "loaded_once", "objects_once"]

# Deeper, json and copy, which what reads a call goes through, run out of stack.
_DEEPEST = 200
_STRING = r'"(?:\\.|[^"\\])*"'


def is_json_value(value: Any) -> bool:
    """Whether JSON has such a value: finite numbers, whole characters, not nested beyond what programs read.

    `NaN`, `1e999` and a half of a surrogate pair are read by Python's parser and written by none.

    Examples:
        >>> is_json_value({"a": [1, None]}), is_json_value({"a": float("nan")}), is_json_value("\\ud83d")
        (True, False, False)
    """
    left = [(value, 0)]
    while left:
        one, depth = left.pop()
        if depth > _DEEPEST:
            return False
        if isinstance(one, Mapping):
            if not all(isinstance(key, str) for key in one):
                return False
            left += [(each, depth + 1) for pair in one.items() for each in pair]
        elif isinstance(one, list):
            left += [(each, depth + 1) for each in one]
        elif isinstance(one, str):
            if any("\ud800" <= letter <= "\udfff" for letter in one):
                return False
        elif not (one is None or isinstance(one, bool | int) or (isinstance(one, float) and isfinite(one))):
            return False
    return True


def loaded_once(text: str) -> Any:
    """JSON, parsed. Errors: `ValueError` for what is none, and for an object that says a key twice."""
    return json.loads(text, object_pairs_hook=_object)


def objects_once(text: str) -> list[Any]:
    """JSON values behind each other, parsed; blanks are between them. Errors: as `loaded_once`, and for no value."""
    decoder, text, at, values = json.JSONDecoder(object_pairs_hook=_object), text.strip(), 0, []
    while True:
        value, end = decoder.raw_decode(text, at)
        values.append(value)
        if end == len(text):
            return values
        at = end + len(text[end:]) - len(text[end:].lstrip())
        if at == end:
            raise ValueError("values behind each other without a blank")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an object says a key twice")
    return made


def keys_said_once(text: str, value: Any, marks: Sequence[Sequence[str]] = ()) -> bool:
    """Whether an object in a dialect of JSON has as many keys as were written.

    marks: what stands around strings, beside quotation marks. Outside of strings a colon stands behind a key alone.
    """
    texts = [*(re.escape(first) + ".*?" + re.escape(last) for first, last in marks), _STRING]
    return re.sub("|".join(texts), "", text, flags=re.DOTALL).count(":") == _keys(value)


def _keys(value: Any) -> int:
    if isinstance(value, Mapping):
        return len(value) + sum(map(_keys, value.values()))
    return sum(map(_keys, value)) if isinstance(value, list) else 0
