"""What a policy leaves of strings and numbers in JSON, against all strings of a few letters, each read by `re`."""

from __future__ import annotations

import itertools
import json
import re

import interegular
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_guard.compiler import compile_policy
from nco_guard.policy import AutomatonRule, Policy, RegexRule, StringRule
from nco_guard.shapes.allowed import HardRules
from nco_guard.shapes.needed import FORMATS, ecma
from tests.properties.reference import Reference, broken
from tests.shapes import formats, judge
from tests.shapes.witness import _PER_FORMAT

LETTERS = "ab1"
# What may stand before the quote of a string, and after it: all short texts of some signs.
AROUND = ["".join(signs) for size in range(3) for signs in itertools.product('ab1": ', repeat=size)]
WORDS = ["".join(letters) for size in range(5) for letters in itertools.product(LETTERS, repeat=size)]
ATOMS = ("a", "b", "1", "[ab]", "[1b]", "[ab1]")
RULES = (
    *(
        "a",
        "1",
        "ab",
        "b1",
        "aa+",
        "a{2}",
        r"\bab\b",
        r"a\b",
        r"\B1",
        "a(?!b)",
        "(?<!a)b",
        "(?<=a)1",
        "a|1b",
        "[^a]1",
    ),
    *(
        r'"a',
        r'b"',
        r'"1"',
        '"',
        r"\Aa",
        r"1\Z",
        "^ab$",
        r'(?<!")b',
        r'a(?!")',
        r"[ab1]{3}",
        r'[^"]{4}',
        r"\w\W",
    ),
)


def hard(*rules: str) -> Policy:
    return Policy(name="p", rules=tuple(RegexRule(id=f"r{n}", regex=each) for n, each in enumerate(rules)))


def free(policy: Policy, text: str) -> bool:
    """Whether a string may stand somewhere: alone, and for each rule between quotes with something around it."""
    if broken(policy, text):
        return False
    return all(
        any(
            re.search(rule.regex, f'{before}"{text}"{behind}') is None
            for before in AROUND
            for behind in AROUND
        )
        for rule in policy.rules
        if isinstance(rule, RegexRule)
    )


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """Patterns all of whose strings are words."""
    parts = draw(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=4))
    options = [each + draw(st.sampled_from(["", "", "?"])) for each in parts]
    other = draw(st.sampled_from([None, *WORDS[:20]]))
    body = "".join(options) if other is None else f"(?:{''.join(options)}|{other})"
    return f"^{body}$"


@settings(max_examples=150, deadline=None)
@given(
    pattern=patterns(),
    rules=st.lists(st.sampled_from(RULES), min_size=1, max_size=3, unique=True),
    data=st.data(),
)
def test_a_string_is_found_if_and_only_if_there_is_one(
    pattern: str, rules: list[str], data: st.DataObject
) -> None:
    low = data.draw(st.sampled_from([0, 0, 1, 3]))
    high = data.draw(st.sampled_from([None, None, 2, 4]))
    policy = hard(*rules)
    verdict = HardRules(compile_policy(policy)).of_strings(pattern, None, low, high)
    assert verdict.decided
    fit = [
        word
        for word in WORDS
        if re.search(pattern, word) and low <= len(word) and (high is None or len(word) <= high)
    ]
    left = [word for word in fit if free(policy, word)]
    if verdict.text is None:
        assert not left
        assert bool(verdict.rule_ids) == bool(fit)  # without a word there is nothing that a rule forbids
    else:
        assert verdict.text in left


@settings(max_examples=150, deadline=None)
@given(
    word=st.sampled_from(WORDS), rules=st.lists(st.sampled_from(RULES), min_size=1, max_size=3, unique=True)
)
def test_a_given_string_is_forbidden_if_and_only_if_it_is(word: str, rules: list[str]) -> None:
    policy = hard(*rules)
    found = HardRules(compile_policy(policy)).of_string(word)
    expected = [
        rule.id for rule in policy.rules if not free(policy.model_copy(update={"rules": (rule,)}), word)
    ]
    assert list(found) == expected


@pytest.mark.parametrize("written", ["true", "false", "null", "1", "11", "-1", "1.5", "1e+20"])
@pytest.mark.parametrize(
    "regex",
    ["1", r"\b1\b", "^1$", r"1\Z", "tru", r"\bnull\b", "e\\b", "N|T", "^F", r":1|: 1", r"[:,\[ ]1[,\]} ]"],
)
def test_literals_are_read_between_signs(written: str, regex: str) -> None:
    alone = any(re.search(regex, form) for form in (written, str(json.loads(written))))
    placed = all(
        re.search(regex, f"{before}{written}{behind}")
        for before in ("", "[", "[1,", '{"a":', '{"a": ', "[\n")
        for behind in ("", "]", ",1]", "}", " }", "\n]")
    )
    assert bool(HardRules(compile_policy(hard(regex))).of_literal(written)) == bool(alone or placed)


