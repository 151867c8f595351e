"""Suite `natural`: what guarded texts read like, where the mask acts and where texts go back.

The shipped model, its prompts, one text at a time, all methods from the same seeds. Shown are: violations; the share of
texts with a *brink* (`inputs.brinks`), and brinks a text; *exposure*, the characters of would-be values that a text
shows; perplexity under the unguarded model; passes of the model a token that is kept, and processor time a token.
Beside ours stand the unguarded model, the way of engines that ban the first token of a match where they go back, and
texts that are thrown away whole until one is clean.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.record import Record
from benchmarks.harness.render import figure, section
from benchmarks.inputs.brinks import brinks
from benchmarks.inputs.constraints import ConstraintSet
from nco_guard import Guard, Policy, Rewind, demo
from nco_guard.demo.metrics import perplexity
from nco_guard.engines.hf import rewinding as loop
from nco_guard.rewinding import RewindingRow
from nco_guard.scan import exposure

__all__ = ["measure", "show", "texts"]

LENGTH = 100
PRESETS = {"ldnoobw": "profanity", "pii": "pii"}
DECODINGS: dict[str, dict[str, Any]] = {
    "sampled": {"do_sample": True, "temperature": 1.0, "top_k": 0},
    "greedy": {"do_sample": False},
}
_TRIES = 200  # whole texts, until one is clean


def _sets() -> dict[str, ConstraintSet]:
    return {name: ConstraintSet(f"preset {name}", partial(Policy.from_presets, name)) for name in PRESETS}


def measure(plan: Plan) -> None:
    """Each preset and decoding, all methods in one child."""
    count = 1 if plan.options.quick else 8
    for preset, constraint in _sets().items():
        for decoding in DECODINGS:
            plan.say(f"natural: {preset}, {decoding}")
            names = [name for name in METHODS if decoding == "sampled" or name != REJECTION]
            cases = {name: case_of("natural", name, constraint, plan.world, model=decoding) for name in names}
            rounds = count if decoding == "sampled" else 1
            plan.together(cases, plan.bounds(8.0), texts, preset, decoding, rounds, names)


class _Banning(RewindingRow):
    """Goes back to where the match began, and never writes that token there again."""

    def _go_back(self, target: int) -> None:
        banned = self._path[target].child(self.ids[target])
        super()._go_back(target)
        banned.mass = 0.0


@contextmanager
def _rows_of(kind: type[RewindingRow]) -> Iterator[None]:
    with patch.object(loop, "RewindingRow", kind):
        yield


def _masked(guard: Guard, model: Any, tokenizer: Any, prompt: Any, **options: Any) -> Any:
    return guard.generate(model, tokenizer, [prompt], max_new_tokens=LENGTH, **options)


def _banned(guard: Guard, model: Any, tokenizer: Any, prompt: Any, **options: Any) -> Any:
    with _rows_of(_Banning):
        return _masked(guard, model, tokenizer, prompt, when_blocked="rewind", **options)


def _unguarded(guard: Guard, model: Any, tokenizer: Any, prompt: Any, **options: Any) -> Any:
    """`model.generate` as it is."""
    ids = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    made = model.generate(**ids, max_new_tokens=LENGTH, pad_token_id=tokenizer.pad_token_id, **options)
    return made[0, ids["input_ids"].shape[1] :].tolist()


def _rejected(guard: Guard, model: Any, tokenizer: Any, prompt: Any, **options: Any) -> Any:
    for _ in range(_TRIES):
        ids = _unguarded(guard, model, tokenizer, prompt, **options)
        if guard.verify(tokenizer.decode(ids, skip_special_tokens=True)).ok:
            break
    return ids


REJECTION = "whole texts until one is clean"
METHODS: Mapping[str, Callable[..., Any]] = {
    "unguarded": _unguarded,
    "mask": _masked,
    "back to the match": partial(_masked, rewind=Rewind()),
    "back to the sentence": partial(_masked, rewind=Rewind(back_to="sentence")),
    "back to the text": partial(_masked, rewind=Rewind(back_to="text")),
    "first token banned": _banned,
    REJECTION: _rejected,
}


def texts(preset: str, decoding: str, rounds: int, names: list[str]) -> dict[str, Samples]:
    """The figures of each method, over all prompts, so many times."""
    torch.set_num_threads(1)
    model, tokenizer = demo.load()
    guard, prompts = Guard.from_presets(preset), demo.PROMPTS[PRESETS[preset]]
    passes: Counter[str] = Counter()
    model.register_forward_hook(lambda *_: passes.update(["now"]))
    return {
        name: _figures(preset, guard, model, tokenizer, prompts * rounds, METHODS[name], decoding, passes)
        for name in names
    }


def _figures(
    preset: str,
    guard: Guard,
    model: Any,
    tokenizer: Any,
    prompts: list[Any],
    method: Callable[..., Any],
    decoding: str,
    passes: Counter[str],
) -> Samples:
    told: Counter[str] = Counter()
    written: list[list[int]] = []
    passes.clear()
    began = time.process_time()
    for number, prompt in enumerate(prompts):
        torch.manual_seed(number)
        made = method(guard, model, tokenizer, prompt, **DECODINGS[decoding])
        written.append(made if isinstance(made, list) else made.token_ids[0])
        counts = None if isinstance(made, list) else made.rewinds
        told["fallbacks"] += sum(one.fallbacks for one in counts or ())
        told["rewinds"] += sum(one.rewinds for one in counts or ())
    seconds, run = time.process_time() - began, passes["now"]
    for ids in written:
        text = tokenizer.decode(ids, skip_special_tokens=True)
        found = brinks(preset, text)
        told["violating"] += not guard.verify(text).ok
        told["brinks"] += len(found)
        told["with brinks"] += bool(found)
        exposed = [one.end - one.start for one in exposure(guard.verifier.compiled, text)]
        told["exposed"] += sum(exposed)
    asked = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]
        for prompt in prompts
    ]
    tokens, count = sum(map(len, written)), len(written)
    return {
        "texts_count": [count],
        "violating_count": [told["violating"]],
        "with_brinks_ratio": [told["with brinks"] / count],
        "brinks_count": [told["brinks"] / count],
        "exposed_count": [told["exposed"] / count],
        "perplexity_count": [perplexity(model, asked, written)],
        "passes_count": [run / tokens],
        "token_s": [seconds / tokens],
        "rewinds_count": [told["rewinds"] / count],
        "fallbacks_count": [told["fallbacks"] / count],
    }


def show(record: Record) -> str:
    """A table for each preset and decoding."""
    columns = {
        "texts": "texts_count",
        "violate": "violating_count",
        "with a brink": "with_brinks_ratio",
        "brinks a text": "brinks_count",
        "exposed characters a text": "exposed_count",
        "perplexity": "perplexity_count",
        "passes a token": "passes_count",
        "processor time a token": "token_s",
        "went back a text": "rewinds_count",
        "fell back a text": "fallbacks_count",
    }
    found = record.find("natural")
    rows = [
        [m.case.constraint, m.case.model, m.case.method, *(figure(m, name) for name in columns.values())]
        for m in found
    ]
    told = "One text at a time, by the model that ships; passes and time are those of all that was run, a kept token."
    return section("## Natural text", told, ("policy", "decoding", "method", *columns), rows, found)
