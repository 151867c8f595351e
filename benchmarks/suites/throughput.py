"""Suite `throughput`: whole generations, guarded and not, in turns, over the same prompts.

Every round runs every method once, another one first each time, and the unguarded model right before or right after
each, in turns; a method's figure is its tokens per second over those of the unguarded run beside it. Other work on the
machine disturbs both alike, and drift cancels over an even number of rounds. Ours takes part in four times as many
rounds as the others. All generate the same number of tokens (end-of-sequence is kept from coming), fewer in large
batches.
Besides the shipped model and the least that a large vocabulary allows, there is one of a real small model's shape, for
ours alone.
Ours is `Guard.generate` as users call it: processor, settling and the final verification included. The peers' matchers,
one per sequence, are made before each generation begins and are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from benchmarks.harness.generating import Generator, Ready, Run, prepared, replayed
from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.processes import isolated
from benchmarks.harness.record import Case, Record
from benchmarks.harness.render import figure, first, reasons, shown, table, title
from benchmarks.harness.timing import turns
from benchmarks.inputs.constraints import EVERYTHING, PAPER_PII, SUBSTRINGS, ConstraintSet, regexes
from benchmarks.inputs.models import Replay, random_llama
from benchmarks.inputs.shapes import MODELS, SHAPES, SHIPPED
from benchmarks.methods.world import BASE, World, read_world
from nco_guard import demo
from nco_guard.engines.hf.inputs import logits_width
from nco_guard.errors import NCOGuardError, PatternError, UnsupportedError
from nco_guard.guard import Guard

__all__ = ["generations", "measure", "show"]

_SMALL, _REAL = SHAPES
_PROMPT = 16
# Rows x steps of a generation, at most, and steps at least.
_ROW_STEPS = 1024
_STEPS = 8
_OURS = 4
WARM = 1
_SECONDS = 900.0  # for one constraint and batch size, all methods together
# The paper's method takes minutes and gigabytes over a large vocabulary: it is set up once for all batch sizes, in a
# process of its own, so that it cannot take the others with it.
_TOGETHER = ("ours", "rejection", "guard-trie", "bad-words", "llguidance", "xgrammar")
_ALONE = ("paper-nco",)


def measure(plan: Plan) -> None:
    """Both models, all batch sizes and constraints."""
    options = plan.options
    sets = [SUBSTRINGS, PAPER_PII, EVERYTHING]
    if not options.quick:
        sets.append(regexes(668, options.regexpspace))
    shipped = plan.world if plan.world.folder == demo.model_path() else read_world(None, plan.threads)
    wanted = options.model or (MODELS[:2] if options.quick else MODELS)
    batches = options.generation_batches
    for model, world in ((SHIPPED, shipped), (_SMALL, plan.world)):
        for constraint in sets if model in wanted else ():
            for batch in batches:
                _measure(plan, model, world, constraint, (batch,), _TOGETHER)
            _measure(plan, model, world, constraint, batches, _ALONE)
    for constraint in sets if _REAL in wanted else ():
        _measure(plan, _REAL, plan.world, constraint, batches, ("ours",))


def _measure(
    plan: Plan,
    model: str,
    world: World,
    constraint: ConstraintSet,
    batches: Sequence[int],
    group: Sequence[str],
) -> None:
    keys: list[str] = []
    for batch in batches:
        able = plan.able("throughput", constraint, world, group, model=model, batch=batch)
        keys = [method.key for method in able]
    if not keys:
        return
    for key in ("llguidance", "xgrammar"):
        if key in keys:
            world.view(key)
    _ = constraint.policy
    sizes = ", ".join(map(str, batches))
    plan.say(f"throughput: {model} model, {constraint.name}, batch {sizes}: {', '.join(keys)}")
    options = plan.options
    outcome = isolated(
        plan.bounds(1.0 if options.seconds else _SECONDS / options.case_seconds),
        generations,
        model,
        world,
        constraint,
        batches,
        keys,
        rounds=options.rounds or (1 if options.quick else 2),
        new_tokens=options.new_tokens,
    )

    def case(method: str, batch: int) -> Case:
        return case_of("throughput", method, constraint, world, model=model, batch=batch)

    if outcome.value is None:
        for batch in batches:
            for key in keys:
                plan.collector.add(case(key, batch), {}, outcome.status, outcome.reason)
        return
    words, runs = outcome.value
    plan.collector.notes[f"{model} / {world.name}: {words}" if words else "shipped: 2 M parameters"] = None
    for (batch, key), run in runs.items():
        name = f"{key}, beside {keys[0]}" if key == BASE else key
        plan.collector.add(case(name, batch), run.samples, run.status, run.reason)


def generations(
    name: str,
    world: World,
    constraint: ConstraintSet,
    batches: Sequence[int],
    methods: Sequence[str],
    *,
    rounds: int,
    new_tokens: int,
) -> tuple[str, dict[tuple[int, str], Run]]:
    """All methods in this process, in turns; the model in words (empty for the shipped one), and what each did."""
    torch.set_num_threads(world.threads)
    model: Any
    width = world.vocabulary.width
    model, words = (demo.load()[0], "") if name == SHIPPED else random_llama(width, SHAPES[name])
    width = logits_width(model)
    ready: dict[str, Ready] = {}
    refused: dict[str, Run] = {}
    for key in methods:
        try:
            if key != "ours" and width != world.vocabulary.width:
                raise UnsupportedError(
                    f"the model has {width} columns, the tokenizer {world.vocabulary.width}"
                )
            ready[key] = prepared(key, constraint, world, batch=max(batches))
        except (UnsupportedError, PatternError) as error:
            refused[key] = Run("cannot express", str(error), {})
    runs: dict[tuple[int, str], Run] = {}
    for batch in batches:
        length = min(new_tokens, max(_STEPS, _ROW_STEPS // batch))
        found = _turns(_generator(name, model, world, batch, ready, length), rounds)
        runs |= {(batch, key): run for key, run in (found | refused).items()}
    return words, runs


def _generator(
    name: str, model: Any, world: World, batch: int, ready: Mapping[str, Ready], new_tokens: int
) -> Generator:
    inputs, replay = _prompts(name, world, batch, new_tokens)
    # A guard stops at the tokenizer's end-of-sequence, and transformers looks for it in every step: so for all methods.
    eos = world.tokenizer.eos_token_id
    options: dict[str, Any] = {"max_new_tokens": new_tokens, "eos_token_id": eos, "pad_token_id": eos}
    if replay is None:
        options |= {"min_new_tokens": new_tokens, "do_sample": True, "top_k": 0}
    else:
        options["do_sample"] = False  # what it writes is given, and holds no end
    return Generator(model, world.tokenizer, inputs, {BASE: None, **ready}, new_tokens, options, replay)


def _turns(generator: Generator, rounds: int) -> dict[str, Run]:
    ready = {key: made for key, made in generator.ready.items() if made is not None}
    found: dict[str, Samples] = {key: {"tokens_per_s": [], "relative_ratio": []} for key in ready}
    bases: list[float] = []
    failed: dict[str, Run] = {}
    with generator.pushed():
        for number, key in turns(list(ready), WARM + _OURS * rounds):
            if key in failed or (number >= WARM + rounds and not isinstance(ready[key], Guard)):
                continue
            pair = (BASE, key) if number % 2 else (key, BASE)
            try:
                speeds = {each: generator.speed(each, number) for each in pair}
            except NCOGuardError as error:
                failed[key] = Run("failed", str(error), {})
                continue
            if number >= WARM:
                bases.append(speeds[BASE])
                found[key]["tokens_per_s"].append(speeds[key])
                found[key]["relative_ratio"].append(speeds[key] / speeds[BASE])
    runs = {BASE: Run("ok", "", {"tokens_per_s": bases})}
    return runs | {key: failed.get(key) or Run("ok", "", samples) for key, samples in found.items()}


def _prompts(
    name: str, world: World, batch: int, new_tokens: int
) -> tuple[dict[str, torch.Tensor], Replay | None]:
    """The shipped model is asked and sampled; the other reads text and goes on with it."""
    if name == SHIPPED:
        chats = [chat for kind in demo.PROMPTS.values() for chat in kind]
        world.tokenizer.padding_side = "left"
        inputs = world.tokenizer.apply_chat_template(
            [chats[row % len(chats)] for row in range(batch)],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
            padding=True,
        )
        return {k: v for k, v in inputs.items() if k != "token_type_ids"}, None
    text = world.text(8 * (_PROMPT + new_tokens))
    return replayed(text, batch, _PROMPT, new_tokens)


def show(record: Record) -> str:
    """A table for each model and constraint."""
    found = record.find("throughput")
    if not found:
        return ""
    lines = [
        "## Throughput",
        "",
        "Tokens per second of whole generations, relative to the unguarded model in the same round: median and "
        "quartiles.",
        "",
    ]
    batches = sorted({m.case.batch for m in found if m.case.batch is not None})
    header = ("method", *(f"batch {b}" for b in batches))
    for model in dict.fromkeys(m.case.model for m in found):
        for constraint in dict.fromkeys(m.case.constraint for m in found if m.case.model == model):
            these = [m for m in found if m.case.model == model and m.case.constraint == constraint]
            rows = []
            for method in dict.fromkeys(m.case.method for m in shown(these)):
                name = "tokens_per_s" if method.startswith(BASE) else "relative_ratio"
                cells = [figure(first(these, method=method, batch=b), name) for b in batches]
                label = f"{title(method)}, tokens/s" if method.startswith(BASE) else title(method)
                rows.append((label, *cells))
            lines += [f"### {model} model, {constraint}", "", *table(header, rows), *reasons(these)]
    return "\n".join(lines)
