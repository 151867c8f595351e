"""What the audit log costs a guarded generation: the shipped model, without and with a JSON lines log, in turns.

    python benchmarks/audit.py [--batches 1 8] [--rounds 15] [--new-tokens 64] [--json results.json]

All ways generate the same tokens under the same policy, one after another, the first one changing from round to round;
the ratio is that of each round's pair (time with / time without), of processor time, since waiting for other programs
says nothing. The shares are of the time spent inside of the sink in the whole generation: processor time, and time on
the clock, with disk flushes and other programs' turns. `history` is a guard without a sink, the reference.
`memory` keeps events in a list: what finding out costs (a pass over the scores of each step), without any file.
`jsonl` writes a chained log; `signed` signs its heads (HMAC) as well.
Below the table: the cost of one event for each sink, without any model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nco_guard import Guard, Policy, demo
from nco_guard.audit import Event, HmacSigner, JsonLinesSink, MemorySink, RunRecorder, Sink
from nco_guard.audit.sqlite import SqliteSink


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


def compare(
    model: Any, tokenizer: Any, batch: int, rounds: int, new_tokens: int, folder: Path
) -> dict[str, Any]:
    """Medians of the times, and of the ratios of each round's pairs."""
    prompts = [demo.PROMPTS["pii"][i % len(demo.PROMPTS["pii"])] for i in range(batch)]
    inputs = dict(
        tokenizer.apply_chat_template(
            prompts, add_generation_prompt=True, return_dict=True, return_tensors="pt", padding=True
        )
    )
    with ExitStack() as stack:
        sinks = ways(folder, stack)
        policy = Policy.from_presets("pii")
        timed = {name: None if sink is None else Timed(sink) for name, sink in sinks.items()}
        guards = {name: Guard(policy, audit=sink) for name, sink in timed.items()}
        shares: dict[str, list[tuple[float, float]]] = {name: [] for name in guards}
        times: dict[str, list[float]] = {name: [] for name in guards}
        names = list(guards)
        for number in range(-2, rounds):  # the first two rounds warm up
            at = number % len(names)
            for name in names[at:] + names[:at]:
                torch.manual_seed(number + 2)
                sink = timed[name]
                if sink is not None:
                    sink.take()
                clock, started = time.perf_counter(), time.process_time()
                guards[name].generate(
                    model,
                    tokenizer,
                    inputs,
                    max_new_tokens=new_tokens,
                    min_new_tokens=new_tokens,
                    do_sample=True,
                )
                if number >= 0:
                    times[name].append(time.process_time() - started)
                    clock = time.perf_counter() - clock
                    processor, waited = (0.0, 0.0) if sink is None else sink.take()
                    shares[name].append((processor / times[name][-1], waited / clock))
        interventions = guards["memory"].history.runs[-1].steps_changed

    def ratio(name: str, base: str) -> tuple[float, float, float]:
        pairs = sorted(one / other for one, other in zip(times[name], times[base], strict=True))
        return statistics.median(pairs), pairs[len(pairs) // 4], pairs[-1 - len(pairs) // 4]

    return {
        "batch": batch,
        "interventions_last_run": interventions,
        "seconds": {name: statistics.median(values) for name, values in times.items()},
        "ratio_to_history": {name: ratio(name, "history") for name in names},
        "share": {name: statistics.median(one for one, _ in values) for name, values in shares.items()},
        "clock_share": {name: statistics.median(one for _, one in values) for name, values in shares.items()},
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
        "| batch | way | processor seconds | / without a sink | quartiles | share of the sink | on the clock |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for batch in options.batches:
            row = compare(model, tokenizer, batch, options.rounds, options.new_tokens, Path(folder))
            results["generation"].append(row)
            for name, seconds in row["seconds"].items():
                middle, low, high = row["ratio_to_history"][name]
                print(
                    f"| {batch} | {name} | {seconds:.3f} | {middle:.3f} | {low:.3f} - {high:.3f} "
                    f"| {100 * row['share'][name]:.2f} % | {100 * row['clock_share'][name]:.2f} % |",
                    flush=True,
                )
            print(f"| {batch} | (interventions in the last run: {row['interventions_last_run']}) | | | | | |")
        results["microseconds_per_event"] = per_event(Path(folder))
    print("\n| sink | microseconds per event |\n|---|---|")
    for name, cost in results["microseconds_per_event"].items():
        print(f"| {name} | {cost:.0f} |")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
