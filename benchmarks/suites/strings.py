"""Suite `strings`: lists from a hundred to a million strings, all methods; ours also with folded and whole words.

Within the suite the masks of large lists are checked by look-ups: in sampled states each piece of the text that a token
would complete is looked for in the set of the strings: the definition for lists, which knows nothing of automata.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.building import build
from benchmarks.harness.plan import Plan, case_of, check_of
from benchmarks.harness.record import Check, Record
from benchmarks.harness.setting_up import ALL, WALKED, scale, scaling, set_up
from benchmarks.inputs.constraints import ConstraintSet, strings
from benchmarks.methods.world import METHODS, World
from nco_guard.policy import StringRule
from nco_guard.session import BoundGuard

__all__ = ["against_look_ups", "measure", "show"]

_STATES = 6
_WALK = 300


def measure(plan: Plan) -> None:
    """10^2 .. 10^6 strings, then what only ours can express, then the check."""
    quick = plan.options.quick
    sizes = (100, 1_000, 10_000) if quick else (100, 1_000, 10_000, 100_000, 1_000_000)
    scale(plan, "strings", [(size, strings(size)) for size in sizes], ALL)
    folded = [strings(1_000 if quick else 100_000, case="fold", whole_word=word) for word in (False, True)]
    for constraint in folded:
        size = 1_000 if quick else 100_000
        case = case_of("strings", "ours", constraint, plan.world, size=size)
        plan.say(f"strings: {constraint.name}: {METHODS['ours'].title}")
        plan.measure(case, plan.bounds(), set_up, METHODS["ours"], constraint, plan.world, 0)
    for size in (1_000,) if quick else (1_000, 1_000_000):
        constraint = strings(size)
        plan.say(f"strings: {constraint.name}: look-ups")
        case = case_of("strings", "look-ups", constraint, plan.world, size=size)
        plan.check(case, against_look_ups, constraint, plan.world)


def show(record: Record) -> str:
    """A row for each method and number."""
    return scaling(record, "strings", WALKED)


def against_look_ups(constraint: ConstraintSet, world: World) -> Check:
    """Masks along prose with beginnings of exact strings strewn in, each token beside look-ups in the set of them.

    Compared are tokens that leave the text well-formed UTF-8.
    """
    listed = [s for rule in constraint.policy.rules if isinstance(rule, StringRule) for s in rule.strings]
    rng = random.Random(3)
    pieces = [
        text[: rng.randint(2, max(2, len(text) - 1))] for text in rng.sample(listed, min(60, len(listed)))
    ]
    bound = build(METHODS["ours"], constraint, world).guard()
    session, written = bound.session(), 0
    ids = world.text_near(pieces, _WALK)
    sampled = set(rng.sample(range(len(ids)), min(_STATES, len(ids))))
    known, lengths = frozenset(listed), sorted(set(map(len, listed)))
    differences = 0
    for at, token in enumerate(ids):
        mask = session.mask()
        if at in sampled:
            differences += _wrong_tokens(bound, mask, session.text, known, lengths) > 0
            written += 1
        if not mask[token]:
            session.advance(token)
    return check_of(constraint, world, "look-ups", written, differences, f"in {written} states along a text")


def _wrong_tokens(
    bound: BoundGuard, mask: NDArray[np.bool_], before: str, known: frozenset[str], lengths: list[int]
) -> int:
    vocabulary, wrong = bound.vocabulary, 0
    for token, data in enumerate(vocabulary.tokens):
        if not data or token in vocabulary.eos_ids or token in vocabulary.unusable_ids:
            continue
        try:
            text = before + data.decode()
        except UnicodeDecodeError:
            continue
        ends = range(len(before) + 1, len(text) + 1)
        found = any(text[max(0, end - length) : end] in known for end in ends for length in lengths)
        wrong += bool(mask[token]) != found
    return wrong
