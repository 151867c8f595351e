"""Ways to a closed shape are found: through patterns, formats and lengths, and beside what a policy bars."""

from __future__ import annotations

import json
import random
import re
from itertools import product
from typing import Any

import numpy as np
import pytest

from nco_guard import ContradictionError, Policy, RegexRule, Shape, ShapeLimitError
from nco_guard.compiler import compile_policy
from nco_guard.session import BoundGuard, Session
from nco_guard.shapes.needed import ecma
from nco_guard.shapes.rests import JsonRests, texts_of
from nco_guard.shapes.states import rest_of_character, shape_states
from nco_guard.testing import toy_vocabulary
from tests.shapes.driver import Taste, tokenizer, vocabulary, write
from tests.shapes.joint import Joint, bound_to
from tests.shapes.judge import faults


def forbidding(*patterns: str) -> Policy:
    return Policy(name="p", rules=[RegexRule(id=f"r{n}", regex=each) for n, each in enumerate(patterns)])


def string(**asked: Any) -> dict[str, Any]:
    return {"type": "string", **asked}


def objects(*keys: tuple[str, Any]) -> dict[str, Any]:
    names = [name for name, _ in keys]
    return {"type": "object", "properties": dict(keys), "required": names, "additionalProperties": False}


NOTHING = "zzzz"
TEXTS: list[tuple[Any, str]] = [
    (string(pattern="foo"), NOTHING),
    (string(pattern=r"\.pdf$"), NOTHING),
    (string(pattern="^.*foo.*$"), NOTHING),
    (string(pattern="(error|warning)"), NOTHING),
    (string(pattern="(error|warning)"), "error"),
    (string(pattern="foo", maxLength=4), '"foo'),
    (string(pattern="^(?:[a-z]{5}-){4}end$"), "aa"),
    ({"allOf": [string(pattern="foo"), string(pattern="bar")]}, "foobar"),
    ({"anyOf": [{"type": "null"}, string(pattern="foo")]}, "null"),
    (objects(("a", string(pattern="foo")), ("b", {"type": "array", "items": string(pattern="b$")})), "of"),
    ({"anyOf": [objects(("k", string(pattern="foo"))), objects(("l", string(pattern="bar$")))]}, "k"),
    (
        {
            "type": "object",
            "patternProperties": {"foo$": {"type": "null"}},
            "additionalProperties": False,
            "minProperties": 2,
        },
        NOTHING,
    ),
    (string(format="uuid"), "[a-f]"),
    (string(format="uuid"), r"\d"),
    (string(format="ipv6"), "::"),
    (string(format="ipv6"), "::|[A-Fa-f]"),
    (string(format="email"), "[aeiou]"),
    (string(format="date-time"), "00"),
    ({"type": "integer", "multipleOf": 9973, "minimum": 1}, "9973"),
    (objects(("n", {"type": "integer", "multipleOf": 7, "minimum": 1000})), NOTHING),
    (objects(("n", {"allOf": [{"type": "integer", "multipleOf": 999983}, {"minimum": 5}]})), NOTHING),
    ({"type": "array", "items": {"type": "integer", "multipleOf": 999983}, "minItems": 3}, "00"),
    (objects(("n", {"type": "number", "multipleOf": 12.5, "exclusiveMaximum": 0})), NOTHING),
    (
        objects(
            ("n", {"type": "integer", "allOf": [{"multipleOf": 65537}, {"multipleOf": 7}], "minimum": 10**7})
        ),
        NOTHING,
    ),
]
IDS = [f"{json.dumps(schema)[:60]}-{rule}" for schema, rule in TEXTS]


@pytest.mark.parametrize(("schema", "rule"), TEXTS, ids=IDS)
def test_texts_are_found(schema: Any, rule: str) -> None:
    known = toy_vocabulary(["fo", "oo", "12", '":', '"}', "er"])
    policy = forbidding(rule)
    bound = bound_to(schema, policy, known)
    written = write(Joint(bound.session(), 60), known, Taste(random.Random(1), known, []), most=60)
    assert written.end == "ended", written
    assert faults(schema, policy, written.text) == [], written.text


def nullable(**asked: Any) -> dict[str, Any]:
    return {"anyOf": [string(**asked), {"type": "null"}]}


