"""Patterns that begin with open classes (`\\D`, `[^,]`, `.`) on empty and short texts, against `verify` and `re`.

Such a class allows what stands for the end of a text, so that conditions seem to hold beyond it.
"""

from __future__ import annotations

import random
import re

import pytest

from nco_guard import Guard
from nco_guard.compiler import compile_policy
from nco_guard.policy import Policy, RegexRule, presets
from nco_guard.scan import Verifier, scanner
from nco_guard.scan.definition import verify_by_definition
from nco_guard.scan.filter import MARGIN
from tests.scan.test_verifier import streamed

OPEN = [
    r"\D",
    r"[^,]",
    r"[^\s]",
    r"(?s:.)",
    ".",
    r"\W",
    r"\S",
    r"[^\x00-\x1f]",
    "[^\u00e9]",
    r"[^a-z]",
    "[\0-\x7f]",
]
ENDS = [r"\d{3}", ";", "@", "END", "x", r"\d", "\0", "é", r"[qz]\d", "$", r"(?!\w)", r"\Z"]
ALPHABET = "ab1x;@ ,\nEND\0é\u0660😀qz9"


def compiled(regex: str, **settings: object) -> Verifier:
    return Verifier(compile_policy(Policy(name="p", rules=(RegexRule(id="r", regex=regex, **settings),))))


@pytest.mark.parametrize("regex", [r"\D{5}\d{3}", r"[^,]{5};", r"[^\s]{6}@", r"(?s).{5}END", ".{4}x"])
@pytest.mark.parametrize(
    "text", ["", "a", "hello", "abcde123 ab;de; abcdef@ abcdeEND wxyzx", "\0" * 40, "é" * 7]
)
def test_open_classes_at_the_front_are_searched(regex: str, text: str) -> None:
    verifier = compiled(regex)
    assert verifier.verify(text) == verify_by_definition(verifier.compiled, text)
    assert [(f.start, f.end) for f in verifier.verify(text).findings] == [
        m.span() for m in re.finditer(regex, text)
    ]


def test_redacting_and_streaming_search_too() -> None:
    guard = Guard(Policy(name="p", rules=(RegexRule(id="r", regex=r"\D{5}\d{3}"),)))
    assert guard.redact("").text == ""
    assert guard.redact("abcde123").text == "[redacted]"
    assert guard.verifier.verify_many(["", "a", "abcde123"])[2].findings != ()


def open_pattern(rng: random.Random) -> str:
    """Fixed in length, so that `re`'s matches are the longest ones."""
    parts = [f"{rng.choice(OPEN)}{{{rng.randint(1, 30 if rng.random() < 0.2 else 7)}}}"]
    if rng.random() < 0.5:
        parts.append(rng.choice(["a", "[^1]", r"\w{2}", "(?:ab|1x)", r"\D"]))
    parts.append(rng.choice(ENDS))
    if rng.random() < 0.2:
        parts.insert(0, rng.choice([r"\b", r"(?<![a-z])", "(?<=[^1])", "(?!ab)", "(?=.)"]))
    return "".join(parts)


@pytest.mark.parametrize("dense", [scanner._DENSE, 0])
@pytest.mark.parametrize("seed", range(4))
def test_random_open_patterns(seed: int, dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone and beside a preset, which shares groups of conditions with them; whole, many together, and in pieces."""
    monkeypatch.setattr(scanner, "_DENSE", dense)
    rng = random.Random(seed)
    found = 0
    for _ in range(50):
        regexes = [open_pattern(rng) for _ in range(rng.randint(1, 3))]
        rules = [RegexRule(id=f"r{i}", regex=regex) for i, regex in enumerate(regexes)]
        if rng.random() < 0.2:
            rules += [rule for rule in presets.load("pii_paper") if isinstance(rule, RegexRule)]
        policy = compile_policy(Policy(name="p", rules=tuple(rules)))
        verifier = Verifier(policy)
        lengths = [0, 1, 2, 3, rng.randint(4, 12), rng.randint(4, 12), MARGIN - 1, MARGIN, MARGIN + 1, 90]
        texts = ["".join(rng.choices(ALPHABET, k=length)) for length in lengths]
        reports = verifier.verify_many(texts)
        for text, report in zip(texts, reports, strict=True):
            assert report == verifier.verify(text) == verify_by_definition(policy, text), (regexes, text)
            assert streamed(verifier, text, rng, 1) == report.findings, (regexes, text)
            for i, regex in enumerate(regexes):
                spans = [(f.start, f.end) for f in report.findings if f.rule_id == f"r{i}"]
                assert spans == [match.span() for match in re.finditer(regex, text)], (regex, text)
            found += len(report.findings)
        context = rng.choice(texts)
        assert verifier.verify(texts[-1], context=context) == verify_by_definition(
            policy, texts[-1], context=context
        )
    assert found > 100
