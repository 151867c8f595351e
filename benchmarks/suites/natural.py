"""Suite `natural`: what guarded texts read like, where the mask acts and where texts go back.

The shipped model, its prompts, one text at a time, all methods from the same seeds. Shown are: violations; the share of
texts with a *brink* (`inputs.brinks`), brinks a text, and the characters that *break off* in these; *exposure*, the
longest beginning of a would-be match of each rule (any word is one of an address); perplexity under the unguarded
model; passes of the model a token that is kept, and processor time a token. Beside ours stand the unguarded model, the
way of engines that ban the first token of a match where they go back, and texts that are thrown away whole until one
is clean. Personal data is blocked late, and early as well; what that blocks of ordinary text is measured too.
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
from benchmarks.harness.record import Case, Record
from benchmarks.harness.render import figure, section
from benchmarks.inputs.brinks import brinks
from benchmarks.inputs.constraints import ConstraintSet
from benchmarks.inputs.texts import prose
from nco_guard import Guard, Policy, Rewind, demo
from nco_guard.analysis import overblocking, sentences
from nco_guard.demo.metrics import perplexity
from nco_guard.engines.hf import rewinding as loop
from nco_guard.policy import presets
from nco_guard.policy.presets.pattern import StopName
from nco_guard.rewinding import RewindingRow
from nco_guard.scan import exposure

__all__ = ["count", "measure", "sets", "shares", "show", "table", "texts", "unguarded"]

LENGTH = 100
PRESETS = {"ldnoobw": "profanity", "pii": "pii"}
DECODINGS: dict[str, dict[str, Any]] = {
    "sampled": {"do_sample": True, "temperature": 1.0, "top_k": 0},
    "greedy": {"do_sample": False},
}
STOPS: tuple[StopName, ...] = ("late", "early")
_TRIES = 200  # whole texts, until one is clean
_BLOCKED = "blocked "  # early or late: what is measured on ordinary text
_PROSE = 3_000_000  # characters of ordinary text


def sets() -> dict[str, ConstraintSet]:
    """The policies, by the name of their preset."""
    return {name: ConstraintSet(f"preset {name}", partial(Policy.from_presets, name)) for name in PRESETS}


def measure(plan: Plan) -> None:
    """Each preset and decoding, all methods in one child; and what early points block for nothing."""
    pii = ConstraintSet("preset pii", partial(Policy.from_presets, "pii"))
    plan.say("natural: ordinary text")
    cases: dict[str, Case] = {
        stop: case_of("natural", f"{_BLOCKED}{stop}", pii, plan.world) for stop in STOPS
    }
    plan.together(cases, plan.bounds(8.0), innocent)
    count = 1 if plan.options.quick else 8
    for preset, constraint in sets().items():
        for decoding in DECODINGS:
            plan.say(f"natural: {preset}, {decoding}")
            names = _methods(preset, decoding)
            cases = {name: case_of("natural", name, constraint, plan.world, model=decoding) for name in names}
            rounds = count if decoding == "sampled" else 1
            plan.together(cases, plan.bounds(8.0), texts, preset, decoding, rounds, names)


def _methods(preset: str, decoding: str) -> list[str]:
    names = [name for name in METHODS if decoding == "sampled" or name != REJECTION]
    return names if preset == "pii" else [name for name in names if not name.endswith(EARLY)]


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


def unguarded(model: Any, tokenizer: Any, asked: Any, **options: Any) -> list[list[int]]:
    """What `model.generate` as it is writes after prompts, each text up to its end."""
    made = model.generate(**asked, pad_token_id=tokenizer.pad_token_id, **options)
    written = made[:, asked["input_ids"].shape[1] :].tolist()
    end = tokenizer.eos_token_id
    return [row[: row.index(end) + 1] if end in row else row for row in written]


def _unguarded(guard: Guard, model: Any, tokenizer: Any, prompt: Any, **options: Any) -> Any:
    ids = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    return unguarded(model, tokenizer, ids, max_new_tokens=LENGTH, **options)[0]


def _rejected(guard: Guard, model: Any, tokenizer: Any, prompt: Any, **options: Any) -> Any:
    for _ in range(_TRIES):
        ids = _unguarded(guard, model, tokenizer, prompt, **options)
        if guard.verify(tokenizer.decode(ids, skip_special_tokens=True)).ok:
            break
    return ids


REJECTION = "whole texts until one is clean"
EARLY = ", early"
METHODS: Mapping[str, Callable[..., Any]] = {
    "unguarded": _unguarded,
    "mask": _masked,
    "back to the match": partial(_masked, rewind=Rewind()),
    "back to the sentence": partial(_masked, rewind=Rewind(back_to="sentence")),
    "back to the text": partial(_masked, rewind=Rewind(back_to="text")),
    "first token banned": _banned,
    f"mask{EARLY}": _masked,
    f"back to the match{EARLY}": partial(_masked, rewind=Rewind()),
    f"back to the sentence{EARLY}": partial(_masked, rewind=Rewind(back_to="sentence")),
    f"back to the text{EARLY}": partial(_masked, rewind=Rewind(back_to="text")),
    REJECTION: _rejected,
}


def innocent() -> dict[str, Samples]:
    """Ordinary text, and text that is made to look like values: how much of it the preset blocks late and early."""
    ordinary = sentences(prose(_PROSE))
    alike = [text for pattern in presets.patterns("pii") for text in pattern.examples.no_match]
    found: dict[str, Samples] = {}
    for stop in STOPS:
        policy = Policy.from_presets("pii", stop=stop)
        shares = [overblocking(policy, some) for some in (ordinary, alike)]
        found[stop] = {
            "sentences_count": [len(ordinary)],
            "alike_count": [len(alike)],
            "blocked_ratio": [shares[0].forbidden / len(ordinary)],
            "blocked_alike_ratio": [shares[1].forbidden / len(alike)],
        }
    return found


def texts(preset: str, decoding: str, rounds: int, names: list[str]) -> dict[str, Samples]:
    """The figures of each method, over all prompts, so many times."""
    torch.set_num_threads(1)
    model, tokenizer = demo.load()
    guard, prompts = Guard.from_presets(preset), demo.PROMPTS[PRESETS[preset]]
    early = Guard.from_presets(preset, stop="early") if preset == "pii" else guard
    passes: Counter[str] = Counter()
    model.register_forward_hook(lambda *_: passes.update(["now"]))
    return {
        name: _figures(
            preset,
            early if name.endswith(EARLY) else guard,
            model,
            tokenizer,
            prompts * rounds,
            METHODS[name],
            decoding,
            passes,
        )
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
        count(told, preset, guard, tokenizer.decode(ids, skip_special_tokens=True))
    asked = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]
        for prompt in prompts
    ]
    tokens, number = sum(map(len, written)), len(written)
    return shares(told, number) | {
        "perplexity_count": [perplexity(model, asked, written)],
        "passes_count": [run / tokens],
        "token_s": [seconds / tokens],
        "rewinds_count": [told["rewinds"] / number],
        "fallbacks_count": [told["fallbacks"] / number],
    }


def count(
    told: Counter[str],
    preset: str,
    guard: Guard,
    text: str,
    is_word: Callable[[str], bool] = lambda word: False,
) -> None:
    """Add what one text shows. `is_word`: see `inputs.brinks`."""
    found = brinks(preset, text, is_word)
    told["violating"] += not guard.verify(text).ok
    told["brinks"] += len(found)
    told["with brinks"] += bool(found)
    told["broken off"] += sum(map(len, found))
    told["exposed"] += sum(one.end - one.start for one in exposure(guard.verifier.compiled, text))


def shares(told: Counter[str], number: int) -> Samples:
    """What so many texts show."""
    return {
        "texts_count": [number],
        "violating_count": [told["violating"]],
        "with_brinks_ratio": [told["with brinks"] / number],
        "brinks_count": [told["brinks"] / number],
        "broken_off_count": [told["broken off"] / number],
        "exposed_count": [told["exposed"] / number],
    }


def show(record: Record) -> str:
    """A table for each preset and decoding; and one of what early points block for nothing."""
    told = "One text at a time, by the model that ships; passes and time are those of all that was run, a kept token."
    blocking = [m for m in record.find("natural") if m.case.method.startswith(_BLOCKED)]
    ordinary = {
        "sentences of docstrings": "sentences_count",
        "of them blocked": "blocked_ratio",
        "texts like values": "alike_count",
        "of these blocked": "blocked_alike_ratio",
    }
    rest = [[m.case.constraint, m.case.method, *(figure(m, n) for n in ordinary.values())] for m in blocking]
    parts = [
        table(record, "natural", "## Natural text", told),
        section("## Ordinary text that is blocked", "", ("policy", "method", *ordinary), rest, blocking),
    ]
    return "\n\n".join(part for part in parts if part)


def table(record: Record, suite: str, heading: str, told: str) -> str:
    """What the texts of a suite show."""
    columns = {
        "texts": "texts_count",
        "violate": "violating_count",
        "with a brink": "with_brinks_ratio",
        "brinks a text": "brinks_count",
        "characters broken off a text": "broken_off_count",
        "exposed characters a text": "exposed_count",
        "perplexity": "perplexity_count",
        "passes a token": "passes_count",
        "processor time a token": "token_s",
        "went back a text": "rewinds_count",
        "fell back a text": "fallbacks_count",
    }
    found = [m for m in record.find(suite) if not m.case.method.startswith(_BLOCKED)]
    rows = [
        [m.case.constraint, m.case.model, m.case.method, *(figure(m, name) for name in columns.values())]
        for m in found
    ]
    return section(heading, told, ("policy", "model", "method", *columns), rows, found)
