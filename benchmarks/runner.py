"""Runs the suites and writes what they found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.errors import MissingPackageError
from benchmarks.harness.machine import begun, cores, load, save
from benchmarks.harness.options import SUITES, Options
from benchmarks.harness.plan import Plan
from benchmarks.harness.record import Record
from benchmarks.harness.targets import evaluate
from benchmarks.methods.world import READERS, World, read_world
from benchmarks.report import report
from nco_guard.errors import UnsupportedError

__all__ = ["run", "write"]

_NEEDED = ("matplotlib", "psutil")


def run(options: Options, say: Callable[[str], None] = lambda line: None) -> Record:
    """Measure. `say` is told what is measured at the moment.

    Raises `MissingPackageError` where something that is measured is missing, `UnsupportedError` on systems that cannot
    fork, `NCOGuardError` for a folder without a tokenizer and for a file of regular expressions that cannot be used.
    """
    for suite in options.suites:
        for name in (*_NEEDED, *SUITES[suite].needs):
            if find_spec(name) is None:
                raise MissingPackageError(f"the suite {suite}", name)
    if not hasattr(os, "fork"):
        raise UnsupportedError("benchmarks are measured in forked processes; this system has none")
    threads = options.threads or cores()
    folders: tuple[Path | None, ...] = options.tokenizer or (None,)
    scaled = not {"reading", "vocabularies"}.isdisjoint(options.suites)
    worlds = [read_world(folder, threads) for folder in (folders if scaled else folders[:1])]
    if scaled and None not in folders:
        worlds.append(read_world(None, threads))
    before, clock = begun(_told(options, worlds, threads)), time.monotonic()
    plan = Plan(options, tuple(worlds), threads, say)
    for name in {name for suite in options.suites for name in SUITES[suite].needs if name in READERS}:
        for world in worlds:
            world.view(name)
    for suite in options.suites:
        import_module(f"benchmarks.suites.{suite}").measure(plan)
    record = before.model_copy(
        update={
            "seconds": round(time.monotonic() - clock, 1),
            "machine": before.machine.model_copy(update={"load_after": load()}),
            "notes": list(plan.collector.notes),
            "measurements": plan.collector.measurements,
            "checks": plan.collector.checks,
        }
    )
    return record.model_copy(update={"targets": evaluate(record)})


def _told(options: Options, worlds: Sequence[World], threads: int) -> dict[str, Any]:
    """The options as they are recorded."""
    return {
        "tokenizer": worlds[0].name,
        "tokenizers": [world.name for world in worlds],
        "quick": options.quick,
        "suites": list(options.suites),
        "rounds": options.repeats,
        "threads": threads,
        "steps": options.random_steps,
        "case_seconds": options.case_seconds,
        "case_mib": options.case_mib,
    }


def write(record: Record, folder: Path) -> list[Path]:
    """`results.json`, `results.md` and the plots, in a folder that is made if need be; what was written."""
    from benchmarks.harness.plots import draw

    folder.mkdir(parents=True, exist_ok=True)
    plots = draw(record, folder)
    pictures = "".join(f"\n![{path.stem}]({path.name})\n" for path in plots)
    text = f"# Benchmarks\n\n{report(record)}\n" + (f"\n## Plots\n{pictures}" if plots else "")
    return [*save(record, folder, text), *plots]
