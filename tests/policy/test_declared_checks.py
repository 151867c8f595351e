"""Check digits that a policy declares: what is taken, what is refused and by what name, and what files make of them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from nco_guard.errors import PolicyError
from nco_guard.policy import CheckDigits, Policy, RegexRule
from nco_guard.policy.check_digits import checksum_title
from tests.automata.checksum_reference import CHECKS


def policy_of(checksum: Any) -> Policy:
    return Policy(name="p", rules=[{"id": "n", "regex": "[0-9]{9}", "checksum": checksum}])


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_survives_files_copies_and_pickling(name: str) -> None:
    policy = policy_of(CHECKS[name])
    for again in (
        Policy.from_yaml(policy.to_yaml()),
        Policy.from_json(policy.to_json()),
        pickle.loads(pickle.dumps(policy)),
        policy.model_copy(update={"description": ""}),
    ):
        assert again == policy
        assert hash(again) == hash(policy)
        assert again.digest == policy.digest
        assert again.to_yaml() == policy.to_yaml()
    assert len({policy_of(check).digest for check in CHECKS.values()}) == len(CHECKS)


def test_policies_from_before_have_the_digests_that_they_had() -> None:
    """As the version before declared sums worked it out."""
    rule = RegexRule(id="card", regex="[0-9]{16}", checksum="luhn")
    plain = json.loads(Policy(name="p", rules=[rule]).to_json())
    assert plain["rules"][0]["checksum"] == "luhn"
    assert Policy(name="p", rules=[rule]).digest == (
        "1f95fd43bc36d78d7ea91b0c9f2ba704b7b46a1dc12224ab3428d3f0142d1f7f"
    )


def test_a_check_reads_well_in_yaml() -> None:
    check = {
        "modulus": 11,
        "weights": [3, "check", 2],
        "check": "0987654321X",
        "letters": {"XYZ": "01", "A": 3},
    }
    assert policy_of(check).to_yaml().partition("checksum:\n")[2] == (
        "    modulus: 11\n"
        "    weights: [3, check, 2]\n"
        "    check: 0987654321X\n"
        "    letters:\n"
        "      A: 3\n"
        "      XYZ: '01'\n"
    )
    assert "checksum: verhoeff" in policy_of("verhoeff").to_yaml()


def test_the_order_of_letters_and_remainders_makes_no_difference() -> None:
    one = CheckDigits(modulus=7, accept=[1, 0, 1], letters={"A": 1, "B": 2})
    other = CheckDigits(modulus=7, accept=[0, 1], letters={"B": 2, "A": 1})
    assert one == other
    assert hash(one) == hash(other)


def test_a_check_shows_what_kind_of_sum_it_is_and_no_character() -> None:
    check = CheckDigits(modulus=5, weights=["check", 3], check="PLUMS")
    assert repr(check) == "CheckDigits(modulus=5, places=2)"
    assert "PLUM" not in repr(policy_of(check).rules[0])
    assert checksum_title(("luhn", check)) == "luhn and mod 5"


def test_the_schema_for_editors_has_all_fields_and_takes_what_policies_take() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = Policy.json_schema()
    fields = schema["$defs"]["CheckDigits"]["properties"]
    assert set(fields) == set(CheckDigits.model_fields)
    assert all(field["description"] for field in fields.values())
    for check in CHECKS.values():
        jsonschema.validate({"name": "p", "rules": [{"id": "n", "regex": "a", "checksum": check}]}, schema)
    for wrong in ({"weights": [1]}, {"modulus": "11"}, {"modulus": 11, "letters": {"A": "x"}}, "crc32", 3):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(
                {"name": "p", "rules": [{"id": "n", "regex": "a", "checksum": wrong}]}, schema
            )


W = {"modulus": 3, "weights": [1, 2]}
TABLE = {"0123456789": 0}
REFUSED: dict[str, tuple[Any, str, str]] = {
    "no such name": ("crc32", "checksum", "luhn, mod11_10, mod97, none, verhoeff"),
    "nearly a name": ("lunh", "checksum", "did you mean 'luhn'"),
    "a number": (11, "checksum", "not int"),
    "a list of one": (["luhn"], "checksum", "a single one stands by itself"),
    "a list with none": (["luhn", "none"], "checksum[1]", "none passes always"),
    "a list in a list": (["luhn", ["luhn", W]], "checksum[1]", "not list"),
    "a list with a fault": (["luhn", {**W, "modulus": 1}], "checksum[1].modulus", "from 2 to 10,000"),
    "no modulus": ({"weights": [1]}, "checksum.modulus", "required"),
    "an unknown field": ({**W, "weigths": [1]}, "checksum.weigths", "did you mean 'weights'"),
    "a modulus as text": ({**W, "modulus": "3"}, "checksum.modulus", "not str"),
    "a truth as modulus": ({**W, "modulus": True}, "checksum.modulus", "not bool"),
    "keys that are no text": ({1: 2}, "checksum", "must be text"),
    "no weights": ({**W, "weights": []}, "checksum.weights", "at least one"),
    "weights as text": ({**W, "weights": "12"}, "checksum.weights", "a list is needed"),
    "a fraction": ({**W, "weights": [1, 0.5]}, "checksum.weights[1]", "not float"),
    "a table that is not there": (
        {**W, "weights": [1, "odd"]},
        "checksum.weights[1]",
        "name of one of tables",
    ),
    "too many weights": ({**W, "weights": [1] * 101}, "checksum.weights", "at most 100"),
    "check without its place": ({**W, "check": "ABC"}, "checksum.weights", "go together"),
    "a place without check": ({**W, "weights": [1, "check"]}, "checksum.weights", "go together"),
    "two places": ({**W, "weights": ["check", "check"], "check": "ABC"}, "checksum.weights", "go together"),
    "too few check characters": ({"modulus": 3, "check": "AB"}, "checksum.check", "3 of them, not 2"),
    "check as a number": ({"modulus": 3, "check": 123}, "checksum.check", "quotes"),
    "a space as check": ({"modulus": 3, "check": "A B"}, "checksum.check", "neither a space"),
    "digits of another script": ({"modulus": 2, "check": "٠١"}, "checksum.check", "write these"),
    "accept beside check": ({"modulus": 2, "check": "AB", "accept": [0]}, "checksum.accept", "remove accept"),
    "a remainder too large": ({**W, "accept": [3]}, "checksum.accept", "below the modulus"),
    "no remainder": ({**W, "accept": []}, "checksum.accept", "at least one"),
    "all remainders": ({**W, "accept": [0, 1, 2]}, "checksum.accept", "all remainders"),
    "digits among letters": ({**W, "letters": {"1": 2}}, "checksum.letters", "write a table"),
    "a letter twice": ({**W, "letters": {"AB": 1, "b": 2}}, "checksum.letters", "there twice"),
    "a key that is empty": ({**W, "letters": {"": 1}}, "checksum.letters, entry 1", "one character"),
    "a letter worth a word": (
        {**W, "letters": {"A": "ten"}},
        "checksum.letters, entry 1",
        "one to four digits",
    ),
    "counting too far": ({**W, "letters": {"ABC": "8"}}, "checksum.letters, entry 1", "counting up"),
    "letters as a list": ({**W, "letters": ["A"]}, "checksum.letters", "a mapping"),
    "a table for nothing": ({**W, "tables": {"odd": TABLE}}, "checksum.tables", "not among the weights"),
    "a table with gaps": (
        {"modulus": 3, "weights": ["t"], "tables": {"t": {"012": 0}}},
        "checksum.tables",
        "each digit",
    ),
    "a table with more": (
        {"modulus": 3, "weights": ["t"], "tables": {"t": {**TABLE, "A": 1}}},
        "checksum.tables",
        "name them in letters",
    ),
    "a table named check": ({**W, "tables": {"check": TABLE}}, "checksum.tables, entry 1", "is not check"),
    "digits of negatives": ({**W, "weights": [-1], "digit_sums": 10}, "checksum.digit_sums", "use check"),
    "digit sums of nothing": ({"modulus": 3, "digit_sums": 10}, "checksum.digit_sums", "give weights"),
    "repeated nothing": ({"modulus": 3, "repeat": "right"}, "checksum.repeat", "give weights"),
    "repeated to the left": ({**W, "repeat": "left"}, "checksum.repeat", "'none' or 'right'"),
    "repeated with check": (
        {"modulus": 2, "weights": [1, "check"], "check": "01", "repeat": "right"},
        "checksum.repeat",
        "remove check",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused_by_its_place(case: str) -> None:
    checksum, field, told = REFUSED[case]
    with pytest.raises(PolicyError) as caught:
        RegexRule(id="n", regex="a", checksum=checksum)
    assert caught.value.rule_id == "n"
    assert caught.value.field == field
    assert told in caught.value.message


def test_an_error_names_the_line_of_a_file() -> None:
    text = "name: p\nrules:\n  - id: n\n    regex: a\n    checksum: {modulus: 11, weights: [1, two]}\n"
    with pytest.raises(PolicyError, match=r"checksum.weights\[1\].*line 5"):
        Policy.from_yaml(text)
