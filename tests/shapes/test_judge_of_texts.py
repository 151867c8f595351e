"""The judge of finished texts is right itself: what it says of texts whose faults are known."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from tests.shapes.formats import FORMATS
from tests.shapes.judge import Fault, ecma, faults, is_multiple, leaves, parse, printed

WORD: Rule = StringRule(id="word", strings=["ab"])
DIGITS: Rule = RegexRule(id="digits", regex=r"\d{4}")
OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}

CASES: list[tuple[Any, tuple[Rule, ...], str, set[tuple[str, str]]]] = [
    (OBJECT, (), '{"a": "x"}', set()),
    (OBJECT, (), '{"a": "x"', {("json", "JSONDecodeError")}),
    (OBJECT, (), '{"a": "x"} .', {("json", "JSONDecodeError")}),
    (True, (), "NaN", {("json", "ValueError")}),
    (True, (), "", {("json", "JSONDecodeError")}),
    (True, (), '"a\nb"', {("json", "JSONDecodeError")}),
    (OBJECT, (), "{}", {("schema", "required")}),
    (OBJECT, (), '{"a": 1}', {("schema", "type")}),
    (OBJECT, (), '{"a": "x", "b": 1}', {("schema", "additionalProperties")}),
    (OBJECT, (), '{"a": 1, "a": "x"}', {("twice", "keys")}),
    ({}, (), '[{"b": {"a": 1, "\\u0061": 2}}]', {("twice", "keys")}),
    ({}, (), '"\\ud83d"', {("surrogate", "string")}),
    ({}, (), '{"\\ude00": 1}', {("surrogate", "key")}),
    ({}, (), '"\\ud83d\\ude00"', set()),
    # Rules: in the text, and in each thing that it says.
    ({}, (WORD,), '"cab"', {("raw", "word"), ("string", "word")}),
    ({}, (WORD,), '"c\\u0061b"', {("read", "word"), ("string", "word")}),
    ({}, (WORD,), '{"\\u0061b": 1}', {("read", "word"), ("key", "word")}),
    ({}, (StringRule(id="end", strings=['b"']),), '["\\u0062"]', {("read", "end")}),
    ({}, (WORD,), '{"ab": 1, "ab": 2}', {("twice", "keys"), ("raw", "word"), ("key", "word")}),
    ({}, (WORD,), '"ab', {("json", "JSONDecodeError"), ("raw", "word")}),
    ({}, (DIGITS,), "[4.1e3]", {("number", "digits")}),
    ({}, (DIGITS,), "[41e2]", {("number", "digits")}),
    ({}, (DIGITS,), "[410]", set()),
    ({}, (RegexRule(id="nul", regex=r"\x00"),), '"\\u0000"', {("read", "nul"), ("string", "nul")}),
    ({}, (RegexRule(id="line", regex="^a"),), '["a"]', {("edge", "line")}),
    ({}, (RegexRule(id="line", regex=r"\d$"),), "[12, 3]", {("edge", "line")}),
    ({}, (RegexRule(id="line", regex=r"^\["),), "[12]", {("raw", "line")}),
    ({}, (StringRule(id="heard", strings=["x"], monitor=True),), '"x"', set()),
    ({}, (StringRule(id="dear", strings=["x"], penalty=2.0),), '"x"', set()),
    # Numbers, as they are written and as floats.
    ({"multipleOf": 0.1}, (), "0.3", {("floats", "multipleOf")}),
    ({"multipleOf": 0.5}, (), "1.5", set()),
    ({"multipleOf": 0.5}, (), "1.7", {("schema", "multipleOf")}),
    ({"multipleOf": 0.5}, (), "1e999", {("floats", "overflow")}),
    ({"type": "integer"}, (), "1.0", set()),
    ({"type": "integer"}, (), "1.5", {("schema", "type")}),
    ({"type": "integer"}, (), "1.00000000000000000001", {("exact", "type")}),
    ({"maximum": 1}, (), "1.00000000000000000001", {("exact", "maximum")}),
    ({"maximum": 1}, (), "1e99999999999999999999", {("schema", "maximum")}),
    ({"type": "integer"}, (), "true", {("schema", "type")}),
    ({"const": 1}, (), "1.0", set()),
    ({"const": 1}, (), "true", {("schema", "const")}),
    ({"enum": ["a", None]}, (), "null", set()),
    # Patterns, as ECMA-262 reads them.
    ({"pattern": "^a$"}, (), '"a"', set()),
    ({"pattern": "^a$"}, (), '"a\\n"', {("exact", "pattern")}),
    ({"pattern": r"^\d$"}, (), '"٣"', {("exact", "pattern")}),
    ({"pattern": "b"}, (), '"abc"', set()),
    ({"maxLength": 1}, (), '"\\ud83d\\ude00"', set()),
    ({"format": "date"}, (), '"2023-02-29"', {("schema", "format: date")}),
    ({"format": "no-such"}, (), '"?"', set()),
    ({"$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["v"]}}, "$ref": "#/$defs/n"},
     (), '{"v": 1, "n": {}}', {("schema", "required")}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "rules", "text", "expected"), CASES)
def test_what_is_wrong_with_a_text(
    schema: Any, rules: tuple[Rule, ...], text: str, expected: set[tuple[str, str]]
) -> None:
    policy = Policy(name="p", rules=rules) if rules else None
    found = faults(schema, policy, text)
    assert {(fault.kind, fault.what) for fault in found} == expected
    assert len(set(found)) == len(found)
    assert all(isinstance(fault, Fault) for fault in found)


def test_nothing_that_is_written_is_lost() -> None:
    parsed = parse('{"a": [1.50, "x", {"a": null, "a": true}], "b": -0.0}')
    assert [*leaves(parsed)] == [
        ("key", "a"), ("number", "1.5"), ("string", "x"), ("key", "a"), ("literal", "null"), ("literal", "None"),
        ("key", "a"), ("literal", "true"), ("literal", "True"), ("key", "b"), ("number", "-0.0"), ("number", "0"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("literal", "shown"),
    [
        ("12", ["12"]),
        ("1e2", ["100.0", "100"]),
        ("0.10", ["0.1"]),
        ("1e22", ["1e+22"]),
        ("1E400", ["inf", "Infinity"]),
        ("-0", ["0"]),
    ],
)
def test_how_a_number_prints(literal: str, shown: list[str]) -> None:
    assert printed(literal) == shown


@settings(max_examples=300, deadline=None)
@given(
    st.integers(-(10**6), 10**6),
    st.integers(-6, 6),
    st.sampled_from(["2", "3", "5", "0.5", "0.25", "0.1", "1.5", "0.001"]),
)
def test_multiples_are_those_of_fractions(digits: int, exponent: int, divisor: str) -> None:
    exact = Fraction(digits) * Fraction(10) ** exponent
    value = Decimal(f"{digits}e{exponent}")
    assert is_multiple(value, Decimal(divisor)) == ((exact / Fraction(divisor)).denominator == 1)


def test_multiples_of_numbers_far_away() -> None:
    assert is_multiple(Decimal("3e100000"), 3)
    assert is_multiple(Decimal("3e100000"), Decimal("0.7")) is False
    assert is_multiple(Decimal("7e100000"), Decimal("0.7"))
    assert not is_multiple(Decimal("1e-100000"), Decimal("0.1"))
    assert is_multiple(Decimal("0e-100000"), 3)
    assert is_multiple(Decimal("1" + "0" * 900 + "e-900"), 1)


@pytest.mark.parametrize(
    ("pattern", "takes", "leaves_out"),
    [
        (r"^\s$", "\u00a0", "x"),
        (r"^[\s]$", "\ufeff", "s"),
        (r"^.$", "a", "\u2028"),
        (r"^[.$]$", "$", "a"),
        (r"\$", "$", "\\"),
        (r"^\w+$", "a1_", "é"),
    ],
)
def test_patterns_are_read_as_ecma_has_them(pattern: str, takes: str, leaves_out: str) -> None:
    assert ecma(pattern).search(takes)
    assert not ecma(pattern).search(leaves_out)


GOOD_AND_BAD = {
    "date": (
        ["2024-02-29", "0000-01-01"],
        ["2023-02-29", "2100-02-29", "2024-13-01", "2024-1-01", "20240101", "٢٠٢٤-01-01"],
    ),
    "time": (
        ["12:30:00Z", "23:59:60Z", "01:59:60+02:00", "12:00:00.5-08:00"],
        ["12:30:00", "24:00:00Z", "22:59:60Z", "12:30Z", "12:30:00+24:00"],
    ),
    "date-time": (["2024-02-29T12:30:00Z", "2024-02-29t12:30:00z"], ["2024-02-29 12:30:00Z", "2023-02-29T12:30:00Z"]),
    "duration": (["P1D", "PT1H30M", "P4W", "P1Y2M3DT4H5M6S"], ["P", "PT", "P1", "P1D2H", "P1Y2W", "PT1D", "P1YT"]),
    "email": (
        ["a@b.com", '"a b"@b.com', "a+b@[127.0.0.1]", "a@b"],
        ["a", "@b", "a@", ".a@b.com", "a..b@b.com", "a b@b.com", "a@b_c"],
    ),
    "hostname": (["a", "a-b.com", "0.1"], ["", "-a", "a-", "a..b", "a_b", "a" * 64, "é"]),
    "ipv4": (["127.0.0.1", "0.0.0.0"], ["256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5", "1.2.3.٤"]),
    "ipv6": (
        ["::", "::1", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4"],
        [":", "1::2::3", "::12345", "fe80::1%eth0", "1:2:3:4:5:6:7"],
    ),
    "uuid": (
        ["0f9e8d7c-6b5a-4c3d-8e2f-1a0b9c8d7e6f"],
        ["0f9e8d7c6b5a4c3d8e2f1a0b9c8d7e6f", "0f9e8d7c-6b5a-4c3d-8e2f-1a0b9c8d7e6g"],
    ),
    "uri": (
        ["https://a.com/b?c=d#e", "a:b", "mailto:a@b", "http://[::1]:80/", "urn:a:b"],
        ["", "a", "/a", "//a.com", "http://a b", "http://a.com/%4", "http://[::z]/", "1a:b", "a:\\"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD_AND_BAD)
def test_formats_are_those_of_their_documents(name: str) -> None:
    good, bad = GOOD_AND_BAD[name]
    assert [text for text in good if not FORMATS.conforms(text, name)] == []
    assert [text for text in bad if FORMATS.conforms(text, name)] == []
    assert FORMATS.conforms(12, name)
