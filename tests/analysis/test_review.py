"""What a review says of a policy is true of all short texts, and what is plainly wrong with one is found."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from functools import cache

import interegular
import pytest

from nco_guard import AutomatonRule, Policy, RegexRule, StringRule
from nco_guard.analysis import Remark, policies, review, review_bound
from nco_guard.analysis.blocking import Blocked
from nco_guard.analysis.vacuity import longest_left
from nco_guard.automata import AlternatingMachine
from nco_guard.automata.patterns.parsing import parse
from nco_guard.compiler import CompiledRule, compile_policy
from nco_guard.errors import PolicyError
from nco_guard.policy import Rule, presets
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary
from nco_guard.tokens import Vocabulary
from tests.automata import patterns
from tests.properties.reference import Reference

LETTERS = "aAb1 \u212a"
TEXTS = ["".join(t) for size in range(7) for t in itertools.product("ab1 ", repeat=size)]
FOLDED_TEXTS = ["".join(t) for size in range(4) for t in itertools.product("aAb1 k\u212a", repeat=size)]


def matcher(rule: Rule) -> re.Pattern[str] | None:
    """What blocks, as one pattern of `re`, where that is all of it."""
    folds = rule.normalize != "none" or rule.ignore or rule.json_escapes or rule.confusables != "none"
    if isinstance(rule, AutomatonRule) or folds or getattr(rule, "checksum", "none") != "none":
        return None
    reference = Reference(rule)
    return re.compile(reference.source(stop=True), reference.flags)


def blocked(rule: Rule, texts: tuple[str, ...]) -> frozenset[str]:
    pattern = matcher(rule)
    if pattern is not None:
        return frozenset(text for text in texts if pattern.search(text))
    return frozenset(text for text in texts if Reference(rule).blocks(text))


def check_remarks(policy: Policy, remarks: tuple[Remark, ...], texts: tuple[str, ...]) -> None:
    by_id = {rule.id: rule for rule in policy.rules}
    what = {rule.id: blocked(rule, texts) for rule in policy.rules}
    for remark in remarks:
        if remark.code == "redundant-rule":
            rule, other = remark.rule_ids
            assert by_id[other].mode == "hard"
            assert what[rule] <= what[other], (by_id[rule], by_id[other])
        elif remark.code == "unsatisfiable-rule":
            assert not what[remark.rule_ids[0]], by_id[remark.rule_ids[0]]
        elif remark.code in ("forbids-all-text", "only-short-text"):
            longest = (
                0 if remark.code == "forbids-all-text" else int(re.findall(r"than (\d+)", remark.message)[0])
            )
            together = frozenset().union(*(what[name] for name in remark.rule_ids))
            assert all(text in together for text in texts if len(text) > longest)
    check_dropped(policy, remarks, what, texts)


def check_dropped(
    policy: Policy, remarks: tuple[Remark, ...], what: dict[str, frozenset[str]], texts: tuple[str, ...]
) -> None:
    """Dropping all that is said to be redundant at once changes nothing."""
    dropped = {remark.rule_ids[0] for remark in remarks if remark.code == "redundant-rule"}
    strings: dict[str, set[int]] = {}
    for remark in remarks:
        if remark.code == "redundant-string":
            numbers = {int(n) for n in re.findall(r"strings\[(\d+)\] holds", remark.message)}
            strings[remark.rule_ids[0]] = numbers
    left: set[str] = set()
    for rule in policy.rules:
        if rule.mode != "hard" or rule.id in dropped:
            continue
        if rule.id in strings:
            assert isinstance(rule, StringRule)
            kept = tuple(s for n, s in enumerate(rule.strings) if n not in strings[rule.id])
            if kept:
                left |= blocked(rule.model_copy(update={"strings": kept}), texts)
        else:
            left |= what[rule.id]
    assert left == frozenset().union(*(what[rule.id] for rule in policy.rules if rule.mode == "hard"))


def random_rule(rng: random.Random, name: str, *, fold: bool) -> Rule:
    while True:
        options: dict[str, object] = {"penalty": 2.0} if rng.random() < 0.1 else {}
        if fold and rng.random() < 0.6:
            options |= {
                "normalize": rng.choice(["none", "nfkc"]),
                "ignore": tuple(rng.sample([" ", "1", "b"], rng.randint(0, 1))),
            }
        options |= {"case": rng.choice(["exact", "fold"]), "whole_word": rng.random() < 0.3}
        try:
            if rng.random() < 0.45:
                strings = {
                    "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 4)))
                    for _ in range(rng.randint(1, 3))
                }
                rule: Rule = StringRule(id=name, strings=tuple(sorted(strings)), **options)
            elif rng.random() < 0.1:
                fsm = interegular.parse_pattern(rng.choice(["a(b|1)*1", "[^a]b", "b+1"])).to_fsm()
                rule = AutomatonRule(id=name, fsm=fsm)
            else:
                rule = RegexRule(id=name, regex=patterns.valid_pattern(rng, rng.randint(1, 3))[0], **options)
            compile_policy(Policy(name="probe", rules=(rule,)))
        except PolicyError:
            continue
        return rule


@cache
def counted(fold: bool) -> Counter[str]:
    """Random policies, each remark checked against all short texts; the codes that were met."""
    rng = random.Random(7)
    texts = tuple(FOLDED_TEXTS if fold else TEXTS)
    codes: Counter[str] = Counter()
    for _ in range(25 if fold else 120):
        rules = tuple(random_rule(rng, f"r{i}", fold=fold) for i in range(rng.randint(1, 4)))
        policy = Policy(name="random", rules=rules)
        remarks = review(policy)
        codes.update(remark.code for remark in remarks)
        check_remarks(policy, remarks, texts)
    return codes


@pytest.mark.parametrize("fold", [False, True])
def test_what_is_said_of_random_policies_holds_for_all_short_texts(fold: bool) -> None:
    codes = counted(fold)
    assert codes["redundant-rule"] > 5
    assert fold or min(codes["redundant-string"], codes["unsatisfiable-rule"]) > 2


def remarks_of(*rules: Rule, **options: object) -> dict[str, Remark]:
    found = review(Policy(name="test", rules=rules, **options))
    assert len({remark.code for remark in found}) == len(found), found
    return {remark.code: remark for remark in found}


@pytest.mark.parametrize(
    "regex", [r"a\bb", r"x(?=y)z", r"(?<=a)(?<!a)b", r"a^b", r"\d(?!\d)\d", "[^\\s\\S]", r"(?=ab)ac"]
)
def test_a_pattern_that_can_never_match_is_found(regex: str) -> None:
    found = remarks_of(RegexRule(id="never", regex=regex), StringRule(id="other", strings=("zebra",)))
    assert found.keys() == {"unsatisfiable-rule"}
    assert found["unsatisfiable-rule"].rule_ids == ("never",)


@pytest.mark.parametrize(
    "regex", [r"a\b.b", "(?s)x.{600}y", r"(a|b)*a(a|b){12}c", r"\b\d{3}-\d{2}-\d{4}\b", "[\ud7ff-\ue000]z"]
)
def test_a_pattern_that_can_match_is_not_said_to_be_unsatisfiable(regex: str) -> None:
    assert "unsatisfiable-rule" not in {
        r.code for r in review(Policy(name="p", rules=[RegexRule(id="a", regex=regex)]))
    }


def test_a_stop_point_that_never_holds_is_named() -> None:
    found = remarks_of(RegexRule(id="never", regex=r"a\bb\d", stop_at=r"a\bb"))
    assert "stop_at" in found["unsatisfiable-rule"].message


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (RegexRule(id="n", regex=r"\d{3}-\d{2}"), RegexRule(id="w", regex=r"\d")),
        (RegexRule(id="n", regex=r"ass[a-z]+ole"), StringRule(id="w", strings=("zebra", "ass"))),
        (StringRule(id="n", strings=("assist", "classes")), StringRule(id="w", strings=("ass",))),
        (StringRule(id="n", strings=("ass",), whole_word=True), StringRule(id="w", strings=("ass",))),
        (StringRule(id="n", strings=("ASS",)), StringRule(id="w", strings=("ass",), case="fold")),
        (StringRule(id="n", strings=("12", "34")), RegexRule(id="w", regex=r"[0-9]+\d")),
        (RegexRule(id="n", regex="x{5}"), RegexRule(id="w", regex="x{2}", normalize="nfkc")),
        (StringRule(id="n", strings=("fuck",), ignore=("*",)), RegexRule(id="w", regex="f.*u.*c.*k")),
        (RegexRule(id="n", regex=r"\d{16}", checksum="luhn"), RegexRule(id="w", regex=r"\d{12}")),
        (RegexRule(id="n", regex="secret", penalty=3.0), StringRule(id="w", strings=("secret",))),
        (RegexRule(id="n", regex=r"b\d+", stop_at=r"b\d"), RegexRule(id="w", regex=r"b")),
        (RegexRule(id="n", regex="ab", context="prompt"), RegexRule(id="w", regex="ab", context="prompt")),
    ],
)  # fmt: skip
def test_a_rule_within_another_is_redundant_and_the_wider_is_not(narrow: Rule, wide: Rule) -> None:
    policies = [(narrow, wide), (wide, narrow)]
    # Of two rules that say the same, the later one is.
    for rules in policies[1:] if narrow.context == "prompt" else policies:
        redundant = [r for r in review(Policy(name="p", rules=rules)) if r.code == "redundant-rule"]
        assert [r.rule_ids for r in redundant] == [("n", "w")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (StringRule(id="n", strings=("class",)), StringRule(id="w", strings=("ass",), whole_word=True)),
        (StringRule(id="n", strings=("ass",), case="fold"), StringRule(id="w", strings=("ass",))),
        (RegexRule(id="n", regex="secret"), RegexRule(id="w", regex="secret", penalty=2.0)),
        (RegexRule(id="n", regex="secret"), RegexRule(id="w", regex="secret", monitor=True)),
        (RegexRule(id="n", regex="abc", context="prompt"), RegexRule(id="w", regex="ab", context="prompt")),
        (RegexRule(id="n", regex="abc"), RegexRule(id="w", regex="ab", context="prompt")),
        (RegexRule(id="n", regex="a+b"), RegexRule(id="w", regex="a{3}b")),
    ],
)
def test_a_rule_that_forbids_more_in_some_text_is_not_redundant(one: Rule, other: Rule) -> None:
    assert ("n", "w") not in [
        r.rule_ids for r in review(Policy(name="p", rules=(one, other))) if r.code == "redundant-rule"
    ]


def test_strings_that_add_nothing_are_counted_and_not_shown() -> None:
    every = review(
        Policy(
            name="p",
            rules=(
                StringRule(id="list", strings=("ass", "class", "Ass", "zebra"), case="fold"),
                StringRule(id="more", strings=("zebras", "heron")),
            ),
        )
    )
    messages = [remark.message for remark in every if remark.code == "redundant-string"]
    assert messages[0].startswith("2 strings add nothing to rule 'list': strings[1] holds strings[0]")
    assert "strings[0] holds strings[3] of 'list'" in messages[1]
    assert "zebra" not in repr(every)


def test_rules_that_leave_no_text_are_named_and_no_others() -> None:
    rules = (
        StringRule(id="zebra", strings=("zebra",)),
        RegexRule(id="word", regex=r"\w"),
        RegexRule(id="other", regex=r"\W"),
    )
    found = [r for r in review(Policy(name="p", rules=rules)) if r.code == "forbids-all-text"]
    assert [r.rule_ids for r in found] == [("word", "other")]
    (only,) = review(Policy(name="p", rules=(RegexRule(id="any", regex=r"[\s\S]"),)))
    assert (only.code, only.rule_ids) == ("forbids-all-text", ("any",))
    short = review(
        Policy(name="p", rules=(RegexRule(id="w", regex=r"\w{3}"), RegexRule(id="n", regex=r"\W")))
    )
    assert [(r.code, r.rule_ids) for r in short] == [("only-short-text", ("w", "n"))]
    assert "more than 2 code points" in short[0].message


@pytest.mark.parametrize(
    ("regexes", "longest"),
    [
        ([r"[\s\S]"], 0), ([r"(?s)..."], 2), ([r"a"], None), ([r"[^ab]", "aa", "bb", "aba"], 3),
        ([r"[^ab]", "aa", "bb"], None), ([r"[^a]", r"\Baa\b"], 2), ([r"[^a]", r"aa\Z"], 1),
    ],
)  # fmt: skip
def test_the_longest_text_that_is_left_is_found(regexes: list[str], longest: int | None) -> None:
    assert longest_left([AlternatingMachine(parse(regex)) for regex in regexes]) == longest


def test_a_fallback_that_the_rules_forbid_is_found() -> None:
    rule = StringRule(id="sorry", strings=("sorry",), case="fold")
    found = remarks_of(rule, on_dead_end="fallback", fallback="Sorry")
    assert found["forbidden-fallback"].rule_ids == ("sorry",)
    assert not remarks_of(rule, on_dead_end="fallback", fallback=".")


def test_a_rule_whose_states_go_on_growing_is_expensive_and_usual_ones_are_not() -> None:
    found = remarks_of(
        RegexRule(id="big", regex=r"(?s)a.{14}c"),
        RegexRule(id="usual", regex=r"(ssn|social).{0,30}\d{4}"),
    )
    assert found.keys() == {"expensive-rule"}
    assert found["expensive-rule"].rule_ids == ("big",)


@pytest.mark.parametrize(
    "rule",
    [
        RegexRule(id="gap", regex=r"a.{18}b"),
        RegexRule(id="iban", regex=r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]){4,10}", checksum="mod97"),
    ],
    ids=lambda rule: rule.id,
)
def test_rules_that_texts_can_lead_to_their_limits_are_named(rule: RegexRule) -> None:
    found = remarks_of(rule)["expensive-rule"]
    assert found.rule_ids == (rule.id,)
    assert "anchor" in found.advice


def test_a_proof_that_meets_its_bound_says_so_in_a_note() -> None:
    # An exponent that no bound reaches, and whose two halves differ by one character.
    found = review(
        Policy(
            name="p",
            rules=(
                RegexRule(id="a", regex="x(a|b)*a(a|b){14}c"),
                RegexRule(id="b", regex="(a|b)*a(a|b){14}c"),
            ),
        )
    )
    undecided = [r for r in found if r.code == "not-decided"]
    assert {r.level for r in undecided} <= {"note"}
    assert [r.code for r in found if r.code == "redundant-rule"] or undecided


def test_presets_have_no_warnings() -> None:
    for name in presets.available():
        assert [r for r in review(Policy.from_presets(name)) if r.level == "warning"] == [], name


def test_a_vocabulary_that_can_write_nothing_under_the_rules_is_found() -> None:
    compiled = compile_policy(Policy(name="p", rules=(RegexRule(id="letters", regex="[a-z]"),)))
    letters = Vocabulary.build([b"a", b"zebra", b""], eos_ids=[2])
    assert [r.code for r in review_bound(BoundGuard(compiled, letters))] == ["nothing-to-write"]
    assert review_bound(BoundGuard(compiled, toy_vocabulary())) == ()


def test_short_strings_are_odd_where_words_are_longer() -> None:
    latin, chinese = (
        StringRule(id="latin", strings=("xx", "zebra")),
        StringRule(id="zh", strings=("下流", "酒")),
    )
    assert remarks_of(latin, chinese)["short-string"].rule_ids == ("latin",)
    assert not remarks_of(StringRule(id="word", strings=("xx",), whole_word=True), chinese)


@pytest.mark.parametrize("options", [{"languages": "all"}, {"languages": "all", "context": "prompt"}])
def test_all_languages_together_have_no_warnings(options: dict[str, object]) -> None:
    policy = Policy.model_validate({"name": "p", "rules": [{"preset": "ldnoobw", **options}]})
    assert {remark.level for remark in review(policy)} <= {"note"}


def test_rules_with_check_digits_are_known_to_be_satisfiable() -> None:
    policy = Policy.model_validate({"name": "p", "rules": [{"preset": "pii", "valid_only": True}]})
    # Which card numbers pass depends on every digit so far: that one does cost states.
    assert [(remark.code, remark.rule_ids) for remark in review(policy)] == [
        ("expensive-rule", ("pii.payment_card",))
    ]


@pytest.mark.parametrize("regex", ["a{8000}", "a{65535}"])
def test_rules_that_count_very_far_are_reviewed_within_a_bound(regex: str) -> None:
    """Bounded by what is compared, never by a clock: a state of such a rule has thousands of threads."""
    told: list[str] = []
    remarks = review(Policy(name="p", rules=(RegexRule(id="r", regex=regex),)), progress=told.append)
    assert "expensive-rule" in [remark.code for remark in remarks]
    assert "unsatisfiable-rule" not in [remark.code for remark in remarks]
    assert any("rule 1 of 1" in what for what in told)


def test_of_a_long_number_that_ends_in_a_check_letter_one_that_passes_is_found() -> None:
    rule = RegexRule(
        id="n", regex="[0-9]{2000}[A-Z]", checksum={"modulus": 23, "check": "TRWAGMYFPDXBNJZSQVHLCKE"}
    )
    example = Blocked(CompiledRule(rule)).example
    assert example is not None
    assert example == "0" * 2000 + "T"


EXTREME = [
    RegexRule(id="ignores", regex="a{65535}", ignore=["-"]),
    RegexRule(id="checked", regex="[0-9]{2000}", checksum="luhn"),
    RegexRule(id="gap", regex=".{4000}x"),
    RegexRule(id="choice", regex="(a|b){3000}c"),
    RegexRule(id="nested", regex="(?:[a-z]{50}){50}"),
    RegexRule(id="escapes", regex="a{8000}", json_escapes=True),
]


def test_rules_that_count_very_far_are_reviewed_together_within_a_bound() -> None:
    """Each alone has one, and so has the review of all of them."""
    remarks = review(Policy(name="p", rules=EXTREME))
    assert {"gap", "nested", "checked"} <= {r.rule_ids[0] for r in remarks if r.code == "expensive-rule"}
    assert "bound-met" not in [remark.code for remark in remarks]


def test_a_review_that_meets_its_bound_says_so_and_nothing_that_it_did_not_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policies, "_WORK", 3_000_000)
    plain = RegexRule(id="plain", regex="[ab]c")
    remarks = review(Policy(name="p", rules=[*EXTREME, plain]))
    (met,) = (remark for remark in remarks if remark.code == "bound-met")
    assert "not all of this policy was decided within 3,000,000 steps of work" in met.message
    assert (met.level, met.rule_ids) == ("note", ())
    assert not [remark for remark in remarks if "plain" in remark.rule_ids and remark.level == "warning"]
    assert {remark.code for remark in remarks} <= {"bound-met", "not-decided", "expensive-rule"}
