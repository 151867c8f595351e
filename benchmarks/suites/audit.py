"""Suite `audit`: what the audit log costs a guarded generation of the shipped model, and what an event costs each sink.

All ways generate the same tokens under the same policy, one after another, the first one changing from round to
round. Two policies: "pii", which the model wants to break, and "LDNOOBW-en", which it hardly does. `history` is a
guard without a sink, the reference. `memory` keeps events in a list: what finding out costs, without any file.
`jsonl` writes a chained log; `signed` signs its heads (HMAC) too.

"whole" is the ratio of each round's pair of generations, in processor time; it wavers by some per cent. So beside it
stand parts of the reference's time that were measured by themselves: "added", what the guard's own code took more
than in the same round's reference (the pass over the scores, making events, the sink); "sink", what was spent inside
of the sink; and its share by the clock, with disk flushes and other programs' turns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

import torch

from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.record import Record
from benchmarks.harness.render import figure, section
from benchmarks.harness.timing import timed, turns
from benchmarks.inputs.constraints import PII, WORDS, ConstraintSet
from benchmarks.inputs.shapes import SHIPPED
from nco_guard import Guard, demo
from nco_guard.audit import HmacSigner, JsonLinesSink, MemorySink, RunRecorder, Sink
from nco_guard.audit.sqlite import SqliteSink
from nco_guard.engines.hf import GuardLogitsProcessor

__all__ = ["generations", "measure", "per_event", "show"]

REFERENCE = "history"
WAYS = (REFERENCE, "memory", "jsonl", "signed", "jsonl, fsync")
EVENTS = (*WAYS[1:], "jsonl, no chain", "sqlite")
WARM = 2

P = ParamSpec("P")
T = TypeVar("T")


def measure(plan: Plan) -> None:
    """Generations of both policies at all batch sizes, then events."""
    quick, rounds = plan.options.quick, 3 * plan.options.repeats
    batches = plan.options.batch or (1, 8)
    for constraint, batch in product((PII, WORDS), batches):
        plan.say(f"audit: {constraint.name}, batch {batch}")
        cases = {
            way: case_of("audit", way, constraint, plan.world, model=SHIPPED, batch=batch) for way in WAYS
        }
        plan.together(
            cases,
            plan.bounds(3.0),
            generations,
            constraint,
            batch,
            rounds=rounds,
            new_tokens=16 if quick else 64,
        )
    events = 300 if quick else 3000
    cases = {name: case_of("audit", name, None, plan.world, size=events) for name in EVENTS}
    plan.say(f"audit: {events:,} events")
    plan.together(cases, plan.bounds(), per_event, events)


def sinks(folder: Path, stack: ExitStack) -> dict[str, Sink]:
    """Those of `WAYS`, but of the reference, which has none."""
    signer = HmacSigner(bytes(32))
    return {
        "memory": MemorySink(),
        "jsonl": stack.enter_context(JsonLinesSink(folder / "log.jsonl")),
        "signed": stack.enter_context(JsonLinesSink(folder / "signed.jsonl", signer=signer)),
        "jsonl, fsync": stack.enter_context(JsonLinesSink(folder / "synced.jsonl", fsync=True)),
    }


class Watch:
    """Adds up what some functions take, by the processor and by the clock, once where one calls another."""

    def __init__(self) -> None:
        self.processor = self.clock = 0.0
        self._depth = 0

    def on(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function, watched."""

        def run(*args: P.args, **options: P.kwargs) -> T:
            self._depth += 1
            processor, clock = time.process_time(), time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.processor += time.process_time() - processor
                    self.clock += time.perf_counter() - clock

        return run

    def take(self) -> tuple[float, float]:
        """Both times since the last call."""
        taken = self.processor, self.clock
        self.processor = self.clock = 0.0
        return taken


@dataclass(frozen=True)
class Round:
    """Seconds of one generation: of the processor, of the guard, of the sink; the sink's share by the clock."""

    whole: float
    guard: float
    sink: float
    by_clock: float


