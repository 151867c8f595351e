"""Set-up and steps of one method in a process of its own, and how they grow."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import torch

from benchmarks.harness.building import Built, build
from benchmarks.harness.options import SUITES
from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.processes import Memory
from benchmarks.harness.record import Record
from benchmarks.harness.render import figure, section, shown, title
from benchmarks.harness.timing import timed, turns
from benchmarks.inputs.constraints import ConstraintSet
from benchmarks.methods.peers import PreparedPeer
from benchmarks.methods.world import Method, World
from nco_guard.tokens import shared_tree

__all__ = ["ALL", "WALKED", "scale", "scaling", "set_up"]

#: The methods whose set-up is measured.
ALL = ("ours", "paper-nco", "guard-trie", "bad-words", "llguidance", "xgrammar")
WALKED = "Steps as above, of one sequence, over prose with beginnings of what is forbidden strewn in."
_WALK = 300


def set_up(method: Method, constraint: ConstraintSet, world: World, walk: int = 0) -> Samples:
    """One set-up and the first mask in this process; with `walk`, then steps through that many tokens of text.

    The text is prose with beginnings of what is forbidden strewn in; tokens that are forbidden are stepped over.
    """
    _prepare(constraint, method, world)
    with Memory() as memory:
        built = build(method, constraint, world)
        _, masking = timed(built.first_mask)
    samples = {name: [value] for name, value in built.seconds.items()}
    samples |= {"first_mask_s": [masking], "peak_mib": [memory.peak_mib], "kept_mib": [memory.kept_mib]}
    if built.table_mib is not None:
        samples["tables_mib"] = [built.table_mib]
    text = world.text_near(_pieces(constraint), walk) if walk else []
    if walk:
        samples["step_s"] = _walk(built, text)
    return samples


def _prepare(constraint: ConstraintSet, method: Method, world: World) -> None:
    """What is given: the policy, the strings, the view of the tokenizer (ours is the prefix tree)."""
    _ = constraint.policy if method.kind == "ours" else constraint.plain
    if method.kind == "ours":
        shared_tree(world.vocabulary)
    if method.kind == "peer":
        world.view(method.key)


def _pieces(constraint: ConstraintSet, count: int = 60) -> list[str]:
    """Beginnings of forbidden strings, and words over the letters of the generated patterns."""
    rng = random.Random(2)
    texts, patterns = constraint.plain
    found = [
        text[: rng.randint(2, max(2, len(text) - 1))] for text in rng.sample(texts, min(count, len(texts)))
    ]
    if patterns:
        found += ["".join(rng.choices("wxyz", k=rng.randint(1, 6))) for _ in range(count)]
    return found


def _walk(built: Built, ids: Sequence[int]) -> list[float]:
    """Seconds of each step of one sequence, as in the suite `steps`; what is forbidden gives way to another token."""
    if isinstance(built.prepared, PreparedPeer):
        return _walk_peer(built.prepared, ids)
    processor, text, seconds = built.processor(), [ids[0]], []
    for token in ids:
        scores = torch.zeros(1, built.width)
        seen = torch.tensor([text])
        masked, elapsed = timed(lambda seen=seen, scores=scores: processor(seen, scores))  # type: ignore[misc]
        seconds.append(elapsed)
        text.append(token if not torch.isneginf(masked[0, token]) else int(masked[0].argmax()))
    return seconds


def _walk_peer(prepared: PreparedPeer, ids: Sequence[int]) -> list[float]:
    matcher, seconds = prepared.matcher(), []
    last: int | None = None
    for token in ids:
        started = time.perf_counter()
        if last is not None:
            prepared.consume(matcher.raw, last)
        prepared.bits([matcher.raw])
        seconds.append(time.perf_counter() - started)
        forbidden = matcher.forbidden()
        last = token if not forbidden[token] else int(forbidden.argmin())
    return seconds


def scale(plan: Plan, suite: str, sets: Sequence[tuple[int, ConstraintSet]], methods: Sequence[str]) -> None:
    """Set up, and walk, with more and more; a method that exceeded its bounds is not tried with more."""
    rounds = 1 if plan.options.quick else min(3, plan.options.repeats)
    over: dict[str, str] = {}
    for size, constraint in sets:
        able = plan.able(suite, constraint, plan.world, methods, size=size)
        for number, method in turns(able, rounds):
            case = case_of(suite, method.key, constraint, plan.world, size=size)
            if method.key in over:
                plan.collector.add(case, {}, "over time", f"not tried: {over[method.key]}")
                continue
            plan.say(f"{suite}: {size:,}: {method.title}")
            if number and method.key == "paper-nco":
                continue  # minutes
            walk = 60 if plan.options.quick else _WALK
            plan.measure(case, plan.bounds(), set_up, method, constraint, plan.world, walk)
            if plan.collector.status(case) in ("over time", "over memory"):
                over[method.key] = f"{size:,} were over the bounds"


def scaling(record: Record, suite: str, told: str = "", *, by_constraint: bool = False) -> str:
    """What `scale` recorded, and whatever else has a size, in the order of the sizes."""
    found = record.find(suite)
    rows = [
        (
            f"{m.case.size:,}",
            m.case.constraint,
            title(m.case.method),
            figure(m, "setup_s"),
            figure(m, "first_mask_s", spread=False),
            figure(m, "peak_mib"),
            figure(m, "step_s", p99=True),
        )
        for m in sorted(
            shown(found),
            key=lambda m: (m.case.constraint if by_constraint else "", m.case.size or 0),
        )
    ]
    header = ("size", "constraint", "method", "set-up", "first mask", "peak memory", "a step, batch 1")
    return section(f"## {SUITES[suite].measures.capitalize()}", told, header, rows, found)
