"""A JSON Schema taken apart: of which kinds its values may be, and what is asked of those of each.

Arguments in tags are text. As what one is read follows from the types that the tool's schema has for it, in their
order (`types_of`, by which both whoever writes and whoever reads go); what must hold of it, from all schemas that stand
for it (`branches_of`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

from nco_guard.errors import ShapeError
from nco_guard.shapes.keywords import asks_itself

__all__ = [
    "ReadPlace",
    "SchemaBranch",
    "argument_types",
    "branches_of",
    "objects_of",
    "read_as",
]

Node = Mapping[str, Any]

KINDS = ("string", "integer", "number", "boolean", "null", "array", "object")
_MOST = 256


class SchemaBranch(NamedTuple):
    """One way to be valid. kind: of the value; None: any. nodes: schemas that all hold, without combinations."""

    kind: str | None
    nodes: tuple[Node, ...]


def target_of(reference: Any, root: Any) -> Any:
    """What a local `$ref` leads to; True, which is any value, for one that leads nowhere."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return True
    found = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return True
    return found


def _ways(schema: Any, root: Any, within: frozenset[str]) -> list[tuple[Node, ...]]:
    """The ways to be valid: of each the schemas that all must hold."""
    if schema is True or not isinstance(schema, Mapping):
        return [] if schema is False else [()]
    own = {name: schema[name] for name in schema if asks_itself(name)}
    found: list[tuple[Node, ...]] = [(own,)] if own else [()]
    parts = [[each] for each in schema.get("allOf") or ()]
    parts += [list(schema[name]) for name in ("anyOf", "oneOf") if schema.get(name)]
    for choices in parts:
        ways = [way for each in choices for way in _ways(each, root, within)]
        found = [(*one, *other) for one in found for other in ways]
        if len(found) > _MOST:
            raise ShapeError(f"more than {_MOST} combinations of anyOf, oneOf and allOf for one value")
    if (reference := schema.get("$ref")) is not None:
        if reference in within:
            return []
        ways = _ways(target_of(reference, root), root, within | {reference})
        found = [(*one, *other) for one in found for other in ways]
    return found


def _kinds_in(node: Node) -> list[str] | None:
    """The kinds that a schema names, in its order; None: it names none."""
    said = node.get("type")
    if said is not None:
        return [kind for kind in ([said] if isinstance(said, str) else said) if kind in KINDS]
    values = node["enum"] if "enum" in node else [node["const"]] if "const" in node else None
    return None if values is None else list(dict.fromkeys(map(_kind_of, values)))


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    if value is None:
        return "null"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _common(kinds: list[str] | None, others: list[str] | None) -> list[str] | None:
    if kinds is None or others is None:
        return others if kinds is None else kinds
    found = []
    for kind in kinds:
        if kind in others or (kind == "integer" and "number" in others):
            found.append(kind)
        elif kind == "number" and "integer" in others:
            found.append("integer")
    return found


def branches_of(schema: Any, root: Any) -> list[SchemaBranch]:
    """The ways for a value to be valid. `root`: where local references lead.

    Errors: `ShapeError` for more than 256 combinations.

    Examples:
        >>> [branch.kind for branch in branches_of({"anyOf": [{"type": "string"}, {"type": "null"}]}, {})]
        ['string', 'null']
    """
    found: list[SchemaBranch] = []
    for way in _ways(schema, root, frozenset()):
        kinds: list[str] | None = None
        for node in way:
            kinds = _common(kinds, _kinds_in(node))
        found += [SchemaBranch(kind, way) for kind in ([None] if kinds is None else kinds)]
    return found


def types_of(schema: Any, root: Any) -> tuple[str, ...]:
    """The types that a text may be read as, in the order in which they are tried. Errors: as `branches_of`."""
    kinds = [branch.kind for branch in branches_of(schema, root) if branch.kind is not None]
    if isinstance(schema, Mapping) and schema.get("nullable"):
        kinds.append("null")
    return tuple(dict.fromkeys(kinds))


def objects_of(parameters: Any) -> Iterator[tuple[dict[str, list[Any]], frozenset[str], tuple[Node, ...]]]:
    """The ways for arguments to be valid: of each the schemas by key, the keys that must be there, and all schemas."""
    for kind, nodes in branches_of(parameters, parameters):
        if kind not in (None, "object"):
            continue
        keys: dict[str, list[Any]] = {}
        for node in nodes:
            for key, schema in (node.get("properties") or {}).items():
                keys.setdefault(key, []).append(schema)
        required = frozenset(key for node in nodes for key in node.get("required") or ())
        yield keys, required, nodes


