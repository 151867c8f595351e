"""The kinds of schemas that the JSON Schema Test Suite has (draft 2020-12), one small schema each; and older words."""

from __future__ import annotations

from typing import Any

from tests.shapes.strategies import FORMATS, Schema

__all__ = ["KINDS", "OLDER", "REFUSED", "SUPPORTED", "reworded"]

KINDS: dict[str, Any] = {
    "additionalProperties": {"properties": {"foo": {}}, "additionalProperties": {"type": "boolean"}, "type": "object"},
    "allOf": {"allOf": [{"type": "integer", "maximum": 30}, {"minimum": 20}]},
    "anchor": {"$defs": {"a": {"$anchor": "n", "type": "integer"}}, "type": "array", "prefixItems": [{"$ref": "#n"}]},
    "anyOf": {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]},
    "boolean_schema": {"type": "array", "items": True, "maxItems": 2},
    "const": {"const": {"foo": "bar", "baz": [1.5, None]}},
    "contains": {"contains": {"minimum": 5}},
    "content": {"type": "string", "contentMediaType": "application/json"},
    "default": {"properties": {"foo": {"type": "integer", "default": []}}, "type": "object"},
    "defs": {"$defs": {"a": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/a"}, "maxItems": 3},
    "dependentRequired": {"dependentRequired": {"bar": ["foo"]}},
    "dependentSchemas": {"dependentSchemas": {"bar": {"properties": {"foo": {"type": "integer"}}}}},
    "dynamicRef": {"$dynamicRef": "#n", "$defs": {"foo": {"$dynamicAnchor": "n", "type": "string"}}},
    "enum": {"enum": [6, "foo", [], True, {"foo": 12}, 0.5, "a\nb"]},
    "exclusiveMaximum": {"type": "number", "exclusiveMaximum": 3.0},
    "exclusiveMinimum": {"type": "number", "exclusiveMinimum": 1.1},
    "id": {"$id": "https://example.com/a", "$defs": {"a": {"enum": ["a", 1]}}, "$ref": "https://example.com/a#/$defs/a"},
    "if": {"if": {"exclusiveMaximum": 0}, "then": {"minimum": -10}},
    "infinite-loop-detection": {"$defs": {"int": {"type": "integer"}}, "allOf": [{"$ref": "#/$defs/int"}]},
    "items": {"type": "array", "items": {"type": "integer"}},
    "maxContains": {"contains": {"const": 1}, "maxContains": 1},
    "maximum": {"type": "number", "maximum": 3.0},
    "maxItems": {"type": "array", "maxItems": 2},
    "maxLength": {"type": "string", "maxLength": 2},
    "maxProperties": {"type": "object", "maxProperties": 2},
    "minContains": {"type": "array", "items": {"type": "null"}, "minContains": 2},
    "minimum": {"type": "number", "minimum": -2},
    "minItems": {"type": "array", "minItems": 1},
    "minLength": {"type": "string", "minLength": 2},
    "minProperties": {"type": "object", "minProperties": 2},
    "multipleOf": {"type": "number", "multipleOf": 1.5},
    "multipleOf, small": {"type": "number", "multipleOf": 0.0001},
    "not": {"not": {"type": "integer"}},
    "oneOf": {"oneOf": [{"type": "integer"}, {"type": "string", "minLength": 1}]},
    "oneOf, overlapping": {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 2}]},
    "pattern": {"type": "string", "pattern": "^a*$"},
    "pattern, beyond the first plane": {"type": "string", "pattern": "^\U0001f432*$"},
    "patternProperties": {"type": "object", "patternProperties": {"f.*o": {"type": "integer"}}},
    "prefixItems": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
    "properties": {"type": "object", "properties": {"foo": {"type": "integer"}, "bar": {"type": "string"}}},
    "properties, escaped": {"type": "object", "properties": {'foo"b\\r\n\t\f': {"type": "number"}}},
    "propertyNames": {"propertyNames": {"maxLength": 3}},
    "ref": {"type": "object", "properties": {"foo": {"$ref": "#"}}, "additionalProperties": False},
    "ref, pointer": {
        "$defs": {"a~b": {"type": "integer"}, "c%d": {"type": "null"}},
        "type": "array",
        "prefixItems": [{"$ref": "#/$defs/a~0b"}],
        "items": False,
    },
    "refRemote": {"$ref": "http://localhost:1234/draft2020-12/integer.json"},
    "required": {"type": "object", "properties": {"foo": {}, "bar": {}}, "required": ["foo"]},
    "required, without properties": {"type": "object", "required": ["foo\nbar", "b"]},
    "type": {"type": ["integer", "null", "array"]},
    "unevaluatedItems": {"type": "array", "prefixItems": [{"type": "string"}], "unevaluatedItems": False},
    "unevaluatedProperties": {"type": "object", "properties": {"foo": {}}, "unevaluatedProperties": False},
    "unknownKeyword": {"type": "integer", "of-our-own": {"minimum": 3}},
    "uniqueItems": {"type": "array", "uniqueItems": True},
    "vocabulary": {"$vocabulary": {"https://json-schema.org/draft/2020-12/vocab/core": True}, "type": "number"},
    **{
        f"format: {name}": {"type": "string", "format": name}
        for name in (*FORMATS, "idn-email", "iri", "json-pointer", "regex", "uri-reference")
    },
}  # fmt: skip
REFUSED = {
    "contains", "content", "dependentRequired", "dependentSchemas", "dynamicRef", "if", "maxContains",
    "multipleOf, small", "not", "oneOf, overlapping", "propertyNames", "refRemote", "unevaluatedItems",
    "unevaluatedProperties", "uniqueItems",
    *(f"format: {name}" for name in ("idn-email", "iri", "json-pointer", "regex", "uri-reference")),
}  # fmt: skip
SUPPORTED = [schema for kind, schema in KINDS.items() if kind not in REFUSED]
OLDER = ("items", "definitions", "$anchor")
"""Words in which older drafts, or others, say what 2020-12 says by `prefixItems`, `$defs` and a pointer."""


def reworded(schema: Schema, words: frozenset[str]) -> Schema:
    """A schema that asks for the same in some of these words; not one of `const` or `enum` is touched."""
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for name, held in schema.items():
        if name in ("properties", "patternProperties", "$defs"):
            made[name] = {key: reworded(part, words) for key, part in held.items()}
        elif name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            made[name] = [reworded(part, words) for part in held]
        elif name in ("items", "additionalProperties"):
            made[name] = reworded(held, words)
        else:
            made[name] = held
    if "items" in words and "prefixItems" in made:
        if "items" in made:
            made["additionalItems"] = made["items"]
        made["items"] = made.pop("prefixItems")
    return _referring(made, words)


def _referring(made: dict[str, Any], words: frozenset[str]) -> dict[str, Any]:
    """`$defs` and what refers to it, of one level."""
    reference = made.get("$ref", "")
    if reference.startswith("#/$defs/"):
        name = reference.removeprefix("#/$defs/")
        if "$anchor" in words and name.isalpha():
            made["$ref"] = f"#{name}"
        elif "definitions" in words:
            made["$ref"] = f"#/definitions/{name}"
    if "$defs" in made:
        if "$anchor" in words:
            for name, part in made["$defs"].items():
                if name.isalpha():
                    part["$anchor"] = name
        if "definitions" in words:
            made["definitions"] = made.pop("$defs")
    return made
