"""Suite `memory`: random text for a million steps, and what the process holds meanwhile.

The tokens are drawn evenly from the vocabulary among those that are allowed, in texts of 200: hardly a state is met
twice, which is the worst that can happen to caches. The guard's memory limit is set low, so that it is reached.
"""

from __future__ import annotations

import random
import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.processes import Memory, resident_mib
from benchmarks.harness.record import Record
from benchmarks.harness.render import section
from benchmarks.inputs.constraints import EVERYTHING, SUBSTRINGS, ConstraintSet
from benchmarks.methods.world import World
from nco_guard.compiler import compile_policy
from nco_guard.masking.idsets import holds
from nco_guard.session import BoundGuard

__all__ = ["measure", "random_text", "show"]

LIMIT_MIB = 64
_TEXT = 200
_POINTS = 200
_SECONDS = 900.0


def measure(plan: Plan) -> None:
    """The smallest and the largest policy."""
    for constraint in (SUBSTRINGS, EVERYTHING):
        plan.say(f"memory: {constraint.name}: {plan.options.random_steps:,} steps of random text")
        case = case_of("memory", "ours", constraint, plan.world, size=plan.options.random_steps)
        seconds = _SECONDS if plan.options.seconds is None else plan.options.seconds
        seconds = min(seconds, 20.0) if plan.options.quick else seconds
        # More than the run takes by itself, so that what was measured until then is kept.
        bounds = plan.bounds(2 * seconds / plan.options.case_seconds)
        plan.measure(case, bounds, random_text, constraint, plan.world, plan.options.random_steps, seconds)


def random_text(constraint: ConstraintSet, world: World, steps: int, seconds: float) -> Samples:
    """Resident memory along the way, less what it was before: `resident_mib` at `at_count` steps.

    Ends early when the time is up; `at_count` shows where, and points are as many.
    """
    rng = random.Random(0)
    width, ends = world.vocabulary.width, frozenset(world.vocabulary.eos_ids)
    compiled = compile_policy(constraint.policy)
    with Memory():
        before = resident_mib()
        bound = BoundGuard(compiled, world.vocabulary, memory_limit=LIMIT_MIB << 20)
        session = bound.session()
        every = max(1, steps // _POINTS)
        started = time.monotonic()
        samples: Samples = {
            "at_count": [],
            "resident_mib": [],
            "tables_mib": [],
            "replaced_count": [],
            "elapsed_s": [],
        }
        replaced, tables = 0, bound.tables
        for step in range(steps + 1):
            if step % every == 0:
                samples["at_count"].append(step)
                samples["resident_mib"].append(resident_mib() - before)
                samples["tables_mib"].append(bound.stats["table_bytes"] / 2**20)
                samples["replaced_count"].append(replaced)
                samples["elapsed_s"].append(time.monotonic() - started)
                if samples["elapsed_s"][-1] > seconds:
                    break
            if step % _TEXT == 0:
                session = bound.session()
            if bound.tables is not tables:
                replaced, tables = replaced + 1, bound.tables
            forbidden = session.forbidden_ids()
            token = _draw(rng, forbidden, ends, width)
            if token is not None:
                session.advance(token)
    return samples


def _draw(rng: random.Random, forbidden: NDArray[np.int64], ends: frozenset[int], width: int) -> int | None:
    """An allowed token that does not end the text; None if there is none."""
    for _ in range(20):
        token = rng.randrange(width)
        if token not in ends and not holds(forbidden, token):
            return token
    # Inside a character of several bytes few tokens are allowed.
    allowed = np.ones(width, bool)
    allowed[forbidden] = False
    allowed[list(ends)] = False
    left = np.flatnonzero(allowed)
    return int(left[rng.randrange(len(left))]) if len(left) else None


def show(record: Record) -> str:
    """A row for each policy."""
    found = record.find("memory")
    rows: list[tuple[str, ...]] = []
    for m in found:
        held, at = m.samples.get("resident_mib", []), m.samples.get("at_count", [])
        half = len(held) // 2
        if m.status != "ok" or half < 2:
            rows.append((m.case.constraint, "-", str(m.status), "-", "-"))
            continue
        rows.append(
            (
                m.case.constraint,
                f"{at[-1]:,.0f}",
                f"{max(held[1:half]):,.0f} MiB",
                f"{max(held[half:]):,.0f} MiB",
                f"{m.samples['replaced_count'][-1]:,.0f}",
            )
        )
    header = (
        "constraint",
        "steps of random text",
        "most, first half",
        "most, second half",
        "tables replaced",
    )
    return section("## Memory", "", header, rows, found)
