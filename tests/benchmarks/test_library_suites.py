"""Suites that measure parts of the library, on something tiny, really run; nothing is said about how long it takes."""

from __future__ import annotations

import re
import shlex
from functools import partialmethod
from importlib import import_module
from pathlib import Path

import pytest
import torch

from benchmarks.cli import read
from benchmarks.errors import MissingPackageError
from benchmarks.harness.building import allowed_rows
from benchmarks.harness.machine import this_machine
from benchmarks.harness.options import SUITES, Options
from benchmarks.harness.plan import Plan
from benchmarks.harness.record import Record
from benchmarks.inputs.constraints import PAPER_PII, PII, SUBSTRINGS, ConstraintSet
from benchmarks.inputs.searches import SEARCHES
from benchmarks.inputs.texts import megabytes, prose
from benchmarks.methods.world import BASE, World, read_world
from benchmarks.suites import audit, cache, closed, device, natural, overhead, processor, redact, verify
from nco_guard import demo
from nco_guard.masking.device import DeviceTables
from nco_guard.policy import Policy, RegexRule
from nco_guard.session import BoundGuard
from nco_guard.values import Cleaner

ROOT = Path(__file__).parent.parent.parent
THINK = ConstraintSet(
    "think", lambda: Policy(name="think", rules=(RegexRule(id="think", regex=closed.CLOSED["think"][0]),))
)


@pytest.fixture(scope="module")
def world() -> World:
    torch.set_num_threads(1)
    return read_world(None, 1)


def shown(plan: Plan, suite: str) -> str:
    record = Record(
        started="2030-01-01T00:00:00+00:00",
        seconds=1.0,
        command="",
        machine=this_machine(),
        versions={},
        commit=None,
        options={},
        notes=[],
        measurements=plan.collector.measurements,
        checks=plan.collector.checks,
    )
    text: str = import_module(f"benchmarks.suites.{suite}").show(record)
    return text


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_is_a_module_that_measures_and_shows(suite: str, world: World) -> None:
    assert callable(import_module(f"benchmarks.suites.{suite}").measure)
    assert shown(Plan(Options(), (world,), 1, print), suite) == ""


def test_every_module_of_suites_is_a_suite() -> None:
    folder = ROOT / "benchmarks" / "suites"
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(SUITES)


def test_the_parts_of_a_step_take_turns(world: World) -> None:
    found = processor.times(world, allowed_rows(SUBSTRINGS, world, 2, 6))
    assert {part: len(samples["step_s"]) for part, samples in found.items()} == dict.fromkeys(
        processor.PARTS, 6
    )


@pytest.mark.parametrize("narrow", [False, True])
def test_tables_of_a_device_are_walked_and_compared(narrow: bool, world: World) -> None:
    rows = allowed_rows(PAPER_PII, world, 2, 5)
    found = device.walk(PAPER_PII, world, rows, "cpu", narrow)
    assert [len(found[way]["step_s"]) for way in device.WAYS] == [5, 5]
    assert [len(found[way]["processor_s"]) for way in device.WAYS] == [5, 5]
    check = device.against_host(PAPER_PII, world, rows, "cpu", narrow)
    assert (check.compared, check.differences) == (10, 0)


def test_a_mask_of_a_device_that_is_wrong_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = allowed_rows(PAPER_PII, world, 2, 5)
    forbidden = DeviceTables.forbidden
    monkeypatch.setattr(DeviceTables, "forbidden", lambda self, states: ~forbidden(self, states))
    assert device.against_host(PAPER_PII, world, rows, "cpu", False).differences == 10


def test_states_that_do_not_fit_a_device_are_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    few = partialmethod(BoundGuard.device_tables, max_states=8)
    monkeypatch.setattr(BoundGuard, "device_tables", few)
    plan = Plan(Options(quick=True, batch=(1,), device="cpu"), (world,), 1, lambda line: None)
    device.measure(plan)
    assert {m.case.method: m.status for m in plan.collector.measurements} == dict.fromkeys(
        device.WAYS, "cannot express"
    )
    assert "8 states" in shown(plan, "device")


def test_a_device_that_takes_too_long_is_said(world: World) -> None:
    # No machine is as quick.
    plan = Plan(Options(quick=True, batch=(1,), device="cpu", seconds=1e-9), (world,), 1, lambda line: None)
    device.measure(plan)
    assert {m.status for m in plan.collector.measurements} == {"over time"}
    assert "ended after" in shown(plan, "device")


def test_every_mask_of_what_must_be_closed_is_timed(world: World) -> None:
    text = " So <think> it is.</think> Yes."
    samples = closed.times(THINK, text, world)
    assert len(samples["mask_s"]) == len(samples["near_limit_s"]) > 5
    assert samples["undecided_count"] == [0]
    (found,) = closed.corpus(1)
    assert found[0].name == "think, answer, tool, paren"
    assert found[1].index("<think>") < found[1].index(")") < found[1].index("</think>")
    assert len(list(closed.corpus(9))) == 9


