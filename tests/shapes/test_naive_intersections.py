"""What is drawn is worth drawing, and two masks laid over each other are not enough.

Else what is tested by these schemas and policies would prove nothing.
"""

from __future__ import annotations

import collections
import itertools
import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nco_guard.compiler import compile_policy
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.session import BoundGuard
from tests.properties.harness import TooSlow, limited
from tests.shapes import strategies, witness
from tests.shapes.driver import Both, Taste, tempting, vocabulary, write
from tests.shapes.formats import FORMATS
from tests.shapes.judge import MATCHES, faults, forbidden_in, validates
from tests.shapes.libraries import RefusedSchema, library
from tests.shapes.strategies import same_examples

KINDS = {
    "type", "type: several", "enum", "const", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "items", "prefixItems", "minItems", "maxItems", "properties",
    "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties", "anyOf", "oneOf",
    "allOf", "$ref", "true", "false",
    *(f"type: {name}" for name in strategies.TYPES),
    *(f"format: {name}" for name in strategies.FORMATS),
}  # fmt: skip


def test_schemas_of_every_kind_are_drawn() -> None:
    count: collections.Counter[str] = collections.Counter()
    every = (strategies.schemas, 300), (strategies.strings(), 200), (strategies.numeric(), 100)
    for schema in itertools.chain.from_iterable(same_examples(*each) for each in every):
        Draft202012Validator.check_schema(schema)
        count.update(strategies.kinds(schema))
        assert len(json.dumps(schema)) < 8000
    assert {kind for kind in KINDS if not count[kind]} == set()


def test_most_schemas_can_be_met_and_witnesses_meet_them() -> None:
    schemas, met = same_examples(strategies.schemas, 120), 0
    for schema in schemas:
        values = witness.values(schema, 6)
        met += bool(values)
        for value in values:
            for text in witness.writings(value):
                assert json.loads(text) == value
            assert Draft202012Validator(schema, format_checker=FORMATS).is_valid(value)
    assert met > 0.75 * len(schemas)


def test_a_witness_is_found_where_one_is_known() -> None:
    tree = {"type": "object", "properties": {"v": {"const": 3}, "n": {"$ref": "#"}}, "required": ["v"]}
    for schema in (
        tree,
        {"allOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]}, {"required": ["b"]}]},
        {
            "type": "array",
            "prefixItems": [{"const": 1}, {"format": "uuid", "type": "string"}],
            "items": False,
            "minItems": 2,
        },
        {"type": "object", "minProperties": 2, "additionalProperties": {"enum": [7]}},
        {"type": "number", "exclusiveMinimum": 41, "multipleOf": 0.5},
        *({"type": "string", "format": name} for name in strategies.FORMATS),
        *({"type": "string", "pattern": pattern} for pattern in strategies.PATTERNS),
    ):
        assert witness.values(schema), schema
    for schema in (
        False,
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"allOf": [{"const": 1}, {"const": 2}]},
    ):
        assert not witness.values(schema)


def test_policies_forbid_some_of_what_schemas_want() -> None:
    """Neither nothing nor all of it."""
    count: collections.Counter[str] = collections.Counter()
    for schema, policy in same_examples(strategies.collisions(), 120):
        texts = [witness.writings(value)[0] for value in witness.values(schema, 8)]
        try:
            with limited(5):
                bad = [bool(forbidden_in(policy, text)) for text in texts]
        except TooSlow:
            continue
        if bad:
            count["all" if all(bad) else "some" if any(bad) else "none"] += 1
    assert min(count[kind] for kind in ("all", "some", "none")) >= 0.1 * count.total()


def strings(*some: str) -> Rule:
    return StringRule(id="s", strings=some)


def closed(**properties: Any) -> Any:
    return {"type": "object", "properties": properties, "required": ["a"], "additionalProperties": False}


AVOIDABLE: list[tuple[Any, Rule]] = [
    ({"enum": ["a12", "a3"]}, strings("12")),
    ({"type": "string"}, RegexRule(id="r", regex=r"\\u[0-9a-fA-F]")),
    ({"type": "array", "items": {"enum": [120, 13]}}, strings("20")),
    (closed(a={"type": "boolean"}, b={"const": "ab"}), strings("ab")),
    (
        closed(a={"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^[0-9]{3}$"}]}),
        RegexRule(id="r", regex=r"\d{3}"),
    ),
    (closed(a={"type": "integer", "minimum": 10, "maximum": 30}), RegexRule(id="r", regex=r"[12]\d")),
]
"""What the shape lets begin and the policy lets nobody end, beside what both let end."""


class Tally:
    """Texts of one library, with and without a guard's mask over its own."""

    def __init__(self, name: str) -> None:
        pytest.importorskip(name)
        self.name = name
        self.count: collections.Counter[str] = collections.Counter()

    def run(self, place: int, schema: Any, policy: Policy) -> None:
        known = vocabulary(("byte-level", "byte-fallback")[place % 2])
        shapes = library(self.name, known)
        try:
            alone = shapes.writer(schema)
        except RefusedSchema:
            self.count["refused"] += 1
            return
        rng = random.Random(place)
        wanted = tempting(schema, policy)
        session = BoundGuard(compile_policy(policy), known).session()
        for guarded in (False, True):
            writer: Any = Both(shapes.writer(schema), session) if guarded else alone
            text = write(writer, known, Taste(rng, known, wanted))
            self.count[f"{text.end}{', guarded' if guarded else ''}"] += 1
            if text.end == "ended":
                found = {fault.kind for fault in faults(schema, policy if guarded else None, text.text)}
                # Masks hold what they say: of the raw text, and no more.
                assert "raw" not in found
                self.count["leaks"] += bool(found & MATCHES)
                self.count["faulty"] += bool(found - MATCHES)
                assert self.name != "llguidance" or "json" not in found


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
@pytest.mark.parametrize(("schema", "rule"), AVOIDABLE)
def test_two_masks_over_each_other_end_in_corners_that_can_be_avoided(
    name: str, schema: Any, rule: Rule
) -> None:
    policy = Policy(name="p", rules=(rule,))
    assert any(validates(schema, text) for text in witness.texts(schema, policy))
    tally = Tally(name)
    for place in range(30):
        tally.run(place, schema, policy)
    assert tally.count["corner, guarded"] > 0
    assert tally.count["ended, guarded"] > 0
    assert tally.count["corner"] == 0


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_random_schemas_and_policies_collide(name: str) -> None:
    tally = Tally(name)
    for place, (schema, policy) in enumerate(same_examples(strategies.collisions(), 40)):
        try:
            with limited(10):
                tally.run(place, schema, policy)
        except TooSlow:
            tally.count["too slow"] += 1
    print(name, dict(tally.count))
    assert tally.count["ended, guarded"] > 10
    assert tally.count["corner, guarded"] > 1
    assert tally.count["too slow"] < 6
