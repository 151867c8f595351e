"""Suite `cache`: what a cache on disk saves, from the start of a process to its first mask: without, empty, and warm.

Every run is a process of its own; the three kinds take turns. Stages are CPU time of the one thread that works, the
whole process is wall-clock time. All runs must produce the same masks along a text.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import first_masks
from benchmarks.harness.plan import Plan, Samples, case_of, check_of
from benchmarks.harness.processes import isolated
from benchmarks.harness.record import Record
from benchmarks.harness.render import figure, first, ratio, section
from benchmarks.inputs.constraints import PRESETS

__all__ = ["measure", "run", "show"]

NAMES = ("pii", "secrets", "ldnoobw")  # of `PRESETS`
KINDS = ("no cache", "empty cache", "warm cache")
STAGES = ("import", "tokenizer", "vocabulary", "tree", "compile", "bind", "first_mask", "text", "save")


def measure(plan: Plan) -> None:
    """Rounds of the three kinds, each round with a folder of its own, which the second kind fills for the third."""
    cases = {kind: case_of("cache", kind, PRESETS, plan.world) for kind in KINDS}
    masks: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        for number in range(plan.options.repeats):
            for kind, case in cases.items():
                plan.say(f"cache: round {number + 1}: {kind}")
                folder = None if kind == "no cache" else Path(place) / str(number)
                found = isolated(plan.bounds(), run, plan.world.folder, folder)
                samples, digest = found.value or ({}, "")
                plan.collector.add(case, samples, found.status, found.reason)
                masks.append(digest)
    made = [digest for digest in masks if digest]
    differences = sum(digest != made[0] for digest in made)
    note = "processes, each with the masks of a text"
    plan.collector.checks.append(check_of(PRESETS, plan.world, "no cache", len(made), differences, note))


def run(tokenizer: Path, cache: Path | None) -> tuple[Samples, str]:
    """A process of one kind: its stages, and a digest of its masks. Raises `OSError` where it failed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    root = Path(__file__).resolve().parents[2]
    environment["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, first_masks.__file__, str(tokenizer), ",".join(NAMES), str(cache or "")]
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    elapsed = time.perf_counter() - started
    if done.returncode:
        raise OSError(f"the process ended with status {done.returncode}")
    found = json.loads(done.stdout)
    samples: Samples = {name: [seconds] for name, seconds in found["times"].items()}
    if cache is not None:
        samples["cache_mib"] = [sum(path.stat().st_size for path in cache.iterdir()) / 2**20]
    return {**samples, "process_s": [elapsed]}, found["masks"]


def show(record: Record) -> str:
    """A row for each stage, and what a warm cache saves of it."""
    found = record.find("cache")
    of = {kind: first(found, method=kind) for kind in KINDS}
    none, warm = of["no cache"], of["warm cache"]
    rows = [
        (
            name.removesuffix("_s").replace("_", " "),
            *(figure(m, name, spread=False) for m in of.values()),
            "-" if none is None else ratio(none, warm, name),
        )
        for name in (*(f"{stage}_s" for stage in STAGES), "process_s", "cache_mib")
        if found
    ]
    return section("## A cache on disk", "", ("stage", *KINDS, "no cache / warm"), rows, found)