def argument_types(parameters: Any) -> dict[str, tuple[str, ...]]:
    """As what the text of each argument is read, by the schema of all of them; those that have no types are text.

    Examples:
        >>> argument_types({"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"enum": [1, 2]}}})
        {'n': ('integer',)}
    """
    found: dict[str, list[str]] = {}
    try:
        for keys, _, _ in objects_of(parameters):
            for key, schemas in keys.items():
                found.setdefault(key, []).extend(types_of(_all_of(schemas), parameters))
    except ShapeError:
        return {}
    return {key: tuple(dict.fromkeys(kinds)) for key, kinds in found.items()}


class ReadPlace:
    """A place in arguments whose values are text at every depth: by which schemas what stands there is read.

    Of several that may stand there the types are tried one behind the other, as in `argument_types`. Errors: none; by
    schemas with more than 256 combinations nothing but text is read.

    Examples:
        >>> root = {"$defs": {"n": {"type": "integer"}}}
        >>> place = ReadPlace([{"type": "array", "items": {"$ref": "#/$defs/n"}}], root)
        >>> place.types, place.under(0).types, place.under("x").types
        (('array',), ('integer',), ())
    """

    def __init__(self, schemas: Sequence[Any], root: Any) -> None:
        self.schemas, self._root = tuple(schemas), root
        self._under: dict[str | int | None, ReadPlace] = {}

    @cached_property
    def types(self) -> tuple[str, ...]:
        """As what a text is read, in the order in which that is tried."""
        found: list[str] = []
        for schema in self.schemas:
            with suppress(ShapeError):
                found += types_of(schema, self._root)
        return tuple(dict.fromkeys(found))

    @cached_property
    def _ways(self) -> list[SchemaBranch]:
        found: list[SchemaBranch] = []
        for schema in self.schemas:
            with suppress(ShapeError):
                found += branches_of(schema, self._root)
        return found

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The keys that are named by any of the schemas."""
        named = [
            key
            for kind, nodes in self._ways
            if kind in (None, "object")
            for node in nodes
            for key in _named(node)
        ]
        return tuple(dict.fromkeys(named))

    @cached_property
    def firsts(self) -> int:
        """How many items have schemas of their own."""
        return max((len(_items(node)[0]) for _, nodes in self._ways for node in nodes), default=0)

    def under(self, key: str | int | None) -> ReadPlace:
        """What stands under a key (None: one that is named nowhere), or is an item of this number."""
        if key not in self._under:
            kind = "array" if isinstance(key, int) else "object"
            found: dict[str, Any] = {}
            for schema in (
                _all_of(some)
                for of, nodes in self._ways
                if of in (None, kind)
                if (some := _said_of(nodes, key))
            ):
                found.setdefault(json.dumps(schema, sort_keys=True, default=str), schema)
            self._under[key] = ReadPlace([*found.values()], self._root)
        return self._under[key]


def _named(node: Node) -> Mapping[str, Any]:
    return node.get("properties") or {}


def _items(node: Node) -> tuple[Sequence[Any], Any]:
    """The schemas of the first items, and that of others."""
    said = node.get("items")
    if isinstance(said, list):
        return said, node.get("additionalItems")
    return node.get("prefixItems") or (), said


def _said_of(nodes: Sequence[Node], key: str | int | None) -> list[Mapping[str, Any]]:
    """What schemas that all hold say of what stands under a key, or of an item."""
    found: list[Any] = []
    for node in nodes:
        if isinstance(key, int):
            first, rest = _items(node)
            found.append(first[key] if key < len(first) else rest)
        elif key is not None and key in _named(node):
            found.append(_named(node)[key])
        else:
            found.append(node.get("additionalProperties"))
    return [one for one in found if isinstance(one, Mapping)]


def _all_of(schemas: Sequence[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {"allOf": list(schemas)}


def read_as(text: str, types: Sequence[str]) -> Any:
    """A text as the first of some types that it can be; as itself where it is none. What readers of tags do.

    Examples:
        >>> read_as("3", ("integer",)), read_as("x", ("integer",)), read_as("null", ("string", "null"))
        (3, 'x', None)
    """
    for kind in types:
        try:
            if kind in ("integer", "number"):
                return _number(text, kind)
            bare = text.strip()
            if kind == "boolean" and bare.lower() in ("true", "1", "false", "0"):
                return bare.lower() in ("true", "1")
            if kind == "null" and bare in ("null", "None"):
                return None
            if kind in ("object", "array"):
                value = json.loads(text)
                if isinstance(value, dict if kind == "object" else list):
                    return value
        except (ValueError, OverflowError, RecursionError):
            continue
    return text


def _number(text: str, kind: str) -> int | float:
    if kind == "integer":
        try:
            return int(text)
        except ValueError:
            pass
    value = float(text)
    if kind == "integer" or (value.is_integer() and "." not in text):
        if value.is_integer():
            return int(value)
        raise ValueError
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError
    return value
