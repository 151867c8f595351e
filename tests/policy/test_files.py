"""Policy files: what they look like, and where errors say the fault is."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from nco_guard.errors import PatternError, PolicyError, PresetError
from nco_guard.policy import Policy, RegexRule, StringRule, presets

EXAMPLE = r"""
name: support-bot
rules:
  - preset: pii
  - preset: ldnoobw
    languages: [en, de]
  - id: rival
    strings: [Acme Corp]
    case: fold
    whole_word: true
  - id: ticket
    regex: '\bTCK-\d{6}\b'
    penalty: 4
"""


def refusal(text: str, kind: Any = PolicyError) -> PolicyError:
    with pytest.raises(kind) as caught:
        Policy.from_yaml(text)
    error = caught.value
    assert isinstance(error, PolicyError)
    return error


def test_the_documented_file_keeps_working() -> None:
    policy = Policy.from_yaml(EXAMPLE)
    assert policy.rules[-2:] == (
        StringRule(id="rival", strings=("Acme Corp",), case="fold", whole_word=True),
        RegexRule(id="ticket", regex=r"\bTCK-\d{6}\b", penalty=4.0),
    )
    count = len(presets.load("pii"))
    assert [rule.id for rule in policy.rules[count : count + 2]] == ["ldnoobw.en", "ldnoobw.de"]
    assert Policy.from_yaml(policy.to_yaml()) == policy
    assert Policy.from_json(policy.to_json()).digest == policy.digest


def test_json_has_the_same_shape_with_presets() -> None:
    data = {
        "name": "p",
        "rules": [{"preset": "pii", "only": ["email"], "penalty": "inf"}, {"id": "r", "regex": "x"}],
    }
    policy = Policy.from_json(json.dumps(data))
    assert [rule.id for rule in policy.rules] == ["pii.email", "r"]
    assert Policy.model_validate(data) == policy


def test_plain_words_of_yaml_stay_words() -> None:
    text = "name: p\nrules: [{id: r, strings: [no, on, Yes, 12:30, 2024-01-15, 0123, 1_000, 0x1F, =, <<]}]"
    rule = Policy.from_yaml(text).rules[0]
    assert isinstance(rule, StringRule)
    assert rule.strings == ("no", "on", "Yes", "12:30", "2024-01-15", "0123", "1_000", "0x1F", "=", "<<")


@pytest.mark.parametrize("word", ["true", "null", "~", "13", "1.5", "1e3", ".inf", "-4", "+.5"])
def test_words_that_yaml_reads_as_values_must_be_quoted(word: str) -> None:
    error = refusal(f"name: p\nrules: [{{id: r, strings: [{word}]}}]")
    assert (error.rule_id, error.field) == ("r", "strings[0]")
    assert "quotes" in str(error)
    rule = Policy.from_yaml(f"name: p\nrules: [{{id: r, strings: ['{word}']}}]").rules[0]
    assert isinstance(rule, StringRule)
    assert Policy.from_yaml(Policy(name="p", rules=(rule,)).to_yaml()).rules[0] == rule


@pytest.mark.parametrize(
    ("text", "kind", "line", "field"),
    [
        ("name: p\nrules:\n- id: a\n  string: [x]\n", PolicyError, 4, "string"),
        ("name: p\nrules:\n- id: a\n  regex: x\n- id: b\n  regex: '('\n", PatternError, 6, "regex"),
        ("name: p\nrules:\n- preset: pii\n- preset: piii\n", PresetError, 4, "rules[1].preset"),
        (
            "name: p\nrules:\n- preset: ldnoobw\n  languages: [en, klingon]\n",
            PresetError,
            4,
            "rules[0].languages",
        ),
        ("name: p\nrules:\n- id: a\n  strings:\n  - ok\n  - ''\n", PolicyError, 4, "strings[1]"),
        ("name: p\nrules:\n- id: a\n  regex: x\n- id: a\n  regex: y\n", PolicyError, 5, "id"),
        ("name: p\nrules:\n- preset: pii\n- id: pii.ssn\n  regex: y\n", PolicyError, 4, "id"),
        ("name: p\nrules:\n- regex: x\n", PolicyError, 3, "rules[0].id"),
        ("name: p\nrules:\n- just text\n", PolicyError, 3, "rules[0]"),
        ("name: p\nrules:\n- id: a\n  id: b\n  regex: x\n", PolicyError, 4, None),
        ("name: p\nname: q\n", PolicyError, 2, None),
        ("name: [p\n", PolicyError, 2, None),
        ("name: p\nrules: !!python/object/apply:os.getcwd []\n", PolicyError, 2, None),
        ("name: p\n? [a, b]\n: c\n", PolicyError, 2, None),
        ("name: p\n---\nname: q\n", PolicyError, 2, None),
        ("name: p\nrules: *nothing\n", PolicyError, 2, None),
    ],
)
def test_errors_name_the_line(text: str, kind: type[PolicyError], line: int, field: str | None) -> None:
    error = refusal(text, kind)
    assert f"line {line}" in str(error)
    assert error.field == field


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a",
        "just text",
        "name: p",
        "name: p\nrules: []",
        "name: p\nrules: {id: a}",
        "name: p\nrules: null",
        "name: 3\nrules: [{id: a, regex: x}]",
        "name: p\nrule: []",
        "1: 2",
        "name: p\nrules: &r [*r]",
        "name: p\nrules: [{1: 2}]",
        "name: p\nrules: [{preset: pii, 1: 2}]",
        "name: p\nrules: [{preset: [pii]}]",
        "name: p\nrules: [{preset: pii, name: x}]",
        "a: " + "[" * 3000,
        "name: p\nrules: [{id: a, regex: x, penalty: " + "9" * 5000 + "}]",
        "name: \x00",
        "name: p\ntext: \ud800",
    ],
)
def test_what_is_no_policy_is_a_policy_error(text: str) -> None:
    refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"name": "p", "name": "q"}',
        '{"name": NaN}',
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
    ],
)
def test_bad_json_is_a_policy_error(text: str) -> None:
    with pytest.raises(PolicyError):
        Policy.from_json(text)


def test_mangled_files_never_raise_anything_else() -> None:
    rng = random.Random(7)
    for text, parse in (
        (EXAMPLE, Policy.from_yaml),
        (json.dumps({"name": "p", "rules": [{"id": "r", "regex": "x"}]}), Policy.from_json),
    ):
        for _ in range(300):
            characters = list(text)
            for _ in range(rng.randint(1, 3)):
                characters[rng.randrange(len(characters))] = rng.choice("[]{}:,-'\"&*!|>%@`#? \n\t\x07\\é0x")
            try:
                parse("".join(characters))
            except PolicyError:
                continue


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json", ".YAML"])
def test_files_are_read_by_their_suffix(tmp_path: Path, suffix: str) -> None:
    policy = Policy(name="é", rules=(StringRule(id="r", strings=("ß",)),))
    path = tmp_path / f"policy{suffix}"
    path.write_text(policy.to_json() if suffix == ".json" else policy.to_yaml(), encoding="utf-8")
    assert Policy.from_file(path) == Policy.from_file(str(path)) == policy
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert Policy.from_file(path) == policy


def test_unreadable_files_are_policy_errors(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: caf\xe9")
    for path, hint in (
        (tmp_path / "policy.toml", "known suffixes: .yaml, .yml, .json"),
        (tmp_path / "missing.yaml", "cannot be read"),
        (latin, "UTF-8"),
    ):
        with pytest.raises(PolicyError) as caught:
            Policy.from_file(path)
        assert hint in str(caught.value)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bot.yaml"
    path.write_text("name: p\nrules:\n- id: a\n  regex: '('\n", encoding="utf-8")
    with pytest.raises(PatternError) as caught:
        Policy.from_file(path)
    assert "bot.yaml, line 4" in str(caught.value)
    assert caught.value.position == 0


class TestSchema:
    def test_it_describes_rules_and_presets(self) -> None:
        schema = Policy.json_schema()
        json.dumps(schema)
        entries = {
            entry["$ref"].removeprefix("#/$defs/")
            for entry in schema["properties"]["rules"]["items"]["anyOf"]
        }
        assert entries == {
            "AutomatonRule",
            "RegexRule",
            "StringRule",
            *(f"Preset_{name}" for name in presets.available()),
        }
        assert entries <= set(schema["$defs"])
        assert schema["additionalProperties"] is False
        assert schema["$defs"]["RegexRule"]["required"] == ["id", "regex"]
        words = schema["$defs"]["Preset_ldnoobw"]["properties"]
        assert words["preset"] == {"const": "ldnoobw"}
        assert {"languages", "substring", "only", "except", "penalty", "monitor", "context"} < set(words)
        assert "languages" not in schema["$defs"]["Preset_pii"]["properties"]
