"""The search for what can still be finished is right itself: it finds what looking at every text finds."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.tokens import Vocabulary
from tests.shapes.corners import Search, TooMany
from tests.shapes.judge import forbidden_in, validates
from tests.shapes.libraries import library

LIBRARIES = ("llguidance", "xgrammar")
ONE = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
EMPTY_OR = {"type": "object", "properties": {"a": {"const": "ab"}}, "additionalProperties": False}


def small(*pieces: str) -> Vocabulary:
    """A vocabulary of these pieces and an end."""
    tokens = [piece.encode() for piece in pieces]
    end = len(tokens)
    return Vocabulary.build([*tokens, b""], eos_ids=[end], special_ids=[end])


PIECES = small(*'{}[]":,ab12-', '{"', '":', '"}', "ab", "null", '"a"', "0")


def search(
    name: str, schema: Any, rules: tuple[Rule, ...], *, most: int = 6, vocabulary: Vocabulary = PIECES
) -> Search:
    pytest.importorskip(name)
    shape = library(name, vocabulary).writer(schema)
    return Search(shape, vocabulary, Policy(name="p", rules=rules), most=most)


def strings(*some: str) -> tuple[Rule, ...]:
    return (StringRule(id="s", strings=some),)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(
    ("schema", "rules", "text"),
    [
        ({"type": "string"}, strings("ab"), b'"a"'),
        ({"type": "string", "minLength": 2}, strings('"a'), None),  # some text, but not that one
        ({"enum": ["ab", "b"]}, strings("ab"), b'"b"'),
        ({"enum": ["ab", "bab"]}, strings("ab"), b""),
        (ONE, (RegexRule(id="digit", regex=r"\d"),), b""),
        (ONE, (RegexRule(id="end", regex=r"\d\}"),), b""),
        (ONE, (RegexRule(id="two", regex=r"\d\d"),), None),
        (EMPTY_OR, strings("ab"), b"{}"),
        (EMPTY_OR, strings("{}", "ab"), b""),
        ({"type": ["null", "string"]}, strings('"'), b"null"),
        ({"type": "integer", "minimum": 1, "maximum": 2}, (RegexRule(id="all", regex=r"1$|2$"),), b""),
    ],
)
def test_a_way_out_where_there_is_one(
    name: str, schema: Any, rules: tuple[Rule, ...], text: bytes | None
) -> None:
    """`text`: the shortest; b"" where there is none; None for any."""
    searched = search(name, schema, rules)
    found = searched.way_out()
    if text == b"":
        assert found is None
        return
    assert found is not None
    written = PIECES.raw_bytes(found)
    assert text is None or written == text
    assert validates(schema, written.decode())
    assert not forbidden_in(Policy(name="p", rules=rules), written.decode())


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(
    ("schema", "rules"),
    [
        ({"enum": ["ab", "b", 1, None]}, strings("ab")),
        (
            {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 12}, "maxItems": 1},
            strings("12", "[1]"),
        ),
        ({"type": "string", "pattern": "^[ab]{1,2}$"}, strings('a"', "bb")),
        (EMPTY_OR, strings("ab")),
        (
            {"type": "integer", "minimum": -2, "maximum": 12},
            (RegexRule(id="end", regex=r"2$"), *strings("-1")),
        ),
    ],
)
def test_it_finds_what_looking_at_every_text_finds(name: str, schema: Any, rules: tuple[Rule, ...]) -> None:
    vocabulary = small(*'{}[]":ab12-', "ab", "null", '"')
    most, policy = 4, Policy(name="p", rules=rules)
    searched = search(name, schema, rules, most=most, vocabulary=vocabulary)
    finished = set()
    for length in range(1, most + 1):
        for ids in itertools.product(range(vocabulary.width - 1), repeat=length):
            text = vocabulary.raw_bytes(ids).decode()
            if _valid(schema, text) and not forbidden_in(policy, text):
                finished.add(ids)
    expected = {ids[:length] for ids in finished for length in range(len(ids) + 1)}
    assert set(searched.prefixes()) == expected
    assert len(expected) >= 3


def _valid(schema: Any, text: str) -> bool:
    try:
        return validates(schema, text)
    except ValueError:
        return False


def test_who_looks_at_too_much_says_so() -> None:
    pytest.importorskip("llguidance")
    shape = library("llguidance", PIECES).writer({"type": "string"})
    policy = Policy(name="p", rules=(RegexRule(id="end", regex=r'"$'),))
    with pytest.raises(TooMany):
        Search(shape, PIECES, policy, most=8, looked=2_000).way_out()
