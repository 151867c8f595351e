"""Replies cut by marks: the definition is a loop over places, and `re` on each text that is shown."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from nco_guard.automata.combine.regions import FieldMark, RegionsAutomaton, ReplyFields
from nco_guard.compiler import compile_policy
from nco_guard.errors import ArgumentValueError, PolicyError
from nco_guard.policy import Policy, RegexRule
from tests.automata import patterns

THINKING = ReplyFields(
    (
        FieldMark("<t>", "content", "reasoning"),
        FieldMark("</t>", "reasoning", "content"),
        FieldMark("<c>", "content", "call"),
        FieldMark("</c>", "call", "content"),
    )
)
# Marks that overlap themselves and one another, one within another, of other characters.
ODD = ReplyFields(
    (
        FieldMark("aab", "content", "x"),
        FieldMark("aa", "x", "content"),
        FieldMark("ab", "x", "y"),
        FieldMark("bab", "content", "y"),
        FieldMark("b", "y", "content"),
        FieldMark("é", "content", "x"),
        FieldMark(" é-", "content", "y"),
    )
)


def free(regions: ReplyFields, *names: str) -> ReplyFields:
    return regions.freed(*names)


KINDS = {
    "thinking": THINKING,
    "thinks-first": ReplyFields(THINKING.marks, "reasoning"),
    "odd": ODD,
    "odd-joined": ReplyFields(ODD.marks, "x", "x"),
    "free": free(THINKING, "reasoning"),
    "free-content": free(ODD, "content", "y"),
}
PIECES = [*"aabbkKé1 -_\n", "<t>", "</t>", "<c>", "</c>", "<", "</", "t>", "aab", "aa"]


def split(regions: ReplyFields, text: str) -> list[tuple[str, str]]:
    for region in regions.split(text):
        assert text[region.start :].startswith(region.text)
    return [(region.name, region.text) for region in regions.split(text)]


def shown(regions: ReplyFields, text: str) -> list[str]:
    return ["".join(region.text for region in each) for each in regions.texts(text)]


def test_the_mark_that_is_complete_first_counts_then_the_longest() -> None:
    marks = (FieldMark("ab", "f", "g"), FieldMark("xab", "f", "h"), FieldMark("xabc", "f", "i"))
    regions = ReplyFields(marks, "f", "f")
    assert split(regions, "1xabc") == [("f", "1"), ("h", "c")]
    assert split(regions, "1abc") == [("f", "1"), ("g", "c")]
    assert split(THINKING, "a<t>b<c></t>d") == [("content", "a"), ("reasoning", "b<c>"), ("content", "d")]


def test_the_joined_field_goes_on_and_others_begin_anew() -> None:
    assert shown(THINKING, "a<c>1</c>b<c>2</c>") == ["a", "1", "ab", "2", "ab"]
    assert shown(free(THINKING, "content"), "a<c>1</c>b") == ["1"]


def test_marks_must_say_something_and_one_thing() -> None:
    with pytest.raises(ArgumentValueError, match="text"):
        ReplyFields((FieldMark("", "a", "b"),))
    with pytest.raises(ArgumentValueError, match="two ways"):
        ReplyFields((FieldMark("x", "a", "b"), FieldMark("x", "a", "c")))
    with pytest.raises(ArgumentValueError, match="name of a field"):
        ReplyFields((FieldMark("x", "a b", "b"),))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_an_automaton_finds_what_re_finds_in_the_texts_of_fields(kind: str, seed: int) -> None:
    rng, regions = random.Random(seed), KINDS[kind]
    pattern, _ = patterns.valid_pattern(rng, 3)
    if seed % 4 == 0:
        pattern = rng.choice([r"\ba\b", "a$", "^b", "<t", "ab", r"(?<=<)c", "aa"])
    try:
        compiled = compile_policy(Policy(name="p", rules=(RegexRule(id="r", regex=pattern, monitor=True),)))
    except PolicyError:
        pytest.skip("a pattern that matches the empty text")
    (constraint,) = compiled.constraints()[1:]
    automaton = RegionsAutomaton(constraint.automaton, regions, regions.cutter())
    for _ in range(80):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 9)))
        state, matched = automaton.start, False
        for byte in text.encode():
            near = automaton.distance(state)
            (several,) = automaton.step_many(np.array([state], np.int32), np.array([byte], np.uint8)).tolist()
            state = automaton.step(state, byte)
            assert several == state
            if state < 0:
                assert automaton.hits(~state)
                assert near <= 1
            matched |= state < 0
            state = ~state if state < 0 else state
        found = any(re.search(pattern, each) for each in shown(regions, text))
        assert (matched or not automaton.may_end(state)) == found, text
        assert bool(automaton.ended(state)) == (not automaton.may_end(state))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_one_class_act_alike_and_distances_are_bounds(kind: str) -> None:
    rng, regions = random.Random(1), KINDS[kind]
    compiled = compile_policy(Policy(name="p", rules=(RegexRule(id="r", regex=r"\bab?k\b|1 1"),)))
    automaton = RegionsAutomaton(compiled.constraints()[1].automaton, regions, regions.cutter())
    classes = automaton.byte_classes
    fresh = RegionsAutomaton(compiled.constraints()[1].automaton, regions, regions.cutter())
    for _ in range(300):
        data = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 6))).encode()
        state = automaton.start
        for read, byte in enumerate(data):
            alike = rng.choice(np.flatnonzero(classes == classes[byte]).tolist())
            following = automaton.step(state, byte)
            # The same step found first by another byte of the class.
            other = fresh.read(fresh.start, data[:read])
            assert (fresh.step(other, alike) < 0) == (following < 0)
            distance = automaton.distance(state)
            for length in range(min(distance, len(data) - read + 1)):
                after = automaton.read(state, data[read : read + length])
                assert after >= 0
                assert automaton.may_end(after)
            if following < 0:
                break
            state = following
