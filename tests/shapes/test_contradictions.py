"""Schemas of which a policy leaves nothing, or less: refused, or pruned, and never wrongly."""

from __future__ import annotations

import copy
import gc
import json
import weakref
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from nco_guard import Guard
from nco_guard.compiler import compile_policy
from nco_guard.errors import ContradictionError, ShapeError
from nco_guard.guards import seeing_through_json
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.shapes.allowed import hard_rules
from nco_guard.shapes.contradictions import Contradiction, Pruned, prune
from tests.shapes.judge import Schema, forbidden_in, validates
from tests.shapes.strategies import collisions
from tests.shapes.witness import texts, values, writings

POLICY = Policy(
    name="p",
    rules=(
        StringRule(id="cats", strings=("cat",), case="fold"),
        RegexRule(id="nine", regex=r"\d{9}"),
        RegexRule(id="yes", regex=r"\btrue\b"),
    ),
)
CAT, DOG = {"const": "cat"}, {"const": "dog"}
SSN = {"type": "string", "pattern": "^[0-9]{9}$"}


def obj(required: tuple[str, ...] = (), **properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": [*required]}


@pytest.mark.parametrize(
    ("schema", "place", "rules"),
    [
        (CAT, "#", ("cats",)),
        ({"enum": ["cat", "Cats", 123456789]}, "#", ("cats", "nine")),
        ({"const": ["dog", {"a": "cat"}]}, "#", ("cats",)),
        ({"const": {"cat": 1}}, "#", ("cats",)),
        ({"const": True}, "#", ("yes",)),
        (SSN, "#", ("nine",)),
        ({"type": "string", "pattern": "^[0-9]+$", "minLength": 9}, "#", ("nine",)),
        ({"type": "integer", "minimum": 123456789, "maximum": 123456999}, "#", ("nine",)),
        ({"type": "integer", "exclusiveMinimum": 123456788.5, "exclusiveMaximum": 123456790}, "#", ("nine",)),
        (obj(("a",), a=CAT), "#/properties/a", ("cats",)),
        (obj(("cat",), cat=DOG), "#/properties/<0>", ("cats",)),
        ({"type": "object", "required": ["the cat"]}, "#/required/0", ("cats",)),
        (
            {"type": "object", "required": ["a"], "additionalProperties": CAT},
            "#/additionalProperties",
            ("cats",),
        ),
        (
            obj(("a",), a=obj(("b",), b=obj(("c",), c=SSN))),
            "#/properties/a/properties/b/properties/c",
            ("nine",),
        ),
        ({"type": "array", "items": CAT, "minItems": 1}, "#/items", ("cats",)),
        ({"type": "array", "prefixItems": [DOG, CAT], "minItems": 2}, "#/prefixItems/1", ("cats",)),
        ({"type": "array", "prefixItems": [DOG], "items": CAT, "minItems": 2}, "#/items", ("cats",)),
        ({"anyOf": [CAT, SSN]}, "#/anyOf/0", ("cats", "nine")),
        ({"oneOf": [CAT]}, "#/oneOf/0", ("cats",)),
        ({"allOf": [{"type": "string"}, CAT]}, "#/allOf/1", ("cats",)),
        (
            {"type": ["string", "integer"], "pattern": "cat", "minimum": 123456789, "maximum": 123456790},
            "#",
            ("cats", "nine"),
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": obj(("b",), b={"$ref": "#/$defs/c"}), "c": CAT}},
            "#/$defs/c",
            ("cats",),
        ),
        (
            {"$ref": "#/$defs/t", "$defs": {"t": obj(("v",), v=CAT, next={"$ref": "#/$defs/t"})}},
            "#/$defs/t/properties/v",
            ("cats",),
        ),
        (obj(("a/b~c",), **{"a/b~c": CAT}), "#/properties/a~1b~0c", ("cats",)),
        (
            {**obj(("a",), a={"$ref": "#/definitions/x"}), "definitions": {"x": CAT}},
            "#/definitions/x",
            ("cats",),
        ),
    ],
)
def test_what_must_be_there_and_cannot_is_refused(schema: Schema, place: str, rules: tuple[str, ...]) -> None:
    before = copy.deepcopy(schema)
    with pytest.raises(ContradictionError) as caught:
        prune(schema, Guard(POLICY).verifier.compiled)
    assert (caught.value.place, caught.value.rule_ids) == (place, rules)
    assert isinstance(caught.value, ShapeError)
    assert str(caught.value).startswith(place)
    assert "cat" not in str(caught.value).replace("'cats'", "")
    assert not [*texts(schema, POLICY)]
    assert schema == before


@pytest.mark.parametrize(
    ("schema", "pruned", "removed"),
    [
        (
            {"enum": ["cat", "dog", 5, True]},
            {"enum": ["dog", 5]},
            ["#/enum/0 value cats", "#/enum/3 value yes"],
        ),
        (obj(("b",), a=CAT, b=DOG), obj(("b",), a=False, b=DOG), ["#/properties/a property cats"]),
        (
            {**obj(("b",), a=CAT, b=DOG), "additionalProperties": False},
            {**obj(("b",), b=DOG), "additionalProperties": False},
            ["#/properties/a property cats"],
        ),
        (obj(a=DOG, cat=DOG), obj(a=DOG, cat=False), ["#/properties/<1> property cats"]),
        (
            {"type": "object", "additionalProperties": SSN},
            {"type": "object", "additionalProperties": False},
            ["#/additionalProperties property nine"],
        ),
        ({"type": "array", "items": CAT}, {"type": "array", "maxItems": 0}, ["#/items items cats"]),
        (
            {"type": "array", "prefixItems": [{"enum": ["cat", 1]}, CAT, DOG], "maxItems": 9},
            {"type": "array", "prefixItems": [{"enum": [1]}], "maxItems": 1},
            ["#/prefixItems/0/enum/0 value cats", "#/prefixItems/1 items cats"],
        ),
        (
            {"type": "array", "prefixItems": [DOG], "items": CAT, "maxItems": 0},
            {"type": "array", "prefixItems": [DOG], "maxItems": 0},
            ["#/items items cats"],
        ),
        ({"anyOf": [CAT, DOG, SSN]}, {"anyOf": [DOG]}, ["#/anyOf/0 branch cats", "#/anyOf/2 branch nine"]),
        ({"oneOf": [DOG, CAT]}, {"oneOf": [DOG]}, ["#/oneOf/1 branch cats"]),
        (
            {"type": ["string", "null"], "pattern": "cat"},
            {"type": "null", "pattern": "cat"},
            ["#/type/0 type cats"],
        ),
        (
            {"allOf": [obj(a=CAT), {"enum": ["cat", {}]}]},
            {"allOf": [obj(a=False), {"enum": [{}]}]},
            ["#/allOf/0/properties/a property cats", "#/allOf/1/enum/0 value cats"],
        ),
        (
            {"$ref": "#/$defs/t", "$defs": {"t": obj(v=CAT, next={"$ref": "#/$defs/t"}), "c": CAT}},
            {"$ref": "#/$defs/t", "$defs": {"t": obj(v=False, next={"$ref": "#/$defs/t"}), "c": CAT}},
            ["#/$defs/t/properties/v property cats"],
        ),
        (
            {**obj(a={"$ref": "#/$defs/c"}), "$defs": {"c": CAT}},
            {**obj(a=False), "$defs": {"c": CAT}},
            ["#/properties/a property cats"],
        ),
        # An outer place goes with all that is in it, and is reported once.
        (obj(a=obj(("b",), b=CAT, c=CAT)), obj(a=False), ["#/properties/a property cats"]),
    ],
)
def test_what_may_be_left_out_is_taken_out(schema: Schema, pruned: Schema, removed: list[str]) -> None:
    found, report = prune(schema, POLICY)
    assert found == pruned
    assert all(isinstance(each, Contradiction) for each in report.removed)
    assert [f"{each.place} {each.kind} {','.join(each.rule_ids)}" for each in report.removed] == removed
    assert report.undecided == 0
    assert prune(found, POLICY) == (found, Pruned())


@pytest.mark.parametrize(
    "schema",
    [
        True,
        False,
        {},
        {"type": "string"},
        {"type": "string", "minLength": 40},
        {"pattern": "cat"},  # a number has no pattern
        {"properties": {"a": DOG}, "required": ["a"]},
        {"type": "string", "pattern": "^[0-9]{8}$"},
        {"type": "string", "format": "email"},
        {"type": "string", "format": "no such format"},
        {"type": "integer", "minimum": 0, "maximum": 200},
        {"type": "integer", "minimum": 123456789},
        {"type": "integer", "minimum": 3, "maximum": 2},  # nothing fits, and no rule has a part in it
        {"type": "string", "pattern": "^a$", "format": "date"},
        {"type": "boolean"},
        {"$ref": "#/$defs/t", "$defs": {"t": obj(("next",), next={"$ref": "#/$defs/t"})}},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/nowhere"},
        {"not": CAT},
        {"if": CAT, "then": False},
        {"enum": []},
        {"type": "array", "contains": CAT},
    ],
)
def test_what_the_policy_leaves_is_left_as_it_is(schema: Schema) -> None:
    assert prune(schema, POLICY) == (schema, Pruned())


def test_places_that_others_refer_to_stay() -> None:
    inner = {"type": "object", "properties": {"deep": DOG}, "required": ["deep", "bad"], "x": 1}
    inner["properties"] = {"deep": DOG, "bad": CAT}
    schema = obj(a=inner, b={"$ref": "#/properties/a/properties/deep"})
    found, report = prune(schema, POLICY)
    assert found["properties"]["a"]["properties"]["deep"] == DOG
    assert (report.removed, report.undecided) == ((), 1)
    listed = {"anyOf": [CAT, DOG, {"$ref": "#/anyOf/1"}]}
    assert prune(listed, POLICY) == (listed, Pruned(undecided=1))


def test_beside_an_old_reference_nothing_counts() -> None:
    schema = {"$ref": "#/definitions/d", "const": "cat", "definitions": {"d": DOG}}
    with pytest.raises(ContradictionError):
        prune(schema, POLICY)
    old = {**schema, "$schema": "http://json-schema.org/draft-07/schema#"}
    assert prune(old, POLICY) == (old, Pruned())


def test_places_without_an_answer_are_counted_and_left() -> None:
    schema = obj(
        ("a", "b"), a={"type": "string", "pattern": r"^(x)\1$"}, b={"type": "string", "pattern": "("}
    )
    found, report = prune(schema, POLICY)
    assert (found, report.removed) == (schema, ())
    assert report.undecided >= 1
    deep: Any = CAT
    for _ in range(100):
        deep = obj(("a",), a=deep)
    assert prune(deep, POLICY) == (deep, Pruned(undecided=1))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(collision=collisions())
def test_nothing_is_lost_but_what_is_forbidden(collision: tuple[Schema, Policy]) -> None:
    schema, policy = collision
    # As it is enforced on JSON: on what is written, and on what that resolves to.
    enforced = seeing_through_json(Guard(policy)).policy
    try:
        found, report = prune(schema, policy)
    except ContradictionError as error:
        refused = error.rule_ids
    else:
        refused = ()
    if refused:
        assert not [*texts(schema, enforced)]  # none keeps both
        assert set(refused) <= {rule.id for rule in policy.rules if rule.mode == "hard"}
        return
    for text in texts(schema, enforced):
        assert validates(found, text)  # as before
    for value in values(found):
        for text in writings(value):
            # Nothing new: what left one of two branches of `oneOf` is forbidden.
            assert validates(schema, text) or forbidden_in(enforced, text)
    assert (found == schema) == (not report.removed)
    again, further = prune(found, policy)
    assert again == found  # nothing more is to be taken out
    assert not further.removed
    json.dumps(found)


def test_a_policy_is_asked_once_for_places_that_are_alike() -> None:
    schema = obj(**{f"field{n}": SSN for n in range(40)})
    _, report = prune(schema, POLICY)
    assert len(report.removed) == 40
    rules = hard_rules(Guard(POLICY).verifier.compiled)
    assert rules.of_strings("^[0-9]{9}$") is rules.of_strings("^[0-9]{9}$")


def test_what_is_known_of_a_policy_goes_with_it() -> None:
    compiled = compile_policy(POLICY)
    assert hard_rules(compiled) is hard_rules(compiled)
    gone = weakref.ref(hard_rules(compiled))
    del compiled
    gc.collect()
    assert gone() is None


def test_rules_are_named_as_they_are_in_the_policy() -> None:
    guard = Guard(Policy(name="p", rules=[StringRule(id="words", strings=("cat",))]))
    with pytest.raises(ContradictionError) as caught:
        guard.with_shape({"type": "object", "properties": {"pet": {"const": "cat"}}, "required": ["pet"]})
    assert caught.value.rule_ids == ("words",)
    assert caught.value.place == "#/properties/pet"


def test_keywords_of_a_place_are_said_whatever_is_forbidden() -> None:
    letters = Policy(name="p", rules=[RegexRule(id="letters", regex="[a-z]|[0-9]")])
    with pytest.raises(ContradictionError) as caught:
        prune({"type": "object", "properties": {"X": {"enum": ["a"]}, "y": {}}, "required": ["X"]}, letters)
    assert caught.value.place == "#/properties/X"
    with pytest.raises(ContradictionError) as caught:
        prune({"type": "object", "properties": {"X": {}, "y": {}}, "required": ["y"]}, letters)
    assert caught.value.place == "#/properties/<1>"
