"""Each keyword of a schema is enforced, or an annotation, or refused with its place and what to write instead."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import json
import math
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, Field, Json

from nco_guard import Guard, Policy, Shape, StringRule, demo
from nco_guard.errors import ArgumentError, NCOGuardError, ShapeError
from nco_guard.replies import shipped_formats
from nco_guard.shapes.branches import branches_of, objects_of
from nco_guard.shapes.keywords import ANNOTATIONS, REFUSED
from nco_guard.shapes.library import GrammarReader, tokenizer_of
from nco_guard.shapes.places import JsonPlaces


def reads(shape: Shape, text: str) -> bool:
    matcher = GrammarReader(shape.grammar, tokenizer_of(None))
    return matcher.leads(matcher.at(b""), text.encode(), ends=True)


def inside(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}}


LEFT_OUT: list[tuple[dict[str, Any], str]] = [
    ({"type": "integer", "divisibleBy": 3}, "multipleOf"),
    ({"disallow": "string"}, "type"),
    ({"extends": {"type": "string"}}, "allOf"),
    ({"type": "string", "required": True}, "list the names"),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, "bound itself"),
    ({"type": "integer", "maximum": 3, "exclusiveMaximum": False}, "bound itself"),
    ({"type": "string", "contentEncoding": "base64"}, "pattern"),
    ({"type": "string", "contentMediaType": "application/json"}, "schema"),
    ({"type": "string", "contentSchema": {"type": "integer"}}, "in place of"),
    ({"type": "object", "dependencies": {"a": ["b"]}}, "anyOf"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "anyOf"),
    ({"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}}, "anyOf"),
    ({"not": {"type": "string"}}, "write what there may be"),
    ({"if": {"type": "string"}, "then": {"minLength": 3}}, "anyOf"),
    ({"type": "array", "uniqueItems": True}, "prefixItems"),
    ({"type": "array", "contains": {"const": 1}}, "prefixItems"),
    ({"type": "object", "propertyNames": {"maxLength": 3}}, "patternProperties"),
    ({"type": "object", "unevaluatedProperties": False}, "additionalProperties"),
    ({"type": "array", "unevaluatedItems": False}, "items"),
    ({"$dynamicRef": "#x"}, "$ref"),
    ({"type": "string", "minlength": 3}, "minLength"),
    ({"type": "string", "min_length": 3}, "minLength"),
    ({"type": "string", "maxLenght": 3}, "maxLength"),
    ({"type": "string", "patern": "a"}, "pattern"),
    ({"type": "string", "fromat": "date"}, "format"),
    ({"type": "object", "requried": ["a"]}, "required"),
    ({"type": "object", "property": {"a": {}}}, "properties"),
    ({"type": "object", "additionalproperties": False}, "additionalProperties"),
    ({"tpye": "string"}, "type"),
    ({"Type": "string"}, "type"),
    ({"anyof": [{"type": "string"}]}, "anyOf"),
    ({"any_of": [{"type": "string"}]}, "anyOf"),
    ({"ref": "#/$defs/a"}, "$ref"),
    ({"enums": [1]}, "enum"),
    ({"type": "array", "item": {"type": "string"}}, "items"),
    ({"type": "integer", "exclusiveMin": 3, "excluseMinimum": 3}, "exclusiveMinimum"),
    ({"type": "integer", "multipleof": 3}, "multipleOf"),
]


@pytest.mark.parametrize(("schema", "mend"), LEFT_OUT, ids=lambda each: str(each)[:60])
def test_what_is_not_enforced_is_refused_with_its_place(schema: dict[str, Any], mend: str) -> None:
    with pytest.raises(ShapeError) as caught:
        Shape.json(inside(schema))
    assert caught.value.place == "#/properties/x"
    assert mend in caught.value.message
    assert any(caught.value.message.startswith(f"{name}: ") for name in schema)


NOTES = {
    "title": "t", "description": "d", "default": object(), "examples": [1], "example": 1, "deprecated": True,
    "readOnly": True, "writeOnly": False, "$comment": "c", "x-order": 3, "discriminator": {"propertyName": "kind"},
    "nullable": False, "markdownDescription": "m", "enumNames": ["a"], "propertyOrder": 3, "cost": 3, "note": "n",
    "unit": "kg", "then": {"minLength": 9}, "minContains": 3, "uniqueItems": False,
    "$schema": "http://json-schema.org/draft-07/schema#", "options": {}, "deprecationMessage": "x", "named": 1,
}  # fmt: skip


def test_annotations_ask_for_nothing() -> None:
    plain, noted = {"type": "string", "maxLength": 2}, {"type": "string", "maxLength": 2, **NOTES}
    assert Shape.json(noted) == Shape.json(plain)
    assert Shape.json(inside(noted)) == Shape.json(inside(plain))
    assert not ANNOTATIONS & REFUSED.keys()


@pytest.mark.parametrize("name", [*sorted(ANNOTATIONS), "x-order"])
def test_what_reads_schemas_keyword_by_keyword_sees_no_annotation(name: str) -> None:
    noted = {"type": "string", name: {}}
    assert branches_of(noted, noted) == branches_of({"type": "string"}, {})
    assert [nodes for _, _, nodes in objects_of({"type": "object", name: {}})] == [({"type": "object"},)]
    places = JsonPlaces({"anyOf": [noted, {"type": "null"}], name: {}})
    assert places.feed(places.start, b'"ab') == places.feed(places.start, b'"cd')


@pytest.mark.parametrize("name", ["const", "uniqueItems", "madeUp"])
def test_what_is_no_annotation_is_seen(name: str) -> None:
    asked = {"type": "string", name: {}}
    assert branches_of(asked, asked) != branches_of({"type": "string"}, {})
    places = JsonPlaces(asked)
    assert places.feed(places.start, b'"ab') != places.feed(places.start, b'"cd')


def test_old_spellings_that_say_the_same_are_read() -> None:
    new = {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string"}],
        "items": {"type": "null"},
    }
    old = {
        "type": "array",
        "items": [{"type": "integer"}, {"type": "string"}],
        "additionalItems": {"type": "null"},
    }
    assert Shape.json(old).schema == Shape.json(new).schema
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", **new}
    assert Shape.json(draft) == Shape.json(new)
    defined = {"definitions": {"n": {"type": "integer"}}, "$ref": "#/definitions/n"}
    assert reads(Shape.json(defined), "3")
    assert not reads(Shape.json(defined), '"3"')


REFERRED: list[tuple[dict[str, Any], str, str]] = [
    ({"$defs": {"a b": {"type": "null"}}, "$ref": "#/$defs/a b"}, "null", "3"),
    ({"$defs": {"a b": {"type": "null"}}, "$ref": "#/$defs/a%20b"}, "null", "3"),
    ({"$defs": {"a/b~": {"type": "null"}}, "$ref": "#/$defs/a~1b~0"}, "null", "3"),
    ({"$defs": {"n": {"$anchor": "here", "type": "null"}}, "$ref": "#here"}, "null", "3"),
    ({"$id": "http://x/y", "$defs": {"n": {"type": "null"}}, "$ref": "http://x/y#/$defs/n"}, "null", "3"),
    ({"components": {"schemas": {"N": {"type": "null"}}}, "$ref": "#/components/schemas/N"}, "null", "3"),
    ({"components": {"N": {"type": ["array", "null"], "items": {"$ref": "#/components/N"}}},
      "$ref": "#/components/N"}, "[[null], null]", "[3]"),
    ({"type": "array", "items": [{"type": "null"}, {"$ref": "#/items/0"}]}, "[null, null]", "[null, 3]"),
    ({"properties": {"a": {"type": "null"}, "b": {"$ref": "#/properties/a"}}}, '{"b": null}', '{"b": 3}'),
    ({"properties": {"a": {"type": "null"}, "b": {"$ref": "#"}}, "type": "object"}, '{"b": {"a": null}}', '{"b": 3}'),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), REFERRED)
def test_references_within_a_schema_are_followed(schema: dict[str, Any], good: str, bad: str) -> None:
    shape = Shape.json(schema)
    assert reads(shape, good)
    assert not reads(shape, bad)
    places = shape.places()
    assert places.feed(places.start, good.encode()) is not None


def test_what_is_not_reached_is_not_looked_at() -> None:
    schema = {"$defs": {"n": {"not": {}}, "m": {"type": "null"}}, "$ref": "#/$defs/m"}
    assert reads(Shape.json(schema), "null")


# -- what is no schema -------------------------------------------------------------------------------------------------


class Person(BaseModel):
    name: str


class Held(BaseModel):
    call: Callable[[int], int]


class Packed(BaseModel):
    inner: Json[list[int]] = Field(default_factory=list)


@dataclasses.dataclass
class Data:
    name: str


class Typed(TypedDict):
    name: str


class Colour(enum.Enum):
    RED = "red"


def _circle() -> Any:
    found: dict[str, Any] = {"type": "object", "properties": {}}
    found["properties"]["self"] = found
    return found


def _round_list() -> Any:
    found: list[Any] = []
    found.append(found)
    return {"enum": [found]}


HALF = "\ud800"
ODD: list[tuple[Any, str | None]] = [
    (b"{}", None), ({1, 2}, None), ([], None), ([{"type": "string"}], None), (3, None), (1.5, None), (object(), None),
    ("string", None), ('{"type": "string"}', None), (Person(name="a"), None), (Data, None), (Data("a"), None),
    (Typed, None), (list[int], None), (dict[str, int], None), (int, None), (Colour, None), (lambda: 1, None),
    (Held, None), (BaseModel, None),
    ({"type": "text"}, "#"), ({"type": []}, "#"), ({"type": 3}, "#"), ({"type": ["string", 3]}, "#"),
    ({"type": None}, "#"),
    ({"type": "any"}, "#"), ({3: 4}, "#"), (inside({3: 4}), "#/properties/x"),
    ({"properties": {3: {}}}, "#/properties"),
    ({HALF: 1}, "#"), ({"properties": {HALF: {}}}, "#/properties"), ({"const": HALF}, "#/const"),
    ({"pattern": HALF}, "#"),
    ({"enum": []}, "#"), ({"enum": "abc"}, "#"), ({"enum": {"a": 1}}, "#"), ({"enum": [{1, 2}]}, "#/enum/0"),
    ({"const": b"a"}, "#/const"), ({"const": math.nan}, "#/const"), ({"const": math.inf}, "#/const"),
    ({"enum": [1, {"a": [math.nan]}]}, "#/enum/1/a/0"), ({"const": Decimal(1)}, "#/const"),
    ({"const": Colour.RED}, "#/const"),
    ({"const": {3: 4}}, "#/const"), ({"const": 10**5000}, "#/const"), ({"minimum": math.nan}, "#"),
    ({"maximum": "3"}, "#"),
    ({"minimum": True}, "#"), ({"minimum": None}, "#"), ({"multipleOf": 0}, "#"), ({"multipleOf": -1}, "#"),
    ({"minLength": -1}, "#"), ({"minLength": 1.5}, "#"), ({"maxItems": "3"}, "#"), ({"minProperties": 10**30}, "#"),
    ({"maxLength": True}, "#"), ({"properties": []}, "#"), ({"properties": {"x": []}}, "#/properties/x"),
    ({"properties": {"x": None}}, "#/properties/x"), ({"properties": {"x": "string"}}, "#/properties/x"),
    ({"items": 3}, "#/items"), ({"anyOf": []}, "#"), ({"anyOf": {}}, "#"), ({"anyOf": [3]}, "#/anyOf/0"),
    ({"required": "a"}, "#"), ({"required": [3]}, "#"), ({"required": {"a"}}, "#"), ({"pattern": 3}, "#"),
    ({"pattern": b"a"}, "#"), ({"type": "string", "pattern": "("}, "#"), ({"format": 3}, "#"),
    ({"additionalProperties": 3}, "#/additionalProperties"), ({"$ref": 3}, "#"), ({"$ref": "#/nowhere"}, "#"),
    (inside({"$ref": "#/$defs/n"}), "#/properties/x"), ({"$ref": "http://x/y.json"}, "#"), ({"$ref": "#anchor"}, "#"),
    ({"$ref": ""}, "#"), ({"$ref": "#"}, "#"), ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
     "$ref": "#/$defs/a"}, "#"), (_circle(), "#/properties/self"), (_round_list(), "#/enum/0/0"),
     (Packed, "#/properties/inner"),
    ({"patternProperties": {"(": {}}}, "#"), ({"patternProperties": {r"\d": {}, "[0-9]": {}}}, "#"), (False, "#"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ODD)))
def test_what_is_no_schema_is_a_typed_error_with_its_place(number: int) -> None:
    given, place = ODD[number]
    wanted = ArgumentError if place is None and given not in (Held, BaseModel) else ShapeError
    with pytest.raises(wanted) as caught:
        Shape.json(given)
    assert getattr(caught.value, "place", None) == place
    assert str(caught.value).isprintable()


ACCEPTED: list[Any] = [
    True, {}, {"type": ("string", "null")}, {"enum": (1, 2)}, MappingProxyType({"type": "string"}), {"minLength": 2.0},
    {"required": []}, {"const": (1, "a")}, {"type": "string", "const": ""}, {"properties": {"": {}}}, {"x-": object()},
    {"$defs": 3}, {"examples": {1, 2}}, Person, {"if": {}}, {"properties": {"a": True, "b": False}}, {"items": True},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ACCEPTED)))
def test_what_is_a_schema_is_taken_and_left_as_it_is(number: int) -> None:
    given = ACCEPTED[number]
    before = copy.copy(dict(given)) if isinstance(given, MappingProxyType) else copy.copy(given)
    assert Shape.json(given).kind == "json"
    assert before == given


LARGE = Guard(Policy(name="p", rules=[StringRule(id="s", strings=("zzz",))]))
FEW: list[Any] = [b"{}", {1, 2}, [], 3, Person(name="a"), Data, list[int], {"type": "text"}, {3: 4},
{"const": math.nan},
                  _circle(), {"$ref": "#/nowhere"}, {"requried": ["a"]}, ""]  # fmt: skip


def test_every_way_in_refuses_alike() -> None:
    model, tokenizer = demo.load()
    form = shipped_formats()["hermes"]
    ways: list[Callable[[Any], Any]] = [
        LARGE.with_shape,
        lambda given: LARGE.generate(model, tokenizer, "a", shape=given, max_new_tokens=2),
        lambda given: list(LARGE.stream(model, tokenizer, "a", shape=given, max_new_tokens=2)),
        lambda given: LARGE.logits_processor(tokenizer, shape=given),
        lambda given: Shape.tools([{"name": "find", "parameters": given or 3}], form),
    ]
    for given in FEW:
        for way in ways:
            with pytest.raises(NCOGuardError) as caught:
                way(given)
            assert isinstance(caught.value, ShapeError | ArgumentError), (given, caught.value)


@pytest.mark.parametrize("given", [None, 3, b"a", ["a"], {"a": 1}, Person, math.nan])
def test_patterns_and_grammars_are_text(given: Any) -> None:
    for make in (Shape.regex, Shape.lark):
        with pytest.raises(ArgumentError, match="as text"):
            make(given)


@pytest.mark.parametrize("given", [HALF, "a" + HALF, "\0", "(", "a" * 30_000, "start: " + HALF])
def test_patterns_and_grammars_that_are_none_are_typed_errors(given: str) -> None:
    for make in (Shape.regex, Shape.lark):
        with contextlib.suppress(ShapeError, ArgumentError):
            make(given)


@pytest.mark.parametrize("given", ["some", 3, None, [], {}, True])
def test_whitespace_is_one_of_three(given: Any) -> None:
    with pytest.raises(ArgumentError, match="whitespace"):
        Shape.json({}, whitespace=given)


TOOLS: list[Any] = [
    None, 3, "find", b"find", [], {}, [3], [None], [{}], [{"name": 3}], [{"name": ""}], [{"name": HALF}],
    [{"name": "a"}, {"name": "a"}], [{"name": "a", "parameters": 3}], [{"name": "a", "parameters": [1]}],
    [{"name": "a", "parameters": {"properties": {"x": {"not": {}}}}}], {1, 2}, [Person],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(TOOLS)))
def test_tools_that_are_none_are_typed_errors(number: int) -> None:
    with pytest.raises((ShapeError, ArgumentError)) as caught:
        Shape.tools(TOOLS[number], shipped_formats()["hermes"])
    assert "tool" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"choice": 3}, {"choice": None}, {"choice": "b"}, {"choice": ["a"]}, {"begun": 3}, {"begun": None},
     {"parallel": "no"}, {"reasoning": 3}, {"form": None}, {"form": "hermes"}, {"form": 3}],
)  # fmt: skip
def test_options_of_tools_are_typed_errors(options: dict[str, Any]) -> None:
    given = {"form": shipped_formats()["hermes"], **options}
    with pytest.raises(ArgumentError, match=next(iter(options))):
        Shape.tools([{"name": "a"}], **given)


@pytest.mark.parametrize("given", [None, 3, b"a", HALF, ["a"]])
def test_what_was_begun_is_text(given: Any) -> None:
    with pytest.raises((ShapeError, ArgumentError), match="begun"):
        Shape.json({"type": "string"}).behind(given)


def test_a_given_schema_may_be_long() -> None:
    schema = {"properties": {f"k{n}": {"type": "string", "description": "d" * 100} for n in range(400)}}
    assert json.dumps(Shape.json(schema).schema["properties"]["k399"]) == '{"type": "string"}'


@pytest.mark.parametrize("rest", [{}, {"patternProperties": {"^a": {"type": "integer"}}}], ids=str)
def test_what_only_required_names_comes_with_any_value(rest: dict[str, Any]) -> None:
    """An object that names its keys has no others: those that it requires are named."""
    shape = Shape.json({"type": "object", "properties": {"b": {"type": "null"}}, "required": ["a"], **rest})
    assert reads(shape, '{"a":1}')
    assert reads(shape, '{"b":null,"a":1}')
    assert reads(shape, '{"a":[]}') == (not rest)
    for text in ("{}", '{"b":null}', '{"a":1,"c":1}'):
        assert not reads(shape, text)


def test_more_keys_than_are_named_are_others() -> None:
    named = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    assert reads(Shape.json({**named, "minProperties": 2}), '{"a":null,"c":1}')
    assert not reads(Shape.json({**named, "minProperties": 2}), '{"a":null}')
    assert not reads(Shape.json({**named, "minProperties": 1}), '{"a":null,"c":1}')
    both = Shape.json({**named, "required": ["a", "b"], "minProperties": 2})
    assert reads(both, '{"a":null,"b":1}')
    assert not reads(both, '{"a":null,"b":1,"c":2}')


def test_cases_that_may_hold_at_once_are_refused_in_words_of_our_own() -> None:
    cases = {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 2}]}
    with pytest.raises(ShapeError, match=r"^#/properties/x: oneOf: it is not seen .*; write anyOf") as raised:
        Shape.json(inside(cases))
    assert "coerce" not in str(raised.value)


def test_an_impossible_part_is_named_where_it_is_defined() -> None:
    none = {"allOf": [{"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": "^ab"}]}
    schema = {"$defs": {"one": {"anyOf": [none]}}, "type": "array", "items": {"$ref": "#/$defs/one"}}
    with pytest.raises(ShapeError) as caught:
        Shape.json(schema)
    assert caught.value.place == "#/$defs/one/anyOf/0"
    assert caught.value.message == (
        "Unsatisfiable schema: no string is all that is asked of it (pattern, format, length)"
    )
