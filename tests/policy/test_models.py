"""Rules and policies: what is accepted, what is refused, and how errors name the place."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import pickle
import re
from typing import Any, get_args, get_type_hints

import interegular
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interegular.fsm import FSM, Alphabet, anything_else
from pydantic import ValidationError

from nco_guard.automata import CHECKSUMS, FoldSpec, folding
from nco_guard.automata.patterns.look_alikes import with_look_alikes
from nco_guard.errors import NCOGuardError, PatternError, PolicyError
from nco_guard.policy import AutomatonRule, Policy, RegexRule, Rewind, Rule, StringRule
from nco_guard.policy._checks import IGNORABLE_SETS
from nco_guard.policy.check_digits import ChecksumName

SECRET = "Zanzibar-Quux"


def automaton(regex: str) -> FSM:
    return interegular.parse_pattern(regex).to_fsm()


def refusal(kind: Any, /, **fields: Any) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        kind(**fields)
    assert isinstance(caught.value, ValueError)
    assert not isinstance(caught.value, ValidationError)
    return caught.value


def test_defaults_are_a_hard_exact_rule_on_the_output() -> None:
    rule = StringRule(id="r", strings=("x",))
    assert (rule.penalty, rule.monitor, rule.case, rule.whole_word) == (math.inf, False, "exact", False)
    assert (rule.normalize, rule.ignore, rule.stop_at, rule.context) == ("none", (), None, "output")
    assert (rule.confusables, rule.json_escapes) == ("none", False)
    assert rule.mode == "hard"


def test_mode_follows_penalty_and_monitor() -> None:
    assert RegexRule(id="r", regex="a", penalty=2).mode == "soft"
    assert RegexRule(id="r", regex="a", monitor=True).mode == "monitor"
    assert RegexRule(id="r", regex="a", penalty=math.inf).mode == "hard"
    assert RegexRule(id="r", regex="a", context="prompt").context == "prompt"


@pytest.mark.parametrize(
    ("penalty", "hint"),
    [
        (0, "above 0"),
        (-1.5, "above 0"),
        (-math.inf, "above 0"),
        (math.nan, "NaN"),
        (True, "not bool"),
        ("4", "number"),
        (None, "not NoneType"),
        (10**400, "too large"),
    ],
)
def test_a_penalty_is_a_positive_number(penalty: Any, hint: str) -> None:
    error = refusal(StringRule, id="r", strings=["x"], penalty=penalty)
    assert (error.rule_id, error.field) == ("r", "penalty")
    assert hint in str(error)


def test_a_monitor_rule_has_no_finite_penalty() -> None:
    assert refusal(StringRule, id="r", strings=["x"], monitor=True, penalty=1).field == "penalty"


FOLDING: dict[str, Any] = {
    "normalize": "nfkc",
    "ignore": ("*", "zero-width", "\u00ad"),
    "confusables": "leet",
    "json_escapes": True,
}


@pytest.mark.parametrize("kind", [StringRule, RegexRule])
def test_folding_is_part_of_what_a_rule_is(kind: Any) -> None:
    plain = Policy(name="p", rules=({"id": "r", kind.key: "x" if kind is RegexRule else ["x"]},))
    digests = {plain.digest}
    for field, value in FOLDING.items():
        rule = plain.rules[0].model_copy(update={field: value})
        assert getattr(rule, field) == value
        policy = Policy(name="p", rules=(rule,))
        assert Policy.from_yaml(policy.to_yaml()) == Policy.from_json(policy.to_json()) == policy
        digests.add(policy.digest)
    assert len(digests) == 1 + len(FOLDING)


@pytest.mark.parametrize("field", FOLDING)
def test_an_automaton_is_not_folded(field: str) -> None:
    error = refusal(AutomatonRule, id="r", fsm=automaton("x"), **{field: FOLDING[field]})
    assert (error.rule_id, error.field) == ("r", field)


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("normalize", "nfc", "normalize"),
        ("normalize", True, "normalize"),
        ("ignore", "*", "ignore"),
        ("ignore", ["*", "ab"], "ignore[1]"),
        ("ignore", ["zero width"], "ignore[0]"),
        ("ignore", [""], "ignore[0]"),
        ("ignore", [4], "ignore[0]"),
        ("confusables", True, "confusables"),
        ("confusables", "all", "confusables"),
        ("json_escapes", "yes", "json_escapes"),
    ],
)
def test_folding_that_is_not_known_is_refused(field: str, value: Any, place: str) -> None:
    error = refusal(StringRule, id="r", strings=["x"], **{field: value})
    assert (error.rule_id, error.field) == ("r", place)


@pytest.mark.parametrize(
    ("strings", "field"),
    [
        ([], "strings"),
        ("one", "strings"),
        (None, "strings"),
        (["a", ""], "strings[1]"),
        (["a", "b", "\ud800"], "strings[2]"),
        ([False], "strings[0]"),
        ([b"x"], "strings[0]"),
    ],
)
def test_strings_are_a_list_of_non_empty_utf8_texts(strings: Any, field: str) -> None:
    error = refusal(StringRule, id="r", strings=strings)
    assert (error.rule_id, error.field) == ("r", field)


def test_exact_duplicates_are_dropped_and_the_order_is_kept() -> None:
    assert StringRule(id="r", strings=("b", "a", "b", "B")).strings == ("b", "a", "B")


@pytest.mark.parametrize("rule_id", ["", " x", "x\n", "utf-8", 3, None, "\udc00"])
def test_an_id_names_a_rule(rule_id: Any) -> None:
    assert refusal(StringRule, id=rule_id, strings=["x"]).field == "id"


def test_stop_at_and_folding_belong_to_their_kinds() -> None:
    assert RegexRule(id="r", regex="ab", stop_at="a").stop_at == "a"
    assert refusal(StringRule, id="r", strings=["x"], stop_at="x").field == "stop_at"
    assert refusal(AutomatonRule, id="r", fsm=automaton("x"), stop_at="x").field == "stop_at"
    assert refusal(AutomatonRule, id="r", fsm=automaton("x"), case="fold").field == "case"
    assert refusal(AutomatonRule, id="r", fsm=automaton("x"), whole_word=True).field == "whole_word"


@pytest.mark.parametrize(
    ("regex", "position"),
    [
        ("ab(c", 2),
        ("a[[b]", 2),
        ("a{99999999999}", None),
        ("(" * 5000 + ")" * 5000, None),
        ("a\ud800", 1),
        ("", None),
        ("[", 0),
        ("(?<=a*)b", None),
    ],
)
@pytest.mark.parametrize("field", ["regex", "stop_at"])
def test_a_regex_that_re_refuses_or_warns_about_is_a_pattern_error(
    regex: str, position: int | None, field: str
) -> None:
    error = refusal(RegexRule, **{"id": "r", "regex": "a", field: regex})
    assert isinstance(error, PatternError)
    assert (error.rule_id, error.field, error.position) == ("r", field, position)


def test_a_warning_is_not_hidden_by_the_cache_of_re() -> None:
    with pytest.warns(FutureWarning):
        re.compile("[[warned before]")
    assert isinstance(refusal(RegexRule, id="r", regex="[[warned before]"), PatternError)


def test_a_compiled_pattern_is_refused_with_a_remedy() -> None:
    assert ".pattern" in str(refusal(RegexRule, id="r", regex=re.compile("a")))


@pytest.mark.parametrize(
    ("field", "near"), [("string", "strings"), ("whole_words", "whole_word"), ("words", "strings")]
)
def test_an_unknown_field_suggests_the_near_one(field: str, near: str) -> None:
    error = refusal(StringRule, id="r", **{field: ["x"]})
    assert f"did you mean '{near}'?" in str(error)
    assert error.rule_id == "r"


@pytest.mark.parametrize(
    ("field", "value"), [("case", "lower"), ("context", "both"), ("monitor", "yes"), ("whole_word", 1)]
)
def test_nothing_is_converted_silently(field: str, value: Any) -> None:
    assert refusal(StringRule, id="r", strings=["x"], **{field: value}).field == field


def test_every_way_in_gives_the_same_typed_error() -> None:
    bad = {"id": "r", "regex": "("}
    for attempt in (
        lambda: RegexRule(**bad),  # type: ignore[arg-type]
        lambda: RegexRule.model_validate(bad),
        lambda: RegexRule.model_validate_json(json.dumps(bad)),
        lambda: Policy.model_validate({"name": "p", "rules": [bad]}),
        lambda: Policy(name="p", rules=[bad]),  # type: ignore[arg-type]
        lambda: RegexRule(id="r", regex="a").model_copy(update={"regex": "("}),
    ):
        with pytest.raises(PatternError) as caught:
            attempt()
        assert (caught.value.rule_id, caught.value.field, caught.value.position) == ("r", "regex", 0)


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"strings": ["x"]}, "rules[1].id"),
        ({"id": 3, "strings": ["x"]}, "rules[1].id"),
        ({"srings": ["x"]}, "rules[1].srings"),
        ({}, "rules[1]"),
        ({1: 2}, "rules[1]"),
        ("x", "rules[1]"),
    ],
)
def test_a_rule_without_an_id_is_named_by_index(entry: Any, field: str) -> None:
    error = refusal(Policy, name="p", rules=[{"id": "ok", "regex": "x"}, entry])
    assert error.field == field


def test_a_rule_is_of_one_kind() -> None:
    error = refusal(Policy, name="p", rules=[{"id": "r", "regex": "x", "strings": ["x"]}])
    assert error.rule_id == "r"
    assert "write a rule for each" in str(error)


def test_a_policy_has_rules_with_distinct_ids() -> None:
    assert "add a rule" in str(refusal(Policy, name="p", rules=[]))
    error = refusal(Policy, name="p", rules=[{"id": "r", "regex": "x"}, {"id": "r", "regex": "y"}])
    assert error.rule_id == "r"
    assert refusal(Policy, rules=[{"id": "r", "regex": "x"}]).field == "name"
    assert refusal(Policy, name="", rules=[{"id": "r", "regex": "x"}]).field == "name"


@pytest.mark.parametrize(
    "rule",
    [
        {"id": "r", "strings": ["fine", SECRET, 3]},
        {"id": "r", "strings": [SECRET], "stop_at": SECRET},
        {"id": "r", "regex": f"({SECRET}"},
        {"id": "r", "regex": f"[[{SECRET}]"},
        {"id": "r", "regex": SECRET, "normalize": SECRET},
        {"id": "r", "regex": SECRET, "penalty": SECRET},
        {"id": "r", "regex": SECRET, "strings": [SECRET]},
    ],
)
def test_messages_do_not_repeat_what_is_forbidden(rule: dict[str, Any]) -> None:
    error = refusal(Policy, name="p", rules=[rule])
    assert SECRET not in str(error)
    assert error.__cause__ is None


def test_rules_and_policies_cannot_be_changed() -> None:
    policy = Policy(name="p", rules=(StringRule(id="r", strings=("x",)),))
    with pytest.raises(NCOGuardError):
        policy.name = SECRET
    with pytest.raises(NCOGuardError):
        policy.rules[0].penalty = 1.0


def test_with_rules_and_without_keep_the_order() -> None:
    a, b, c = (StringRule(id=name, strings=(name,)) for name in "abc")
    policy = Policy(name="p", rules=(a, b))
    digest = policy.digest
    assert policy.with_rules(c).rules == (a, b, c)
    assert policy.with_rules(c).without("a", "c").rules == (b,)
    assert policy.with_rules(c).digest != digest == policy.with_rules(c).without("c").digest
    assert refusal(lambda: policy.with_rules(a)).rule_id == "a"
    assert "did you mean" in str(refusal(lambda: policy.without("aa")))
    assert "forbids nothing" in str(refusal(lambda: policy.without("a", "b")))


def test_the_digest_is_of_the_canonical_json() -> None:
    policy = Policy(name="é", rules=(RegexRule(id="r", regex="x", penalty=4),))
    text = policy.to_json()
    assert policy.digest == hashlib.sha256(text.encode("utf-8")).hexdigest()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert '"penalty":4.0' in text
    assert '"penalty":"inf"' in policy.with_rules(RegexRule(id="s", regex="y")).to_json()
    assert '"monitor":false' in text


def test_fields_that_came_later_leave_digests_as_they_were() -> None:
    rules = (StringRule(id="a", strings=("x",)),)
    digest = "454c9474196a34f0c734f0420f3aea59b2e451a4764084efc322dbda12943ad9"
    assert Policy(name="p", rules=rules).digest == digest
    assert (
        Policy(name="p", rules=rules, when_blocked="mask", rewind=None, on_audit_failure="raise").digest
        == digest
    )
    later: list[dict[str, Any]] = [
        {"when_blocked": "rewind"},
        {"rewind": {}},
        {"rewind": {"per_text": None}},
        {"on_audit_failure": "warn"},
    ]
    assert len({digest, *(Policy(name="p", rules=rules, **fields).digest for fields in later)}) == 5


def test_a_policy_that_says_how_far_texts_go_back_goes_back() -> None:
    rules = (StringRule(id="a", strings=("x",)),)
    policy = Policy(name="p", rules=rules, rewind={"back_to": "sentence"})
    assert (policy.when_blocked, policy.rewind) == ("rewind", Rewind(back_to="sentence"))
    assert policy == Policy(name="p", rules=rules, when_blocked="rewind", rewind=Rewind(back_to="sentence"))
    plain = "name: p\nrules:\n- {id: a, strings: [x]}\n"
    written = Policy.from_yaml(plain + "rewind: {back_to: sentence}\n")
    assert written == policy == Policy.from_yaml(policy.to_yaml()) == Policy.from_json(policy.to_json())
    assert policy.with_rules(StringRule(id="b", strings=("y",))).when_blocked == "rewind"
    assert Policy.from_yaml(plain + "rewind: null\n").when_blocked == "mask"
    for contradicting in (
        lambda: Policy(name="p", rules=rules, when_blocked="mask", rewind=Rewind()),
        lambda: Policy.from_yaml(plain + "when_blocked: mask\nrewind: {}\n"),
        lambda: policy.model_copy(update={"when_blocked": "mask"}),
    ):
        error = refusal(contradicting)
        assert error.field == "rewind"
        assert "say when_blocked: rewind, or leave rewind out" in str(error)


def test_how_far_texts_go_back_is_shown() -> None:
    rewind = Rewind(back_to="text", per_text=None)
    assert repr(rewind) == "Rewind(back_to='text', per_match=8, per_text=None)"
    assert str(rewind) == "back_to='text' per_match=8 per_text=None"
    policy = Policy(name="p", rules=(StringRule(id="a", strings=(SECRET,)),), rewind=rewind)
    assert repr(rewind) in repr(policy)
    assert SECRET not in repr(policy)


def test_policies_compare_hash_and_pickle() -> None:
    first = Policy(name="p", rules=(AutomatonRule(id="r", fsm=automaton("a[^b]{2}")),))
    second = Policy.from_json(first.to_json())
    assert first == second
    assert hash(first) == hash(second)
    assert (
        pickle.loads(pickle.dumps(Policy(name="p", rules=(RegexRule(id="r", regex="x"),)))).rules[0].regex
        == "x"
    )


def test_copies_and_pickles_of_an_automaton_keep_its_language() -> None:
    policy = Policy(name="p", rules=(AutomatonRule(id="r", fsm=automaton("a[^b]c")),))
    for again in (copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert again == policy
        rule = again.rules[0]
        assert isinstance(rule, AutomatonRule)
        assert rule.fsm.accepts("aéc")
        assert not rule.fsm.accepts("abc")


class TestAutomata:
    def test_states_may_have_any_names(self) -> None:
        alphabet = Alphabet({"a": 7, "b": 9, anything_else: 3})
        named = FSM(
            alphabet=alphabet,
            states={"start", "mid", "end", "unreachable"},
            initial="start",
            finals={"end", "unreachable"},
            map={"start": {7: "mid"}, "mid": {9: "end", 3: "start"}},
        )
        numbered = FSM(
            alphabet=Alphabet({anything_else: 0, "b": 1, "a": 2}),
            states={0, 1, 2},
            initial=1,
            finals={0},
            map={1: {2: 2}, 2: {1: 0, 0: 1}},
        )
        assert AutomatonRule(id="r", fsm=named) == AutomatonRule(id="r", fsm=numbered)

    @pytest.mark.parametrize("regex", ["abc", "a[^b]{2}c+", "[0-9]{3}-[0-9]{2}", "(ab|c)d?"])
    def test_reading_back_keeps_the_language(self, regex: str) -> None:
        before = automaton(regex)
        policy = Policy(name="p", rules=(AutomatonRule(id="r", fsm=before),))
        for text in (policy.to_json(), policy.to_yaml()):
            again = Policy.from_json(text) if text.startswith("{") else Policy.from_yaml(text)
            assert again.digest == policy.digest
            rule = again.rules[0]
            assert isinstance(rule, AutomatonRule)
            assert rule.fsm.equivalent(before)

    @pytest.mark.parametrize(
        "fsm", [automaton("a*"), automaton("a") & automaton("b"), "abc", None, {"states": 1}]
    )
    def test_all_nothing_and_non_automata_are_refused(self, fsm: Any) -> None:
        assert refusal(AutomatonRule, id="r", fsm=fsm).field == "fsm"

    @pytest.mark.parametrize(
        ("part", "value"),
        [
            ("states", 0),
            ("states", True),
            ("initial", 9),
            ("finals", [9]),
            ("finals", 1),
            ("map", [[0]]),
            ("map", [[1, 1], [9, None]]),
            ("map", [[1], [None]]),
            ("alphabet", []),
            (
                "alphabet",
                [{"symbols": "ab", "anything_else": False}, {"symbols": "b", "anything_else": True}],
            ),
            ("alphabet", [{"symbols": "", "anything_else": False}, {"symbols": "b", "anything_else": True}]),
            ("alphabet", [{"symbols": "a"}, {"symbols": "b", "anything_else": True}]),
        ],
    )
    def test_inconsistent_plain_data_is_refused(self, part: str, value: Any) -> None:
        plain = {
            "alphabet": [{"symbols": "a", "anything_else": False}, {"symbols": "", "anything_else": True}],
            "states": 2,
            "initial": 0,
            "finals": [1],
            "map": [[1, None], [None, None]],
        }
        assert AutomatonRule(id="r", fsm=plain).fsm.accepts("a")
        error = refusal(AutomatonRule, id="r", fsm={**plain, part: value})
        assert error.field == "fsm"

    def test_symbols_are_single_characters(self) -> None:
        fsm = FSM(alphabet=Alphabet({"ab": 0}), states={0, 1}, initial=0, finals={1}, map={0: {0: 1}})
        assert "single characters" in str(refusal(AutomatonRule, id="r", fsm=fsm))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
# Two control characters that a regex may not hold as they are; `re.escape` leaves them so.
REGEX = TEXT.map(lambda text: re.escape(text).replace("\a", r"\x07").replace("\b", r"\x08"))
IDS = st.text(st.characters(categories=["Lu", "Ll", "Nd", "Po", "So"]), min_size=1, max_size=6)
SHARED: dict[str, Any] = {
    "description": TEXT,
    "case": st.sampled_from(["exact", "fold"]),
    "whole_word": st.booleans(),
    "normalize": st.sampled_from(["none", "nfkc"]),
    "ignore": st.lists(st.sampled_from(["*", "\u200b", "zero-width", "punctuation"]), unique=True),
    "confusables": st.sampled_from(["none", "letters", "leet"]),
    "json_escapes": st.booleans(),
    "context": st.sampled_from(["output", "prompt"]),
    "penalty": st.floats(min_value=1e-300, allow_nan=False),
}
RULES = st.one_of(
    st.fixed_dictionaries({"id": IDS, "strings": st.lists(TEXT, min_size=1, max_size=4)}, optional=SHARED),
    st.fixed_dictionaries({"id": IDS, "regex": REGEX}, optional={**SHARED, "stop_at": REGEX}),
)


@given(
    name=TEXT,
    description=TEXT,
    rules=st.lists(RULES, min_size=1, max_size=3, unique_by=lambda rule: rule["id"]),
)
def test_yaml_and_json_and_back_is_identity(name: str, description: str, rules: list[dict[str, Any]]) -> None:
    policy = Policy(name=name, description=description, rules=rules)  # type: ignore[arg-type]
    for again in (Policy.from_json(policy.to_json()), Policy.from_yaml(policy.to_yaml())):
        assert again == policy
        assert again.digest == policy.digest
        assert again.to_yaml() == policy.to_yaml()


def test_rule_is_the_union_of_the_kinds() -> None:
    assert set(get_args(Rule)) == {StringRule, RegexRule, AutomatonRule}


def test_the_names_that_rules_take_are_those_that_automata_know() -> None:
    taken = get_type_hints(RegexRule)
    assert IGNORABLE_SETS == folding.IGNORABLE_SETS
    assert get_args(ChecksumName) == ("none", *CHECKSUMS)
    assert get_args(taken["normalize"]) == get_args(get_type_hints(FoldSpec)["normalize"])
    assert get_args(taken["confusables"]) == ("none", *get_args(get_type_hints(with_look_alikes)["kind"]))
