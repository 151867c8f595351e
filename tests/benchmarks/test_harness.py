"""Child processes, records, targets and reports: what the figures go through."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from benchmarks.harness.machine import this_machine
from benchmarks.harness.options import Options
from benchmarks.harness.processes import Bounds, Memory, isolated
from benchmarks.harness.record import (
    Case,
    Check,
    Collector,
    Measurement,
    Record,
    joined,
    read_record,
)
from benchmarks.harness.targets import TARGETS, evaluate, judge_accelerator
from benchmarks.inputs.constraints import EVERYTHING, SUBSTRINGS, random_strings, regexes, strings
from benchmarks.methods.world import METHODS, cannot_express
from benchmarks.report import page, report
from benchmarks.runner import write
from nco_guard.errors import NCOGuardError, UnsupportedError

DATA = Path(__file__).parent / "data"
TOKENIZER = "vocabulary (128,000)"
BOUNDS = Bounds(seconds=600, mib=8192)
PASSED = Bounds(seconds=1e-9, mib=8192)


def measured(suite: str, method: str, samples: dict[str, list[float]], **case: str | int) -> Measurement:
    where = Case.model_validate({"suite": suite, "method": method, "tokenizer": TOKENIZER, **case})
    return Measurement(case=where, samples=samples)


def record_of(*measurements: Measurement, checks: tuple[Check, ...] = ()) -> Record:
    return Record(
        started="2030-01-01T00:00:00+00:00",
        seconds=1.0,
        command="nco-guard bench",
        machine=this_machine(),
        versions={"torch": "2"},
        commit=None,
        options={"tokenizer": TOKENIZER},
        notes=[],
        measurements=list(measurements),
        checks=list(checks),
    )


class TestProcesses:
    def test_a_child_returns_its_value_and_shares_nothing_back(self) -> None:
        seen: list[int] = []

        def work(number: int) -> int:
            seen.append(number)
            return os.getpid()

        outcome = isolated(BOUNDS, work, 3)
        assert outcome.status == "ok"
        assert outcome.value != os.getpid()
        assert seen == []

    def test_a_child_over_its_time_is_ended_and_reported(self) -> None:
        outcome = isolated(Bounds(seconds=0.3, mib=8192), time.sleep, 10_000.0)
        assert (outcome.status, outcome.value) == ("over time", None)
        assert multiprocessing.active_children() == []

    def test_a_bound_that_is_passed_at_once_is_met_by_no_machine(self) -> None:
        for _ in range(20):
            assert isolated(PASSED, int).status == "over time"

    def test_a_child_over_its_memory_is_ended_and_reported(self) -> None:
        def hoard() -> None:
            held = [bytearray(b"x" * (16 << 20)) for _ in range(32)]
            while held:
                time.sleep(1)

        from benchmarks.harness.processes import resident_mib

        outcome = isolated(Bounds(seconds=600, mib=resident_mib() + 200), hoard)
        assert outcome.status == "over memory"

    def test_errors_of_a_child_are_outcomes(self) -> None:
        def refuses() -> None:
            raise UnsupportedError("no patterns")

        def breaks() -> None:
            raise ValueError("the text that must not be quoted")

        def dies() -> None:
            os._exit(7)

        assert isolated(BOUNDS, refuses).status == "cannot express"
        broken = isolated(BOUNDS, breaks)
        assert (broken.status, broken.reason) == ("failed", "ValueError")
        assert "status 7" in isolated(BOUNDS, dies).reason

    def test_memory_is_the_peak_of_the_work_alone(self) -> None:
        def work() -> tuple[float, float]:
            before = bytearray(b"x" * (64 << 20))
            del before
            with Memory() as memory:
                held = bytearray(b"x" * (100 << 20))
                del held
            return memory.peak_mib, memory.kept_mib

        outcome = isolated(BOUNDS, work)
        assert outcome.value is not None
        peak, kept = outcome.value
        assert peak > 90
        assert kept < 50


class TestConstraints:
    def test_methods_that_cannot_express_a_constraint_say_why(self) -> None:
        assert cannot_express(METHODS["ours"], EVERYTHING) == ""
        assert "lookaround" in cannot_express(METHODS["llguidance"], EVERYTHING)
        assert "patterns" in cannot_express(METHODS["xgrammar"], regexes(3))
        assert cannot_express(METHODS["paper-nco"], regexes(3)) == ""
        with pytest.raises(NCOGuardError, match="word boundaries"):
            _ = EVERYTHING.plain

    def test_plain_constraints_are_those_of_the_policy(self) -> None:
        texts, patterns = SUBSTRINGS.plain
        assert (len(texts), patterns) == (403, ())
        assert len(strings(50).plain[0]) == 50
        assert {len(text) for text in random_strings(50)} == {16}
        assert random_strings(50) == random_strings(60)[:50]

    def test_a_file_with_too_few_patterns_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "some.jsonl"
        path.write_text(json.dumps({"query": "ab+c"}) + "\n")
        assert regexes(1, path).name == "1 RegexPSPACE regexes"
        with pytest.raises(NCOGuardError, match="1 patterns, 2 were asked for"):
            regexes(2, path)


class TestRecord:
    def test_samples_gather_over_rounds_and_a_failure_stays(self) -> None:
        collector = Collector()
        case = Case(suite="setup", method="ours")
        collector.add(case, {"setup_s": [0.123456789]})
        collector.add(case, {"setup_s": [2.0]})
        assert collector.measurements[0].samples == {"setup_s": [0.12346, 2.0]}
        collector.add(case, {}, "over time", "ended")
        collector.add(case, {"setup_s": [3.0]})
        assert collector.measurements[0].status == "over time"

    def test_a_figure_without_a_unit_is_refused(self) -> None:
        with pytest.raises(ValueError, match="unit"):
            Collector().add(Case(suite="setup", method="ours"), {"speed": [1.0]})

    def test_a_record_reads_back_as_it_was_written(self, tmp_path: Path) -> None:
        record = record_of(measured("setup", "ours", {"setup_s": [0.1, 0.2]}, constraint=SUBSTRINGS.name))
        write(record, tmp_path)
        assert read_record(tmp_path / "results.json") == record
        schema = json.loads((tmp_path / "results.json").read_text())
        assert {"format", "machine", "versions", "commit", "measurements", "checks", "targets"} <= set(schema)

    def test_a_record_of_an_earlier_version_reads_and_shows_as_it_did(self) -> None:
        assert report(read_record(DATA / "record.json")) + "\n" == (DATA / "record.md").read_text()

    @pytest.mark.parametrize("text", ["{}", "nothing", '{"format": 2}'])
    def test_another_file_is_no_record(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "results.json"
        path.write_text(text)
        with pytest.raises(NCOGuardError, match="no record of a benchmark"):
            read_record(path)

    @pytest.mark.parametrize("wrong", [{"rounds": 0}, {"steps": 1}, {"only": ("speed",)}, {"threads": 0}])
    def test_wrong_options_are_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError, match="validation error"):
            Options.model_validate(wrong)


class TestTargets:
    def found(self, name: str, record: Record) -> tuple[bool | None, str | None]:
        result = next(t for t in evaluate(record) if t.name == name)
        return result.met, result.measured

    def test_nothing_measured_is_neither_met_nor_missed(self) -> None:
        assert [t.met for t in evaluate(record_of())] == [None] * len(TARGETS)

    def test_the_median_decides(self) -> None:
        name = "set up LDNOOBW-en as substrings"
        for values, met in (([0.1, 0.14, 9.0], True), ([0.1, 0.2, 0.3], False)):
            record = record_of(measured("setup", "ours", {"setup_s": values}, constraint=SUBSTRINGS.name))
            assert self.found(name, record)[0] is met

    def test_a_miss_says_by_how_much(self) -> None:
        record = record_of(measured("setup", "ours", {"setup_s": [0.3]}, constraint=SUBSTRINGS.name))
        result = next(t for t in evaluate(record) if t.name == "set up LDNOOBW-en as substrings")
        assert result.note == "missed by a factor of 2"

    def test_ratios_need_both_sides(self) -> None:
        name = "set-up time of the paper's method / ours, substrings"
        ours = measured("setup", "ours", {"setup_s": [0.1]}, constraint=SUBSTRINGS.name)
        paper = measured("setup", "paper-nco", {"setup_s": [100.0]}, constraint=SUBSTRINGS.name)
        assert self.found(name, record_of(ours)) == (None, None)
        assert self.found(name, record_of(ours, paper)) == (True, "1,000 x")

    def test_of_many_cases_the_worst_counts(self) -> None:
        cases = [
            measured("throughput", "ours", {"relative_ratio": [ratio]}, model="small Llama", batch=batch)
            for batch, ratio in ((1, 1.0), (8, 0.97), (64, 0.995))
        ]
        name = "the same, three layers and a vocabulary (75 M)"
        assert self.found(name, record_of(*cases)) == (False, "97 %")

    def test_records_of_suites_run_apart_are_joined(self) -> None:
        one = record_of(measured("setup", "ours", {"setup_s": [0.1]}, constraint=SUBSTRINGS.name))
        other = record_of(
            measured("setup", "paper-nco", {"setup_s": [100.0]}, constraint=SUBSTRINGS.name),
            checks=(Check(constraint="x", tokenizer="t", against="definition", compared=2, differences=0),),
        )
        both = joined([one, other])
        assert self.found("set-up time of the paper's method / ours, substrings", both) == (True, "1,000 x")
        assert (both.seconds, len(both.checks)) == (one.seconds + other.seconds, 1)
        assert joined([one]).measurements == one.measurements

    def test_records_that_do_not_belong_together_are_not_joined(self) -> None:
        one = record_of(measured("setup", "ours", {"setup_s": [0.1]}, constraint=SUBSTRINGS.name))
        with pytest.raises(NCOGuardError, match="measured the same"):
            joined([one, one])
        machine = one.machine.model_copy(update={"cores": 99, "load_before": 3.0})
        for name, value in (
            ("machine", machine),
            ("versions", {"torch": "0"}),
            ("options", {"tokenizer": "other"}),
        ):
            with pytest.raises(NCOGuardError, match="not of one"):
                joined([record_of(), one.model_copy(update={name: value})])

    def test_a_case_that_failed_is_no_measurement(self) -> None:
        case = Case(suite="setup", method="ours", tokenizer=TOKENIZER, constraint=SUBSTRINGS.name)
        record = record_of(Measurement(case=case, status="over time", samples={"setup_s": [0.1]}))
        assert self.found("set up LDNOOBW-en as substrings", record) == (None, None)

    def test_memory_is_judged_after_a_million_steps_only(self) -> None:
        name = "memory over the long run: second half / first half"
        held = {"resident_mib": [0.0, 50.0, 60.0, 60.0, 63.0]}
        short = measured("memory", "ours", {**held, "at_count": [0.0, 1e3, 2e3, 3e3, 4e3]})
        full = measured("memory", "ours", {**held, "at_count": [0.0, 2.5e5, 5e5, 7.5e5, 1e6]})
        assert self.found(name, record_of(short))[0] is None
        assert self.found(name, record_of(full))[0] is False

    def test_the_accelerator_is_judged_by_the_whole_shape(self) -> None:
        for model, met in (("Llama-3.1-8B shape", False), ("Llama-3.1-8B shape, small", None)):
            case = measured("1: profanity", "ours", {"relative_ratio": [0.99, 0.98]}, model=model, batch=1)
            assert judge_accelerator(record_of(case))[0].met is met


class TestReport:
    def full(self) -> Record:
        limits = Case(suite="strings", method="xgrammar", tokenizer=TOKENIZER, constraint="x", size=1000)
        cannot = Case(suite="setup", method="xgrammar", tokenizer=TOKENIZER, constraint="x")
        held: dict[str, list[float]] = {"at_count": [0, 1, 2, 3], "resident_mib": [0, 1, 2, 2]}
        held |= {"tables_mib": [0, 1, 1, 1], "replaced_count": [0, 0, 1, 1]}
        text = {"first_s": [1e-5, 2e-5], "new_s": [1e-3], "known_s": [1e-6], "states_count": [3]}
        return record_of(
            measured(
                "setup",
                "ours",
                {"setup_s": [0.1], "peak_mib": [8], "first_mask_s": [1]},
                constraint=SUBSTRINGS.name,
            ),
            measured("reading", "ours", {"read_s": [0.3], "tree_s": [0.1], "peak_mib": [5]}),
            measured("steps", "ours", text, constraint=SUBSTRINGS.name, batch=1),
            measured("steps", "arg-max", {"step_s": [1e-5]}, batch=1),
            measured(
                "throughput", "ours", {"relative_ratio": [0.98, 1.0]}, model="m", constraint="x", batch=1
            ),
            measured("strings", "ours", {"setup_s": [0.1], "peak_mib": [8], "step_s": [1e-5]}, size=100),
            Measurement(case=limits, status="over time", reason="ended after 20 s"),
            Measurement(case=cannot, status="cannot express", reason="it has strings only"),
            measured("memory", "ours", held, constraint="x"),
            measured("revise", "from scratch", {"revise_s": [0.5]}, size=1000),
            measured(
                "natural",
                "mask",
                {"passes_count": [1.0], "with_brinks_ratio": [0.9]},
                constraint="x",
                model="greedy",
            ),
            checks=(Check(constraint="x", tokenizer="t", against="definition", compared=9, differences=0),),
        )

    def test_what_was_not_measured_is_said_and_why(self) -> None:
        text = report(self.full())
        assert "over time: ended after 20 s" in text
        assert "LDNOOBW-en, substrings" in text
        assert "98" in text or "99.0 %" in text
        assert "definition | 9 | 0" in text

    def test_plots_are_transparent_svg(self, tmp_path: Path) -> None:
        paths = write(self.full(), tmp_path)
        plots = [path for path in paths if path.suffix == ".svg"]
        assert {path.stem for path in plots} >= {
            "setup",
            "steps",
            "throughput",
            "strings",
            "memory",
            "natural",
        }
        for path in plots:
            text = path.read_text()
            assert text.lstrip().startswith("<?xml")
            assert "fill: #ffffff" not in text
            assert f"]({path.name})" in (tmp_path / "results.md").read_text()

    def test_a_page_keeps_what_stands_around_its_marks(self) -> None:
        old = "# Title\n\n<!-- bench: begin -->\nold\n<!-- bench: end -->\n\nThe end.\n"
        new = page(self.full(), old)
        assert new.startswith("# Title\n")
        assert new.endswith("\nThe end.\n")
        assert "old\n" not in new
        assert "## Set-up" in new
        assert page(self.full(), new) == new
        with pytest.raises(ValueError, match="no line"):
            page(self.full(), "# Title\n")
