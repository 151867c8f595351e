"""Presets: their options, their data's origin, and every example beside every pattern."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import re
import uuid
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nco_guard import Guard, Verifier, verify
from nco_guard.compiler import compile_policy
from nco_guard.errors import PolicyError, PresetError
from nco_guard.policy import Policy, RegexRule, StringRule, presets
from nco_guard.policy.presets import Pattern, iban, ldnoobw
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary

PATTERNS = [pattern for name in presets.available() for pattern in presets.patterns(name)]
EARLY = [pattern for pattern in PATTERNS if pattern.early is not None]
STOPPING = [
    pytest.param(pattern, stop, id=f"{pattern.id}, {name}")
    for pattern in PATTERNS
    for name, stop in (("late", pattern.stop_at), ("early", pattern.early and pattern.early.stop_at))
    if stop is not None
]
DATA = files("nco_guard.policy.presets") / "data" / "ldnoobw"


def by_id(pattern: Pattern) -> str:
    return pattern.id


def blocked(pattern: Pattern, text: str) -> bool:
    return any(re.search(one, text) for one in (pattern.regex, pattern.stop_at) if one is not None)


@pytest.mark.parametrize("pattern", PATTERNS, ids=by_id)
class TestExamples:
    def test_the_regex_finds_what_it_is_for(self, pattern: Pattern) -> None:
        assert pattern.examples.match
        for text in pattern.examples.match:
            assert re.search(pattern.regex, text), text

    def test_ordinary_text_is_not_blocked(self, pattern: Pattern) -> None:
        assert pattern.examples.no_match
        for text in pattern.examples.no_match:
            assert not blocked(pattern, text), text
            assert not blocked(pattern, f"A sentence: {text}, and on it goes."), text

    def test_a_value_is_blocked_before_it_is_complete(self, pattern: Pattern) -> None:
        if pattern.stop_at is None:
            assert pattern.id.startswith("pii_paper.")
            return
        for text in (*pattern.examples.stop, *pattern.examples.match):
            assert re.search(pattern.stop_at, text), text
        first = pattern.examples.match[0]
        prefixes = [first[:end] for end in range(len(first) + 1)]
        allowed = next(prefix for prefix, longer in pairwise(prefixes) if blocked(pattern, longer))
        assert pattern.examples.gets_to == allowed
        assert len(allowed) < len(first)

    def test_it_states_what_it_reveals_and_where_its_shape_is_from(self, pattern: Pattern) -> None:
        assert pattern.source
        assert pattern.reveals in pattern.rule().description
        assert pattern.description.endswith(".")


@pytest.mark.parametrize("pattern", EARLY, ids=by_id)
def test_the_early_point_lets_through_less_and_says_what_it_costs(pattern: Pattern) -> None:
    early = pattern.early
    assert early is not None
    for text in (*pattern.examples.match, *pattern.examples.stop):
        assert re.search(early.stop_at, text), text
    first = pattern.examples.match[0]
    ends = range(len(first) + 1)
    assert early.gets_to == first[: next(end for end in ends if re.search(early.stop_at, first[:end])) - 1]
    assert len(early.gets_to) < len(pattern.examples.gets_to or "")
    for text in early.blocks:
        assert re.search(early.stop_at, text), text
        assert not blocked(pattern, text), text
    rule = pattern.rule(stop="early")
    assert (rule.regex, rule.stop_at) == (pattern.regex, early.stop_at)
    assert early.reveals in rule.description


@pytest.mark.parametrize("valid_only", [False, True])
@pytest.mark.parametrize("pattern", EARLY, ids=by_id)
def test_a_guard_lets_a_value_get_as_far_as_it_says(pattern: Pattern, valid_only: bool) -> None:
    early = pattern.early
    assert early is not None
    rule = pattern.rule(stop="early", valid_only=valid_only)
    bound = BoundGuard(compile_policy(Policy(name="p", rules=(rule,))), toy_vocabulary([]))
    session = bound.session()
    for byte in early.gets_to.encode():
        assert not session.mask()[byte]
        session.advance(byte)
    first = pattern.examples.match[0].encode()
    assert session.mask()[first[len(early.gets_to.encode())]]
    # What was written of it is no match, and may stand.
    assert verify(Policy(name="p", rules=(rule,)), early.gets_to).ok
    assert not session.mask()[next(iter(bound.vocabulary.eos_ids))]


def check_inclusion(pattern: Pattern, stop: str, text: str) -> None:
    if re.search(pattern.regex, text):
        assert re.search(stop, text), text


AROUND = st.text(st.sampled_from("0123456789 .,-:/+()@abcfdeGxyzAKZ_\n\u2011é中"), max_size=6)


@pytest.mark.parametrize(("pattern", "stop"), STOPPING)
def test_every_match_holds_a_match_of_stop_at(pattern: Pattern, stop: str) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(before=AROUND, value=st.from_regex(pattern.regex), after=AROUND)
    def inclusion(before: str, value: str, after: str) -> None:
        check_inclusion(pattern, stop, before + value + after)

    inclusion()


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "stop"), STOPPING)
def test_every_match_holds_a_match_of_stop_at_at_length(pattern: Pattern, stop: str) -> None:
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(before=AROUND, value=st.from_regex(pattern.regex), after=AROUND)
    def inclusion(before: str, value: str, after: str) -> None:
        check_inclusion(pattern, stop, before + value + after)

    inclusion()


# Text that has nothing to hide, against all patterns at once.
ORDINARY = (
    "Released 2024-01-15 at 10:30:45.123 (UTC+02:00), build 7.4.12-rc.3, commit "
    "9fceb02d0ae598e95dc970b74767f19372d61af8.",
    "ISBN 978-3-16-148410-0, ISBN-10 0-306-40615-2, ISSN 2049-3630, DOI 10.1000/182, CAS 7732-18-5.",
    "Invoice 2024-000123: 3 x $1,299.99 = $3,899.97; order #112-3456789-1234567; SKU AB-12345-X.",
    "md5 d41d8cd98f00b204e9800998ecf8427e, sha256 "
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "UUID 123e4567-e89b-42d3-a456-426614174000; pi = 3.14159265358979323846; 6.02214076e23; 1/7 = "
    "0.14285714285714285",
    "if (a::b > 0x7fffffff) return x[1:2, ::3]; // see §1.2.3.4 and https://example.com/a/b?c=d&e=f#g",
    "The 1990s, 50-60%, 24/7, 16:9, 4x4, A4, H2O, COVID-19, 3,000,000 people, 2 + 2 = 4, -40 °C, #ff8800.",
    "ids: 1700000000, 1700000000123, 012345678905; range 100-200; coordinates 52.5200, 13.4050; 12.34.56",
    "Ask @alice or @bob.smith; rated 4.5/5 @ 20 users; pkg@1.2.3; user@; ~/file.txt",
    "pip install torch==2.4.1+cu121; python3.11; Ubuntu 22.04; Windows NT 10.0; Mozilla/5.0 (X11; Linux "
    "x86_64)",
    "export TOKEN=<your token>; sk-..., ghp_..., AKIA..., -----BEGIN CERTIFICATE-----, "
    "redis://localhost:6379/0",
    "DE123456789, ATU12345678, FR12345678901; EAN 5012345678900 and 9780306406157; flight LH 1234; Room "
    "B-101",
)


@pytest.mark.parametrize("name", ["pii", "secrets"])
@pytest.mark.parametrize("text", ORDINARY)
def test_everyday_text_is_left_alone(name: str, text: str) -> None:
    assert [pattern.id for pattern in presets.patterns(name) if blocked(pattern, text)] == []


def test_available_presets_can_all_be_loaded_and_described() -> None:
    assert presets.available() == ("ldnoobw", "pii", "pii_paper", "secrets")
    for name in presets.available():
        rules = presets.load(name)
        info = presets.describe(name)
        assert info.name == name
        assert info.description
        assert {rule.id for rule in rules} <= set(info.rules)
        assert all(rule.id.startswith(f"{name}.") and rule.mode == "hard" for rule in rules)
        assert Policy.from_presets(name).rules == rules


def test_presets_together_are_one_policy_that_survives_a_file() -> None:
    policy = Policy.from_presets(*presets.available())
    assert policy.name == "ldnoobw+pii+pii_paper+secrets"
    assert Policy.from_yaml(policy.to_yaml()).digest == policy.digest
    assert Policy.from_presets("pii", name="n", description="d").name == "n"


def test_the_papers_patterns_are_named_for_what_they_are() -> None:
    rules = {rule.id: rule for rule in presets.load("pii_paper")}
    assert list(rules) == ["pii_paper.email", "pii_paper.ssn", "pii_paper.phone", "pii_paper.credit_card"]
    ssn = rules["pii_paper.ssn"]
    assert isinstance(ssn, RegexRule)
    assert ssn.regex == "[0-9]{3}-[0-9]{2}-[0-9]{4}"
    assert "'Phone number'" in ssn.description
    assert ssn.stop_at is None


def test_only_and_except_take_short_names() -> None:
    assert [rule.id for rule in presets.load("pii", only=["ssn", "email"])] == ["pii.email", "pii.ssn"]
    without = presets.load("pii", except_=["ipv4"])
    assert len(without) == len(presets.load("pii")) - 1
    assert without == presets.load("pii", **{"except": ["ipv4"]})


def test_penalty_monitor_and_context_go_to_every_rule() -> None:
    assert {rule.penalty for rule in presets.load("secrets", penalty=3)} == {3.0}
    assert {rule.mode for rule in presets.load("pii", monitor=True)} == {"monitor"}
    assert {rule.context for rule in presets.load("ldnoobw", context="prompt")} == {"prompt"}
    assert {rule.penalty for rule in presets.load("pii", penalty="inf")} == {math.inf}


def test_all_presets_take_the_fields_that_say_how_text_is_folded() -> None:
    escaped = r"maria\u0040example.com"
    assert verify(Policy.from_presets("pii"), escaped).ok
    policy = Policy.from_presets("pii", "ldnoobw", "secrets", json_escapes=True)
    assert [hit.rule_id for hit in verify(policy, escaped).violations] == ["pii.email"]
    assert Guard.from_presets("pii", json_escapes=True).policy == Policy.from_presets(
        "pii", json_escapes=True
    )
    assert {rule.json_escapes for rule in policy.rules} == {True}
    wide = Policy.from_presets("pii", normalize="nfkc", confusables="letters", ignore=["zero-width"])
    assert not verify(wide, "ma\u200bria\uff20example.com").ok
    assert (
        Policy.from_yaml("name: x\nrules: [{preset: pii, json_escapes: true}]").rules
        == policy.rules[: len(presets.load("pii"))]
    )
    with pytest.raises(PolicyError, match="json_escapes"):
        Policy.from_presets("pii", json_escapes="yes")
    with pytest.raises(PresetError, match="whole_word"):
        Policy.from_presets("pii", whole_word=True)


def test_values_can_be_blocked_early() -> None:
    late, early = Policy.from_presets("pii"), Policy.from_presets("pii", stop="early")
    assert Policy.from_presets("pii", stop="late") == late
    assert late.digest == "90223d1321da8622561bf11f81cd95a1b5efa13a9f60e0f8c12c0c7c7a494771"
    assert Policy.from_yaml("name: pii\nrules: [{preset: pii, stop: early}]") == early
    changed = {a.id for a, b in zip(late.rules, early.rules, strict=True) if a != b}
    assert changed == {pattern.id for pattern in EARLY}
    checked = {rule.id: rule for rule in presets.load("pii", stop="early", valid_only=True)}
    for name in ("pii.payment_card", "pii.iban"):
        (pattern,) = (one for one in EARLY if one.id == name)
        rule = checked[name]
        assert isinstance(rule, RegexRule)
        assert pattern.early is not None
        assert (rule.checksum, rule.stop_at) == (pattern.checksum, pattern.early.stop_at)
        assert "none can be begun" in rule.description
    guard = Guard(Policy(name="p", rules=tuple(checked.values())))
    assert [guard.verify(f"4111 1111 1111 111{digit}").ok for digit in (1, 2)] == [False, True]
    schema = Policy.json_schema()["$defs"]
    assert schema["Preset_pii"]["properties"]["stop"]["enum"] == ["late", "early"]
    assert "stop" not in schema["Preset_secrets"]["properties"]


@pytest.mark.parametrize(
    ("name", "options", "hint"),
    [
        ("pij", {}, "ldnoobw, pii, pii_paper, secrets"),
        (3, {}, "ldnoobw, pii"),
        ("pii", {"languages": ["en"]}, "only, except, penalty, monitor, context"),
        ("pii", {"only": ["mail"]}, "did you mean 'email'?"),
        ("pii", {"only": "email"}, "a list"),
        ("pii", {"except": ["ssn", "x"]}, "iban"),
        ("pii", {"only": []}, "forbid nothing"),
        ("ldnoobw", {"languages": ["en", "xx"]}, "zh"),
        ("ldnoobw", {"languages": "en"}, "[en, de]"),
        ("ldnoobw", {"languages": [False]}, "there is no language"),
        ("ldnoobw", {"languages": []}, "a list"),
        ("ldnoobw", {"substring": "yes"}, "true or false"),
        ("pii", {"stop": "soon"}, "late or early"),
        ("pii", {"stop": True}, "late or early"),
        ("secrets", {"stop": "early"}, "only, except, penalty"),
    ],
)
def test_what_a_preset_does_not_have_is_refused_with_a_list(
    name: Any, options: dict[str, Any], hint: str
) -> None:
    with pytest.raises(PresetError) as caught:
        presets.load(name, **options)
    assert hint in str(caught.value)


def test_overrides_are_checked_like_fields() -> None:
    with pytest.raises(PolicyError):
        presets.load("pii", penalty=0)
    with pytest.raises(PolicyError):
        presets.load("pii", penalty=2, monitor=True)


class TestWords:
    def test_the_shipped_files_are_those_of_the_package(self) -> None:
        provenance = json.loads((DATA / "PROVENANCE.json").read_text(encoding="utf-8"))
        assert (provenance["package"], provenance["version"]) == ("naughty-words", "1.2.0")
        assert provenance["license"] == "CC-BY-4.0"
        shipped = {entry.name for entry in DATA.iterdir()} - {"PROVENANCE.json"}
        assert (
            shipped
            == set(provenance["sha256"])
            == {f"{code}.json" for code in ldnoobw.LANGUAGES} | {"LICENSE"}
        )
        for name, digest in provenance["sha256"].items():
            assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == digest, name

    def test_there_are_28_languages_and_403_english_entries(self) -> None:
        assert len(ldnoobw.LANGUAGES) == 28
        assert len(ldnoobw.words("en")) == 403
        assert {rule.id for rule in presets.load("ldnoobw", languages="all")} == {
            *(f"ldnoobw.{code}" for code in ldnoobw.LANGUAGES),
            "ldnoobw.ja.latin",
        }

    @pytest.mark.parametrize("language", ldnoobw.LANGUAGES)
    def test_entries_are_stripped_distinct_and_not_empty(self, language: str) -> None:
        entries = ldnoobw.words(language)
        assert entries
        assert len(set(entries)) == len(entries)
        assert all(entry and entry == entry.strip() for entry in entries)

    def test_english_whole_words_in_any_case_are_the_default(self) -> None:
        (rule,) = presets.load("ldnoobw")
        assert isinstance(rule, StringRule)
        assert (rule.id, rule.case, rule.whole_word) == ("ldnoobw.en", "fold", True)

    def test_languages_are_given_as_in_a_file(self) -> None:
        policy = Policy.from_yaml("name: p\nrules: [{preset: ldnoobw, languages: [no, en, de]}]")
        assert [rule.id for rule in policy.rules] == ["ldnoobw.no", "ldnoobw.en", "ldnoobw.de"]

    @pytest.mark.parametrize("language", ["ja", "ko", "th", "zh"])
    def test_without_spaces_between_words_entries_are_substrings(self, language: str) -> None:
        rule = presets.load("ldnoobw", languages=[language])[0]
        assert not rule.whole_word

    def test_latin_entries_of_japanese_are_whole_words(self) -> None:
        main, latin = presets.load("ldnoobw", languages=["ja"])
        assert isinstance(main, StringRule)
        assert isinstance(latin, StringRule)
        assert latin.strings == ("3p", "sm", "xx")
        assert latin.whole_word
        assert not set(main.strings) & set(latin.strings)

    def test_substring_is_the_papers_setting(self) -> None:
        (rule,) = presets.load("ldnoobw", substring=True)
        assert isinstance(rule, StringRule)
        assert (rule.case, rule.whole_word, len(rule.strings)) == ("exact", False, 403)
        assert "13." in presets.load("ldnoobw", languages=["zh"], substring=True)[0].strings  # type: ignore[union-attr]


def test_the_digits_of_uuids_are_no_cards() -> None:
    """Whatever their version; and what is like one and is not stays a card."""
    rng = random.Random(0)
    verifier = Verifier(Policy(name="p", rules=presets.load("pii", only=["payment_card"])))
    uuids = []
    for number in range(30_000):
        drawn = uuid.UUID(int=rng.getrandbits(128), version=rng.choice([1, 3, 4, 4, 4, 5]))
        uuids.append(f"id {drawn}." if number % 2 else str(drawn).upper())
    assert [
        text for text, report in zip(uuids, verifier.verify_many(uuids), strict=True) if report.findings
    ] == []
    # Digits alone, which random ones hardly are.
    digits = []
    for _ in range(3_000):
        text = "".join(rng.choices("0123456789", k=32))
        head = "".join(rng.choices("abcdef0123456789", k=rng.randint(0, 4)))
        groups = [
            (head + text[:8])[:8],
            text[8:12],
            rng.choice("12345678") + text[13:16],
            "8" + text[17:20],
            "a" * 12,
        ]
        digits.append("-".join(groups))
    assert [
        text for text, report in zip(digits, verifier.verify_many(digits), strict=True) if report.findings
    ] == []
    cards = [
        "4111-1111-1111-1111", "4111 1111 1111 1111", "4111111111111111", "41111111 1111 1111",
        "3782-822463-10005", "a4111-1111-1111-1111", "face4111-1111-1111-1111", "41111111-11111111",
        "4111-1111-11111111",
    ]  # fmt: skip
    assert all(report.findings for report in verifier.verify_many(cards))


def test_uuids_are_no_bank_accounts_and_accounts_stay_ones() -> None:
    rng = random.Random(1)
    (pattern,) = (one for one in presets.patterns("pii") if one.id == "pii.iban")
    verifier = Verifier(Policy(name="p", rules=presets.load("pii", only=["iban"])))
    starts = [
        code for code in map("".join, itertools.product("abcdef", repeat=2)) if code.upper() in iban._BBAN
    ]
    assert starts == ["ad", "ae", "ba", "be", "de", "ee"]
    uuids = [str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(20_000)]
    for _ in range(20_000):  # those that nearly all have the shape of one
        text = "".join(rng.choices("0123456789", k=32))
        for place in (0, 8, 16):
            if rng.random() < 0.5:
                text = text[:place] + rng.choice(starts) + text[place + 2 :]
        text = f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{rng.choice('89')}{text[17:20]}-{text[20:]}"
        uuids.append(text.upper() if rng.random() < 0.5 else text)
    assert [text for text, r in zip(uuids, verifier.verify_many(uuids), strict=True) if r.findings] == []

    texts = []
    for country, structure in iban._BBAN.items():
        for _ in range(20):
            account = "".join(
                rng.choice({"n": "0123456789", "a": "ABCDEF", "c": "0123456789ABCDEF"}[kind])
                for count, kind in re.findall("([0-9]+)([nac])", structure)
                for _ in range(int(count))
            )
            account = ("0" if country == "AD" else account[0]) + account[1:]
            number = country + f"{rng.randint(2, 98):02d}" + account
            for mark in ("", " ", "-"):
                written = mark.join(number[at : at + 4] for at in range(0, len(number), 4))
                texts += [
                    written,
                    f"20240115-{written}",
                    f"deadbeef-{written.lower()}-x",
                    f"a-b-1234-{written},",
                ]
    found = verifier.verify_many(texts)
    assert [text for text, report in zip(texts, found, strict=True) if not report.findings] == []
    assert pattern.stop_at is not None
    assert all(re.search(pattern.stop_at, text) for text in texts)


def test_digits_in_the_middle_of_digests_are_no_cards_when_text_is_verified() -> None:
    rng = random.Random(2)
    (pattern,) = (one for one in presets.patterns("pii") if one.id == "pii.payment_card")
    assert pattern.stop_at is not None
    verifier = Verifier(Policy(name="p", rules=presets.load("pii", only=["payment_card"])))
    card = "4111111111111111"
    digests = []
    for _ in range(2_000):
        before, after = ("".join(rng.choices("0123456789abcdef", k=rng.randint(3, 12))) for _ in range(2))
        digests.append(f"{before}{rng.choice('abcdef')}{card}{rng.choice('abcdef')}{after}")
    assert [text for text, r in zip(digests, verifier.verify_many(digests), strict=True) if r.findings] == []
    assert all(re.search(pattern.stop_at, text) for text in digests)
    for around in (
        "x{}x",
        "dead{}",
        "{}beef",
        "ead{}beef",
        "dead{}bee",
        "dead{} beef",
        "dead {}beef",
        "dead0{}beef",
    ):
        text = around.format(card)
        assert bool(verifier.verify(text).findings) == ("0{}" not in around), text
