"""What a benchmark run leaves behind: every raw measurement, and where and with what it was taken.

Figures are lists of raw samples under names that end in their unit: `_s` seconds, `_mib` mebibytes, `_per_s` so many
per second (tokens, where nothing else is said), `_ratio` relative to what runs beside (the unguarded model),
`_count`. Summaries are made when they are read, never stored alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nco_guard.errors import NCOGuardError

__all__ = [
    "UNITS",
    "Case",
    "Check",
    "Collector",
    "Machine",
    "Measurement",
    "Record",
    "Status",
    "Summary",
    "TargetResult",
    "joined",
    "read_record",
    "summary",
]

Status = Literal["ok", "cannot express", "over time", "over memory", "not available", "failed"]
UNITS = ("_s", "_mib", "_per_s", "_ratio", "_count")
_DIGITS = 5


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Case(_Frozen):
    """What was measured. `size`: the number of strings, patterns, or columns of the vocabulary that is varied."""

    suite: str
    method: str
    constraint: str = ""
    tokenizer: str = ""
    model: str = ""
    batch: int | None = None
    size: int | None = None


class Measurement(_Frozen):
    """A case, how it went, and its raw samples in the order in which they were taken, over all rounds."""

    case: Case
    status: Status = "ok"
    reason: str = ""
    samples: dict[str, list[float]] = Field(default_factory=dict)


class Check(_Frozen):
    """Masks compared within the run: `differences` of `compared` masks were not equal."""

    constraint: str
    tokenizer: str
    against: str
    compared: int
    differences: int
    note: str = ""


class TargetResult(_Frozen):
    """A target and what the run says to it; `met` is None where the run did not measure it."""

    name: str
    where: str
    target: str
    measured: str | None
    met: bool | None
    note: str = ""


class Machine(_Frozen):
    """Where the run took place."""

    system: str
    processor: str
    cores: int
    memory_gib: float
    python: str
    accelerator: str
    load_before: float
    load_after: float | None = None


class Record(_Frozen):
    """One run. `format` changes when a reader of older records would misread a newer one."""

    format: Literal[1] = 1
    started: str
    seconds: float
    command: str
    machine: Machine
    versions: dict[str, str]
    commit: str | None
    options: dict[str, str | int | float | bool | list[str] | None]
    notes: list[str]
    measurements: list[Measurement]
    checks: list[Check]
    targets: list[TargetResult] = Field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether no mask differed from what it was compared with."""
        return all(check.differences == 0 for check in self.checks)

    def find(self, suite: str, **wanted: str | int | None) -> list[Measurement]:
        """The measurements of a suite whose case has these fields."""
        return [
            m
            for m in self.measurements
            if m.case.suite == suite and all(getattr(m.case, k) == v for k, v in wanted.items())
        ]


def read_record(path: Path) -> Record:
    """The record of a `results.json`. Raises `NCOGuardError` for a file that is none, `OSError` for none at all."""
    try:
        return Record.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise NCOGuardError(f"{path.name} is no record of a benchmark: {where}: {first['msg']}") from error


def joined(records: Sequence[Record]) -> Record:
    """Records of several runs as one, for suites that were run apart; targets are left to be judged anew.

    Raises `NCOGuardError` where they do not belong together: another machine, other versions, another tokenizer, or a
    case that two of them measured.
    """
    first, last = records[0], records[-1]
    cases: set[Case] = set()
    for record in records:
        for what, one, other in (
            ("machine", _place(first.machine), _place(record.machine)),
            ("versions", first.versions, record.versions),
            ("tokenizer", first.options.get("tokenizer"), record.options.get("tokenizer")),
        ):
            if one != other:
                raise NCOGuardError(f"these records are not of one {what}: {one} and {other}")
        for measurement in record.measurements:
            if measurement.case in cases:
                raise NCOGuardError(f"two of these records measured the same: {measurement.case}")
            cases.add(measurement.case)
    load_after = last.machine.load_after
    return first.model_copy(
        update={
            "seconds": sum(record.seconds for record in records),
            "command": "`; `".join(record.command for record in records),
            "commit": ", ".join(dict.fromkeys(record.commit or "unknown" for record in records)),
            "machine": first.machine.model_copy(update={"load_after": load_after}),
            "notes": list(dict.fromkeys(note for record in records for note in record.notes)),
            "measurements": [m for record in records for m in record.measurements],
            "checks": [check for record in records for check in record.checks],
            "targets": [],
        }
    )


def _place(machine: Machine) -> Machine:
    return machine.model_copy(update={"load_before": 0.0, "load_after": None})


@dataclass(frozen=True)
class Summary:
    """Of samples: how many, and where they lie. The quartiles are the spread."""

    count: int
    minimum: float
    lower: float
    median: float
    upper: float
    p99: float
    maximum: float
    mean: float


def summary(values: Sequence[float]) -> Summary | None:
    """None without any values."""
    if not values:
        return None
    points = np.quantile(values, (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)).tolist()
    low, lower, median, upper, p99, high = points
    return Summary(len(values), low, lower, median, upper, p99, high, float(np.mean(values)))


class Collector:
    """Gathers the samples of cases over rounds; a case that failed once has failed."""

    def __init__(self) -> None:
        self._found: dict[Case, tuple[Status, str, dict[str, list[float]]]] = {}
        self.checks: list[Check] = []
        self.notes: dict[str, None] = {}

    def add(
        self, case: Case, samples: Mapping[str, Iterable[float]], status: Status = "ok", reason: str = ""
    ) -> None:
        """More samples of a case, or that it went wrong. Raises `ValueError` for a figure without a unit."""
        before, why, gathered = self._found.setdefault(case, (status, reason, {}))
        for name, values in samples.items():
            if not name.endswith(UNITS):
                raise ValueError(f"{name}: a figure's name ends with its unit, one of {', '.join(UNITS)}")
            gathered.setdefault(name, []).extend(_rounded(values))
        if before == "ok" and status != "ok":
            before, why = status, reason
        self._found[case] = (before, why, gathered)

    def status(self, case: Case) -> Status | None:
        """How the case went so far; None if it did not run."""
        found = self._found.get(case)
        return None if found is None else found[0]

    @property
    def measurements(self) -> list[Measurement]:
        """All cases in the order in which they first ran."""
        return [
            Measurement(case=case, status=status, reason=reason, samples=samples)
            for case, (status, reason, samples) in self._found.items()
        ]


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]
