"""What is taken out of a schema, or refused, is nothing that could be written: random schemas and policies.

Values are found by trying (`witness`), and judged by `jsonschema` and Python's `re` (`judge`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from nco_guard.compiler import compile_policy
from nco_guard.errors import ContradictionError
from nco_guard.policy import Policy
from nco_guard.shapes.contradictions import prune
from tests.properties.harness import PROPERTIES, limited, prop
from tests.shapes import strategies, witness
from tests.shapes.judge import faults, validates


def clean_texts(schema: Any, policy: Policy) -> list[str]:
    """Texts of the schema that hold no match: raw, and in each value by itself."""
    found = []
    for value in witness.values(schema, 12):
        for text in witness.writings(value):
            with limited():
                if not faults(schema, policy, text):
                    found.append(text)
    return found


def without_forbidden(schema: Any, policy: Policy) -> Any:
    """The pruned schema; None where it is refused."""
    try:
        return prune(schema, compile_policy(policy))[0]
    except ContradictionError:
        return None


@prop(60, pair=strategies.collisions())
def test_pruning_takes_nothing_that_could_be_written(pair: tuple[Any, Policy]) -> None:
    schema, policy = pair
    before = json.dumps(schema)
    texts = clean_texts(schema, policy)
    pruned = without_forbidden(schema, policy)
    if pruned is None:
        assert texts == []
        return
    assert json.dumps(schema) == before
    for text in texts:
        assert validates(pruned, text), text
    for text in clean_texts(pruned, policy):
        assert validates(schema, text), text


@pytest.mark.slow
def test_pruning_at_length() -> None:
    PROPERTIES["pruning_takes_nothing_that_could_be_written"]()
