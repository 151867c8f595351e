"""The two ways in which families write values within each other otherwise than JSON; see `nested_values`."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from nco_guard.errors import ShapeError
from nco_guard.shapes.branches import ReadPlace, branches_of
from nco_guard.shapes.call_parts import CallPart
from nco_guard.shapes.exact_numbers import says_wide, wide_said
from nco_guard.shapes.library import in_lark
from nco_guard.shapes.nested_values import Notation
from nco_guard.shapes.part_leaves import ClosedKeyLeaf, KeyLeaf, NumberLeaf, OpenKeyLeaf
from nco_guard.shapes.plain_values import (
    ValueEnds,
    named_values,
    schema_of_kinds,
    spread_kinds,
    value_grammar,
)
from nco_guard.shapes.strict import narrowed
from nco_guard.shapes.tagged import ListedTag

__all__ = ["MarkedStrings", "TagsInTags"]

_KINDS = ("string", "integer", "number", "boolean", "null", "array", "object")
_WORDS: dict[str, list[Any]] = {"boolean": [True, False], "null": [None]}
_BARE_KEY = "[A-Za-z_][A-Za-z0-9_]{0,63}"
_KEY = "[A-Za-z_][A-Za-z0-9_.-]{0,63}"
_BLANKS = r"[\s\x1c-\x1f]*"


class MarkedStrings(Notation):
    """JSON without blanks, with marks around strings, which have no escapes.

    marks: what stands before and behind a string. bare: keys stand without quotation marks. never: patterns of what no
    string holds.
    """

    between = ","
    around: Mapping[str, tuple[str, str]] = {"array": ("[", "]"), "object": ("{", "}")}
    whole = ("{", "}")

    def __init__(self, marks: tuple[str, str], *, bare: bool, never: Sequence[str]) -> None:
        self._open, self._bare, self._never = marks[0], bare, tuple(never)
        # Characters by which transformers' reader marks the places of strings.
        self._ends = ValueEnds("", marks[1], (*never, r"[\x01\x02]"))

    def says(self, key: str) -> bool:
        """See `Notation`."""
        if self._bare:
            return re.fullmatch(r"\w+", key) is not None
        held = (re.escape(self._open), *self._ends.never)
        return key.isprintable() and not any(re.search(one, json.dumps(key)) for one in held)

    def key(self, key: str) -> tuple[str, str]:
        """See `Notation`."""
        return (key if self._bare else json.dumps(key, ensure_ascii=False)) + ":", ""

    def kinds(self, read: ReadPlace) -> Sequence[str]:
        """See `Notation`: whatever JSON has."""
        return _KINDS

    def plain(self, name: str, schema: Any, root: Any, read: ReadPlace) -> tuple[list[CallPart], list[str]]:
        """See `Notation`."""
        parts, lines = list[CallPart](), list[str]()
        text = value_grammar(name, (schema, root), (True, {}), (), self._ends, "string".__eq__)
        if text is not None:
            lines += text.lines
            parts.append(CallPart.row(CallPart.text(self._open), CallPart.leaf(text.lark, text.leaf)))
        branches = spread_kinds(branches_of(schema, root), _KINDS)
        numbers = [one for one in branches if one.kind in ("integer", "number")]
        for one in numbers:
            if any(says_wide(node, several=len(one.nodes) > 1) for node in one.nodes):
                raise ShapeError(f"{wide_said()} cannot be enforced in this format; say less")
        said = schema_of_kinds(numbers, root)
        if said is not None:
            lines.append(f"{name}n: %json {json.dumps(narrowed(copy.deepcopy(said)))}")
            parts.append(CallPart.leaf(f"{name}n", NumberLeaf(said)))
        for kind, nodes in branches:
            some = named_values(nodes)
            values = [
                one for one in _WORDS.get(kind, ()) if some is None or any(one is each for each in some)
            ]
            parts += [CallPart.text(json.dumps(value)) for value in values]
        return parts, lines

    def further(self, name: str, keys: Sequence[str], value: CallPart) -> tuple[ListedTag, list[str]]:
        """See `Notation`."""
        quote = "" if self._bare else '"'
        begin, end = re.escape(quote), re.escape(quote + ":")
        lines = _others(name, _BARE_KEY if self._bare else _KEY, keys, ("", self.between), begin, end)
        key = CallPart.row(CallPart.text(quote), CallPart.leaf("", KeyLeaf(quote + ":", keys)))
        return _repeated(name, CallPart.row(key, value), value.lark, self.between), lines


class TagsInTags(Notation):
    """A tag for each key of an object and each item of a list; other values are text between tags.

    mark: what stands before each tag. close: what ends a call, which no tag may be. A text is read by its schema; where
    an object may stand what holds tags is one, else what holds items alone is a list.
    """

    around: Mapping[str, tuple[str, str]]

    def __init__(self, mark: str, close: str) -> None:
        self._mark, self._close = mark, close
        self._end = mark + "</"
        self.item = (mark + "<item>", "item>")
        self.around = {"array": ("", self._end), "object": ("", self._end)}

    def says(self, key: str) -> bool:
        """See `Notation`."""
        return re.fullmatch(r"[^<>\n/][^<>\n]*", key) is not None and f"{self._end}{key}>" != self._close

    def key(self, key: str) -> tuple[str, str]:
        """See `Notation`."""
        return f"{self._mark}<{key}>", f"{key}>"

    def kinds(self, read: ReadPlace) -> Sequence[str]:
        """See `Notation`: text, or as what that is read."""
        return ("string", *(kind for kind in read.types if kind != "string"))

    def plain(self, name: str, schema: Any, root: Any, read: ReadPlace) -> tuple[list[CallPart], list[str]]:
        """See `Notation`."""
        types = read.types
        may = {"string", *types, *(["integer"] if "number" in types else [])} - {"array", "object"}
        # Blanks alone are an empty list or object to readers.
        first = (_BLANKS + re.escape(self._mark),) if {"array", "object"} & {*types} else ()
        ends = ValueEnds("", self._end, (re.escape(self._mark) + "(?:[^<]|<[^/])",), first)
        found = value_grammar(name, (schema, root), (True, {}), types, ends, may.__contains__)
        return ([], []) if found is None else ([CallPart.leaf(found.lark, found.leaf)], found.lines)

    def least(self, kind: str, read: ReadPlace) -> int | None:
        """See `Notation`."""
        some = [one for one in read.types if one in ("array", "object")]
        if kind not in some:
            return None
        return 0 if some[0] == kind else 1

    def most(self, kind: str, read: ReadPlace) -> int | None:
        """See `Notation`."""
        return 0 if kind == "array" and "object" in read.types else None

    def further(self, name: str, keys: Sequence[str], value: CallPart) -> tuple[ListedTag, list[str]]:
        """See `Notation`."""
        others = [*keys]
        if self._close.startswith(self._end):
            others.append(self._close[len(self._end) : -1])
        lines = _others(name, _KEY, others, ("",), re.escape(self._mark + "<"), ">")
        closed = f"{name.upper()}C"
        lines.append(f"{closed}: /{in_lark(_KEY + '>')}/")
        head = CallPart.row(CallPart.text(self._mark + "<"), CallPart.leaf("", OpenKeyLeaf(">", others)))
        tag = CallPart.row(head, value, CallPart.leaf(closed, ClosedKeyLeaf(">")))
        return _repeated(name, tag, f"{value.lark} {closed}", ""), lines


def _others(
    name: str, key: str, keys: Sequence[str], before: Sequence[str], begin: str, end: str
) -> list[str]:
    """Terminals of a key that is none of some, with what stands around it: first, and behind others."""
    lines, others = [], "|".join(map(re.escape, keys))
    for letter, each in zip("AB", before, strict=False):
        some = f"/{in_lark(f'{re.escape(each)}{begin}{key}{end}')}/"
        some += f" & ~/{in_lark(f'{re.escape(each)}{begin}(?:{others}){end}')}/" if others else ""
        lines.append(f"{name.upper()}{letter}: {some}")
    return lines


def _repeated(name: str, tag: CallPart, rest: str, between: str) -> ListedTag:
    """A key that is not named, with what comes behind it, any number of times."""
    first, behind = f"{name.upper()}A {rest}", f"{name.upper()}{'B' if between else 'A'} {rest}"
    part = CallPart.more(tag, CallPart.row(CallPart.text(between), tag))
    return ListedTag(f"{first} ({behind})*", f"{behind} ({behind})*", part)