def test_a_process_starts_with_and_without_a_cache(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "NAMES", ("pii_paper",))
    plan = Plan(Options(quick=True), (world,), 1, lambda line: None)
    cache.measure(plan)
    assert [m.status for m in plan.collector.measurements] == ["ok"] * 3
    none, empty, warm = (m.samples for m in plan.collector.measurements)
    assert set(none) == {*(f"{stage}_s" for stage in cache.STAGES), "process_s"}
    assert empty["cache_mib"] == warm["cache_mib"] != [0]
    (check,) = plan.collector.checks
    assert (check.compared, check.differences) == (3, 0)
    assert "| compile | " in shown(plan, "cache")


def test_finished_text_is_verified_by_all_methods(world: World) -> None:
    text = prose(3000) + " Write to jo@example.com or jo@example.org. " + prose(300)
    found = verify.speeds(PAPER_PII, text, text[-800:], 2)
    assert [len(found[method]["mb_per_s"]) for method in verify.WAYS] == [2] * 5
    assert found[verify.FASTEST]["findings_count"] == [2]
    assert found[verify.RE]["otherwise_count"] == [0]
    check = verify.against_definition(PAPER_PII, text, text[-800:], world)
    assert check.compared > 10
    assert check.differences == 0
    assert megabytes("é") == 2e-6


def test_a_finding_that_is_missed_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_streamed", lambda verifier, text: ())
    check = verify.against_definition(PAPER_PII, "jo@example.com", "jo@example.com", world)
    assert check.differences == 2


def test_other_searches_are_measured_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(verify.bare_search("re", "a class", "a class", 2)["mb_per_s"]) == 2

    def missing(strings: list[str], text: str) -> verify.Search:
        raise ImportError

    monkeypatch.setitem(SEARCHES, "hyperscan", ("hyperscan", False, missing))
    with pytest.raises(MissingPackageError, match="pip install hyperscan"):
        verify.bare_search("hyperscan", "a class", "a class", 2)


@pytest.mark.parametrize("preset", natural.PRESETS)
def test_natural_text_is_counted(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = natural.PRESETS[preset]
    monkeypatch.setitem(demo.PROMPTS, kind, demo.PROMPTS[kind][:2])
    names = [name for name in natural._methods(preset, "greedy") if "text" not in name]
    found = natural.texts(preset, "greedy", 1, names)
    assert list(found) == names
    for name, samples in found.items():
        assert samples["texts_count"] == [2]
        assert (samples["violating_count"] == [0]) == (name != "unguarded")
    assert found["mask"]["with_brinks_ratio"] == [1.0]
    assert found["mask"]["passes_count"] == [1.0]
    assert found["back to the match"]["passes_count"][0] > 1
    early = found.get(f"mask{natural.EARLY}")
    assert (early is not None) == (preset == "pii")
    assert early is None or early["broken_off_count"] < found["mask"]["broken_off_count"]


def test_what_early_points_block_of_ordinary_text_is_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(natural, "_PROSE", 20_000)
    found = natural.innocent()
    assert list(found) == list(natural.STOPS)
    late, early = (found[stop] for stop in natural.STOPS)
    assert late["sentences_count"] == early["sentences_count"]
    assert 0 < late["blocked_alike_ratio"][0] < early["blocked_alike_ratio"][0] < 0.5
    assert late["blocked_ratio"] <= early["blocked_ratio"]


def test_redaction_is_timed_and_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "PRESETS", PII)
    clean, dirty = redact.answers(12)
    assert clean
    assert dirty
    found = redact.times(clean, dirty, 1)
    assert all(len(samples["clean_s"]) == len(samples["dirty_s"]) == 1 for samples in found.values())
    check = redact.against_definition([*clean, *dirty], world)
    assert (check.compared, check.differences) == (len(clean) + len(dirty), 0)
    monkeypatch.setattr(Cleaner, "text", lambda self, text: text)
    assert redact.against_definition([*clean, *dirty], world).differences == len(dirty)


def test_generations_are_audited_by_all_sinks() -> None:
    found = audit.generations(PAPER_PII, 1, rounds=2, new_tokens=4)
    assert list(found) == list(audit.WAYS)
    assert found["history"]["whole_ratio"] == [1.0, 1.0]
    assert all(len(samples["added_ratio"]) == 2 for samples in found.values())
    events = audit.per_event(20)
    assert set(events) == set(audit.EVENTS)
    assert all(samples["event_s"][0] > 0 for samples in events.values())


@pytest.mark.parametrize("framework", overhead.FRAMEWORKS)
def test_calls_through_frameworks_are_timed(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "TOKENS", 3)
    monkeypatch.setattr(overhead, "GUARDS", {PAPER_PII.name: PAPER_PII})
    found = overhead.FRAMEWORKS[framework](1)
    assert set(found) == {BASE, PAPER_PII.name}
    assert all(len(seconds) == 1 for samples in found.values() for seconds in samples.values())


COMMAND = re.compile(r"python -m benchmarks (?P<arguments>(?:run|render|experiments) [^`\n#]*)")
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def test_every_command_in_the_docs_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "FILE").touch()
    monkeypatch.chdir(tmp_path)
    found = [match["arguments"] for page in PAGES for match in COMMAND.finditer(page.read_text("utf-8"))]
    assert len(found) > 10
    for arguments in found:
        assert read([each for each in shlex.split(arguments) if each != "--help"]), arguments
