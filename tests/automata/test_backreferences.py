"""Backreferences to finite groups mean what Python's `re` means; all others are refused with the reason."""

from __future__ import annotations

import random
import re

import pytest

from nco_guard.automata import AlternatingMachine
from nco_guard.automata.patterns.backreferences import LIMIT
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.spans.definition import matches
from nco_guard.errors import PatternError

ATOMS = [
    "a",
    "b",
    "[ab]",
    "[abK]",
    "k",
    "[^a]",
    ".",
    r"\b",
    "$",
    "é",
    "-",
    "[-:]?",
    "(?i:k)",
    "ß",
    "(?=a)",
    "(?<=b)",
]
GROUPED = [
    "a",
    "b",
    "[ab]",
    "[abK]",
    "k",
    "a?",
    "a|b",
    "ab|a",
    "|a",
    "[ab]{,2}",
    "[kK\u212a]",
    "é",
    r"\ba",
    "(?i:k)",
]
LETTERS = "aabbkK\u212aéÉ- \nß"
FLAGS = [0, 0, 0, re.IGNORECASE, re.IGNORECASE | re.ASCII, re.MULTILINE]


def pattern(rng: random.Random, depth: int = 4) -> str:
    """A random pattern with groups and references; some are not valid, some cannot be resolved."""
    groups = 0

    def build(depth: int) -> str:
        nonlocal groups
        r = rng.random()
        if groups and r < 0.25:
            number = rng.randint(1, groups)
            return rng.choice([rf"\{number}", rf"(?P=g{number})", rf"(?i:\{number})"])
        if r < 0.45:
            groups += 1
            name = f"g{groups}"
            inner = build(depth - 1) if depth and rng.random() < 0.4 else rng.choice(GROUPED)
            return f"(?P<{name}>{inner})" + rng.choice(["", "", "", "?", "{2}", "??"])
        if depth == 0 or r < 0.55:
            return rng.choice(ATOMS)
        if r < 0.82:
            return build(depth - 1) + build(depth - 1)
        if r < 0.9:
            return f"(?:{build(depth - 1)}|{build(depth - 1)})"
        if r < 0.96:
            return f"(?:{build(depth - 1)}){rng.choice(['?', '*', '+', '{1,2}', '*?'])}"
        return f"{rng.choice(['(?=', '(?!', '(?<=', '(?<!'])}{build(depth - 1)})"

    return build(depth)


def check_against_re(seed: int, count: int, texts: int = 12) -> int:
    """Compares `count` patterns; how many of them were resolved."""
    rng = random.Random(seed)
    resolved = 0
    while count:
        candidate, flags = pattern(rng), rng.choice(FLAGS)
        if not re.search(r"\\[1-9]|\(\?P=", candidate):
            continue
        try:
            expected = re.compile(candidate, flags)
        except re.error:
            continue
        count -= 1
        try:
            machine = AlternatingMachine(parse(candidate, flags))
        except PatternError as error:
            assert error.construct == "a backreference"  # noqa: PT017 - either outcome is right
            continue
        resolved += 1
        for _ in range(texts):
            text = "".join(rng.choice(LETTERS) for _ in range(rng.randint(0, 7)))
            assert matches(machine, text) == (expected.search(text) is not None), (candidate, flags, text)
    return resolved