SHORTEST: list[tuple[Any, str]] = [
    (objects(("name", string()), ("kind", {"enum": ["caterpillar", None]})), '{"name":"","kind":null}'),
    (
        objects(("born", nullable(format="date-time")), ("id", nullable(format="uuid"))),
        '{"born":null,"id":null}',
    ),
    (
        {"type": "array", "items": {"type": ["string", "boolean"], "minLength": 6}, "minItems": 2},
        "[true,true]",
    ),
    ({"type": "object", "additionalProperties": nullable(minLength=6), "minProperties": 1}, '{"a":null}'),
    ({**objects(("date", string()), ("name", string())), "required": ["name"]}, '{"name":""}'),
    (
        {**objects(("a", string()), ("n", string()), ("k", string())), "required": ["a", "k"]},
        '{"a":"","k":""}',
    ),
]


@pytest.mark.parametrize(
    ("schema", "shortest"), SHORTEST, ids=lambda each: each if isinstance(each, str) else ""
)
def test_room_for_a_shortest_text_is_enough(schema: Any, shortest: str) -> None:
    bound = bound_to(schema, forbidding(NOTHING), toy_vocabulary())
    session = bound.session()
    for room in range(len(shortest) - 1, -1, -1):
        allowed = np.flatnonzero(~session.mask(room))
        assert len(allowed)
        session.advance(int(allowed[0]))
        if session.ended:
            return
    assert session.may_end


@pytest.mark.parametrize("pattern", [".*foo.*", "x|.*foo", r"[\s\S]*foo[\s\S]*", "é.*日本"])
def test_texts_of_patterns_are_found(pattern: str) -> None:
    known = toy_vocabulary(["fo", "oo", "x", "日"])
    for shape in (Shape.regex(pattern), Shape.lark(f"start: /{pattern}/")):
        bound = BoundGuard(compile_policy(forbidding("bar")), known, shape=shape)
        for seed in range(3):
            session, source = bound.session(), random.Random(seed)
            for left in range(30, -1, -1):
                session.advance(source.choice(np.flatnonzero(~session.mask(left)).tolist()))
                if session.ended:
                    break
            assert re.fullmatch(pattern, session.text)
            assert "bar" not in session.text


def test_each_branch_can_be_begun() -> None:
    known = toy_vocabulary([])

    def may(session: Session, text: str) -> bool:
        return not session.mask()[known.tokens.index(text.encode())]

    either = bound_to({"anyOf": [{"type": "null"}, string(pattern="foo")]}, forbidding(NOTHING), known)
    assert may(either.session(), "n")
    assert may(either.session(), '"')
    shape = Shape.regex("x|.*foo")
    bound = BoundGuard(compile_policy(forbidding(NOTHING)), known, shape=shape)
    assert may(bound.session(), "a")
    assert may(bound.session(), "x")
    assert bound.stats["undecided_masks"] == 0


def test_objects_of_very_many_properties() -> None:
    schema = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(2000)}}
    known = toy_vocabulary([])
    session = bound_to(schema, forbidding(NOTHING), known).session()
    for byte in b'{"p1999":1}':
        session.advance(known.tokens.index(bytes([byte])))
    assert session.may_end


@pytest.mark.parametrize("rules", [(NOTHING,), ("aaa",), ("a", "e ")], ids=str)
def test_long_strings(rules: tuple[str, ...]) -> None:
    known = toy_vocabulary(["aa", "e e"])
    bound = bound_to(objects(("k", string(minLength=2000))), forbidding(*rules), known)
    session = bound.session()
    for byte in b'{"k":"':
        session.advance(known.tokens.index(bytes([byte])))
    for _ in range(5):
        free = np.flatnonzero(~session.mask()).tolist()
        assert len(free) > 50
        session.advance(free[7])
    assert bound.stats["undecided_masks"] == 0


@pytest.mark.parametrize(
    "schema",
    [string(minLength=100_000), {"type": "array", "items": {"type": "integer"}, "minItems": 10**4}],
    ids=str,
)
def test_a_bound_that_is_met_is_called_one(schema: Any) -> None:
    with pytest.raises(ShapeLimitError, match="bound") as found:
        bound_to(schema, forbidding(NOTHING), toy_vocabulary([]))
    assert not isinstance(found.value, ContradictionError)


