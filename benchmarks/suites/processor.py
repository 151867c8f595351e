"""Suite `processor`: what a step of the logits processor costs on the host, states known, and what of that is what.

Rows of a batch read a text from different places. Scores are copied anew before each measurement, as a model leaves
them, and all that is measured takes turns in every step. Processor time of one thread: the least, and the median.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.harness.building import Ids, build, random_scores, seen_ids
from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.record import Record
from benchmarks.harness.render import figure, section
from benchmarks.harness.timing import timed
from benchmarks.inputs.constraints import SUBSTRINGS
from benchmarks.methods.world import METHODS, World
from nco_guard.engines.hf import GuardLogitsProcessor
from nco_guard.session import BoundGuard

__all__ = ["measure", "show", "times"]

Step = Callable[[torch.Tensor, torch.Tensor], object]
STEP = "a step"
PARTS = (
    STEP,
    "of that, finding that all scores are numbers",
    "a step on a copy of the scores",
    "with a sink for every row",
    "with a sink for changes, as the audit log is",
    "torch's arg-max of the scores, which comes after",
)


def measure(plan: Plan) -> None:
    """All batch sizes."""
    steps = 20 if plan.options.quick else 40
    for batch in plan.options.batches:
        plan.say(f"processor: batch {batch}")
        cases = {part: case_of("processor", part, SUBSTRINGS, plan.world, batch=batch) for part in PARTS}
        rows = plan.rows(cases[STEP], SUBSTRINGS, batch, steps)
        if rows is not None:
            plan.together(cases, plan.bounds(), times, plan.world, rows)


def times(world: World, rows: Ids) -> dict[str, Samples]:
    """Seconds of each step of the second of two passes over rows, int64 [batch, steps]."""
    torch.set_num_threads(1)
    bound = build(METHODS["ours"], SUBSTRINGS, world).guard()
    clean = random_scores(len(rows), world.vocabulary.width)
    scores, found = torch.empty_like(clean), dict[str, Samples]()
    for _ in range(2):
        calls = _parts(bound)
        found = {part: {"step_s": []} for part in PARTS}
        for seen in seen_ids(rows):
            for part, call in calls.items():
                scores.copy_(clean)
                found[part]["step_s"].append(timed(partial(call, seen, scores), time.process_time)[1])
    return found


def _parts(bound: BoundGuard) -> dict[str, Step]:
    """What is called in every step, on ids, int64 [rows, length], and scores, float [rows, width]."""
    every = GuardLogitsProcessor(bound, in_place=True, on_step=_nothing)
    changes = GuardLogitsProcessor(bound, in_place=True, on_step=_nothing, changes_only=True)
    calls: tuple[Step, ...] = (
        GuardLogitsProcessor(bound, in_place=True),
        _numbers_only,
        GuardLogitsProcessor(bound),
        every,
        changes,
        lambda ids, scores: scores.argmax(-1),
    )
    return dict(zip(PARTS, calls, strict=True))


def _nothing(report: Any) -> None:
    """Keeps nothing of a step."""


def _numbers_only(ids: torch.Tensor, scores: torch.Tensor) -> None:
    """The pass that finds scores that are no numbers."""
    for line in scores.numpy():
        line[line.argmax()]


def show(record: Record) -> str:
    """A row for each part and batch size."""
    found = record.find("processor")
    rows = [
        (str(m.case.batch), m.case.method, figure(m, "step_s", best=True), figure(m, "step_s", spread=False))
        for m in found
    ]
    header = ("batch", "what", "least", "median")
    return section("## The processor's step", "", header, rows, found)
