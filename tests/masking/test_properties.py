"""Properties for Hypothesis to break: it draws the policy, the vocabulary and the walk, and shrinks what fails."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nco_guard.masking import bruteforce
from tests.masking import random_policies

bounded = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@bounded
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 10_000), max_size=8))
def test_a_mask_is_the_definition_wherever_a_walk_leads(rng: random.Random, choices: list[int]) -> None:
    bound = random_policies.bound(rng, small=True)
    tables, vocabulary = bound.tables, bound.vocabulary
    state, known = tables.start, {}
    for choice in [*choices, 0]:
        expected = bruteforce.forbidden(tables.constraints, tables.components(state), vocabulary, known=known)
        assert tables.forbidden(state).tolist() == np.flatnonzero(expected).tolist()
        allowed = [t for t in np.flatnonzero(~expected).tolist() if t not in vocabulary.eos_ids]
        if not allowed:
            break
        state = tables.next(state, allowed[choice % len(allowed)])


@bounded
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 10_000), max_size=8), st.integers(0, 8))
def test_going_back_is_starting_over(rng: random.Random, choices: list[int], back: int) -> None:
    bound = random_policies.bound(rng, small=True)
    session = bound.session()
    for choice in choices:
        allowed = np.flatnonzero(~session.mask()).tolist()
        if not allowed or session.ended:
            break
        session.advance(allowed[choice % len(allowed)])
    back = min(back, len(session.token_ids))
    fork = session.fork()
    fork.rollback(back)
    replay = bound.session()
    for token in session.token_ids[: len(session.token_ids) - back]:
        replay.advance(token)
    assert fork.mask().tolist() == replay.mask().tolist()
    assert fork.penalties().tolist() == replay.penalties().tolist()
    assert (fork.text, fork.may_end) == (replay.text, replay.may_end)
