"""Each suite's work on something tiny, really run; nothing is said about how long it takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.cli import main
from benchmarks.harness.building import allowed_rows
from benchmarks.harness.options import Options
from benchmarks.harness.plan import Plan, case_of
from benchmarks.harness.record import Check, read_record
from benchmarks.harness.setting_up import set_up
from benchmarks.harness.timing import turns
from benchmarks.inputs.constraints import PAPER_PII, ConstraintSet, regexes, strings
from benchmarks.methods.world import BASE, METHODS, World, read_world
from benchmarks.suites import regexes as regex_scaling
from benchmarks.suites.equality import against_definition, against_method
from benchmarks.suites.memory import random_text
from benchmarks.suites.reading import read_all
from benchmarks.suites.steps import walk
from benchmarks.suites.strings import against_look_ups
from benchmarks.suites.throughput import generations
from nco_guard.errors import ForbiddenTokenError, NCOGuardError
from nco_guard.policy import Policy, StringRule
from nco_guard.session import Session

Call = Callable[..., tuple[int, str, str]]
WORDS = ConstraintSet(
    "a few", lambda: Policy(name="few", rules=(StringRule(id="few", strings=("parcel", "the", "@ex")),))
)
FEW = regexes(3)
INSTALLED = [key for key in METHODS if key != "xgrammar" or find_spec(key) is not None]
needs_all = pytest.mark.skipif("xgrammar" not in INSTALLED, reason="a whole run measures xgrammar too")


@pytest.fixture(scope="module")
def world() -> World:
    torch.set_num_threads(1)
    return read_world(None, 1)


@pytest.mark.parametrize("key", INSTALLED)
def test_every_method_is_set_up_and_steps(key: str, world: World) -> None:
    samples = set_up(METHODS[key], WORDS, world, walk=12)
    assert samples["setup_s"][0] > 0
    assert samples["peak_mib"][0] >= 0
    assert len(samples["step_s"]) > 5
    rows = allowed_rows(WORDS, world, 3, 10)
    steps = walk(METHODS[key], WORDS, world, rows)
    assert len(steps["first_s"]) == 10
    if key == "ours":
        assert 1 <= len(steps["new_s"]) <= 10
        assert len(steps["known_s"]) == 10, "the second pass meets known states only"


def test_the_text_holds_nothing_forbidden(world: World) -> None:
    rows = allowed_rows(WORDS, world, 4, 60)
    assert rows.shape == (4, 60)
    assert len({tuple(row) for row in rows.tolist()}) == 4
    for row in rows:
        text = world.vocabulary.text_of(row.tolist())
        assert len(text) > 60
        assert not any(word in text for word in ("parcel", "the", "@ex"))


@pytest.mark.parametrize("constraint", [WORDS, FEW], ids=["strings", "patterns"])
def test_masks_are_those_of_the_definition_and_of_exact_methods(
    constraint: ConstraintSet, world: World
) -> None:
    check = against_definition(constraint, world, 20, seconds=2.0)
    assert check.compared >= 1
    assert check.differences == 0
    rows = allowed_rows(constraint, world, 1, 25)
    for key in ("paper-nco", "llguidance"):
        found = against_method(METHODS[key], constraint, world, rows)
        assert (found.compared, found.differences) == (25, 0)


@dataclass(frozen=True)
class Lying(ConstraintSet):
    """Tells the other methods less than its policy forbids."""

    @property
    def plain(self) -> tuple[tuple[str, ...], tuple[str, ...]]:  # type: ignore[override]
        return ("parcel",), ()


@pytest.mark.parametrize("key", [key for key in INSTALLED if METHODS[key].exact and key != "ours"])
def test_a_difference_is_found(key: str, world: World) -> None:
    rows = allowed_rows(WORDS, world, 1, 10)
    found = against_method(METHODS[key], Lying("lying", WORDS.build), world, rows)
    assert found.differences == 10


def test_generations_take_turns_and_are_guarded(world: World) -> None:
    words, runs = generations("shipped", world, WORDS, (2,), INSTALLED, rounds=2, new_tokens=6)
    assert words == ""
    assert set(runs) == {(2, key) for key in (BASE, *INSTALLED)}
    for (_, key), run in runs.items():
        assert run.status == "ok", (key, run.reason)
        pairs = {"ours": 8, BASE: 8 + 2 * (len(INSTALLED) - 1)}.get(key, 2)
        assert len(run.samples["tokens_per_s"]) == pairs
        assert key == BASE or len(run.samples["relative_ratio"]) == pairs


def test_a_model_of_random_weights_writes_the_text(world: World) -> None:
    from benchmarks.inputs.models import Replay, random_llama
    from benchmarks.inputs.shapes import ModelShape

    model, words = random_llama(world.vocabulary.width, ModelShape(1, 64, 176, 1, 1))
    assert "random weights" in words
    texts = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
    replay = Replay(texts)
    model.lm_head.register_forward_hook(replay)
    for _ in range(2):
        replay.restart()
        ids = torch.tensor([[1, 2], [3, 4]])
        found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False)
        assert found[:, 2:].tolist() == texts.tolist()


def test_a_method_over_its_bounds_is_reported_and_not_tried_with_more(world: World) -> None:
    options = Options(quick=True, only=("regexes",), seconds=1e-9)  # no machine is as quick
    plan = Plan(options, (world,), 1, lambda line: None)
    regex_scaling.measure(plan)
    found = {(m.case.method, m.case.size): m for m in plan.collector.measurements}
    assert found["ours", 8].status == "over time"
    assert found["ours", 64].reason == "not tried: 8 were over the bounds"
    assert found["xgrammar", 8].status == "cannot express"


def test_masks_of_lists_are_those_of_look_ups(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    check = against_look_ups(strings(2000), world)
    assert (check.compared, check.differences) == (6, 0)
    found = against_look_ups(WORDS, world)
    assert (found.compared, found.differences) == (6, 0)
    # A mask that forbids too few is found.
    advance = Session.advance

    def advance_if_allowed(session: Session, token: int) -> None:
        with suppress(ForbiddenTokenError):
            advance(session, token)

    monkeypatch.setattr(Session, "advance", advance_if_allowed)
    monkeypatch.setattr(Session, "mask", lambda self: np.zeros(world.vocabulary.width, bool))
    assert against_look_ups(WORDS, world).differences == 6


def test_random_text_is_walked_and_memory_sampled(world: World) -> None:
    samples = random_text(PAPER_PII, world, 300, seconds=600)
    assert samples["at_count"][-1] == 300
    assert len(samples["resident_mib"]) == len(samples["at_count"]) == len(samples["replaced_count"])
    assert np.diff(samples["at_count"]).min() > 0


def test_the_vocabulary_is_read_from_disk_the_second_time(world: World) -> None:
    plan = Plan(Options(quick=True, only=("setup",)), (world,), 1, lambda line: None)
    read_all(plan, world)
    found = {m.case.method: m for m in plan.collector.measurements}
    assert {"ours", "ours, to disk", "ours, from disk", "llguidance"} <= set(found)
    assert all(m.samples["read_s"][0] > 0 for key, m in found.items() if key in INSTALLED or "disk" in key)


def test_rounds_begin_with_another_method_each_time(world: World) -> None:
    assert [m for _, m in turns(("a", "b", "c"), 3)] == list("abcbcacab")
    assert case_of("setup", "ours", strings(5), world, size=5).constraint == "5 strings"


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NCOGuardError, match="no such folder"):
        read_world(tmp_path / "nowhere", 1)
    with pytest.raises(NCOGuardError, match="no tokenizer"):
        read_world(tmp_path, 1)


class TestCommand:
    @pytest.fixture
    def call(self, capsys: pytest.CaptureFixture[str]) -> Call:
        def call(*arguments: str | Path) -> tuple[int, str, str]:
            status = main([*map(str, arguments)])
            return status, *capsys.readouterr()

        return call

    def test_a_run_writes_its_record_and_prints_the_targets(self, tmp_path: Path, call: Call) -> None:
        status, out, told = call(
            "run",
            "--quick",
            "--only",
            "revise",
            "--rounds",
            "1",
            "--threads",
            "1",
            "-o",
            tmp_path / "new" / "folder",
        )
        assert status == 0, told
        assert "| add one string to 10,000 |" in out
        assert "from scratch" in told
        record = read_record(tmp_path / "new" / "folder" / "results.json")
        assert record.options["suites"] == ["revise"]
        assert record.find("revise", method="from scratch")[0].samples["revise_s"][0] > 0
        assert record.find("revise", method="with_rules")[0].status == "ok"
        assert record.machine.cores >= 1
        assert record.versions["torch"] == torch.__version__

    def test_a_difference_makes_the_exit_status_1(self, tmp_path: Path, call: Call) -> None:
        status, _, told = call("run", "--quick", "--only", "revise", "--rounds", "1", "-o", tmp_path)
        assert status == 0, told
        record = read_record(tmp_path / "results.json")
        wrong = Check(constraint="x", tokenizer="t", against="definition", compared=2, differences=1)
        (tmp_path / "results.json").write_text(
            record.model_copy(update={"checks": [wrong]}).model_dump_json()
        )
        page = tmp_path / "page.md"
        page.write_text("# Page\n<!-- bench: begin -->\n<!-- bench: end -->\n")
        assert call("render", tmp_path / "results.json")[0] == 1
        assert call("render", tmp_path / "results.json", "--into", page)[0] == 1
        assert "## Equality" in page.read_text()

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["run", "--only", "speed"], "--only speed: there is equality, reading, setup, steps"),
            (["run", "--only", "revise", "--tokenizer", "nowhere"], "no such folder"),
            (["run", "--text", "nowhere.txt"], "--text nowhere.txt: no such file"),
            (["run", "--batch", "8", "0"], "--batch 0: a batch has at least one sequence"),
            (["run", "--rounds", "0"], "--rounds 0: Input should be greater than or equal to 1"),
            (["run", "--model", "none"], "--model none: there is shipped, small Llama, Qwen2.5-0.5B shape"),
            (["render", "nowhere.json"], "nowhere.json"),
            pytest.param(
                ["run", "--only", "regexes", "--quick", "--regexpspace", "nowhere.jsonl"],
                "nowhere.jsonl",
                marks=needs_all,
            ),
        ],
    )
    def test_wrong_input_is_one_message_and_exit_status_2(
        self, arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
    ) -> None:
        monkeypatch.chdir(tmp_path)
        status, out, told = call(*arguments)
        assert (status, out) == (2, "")
        assert words in told.splitlines()[-1]

    def test_a_missing_extra_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
    ) -> None:
        from importlib import util

        real = util.find_spec
        monkeypatch.setattr(
            "benchmarks.runner.find_spec", lambda name: None if name == "xgrammar" else real(name)
        )
        status, _, told = call("run", "--quick", "-o", tmp_path)
        assert status == 2
        assert "needs xgrammar: pip install -r benchmarks/requirements.txt" in told
