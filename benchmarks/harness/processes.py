"""A case in a process of its own, within bounds of time and memory.

Children are forked from this process, which has read the tokenizers and computes nothing: they begin warm where a
user's process is warm (imports, the tokenizer) and cold everywhere else, and share no caches with one another.
`Memory` measures what a stretch of a child's work adds at its peak.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from benchmarks.errors import MissingPackageError
from benchmarks.harness.record import Status
from nco_guard.errors import MissingExtraError, NCOGuardError, PatternError, UnsupportedError

__all__ = ["Bounds", "Memory", "Outcome", "isolated", "reset_peak", "resident_mib"]

P = ParamSpec("P")
T = TypeVar("T")
_MIB = 2**20
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Bounds:
    """What one case may take; what exceeds it is ended and reported."""

    seconds: float
    mib: float


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """How a child ended; `value` is there where the status is "ok"."""

    status: Status
    reason: str = ""
    value: T | None = None


def isolated(bounds: Bounds, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
    """`work` in a forked child. Its errors are outcomes; a child that is over its bounds is killed.

    What arrives after the time is up does not count, so a bound too small for anything is met by no machine.
    """
    import psutil

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(sender, work, args, kwargs), daemon=True)
    child.start()
    sender.close()
    deadline = time.monotonic() + bounds.seconds
    try:
        process = psutil.Process(child.pid)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return Outcome("over time", f"ended after {bounds.seconds:g} s")
            if receiver.poll(min(left, _LOOK_SECONDS)):
                break
            try:
                used = process.memory_info().rss / _MIB
            except psutil.NoSuchProcess:
                break
            if used > bounds.mib:
                return Outcome("over memory", f"ended at {used:,.0f} MiB (bound: {bounds.mib:,.0f} MiB)")
        try:
            status, reason, value = receiver.recv()
        except EOFError:
            child.join()
            return Outcome("failed", f"the process ended with status {child.exitcode}")
        return Outcome(status, reason, value)
    finally:
        receiver.close()
        child.kill()
        child.join()


def _child(sender: Connection, work: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        sender.send(("ok", "", work(*args, **kwargs)))
    except (MissingExtraError, MissingPackageError) as error:
        sender.send(("not available", str(error), None))
    except (UnsupportedError, PatternError) as error:
        sender.send(("cannot express", str(error), None))
    except MemoryError:
        sender.send(("over memory", "the system had no more", None))
    except (NCOGuardError, ValueError, RuntimeError, OSError) as error:
        # Others' messages may quote a text: only ours are known not to.
        told = str(error) if isinstance(error, NCOGuardError) else type(error).__name__
        sender.send(("failed", told, None))
    sender.close()


class Memory:
    """What the work inside `with` adds to this process: `peak_mib` at most, `kept_mib` afterwards.

    Free pages are returned to the system first, so that the work cannot hide in what was used before. On Linux the peak
    is the kernel's own; elsewhere the highest peak of the process counts, which can hide it.
    """

    peak_mib = 0.0
    kept_mib = 0.0

    def __enter__(self) -> Memory:
        """Begin."""
        _tidy()
        reset_peak()
        self._before = resident_mib()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self.peak_mib = max(0.0, _peak_mib() - self._before)
        _tidy()
        self.kept_mib = max(0.0, resident_mib() - self._before)


def _tidy() -> None:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def reset_peak() -> None:
    """Let the kernel's peak begin anew, where it can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def resident_mib() -> float:
    """Resident memory of this process now."""
    import psutil

    return float(psutil.Process().memory_info().rss) / _MIB


def _peak_mib() -> float:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / _MIB if sys.platform == "darwin" else peak / 1024
