"""Suite `regexes`: scaling in the number of regular expressions."""

from __future__ import annotations

from benchmarks.harness.plan import Plan
from benchmarks.harness.record import Record
from benchmarks.harness.setting_up import WALKED, scale, scaling
from benchmarks.inputs.constraints import regexes

__all__ = ["measure", "show"]


def measure(plan: Plan) -> None:
    """Patterns of RegexPSPACE's shape, or its own where the file was given."""
    file = plan.options.regexpspace
    sizes = [8, 64] if plan.options.quick else [8, 64, 668, 5_000]
    if file is not None:
        sizes = [size for size in sizes if size <= 668]
    sets = [(size, regexes(size, file)) for size in sizes]
    scale(plan, "regexes", sets, ("ours", "paper-nco", "llguidance", "xgrammar", "bad-words"))


def show(record: Record) -> str:
    """A row for each method and number."""
    return scaling(record, "regexes", WALKED)
