"""The verifier: what it finds, where, and how far a text gets towards a match."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from nco_guard import Guard, Policy, RegexRule, StringRule, verify
from nco_guard.compiler import compile_policy
from nco_guard.policy import presets
from nco_guard.scan import Finding, exposure
from tests.automata import patterns

PATTERNS = [(name, pattern) for name in ("pii", "pii_paper", "secrets") for pattern in presets.patterns(name)]


@pytest.mark.parametrize(("name", "pattern"), PATTERNS, ids=lambda value: getattr(value, "id", value))
def test_preset_examples_hold_for_the_automata_as_for_re(name: str, pattern: presets.Pattern) -> None:
    policy = Policy(
        name="one", rules=(RegexRule(id=pattern.id, regex=pattern.regex, stop_at=pattern.stop_at),)
    )
    compiled = compile_policy(policy)
    for text in pattern.examples.match:
        report = verify(compiled, text)
        assert not report.ok
        first = re.search(pattern.regex, text)
        assert first is not None
        assert report.findings[0].start == first.start()
    for text in pattern.examples.no_match:
        assert verify(compiled, text).ok


def test_a_report_holds_offsets_of_code_points_and_never_text() -> None:
    policy = Policy(
        name="p", rules=(StringRule(id="a", strings=("é",)), RegexRule(id="b", regex=r"\d+", monitor=True))
    )
    report = verify(policy, "😀é12 é")
    assert report.findings == (Finding("a", 1, 2), Finding("b", 2, 4, "monitor"), Finding("a", 5, 6))
    assert [f.rule_id for f in report.violations] == ["a", "a"]
    assert not report.ok
    assert report.length == 6
    assert "é" not in repr(report)


def test_soft_and_monitored_rules_leave_a_text_ok() -> None:
    policy = Policy(
        name="p",
        rules=(StringRule(id="a", strings=("x",), penalty=2), RegexRule(id="b", regex="y", monitor=True)),
    )
    report = verify(policy, "xy")
    assert report.ok
    assert len(report.findings) == 2


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "a" * 10_000, "\U0010ffff"])
def test_any_text_can_be_verified(text: str) -> None:
    assert Guard.from_presets("pii", "ldnoobw").verify(text).length == len(text)


@pytest.mark.parametrize("seed", range(2))
def test_exposure_is_the_longest_stretch_that_can_still_become_a_match(seed: int) -> None:
    """By the definition: some text goes on from the stretch so that a match covers all of it."""
    rng = random.Random(seed)
    letters = "ab1"
    for _ in range(60):
        pattern = "".join(
            rng.choice(["a", "b", "1", "[ab]", r"\d", "a?", "b{1,2}"]) for _ in range(rng.randint(2, 4))
        )
        if re.search(pattern, ""):
            continue
        policy = Policy(name="p", rules=(RegexRule(id="r", regex=pattern),))
        for _ in range(5):
            text = "".join(rng.choice(letters) for _ in range(rng.randint(0, 5)))
            longest = 0
            for start, end in itertools.combinations(range(len(text) + 1), 2):
                goes_on = any(
                    re.compile(pattern).fullmatch(text[start:end] + "".join(more))
                    for length in range(5)
                    for more in itertools.product(letters, repeat=length)
                )
                longest = max(longest, end - start if goes_on else 0)
            found = exposure(policy, text)
            assert (found[0].end - found[0].start if found else 0) == longest, (pattern, text)


def test_a_stop_point_shortens_what_is_exposed() -> None:
    policy = Policy.from_presets("pii")
    (found,) = (e for e in exposure(policy, "SSN: 204-18-8 [hidden]") if e.rule_id == "pii.ssn")
    assert (found.start, found.end) == (5, 13)


def test_random_patterns_are_found_in_random_texts() -> None:
    rng = random.Random(9)
    for _ in range(150):
        pattern, flags = patterns.valid_pattern(rng, 3)
        if flags & ~re.IGNORECASE or re.compile(pattern, flags).search(""):
            continue
        rule = RegexRule(id="r", regex=pattern, case="fold" if flags else "exact")
        try:
            compiled = compile_policy(Policy(name="p", rules=(rule,)))
        except ValueError:
            continue
        text = patterns.text(rng)
        assert verify(compiled, text).ok == (re.search(pattern, text, flags) is None)
