"""What the project set out to reach, as data, and what a record says to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.harness.record import Measurement, Record, Summary, TargetResult, summary
from benchmarks.inputs.constraints import EVERYTHING, PAPER_PII, SUBSTRINGS, WORDS

__all__ = ["TARGETS", "Target", "evaluate", "judge_accelerator"]

Statistic = Literal["median", "p99", "mean", "minimum", "maximum"]
Measure = Callable[[Record], float | None]
_LONG = 1_000_000
_TIME = {"s": (1.0, "s"), "ms": (1e3, "ms"), "us": (1e6, "us")}


@dataclass(frozen=True)
class Target:
    """limit: in `unit`, to be reached from below (`at_most`) or from above. where: what it is meant for."""

    name: str
    limit: float
    unit: str
    measure: Measure
    at_most: bool = True
    where: str = "2 cores, vocabulary of 128,000"

    def judge(self, record: Record) -> TargetResult:
        """The target beside the record."""
        value = self.measure(record)
        sign = "<=" if self.at_most else ">="
        met = None if value is None else (value <= self.limit if self.at_most else value >= self.limit)
        note = ""
        if value is not None and not met:
            off = value / self.limit if self.at_most else self.limit / value if value else float("inf")
            note = f"missed by a factor of {off:,.3g}" if off < 1e6 else "missed"
        return TargetResult(
            name=self.name,
            where=self.where,
            target=f"{sign} {self.limit:g} {self.unit}".strip(),
            measured=None if value is None else f"{value:,.4g} {self.unit}".strip(),
            met=met,
            note=note,
        )


def evaluate(record: Record) -> list[TargetResult]:
    """All targets; those that the run did not measure are undecided."""
    return [target.judge(record) for target in TARGETS]


def _one(record: Record, suite: str, **case: str | int | None) -> Measurement | None:
    tokenizer = record.options.get("tokenizer")
    found = [m for m in record.find(suite, **case) if m.status == "ok" and m.case.tokenizer == tokenizer]
    return found[0] if found else None


def _of(suite: str, figure: str, statistic: Statistic, unit: str, **case: str | int | None) -> Measure:
    """A statistic of a figure of one case, in the unit."""

    def measure(record: Record) -> float | None:
        found = _one(record, suite, **case)
        return _statistic(found, figure, statistic, unit)

    return measure


def _statistic(found: Measurement | None, figure: str, statistic: Statistic, unit: str) -> float | None:
    stats: Summary | None = None if found is None else summary(found.samples.get(figure, []))
    factor = _TIME.get(unit, (1.0, ""))[0]
    return None if stats is None else factor * float(getattr(stats, statistic))


def _ratio(over: Measure, under: Measure) -> Measure:
    def measure(record: Record) -> float | None:
        above, below = over(record), under(record)
        return None if above is None or not below else above / below

    return measure


def _setup(constraint: str, unit: str) -> Measure:
    return _of("setup", "setup_s", "median", unit, method="ours", constraint=constraint)


def _against_paper(constraint: str, figure: str) -> Measure:
    return _ratio(
        _of("setup", figure, "median", "", method="paper-nco", constraint=constraint),
        _of("setup", figure, "median", "", method="ours", constraint=constraint),
    )


def _step(figure: str, statistic: Statistic, unit: str, batches: Sequence[int]) -> Measure:
    """Of all constraints and batch sizes the worst; a case without such steps does not count."""

    def measure(record: Record) -> float | None:
        values = [
            _statistic(m, figure, statistic, unit)
            for batch in batches
            for m in record.find("steps", method="ours", batch=batch)
            if m.status == "ok"
        ]
        known = [value for value in values if value is not None]
        return max(known, default=None)

    return measure


def _beside_llguidance(statistic: Statistic) -> Measure:
    """The worst of ours / llguidance, over the constraints that both have, at batch 1 and 64."""

    def measure(record: Record) -> float | None:
        ratios = []
        for batch in (1, 64):
            for ours in record.find("steps", method="ours", batch=batch):
                theirs = _one(
                    record, "steps", method="llguidance", batch=batch, constraint=ours.case.constraint
                )
                mine = _statistic(ours, "first_s", statistic, "s")
                other = _statistic(theirs, "first_s", statistic, "s")
                if mine is not None and other:
                    ratios.append(mine / other)
        return max(ratios, default=None)

    return measure


def _throughput(model: str, batches: Sequence[int], constraint: str | None = None) -> Measure:
    """Of all constraints and batch sizes the lowest median ratio, in per cent."""

    def measure(record: Record) -> float | None:
        values = []
        for batch in batches:
            for m in record.find("throughput", method="ours", model=model, batch=batch):
                if constraint is None or m.case.constraint == constraint:
                    value = _statistic(m, "relative_ratio", "median", "")
                    if value is not None:
                        values.append(100 * value)
        return min(values, default=None)

    return measure


def _regexes(count: int, suite: str) -> Measure:
    """Of that many patterns, the file's or generated ones."""

    def measure(record: Record) -> float | None:
        for name in ("RegexPSPACE", "RegexPSPACE-shaped"):
            constraint = f"{count:,} {name} regexes"
            if suite == "throughput":
                value = _throughput("Qwen2.5-0.5B shape", (1, 8, 64), constraint)(record)
            else:
                value = _of(suite, "setup_s", "median", "s", method="ours", constraint=constraint)(record)
            if value is not None:
                return value
        return None

    return measure