@pytest.mark.parametrize("seed", range(4))
def test_a_match_exists_exactly_when_re_search_finds_one(seed: int) -> None:
    assert check_against_re(seed, 500) > 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_match_exists_exactly_when_re_search_finds_one_at_length(seed: int) -> None:
    assert check_against_re(seed, 10_000, 20) > 4000


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"\d{4}([-: ])\d\d\1\d\d", ["2024-01-15", "2024 01 15"], ["2024-01:15", "2024-0115"]),
        (r"(?P<q>['\"])x(?P=q)", ["'x'", '"x"'], ["'x\"", "x"]),
        (r"([ab])([cd])\2\1", ["acca", "bddb"], ["acac", "bddа"]),
        (r"(a)?b\1", ["aba"], ["b", "ab", "bb"]),  # a group that took no part matches nothing
        (r"(a|)b\1", ["b", "aba"], ["a"]),  # one that matched nothing matches nothing again
        (r"(?:(a)|(b))x(?:\1|\2)", ["axa", "bxb"], ["axb", "bxa"]),
        (r"(?:([ab])-\1,)+$", ["a-a,b-b,"], ["a-b,", "a-a"]),
        (r"(?i)(k)-\1", ["k-K", "K-\u212a", "\u212a-k"], ["k-x"]),
        (r"(?i:([a-c]))-\1", ["a-a", "A-A"], ["a-A", "b-a"]),
        (r"([a-c])-(?i:\1)", ["a-a", "b-B"], ["A-a", "b-a"]),
        (r"((a|b)c)\2\1", ["acaac", "bcbbc"], ["acbac"]),
        (r"([ab])(?=x\1)", ["axa"], ["axb"]),
        (r"([ab])(?!\1)", ["ab", "a"], ["", "c"]),
        (r"([ab])c(?<=\1c)", ["bc"], ["c"]),
        (r"(?=([ab])\1)a", ["aa"], ["ab", "bb"]),
        (r"([0-9]{2})/\1", ["07/07"], ["07/70"]),
        (r"([a-z]){0}x", ["x"], ["y"]),
    ],
)
def test_what_a_reference_means(pattern: str, yes: list[str], no: list[str]) -> None:
    machine = AlternatingMachine(parse(pattern))
    for text in (*yes, *no):
        assert matches(machine, text) == (text in yes) == (re.search(pattern, text) is not None), text


@pytest.mark.parametrize(
    ("pattern", "position", "reason"),
    [
        (r"(a*)x\1", 5, "without limit"),
        (r"(\d)\1", 4, f"more than {LIMIT}"),
        (r"[\1](?P<n>.)\.(?P=n)", 14, f"more than {LIMIT}"),
        (r"([a-z])([a-z])\2\1", 16, f"more than {LIMIT}"),
        (r"([a-z]{9})\1", 10, f"more than {LIMIT}"),
        (r"(?:([ab])x)+\1", 12, "inside a repeat"),
        (r"(a|b)*\1", 6, "inside a repeat"),
        (r"(?:(a)|b\1)+", 8, "inside a repeat"),
        (r"(?:(a)?b\1)+", 8, "inside a repeat"),
        (r"(?=([ab]))\1", 10, "inside a lookaround"),
        (r"(?!([ab]))c|\1", None, "inside a lookaround"),
    ],
)
def test_what_cannot_be_resolved_is_refused_with_the_reason(
    pattern: str, position: int | None, reason: str
) -> None:
    if position is None:
        # In the other branch the group has taken no part: the reference fails, as in `re`.
        assert not matches(AlternatingMachine(parse(pattern)), "aa")
        return
    with pytest.raises(PatternError, match=reason) as caught:
        parse(pattern)
    assert caught.value.construct == "a backreference"
    assert caught.value.position == position
    assert "write" in caught.value.reason


def test_two_groups_one_after_another_are_not_multiplied() -> None:
    node = parse(r"([a-z])-\1 ([a-z])-\2 ([a-z])-\3 ([a-z])-\4")
    assert matches(AlternatingMachine(node), "see a-a b-b c-c d-d")
    assert not matches(AlternatingMachine(node), "see a-a b-b c-c d-e")
    with pytest.raises(PatternError, match="several groups together"):
        parse(r"([a-z])([a-z])-\1\2")


def test_nested_groups_are_refused_before_they_multiply() -> None:
    body = "x"
    for number in range(8, 0, -1):
        body = rf"([a-p])(?:{body})?\{number}"
    with pytest.raises(PatternError, match="several groups together"):
        parse(body)


def test_a_reference_in_a_long_pattern_keeps_the_automaton_small() -> None:
    machine = AlternatingMachine(parse(r"(?<![0-9])[0-9]{4}([-: /.])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?![0-9])"))
    assert matches(machine, "card 4111-1111-1111-1111")
    assert not matches(machine, "card 4111-1111 1111-1111")
    assert machine.state_count < 60