def test_characters_are_completed() -> None:
    """Whichever bytes a token ends with, what completes the character makes one."""
    for code in (*range(0x80, 0x3000, 7), 0xD7FF, 0xE000, 0xFFFF, *range(0x10000, 0x110000, 4099)):
        data = b"a" + chr(code).encode()
        for end in range(2, len(data)):
            assert len((data[:end] + rest_of_character(data[:end])).decode()) == 2
        assert rest_of_character(data) == b""


COUNTED = {
    "type": "array",
    "items": {"type": "array", "items": string(minLength=2, maxLength=4), "minItems": 1, "maxItems": 3},
    "minItems": 2,
    "maxItems": 6,
}


def test_ways_taken_over_are_no_longer_than_those_that_are_looked_for() -> None:
    """Where more has to come, or there is no room for it, no way is taken from where that is not so."""
    known = toy_vocabulary(["aa", '"]', "]]", '["', '","', "],["])
    bound = bound_to(COUNTED, forbidding(NOTHING), known)
    shape, needed = Shape.json(COUNTED), bound.tables.tokens_needed
    states, source = shape_states(shape, known, needed), random.Random(3)
    for _ in range(12):
        state, text = states.start, b""
        for _ in range(40):
            ways = [(token, states.exits(state)) for token in states.tokens(state).tolist()]
            if not ways:
                break
            token = source.choice(ways)[0]
            text, state = text + known.tokens[token], states.after(state, token)
            way, fresh = states.way(state), shape_states(shape, known, needed)
            looked_for = fresh.way(fresh.read(fresh.start, text))
            assert way is not None
            assert looked_for is not None
            assert states.ends_with(state, way)
            assert needed(way) <= needed(looked_for) + 1, (text, way, looked_for)


ASKED = ["a", "^a+$", "^[ab]{2,4}$", "^ab", "b$", r"^\d{2}$", "a.*b", "(ba|1-)", "^$|^a1$", r"\w@\w"]


@pytest.mark.parametrize("pattern", ASKED)
def test_rests_are_the_shortest(pattern: str) -> None:
    rests = JsonRests()
    letters = "ab1-@"
    for content in map("".join, [*product(letters, repeat=0), *product(letters, repeat=1), ("a", "b")]):
        found = rests.of_string(0, [string(pattern=pattern)], b'"' + content.encode(), -1)
        tried = ("".join(text) for size in range(4) for text in product(letters, repeat=size))
        best = next((text for text in tried if re.search(ecma(pattern), content + text)), None)
        assert (best is None) == (not found)
        if best is not None:
            assert len(found[0]) == len(best)
            assert all(re.search(ecma(pattern), content + rest) for rest in found)


def test_texts_of_a_pattern_are_matched_as_a_whole() -> None:
    assert set(texts_of("foo|ba")) == {"foo", "ba"}
    assert texts_of(r"(?=a)\1") == []


@pytest.mark.parametrize(
    ("form", "begun", "barred"),
    [
        ("date-time", "2020-12-30T00:33:5", "Z"),
        ("date-time", "2000-08-31t00:33:5", "Z"),
        ("date-time", "2024-02-29T00:33:5", "Z"),  # of no format of which texts are proposed
        ("date-time", "3112-12-30t00:33:5", "Z"),
    ],
)
def test_texts_that_leave_what_is_proposed_of_a_format(form: str, begun: str, barred: str) -> None:
    known = vocabulary("byte-level")
    bound = bound_to(string(format=form), forbidding(barred), known)
    session = bound.session()
    for byte in b'"' + begun.encode():
        token = known.tokens.index(bytes([byte]))
        assert not session.mask()[token], session.text
        session.advance(token)
    assert (~session.mask()).any()
    assert bound.stats["undecided_masks"] == 0


@pytest.mark.parametrize("needed", [[1999], [0, 1000, 1999]], ids=str)
def test_keys_that_must_come_are_found_behind_thousands_that_may(needed: list[int]) -> None:
    required = [f"key{number}" for number in needed]
    schema = {"properties": {f"key{at}": {"type": "integer"} for at in range(2000)}, "required": required}
    known = vocabulary("byte-level")
    session = bound_to({"type": "object", **schema}, forbidding(NOTHING), known).session()
    text = "{" + ", ".join(f'"{key}": 1' for key in required) + "}"
    for token in tokenizer("byte-level").encode(text):
        assert not session.mask(200)[token]
        session.advance(token)
    assert session.may_end
