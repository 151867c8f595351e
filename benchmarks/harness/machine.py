"""Where a run takes place and with what, and the files that it leaves."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import Bounds, isolated
from benchmarks.harness.record import Machine, Record

__all__ = ["begun", "cores", "load", "save", "this_machine"]

_PACKAGES = (
    "nco-guard",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "llguidance",
    "xgrammar",
    "interegular",
)


def begun(options: dict[str, Any]) -> Record:
    """The record of a run that begins now, without anything measured."""
    return Record(
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=0,
        command=shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        machine=this_machine(),
        versions=versions(),
        commit=commit(),
        options=options,
        notes=[],
        measurements=[],
        checks=[],
    )


def save(record: Record, folder: Path, shown: str) -> list[Path]:
    """`results.json` and, as it is shown, `results.md` in a folder; neither is ever half written."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "results.json", folder / "results.md"]
    for path, text in zip(paths, (record.model_dump_json(indent=1) + "\n", shown), strict=True):
        part = path.with_name(f"{path.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    return paths


def this_machine() -> Machine:
    """The machine as it is now."""
    import psutil

    found = isolated(Bounds(120.0, float("inf")), _accelerator)
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=cores(),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        python=platform.python_version(),
        accelerator=found.value or "unknown",
        load_before=load(),
    )


def _accelerator() -> str:
    """In a child: what has asked CUDA for a name cannot be forked any more."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float:
    """Processes that ran or waited to run, over the last minute."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def versions() -> dict[str, str]:
    """Of the packages that are measured. Of this one, where it runs from a source tree, the commit tells."""
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            if package != "nco-guard":
                found[package] = "not installed"
    return found


def commit() -> str | None:
    """The commit of the source tree, with `+` if it was changed since; None where there is no tree."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "--short=12", "HEAD")
    return None if head is None else head + ("+" if git("status", "--porcelain") else "")
