"""The regex automaton means what Python's `re` means."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from nco_guard.automata import AlternatingMachine, ClassAutomaton
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.spans.definition import find_spans, matches
from nco_guard.errors import PatternError, StateLimitError
from tests.automata import patterns


def check_against_re(seed: int, count: int, texts: int = 10) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        pattern, flags = patterns.valid_pattern(rng)
        machine = AlternatingMachine(parse(pattern, flags))
        for text in ["", *(patterns.text(rng) for _ in range(texts))]:
            expected = re.search(pattern, text, flags) is not None
            assert matches(machine, text) == expected, (pattern, flags, text)


@pytest.mark.parametrize("seed", range(4))
def test_a_match_exists_exactly_when_re_search_finds_one(seed: int) -> None:
    check_against_re(seed, 700)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_a_match_exists_exactly_when_re_search_finds_one_at_length(seed: int) -> None:
    check_against_re(seed, 10_000, 20)


def longest_spans(pattern: str, flags: int, text: str) -> list[tuple[int, int]]:
    """Leftmost, longest, not overlapping: by trying all pairs of positions with `re`."""
    spans, position = [], 0
    while position <= len(text):
        for end in range(len(text), position - 1, -1):
            exact = re.compile(rf"(?:{pattern})(?=[\s\S]{{{len(text) - end}}}\Z)", flags)
            if exact.match(text, position):
                spans.append((position, end))
                position = max(end, position + 1)
                break
        else:
            position += 1
    return spans


@pytest.mark.parametrize("seed", range(3))
def test_spans_are_leftmost_and_longest(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        pattern, flags = patterns.valid_pattern(rng)
        machine = AlternatingMachine(parse(pattern, flags), every_end=True)
        if not AlternatingMachine(parse(pattern, flags)).may_end(machine.start):
            continue  # matches the empty text; no rule may
        for _ in range(4):
            text = patterns.text(rng)
            assert list(find_spans(machine, text)) == longest_spans(pattern, flags, text), (
                pattern,
                flags,
                text,
            )


@pytest.mark.parametrize("seed", range(3))
def test_with_every_end_a_step_reports_exactly_the_positions_where_matches_end(seed: int) -> None:
    """Without assertions, an end is known when it is reached."""
    rng = random.Random(seed)
    for _ in range(600):
        pattern, flags = patterns.valid_pattern(rng)
        if any(mark in pattern for mark in ("(?=", "(?!", "(?<", "\\b", "\\B", "$", "^", "\\A", "\\Z")):
            continue
        machine = AlternatingMachine(parse(pattern, flags), every_end=True)
        if re.search(pattern, "", flags):
            continue
        text = patterns.text(rng)
        state, found = machine.start, set()
        for end, cls in enumerate(machine.classes.of_text(text), start=1):
            state = machine.step(state, cls)
            if state < 0:
                found.add(end)
                state = ~state
        expected = {
            end
            for start, end in itertools.combinations(range(len(text) + 1), 2)
            if re.compile(pattern, flags).fullmatch(text, start, end)
        }
        assert found == expected, (pattern, flags, text)


@pytest.mark.parametrize("seed", range(3))
def test_doomed_means_that_no_continuation_ends_well(seed: int) -> None:
    rng = random.Random(seed)
    letters = "ab1 \n"
    for _ in range(150):
        pattern, flags = patterns.valid_pattern(rng, 3)
        machine = AlternatingMachine(parse(pattern, flags))
        for _ in range(4):
            text = patterns.text(rng, 4)
            state = machine.start
            for cls in machine.classes.of_text(text):
                state = machine.step(state, cls)
                if state < 0:
                    break
            if state < 0 or not machine.doomed(state):
                continue
            for length in range(4):
                for more in itertools.product(letters, repeat=length):
                    assert re.search(pattern, text + "".join(more), flags), (pattern, flags, text, more)


@pytest.mark.parametrize(
    ("pattern", "position", "construct"),
    [
        (r"(a*)\1", 4, "backreference"),
        (r"(?P<x>a+)b(?P=x)", 10, "backreference"),
        (r"(a)?(?(1)b|c)", 4, "conditional"),
        (r"a(?>b+)c", 1, "atomic"),
        (r"ab++", 2, "possessive"),
        (r"[*+]+\+(?>a)", 7, "atomic"),
        (r"a(", 1, "not a valid pattern"),
        (r"(?<=a+)b", None, "not a valid pattern"),
        (r"a{99999999999}", None, "not a valid pattern"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_construct_and_position(
    pattern: str, position: int | None, construct: str
) -> None:
    with pytest.raises(PatternError) as caught:
        parse(pattern)
    assert construct in caught.value.construct
    assert caught.value.position == position


def test_the_number_of_states_is_bounded() -> None:
    machine = AlternatingMachine(parse("(a|b)*a(a|b){40}"), state_limit=1000)
    rng = random.Random(0)

    def run() -> None:
        for _ in range(100):
            state = machine.start
            for cls in machine.classes.of_text("".join(rng.choice("ab") for _ in range(40))):
                state = machine.step(state, cls)

    with pytest.raises(StateLimitError, match="1,000 states"):
        run()


@pytest.mark.parametrize(
    ("pattern", "at_most"),
    [
        (r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}", 7),
        (r"\b\d{3}-\d{2}-\d{4}\b", 15),
        (r"\w{1,64}@\w{1,255}\.[a-z]{2,63}", 261),
        (r"(ssn|social).{0,30}\d{4}", 301),
        (r"foo(?!.*bar)", 11),
        (r"\bkill\b(?:\W+\w+){0,10}\W+\bhim\b", 102),
    ],
)
def test_subsumption_keeps_automata_small(pattern: str, at_most: int) -> None:
    machine = AlternatingMachine(parse(pattern))
    seen, stack = {machine.start}, [machine.start]
    while stack:
        state = stack.pop()
        for cls in range(machine.classes.count):
            reached = machine.step(state, cls)
            if reached >= 0 and reached not in seen:
                seen.add(reached)
                stack.append(reached)
    assert len(seen) <= at_most


@pytest.mark.parametrize("seed", range(2))
def test_bytes_and_characters_agree(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        pattern, flags = patterns.valid_pattern(rng)
        machine = AlternatingMachine(parse(pattern, flags))
        automaton = ClassAutomaton(AlternatingMachine(parse(pattern, flags)), absorbing=False)
        for _ in range(5):
            text = patterns.text(rng)
            assert patterns.found_in_bytes(automaton, text) == matches(machine, text), (pattern, flags, text)
