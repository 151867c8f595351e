"""`nco-guard explain`, and what `nco-guard check` says beyond listing rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nco_guard import demo
from tests.commands import call, fails_cleanly, policy_file

CLUMSY = """\
name: clumsy
rules:
  - {id: digits, regex: '\\d'}
  - {id: ssn, regex: '\\d{3}-\\d{2}-\\d{4}'}
  - {id: never, regex: 'a\\bb'}
  - {id: list, strings: [ass, zebra, Ass], case: fold}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return policy_file(tmp_path)


@pytest.fixture
def clumsy(tmp_path: Path) -> Path:
    path = tmp_path / "clumsy.yaml"
    path.write_text(CLUMSY)
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("The assembly met. A class was passed!\n\nNobody saw a zebra.\nIt cost 5 dollars.\n")
    return path


MODEL = demo.model_path()


class TestExplain:
    def test_what_is_under_way_is_shown_with_its_rule(self, policy: Path) -> None:
        result = call("explain", policy, "--tokenizer", MODEL, "--text", "it is 078-05-11")
        assert result.exit_code == 0, result.output
        assert "[[078-05-11]]" in result.stdout
        row = next(line for line in result.stdout.splitlines() if "ssn" in line)
        for word in ("hard", "078-05-11", "6", "yes"):
            assert word in row
        assert "1 rules with nothing to say" in result.stdout
        assert max(map(len, result.stdout.splitlines())) <= 100

    def test_a_token_is_explained_by_text_and_by_id(self, policy: Path) -> None:
        common = ("explain", policy, "--tokenizer", MODEL, "--text", "it is 078-05-112", "--json")
        document = json.loads(call(*common, "--token", "0", "--token", " a").stdout)
        first, second = document["asked"]
        assert first["token_id"] == 0
        assert (second["token"], second["forbidden"]) == ("' a'", False)
        assert document["rules"][1]["start"] == 6
        by_text = json.loads(call(*common, "--token", "-").stdout)["asked"][0]
        same = json.loads(call(*common, "--token", str(by_text["token_id"])).stdout)["asked"][0]
        assert by_text == same

    def test_the_end_of_the_text_is_explained(self, policy: Path) -> None:
        arguments = ("explain", policy, "--tokenizer", MODEL, "--text", "it is 078-05-1120", "--json")
        document = json.loads(call(*arguments).stdout)
        ends = [t for t in document["tokens"] if t["token"] == "(end of text)"]
        assert [(t["reasons"][0]["code"], t["reasons"][0]["start"]) for t in ends] == [("end", 6)]
        assert not document["rules"][1]["may_end"]

    def test_a_text_that_breaks_the_policy_is_explained_where_it_does(self, policy: Path) -> None:
        arguments = ("explain", policy, "--tokenizer", MODEL, "--text", "it is 078-05-1120 or Bluebird.")
        result = call(*arguments)
        assert result.exit_code == 1
        assert "breaks the policy at token" in result.stdout
        assert "completes a match of ssn" in result.stdout
        document = json.loads(call(*arguments, "--json").stdout)
        assert not document["ok"]
        assert document["asked"][0]["reasons"][0]["rule_ids"] == ["ssn"]

    def test_the_prompt_is_read_for_rules_that_read_it(self, tmp_path: Path) -> None:
        path = tmp_path / "prompt.yaml"
        path.write_text("name: p\nrules:\n  - {id: ssn, regex: '\\d{3}-\\d{2}', context: prompt}\n")
        arguments = ("explain", path, "--tokenizer", MODEL, "--prompt", "code 078-", "--text", "0", "--json")
        assert json.loads(call(*arguments).stdout)["rules"][0]["start"] == -4

    def test_limits_are_kept(self, clumsy: Path) -> None:
        arguments = ("explain", clumsy, "--tokenizer", MODEL, "--limit", "3", "--json")
        document = json.loads(call(*arguments).stdout)
        assert len(document["tokens"]) == 3
        assert document["forbidden"] == sum(document["counts"].values()) > 3
        near = json.loads(call(*arguments, "--remaining", "0").stdout)
        assert near["forbidden"] >= document["forbidden"]
        assert "more; --limit" in call("explain", clumsy, "--tokenizer", MODEL, "--limit", "1").stdout

    def test_control_characters_do_not_reach_the_terminal(self, policy: Path) -> None:
        result = call("explain", policy, "--tokenizer", MODEL, "--text", "a\x1b[2Jb")
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout

    def test_wrong_input_is_an_error(self, policy: Path, tmp_path: Path) -> None:
        assert call("explain", policy).exit_code == 2
        fails_cleanly(call("explain", policy, "--tokenizer", tmp_path / "none"), "no tokenizer")
        fails_cleanly(call("explain", tmp_path / "none.yaml", "--tokenizer", MODEL), "cannot be read")
        token = ("explain", policy, "--tokenizer", MODEL, "--token")
        fails_cleanly(call(*token, "99999999"), "ids up to")
        fails_cleanly(call(*token, "no such token anywhere"), "single token")
        fails_cleanly(call(*token, ""), "single token")
        for option in ("--limit", "--remaining"):
            assert call("explain", policy, "--tokenizer", MODEL, option, "-1").exit_code == 2


