"""Sets of regular expressions for the paper's scaling experiment: RegexPSPACE's file, and sets of the same shape.

The paper ("Scaling Regex Constraints under High Rejection Rates") takes RegexPSPACE (yonsei-toc/RegexPSPACE), drops
what matches the empty text and renames the letters a, b, c, d to w, x, y, z: 668 of 1,685 remain. `read_regexpspace`
does that to a user's copy of `data/RegexPSPACE.jsonl`. `regexpspace_shaped` makes sets without the file; they are
**not** the data set, and figures measured with them must say so.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nco_guard.errors import NCOGuardError

__all__ = ["RegexSet", "RegexSetError", "read_regexpspace", "regexpspace_shaped"]

_RENAMED = dict(zip("abcd", "wxyz", strict=True))
_DEPTH_LIMIT = 100


class RegexSetError(NCOGuardError, ValueError):
    """A file of regular expressions cannot be read; `line` counts from 1, `position` in the expression from 0."""

    def __init__(self, path: Path, line: int | None, message: str, position: int | None = None) -> None:
        where = "" if line is None else f", line {line}"
        where += "" if position is None else f", position {position} of its query"
        super().__init__(f"{path.name}{where}: {message}")
        self.line = line
        self.position = position


@dataclass(frozen=True)
class RegexSet:
    """Patterns of Python's `re` over the letters w, x, y, z, none of which matches the empty text.

    name: what the set may be called in a report. total: how many there were before dropping any.
    """

    name: str
    patterns: tuple[str, ...]
    total: int


@dataclass(frozen=True)
class _Node:
    """A regular expression: a letter, or an operator (`+`, `.`, `*`, `?`) over parts."""

    kind: str
    parts: tuple[_Node, ...] = ()

    @cached_property
    def depth(self) -> int:
        """Operators inside each other."""
        return 1 + max(part.depth for part in self.parts) if self.parts else 0

    def nullable(self) -> bool:
        """Whether it matches the empty text."""
        if self.kind in "*?":
            return True
        if self.kind == ".":
            return all(part.nullable() for part in self.parts)
        return any(part.nullable() for part in self.parts)

    def python(self) -> str:
        """What Python's `re` reads, letters renamed. Groups stand wherever `a*?` or `a**` would be misread."""
        if self.kind in _RENAMED:
            return _RENAMED[self.kind]
        if self.kind == "+":
            return "|".join(part.python() for part in self.parts)
        if self.kind == ".":
            return "".join(part.grouped() if part.kind == "+" else part.python() for part in self.parts)
        return self.parts[0].grouped() + self.kind

    def grouped(self) -> str:
        """As an operand: a letter is one by itself."""
        return self.python() if self.kind in _RENAMED else f"(?:{self.python()})"


class _Malformed(Exception):
    """Where in an expression, and why it cannot be read."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


class _Parser:
    """union = concat ("+" concat)*; concat = item+; item = (letter | "(" union ")") ("*" | "?")*."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0

    def peek(self) -> str:
        """The next character that is no space, or the empty string at the end."""
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1
        return self.text[self.position : self.position + 1]

    def parse(self) -> _Node:
        """The whole expression."""
        node = self.union()
        if self.peek():
            raise _Malformed(self.position, "a closing parenthesis without an opening one")
        return node

    def union(self) -> _Node:
        parts = [self.concatenation()]
        while self.peek() == "+":
            self.position += 1
            parts.append(self.concatenation())
        return parts[0] if len(parts) == 1 else _Node("+", tuple(parts))

    def concatenation(self) -> _Node:
        parts = [self.item()]
        while self.peek() not in ("", "+", ")"):
            parts.append(self.item())
        return parts[0] if len(parts) == 1 else _Node(".", tuple(parts))

    def item(self) -> _Node:
        symbol = self.peek()
        if symbol in _RENAMED:
            self.position += 1
            node = _Node(symbol)
        elif symbol == "(":
            opened = self.position
            self.position += 1
            self.depth += 1
            if self.depth > _DEPTH_LIMIT:
                raise _Malformed(opened, f"more than {_DEPTH_LIMIT} groups or operators inside each other")
            node = self.union()
            if self.peek() != ")":
                raise _Malformed(opened, "this parenthesis is never closed")
            self.position += 1
            self.depth -= 1
        elif symbol == "":
            raise _Malformed(self.position, "it ends where a letter or a group is needed")
        else:
            raise _Malformed(self.position, "a letter from a to d or a group is needed here")
        while (operator := self.peek()) in ("*", "?"):
            self.position += 1
            node = _Node(operator, (node,))
            if node.depth > _DEPTH_LIMIT:
                raise _Malformed(
                    self.position - 1, f"more than {_DEPTH_LIMIT} groups or operators inside each other"
                )
        return node


def read_regexpspace(path: str | Path) -> RegexSet:
    """The patterns of `data/RegexPSPACE.jsonl` as the paper uses them, in the file's order.

    One JSON object a line, its key `query` a regular expression over a to d in which `+` is union and `*` and `?` are
    postfix. Empty lines are skipped. Raises `RegexSetError` with the line for anything else, and for a file of which
    nothing remains; `OSError` for a file that cannot be opened.
    """
    path = Path(path)
    patterns: list[str] = []
    total = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            node = _read_line(path, number, raw)
            total += 1
            if not node.nullable():
                patterns.append(node.python())
    if not patterns:
        raise RegexSetError(path, None, f"none of its {total} expressions matches only texts with letters")
    return RegexSet("RegexPSPACE", tuple(patterns), total)


def _read_line(path: Path, number: int, raw: bytes) -> _Node:
    try:
        record: Any = json.loads(raw)
    except ValueError as error:
        raise RegexSetError(path, number, "it is not a JSON object") from error
    if not isinstance(record, dict) or not isinstance(record.get("query"), str):
        raise RegexSetError(path, number, "a JSON object with the key 'query' and a text is needed")
    try:
        return _Parser(record["query"]).parse()
    except _Malformed as error:
        raise RegexSetError(path, number, error.reason, error.position) from error


def regexpspace_shaped(count: int = 668, *, seed: int = 0) -> RegexSet:
    """`count` distinct patterns of RegexPSPACE's shape: **not** the data set, and named so.

    Random trees of depth 3 over four letters with binary union and concatenation and the two postfix operators, those
    that match the empty text dropped, letters renamed. The same for the same arguments. Raises `ValueError` unless
    `count` is from 1 to 20,000.
    """
    if not 1 <= count <= 20_000:
        raise ValueError(f"count is {count}: a number from 1 to 20,000 is needed")
    rng = random.Random(seed)
    found: dict[str, None] = {}
    total = 0
    while len(found) < count:
        node = _random_tree(rng, 3)
        total += 1
        if not node.nullable():
            found[node.python()] = None
    return RegexSet(f"RegexPSPACE-shaped (generated, seed {seed})", tuple(found), total)


def _random_tree(rng: random.Random, depth: int) -> _Node:
    if depth == 0:
        return _Node(rng.choice("abcd"))
    kind = rng.choices("+.*?", (3, 4, 2, 1))[0]
    if kind in "*?":
        return _Node(kind, (_random_tree(rng, depth - 1),))
    return _Node(kind, (_random_tree(rng, depth - 1), _random_tree(rng, depth - 1)))
