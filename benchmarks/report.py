"""A whole record as Markdown: what was set out to be reached, what was compared, and a section of each suite.

The same text serves as `results.md` and, under a heading of its own, as `docs/performance.md`.
"""

from __future__ import annotations

import re
from importlib import import_module

from benchmarks.harness.options import SUITES
from benchmarks.harness.record import Record
from benchmarks.harness.render import table

__all__ = ["page", "report", "targets_table"]

_SECTION = re.compile(r"<!-- bench: begin -->\n.*?<!-- bench: end -->\n", re.S)


def report(record: Record) -> str:
    """The whole record."""
    machine = record.machine
    versions = ", ".join(f"{name} {number}" for name, number in record.versions.items())
    load = f"{machine.load_before} before, {machine.load_after} after"
    lines = [
        f"{machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.system}; accelerator: "
        f"{machine.accelerator}; Python {machine.python}; {versions}; commit {record.commit or 'unknown'}.",
        "",
        f"Begun {record.started}, {record.seconds:,.0f} s; load average {load}. `{record.command}`",
        "",
        "Medians, with quartiles in brackets, of wall-clock times; methods take turns. A case that a method cannot "
        "express, or that went over the bounds of the run, says so.",
        "",
        *(f"* {note}" for note in record.notes),
        "",
    ]
    sections = [import_module(f"benchmarks.suites.{name}").show(record) for name in SUITES]
    return "\n".join(lines) + "\n".join(part for part in (_targets(record), *sections) if part)


def page(record: Record, text: str) -> str:
    """`text`, the page on performance, with what stands between its `bench` marks replaced by the record.

    Raises `ValueError` if the page has no marks.
    """
    body = f"<!-- bench: begin -->\n\n{report(record).strip()}\n\n<!-- bench: end -->\n"
    if not _SECTION.search(text):
        raise ValueError("the page has no line '<!-- bench: begin -->' and '<!-- bench: end -->'")
    return _SECTION.sub(lambda _: body, text)


def targets_table(record: Record) -> str:
    """Targets: reached or missed, and by how much."""
    words = {True: "met", False: "**missed**", None: "not measured"}
    rows = [
        (t.name, t.target, t.measured or "-", words[t.met] + (f": {t.note}" if t.note else ""))
        for t in record.targets
    ]
    return "\n".join(table(("what", "target", "measured", ""), rows))


def _targets(record: Record) -> str:
    tokenizer = record.options.get("tokenizer")
    return (
        f"## Targets\n\nSet for two cores and a vocabulary of 128,000; this run: {record.machine.cores} cores, "
        f"{tokenizer}.\n\n{targets_table(record)}"
    )
