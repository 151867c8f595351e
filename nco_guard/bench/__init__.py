"""`nco-guard bench`: every figure that this project publishes, measured side by side in one run.

Each case runs in a fresh child process (`processes`), methods take turns from round to round, and nothing is dropped:
what a method cannot express, and what exceeds its bounds of time or memory, is in the record as such. Within the run
masks are compared with the definition and with those of the peers (`equality`); a difference is a failure.

`run` measures, `Record` is what it returns, `write` makes `results.json`, `results.md` and the plots of it. Needs the
extra `bench`, and a system with `fork` (Linux, macOS). Importing this imports torch and transformers.
"""

from __future__ import annotations

from nco_guard.errors import MissingExtraError

try:
    from nco_guard.bench.runner import run, write
except ImportError as error:
    if (error.name or "").startswith("nco_guard"):
        raise
    raise MissingExtraError("nco-guard bench", "bench") from error
from nco_guard.bench.options import SUITES, BenchOptions, Suite
from nco_guard.bench.record import Case, Check, Measurement, Record, TargetResult, joined, read_record
from nco_guard.bench.report import page, report, targets_table
from nco_guard.bench.targets import evaluate
from nco_guard.bench.throughput import MODELS

__all__ = [
    "MODELS",
    "SUITES",
    "BenchOptions",
    "Case",
    "Check",
    "Measurement",
    "Record",
    "Suite",
    "TargetResult",
    "evaluate",
    "joined",
    "page",
    "read_record",
    "report",
    "run",
    "targets_table",
    "write",
]
