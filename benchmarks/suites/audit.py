"""What the audit log costs a guarded generation: the shipped model, without and with a JSON lines log, in turns.

    python benchmarks/audit.py [--batches 1 8] [--rounds 15] [--new-tokens 64] [--json results.json]

All ways generate the same tokens under the same policy, one after another, the first one changing from round to round.
Two policies: "pii", which the model wants to break, and "ldnoobw", which it hardly does. All times are processor time,
since waiting for other programs says nothing. `history` is a guard without a sink, the reference. `memory` keeps events
in a list: what finding out costs, without any file. `jsonl` writes a chained log; `signed` signs its heads (HMAC) too.

"whole" is the ratio of each round's pair of generations; it wavers by some per cent. So beside it stand parts of the
reference's time that were measured by themselves: "added", what the guard's own code took more than in the same round's
reference (the pass over the scores, making events, the sink); "sink", what was spent inside of the sink; and by the
clock, with disk flushes and other programs' turns.
Below the table: the cost of one event for each sink, without any model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nco_guard import Guard, Policy, demo
from nco_guard.audit import Event, HmacSigner, JsonLinesSink, MemorySink, RunRecorder, Sink
from nco_guard.audit.sqlite import SqliteSink
from nco_guard.engines.hf import GuardLogitsProcessor


class Timed:
    """A sink that adds up the time spent in it."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.processor = 0.0
        self.clock = 0.0

    def __call__(self, event: Event) -> None:
        processor, clock = time.process_time(), time.perf_counter()
        self.sink(event)
        self.processor += time.process_time() - processor
        self.clock += time.perf_counter() - clock

    def take(self) -> tuple[float, float]:
        """Both times since the last call."""
        taken = self.processor, self.clock
        self.processor = self.clock = 0.0
        return taken


def ways(folder: Path, stack: ExitStack) -> dict[str, Sink | None]:
    """The sinks that are compared."""
    signer = HmacSigner(bytes(32))
    return {
        "history": None,
        "memory": MemorySink(),
        "jsonl": stack.enter_context(JsonLinesSink(folder / "log.jsonl")),
        "signed": stack.enter_context(JsonLinesSink(folder / "signed.jsonl", signer=signer)),
        "jsonl, fsync": stack.enter_context(JsonLinesSink(folder / "synced.jsonl", fsync=True)),
    }


