"""Checksums of folded numbers: `ignore`, `normalize`, `case` and `json_escapes` together with Luhn and mod 97.

The reference is plain Python: fold the text, take every piece that `re` matches where it stands, add up.
"""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import numpy as np
import pytest

from nco_guard.automata.folding import FoldSpec, fold_text
from nco_guard.compiler import compile_policy
from nco_guard.errors import PatternError
from nco_guard.masking import bruteforce
from nco_guard.policy import Policy, RegexRule
from nco_guard.scan.definition import verify_by_definition
from nco_guard.session import BoundGuard
from tests.automata.checksum_reference import CHECKS, passes_check, valid_spans
from tests.binding import bind

CARD = r"(?<!\d)\d{12,19}(?!\d)"
IBAN = r"\b[A-Z]{2}\d{2}[A-Z0-9]{11,30}\b"
SEPARATORS = ("-", ".", " ")


def rule(regex: str, checksum: Any, **options: Any) -> RegexRule:
    return RegexRule(id="number", regex=regex, checksum=checksum, **options)  # type: ignore[arg-type]


def writes(guard: BoundGuard, text: str) -> bool:
    """Whether the masks let a model write the text and end there."""
    session = guard.session()
    for byte in text.encode():
        if session.mask()[byte]:
            return False
        session.advance(byte)
    return session.may_end


def has_valid_number(number: RegexRule, text: str, check: Any) -> bool:
    folded = fold_text(text, FoldSpec(number.normalize, number.ignore, number.json_escapes))[0]
    flags = int(re.IGNORECASE) if number.case == "fold" else 0
    return bool(valid_spans(number.regex, flags, check, folded))


@pytest.mark.parametrize(
    ("options", "regex", "checksum", "valid", "wrong"),
    [
        ({"ignore": SEPARATORS}, CARD, "luhn", "4111-1111.1111 1111", "4111-1111.1111 1112"),
        ({"ignore": ("-", "zero-width")}, CARD, "luhn", "4111\u200b1111-1111-1111", "4111\u200b1111-1111-1121"),
        ({"normalize": "nfkc"}, CARD, "luhn", "４１１１111111111111", "４１１２111111111111"),
        ({"normalize": "nfkc", "ignore": SEPARATORS}, CARD, "luhn", "④111－1111-1111．1111", "⑤111－1111-1111．1111"),
        ({"json_escapes": True}, CARD, "luhn", "\\u00341111111111 11111".replace(" ", ""), "\\u0035111111111111111"),
        ({"case": "fold"}, IBAN, "mod97", "gb82west12345698765432", "gb83west12345698765432"),
        ({"case": "fold", "ignore": (" ",)}, IBAN, "mod97", "gb82 WEST 12345698765432", "GB82 west 12345698764532"),
        (
            {"normalize": "nfkc", "ignore": SEPARATORS},
            IBAN,
            "mod97",
            "ＧＢ82-WEST12345698765432",
            "ＧＢ28-WEST12345698765432",
        ),
        ({"case": "fold", "normalize": "nfkc"}, IBAN, "mod97", "ｇｂ82west12345698765432", "ｇｂ82west12345698765433"),
    ],
)  # fmt: skip
def test_a_valid_number_is_seen_through_its_disguise_and_a_wrong_one_may_be_written(
    options: dict[str, Any], regex: str, checksum: str, valid: str, wrong: str
) -> None:
    number = rule(regex, checksum, **options)
    assert has_valid_number(number, valid, checksum)
    assert not has_valid_number(number, wrong, checksum)
    guard = bind(number)
    for text, expected in ((valid, False), (wrong, True), (f"no: {valid}!", False), (f"no: {wrong}!", True)):
        assert verify_by_definition(guard.policy, text).ok == expected, text
        assert writes(guard, text) == expected, text
    (found,) = verify_by_definition(guard.policy, f"no: {valid}!").findings
    assert (found.start, found.end) == (4, 4 + len(valid))


