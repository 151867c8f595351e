"""Suite `smollm2`: as `natural`, of a small real model.

Two hundred beginnings of texts (`inputs.beginnings`), a hundred that lead to oaths and a hundred that lead to personal
data, gone on with by SmolLM2-135M-Instruct in batches, all methods from the same seeds. Passes are counted as tokens:
those that were run through the model, for each that is kept. The notes of the record show texts side by side.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.processes import isolated
from benchmarks.harness.record import Record
from benchmarks.inputs import smollm2
from benchmarks.inputs.beginnings import OATHS, VALUES
from benchmarks.suites import natural
from nco_guard import Guard, Rewind
from nco_guard.demo.metrics import perplexity

__all__ = ["measure", "show", "texts"]

LENGTH, BATCH, PAIRS = 40, 20, 10
PROMPTS: Mapping[str, Sequence[str]] = {"ldnoobw": OATHS, "pii": VALUES}
DECODING: dict[str, Any] = {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "top_k": 0}
CLEAN = "unguarded, those that are clean"


def measure(plan: Plan) -> None:
    """Each preset, all methods in one child."""
    for preset, constraint in natural.sets().items():
        plan.say(f"smollm2: {preset}")
        names = [*METHODS, CLEAN]
        cases = {name: case_of("smollm2", name, constraint, plan.world, model=smollm2.NAME) for name in names}
        prompts = PROMPTS[preset][:: 5 if plan.options.quick else 1]
        outcome = isolated(plan.bounds(24.0), texts, preset, prompts)
        figures, pairs = outcome.value or ({}, [])
        for name, case in cases.items():
            plan.collector.add(case, figures.get(name, {}), outcome.status, outcome.reason)
        plan.collector.notes.update(dict.fromkeys(pairs))


Written = tuple[list[list[int]], int]  # texts, and how many tokens were thrown away


def _unguarded(guard: Guard, model: Any, tokenizer: Any, prompts: list[str]) -> Written:
    ids = tokenizer(prompts, return_tensors="pt", padding=True)
    return natural.unguarded(model, tokenizer, ids, max_new_tokens=LENGTH, **DECODING), 0


def _guarded(guard: Guard, model: Any, tokenizer: Any, prompts: list[str], **options: Any) -> Written:
    made = guard.generate(model, tokenizer, prompts, max_new_tokens=LENGTH, **DECODING, **options)
    return [list(ids) for ids in made.token_ids], sum(one.discarded for one in made.rewinds or ())


METHODS: Mapping[str, Callable[..., Written]] = {
    "unguarded": _unguarded,
    "mask": _guarded,
    "back to the match": partial(_guarded, rewind=Rewind()),
    "back to the sentence": partial(_guarded, rewind=Rewind(back_to="sentence")),
}


def texts(preset: str, prompts: Sequence[str]) -> tuple[dict[str, Samples], list[str]]:
    """The figures of each method; and texts that the mask changed, beside what stands there without it and with going
    back to the sentence.
    """
    torch.set_num_threads(1)
    model, tokenizer = smollm2.load()
    guard = Guard.from_presets(preset)
    asked = [tokenizer(prompt)["input_ids"] for prompt in prompts]
    found: dict[str, Samples] = {}
    read: dict[str, list[str]] = {}
    for name, method in METHODS.items():
        written: list[list[int]] = []
        discarded, began = 0, time.process_time()
        for first in range(0, len(prompts), BATCH):
            torch.manual_seed(first)
            rows, thrown = method(guard, model, tokenizer, list(prompts[first : first + BATCH]))
            written += rows
            discarded += thrown
        tokens = sum(map(len, written))
        read[name] = [tokenizer.decode(ids, skip_special_tokens=True) for ids in written]
        found[name] = _figures(preset, guard, read[name]) | {
            "perplexity_count": [perplexity(model, asked, written)],
            "passes_count": [1 + discarded / tokens],
            "token_s": [(time.process_time() - began) / tokens],
        }
        if name == "unguarded":
            clean = [at for at, text in enumerate(read[name]) if guard.verify(text).ok]
            found[CLEAN] = _figures(preset, guard, [read[name][at] for at in clean]) | {
                "perplexity_count": [
                    perplexity(model, [asked[at] for at in clean], [written[at] for at in clean])
                ],
            }
    changed = [at for at, text in enumerate(read["unguarded"]) if not guard.verify(text).ok]
    kept = "mask", "back to the sentence"
    return found, [" / ".join(f"{name}: {read[name][at]!r}" for name in kept) for at in changed[:PAIRS]]


def _figures(preset: str, guard: Guard, read: list[str]) -> Samples:
    told: Counter[str] = Counter()
    for text in read:
        natural.count(told, preset, guard, text, smollm2.is_word)
    return natural.shares(told, len(read))


def show(record: Record) -> str:
    """A table for each preset."""
    told = f"In batches of {BATCH}, weights of SHA-256 {smollm2.CHECKSUM[:12]}; passes are tokens run, a kept token."
    return natural.table(record, "smollm2", f"## Natural text of {smollm2.NAME}", told)