class Inside:
    """Adds up the processor time of some methods, once where one calls another."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, timed."""

        def run(*args: Any, **options: Any) -> Any:
            self._depth += 1
            started = time.process_time()
            try:
                return method(*args, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.process_time() - started

        return run

    @contextmanager
    def watching(self, methods: dict[type, str]) -> Iterator[None]:
        """Time these methods of these classes inside of the block."""
        before = {kind: getattr(kind, name) for kind, name in methods.items()}
        for kind, name in methods.items():
            setattr(kind, name, self.timed(before[kind]))
        try:
            yield
        finally:
            for kind, name in methods.items():
                setattr(kind, name, before[kind])


def compare(
    model: Any, tokenizer: Any, preset: str, batch: int, rounds: int, new_tokens: int, folder: Path
) -> dict[str, Any]:
    """Medians of the times, and of the ratios of each round's pairs."""
    prompts = [demo.PROMPTS["pii"][i % len(demo.PROMPTS["pii"])] for i in range(batch)]
    inputs = dict(
        tokenizer.apply_chat_template(
            prompts, add_generation_prompt=True, return_dict=True, return_tensors="pt", padding=True
        )
    )
    inside = Inside()
    with ExitStack() as stack:
        sinks = ways(folder, stack)
        policy = Policy.from_presets(preset)
        timed = {name: None if sink is None else Timed(sink) for name, sink in sinks.items()}
        guards = {name: Guard(policy, audit=sink) for name, sink in timed.items()}
        # Of each round: processor seconds of the generation, of the guard and of the sink; its share by the clock.
        rows: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in guards}
        names = list(guards)
        stack.enter_context(inside.watching({GuardLogitsProcessor: "__call__", RunRecorder: "_record"}))
        for number in range(-2, rounds):  # the first two rounds warm up
            at = number % len(names)
            for name in names[at:] + names[:at]:
                torch.manual_seed(number + 2)
                sink = timed[name]
                if sink is not None:
                    sink.take()
                inside.seconds = 0.0
                clock, started = time.perf_counter(), time.process_time()
                guards[name].generate(
                    model,
                    tokenizer,
                    inputs,
                    max_new_tokens=new_tokens,
                    min_new_tokens=new_tokens,
                    do_sample=True,
                )
                seconds, clock = time.process_time() - started, time.perf_counter() - clock
                processor, waited = (0.0, 0.0) if sink is None else sink.take()
                if number >= 0:
                    rows[name].append((seconds, inside.seconds, processor, waited / clock))
        changed = [run.steps_changed for run in guards["memory"].log.history.runs[-rounds:]]

    reference = rows["history"]

    def quartiles(values: list[float]) -> tuple[float, float, float]:
        values = sorted(values)
        return statistics.median(values), values[len(values) // 4], values[-1 - len(values) // 4]

    def summary(name: str) -> dict[str, Any]:
        pairs = list(zip(rows[name], reference, strict=True))
        return {
            "seconds": statistics.median(one[0] for one in rows[name]),
            "whole": quartiles([one[0] / other[0] for one, other in pairs]),
            "added": quartiles([(one[1] - other[1]) / other[0] for one, other in pairs]),
            "sink": quartiles([one[2] / other[0] for one, other in pairs]),
            "sink_by_the_clock": statistics.median(one[3] for one in rows[name]),
        }

    return {
        "policy": preset,
        "batch": batch,
        "interventions": statistics.mean(changed),
        "ways": {name: summary(name) for name in names},
    }


def per_event(folder: Path, events: int = 3000) -> dict[str, float]:
    """Microseconds an event takes, the making of it included."""
    costs = {}
    with ExitStack() as stack:
        sinks: dict[str, Sink | None] = ways(folder, stack)
        sinks["jsonl, no chain"] = stack.enter_context(JsonLinesSink(folder / "plain.jsonl", chain=False))
        sinks["sqlite"] = stack.enter_context(SqliteSink(folder / "log.db"))
        for name, sink in sinks.items():
            if sink is None:
                continue
            run = RunRecorder(sink)
            how_many = events // 10 if "fsync" in name else events
            started = time.perf_counter()
            for step in range(how_many):
                run.intervention(
                    sequence=0, step=step, rule_ids=["email"], removed_probability=0.25, first_allowed_rank=2
                )
            costs[name] = (time.perf_counter() - started) / how_many * 1e6
    return costs


def spread(values: tuple[float, float, float]) -> str:
    """Median and quartiles in per cent."""
    middle, low, high = (100 * value for value in values)
    return f"{middle:.2f} % ({low:.2f} - {high:.2f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="torch threads (the model is tiny; default 1)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, tokenizer = demo.load()
    results: dict[str, Any] = {"generation": []}
    print(
        "| policy, batch, interventions | way | processor seconds | whole | added | sink | sink, by the clock |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for preset, batch in itertools.product(("pii", "ldnoobw"), options.batches):
            row = compare(model, tokenizer, preset, batch, options.rounds, options.new_tokens, Path(folder))
            results["generation"].append(row)
            for name, found in row["ways"].items():
                whole, low, high = found["whole"]
                print(
                    f"| {preset}, {batch}, {row['interventions']:.1f} | {name} | {found['seconds']:.3f} "
                    f"| {whole:.3f} ({low:.3f} - {high:.3f}) | {spread(found['added'])} "
                    f"| {spread(found['sink'])} | {100 * found['sink_by_the_clock']:.2f} % |",
                    flush=True,
                )
        results["microseconds_per_event"] = per_event(Path(folder))
    print("\n| sink | microseconds per event |\n|---|---|")
    for name, cost in results["microseconds_per_event"].items():
        print(f"| {name} | {cost:.0f} |")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
