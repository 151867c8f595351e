"""The command: what it prints, where, and with which exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from nco_guard.audit import HmacSigner, JsonLinesSink, RunRecorder, read_events
from nco_guard.cli.output import marked
from tests.commands import POLICY, call, fails_cleanly, policy_file

SECRET = "078-05-1120"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return policy_file(tmp_path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights, saved as transformers saves models."""
    from nco_guard.testing import random_model, tiny_tokenizer

    path = tmp_path_factory.mktemp("model")
    tokenizer = tiny_tokenizer()
    random_model(tokenizer).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


class TestHelp:
    def test_every_command_has_help(self) -> None:
        single = [
            (),
            *((name,) for name in ("demo", "generate", "check", "explain", "verify", "presets", "schema")),
        ]
        for command in (*single, ("audit", "verify"), ("audit", "anchor")):
            result = call(*command, "--help")
            assert result.exit_code == 0
            assert "Usage" in result.stdout

    def test_help_loads_neither_torch_nor_transformers(self) -> None:
        code = (
            "import sys, nco_guard.cli as c\n"
            "sys.argv = ['nco-guard', '--help']\n"
            "try: c.main()\n"
            "except SystemExit: pass\n"
            "sys.exit(bool({'torch', 'transformers', 'tokenizers'} & set(sys.modules)))"
        )
        assert (
            subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False).returncode == 0
        )

    def test_an_unknown_command_is_an_error(self) -> None:
        assert call("chekc").exit_code == 2


