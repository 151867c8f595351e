"""Suites `setup`, `strings`, `regexes`, `vocabularies` and `revise`: time and memory until the first mask is there.

Set-up begins with the policy (or the strings and patterns) and the vocabulary in memory and ends with tables; what the
vocabulary itself takes is measured apart, for each reader. The first mask is timed too, since lazy methods pay there.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from nco_guard.bench.constraints import MEASURED, PAPER_PII, SUBSTRINGS, ConstraintSet, regexes, strings
from nco_guard.bench.methods import Built, Method, World, build, read_view
from nco_guard.bench.plan import Plan, Samples, case_of
from nco_guard.bench.processes import Memory, timed
from nco_guard.engines.hf import GuardLogitsProcessor
from nco_guard.errors import UnsupportedError
from nco_guard.evaluation.baselines import Processor
from nco_guard.evaluation.peers import PreparedPeer
from nco_guard.guard import Guard
from nco_guard.policy import Policy, StringRule
from nco_guard.storage.store import Store
from nco_guard.tokens import PrefixTree, read_vocabulary, shared_tree, shared_vocabulary

__all__ = [
    "read_all",
    "regex_scaling",
    "revise",
    "set_up",
    "setup_suite",
    "string_scaling",
    "vocabulary_scaling",
]

_ALL = ("ours", "paper-nco", "guard-trie", "bad-words", "llguidance", "xgrammar")
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
    processor: Processor
    if built.bound is not None:
        processor, width = GuardLogitsProcessor(built.bound, in_place=True), built.bound.vocabulary.width
    else:
        processor, width = built.other().logits_processor(), built.other().width
    text, seconds = [ids[0]], []
    for token in ids:
        scores = torch.zeros(1, width)
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


def _read(world: World, method: str) -> Samples:
    """A reader's own view of the tokenizer, from the tokenizer in memory."""
    with Memory() as memory:
        if method == "ours":
            vocabulary, reading = timed(lambda: read_vocabulary(world.tokenizer))
            _, growing = timed(lambda: PrefixTree(vocabulary.tokens))
            samples = {"read_s": [reading + growing], "vocabulary_s": [reading], "tree_s": [growing]}
        else:
            _, reading = timed(lambda: read_view(method, world.tokenizer, world.vocabulary.width))
            samples = {"read_s": [reading]}
    return {**samples, "peak_mib": [memory.peak_mib]}


def _read_again(world: World, folder: Path) -> Samples:
    """The same from a folder that may hold what an earlier process worked out."""
    store = Store.chosen(folder)
    vocabulary, reading = timed(lambda: shared_vocabulary(world.tokenizer, store=store))
    _, growing = timed(lambda: shared_tree(vocabulary, store))
    return {"read_s": [reading + growing], "vocabulary_s": [reading], "tree_s": [growing]}


def read_all(plan: Plan, world: World) -> None:
    """Reading one tokenizer, by all who read it."""
    for _, method in plan.turns(("ours", "llguidance", "xgrammar"), plan.options.repeats):
        plan.measure(case_of("reading", method, None, world), plan.bounds(), _read, world, method)
    case = case_of("reading", "ours, from disk", None, world)
    with tempfile.TemporaryDirectory() as folder:
        plan.measure(
            case_of("reading", "ours, to disk", None, world),
            plan.bounds(),
            _read_again,
            world,
            Path(folder),
        )
        for _ in range(plan.options.repeats):
            plan.measure(case, plan.bounds(), _read_again, world, Path(folder))


def setup_suite(plan: Plan) -> None:
    """All methods on all constraints, in turns."""
    read_all(plan, plan.world)
    for constraint in MEASURED:
        able = plan.able("setup", constraint, plan.world, _ALL)
        for _, method in plan.turns(able, plan.options.repeats):
            plan.say(f"set-up: {constraint.name}: {method.title}")
            case = case_of("setup", method.key, constraint, plan.world)
            plan.measure(case, plan.bounds(), set_up, method, constraint, plan.world)


def string_scaling(plan: Plan) -> None:
    """10^2 .. 10^6 strings; a method that exceeded its bounds is not tried with more."""
    sizes = (100, 1_000, 10_000) if plan.options.quick else (100, 1_000, 10_000, 100_000, 1_000_000)
    _scaling(plan, "strings", [(size, strings(size)) for size in sizes], _ALL)


def regex_scaling(plan: Plan) -> None:
    """Patterns of RegexPSPACE's shape, or its own where the file was given."""
    file = plan.options.regexpspace
    sizes = [8, 64] if plan.options.quick else [8, 64, 668, 5_000]
    if file is not None:
        sizes = [size for size in sizes if size <= 668]
    sets = [(size, regexes(size, file)) for size in sizes]
    _scaling(plan, "regexes", sets, ("ours", "paper-nco", "llguidance", "xgrammar", "bad-words"))


def _scaling(
    plan: Plan, suite: str, sets: Sequence[tuple[int, ConstraintSet]], methods: Sequence[str]
) -> None:
    rounds = 1 if plan.options.quick else min(3, plan.options.repeats)
    over: dict[str, str] = {}
    for size, constraint in sets:
        able = plan.able(suite, constraint, plan.world, methods, size=size)
        for number, method in plan.turns(able, rounds):
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


def vocabulary_scaling(plan: Plan) -> None:
    """Every tokenizer that was given: the same constraints, and reading the vocabulary."""
    rounds = 1 if plan.options.quick else min(3, plan.options.repeats)
    for world in plan.worlds:
        if world is not plan.world or "setup" not in plan.options.suites:
            read_all(plan, world)
        width = world.vocabulary.width
        for constraint in (SUBSTRINGS, PAPER_PII):
            able = plan.able("vocabularies", constraint, world, _ALL, size=width)
            for number, method in plan.turns(able, rounds):
                if number and method.key == "paper-nco":
                    continue
                plan.say(f"vocabulary of {width:,}: {constraint.name}: {method.title}")
                case = case_of("vocabularies", method.key, constraint, world, size=width)
                plan.measure(case, plan.bounds(), set_up, method, constraint, world)


def revise(plan: Plan) -> None:
    """One string more: by building everything again, and by `Guard.with_rules`."""
    count = 1_000 if plan.options.quick else 10_000
    for way in ("from scratch", "with_rules"):
        case = case_of("revise", way, strings(count), plan.world, size=count)
        for _ in range(plan.options.repeats):
            plan.say(f"one string more than {count:,}: {way}")
            plan.measure(case, plan.bounds(), _revised, plan.world, count, way)


def _revised(world: World, count: int, way: str) -> Samples:
    """Seconds from a guard in use, bound and stepping, to the mask of one that forbids a string more.

    Raises `UnsupportedError` where the new string is not forbidden after all.
    """
    constraint = strings(count)
    guard = Guard(constraint.policy, cache=False)
    session = guard.bind(world.tokenizer).session()
    for token in world.text(50)[:50]:
        if token not in session.forbidden_ids():
            session.advance(token)
    added = StringRule(id="added", strings=("zzqzzq",))

    def revised() -> Guard:
        if way == "with_rules":
            return guard.with_rules(added)
        return Guard(Policy(name="revised", rules=(*constraint.policy.rules, added)), cache=False)

    changed, making = timed(revised)
    bound, binding = timed(lambda: changed.bind(world.tokenizer))
    _, masking = timed(bound.session().forbidden_ids)
    if changed.verify("zzqzzq").ok:
        raise UnsupportedError("the revised guard does not forbid the new string")
    return {
        "revise_s": [making + binding + masking],
        "make_s": [making],
        "bind_s": [binding],
        "first_mask_s": [masking],
    }
