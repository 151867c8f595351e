"""Masks under a shape, what is pruned from it, and the last look at what was written: they read values alike.

Schemas are small, so that all their texts are tried: one is let be written if and only if the last look lets it pass,
and where schema and policy are refused together, none of them passes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.compiler import compile_policy
from nco_guard.errors import ContradictionError, ShapeError, ViolationError
from nco_guard.guards import seeing_through_json
from nco_guard.replies import ReplyReader
from nco_guard.shapes.contradictions import prune
from nco_guard.testing import toy_vocabulary
from nco_guard.values.texts import texts_of
from tests.shapes.joint import NOTHING, Joint, bound_to

BYTES = toy_vocabulary([])
LITERALS = (True, False, None)
SCALARS = (*LITERALS, 0, 12, 2.5, "True", "true", "none", "x")
REGEXES = (
    r"^True$", r"^true$", r"\bNone\b", r"[A-Z][a-z]+",
    r"(?i)^n", r"^\w{4}$", r"\w{5}", r"^[a-z]+$", r"\d$", "2", "[Tt]r",
    r"(?<!\w)F", r"^N", r"x|lse$",
)  # fmt: skip
LISTS = (("True",), ("true",), ("none", "ash"), ("null",), ("a", "q"), ("ALS", "12"), ("x", "rue"))


@st.composite
def rules(draw: st.DrawFn, name: str) -> Any:
    if draw(st.booleans()):
        return RegexRule(id=name, regex=draw(st.sampled_from(REGEXES)), json_escapes=draw(st.booleans()))
    options = {"case": draw(st.sampled_from(["exact", "fold"])), "whole_word": draw(st.booleans())}
    return StringRule(id=name, strings=draw(st.sampled_from(LISTS)), **options)


policies = st.integers(1, 3).flatmap(
    lambda count: st.tuples(*(rules(f"r{number}") for number in range(count))).map(
        lambda drawn: Policy(name="drawn", rules=drawn)
    )
)
leaves: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["boolean", "null"]}]),
    st.lists(st.sampled_from(SCALARS), min_size=1, max_size=4, unique_by=repr).map(
        lambda some: {"enum": some}
    ),
    st.sampled_from(SCALARS).map(lambda value: {"const": value}),
)
schemas = st.one_of(
    leaves,
    st.tuples(leaves, leaves).map(
        lambda two: {"type": "array", "prefixItems": [*two], "items": False, "minItems": 2}
    ),
    st.tuples(leaves, leaves, st.sets(st.sampled_from(["a", "null"]))).map(
        lambda drawn: {
            "type": "object",
            "properties": {"a": drawn[0], "null": drawn[1]},
            "required": sorted(drawn[2]),
            "additionalProperties": False,
        }
    ),
    st.tuples(leaves, leaves).map(lambda two: {"anyOf": [*two]}),
)


def values(schema: Any) -> list[Any]:
    """Every value of such a schema."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    if "anyOf" in schema:
        return [value for branch in schema["anyOf"] for value in values(branch)]
    if schema["type"] == "array":
        return [list(items) for items in itertools.product(*map(values, schema["prefixItems"]))]
    if schema["type"] == "object":
        free = [
            [(name, value) for value in values(part)] + ([] if name in schema["required"] else [None])
            for name, part in schema["properties"].items()
        ]
        return [dict(pair for pair in pairs if pair) for pairs in itertools.product(*free)]
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    return [value for kind in kinds for value in ((True, False) if kind == "boolean" else (None,))]


def texts(schema: Any) -> Iterator[str]:
    """Every text of such a schema, with and without spaces."""
    found = (json.dumps(value, separators=way) for value in values(schema) for way in ((",", ":"), None))
    yield from dict.fromkeys(found)


def passes(guard: Guard, text: str) -> bool:
    """The last look, as both integrations have it of a reply of a shape."""
    reader = ReplyReader(guard, escapes=True)
    try:
        shown = "".join(event.text for event in (*reader.feed(text), *reader.finish()))  # type: ignore[union-attr]
    except ViolationError:
        return False
    return shown == text and guard.verify(text).ok


def check(schema: Any, policy: Policy) -> None:
    guard = seeing_through_json(Guard(policy))
    alone = bound_to(schema, NOTHING, BYTES).session()
    good = [text for text in texts(schema) if passes(guard, text)]
    assert all(Joint(alone).takes([*text.encode()]) for text in texts(schema))
    try:
        bound = bound_to(schema, policy, BYTES)
    except ShapeError:
        assert good == []
        return
    written = [text for text in texts(schema) if Joint(bound.session()).takes([*text.encode()])]
    assert bound.stats["undecided_masks"] == 0
    assert written == good
    try:
        pruned, found = prune(schema, compile_policy(policy))
    except ContradictionError:
        assert good == []
        return
    assert set(good) <= set(texts(pruned)) or found.undecided
    for literal in LITERALS:  # a value that is refused for itself is refused by prune
        if any(found_in(policy, shown) for shown in texts_of(literal)):
            with pytest.raises(ContradictionError):
                prune({"const": literal}, compile_policy(policy))


def found_in(policy: Policy, text: str) -> bool:
    return not Guard(policy).verify(text).ok


@settings(max_examples=60, deadline=None)
@given(schemas, policies)
def test_what_may_be_written_is_what_passes(schema: Any, policy: Policy) -> None:
    check(schema, policy)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(schemas, policies)
def test_what_may_be_written_is_what_passes_at_length(schema: Any, policy: Policy) -> None:
    check(schema, policy)


@pytest.mark.parametrize("word", ["True", "true", "False", "false", "None", "null"])
@pytest.mark.parametrize(
    "schema", [{"type": ["boolean", "null", "string"]}, {"enum": [True, False, None, "x"]}]
)
def test_a_literal_is_forbidden_as_it_is_written_and_as_it_prints(word: str, schema: Any) -> None:
    bound = bound_to(schema, Policy(name="p", rules=(StringRule(id="word", strings=(word,)),)), BYTES)
    for value in (True, False, None):
        text = json.dumps(value)
        assert Joint(bound.session()).takes([*text.encode()]) == (word not in (text, str(value)))
        if word in (text, str(value)):
            with pytest.raises(ContradictionError):
                prune({"const": value}, bound.policy)
