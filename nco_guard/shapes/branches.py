"""A JSON Schema taken apart: of which kinds its values may be, and what is asked of those of each.

Arguments in tags are text. As what one is read follows from the types that the tool's schema has for it, in their
order (`types_of`, by which both whoever writes and whoever reads go); what must hold of it, from all schemas that stand
for it (`branches_of`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nco_guard.errors import ShapeError
from nco_guard.shapes.keywords import asks_itself

__all__ = [
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