class TestVerify:
    def test_a_clean_file_is_success(self, policy: Path, tmp_path: Path) -> None:
        text = tmp_path / "reply.txt"
        text.write_text("All is well.\n")
        result = call("verify", policy, text)
        assert (result.exit_code, result.stdout) == (0, f"{text}: clean\n")

    def test_findings_are_placed_and_not_quoted(self, policy: Path, tmp_path: Path) -> None:
        text = tmp_path / "draft.txt"
        text.write_bytes(f"Übung\r\nné {SECRET} by Bluebird".encode())
        result = call("verify", policy, text)
        assert result.exit_code == 1
        assert result.stdout.splitlines() == [
            f"{text}:2:4: ssn (offsets 10 to 21, 11 characters)",
            f"{text}:2:19: codename (offsets 25 to 33, 8 characters)",
        ]
        assert SECRET not in result.output

    def test_what_matched_is_shown_on_request(self, policy: Path) -> None:
        result = call("verify", policy, "-", "--show", stdin=f"it is {SECRET}")
        assert result.exit_code == 1
        assert result.stdout == f"-:1:7: ssn (offsets 6 to 17, 11 characters): '{SECRET}'\n"

    def test_json_has_the_same_findings(self, policy: Path, tmp_path: Path) -> None:
        clean = tmp_path / "a.txt"
        clean.write_text("nothing")
        result = call("verify", policy, clean, "-", "--json", stdin=f"\n {SECRET}")
        assert result.exit_code == 1
        assert SECRET not in result.stdout
        document = json.loads(result.stdout)
        assert document["ok"] is False
        assert [(file["file"], file["ok"], file["length"]) for file in document["files"]] == [
            (str(clean), True, 7), ("-", False, 13),
        ]  # fmt: skip
        assert document["files"][1]["findings"] == [
            {"rule_id": "ssn", "mode": "hard", "start": 2, "end": 13, "length": 11, "line": 2, "column": 2}
        ]

    def test_a_file_that_cannot_be_read_is_an_error_and_does_not_stop_the_others(
        self, policy: Path, tmp_path: Path
    ) -> None:
        broken = tmp_path / "latin1.txt"
        broken.write_bytes(b"caf\xe9")
        clean = tmp_path / "clean.txt"
        clean.write_text("")
        result = call("verify", policy, tmp_path / "none.txt", broken, clean)
        assert result.exit_code == 2
        assert result.stdout == f"{clean}: clean\n"
        assert "not UTF-8 at byte 3" in result.stderr
        assert "none.txt" in result.stderr

    def test_soft_and_monitor_rules_are_listed_and_do_not_fail(self, tmp_path: Path) -> None:
        path = tmp_path / "soft.yaml"
        path.write_text(
            "name: soft\nrules:\n  - {id: mild, strings: [darn], penalty: 2}\n"
            "  - {id: seen, strings: [heck], monitor: true}\n"
        )
        result = call("verify", path, "-", stdin="darn heck")
        assert result.exit_code == 0
        assert [line.split(" (")[0] for line in result.stdout.splitlines()] == [
            "-:1:1: mild [soft]", "-:1:6: seen [monitor]",
        ]  # fmt: skip
        assert "no rule is hard" in call("check", path).stdout

    def test_presets_are_policies(self) -> None:
        assert call("verify", "pii", "-", stdin="nothing to see").exit_code == 0
        assert call("verify", "pii,ldnoobw", "-", stdin="write to jane.doe@example.com").exit_code == 1

    def test_a_policy_is_a_path_or_names_by_how_it_is_written(
        self, policy: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(policy.parent)
        policy.rename("pii")  # a file of this name changes nothing
        assert call("verify", "pii", "-", stdin="write to jane.doe@example.com").exit_code == 1
        Path("pii").rename("a,b.yaml")
        text = "write to jane.doe@example.com"
        assert call("verify", "a,b.yaml", "-", stdin=text).exit_code == 0
        assert call("verify", " pii , ldnoobw", "-", stdin=text).exit_code == 1
        fails_cleanly(call("check", "pii,pii"), "policy[1]")
        fails_cleanly(call("check", "pii,"), "policy[1]")
        fails_cleanly(call("check", "./pii"), "field 'policy'")


class TestMistakes:
    def test_a_missing_policy_file(self, tmp_path: Path) -> None:
        fails_cleanly(call("check", tmp_path / "none.yaml"), "none.yaml")
        fails_cleanly(call("check", "policy"), "no preset")

    def test_an_unknown_preset(self) -> None:
        fails_cleanly(call("check", "piii"), "piii")
        fails_cleanly(call("check", ""), "preset")

    def test_a_broken_policy_file(self, tmp_path: Path) -> None:
        path = tmp_path / "policy.yaml"
        path.write_text("rules: [\n")
        fails_cleanly(call("check", path))
        path.write_text("name: x\nrules:\n  - {id: a, regex: '(a+)\\1'}\n")
        fails_cleanly(call("verify", path, "-", stdin="x"), "'a'")
        path.write_text("name: x\nrules:\n  - {id: a, strings: [b], nonsense: 1}\n")
        fails_cleanly(call("check", path), "field number 3", "line 3")

    def test_a_folder_in_place_of_a_policy(self, tmp_path: Path) -> None:
        fails_cleanly(call("check", tmp_path))

    def test_a_missing_model_or_tokenizer(self, policy: Path, tmp_path: Path) -> None:
        generate = ("generate", "--policy", policy, "--prompt", "x", "--model")
        fails_cleanly(call(*generate, tmp_path / "none"), "no model folder")
        (tmp_path / "empty").mkdir()
        fails_cleanly(call(*generate, tmp_path / "empty"), "cannot load")
        fails_cleanly(call("check", policy, "--tokenizer", tmp_path / "none"), "no tokenizer")

    def test_no_prompt(self, policy: Path, tmp_path: Path) -> None:
        fails_cleanly(call("generate", "--policy", policy, "--model", tmp_path), "prompt")

    def test_an_audit_log_that_cannot_be_written(self, policy: Path, model: Path, tmp_path: Path) -> None:
        result = call("generate", "--policy", policy, "--model", model, "--prompt", "x", "--audit", tmp_path)
        fails_cleanly(result, "audit log")


class TestCheck:
    def test_rules_digest_and_kind_are_listed(self, policy: Path) -> None:
        result = call("check", policy)
        assert result.exit_code == 0, result.output
        for word in ("codename", "ssn", "string", "regex", "hard", "sha256"):
            assert word in result.stdout

    def test_json_is_stable(self, policy: Path) -> None:
        first, second = call("check", policy, "--json"), call("check", policy, "--json")
        document = json.loads(first.stdout)
        assert document == json.loads(second.stdout)
        assert [rule["id"] for rule in document["rules"]] == ["codename", "ssn"]
        assert re.fullmatch(r"(sha256:)?[0-9a-f]{64}", document["digest"])

    def test_forbidden_strings_and_patterns_are_not_printed(self, policy: Path) -> None:
        for options in ((), ("--json",)):
            assert "Bluebird" not in call("check", policy, *options).output

    def test_binding_to_a_tokenizer_prints_sizes_and_times(self, policy: Path, model: Path) -> None:
        for path in (model, model / "tokenizer.json"):
            result = call("check", policy, "--tokenizer", path, "--json")
            assert result.exit_code == 0, result.output
            assert json.loads(result.stdout)["tokenizer"]["family"] == "byte-level"
        assert "byte-level" in call("check", policy, "--tokenizer", model).stdout


class TestPresetsAndSchema:
    def test_presets_are_listed(self) -> None:
        result = call("presets")
        assert result.exit_code == 0
        assert "pii" in result.stdout
        assert "ldnoobw" in result.stdout
        names = {preset["name"] for preset in json.loads(call("presets", "--json").stdout)}
        assert {"pii", "ldnoobw"} <= names

    def test_one_preset_is_shown_with_its_rules_and_options(self) -> None:
        result = call("presets", "pii")
        assert result.exit_code == 0
        assert "pii.email" in result.stdout
        assert "except" in result.stdout
        assert "pii.email" in json.loads(call("presets", "pii", "--json").stdout)["rules"]
        fails_cleanly(call("presets", "pij"), "pij")

    def test_schemas_are_json_schemas(self) -> None:
        assert "rules" in json.loads(call("schema").stdout)["properties"]
        assert "run_started" in json.loads(call("schema", "events").stdout)["discriminator"]["mapping"]


class TestAudit:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        path = tmp_path / "log.jsonl"
        with JsonLinesSink(path, signer=HmacSigner(bytes(32))) as sink:
            run = RunRecorder(sink)
            for step in range(5):
                run.intervention(sequence=0, step=step)
        return path

    def test_a_log_as_written_is_success(self, log: Path) -> None:
        result = call("audit", "verify", log)
        assert (result.exit_code, result.stdout.splitlines()) == (
            0,
            [
                f"{log}: what is here is as it was written (5 events, 1 chain, 1 file)",
                "not told: whether whole chains are gone from the end of the log: no anchor was given",
                "not told: whether somebody wrote all of it anew: no key was given",
            ],
        )
        document = json.loads(call("audit", "verify", log, "--json").stdout)
        assert document["limits"] == [
            line.removeprefix("not told: ") for line in result.stdout.splitlines()[1:]
        ]
        assert (document["ok"], document["events"], document["problems"]) == (True, 5, [])

    def test_an_edited_log_is_placed_with_status_1(self, log: Path) -> None:
        log.write_bytes(log.read_bytes().replace(b'"step":2', b'"step":7'))
        result = call("audit", "verify", log)
        assert result.exit_code == 1
        assert result.stdout.startswith(f"{log}:4: edited: number 3 ")
        document = json.loads(call("audit", "verify", log, "--json").stdout)
        assert [(one["what"], one["line"], one["seq"]) for one in document["problems"]] == [("edited", 4, 3)]

    def test_keys_and_anchors_are_files(self, log: Path, tmp_path: Path) -> None:
        key, other, anchors = tmp_path / "key", tmp_path / "other", tmp_path / "anchors"
        key.write_bytes(bytes(32))
        other.write_bytes(bytes(range(32)))
        assert call("audit", "anchor", log, "-o", anchors, "--key", key).exit_code == 0
        assert call("audit", "verify", log, "--key", key, "--anchors", anchors).exit_code == 0
        assert call("audit", "verify", log, "--key", other).exit_code == 1
        assert call("audit", "anchor", log, "-o", anchors, "--key", other).exit_code == 1
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
        assert call("audit", "verify", log).exit_code == 1
        assert call("audit", "verify", log, "--allow-open").exit_code == 0
        cut = call("audit", "verify", log, "--allow-open", "--anchors", anchors)
        assert cut.exit_code == 1
        assert "anchored" in cut.stdout

    def test_what_cannot_be_read_is_status_2(self, log: Path, tmp_path: Path) -> None:
        fails_cleanly(call("audit", "verify", tmp_path / "none"), "cannot read")
        fails_cleanly(call("audit", "verify", log, "--key", tmp_path / "none"), "cannot read the key")
        fails_cleanly(call("audit", "verify", log, "--anchors", log), "not an anchor")
        fails_cleanly(call("audit", "anchor", log, "-o", tmp_path / "no" / "file"), "cannot write")


class TestGenerate:
    @pytest.fixture
    def strict(self, tmp_path: Path) -> Path:
        """A policy that a model of random weights would break within a few tokens."""
        path = tmp_path / "strict.yaml"
        path.write_text("name: strict\nrules:\n  - {id: vowels, regex: '[aeiou]'}\n")
        return path

    @pytest.mark.parametrize(
        "options", [(), ("--sample", "--top-k", "50"), ("--chat",), ("--batch-size", "1")]
    )
    def test_generated_texts_obey_and_are_recorded(
        self, strict: Path, model: Path, tmp_path: Path, options: tuple[str, ...]
    ) -> None:
        log = tmp_path / "logs" / "run.jsonl"
        prompts = tmp_path / "prompts.txt"
        prompts.write_text("What the\n\nWrite to\n")
        result = call(
            "generate", "--model", model, "--policy", strict, "--prompt", "Hello", "--prompt-file", prompts,
            "--max-new-tokens", "24", "--json", "--audit", log, *options,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert document["ok"]
        assert len(document["outputs"]) == 3
        for output in document["outputs"]:
            assert not re.search("[aeiou]", output["text"])
        events = read_events(log)
        assert events.whole
        kinds = [event.kind for event in events.events]
        assert {"run_started", "run_finished"} <= set(kinds)
        assert "intervention" in kinds
        for output in document["outputs"]:
            assert output["text"].strip() not in log.read_text() or not output["text"].strip()

    def test_texts_go_back_where_they_are_told_to(self, strict: Path, model: Path) -> None:
        command = (
            "generate",
            "--model",
            model,
            "--policy",
            strict,
            "--prompt",
            "a",
            "--max-new-tokens",
            "24",
        )
        for options, goes_back in (
            ((), False),
            (("--when-blocked", "rewind"), True),
            (("--back-to", "sentence"), True),
            (("--when-blocked", "mask"), False),
        ):
            result = call(*command, "--json", *options)
            assert result.exit_code == 0, result.output
            (output,) = json.loads(result.stdout)["outputs"]
            assert not re.search("[aeiou]", output["text"])
            assert ("rewinds" in output) == goes_back
        for option in (("--back-to", "match"), ("--per-match", "2"), ("--per-text", "0")):
            fails_cleanly(call(*command, "--when-blocked", "mask", *option), "rewind")
        assert call(*command, "--when-blocked", "retry").exit_code == 2
        assert call(*command, "--per-match", "-1").exit_code == 2

    def test_texts_go_back_as_often_as_they_are_told_to(self, tmp_path: Path, model: Path) -> None:
        """Where the call does not say it, the policy does; 0 takes a limit away."""
        path = tmp_path / "pairs.yaml"
        path.write_text(
            "name: pairs\nrules:\n  - {id: pairs, regex: '[a-m ][a-m ]'}\n"
            "rewind: {back_to: sentence, per_match: 1, per_text: 3}\n"
        )
        command = ("generate", "--model", model, "--policy", path, "--prompt", "a", "--sample", "--json")

        def counts(*options: str) -> dict[str, int]:
            result = call(*command, "--max-new-tokens", "48", *options)
            assert result.exit_code == 0, result.output
            found: dict[str, int] = json.loads(result.stdout)["outputs"][0]["rewinds"]
            return found

        assert counts()["rewinds"] == 3
        assert counts("--per-text", "2")["rewinds"] == 2
        by_place, free = counts("--per-text", "0"), counts("--per-match", "0", "--per-text", "0")
        assert free["rewinds"] > by_place["rewinds"]
        assert by_place["fallbacks"] > 0 == free["fallbacks"]
        in_full = counts("--back-to", "sentence", "--per-match", "1", "--per-text", "3")
        assert counts() == counts("--back-to", "sentence") == counts("--per-match", "1") == in_full
        assert counts("--back-to", "match") != in_full

    def test_the_digest_is_keyed_where_a_key_is_given(
        self, strict: Path, model: Path, tmp_path: Path
    ) -> None:
        log, key = tmp_path / "run.jsonl", tmp_path / "key"
        key.write_bytes(bytes(range(32)))
        command = ("generate", "--model", model, "--policy", strict, "--prompt", "x", "--max-new-tokens", "2")
        result = call(*command, "--json", "--audit", log, "--digest-key", key)
        assert result.exit_code == 0, result.output
        keyed = call("audit", "digest", strict, "--key", key).stdout.strip()
        assert keyed.startswith("hmac-sha256:")
        assert json.loads(result.stdout)["policy_digest"] == keyed
        seen = {
            digest for event in read_events(log).events if (digest := getattr(event, "policy_digest", None))
        }
        assert seen == {keyed}
        assert call("audit", "digest", strict).stdout.strip() not in result.output + log.read_text()
        key.write_bytes(b"short")
        fails_cleanly(call(*command, "--digest-key", key), "--digest-key: a key is at least 16 bytes")
        fails_cleanly(call(*command, "--digest-key", tmp_path / "none"), "cannot read the key")

    def test_the_same_seed_gives_the_same_text(self, strict: Path, model: Path) -> None:
        command = ("generate", "--model", model, "--policy", strict, "--prompt", "a", "--sample", "--seed")
        assert call(*command, "4").stdout == call(*command, "4").stdout
        assert call(*command, "4").stdout != call(*command, "5").stdout


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    log = tmp_path_factory.mktemp("demo") / "audit.jsonl"

    def run(samples: int, tokens: int, *options: str) -> Result:
        size = ("--samples", str(samples), "--max-new-tokens", str(tokens))
        return call("demo", *size, "--audit", log, *options)

    return {"log": log, "json": run(4, 32, "--json"), "text": run(2, 24, "--show", "1")}


class TestDemo:
    def test_the_guarded_arm_never_violates_and_the_unguarded_one_does(self, runs: dict[str, Any]) -> None:
        assert runs["json"].exit_code == 0, runs["json"].output
        document = json.loads(runs["json"].stdout)
        assert document["ok"]
        for task in document["tasks"].values():
            assert task["base"]["violation_rate"] > 0.0
            assert task["base"]["relative_throughput"] == 100.0
            for arm in ("guarded", "rewound"):
                assert task[arm]["violation_rate"] == 0.0
                assert task[arm]["interventions"] > 0
                assert task[arm]["perplexity"] >= 1.0

    def test_without_a_terminal_it_prints_plain_text_of_at_most_100_columns(
        self, runs: dict[str, Any]
    ) -> None:
        result = runs["text"]
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.stdout
        assert "[[" in result.stdout
        assert max(map(len, result.stdout.splitlines()[:-1])) <= 100
        assert str(runs["log"]) in result.stdout

    def test_the_audit_log_is_whole_and_holds_no_unguarded_run(self, runs: dict[str, Any]) -> None:
        log = read_events(runs["log"])
        assert log.whole
        assert all(event.ok for event in log.events if event.kind == "verification")


class TestOutput:
    def test_spans_are_marked_merged_and_visible_without_colours(self) -> None:
        assert marked("abcdef", [(1, 3), (2, 4), (5, 6)], colours=False).plain == "a[[bcd]]e[[f]]"
        text = marked("abc", [(1, 2)], colours=True)
        assert text.plain == "abc"
        assert [(span.start, span.end) for span in text.spans] == [(1, 2)]

    def test_control_characters_of_a_model_do_not_reach_the_terminal(self) -> None:
        assert marked("a\x1b[2Jb\nc\u202e", [], colours=True).plain == "a\\x1b[2Jb\nc\\u202e"


def test_cache_shows_what_is_kept_and_clears_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nco_guard import Guard, Policy

    folder = tmp_path / "kept"
    monkeypatch.setenv("NCO_GUARD_CACHE", str(folder))
    empty = call("cache", "--json")
    assert empty.exit_code == 0
    assert json.loads(empty.stdout)["kinds"] == {}
    Guard(Policy.from_yaml(POLICY))
    shown = json.loads(call("cache", "--json").stdout)
    assert shown["folder"] == str(folder)
    assert shown["kinds"]["rule"]["entries"] == 1, "lists of exact strings need no check"
    assert "rules that were checked" in call("cache", "--folder", folder).stdout
    assert "removed 1 entries" in call("cache", "--clear").stdout
    assert json.loads(call("cache", "--json").stdout)["kinds"] == {}
    monkeypatch.setenv("NCO_GUARD_CACHE", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert "folder" in call("cache").stdout
