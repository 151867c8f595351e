"""Policy and shape at once: masks against all that can follow, token by token."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
import numpy as np
import pytest

from nco_guard import Policy, RegexRule, Shape
from nco_guard.compiler import compile_policy
from nco_guard.errors import ForbiddenTokenError, ShapeError, UnsupportedError
from nco_guard.session import BoundGuard
from nco_guard.shapes.together import ShapedTables
from nco_guard.testing import toy_vocabulary
from nco_guard.tokens import Vocabulary
from tests.shapes.oracle import allowed, fits


def bound(shape: Shape, patterns: list[str], vocabulary: Vocabulary, **options: Any) -> BoundGuard:
    rules = [RegexRule(id=f"r{number}", regex=pattern) for number, pattern in enumerate(patterns)]
    return BoundGuard(compile_policy(Policy(name="p", rules=rules)), vocabulary, shape=shape, **options)


def small(tokens: list[bytes], *, spaces: bool = False) -> Vocabulary:
    return Vocabulary.build([*tokens, b""], eos_ids=[len(tokens)], strips_first_space=spaces)


def compare(shape: Shape, patterns: list[str], tokens: list[bytes], source: random.Random, steps: int) -> int:
    """Walk through a text at random, all masks against the definition; how many were compared."""
    try:
        guard = bound(shape, patterns, small(tokens))
    except ShapeError:
        assert not allowed(fits(shape, patterns), b"", tokens, steps)
        return 1
    fitting, session, text = fits(shape, patterns), guard.session(), b""
    compared = 0
    for remaining in range(steps, -1, -1):
        mask = session.mask(remaining)
        free = np.flatnonzero(~mask[:-1]).tolist()
        assert free == allowed(fitting, text, tokens, remaining), (text, remaining)
        assert mask[-1] == (not fitting(text))
        compared += 1
        if not free:
            break
        token = source.choice(free)
        session.advance(token)
        text += tokens[token]
    return compared


PIECES = [b"a", b"b", b"ab", b"c", b"-"]
SHAPES = [
    Shape.regex(r"[ab]{2,4}"),
    Shape.regex(r"(?:ab|c)+-?[abc]"),
    Shape.regex(r"a*b*c"),
    Shape.lark('start: item ("-" item)*\nitem: "a" "b" | "c"'),
    Shape.lark('start: "a" start "b" | "c"'),
]
PATTERNS = [["zz"], ["bb"], [r"\bc\b"], ["a-", "c{2}"], [r"ab\w"], ["^a.*c$"], [r"^[ab]{3}$", "ba"], ["c"]]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.kind}-{shape.source}")
@pytest.mark.parametrize("patterns", PATTERNS, ids=str)
def test_masks_are_what_can_be_finished(shape: Shape, patterns: list[str]) -> None:
    for seed in range(3):
        assert compare(shape, patterns, PIECES, random.Random(seed), 4)


JSON_PIECES = [b"{", b"}", b'"', b"k", b":", b"1", b",", b'"k":', b"x", b"[", b"]"]
SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"k": {"enum": ["x", "kx", 1, 11]}}, "required": ["k"]},
    {"type": "object", "properties": {"k": {"type": "string", "maxLength": 2}}, "required": ["k"]},
    {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"const": "k"}]}, "maxItems": 2},
    {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "integer"}}]},
    {"type": "string", "pattern": "^(xk)+1$"},
]
JSON_PATTERNS = [["zz"], ["x"], ["11"], ["kx", '"1'], [r"\bk\b"], ["^.{6}$"], ["1]"], [r'x"']]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
@pytest.mark.parametrize("patterns", JSON_PATTERNS, ids=str)
def test_masks_of_json_are_what_can_be_finished(schema: Any, patterns: list[str]) -> None:
    compare(Shape.json(schema, whitespace="none"), patterns, JSON_PIECES, random.Random(3), 3)


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "kind": {"enum": ["a", "bb", "ccc"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3},
        "note": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    },
    "required": ["name", "kind", "note"],
}
LETTERS = ["na", "me", '":', '","', '"}', "é", "12", "ass", " a", "cat", '{"', "\\u"]


@pytest.mark.parametrize("budget", [26, 30, 48])
def test_a_text_is_closed_before_its_budget_runs_out(budget: int) -> None:
    patterns = [r"\bass\b", r"\d{2}", "bb"]
    vocabulary = toy_vocabulary(LETTERS)
    guard = bound(Shape.json(PERSON), patterns, vocabulary)
    for seed in range(6):
        source, session = random.Random(seed), guard.session()
        for left in range(budget - 1, -1, -1):
            free = np.flatnonzero(~session.mask(left)).tolist()
            assert free
            likely = [4 if vocabulary.tokens[token].isalnum() else 1 for token in free]
            session.advance(source.choices(free, likely)[0])
            if session.ended:
                break
        value = json.loads(session.text)
        assert set(value) >= {"name", "kind", "note"}
        assert not any(re.search(pattern, session.text) for pattern in patterns)
    assert guard.stats["undecided_masks"] == 0


KEYS_AND_SCHEMAS: list[Any] = [
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "minProperties": 2, "maxProperties": 3, "additionalProperties": {"enum": [1, "k"]}},
    {"type": "object", "properties": {"k": {"const": 1}}, "additionalProperties": {"const": 1}},
    {
        "type": "object",
        "patternProperties": {"^[kx]$": {"const": 1}},
        "additionalProperties": False,
        "minProperties": 2,
    },
    {"type": "array", "items": {"type": "object", "additionalProperties": {"const": 1}, "minProperties": 1}},
]


def twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names), names
    return dict(pairs)


@pytest.mark.parametrize("schema", KEYS_AND_SCHEMAS, ids=json.dumps)
def test_a_key_stands_once_in_an_object(schema: Any) -> None:
    guard = bound(
        Shape.json(schema, whitespace="none"),
        ["11"],
        toy_vocabulary(["k", "x", '":', ',"', '","', "\\u000a"]),
    )
    seen = 0
    for seed in range(12):
        source, session = random.Random(seed), guard.session()
        for left in range(60, -1, -1):
            free = np.flatnonzero(~session.mask(left)).tolist()
            assert free, session.text
            likely = [40 if guard.vocabulary.tokens[token].strip(b'{"kx:1,') == b"" else 1 for token in free]
            session.advance(source.choices(free, likely)[0])
            if session.ended:
                break
        value = json.loads(session.text, object_pairs_hook=twice)
        jsonschema.Draft202012Validator(schema).validate(value)
        seen += len(session.text) > 12
    assert seen > 2
    assert guard.stats["undecided_masks"] == 0


def test_a_key_that_stands_there_is_barred_where_it_would_end() -> None:
    guard = bound(Shape.json({"type": "object"}, whitespace="none"), ["zz"], toy_vocabulary(['k"', '"k":']))
    session = guard.session()
    for byte in b'{"k":1,"':
        session.advance(byte)
    k, pair, whole = (
        guard.vocabulary.tokens.index(b"k"),
        *map(guard.vocabulary.tokens.index, (b'k"', b'"k":')),
    )
    assert session.mask()[pair]
    assert not session.mask()[k]
    session.advance(k)
    assert session.mask()[ord('"')]
    session.rollback(2)
    assert session.mask()[whole]


@pytest.mark.parametrize(
    ("barred", "stuck"), [('"a"', True), ('a":', False), ('"y":1', False), ('{"y"', True)]
)
def test_keys_that_are_required_but_not_described_come_first(barred: str, stuck: bool) -> None:
    schema = {"type": "object", "required": ["y", "a"]}
    if stuck:
        with pytest.raises(ShapeError, match="policy"):
            bound(Shape.json(schema, whitespace="none"), [barred], toy_vocabulary([]))
        return
    guard = bound(Shape.json(schema), [barred], toy_vocabulary([]))
    for seed in range(4):
        source, session = random.Random(seed), guard.session()
        for left in range(40, -1, -1):
            free = np.flatnonzero(~session.mask(left)).tolist()
            assert free, session.text
            session.advance(source.choice(free))
            if session.ended:
                break
        assert [*json.loads(session.text)][:2] == ["y", "a"]


def test_what_bars_the_nearest_end_everywhere_costs_few_searches() -> None:
    guard = bound(Shape.json({"type": "object"}), ['"}'], toy_vocabulary(["na", '":', '": "', "é"]))
    session = guard.session()
    for byte in b'{"some":{"na\\n"':
        session.mask()
        session.advance(byte)
    tables = guard.answers
    assert isinstance(tables, ShapedTables)
    assert (b'"}', b'" }') in tables.ways.changes
    assert len(tables.ways.searched) < 40
    assert guard.stats["undecided_masks"] == 0


def test_sessions_fork_roll_back_and_pickle_within_a_shape() -> None:
    import pickle

    guard = bound(Shape.json(PERSON), ["bb"], toy_vocabulary(LETTERS))
    session = guard.session()
    for byte in b'{"name":"x","kind":"':
        session.advance(byte)
    assert not session.mask()[ord("a")]
    assert session.mask()[ord("b")]  # of "bb", which the policy forbids
    assert not session.may_end
    copy = session.fork()
    copy.advance(ord("c"))
    copy.rollback(3)
    for byte in b':"':
        copy.advance(byte)
    assert (copy.mask() == session.mask()).all()
    again = pickle.loads(pickle.dumps(session))
    assert again.text == session.text
    assert (again.mask() == session.mask()).all()
    with pytest.raises(ForbiddenTokenError, match="shape"):
        session.advance(ord("z"))
    with pytest.raises(UnsupportedError, match="explain"):
        session.explain()


def test_tokens_without_text_are_no_way_to_waste_a_budget() -> None:
    vocabulary = toy_vocabulary([], special_tokens=2)
    guard = bound(Shape.json(PERSON), ["zz"], vocabulary)
    assert guard.session().mask()[list(vocabulary.silent_ids)].all()


def test_a_first_space_that_the_decoder_drops_is_none_of_the_shape() -> None:
    vocabulary = small([b" ", b" {", b"{", b"}", b" }"], spaces=True)
    guard = bound(Shape.json({"type": "object", "properties": {}}), ["zz"], vocabulary)
    session = guard.session()
    assert (~session.mask()).nonzero()[0].tolist() == [1, 2]
    session.advance(1)
    assert (~session.mask()).nonzero()[0].tolist() == [0, 3, 4]
    session.advance(4)
    assert session.text == "{ }"
    assert session.may_end


def test_what_nothing_can_be_written_of_is_refused_when_it_is_bound() -> None:
    with pytest.raises(ShapeError, match="policy 'p'"):
        bound(Shape.json({"const": "cat"}), ["cat"], toy_vocabulary([]))
    with pytest.raises(ShapeError, match="tokenizer"):
        bound(Shape.json({"const": "cat"}), ["x"], small([b"c", b"a"]))
    with pytest.raises(ShapeError, match="end-of-sequence"):
        bound(Shape.regex("a"), ["x"], Vocabulary.build([b"a"]))


def test_what_is_held_is_known_without_a_look_at_all_of_it() -> None:
    """It is asked for at each step."""
    guard = bound(Shape.regex(r"(?:ab|c)+-?[abc]"), ["bc"], small(PIECES))
    source = random.Random(0)
    for _ in range(20):
        session = guard.session()
        while len(free := np.flatnonzero(~session.mask()[:-1])) and len(session.token_ids) < 12:
            session.advance(int(source.choice(free)))
    tables = guard.answers
    assert isinstance(tables, ShapedTables)
    assert tables._links == sum(map(len, tables._next)) > 10
