"""Arguments whose values are written within each other in a way that is not JSON's, as parts of a reply.

There are two such ways: JSON with marks of the family's own around strings (`MarkedStrings`), and a tag for each key
and item at every depth (`TagsInTags`). A value is taken apart by its schema: strings, numbers and words are texts up to
what ends them, lists and objects are parts that may hold others, themselves among them.

What a family cannot say is left out: keys that it cannot write, values that it would read as others. Where nothing is
left that a schema lets be, that is a `ShapeError`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nco_guard.errors import ShapeError
from nco_guard.shapes.branches import ReadPlace, branches_of
from nco_guard.shapes.call_parts import CallPart, WithinLeaf
from nco_guard.shapes.plain_values import SpreadKind, is_of, named_values, spread_kinds
from nco_guard.shapes.tagged import ListedArguments, ListedTag, quoted_text

__all__ = ["Notation", "nested_arguments"]

_MOST_ITEMS = 256


class Notation(ABC):
    """How values are written within each other.

    between: what stands between two items or keys. item: what stands around an item. around: around the items of an
    array, and around the keys of an object. whole: what stands around all arguments.
    """

    between = ""
    item = ("", "")
    around: Mapping[str, tuple[str, str]]
    whole = ("", "")

    @abstractmethod
    def says(self, key: str) -> bool:
        """Whether a key is read as itself."""

    @abstractmethod
    def key(self, key: str) -> tuple[str, str]:
        """What stands around the value of a key."""

    @abstractmethod
    def kinds(self, read: ReadPlace) -> Sequence[str]:
        """What a value may be of which its schema says nothing."""

    @abstractmethod
    def plain(self, name: str, schema: Any, root: Any, read: ReadPlace) -> tuple[list[CallPart], list[str]]:
        """The values of a schema that are no lists or objects, and the lines of the grammar for them."""

    def least(self, kind: str, read: ReadPlace) -> int | None:
        """How many items or keys an array or object has at least, to be read as one; None: it never is."""
        return 0

    def most(self, kind: str, read: ReadPlace) -> int | None:
        """How many it has at most for that; None: as many as there are."""
        return None

    @abstractmethod
    def further(self, name: str, keys: Sequence[str], value: CallPart) -> tuple[ListedTag, list[str]]:
        """Keys that are not named, with their values, and the lines of the grammar for them."""


class _Again(Exception):
    """What was taken for possible within itself is not."""


def nested_arguments(
    name: str, schema: Any, parameters: Any, notation: Notation
) -> tuple[CallPart, list[str]]:
    """All arguments of a call, and the lines of the grammar for them. name: of the rules. parameters: the schema by
    which they are read.

    Errors: `ShapeError` where nothing can be written, and for what is not enforced.
    """
    impossible = set[str]()
    while True:
        values = _Values(name, schema, notation, impossible)
        made = _Keys(values, name, ReadPlace([parameters], parameters))
        try:
            part = made.part()
        except _Again:
            continue
        first, last = notation.whole
        return CallPart.row(CallPart.text(first), part, CallPart.text(last)), values.lines


class _Values:
    """The values of a schema. impossible: lists and objects, by what they are, of which none can be written."""

    def __init__(self, name: str, root: Any, notation: Notation, impossible: set[str]) -> None:
        self.notation, self.root = notation, root
        self.lines: list[str] = []
        self._name, self._impossible = name, impossible
        self._known: dict[str, CallPart] = {}
        self._open: dict[str, bool] = {}
        self._plain: dict[str, list[CallPart]] = {}

    def of(self, schema: Any, read: ReadPlace) -> CallPart | None:
        """The values of a schema; None where there are none."""
        if schema is False:
            return None
        key = _said([schema, read.schemas])
        if key not in self._plain:
            name = f"{self._name}p{len(self._plain)}"
            self._plain[key], lines = self.notation.plain(name, schema, self.root, read)
            self.lines += lines
        found = [*self._plain[key]]
        for branch in spread_kinds(branches_of(schema, self.root), self.notation.kinds(read)):
            if branch.kind in ("array", "object"):
                found += [
                    part for one in _structures(branch) if (part := self._within(one, read)) is not None
                ]
        parts = [*{part.lark: part for part in found}.values()]
        return CallPart.choice(*parts) if parts else None

    def _within(self, branch: SpreadKind, read: ReadPlace) -> CallPart | None:
        """A list or an object, which may hold itself."""
        key = _said([branch, read.schemas])
        if key in self._impossible:
            return None
        if key in self._known:
            if key in self._open:
                self._open[key] = True
            return self._known[key]
        name, leaf = f"{self._name}d{len(self._known)}", WithinLeaf()
        self._known[key], self._open[key] = CallPart.leaf(name, leaf), False
        part = self._items(name, branch, read) if branch.kind == "array" else self._keys(name, branch, read)
        within_itself = self._open.pop(key)
        if part is None:
            self._impossible.add(key)
            if within_itself:
                raise _Again
            return None
        first, last = self.notation.around[branch.kind]
        leaf.part = CallPart.row(CallPart.text(first), part, CallPart.text(last))
        self.lines.append(f"{name}: {leaf.part.lark}")
        return self._known[key]

    def _keys(self, name: str, branch: SpreadKind, read: ReadPlace) -> CallPart | None:
        least, most = self.notation.least("object", read), self.notation.most("object", read)
        if least is None:
            return None
        return _Keys(self, name, read).of(branch.nodes, least, most)

    def _items(self, name: str, branch: SpreadKind, read: ReadPlace) -> CallPart | None:
        nodes, notation = branch.nodes, self.notation
        least, most = notation.least("array", read), notation.most("array", read)
        if least is None:
            return None
        least = max([least, *(int(node.get("minItems", 0)) for node in nodes)])
        limits = [most, *(node.get("maxItems") for node in nodes)]
        known = [int(limit) for limit in limits if limit is not None]
        most = min(known) if known else None
        first = max([read.firsts, *(len(node.get("prefixItems") or ()) for node in nodes)])
        if max(first, least, most or 0) > _MOST_ITEMS:
            raise ShapeError(
                f"lists of more than {_MOST_ITEMS} items that are counted are not enforced in this format"
            )
        number = max(first + 1, least, 1) if most is None else most
        parts: list[CallPart] = []
        while len(parts) < number:
            value = self.of(_item_of(nodes, len(parts)), read.under(len(parts)))
            if value is None:
                most = len(parts)
                break
            parts.append(
                CallPart.row(CallPart.text(notation.item[0]), value, CallPart.text(notation.item[1]))
            )
        return None if least > len(parts) else self._in_a_row(name, parts, least, more=most is None)

    def _in_a_row(self, name: str, parts: Sequence[CallPart], least: int, *, more: bool) -> CallPart:
        """Rules: of what may come from an item on."""
        between = self.notation.between
        for number, part in enumerate(parts):
            before = quoted_text(between) if between and number else ""
            rule = f"{before} {part.lark} {name}i{number + 1}"
            self.lines.append(f"{name}i{number}: {rule}" + ("" if number < least else ' | ""'))
        last = parts[-1].lark if parts else ""
        again = f"({quoted_text(between) if between else ''} {last})*" if more else '""'
        self.lines.append(f"{name}i{len(parts)}: {again}")
        return CallPart.items(f"{name}i0", between, parts, least, more=more)


class _Keys(ListedArguments[Notation]):
    """The keys of an object, or the arguments of a call."""

    def __init__(self, values: _Values, name: str, read: ReadPlace) -> None:
        super().__init__(name, values.root, values.root, dict.fromkeys(read.names, ()), values.notation)
        self._values, self._read, self.lines = values, read, values.lines

    def of(self, nodes: Sequence[Mapping[str, Any]], least: int, most: int | None) -> CallPart | None:
        """The keys of an object of some schemas; `least` and `most` are 0 or 1, and 0 or None."""
        required = frozenset(key for node in nodes for key in node.get("required") or ())
        if most == 0:
            nodes = [*nodes, {"additionalProperties": False}]
        if (most == 0 and required) or (least and not required):
            return None
        return self._arguments(self._name, required, nodes, nodes)

    def _tag(self, name: str, key: str, schema: Any, taken: Any) -> ListedTag | None:
        if schema is False or not self._marks.says(key):
            return None
        try:
            value = self._values.of(schema, self._read.under(key))
        except ShapeError as error:
            inner = (error.place or "#").removeprefix("#")
            raise ShapeError(error.message, place=f"#/properties/{key}{inner}") from None
        if value is None:
            return None
        opened, closed = self._marks.key(key)
        rest = CallPart.row(value, CallPart.text(closed))
        first, behind = (f"{quoted_text(one + opened)} {rest.lark}" for one in ("", self._marks.between))
        return ListedTag(first, behind, CallPart.row(CallPart.text(opened), rest))

    def _further(
        self,
        name: str,
        keys: Sequence[str],
        nodes: Sequence[Mapping[str, Any]],
        taken: Sequence[Mapping[str, Any]],
    ) -> ListedTag | None:
        value = self._values.of(self._others(nodes), self._read.under(None))
        if value is None:
            return None
        found, lines = self._marks.further(name, keys, value)
        self.lines += lines
        return found


def _said(value: Any) -> str:
    return json.dumps(value, default=str)


def _item_of(nodes: Sequence[Mapping[str, Any]], number: int) -> Any:
    """What an item is to be, by all schemas."""
    found: list[Any] = []
    for node in nodes:
        first = node.get("prefixItems") or ()
        each = first[number] if number < len(first) else node.get("items", True)
        if each is False:
            return False
        if each is not True and each != {}:
            found.append(each)
    return True if not found else found[0] if len(found) == 1 else {"allOf": found}


def _structures(branch: SpreadKind) -> Iterator[SpreadKind]:
    """A list or object; one that is named as what it is made of."""
    values = named_values(branch.nodes)
    if values is None:
        yield branch
        return
    rest = [{name: node[name] for name in node if name not in ("enum", "const")} for node in branch.nodes]
    for value in values:
        if is_of(value, branch.kind):
            yield SpreadKind(branch.kind, (*rest, _made_of(value)))


def _made_of(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        items = [{"const": one} for one in value]
        return {"prefixItems": items, "minItems": len(value), "maxItems": len(value)}
    named = {key: {"const": one} for key, one in value.items()}
    return {"properties": named, "required": [*named], "additionalProperties": False}
