"""What the guard costs a whole generation: the shipped model, base and guarded in turns, at several batch sizes.

    python benchmarks/generate.py [--batches 1 8 64] [--rounds 7] [--new-tokens 64] [--json results.json]

Both ways sample the same number of tokens (end-of-sequence is kept from coming), in turns, the first one changing from
round to round, so that what the machine does meanwhile falls on both alike. Guarded time includes masks and the final
verification. Speeds are tokens per second of the whole batch; the ratio is guarded / base of each round's pair.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nco_guard import Guard, demo

POLICIES = {
    "pii_paper": ("pii_paper",),
    "ldnoobw": ("ldnoobw",),
    "pii + secrets + ldnoobw": ("pii", "secrets", "ldnoobw"),
}


def speed(
    guard: Guard | None, model: Any, tokenizer: Any, inputs: dict[str, Any], new_tokens: int, seed: int
) -> float:
    """Tokens per second of one call."""
    options = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens, "do_sample": True}
    torch.manual_seed(seed)
    started = time.perf_counter()
    if guard is None:
        output = model.generate(**inputs, **options)
    else:
        output = guard.generate(model, tokenizer, inputs, **options).output
    elapsed = time.perf_counter() - started
    return output.shape[0] * (output.shape[1] - inputs["input_ids"].shape[1]) / elapsed


def compare(
    guard: Guard, model: Any, tokenizer: Any, batch: int, rounds: int, new_tokens: int
) -> dict[str, Any]:
    """Medians and spread of both ways, and of their ratio."""
    prompts = [demo.PROMPTS["pii"][i % len(demo.PROMPTS["pii"])] for i in range(batch)]
    inputs = dict(
        tokenizer.apply_chat_template(
            prompts, add_generation_prompt=True, return_dict=True, return_tensors="pt", padding=True
        )
    )
    found: dict[bool, list[float]] = {False: [], True: []}
    for number in range(-2, rounds):  # the first two pairs warm up
        for guarded in (number % 2 == 0, number % 2 == 1):
            reached = speed(guard if guarded else None, model, tokenizer, inputs, new_tokens, number + 2)
            if number >= 0:
                found[guarded].append(reached)
    ratios = [guarded / base for base, guarded in zip(found[False], found[True], strict=True)]
    return {
        "batch": batch,
        "base_tokens_per_second": statistics.median(found[False]),
        "guarded_tokens_per_second": statistics.median(found[True]),
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="torch threads (the model is tiny; default 1)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, tokenizer = demo.load()
    rows: list[dict[str, Any]] = []
    print("| policy | batch | base tokens/s | guarded tokens/s | guarded / base | lowest | highest |")
    print("|---|---|---|---|---|---|---|")
    for name, names in POLICIES.items():
        guard = Guard.from_presets(*names)
        for batch in options.batches:
            row = compare(guard, model, tokenizer, batch, options.rounds, options.new_tokens)
            rows.append({"policy": name, **row})
            print(
                f"| {name} | {batch} | {row['base_tokens_per_second']:,.0f} | {row['guarded_tokens_per_second']:,.0f} "
                f"| {row['ratio']:.3f} | {row['ratio_low']:.3f} | {row['ratio_high']:.3f} |",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
