"""A text in parts: what is in any part alone, and what is in all of them joined."""

from __future__ import annotations

import random

import pytest

from nco_guard import Guard, Policy, RegexRule, StringRule, Verifier, verify
from nco_guard.errors import ArgumentError
from nco_guard.scan.definition import verify_by_definition
from tests.masking import random_policies

WORD = RegexRule(id="word", regex=r"\bass\b")
PLAIN = StringRule(id="plain", strings=["assume"])
GUARD = Guard(Policy(name="p", rules=[WORD, PLAIN]))


def said(parts: list[str], context: str = "") -> list[tuple[str, int, int, int | None]]:
    report = GUARD.verify(parts=parts, context=context)
    return [(f.rule_id, f.start, f.end, f.part) for f in report.findings]


def test_a_match_that_only_one_reading_has_is_found_and_names_its_part() -> None:
    assert said(["ass", "ume"]) == [("word", 0, 3, 0), ("plain", 0, 6, None)]
    assert said(["I ", "ass", "ume"]) == [("word", 2, 5, 1), ("plain", 2, 8, None)]
    assert said(["my ass", ", too"]) == [("word", 3, 6, 0)]
    assert said(["an as", "s."]) == [("word", 3, 6, None)]
    assert said([]) == []
    assert GUARD.verify(parts=["a", "b"]).length == 2


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_definition_of_each_part_and_of_all_joined(seed: int) -> None:
    rng = random.Random(seed)
    policy = random_policies.policy(rng)
    for _ in range(10):
        parts = [random_policies.string(rng) * rng.randint(0, 2) for _ in range(rng.randint(1, 4))]
        prompt = random_policies.string(rng) if rng.random() < 0.4 else ""
        report = verify(policy, parts=parts, context=prompt)
        begin, alone = 0, set()
        for number, part in enumerate(parts):
            for f in verify_by_definition(policy, part, context="" if number else prompt).findings:
                alone.add((f.rule_id, f.start + begin, f.end + begin))
                assert any(
                    (g.rule_id, g.start, g.end, g.part) == (f.rule_id, f.start + begin, f.end + begin, number)
                    for g in report.findings
                )
            begin += len(part)
        whole = verify_by_definition(policy, "".join(parts), context=prompt)
        joined = {(f.rule_id, f.start, f.end) for f in whole.findings}
        assert {(f.rule_id, f.start, f.end) for f in report.findings} == alone | joined
        assert {(f.rule_id, f.start, f.end) for f in report.findings if f.part is None} == joined - alone


def test_one_part_is_a_text() -> None:
    for text in ("my ass", "assume", ""):
        one, other = GUARD.verify(text), GUARD.verify(parts=[text])
        assert [(f.rule_id, f.start, f.end) for f in one.findings] == [
            (f.rule_id, f.start, f.end) for f in other.findings
        ]


def test_what_is_no_text_and_no_parts_is_refused_by_name() -> None:
    verifier = Verifier(GUARD.policy)
    for call in (
        lambda: verifier.verify(),
        lambda: verifier.verify("a", parts=["a"]),
        lambda: verifier.verify(parts="ab"),
        lambda: verifier.verify(parts=["a", 3]),
    ):
        with pytest.raises(ArgumentError, match=r"text|parts"):
            call()
