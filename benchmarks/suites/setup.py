"""Suite `setup`: time and memory until the first mask is there.

Set-up begins with the policy (or the strings and patterns) and the vocabulary in memory and ends with tables; what the
vocabulary itself takes is the suite `reading`. The first mask is timed too, since lazy methods pay there.
"""

from __future__ import annotations

from benchmarks.harness.plan import Plan, case_of
from benchmarks.harness.record import Record
from benchmarks.harness.render import figure, ratio, reasons, shown, table, title
from benchmarks.harness.setting_up import ALL, set_up
from benchmarks.harness.timing import turns
from benchmarks.inputs.constraints import MEASURED

__all__ = ["measure", "show"]


def measure(plan: Plan) -> None:
    """All methods on all constraints, in turns."""
    for constraint in MEASURED:
        able = plan.able("setup", constraint, plan.world, ALL)
        for _, method in turns(able, plan.options.repeats):
            plan.say(f"set-up: {constraint.name}: {method.title}")
            case = case_of("setup", method.key, constraint, plan.world)
            plan.measure(case, plan.bounds(), set_up, method, constraint, plan.world)


def show(record: Record) -> str:
    """A table for each constraint."""
    found = record.find("setup")
    if not found:
        return ""
    lines = [
        "## Set-up",
        "",
        "From the constraint and the vocabulary in memory to tables; then the first mask. Memory: what the process "
        "grew by at its peak, first mask included. Ratios are theirs / ours.",
        "",
    ]
    for constraint in MEASURED:
        these = [m for m in found if m.case.constraint == constraint.name]
        ours = next((m for m in these if m.case.method == "ours"), None)
        rows = [
            (
                title(m.case.method),
                figure(m, "setup_s"),
                figure(m, "first_mask_s"),
                figure(m, "peak_mib"),
                figure(m, "tables_mib", spread=False),
                ratio(m, ours, "setup_s"),
                ratio(m, ours, "peak_mib"),
            )
            for m in shown(these)
        ]
        header = ("method", "set-up", "first mask", "peak memory", "its tables", "x our time", "x our memory")
        lines += [f"### {constraint.name}", "", *table(header, rows), *reasons(these)]
    return "\n".join(lines)
