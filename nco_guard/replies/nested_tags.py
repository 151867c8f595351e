"""Arguments in tags within tags: an object has a tag for each key, a list one for each item, a value its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nco_guard.replies.call_values import loaded_once
from nco_guard.shapes.branches import ReadPlace, read_as

__all__ = ["arguments_in_tags", "value_in_tags"]

_ITEM = "item"
_DEEPEST = 100


def arguments_in_tags(text: str, mark: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, whose values have the types that their schema says; others are text.

    mark: what stands before each tag. schema: of all arguments. Errors: `ValueError` for tags that are not within each
    other, text between tags, an argument that is said twice, and nesting beyond 100.

    Examples:
        >>> arguments_in_tags("@<a>1@</a>@<b>@<item>x@</item>@</b>", "@", {"properties": {"a": {"type": "integer"}}})
        {'a': 1, 'b': ['x']}
    """
    tags = re.compile(re.escape(mark) + r"<(/?)([^<>\n]+)>")
    pieces = _pieces(text, tags)
    found = _children(pieces, None, ReadPlace([schema], schema), 0)
    if isinstance(found, str):
        if found.strip():
            raise ValueError("text between arguments")
        return {}
    return _object(found)


def value_in_tags(value: Any, mark: str) -> str:
    """A value as it stands in the tag of its argument. None has no form: in an object it is left out, else empty."""
    if isinstance(value, Mapping):
        return "".join(_tag(key, one, mark) for key, one in value.items() if one is not None)
    if isinstance(value, list):
        return "".join(_tag(_ITEM, one, mark) for one in value)
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _tag(key: str, value: Any, mark: str) -> str:
    return f"{mark}<{key}>{value_in_tags(value, mark)}{mark}</{key}>"


# A tag's name with whether it ends there, or a text.
_Piece = tuple[str, bool | None]
_Found = str | list[tuple[str, Any]]


def _pieces(text: str, tags: re.Pattern[str]) -> Iterator[_Piece]:
    at = 0
    for tag in tags.finditer(text):
        if text[at : tag.start()]:
            yield text[at : tag.start()], None
        yield tag[2], bool(tag[1])
        at = tag.end()
    if text[at:]:
        yield text[at:], None


def _children(pieces: Iterator[_Piece], within: str | None, place: ReadPlace, depth: int) -> _Found:
    """What stands in a tag: its text, or the tags in it with their values."""
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    text, found = "", list[tuple[str, Any]]()
    keyed = within is None or "object" in place.types
    for piece, ends in pieces:
        if ends is None:
            text += piece
        elif ends:
            if piece != within:
                raise ValueError("a tag ends that did not begin")
            break
        else:
            inner = place.under(piece if keyed or piece != _ITEM else len(found))
            found.append((piece, _value(_children(pieces, piece, inner, depth + 1), inner)))
    else:
        if within is not None:
            raise ValueError("a tag does not end")
    if found and text.strip():
        raise ValueError("text beside tags")
    return found or text


def _value(found: _Found, place: ReadPlace) -> Any:
    if isinstance(found, str):
        return _cast(found, place.types)
    if "object" not in place.types and all(key == _ITEM for key, _ in found):
        return [value for _, value in found]
    return _object(found)


def _object(found: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(found)
    if len(made) < len(found):
        raise ValueError("a key is said twice")
    return made


def _cast(text: str, types: Sequence[str]) -> Any:
    """A text as the first of the types that it can be; nothing is an empty list or object where one may stand."""
    empty: dict[str, Any] = {"array": [], "object": {}}
    if not text.strip():
        return next((empty[kind] for kind in types if kind in empty), text)
    value = read_as(text, types)
    return loaded_once(text) if isinstance(value, dict | list) else value
