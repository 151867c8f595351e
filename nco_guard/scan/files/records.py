"""JSON lines: the texts of a record, which of them are asked for, and a record with some of them replaced.

A record is read so that nothing of it is lost: of a key that is there twice both values, of a number its digits as
written. A text that is replaced is cut out of the line as it stands; all else keeps its bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["RecordFields", "RecordText", "leaves", "parse", "replaced", "shown_path"]

# Where a value is: the path of what holds it, and a key or a place in an array.
Path = tuple["Path | None", str | int]


class _Object(list[tuple[str, Any]]):
    """A JSON object with all of its pairs."""


@dataclass(frozen=True, slots=True)
class RecordText:
    """One text of a record: a string, a number as it is written, or a key. `index` counts them from the left."""

    index: int
    text: str
    path: Path | None
    is_key: bool = False


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_int=str, parse_float=str, parse_constant=str)
_LEAF = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN|-?Infinity', re.DOTALL)


_HALF = re.compile("[\ud800-\udfff]")


class RecordFields:
    r"""Which values of a record are asked for, by dotted names: `user.name`, `messages.content`.

    Arrays are gone through: `messages.content` is the content of every message. A name that holds more than a text
    stands for all texts in it. A dot that belongs to a key is written `\.`. Without names: all texts, keys too.

    `met`: the names that some record held.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.met: set[str] = set()
        self._paths = {
            tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", n)): n for n in names
        }

    def __bool__(self) -> bool:
        return bool(self._paths)

    def asks_for(self, path: tuple[str, ...]) -> bool:
        """Whether the value at a path was asked for by its own name, which is noted then."""
        name = self._paths.get(path)
        if name is not None:
            self.met.add(name)
        return name is not None


def parse(line: str) -> Any:
    """A record; `json.JSONDecodeError` and `RecursionError` for what is none."""
    return _DECODER.decode(line)


def leaves(record: Any, fields: RecordFields) -> Iterator[RecordText]:
    """The texts of a record that are asked for, from left to right."""
    index = 0

    def walk(value: Any, path: Path | None, keys: tuple[str, ...], wanted: bool) -> Iterator[RecordText]:
        nonlocal index
        if isinstance(value, str):
            if wanted:
                yield RecordText(index, value, path)
            index += 1
        elif isinstance(value, _Object):
            for key, inner in value:
                inside = (path, key)
                # A key that was asked for by name is no text of the record.
                if wanted:
                    yield RecordText(index, key, inside, is_key=True)
                index += 1
                names = (*keys, key) if fields else keys
                yield from walk(inner, inside, names, fields.asks_for(names) or wanted)
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                yield from walk(inner, (path, place), keys, wanted)

    yield from walk(record, None, (), not fields)


def shown_path(path: Path | None, hidden: Iterable[str] = ()) -> str:
    """A path for a reader: `messages[2].content`; keys that are `hidden` show as `*`."""
    secret = set(hidden)
    parts: list[str] = []
    while path is not None:
        path, last = path
        if isinstance(last, int):
            parts.append(f"[{last}]")
        else:
            parts.append("." + ("*" if last in secret else last))
    return "".join(reversed(parts)).removeprefix(".")


def replaced(line: str, texts: Mapping[int, str]) -> str:
    """A line with some of its texts, by index, replaced: as JSON strings, so also what was a number."""
    pieces: list[str] = []
    position = 0
    for index, found in enumerate(_LEAF.finditer(line)):
        text = texts.get(index)
        if text is not None:
            end = found.end(1) if found.group(1) is not None else found.end()
            # Half of a surrogate pair can only be written as an escape.
            escaped = line.isascii() or _HALF.search(text) is not None
            pieces += line[position : found.start()], json.dumps(text, ensure_ascii=escaped)
            position = end
    return "".join((*pieces, line[position:]))
