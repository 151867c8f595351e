"""What JSON text holds, value by value: automata against what Python's `json` and `re` say of each value."""

from __future__ import annotations

import json
import re

import interegular
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_guard import AutomatonRule, Guard, Policy, RegexRule
from nco_guard.automata import JsonValuesAutomaton
from nco_guard.compiler import compile_policy
from nco_guard.session import BoundGuard
from nco_guard.shapes import Shape
from nco_guard.testing import toy_vocabulary
from tests.shapes.judge import leaves, parse

PATTERNS = [
    "^v", r"\d$", "^cat$", r'(?<!")a', "b(?![\\s\\S])", "^a|b$", r"(?m)^b$", "^4$", r"^-?0$", r"4(?!\.)", r"\n$", "^é",
    "^\\\\", r"^.{2}$", r"\Aa+\Z", r"^\W+$", "^[Tt]rue$", r"^N", "e$", r"^null",
]  # fmt: skip
words = st.text(st.sampled_from('av1b"\\é\n\x01/ 日:,'), max_size=4)
values = st.recursive(
    st.one_of(
        words,
        st.integers(-50, 50),
        st.sampled_from([4.0, 0.5, -0.0, 14.0, 4.25, -4.0]),
        st.booleans(),
        st.none(),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=4,
)


def found(pattern: str, text: str) -> bool:
    """The definition: some string, key, number or literal matches, read by itself."""
    return any(re.search(pattern, leaf) for _, leaf in leaves(parse(text)))


def followed(pattern: str, text: str) -> bool:
    """Whether the automaton completes a match, or the text must not end."""
    compiled = compile_policy(Policy(name="p", rules=[RegexRule(id="r", regex=pattern)]))
    (constraint,) = compiled.value_constraints()
    assert isinstance(constraint.automaton, JsonValuesAutomaton)
    reached = constraint.automaton.read(constraint.automaton.start, text.encode())
    return reached < 0 or not constraint.automaton.may_end(reached)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PATTERNS), values, st.booleans(), st.booleans())
def test_each_value_is_read_as_a_text_of_its_own(
    pattern: str, value: object, close: bool, ascii_: bool
) -> None:
    separators = (",", ":") if close else None
    text = json.dumps(value, separators=separators, ensure_ascii=ascii_)
    assert followed(pattern, text) == found(pattern, text)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_numbers_are_read_with_their_point_and_without(pattern: str) -> None:
    for text in ("14.0", "4.0", "-0.0", "-4.0", "0.0", "4.05", "-0.5", "[14.0]", "14", "-1.0"):
        assert followed(pattern, text) == found(pattern, text), text


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PATTERNS), values)
def test_no_match_is_nearer_than_its_distance(pattern: str, value: object) -> None:
    compiled = compile_policy(Policy(name="p", rules=[RegexRule(id="r", regex=pattern)]))
    automaton = compiled.value_constraints()[0].automaton
    raw, state = json.dumps(value, ensure_ascii=False).encode(), automaton.start
    for place in range(len(raw)):
        far, after = automaton.distance(state), state
        for byte in raw[place : place + far - 1] if far else b"":
            assert automaton.may_end(after)
            after = automaton.step(after, byte)
            assert after >= 0
        assert automaton.may_end(state) or not far
        state = automaton.step(state, raw[place])
        if state < 0:
            break


def test_distances_of_many_states_are_those_of_each_as_states_are_found() -> None:
    (constraint,) = compile_policy(
        Policy(name="p", rules=[RegexRule(id="r", regex=r"^ab\d{2}$")])
    ).value_constraints()
    automaton, counts = constraint.automaton, set[int]()
    assert isinstance(automaton, JsonValuesAutomaton)
    for text in ('{"ab1', '["x", 12.0', '"\\u0061b2', "-0.5"):
        automaton.read(automaton.start, text.encode())
        states = np.arange(automaton.state_count, dtype=np.int32)
        assert automaton.distances(states).tolist() == [
            automaton._distance(state) for state in states.tolist()
        ]
        counts.add(len(states))
    assert len(counts) > 2


@pytest.mark.parametrize(
    ("pattern", "watched"),
    [
        (r"\bcat\b", 0), ("cat", 0), (r"(?<!\d)\d{2}(?!\d)", 0), (r"(?<!\w)\d{2}", 0), ("^cat", 1), ("cat$", 1),
        (r"(?<!\s)a", 1), (r"a(?!.)", 1), (r"(?m)a$", 1),
    ],
)  # fmt: skip
def test_only_rules_that_say_more_of_a_value_alone_are_followed_in_values(pattern: str, watched: int) -> None:
    compiled = compile_policy(Policy(name="p", rules=[RegexRule(id="r", regex=pattern)]))
    assert len(compiled.value_constraints()) == watched


def masked(pattern: str, schema: object, text: str) -> bool:
    """Whether a byte of a text, or its end, is forbidden under a schema."""
    guard = Guard(Policy(name="p", rules=[RegexRule(id="r", regex=pattern)])).with_shape(Shape.json(schema))
    bound = BoundGuard(compile_policy(guard.policy), toy_vocabulary([]), shape=Shape.json(schema))
    session = bound.session()
    for byte in text.encode():
        if session.mask()[byte]:
            return True
        session.advance(byte)
    return not session.may_end


@pytest.mark.parametrize(
    ("pattern", "schema", "bad", "good"),
    [
        ("^v", {"type": "string"}, '"v1"', '"av"'),
        (r"\d$", {"type": "array", "items": {"type": "string"}}, '["a", "1"]', '["1a"]'),
        ("^v", {"type": "object"}, '{"v": 1}', '{"av": 1}'),
        ("^12$", {"type": "integer"}, "12", "123"),
        ("^12$", {"type": "number"}, "12.0", "12.5"),
        (r"^\n", {"type": "string"}, '"\\nx"', '"x\\n"'),
        (r'^"$', {"type": "string"}, '"\\""', '"\\"\\""'),
    ],
)
def test_anchored_rules_hold_of_what_a_parser_reads(
    pattern: str, schema: object, bad: str, good: str
) -> None:
    assert masked(pattern, schema, bad)
    assert not masked(pattern, schema, good)


def test_ready_made_automata_are_followed_in_values_too() -> None:
    fsm = interegular.parse_pattern("a[^b]{2}").to_fsm()
    compiled = compile_policy(Policy(name="p", rules=(AutomatonRule(id="f", fsm=fsm),)))
    automaton = compiled.value_constraints()[0].automaton
    assert automaton.read(automaton.start, b'["a\\u0062c"]') >= 0
    assert automaton.read(automaton.start, b'["a\\u0063c"]') < 0