PATTERNS: list[tuple[str, str]] = [
    ("luhn", r"\d{2,4}"),
    ("luhn", r"(?<!\d)\d{2,5}(?!\d)"),
    ("luhn", r"\b\d+a?\b"),
    ("mod97", r"[0-9GB]{5,6}"),
    ("mod97", r"\b[A-Z]{2}\d\d\w{1,2}\b"),
    ("mod11_10", r"(?<!\d)\d{2,5}(?!\d)"),
    ("verhoeff", r"\d{2}"),
    ("letters", r"[0-9A-K]{4}"),
    ("last letter", r"\b\d{1,4}[A-Z]\b"),
    ("from the right", r"\b[0-9A]{2,5}\b"),
]
DISGUISES: list[dict[str, Any]] = [
    {"ignore": ("-",)},
    {"ignore": ("-", " ", "zero-width"), "case": "fold"},
    {"normalize": "nfkc"},
    {"normalize": "nfkc", "ignore": ("-", " ")},
    {"json_escapes": True, "ignore": ("-",)},
    {"normalize": "nfkc", "case": "fold", "json_escapes": True},
]
LETTERS = [*"0011549aGBgb- ", "\u200b", "５", "①", "Ｂ", "\\u0035", "\\u003", "٣", "½"]


def valid_numbers(checksum: str, regex: str) -> list[str]:
    """All short ones."""
    return [
        text
        for length in (2, 4, 5)
        for text in map("".join, itertools.product("0159GBA"[: 6 if length > 4 else 7], repeat=length))
        if re.fullmatch(regex, text) and passes_check(CHECKS[checksum], text)
    ]


def agree(checksum: str, regex: str, disguise: dict[str, Any], texts: int) -> None:
    rng = random.Random(checksum + regex)
    number = rule(regex, CHECKS[checksum], **disguise)
    guard = bind(number)
    compiled = compile_policy(guard.policy)
    seen = {True: 0, False: 0}
    numbers = valid_numbers(checksum, regex)
    for _ in range(texts):
        text = "".join(rng.choice(LETTERS) for _ in range(rng.randint(3, 7)))
        if rng.random() < 0.4:
            dash = "-" if "-" in number.ignore else ""
            text = "".join(c + rng.choice(["", "", dash]) for c in rng.choice(numbers))
            text = rng.choice(["", "-", "a", "1"]) + text + rng.choice(["", "-", "a", "1"])
        expected = has_valid_number(number, text, CHECKS[checksum])
        assert verify_by_definition(compiled, text).ok != expected, (disguise, text)
        if expected:
            assert not writes(guard, text), (disguise, text)
        seen[expected] += 1
    assert min(seen.values()) > 0


@pytest.mark.parametrize(
    ("case", "disguise"),
    [(0, DISGUISES[0]), (1, DISGUISES[3]), (3, DISGUISES[1]), (8, DISGUISES[3]), (9, DISGUISES[1])],
    ids=["luhn", "nfkc", "mod97", "last letter", "from the right"],
)
def test_verifier_and_masks_agree_with_plain_python(case: int, disguise: dict[str, Any]) -> None:
    agree(*PATTERNS[case], disguise, 80)


@pytest.mark.slow
@pytest.mark.parametrize(("checksum", "regex"), PATTERNS)
@pytest.mark.parametrize("disguise", DISGUISES, ids=str)
def test_verifier_and_masks_agree_with_plain_python_at_length(
    checksum: str, regex: str, disguise: dict[str, Any]
) -> None:
    # Of so small a vocabulary all tokens are searched for ways out, which takes seconds a text where escapes are read.
    agree(checksum, regex, disguise, 40 if disguise.get("json_escapes") else 400)


def test_masks_equal_the_definition() -> None:
    rng = random.Random(0)
    merges = ("10", "41", "5-", "５", "a4", "GB", "①", "-1", "001", "\u200b1", "\\u00")
    for checksum, regex in (PATTERNS[0], PATTERNS[3]):
        tables = bind(rule(regex, checksum, **DISGUISES[0]), merges=merges).tables
        state = tables.start
        for _ in range(6):
            expected = bruteforce.forbidden(tables.constraints, tables.components(state), tables.vocabulary)
            assert np.flatnonzero(expected).tolist() == tables.forbidden(state).tolist()
            allowed = [i for i in np.flatnonzero(~expected).tolist() if i not in tables.vocabulary.eos_ids]
            if not allowed:
                break
            inside = [i for i in allowed if i >= 256 or chr(i) in "0154aGB- \\u"]
            state = tables.next(state, rng.choice(inside or allowed))


def test_a_pattern_that_asks_for_an_ignored_separator_is_refused_by_name() -> None:
    """Else it would silently never match."""
    with pytest.raises(PatternError) as caught:
        compile_policy(Policy(name="p", rules=(rule(r"\d{4}-\d{4}", "luhn", ignore=("-",)),)))
    assert (caught.value.rule_id, caught.value.construct) == ("number", "U+002D")
