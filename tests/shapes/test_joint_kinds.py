"""Each kind of schema that the JSON Schema Test Suite has: enforced together with policies, or refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nco_guard.errors import ShapeError
from nco_guard.policy import Policy, RegexRule, StringRule
from tests.shapes.driver import Taste, tempting, vocabulary, write
from tests.shapes.joint import NOTHING, Joint, bound_to
from tests.shapes.judge import faults
from tests.slow import rest_slow

KINDS: dict[str, Any] = {
    "additionalProperties": {"properties": {"foo": {}}, "additionalProperties": {"type": "boolean"}, "type": "object"},
    "allOf": {"allOf": [{"type": "integer", "maximum": 30}, {"minimum": 20}]},
    "anyOf": {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]},
    "boolean_schema": {"type": "array", "items": True, "maxItems": 2},
    "const": {"const": {"foo": "bar", "baz": [1.5, None]}},
    "contains": {"contains": {"minimum": 5}},
    "default": {"properties": {"foo": {"type": "integer", "default": []}}, "type": "object"},
    "defs": {"$defs": {"a": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/a"}, "maxItems": 3},
    "dependentRequired": {"dependentRequired": {"bar": ["foo"]}},
    "dependentSchemas": {"dependentSchemas": {"bar": {"properties": {"foo": {"type": "integer"}}}}},
    "enum": {"enum": [6, "foo", [], True, {"foo": 12}, 0.5, "a\nb"]},
    "exclusiveMaximum": {"type": "number", "exclusiveMaximum": 3.0},
    "exclusiveMinimum": {"type": "number", "exclusiveMinimum": 1.1},
    "if": {"if": {"exclusiveMaximum": 0}, "then": {"minimum": -10}},
    "infinite-loop-detection": {"$defs": {"int": {"type": "integer"}}, "allOf": [{"$ref": "#/$defs/int"}]},
    "items": {"type": "array", "items": {"type": "integer"}},
    "maxContains": {"contains": {"const": 1}, "maxContains": 1},
    "maximum": {"type": "number", "maximum": 3.0},
    "maxItems": {"type": "array", "maxItems": 2},
    "maxLength": {"type": "string", "maxLength": 2},
    "maxProperties": {"type": "object", "maxProperties": 2},
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
    "required": {"type": "object", "properties": {"foo": {}, "bar": {}}, "required": ["foo"]},
    "required, without properties": {"type": "object", "required": ["foo\nbar", "b"]},
    "type": {"type": ["integer", "null", "array"]},
    "unevaluatedItems": {"type": "array", "prefixItems": [{"type": "string"}], "unevaluatedItems": False},
    "unevaluatedProperties": {"type": "object", "properties": {"foo": {}}, "unevaluatedProperties": False},
    "uniqueItems": {"type": "array", "uniqueItems": True},
    **{
        f"format: {name}": {"type": "string", "format": name}
        for name in ("date", "time", "email", "uuid", "uri", "idn-email")
    },
}  # fmt: skip
POLICIES = [
    Policy(name="ends", rules=(RegexRule(id="r", regex=r"^[av1]|\d\d$"), StringRule(id="s", strings=('"}', "11")))),
    Policy(name="numbers", rules=(RegexRule(id="r", regex=r"\.\d*5"), StringRule(id="s", strings=("foo", " ")))),
    Policy(name="signs", rules=(RegexRule(id="r", regex=r"\\n|(?<!\")[ab]$"), StringRule(id="s", strings=(":", "[]")))),
]  # fmt: skip
REFUSED = {
    "contains", "dependentRequired", "dependentSchemas", "if", "maxContains", "multipleOf, small", "not",
    "oneOf, overlapping", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
    "format: idn-email",
}  # fmt: skip
CASES = [(kind, policy) for policy in POLICIES for kind in KINDS if kind not in REFUSED]


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_what_is_not_enforced_is_refused(kind: str) -> None:
    with pytest.raises(ShapeError):
        bound_to(KINDS[kind], NOTHING, vocabulary("byte-level"))


@pytest.mark.parametrize(("kind", "policy"), rest_slow(CASES, 12), ids=str)
def test_texts_of_every_kind(kind: str, policy: Policy) -> None:
    schema, known = KINDS[kind], vocabulary("byte-level")
    bound_to(schema, NOTHING, known)
    try:
        bound = bound_to(schema, policy, known)
    except ShapeError:
        return
    for seed in range(4):
        session = bound.session()
        if session.mask(39).all():
            continue
        taste = Taste(random.Random(seed), known, tempting(schema, policy))
        written = write(Joint(session, 40), known, taste, most=40)
        assert written.end == "ended", (written.end, written.text)
        assert faults(schema, policy, written.text) == [], written.text
