"""Suite `throughput`: whole generations, guarded and not, in turns, over the same prompts.

Every round runs every method once, another one first each time; a method's figure is its tokens per second over those
of the unguarded model in the same round. All generate the same number of tokens (end-of-sequence is kept from coming).
Ours is `Guard.generate` as users call it: processor, settling and the final verification included. The peers' matchers,
one per sequence, are made before each generation begins and are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from nco_guard import demo
from nco_guard.bench.constraints import EVERYTHING, PAPER_PII, SUBSTRINGS, ConstraintSet, regexes
from nco_guard.bench.methods import METHODS, World, build, read_world
from nco_guard.bench.models import Replay, small_llama
from nco_guard.bench.plan import Plan, Samples, case_of
from nco_guard.bench.processes import isolated
from nco_guard.bench.record import Case, Status
from nco_guard.errors import NCOGuardError, PatternError, UnsupportedError
from nco_guard.evaluation.baselines import Prepared
from nco_guard.evaluation.peers import PreparedPeer
from nco_guard.guard import Guard

__all__ = ["BASE", "generations", "throughput_suite"]

BASE = "unguarded"
ModelName = Literal["shipped", "small Llama"]
_PROMPT = 16
# The paper's method takes minutes and gigabytes over a large vocabulary: it is set up once for all batch sizes, in a
# process of its own, so that it cannot take the others with it.
_TOGETHER = ("ours", "rejection", "guard-trie", "bad-words", "llguidance", "xgrammar")
_ALONE = ("paper-nco",)


@dataclass(frozen=True)
class Run:
    """What one method did: samples, or why there are none."""

    status: Status
    reason: str
    samples: Samples


def throughput_suite(plan: Plan) -> None:
    """Both models, all batch sizes and constraints."""
    options = plan.options
    sets = [SUBSTRINGS, PAPER_PII, EVERYTHING]
    if not options.quick:
        sets.append(regexes(668, options.regexpspace))
    shipped = plan.world if plan.world.folder == demo.model_path() else read_world(None, plan.threads)
    pairs: tuple[tuple[ModelName, World], ...] = (("shipped", shipped), ("small Llama", plan.world))
    for model, world in pairs:
        for constraint in sets:
            for batch in options.generation_batches:
                _measure(plan, model, world, constraint, (batch,), _TOGETHER)
            _measure(plan, model, world, constraint, options.generation_batches, _ALONE)


def _measure(
    plan: Plan,
    model: ModelName,
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
        plan.bounds(4.0),
        generations,
        model,
        world,
        constraint,
        batches,
        keys,
        rounds=options.rounds or max(3, options.repeats),
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
    plan.collector.notes[f"small Llama / {world.name}: {words}" if words else "shipped: 2 M parameters"] = (
        None
    )
    for (batch, key), run in runs.items():
        name = f"{key}, beside {keys[0]}" if key == BASE else key
        plan.collector.add(case(name, batch), run.samples, run.status, run.reason)


def generations(
    name: ModelName,
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
    model, words = (demo.load()[0], "") if name == "shipped" else small_llama(world.vocabulary.width)
    width = int(model.get_output_embeddings().weight.shape[0])
    ready: dict[str, Guard | Prepared] = {}
    refused: dict[str, Run] = {}
    for key in methods:
        try:
            ready[key] = _prepare(key, world, constraint, max(batches), width)
        except (UnsupportedError, PatternError) as error:
            refused[key] = Run("cannot express", str(error), {})
    runs: dict[tuple[int, str], Run] = {}
    for batch in batches:
        found = _turns(name, model, world, batch, ready, rounds=rounds, new_tokens=new_tokens)
        runs |= {(batch, key): run for key, run in (found | refused).items()}
    return words, runs


def _prepare(key: str, world: World, constraint: ConstraintSet, batch: int, width: int) -> Guard | Prepared:
    if key == "ours":
        return Guard(constraint.policy, cache=False)
    if width != world.vocabulary.width:
        raise UnsupportedError(f"the model has {width} columns, the tokenizer {world.vocabulary.width}")
    return build(METHODS[key], constraint, world, batch=batch).other()


def _turns(
    name: ModelName,
    model: Any,
    world: World,
    batch: int,
    ready: dict[str, Guard | Prepared],
    *,
    rounds: int,
    new_tokens: int,
) -> dict[str, Run]:
    inputs, replay = _prompts(name, world, batch, new_tokens)
    fixed: dict[str, Any] = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens}
    fixed |= {"do_sample": replay is None, "pad_token_id": world.tokenizer.eos_token_id}
    if replay is None:
        fixed["top_k"] = 0
    calls: dict[str, Callable[[], Any]] = {BASE: lambda: model.generate(**inputs, **fixed)}
    for key, made in ready.items():
        if isinstance(made, Guard):
            calls[key] = partial(made.generate, model, world.tokenizer, inputs, **fixed)
        else:
            calls[key] = partial(made.generate, model, **inputs, **fixed)
    hook = None if replay is None else model.get_output_embeddings().register_forward_hook(replay)
    runs: dict[str, Run] = {}
    found: dict[str, list[float]] = {key: [] for key in calls}
    order = list(calls)
    for number in range(-1, rounds):  # the first round warms up
        first = number % len(order)
        for key in (*order[first:], *order[:first]):
            if key in runs:
                continue
            if replay is not None:
                replay.restart()
            if isinstance(peer := ready.get(key), PreparedPeer):
                peer.reserve(batch)
            torch.manual_seed(number + 1)
            started = time.perf_counter()
            try:
                calls[key]()
            except NCOGuardError as error:
                runs[key] = Run("failed", str(error), {})
                continue
            elapsed = time.perf_counter() - started
            if number >= 0:
                found[key].append(batch * new_tokens / elapsed)
    if hook is not None:
        hook.remove()
    base = found[BASE]
    for key, speeds in found.items():
        if key not in runs:
            samples = {"tokens_per_s": speeds}
            if key != BASE:
                samples["relative_ratio"] = [s / b for s, b in zip(speeds, base, strict=True)]
            runs[key] = Run("ok", "", samples)
    return runs


def _prompts(
    name: ModelName, world: World, batch: int, new_tokens: int
) -> tuple[dict[str, torch.Tensor], Replay | None]:
    """The shipped model is asked and sampled; the other reads text and goes on with it."""
    if name == "shipped":
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
    starts = [row * 37 % (len(text) - _PROMPT - new_tokens) for row in range(batch)]
    rows = torch.tensor([text[start : start + _PROMPT + new_tokens] for start in starts])
    prompt = rows[:, :_PROMPT].clone()
    return {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}, Replay(rows[:, _PROMPT:])
