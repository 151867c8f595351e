"""Random schemas under random policies, written at random: texts parse, validate, and hold nothing forbidden."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nco_guard import Guard, Policy, Shape
from nco_guard.compiler import compile_policy
from nco_guard.errors import ShapeError
from nco_guard.session import BoundGuard
from nco_guard.testing import Family, tiny_tokenizer, toy_vocabulary
from nco_guard.tokens import read_vocabulary
from tests.shapes.drawn import policies, schemas

BUDGET = 90
KINDS = ("toy", "byte-level", "byte-fallback")


@cache
def vocabulary_of(kind: str) -> Any:
    if kind == "toy":
        return toy_vocabulary(['":', '", "', "ass", "12", "cat", '"}', "na", '{"', "é"])
    texts = ('{"name": "Ann", "age": 12, "cat": [true, false, null], "note": "an ass, a cat"}',)
    return read_vocabulary(tiny_tokenizer(kind, texts, 330))  # type: ignore[arg-type]


def leaves(value: Any) -> list[str]:
    """What strings say, keys included, and all else as it prints."""
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in (key, *leaves(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in leaves(inner)]
    return [value] if isinstance(value, str) else [*{str(value), json.dumps(value)}]


def check(schema: Any, policy: Policy, kind: str, seed: int) -> None:
    guard = Guard(policy).with_shape(Shape.json(schema))
    try:
        bound = BoundGuard(compile_policy(guard.policy), vocabulary_of(kind), shape=Shape.json(schema))
    except ShapeError:
        return
    source, session = random.Random(seed), bound.session()
    if bound.session().mask(BUDGET - 1).all():
        return  # too long for the budget, from the beginning
    for left in range(BUDGET - 1, -1, -1):
        free = np.flatnonzero(~session.mask(left))
        assert len(free), (session.text, left)
        ends = [token for token in free.tolist() if token in bound.vocabulary.eos_ids]
        session.advance(ends[0] if ends and source.random() < 0.3 else int(source.choice(free.tolist())))
        if session.ended:
            break
    text = session.text
    value = json.loads(text)
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(value)
    assert guard.verify(text).ok
    for leaf in leaves(value):
        assert leaf in text or leaf in ("True", "False", "None") or "\\" in text
        assert Guard(policy).verify(leaf).ok, (text, leaf)


everything = given(schemas, policies, st.sampled_from(KINDS), st.integers(0, 10_000))
quiet = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=25, **quiet)  # type: ignore[arg-type]
@everything
def test_finished_texts_are_what_was_asked_and_nothing_forbidden(
    schema: Any, policy: Policy, kind: Family, seed: int
) -> None:
    check(schema, policy, kind, seed)


@pytest.mark.slow
@settings(max_examples=2000, **quiet)  # type: ignore[arg-type]
@everything
def test_two_thousand_finished_texts(schema: Any, policy: Policy, kind: Family, seed: int) -> None:
    check(schema, policy, kind, seed)