class TestCheck:
    def test_warnings_have_codes_and_say_what_to_do(self, clumsy: Path) -> None:
        result = call("check", clumsy)
        assert result.exit_code == 0
        warnings = {w["code"]: w for w in json.loads(call("check", clumsy, "--json").stdout)["warnings"]}
        assert set(warnings) == {"redundant-rule", "unsatisfiable-rule", "redundant-string"}
        assert warnings["redundant-rule"]["rule_ids"] == ["ssn", "digits"]
        assert warnings["unsatisfiable-rule"]["rule_ids"] == ["never"]
        for warning in warnings.values():
            assert warning["advice"]
            assert f"({warning['code']})" in result.stdout.replace("\n", " ")
        assert "zebra" not in result.output

    def test_strict_makes_warnings_an_exit_status_and_notes_none(self, clumsy: Path, tmp_path: Path) -> None:
        assert call("check", clumsy, "--strict").exit_code == 1
        noted = tmp_path / "noted.yaml"
        noted.write_text(
            "name: n\nrules:\n  - {id: a, strings: [heron]}\n  - {id: b, strings: [tern], monitor: true}\n"
        )
        result = call("check", noted, "--strict")
        assert result.exit_code == 0
        assert "note: not enforced" in result.stdout

    def test_what_was_not_decided_is_said_only_if_asked(self, tmp_path: Path) -> None:
        path = tmp_path / "hard.yaml"
        rules = ["{id: a, regex: 'a[ab]{13}(?!q)c'}", "{id: b, regex: '[ab]*a[ab]{13}c(?=[^z]|\\Z)'}"]
        path.write_text("name: h\nrules: [" + ", ".join(rules) + "]\n")
        quiet, verbose = call("check", path, "--json"), call("check", path, "--json", "--verbose")
        assert "not-decided" not in quiet.stdout
        assert "not-decided" in verbose.stdout

    def test_a_corpus_shows_shares_and_what_would_forbid_less(self, clumsy: Path, corpus: Path) -> None:
        result = call("check", clumsy, "--corpus", corpus)
        assert result.exit_code == 0, result.output
        assert "3 lines, 100.00 % of them forbidden" in result.stdout
        assert "strings[0] of 'list'" in result.stdout
        assert "whole_word: true" in result.stdout
        for word in ("assembly", "zebra", "dollars"):
            assert word not in result.stdout
        document = json.loads(call("check", clumsy, "--corpus", corpus, "--sentences", "--json").stdout)[
            "corpus"
        ]
        assert (document["texts"], document["forbidden"], document["tokens"]) == (4, 4, None)
        assert [(r["rule_id"], r["forbidden"]) for r in document["rules"]] == [
            ("digits", 1), ("ssn", 0), ("never", 0), ("list", 3),
        ]  # fmt: skip
        assert "dollars" in call("check", clumsy, "--corpus", corpus, "--show", "2").stdout

    def test_with_a_tokenizer_refused_tokens_are_counted(self, clumsy: Path, corpus: Path) -> None:
        arguments = ("check", clumsy, "--corpus", corpus, "--tokenizer", MODEL)
        document = json.loads(call(*arguments, "--json").stdout)
        assert document["corpus"]["tokens"]["refused"] >= 4
        assert document["tokenizer"]["joint_states"] > 1
        assert "refused" in call(*arguments).stdout

    def test_a_corpus_may_come_from_stdin(self, policy: Path) -> None:
        result = call("check", policy, "--corpus", "-", "--json", stdin="Bluebird\nnothing\n")
        assert json.loads(result.stdout)["corpus"]["forbidden"] == 1

    def test_wrong_input_is_an_error(self, policy: Path, tmp_path: Path) -> None:
        fails_cleanly(call("check", policy, "--corpus", tmp_path / "none"), "none")
        (tmp_path / "empty").write_text("\n \n")
        fails_cleanly(call("check", policy, "--corpus", tmp_path / "empty"), "no text")
        (tmp_path / "binary").write_bytes(b"\xff\xfe")
        fails_cleanly(call("check", policy, "--corpus", tmp_path / "binary"), "not UTF-8")
        assert call("check", policy, "--show", "-1").exit_code == 2

    def test_presets_pass_a_strict_check(self) -> None:
        for name in ("pii", "secrets", "ldnoobw", "pii_paper"):
            assert call("check", name, "--strict").exit_code == 0, name