def generations(constraint: ConstraintSet, batch: int, *, rounds: int, new_tokens: int) -> dict[str, Samples]:
    """All ways, in turns."""
    torch.set_num_threads(1)
    model, tokenizer = demo.load()
    asked = demo.PROMPTS["pii"]
    inputs = dict(
        tokenizer.apply_chat_template(
            [asked[row % len(asked)] for row in range(batch)],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
            padding=True,
        )
    )
    whole, guard, sink, found = Watch(), Watch(), Watch(), {way: list[Round]() for way in WAYS}
    options: dict[str, Any] = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens, "do_sample": True}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        watched = {name: sink.on(each) for name, each in sinks(Path(folder), stack).items()}
        guards = {way: Guard(constraint.policy, audit=watched.get(way)) for way in WAYS}
        for kind, name in ((GuardLogitsProcessor, "__call__"), (RunRecorder, "_record")):
            stack.enter_context(patch.object(kind, name, guard.on(getattr(kind, name))))
        for number, way in turns(WAYS, WARM + rounds):
            torch.manual_seed(number)
            whole.on(guards[way].generate)(model, tokenizer, inputs, **options)
            (seconds, clock), (inside, _), (spent, waited) = whole.take(), guard.take(), sink.take()
            if number >= WARM:
                found[way].append(Round(seconds, inside, spent, waited / clock))
        changed = [run.steps_changed for run in guards["memory"].log.history.runs[-rounds:]]
    return {way: _samples(each, found[REFERENCE], changed) for way, each in found.items()}


def _samples(rows: list[Round], reference: list[Round], changed: list[int]) -> Samples:
    pairs = list(zip(rows, reference, strict=True))
    return {
        "generation_s": [row.whole for row in rows],
        "whole_ratio": [row.whole / other.whole for row, other in pairs],
        "added_ratio": [(row.guard - other.guard) / other.whole for row, other in pairs],
        "sink_ratio": [row.sink / other.whole for row, other in pairs],
        "by_clock_ratio": [row.by_clock for row in rows],
        "changed_count": [float(steps) for steps in changed],
    }


def per_event(events: int) -> dict[str, Samples]:
    """Seconds an event takes, by the clock, the making of it included; a tenth as many where each is flushed."""
    found: dict[str, Samples] = {}
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        all_sinks = sinks(folder, stack)
        all_sinks["jsonl, no chain"] = stack.enter_context(JsonLinesSink(folder / "plain.jsonl", chain=False))
        all_sinks["sqlite"] = stack.enter_context(SqliteSink(folder / "log.db"))
        for name, sink in all_sinks.items():
            run, count = RunRecorder(sink), events // 10 if "fsync" in name else events

            def write(run: RunRecorder = run, count: int = count) -> None:
                for step in range(count):
                    run.intervention(
                        sequence=0,
                        step=step,
                        rule_ids=["email"],
                        removed_probability=0.25,
                        first_allowed_rank=2,
                    )

            found[name] = {"event_s": [timed(write)[1] / count]}
    return found


def show(record: Record) -> str:
    """A row for each policy, batch size and way; then one for each sink."""
    found = record.find("audit")
    ratios = ("whole_ratio", "added_ratio", "sink_ratio", "by_clock_ratio")
    generated = [
        (
            f"{m.case.constraint}, {m.case.batch}",
            m.case.method,
            figure(m, "changed_count", spread=False),
            figure(m, "generation_s", spread=False),
            *(figure(m, name) for name in ratios),
        )
        for m in found
        if m.case.batch is not None
    ]
    header = ("policy, batch", "way", "changed", "generation", "whole", "added", "sink", "sink, by the clock")
    events = [m for m in found if m.case.batch is None]
    alone = [(m.case.method, figure(m, "event_s")) for m in events]
    return "\n".join(
        [
            section("## The audit log", "", header, generated, (m for m in found if m not in events)),
            section("### One event", "", ("sink", "an event"), alone, events),
        ]
    ).strip("\n") + ("\n" if found else "")
