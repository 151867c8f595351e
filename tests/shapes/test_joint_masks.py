"""Masks of a schema and a policy together are exactly what looking at every text finds, where there are few texts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from nco_guard.errors import ShapeError
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.tokens import Vocabulary
from tests.shapes.corners import Search
from tests.shapes.joint import NOTHING, Joint, bound_to
from tests.shapes.test_corners import small
from tests.slow import rest_slow

PIECES = small(*'{}[]":,ab123-0. 5', '{"', '":', '"}', "ab", "null", "true", "false", '"a"', "12")
SCHEMAS: list[Any] = [
    {"enum": ["ab", "b", 12, None, [1]]},
    {
        "type": "object",
        "properties": {"a": {"enum": [1, 12]}, "b": {"const": "ab"}},
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 13}},
        "required": ["a"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": [1, 12, None]}, "maxItems": 2},
    {"type": "string", "pattern": "^[ab]{1,3}$"},
    {"type": "integer", "minimum": -3, "maximum": 25},
    {"type": "boolean"},
    {
        "anyOf": [
            {"const": "a"},
            {
                "type": "object",
                "properties": {"b": {"type": "null"}},
                "required": ["b"],
                "additionalProperties": False,
            },
        ]
    },
    {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.5},
    {"type": "array", "prefixItems": [{"enum": ["a", "ab"]}, {"const": 1}], "minItems": 2, "maxItems": 2},
]


def strings(*some: str, whole: bool = False) -> Rule:
    return StringRule(id="s", strings=some, whole_word=whole)


def regex(pattern: str) -> Rule:
    return RegexRule(id="r", regex=pattern)


RULES: list[tuple[Rule, ...]] = [
    (strings("ab"),),
    (strings("12"), regex(r"\bab\b")),
    (strings('"}', ",", "null"),),
    (regex(r"\d\d"),),
    (strings("a"), regex(r"2(?!\d)")),
    (strings("1"),),
    (strings('a"'),),
    (strings("b", whole=True),),
    (strings("}"),),
    (strings(" "),),
    (regex(r"^\{"),),
]
MOST = 22  # tokens of the longest of these texts, and more


def exact(schema: Any, rules: tuple[Rule, ...], vocabulary: Vocabulary, *, prefixes: int = 120) -> int:
    """Compares masks at so many prefixes that can be finished; how many masks were compared."""
    policy = Policy(name="p", rules=rules)
    alone = bound_to(schema, NOTHING, vocabulary, whitespace="none")
    search = Search(Joint(alone.session()), vocabulary, policy, most=MOST)
    live = [*itertools.islice(search.prefixes(), prefixes)]
    try:
        bound = bound_to(schema, policy, vocabulary, whitespace="none")
    except ShapeError:
        assert live == []
        return 1
    assert live
    for ids in live:
        session = bound.session()
        for token in ids:
            session.advance(token)
        wanted = {longer[-1] for longer in search.next(ids) if search.way_out(longer) is not None}
        if search.good(ids):
            wanted.add(vocabulary.eos_ids[0])
        found = {int(token) for token in (~session.mask()).nonzero()[0]}
        assert found == wanted, (vocabulary.raw_bytes(ids), found ^ wanted)
    return len(live)


@pytest.mark.parametrize(("schema", "rules"), rest_slow(itertools.product(SCHEMAS, RULES), 34))
def test_masks_are_what_looking_at_every_text_finds(schema: Any, rules: tuple[Rule, ...]) -> None:
    assert exact(schema, rules, PIECES, prefixes=60) >= 1