def _growth(record: Record) -> float | None:
    """Over runs of a million steps: the most that the second half holds, relative to the first half."""
    growth = []
    for m in record.find("memory", method="ours"):
        held, at = m.samples.get("resident_mib", []), m.samples.get("at_count", [])
        if m.status == "ok" and len(held) >= 4 and at[-1] >= _LONG:
            half = len(held) // 2
            growth.append(max(held[half:]) / max(held[1:half]))
    return max(growth, default=None)


def _strings(figure: str, unit: str, statistic: Statistic = "median") -> Measure:
    return _of("strings", figure, statistic, unit, method="ours", size=1_000_000)


TARGETS: tuple[Target, ...] = (
    Target(
        "read the vocabulary into its prefix tree, cold",
        0.5,
        "s",
        _of("reading", "read_s", "median", "s", method="ours"),
    ),
    Target(
        "the same, from the disk cache",
        0.1,
        "s",
        _of("reading", "read_s", "median", "s", method="ours, from disk"),
    ),
    Target("set up LDNOOBW-en as substrings", 0.15, "s", _setup(SUBSTRINGS.name, "s")),
    Target("set up LDNOOBW-en as whole words, folded", 0.4, "s", _setup(WORDS.name, "s")),
    Target("set up pii + secrets + ldnoobw, 28 languages", 1.0, "s", _setup(EVERYTHING.name, "s")),
    Target(
        "set-up time of the paper's method / ours, substrings",
        20.0,
        "x",
        _against_paper(SUBSTRINGS.name, "setup_s"),
        at_most=False,
    ),
    Target(
        "peak memory of the paper's method / ours, substrings",
        50.0,
        "x",
        _against_paper(SUBSTRINGS.name, "peak_mib"),
        at_most=False,
    ),
    Target(
        "peak memory of setting up LDNOOBW-en as substrings",
        32.0,
        "MiB",
        _of("setup", "peak_mib", "median", "", method="ours", constraint=SUBSTRINGS.name),
    ),
    Target("a step, known states, batch 1: median", 30.0, "us", _step("known_s", "median", "us", (1,))),
    Target("a step, known states, batch 64: median", 0.5, "ms", _step("known_s", "median", "ms", (64,))),
    Target("a step, new state, batch 1: median", 0.3, "ms", _step("new_s", "median", "ms", (1,))),
    Target("a step, new state, batch 1: p99", 2.0, "ms", _step("new_s", "p99", "ms", (1,))),
    Target("a step beside llguidance: mean", 1.0, "x", _beside_llguidance("mean")),
    Target("a step beside llguidance: median", 1.0, "x", _beside_llguidance("median")),
    Target("a step beside llguidance: p99", 1.0, "x", _beside_llguidance("p99")),
    Target(
        "relative throughput, shape of a small model (0.5B) on the CPU, worst of all",
        99.0,
        "%",
        _throughput("Qwen2.5-0.5B shape", (1, 8, 64)),
        at_most=False,
    ),
    Target(
        "the same, three layers and a vocabulary (75 M)",
        99.0,
        "%",
        _throughput("small Llama", (1, 8, 64)),
        at_most=False,
    ),
    Target("set up the paper's four PII regexes", 50.0, "ms", _setup(PAPER_PII.name, "ms")),
    Target(
        "668 regexes of RegexPSPACE's shape: relative throughput, 0.5B",
        99.5,
        "%",
        _regexes(668, "throughput"),
        at_most=False,
    ),
    Target("668 regexes of RegexPSPACE's shape: set up", 3.0, "s", _regexes(668, "regexes")),
    Target("1,000,000 strings of 16 bytes: set up", 12.0, "s", _strings("setup_s", "s")),
    Target("1,000,000 strings: peak memory", 1.2 * 1024, "MiB", _strings("peak_mib", "")),
    Target("1,000,000 strings: step, median", 0.3, "ms", _strings("step_s", "ms")),
    Target(
        "add one string to 10,000",
        5.0,
        "ms",
        _of("revise", "revise_s", "median", "ms", method="with_rules", size=10_000),
    ),
    Target(
        "memory over the long run: second half / first half",
        1.1,
        "x",
        _growth,
        where="a limit of 64 MiB, random text",
    ),
)
"""The targets that a CPU can show; that of an accelerator is judged by `judge_accelerator`."""


def judge_accelerator(record: Record) -> list[TargetResult]:
    """The target of an accelerator, beside a record of the experiments: the worst mean of all batch sizes."""

    def worst(found: Record) -> float | None:
        ratios = [
            100 * sum(values) / len(values)
            for m in found.measurements
            if m.case.method == "ours" and m.case.model == "Llama-3.1-8B shape" and m.status == "ok"
            if (values := m.samples.get("relative_ratio", []))
        ]
        return min(ratios, default=None)

    name = "relative throughput, 8B shape, worst of all batch sizes"
    return [Target(name, 99.5, "%", worst, at_most=False, where="one accelerator").judge(record)]