@pytest.mark.parametrize(
    ("regex", "kind", "left"),
    [
        (r"\d", "integer", False),
        (r"\d", "number", False),
        (r"[1-9]", "integer", True),
        (r"\b0\b|[1-9]", "integer", False),
        (r"\.", "number", True),
        (r"-|\d\d", "number", True),
    ],
)
def test_numbers_are_searched_as_they_are_written(regex: str, kind: str, left: bool) -> None:
    verdict = HardRules(compile_policy(hard(regex))).of_numbers(kind)
    assert (verdict.text is not None) == left
    if verdict.text is not None:
        assert re.search(regex, verdict.text) is None
        json.loads(verdict.text)


@pytest.mark.parametrize("name", FORMATS)
def test_formats_hold_all_strings_of_the_format(name: str) -> None:
    known = [text for text in _PER_FORMAT if formats._CHECKS[name](text)]
    assert known
    for text in known:
        assert re.fullmatch(FORMATS[name], text), text
        # A rule for this very text leaves others; one for all of the pattern leaves none.
        only = Policy(name="p", rules=(StringRule(id="s", strings=(text,)),))
        assert HardRules(compile_policy(only)).of_strings(format=name).text is not None
    everything = HardRules(compile_policy(hard(r"[\s\S]"))).of_strings(format=name)
    assert everything.rule_ids == ("r0",)


@pytest.mark.parametrize(
    "pattern", ["^a$", ".", r"\s", r"[\s]", r"\S", "[$.]", r"\$", r"\d", r"\w\b", "a$|b"]
)
def test_patterns_are_read_as_ecma_262_has_them(pattern: str) -> None:
    ours = re.compile(ecma(pattern), re.ASCII)
    for text in ("a", "a\n", "b\n", "\n", "\u2028", " ", "\u3000", "\x1c", "$", ".", "é", "٣", "3", "ab", ""):
        assert bool(ours.search(text)) == bool(judge.ecma(pattern).search(text)), text


def test_rules_of_every_kind() -> None:
    rules = (
        StringRule(id="listed", strings=("cat", "dog"), case="fold", whole_word=True),
        StringRule(id="looked", strings=("bird",), confusables="letters", ignore=["-"]),
        RegexRule(id="card", regex=r"\d{16}", checksum="luhn"),
        RegexRule(id="early", regex="secret key", stop_at="secret"),
        RegexRule(id="soft", regex="fish", penalty=2.0),
        RegexRule(id="resolved", regex="owl", json_escapes=True),
        RegexRule(id="asked", regex="cow", context="prompt"),
    )
    policy = Policy(name="kinds", rules=rules)
    found = HardRules(compile_policy(policy))
    for text in (
        "CAT",
        "cats",
        "b-i-r-d",
        "4111111111111111",
        "4111111111111112",
        "secret",
        "fish",
        "owl",
        "o\\u0077l",
        "cow",
    ):
        assert list(found.of_string(text)) == broken(policy, text), text
        verdict = found.of_strings(f"^{re.escape(text)}$")
        assert list(verdict.rule_ids) == broken(policy, text), text
    assert found.of_strings(r"^4\d{15}$").text is not None


def test_a_ready_made_automaton_is_asked_about_strings_alone() -> None:
    fsm = interegular.parse_pattern('a"').to_fsm()
    policy = Policy(name="fsm", rules=(AutomatonRule(id="f", fsm=fsm),))
    assert HardRules(compile_policy(policy)).of_string("a") == ()
    assert HardRules(compile_policy(policy)).of_string('a"') == ("f",)
    assert Reference(policy.rules[0]).blocks('a"')


def test_what_bounds_leave_open_is_no_proof() -> None:
    few = HardRules(compile_policy(hard(r"[ab]{6}")), steps=5)
    assert not few.of_strings("^[ab]{6}$").decided
    assert HardRules(compile_policy(hard(r"[ab]{6}"))).of_strings("^[ab]{6}$").rule_ids == ("r0",)
    assert (
        not few.of_strings(r"(a)\1").decided or few.of_strings(r"(a)\1").text
    )  # a pattern that is not regular
    assert not few.of_strings("(?<name").decided
