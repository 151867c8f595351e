"""Runs the suites and writes what they found."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from nco_guard.bench.equality import equality_suite
from nco_guard.bench.longrun import memory_suite
from nco_guard.bench.methods import read_world
from nco_guard.bench.options import BenchOptions, Suite
from nco_guard.bench.plan import Plan
from nco_guard.bench.record import Record, commit, cores, load, this_machine, versions
from nco_guard.bench.report import report
from nco_guard.bench.setup import regex_scaling, revise, setup_suite, vocabulary_scaling
from nco_guard.bench.steps import steps_suite
from nco_guard.bench.strings import strings_suite
from nco_guard.bench.targets import evaluate
from nco_guard.bench.throughput import throughput_suite
from nco_guard.errors import MissingExtraError, UnsupportedError

__all__ = ["run", "write"]

_SUITES: dict[Suite, Callable[[Plan], None]] = {
    "setup": setup_suite,
    "steps": steps_suite,
    "equality": equality_suite,
    "throughput": throughput_suite,
    "strings": strings_suite,
    "regexes": regex_scaling,
    "vocabularies": vocabulary_scaling,
    "revise": revise,
    "memory": memory_suite,
}
_NEEDED = ("llguidance", "matplotlib", "psutil", "torch", "transformers", "xgrammar")


def run(options: BenchOptions, say: Callable[[str], None] = lambda line: None) -> Record:
    """Measure. `say` is told what is measured at the moment.

    Raises `MissingExtraError` where a measured library is missing, `UnsupportedError` on systems that cannot fork,
    `NCOGuardError` for a folder without a tokenizer and for a file of regular expressions that cannot be used.
    """
    if any(find_spec(name) is None for name in _NEEDED):
        raise MissingExtraError("nco-guard bench", "bench")
    if not hasattr(os, "fork"):
        raise UnsupportedError("nco-guard bench measures in forked processes; this system has none")
    # Set before any of them is loaded, so that this process stays without threads and can be forked.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    started = datetime.datetime.now(datetime.UTC)
    clock = time.monotonic()
    machine = this_machine()
    threads = options.threads or cores()
    folders = options.tokenizers or (None,)
    needed = folders if "vocabularies" in options.suites else folders[:1]
    worlds = [read_world(folder, threads) for folder in needed]
    if "vocabularies" in options.suites and None not in folders:
        worlds.append(read_world(None, threads))
    plan = Plan(options, tuple(worlds), threads, say)
    for world in worlds:
        for name in ("llguidance", "xgrammar"):
            world.view(name)
    for suite in options.suites:
        _SUITES[suite](plan)
    record = Record(
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 1),
        command=shlex.join(["nco-guard", *sys.argv[1:]]),
        machine=machine.model_copy(update={"load_after": load()}),
        versions=versions(),
        commit=commit(),
        options={
            "tokenizer": plan.world.name,
            "tokenizers": [world.name for world in worlds],
            "quick": options.quick,
            "suites": list(options.suites),
            "rounds": options.repeats,
            "threads": threads,
            "steps": options.random_steps,
            "case_seconds": options.case_seconds,
            "case_mib": options.case_mib,
        },
        notes=list(plan.collector.notes),
        measurements=plan.collector.measurements,
        checks=plan.collector.checks,
    )
    return record.model_copy(update={"targets": evaluate(record)})


def write(record: Record, folder: Path) -> list[Path]:
    """`results.json`, `results.md` and the plots, in a folder that is made if need be; what was written."""
    from nco_guard.bench.plots import draw

    folder.mkdir(parents=True, exist_ok=True)
    raw, words = folder / "results.json", folder / "results.md"
    raw.write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")
    plots = draw(record, folder)
    pictures = "".join(f"\n![{path.stem}]({path.name})\n" for path in plots)
    text = f"# nco-guard bench\n\n{report(record)}\n" + (f"\n## Plots\n{pictures}" if plots else "")
    words.write_text(text, encoding="utf-8")
    return [raw, words, *plots]
