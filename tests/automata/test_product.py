"""The product of machines does what its members do, one by one."""

from __future__ import annotations

import random

import pytest

from nco_guard.automata import AlternatingMachine, ProductMachine
from nco_guard.automata.patterns.parsing import parse
from nco_guard.errors import PatternError, StateLimitError
from tests.automata import patterns

CHARACTERS = "ab K1-\né\u212a😀"


def members(rng: random.Random) -> list[AlternatingMachine]:
    """The machines of a few random patterns, none of which matches already."""
    found: list[AlternatingMachine] = []
    wanted = rng.randint(1, 5)
    while len(found) < wanted:
        try:
            machine = AlternatingMachine(parse(*patterns.valid_pattern(rng)))
        except (PatternError, StateLimitError):
            continue
        if not machine.doomed(machine.start):
            found.append(machine)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_product_steps_ends_and_matches_as_its_members_do(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        single = members(rng)
        product = ProductMachine(single)
        if rng.random() < 0.5:
            product.explore(rng.choice([1, 4, 100]))
        for _ in range(20):
            state, states = product.start, [m.start for m in single]
            for character in (rng.choice(CHARACTERS) for _ in range(rng.randint(0, 12))):
                reached = product.step(state, product.classes.of_text(character)[0])
                stepped = [
                    m.step(s, m.classes.of_text(character)[0]) for m, s in zip(single, states, strict=True)
                ]
                states = [~s if s < 0 else s for s in stepped]
                doomed = [m.doomed(s) for m, s in zip(single, states, strict=True)]
                completed = [i for i, s in enumerate(stepped) if s < 0 or doomed[i]]
                assert (reached < 0) == bool(completed)
                state = ~reached if reached < 0 else reached
                assert product.completed_by(state) == completed
                assert product.doomed(state) == any(doomed)
                pending = [i for i, (m, s) in enumerate(zip(single, states, strict=True)) if not m.may_end(s)]
                assert product.pending_in(state) == pending
                assert product.may_end(state) == (not pending)
