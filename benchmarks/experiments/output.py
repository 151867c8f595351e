"""A record that is written after every case, so that a run can go on where another one ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.machine import begun, load, save
from benchmarks.harness.record import Case, Measurement, Record, read_record
from benchmarks.harness.targets import judge_accelerator
from nco_guard.errors import NCOGuardError

__all__ = ["Output"]


@dataclass
class Output:
    """The record under way, in a folder, and how it is shown there."""

    folder: Path
    options: dict[str, Any]
    record: Record
    show: Callable[[Record], str]

    @classmethod
    def open(cls, folder: Path, options: dict[str, Any], show: Callable[[Record], str]) -> Output:
        """Go on with the record in the folder, or begin one. Raises `NCOGuardError` if it had other options."""
        path = folder / "results.json"
        if path.exists():
            record = read_record(path)
            if record.options != options:
                raise NCOGuardError(f"{path} is of a run with other options; choose another folder")
            return cls(folder, options, record, show)
        return cls(folder, options, begun(options), show)

    def has(self, case: Case) -> bool:
        """Whether the case was measured, now or in an earlier run."""
        return any(m.case == case for m in self.record.measurements)

    def add(self, found: Sequence[Measurement], seconds: float, note: str) -> None:
        """Keep measurements on disk."""
        notes = list(dict.fromkeys([*self.record.notes, note]))
        self.record = self.record.model_copy(
            update={
                "measurements": [*self.record.measurements, *found],
                "seconds": self.record.seconds + round(seconds, 1),
                "notes": notes,
                "machine": self.record.machine.model_copy(update={"load_after": load()}),
            }
        )
        self.record = self.record.model_copy(update={"targets": judge_accelerator(self.record)})
        save(self.record, self.folder, self.show(self.record))
