"""The fast masks are the definition, bit for bit; states follow from the text alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nco_guard.compiler import compile_policy
from nco_guard.masking import ENDED, VIOLATED, JointTables, bruteforce
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary
from tests.masking import random_policies


def walk(seed: int, policies: int, steps: int) -> int:
    """Random policies, vocabularies and walks; returns how many single mask entries were compared."""
    rng = random.Random(seed)
    compared = 0
    for _ in range(policies):
        bound = random_policies.bound(rng)
        tables, vocabulary = bound.tables, bound.vocabulary
        context = "".join(rng.choice(random_policies.LETTERS) for _ in range(rng.randint(0, 3))).encode()
        state = tables.start_after(context)
        known: dict[tuple[tuple[int, ...], int], bool] = {}
        for _ in range(steps):
            states = tables.components(state)
            expected = bruteforce.forbidden(tables.constraints, states, vocabulary, known=known)
            forbidden = tables.forbidden(state)
            assert np.flatnonzero(expected).tolist() == forbidden.tolist(), (bound.policy.to_json(), seed)
            ids, amounts = tables.penalties(state)
            dense = np.zeros(vocabulary.width, np.float32)
            dense[ids] = amounts
            assert np.array_equal(dense, bruteforce.penalties(tables.constraints, states, vocabulary))
            compared += 2 * vocabulary.width
            allowed = np.flatnonzero(~expected)
            if not len(allowed):
                break
            token = int(rng.choice(allowed.tolist()))
            following = tables.next(state, token)
            if token in vocabulary.eos_ids:
                assert following == ENDED
                following = tables.start
            else:
                fed = [
                    bruteforce.feed(c, s, vocabulary.tokens[token])[0]
                    for c, s in zip(tables.constraints, states, strict=True)
                ]
                assert list(tables.components(following)) == fed
            for token in np.flatnonzero(expected)[:5].tolist():
                assert tables.next(state, token) == VIOLATED
            state = following
    return compared


@pytest.mark.parametrize("seed", range(5))
def test_masks_and_transitions_equal_the_definition(seed: int) -> None:
    assert walk(seed, policies=25, steps=12) > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_masks_and_transitions_equal_the_definition_at_length(seed: int) -> None:
    assert walk(seed, policies=250, steps=25) > 500_000


@pytest.mark.parametrize("seed", range(3))
def test_near_the_limit_exactly_the_tokens_that_could_not_end_in_time_are_withheld(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(15):
        bound = random_policies.bound(rng, small=True)
        tables, vocabulary = bound.tables, bound.vocabulary
        known: dict[tuple[tuple[int, ...], int], bool] = {}
        state = tables.start
        for _ in range(4):
            states = tables.components(state)
            for left in (0, 1, 2, 5):
                expected = bruteforce.forbidden(tables.constraints, states, vocabulary, left, known)
                found = tables.forbidden(state, left)
                assert found.tolist() == np.flatnonzero(expected).tolist(), (bound.policy.to_json(), left)
            forbidden = {*tables.forbidden(state).tolist(), *vocabulary.eos_ids}
            allowed = sorted(set(range(vocabulary.width)) - forbidden)
            if not allowed:
                break
            state = tables.next(state, rng.choice(allowed))


@pytest.mark.parametrize("seed", range(3))
def test_whoever_keeps_to_the_masks_meets_no_dead_end(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        bound = random_policies.bound(rng, small=True)
        session = bound.session()
        if not bruteforce.ends_well(bound.tables.constraints, bound.tables.components(bound.tables.start),
                                    bound.vocabulary, bruteforce.HORIZON):  # fmt: skip
            continue
        for _ in range(30):
            allowed = np.flatnonzero(~session.mask()).tolist()
            assert allowed, bound.policy.to_json()
            session.advance(rng.choice(allowed))
            if session.ended:
                break


def test_rules_that_leave_no_common_way_on_are_looked_ahead_for() -> None:
    """After "ass" the text may not end; if every letter is forbidden after it too, "ass" itself is."""
    rules = (
        RegexRule(id="word", regex=r"\bass\b"),
        RegexRule(id="longer", regex=r"ass\w"),
    )
    bound = BoundGuard(compile_policy(Policy(name="corner", rules=rules)), toy_vocabulary(["as", "ass", "s"]))
    tables, tokens = bound.tables, bound.vocabulary.tokens
    assert tokens.index(b"ass") in tables.forbidden(tables.start)
    after = tables.next(tables.start, tokens.index(b"as"))
    assert tokens.index(b"s") in tables.forbidden(after)
    assert tables.rules_at_fault(after, tokens.index(b"s")) == ("word",)
    assert tokens.index(b"as") not in tables.forbidden(tables.start)


@pytest.mark.parametrize("seed", range(3))
def test_rules_named_for_a_token_are_those_whose_match_it_completes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        tables = random_policies.bound(rng).tables
        state = tables.start
        hard = {rule for c in tables.constraints if c.hard for rule in c.rule_ids}
        for token in range(tables.vocabulary.width):
            named = set(random_policies.rules_completing(tables, state, token))
            masked = token in tables.forbidden(state) and token not in tables.vocabulary.unusable_ids
            assert masked or not named & hard
            if masked and not named & hard:  # no match completes; but the text could never end
                assert set(tables.rules_at_fault(state, token)) & hard


def test_full_tables_are_replaced_and_the_text_is_replayed() -> None:
    rng = random.Random(7)
    strings = tuple({"".join(rng.choice("ab") for _ in range(16)) for _ in range(300)})
    compiled = compile_policy(Policy(name="many", rules=(StringRule(id="s", strings=strings),)))
    bound = BoundGuard(compiled, toy_vocabulary(["a", "b", "ab", "ba"]))
    bound._memory_limit = bound.tables.memory_limit = 1  # checked now and then; refused where it is given
    first = bound.tables
    letters = [bound.vocabulary.tokens.index(t) for t in (b"a", b"b", b"ab", b"ba")]
    sessions = [bound.session() for _ in range(12)]
    for _ in range(60):
        for session in sessions:
            forbidden = session.forbidden_ids()
            session.advance(rng.choice([t for t in letters if t not in forbidden]))
    assert bound.tables is not first
    for session in sessions:
        fresh = BoundGuard(compiled, bound.vocabulary).session()
        for token in session.token_ids:
            fresh.advance(token)
        assert fresh.forbidden_ids().tolist() == session.forbidden_ids().tolist()
        session.rollback(20)
        assert session.text == fresh.text[: len(session.text)]


def test_fresh_tables_forget_what_texts_led_to() -> None:
    """Else what replaces full tables would be full itself before long."""
    rules = (
        StringRule(id="word", strings=("ass", "shit"), whole_word=True),
        RegexRule(id="n", regex=r"\b\d{3}\b"),
    )
    bound = BoundGuard(compile_policy(Policy(name="p", rules=rules)), toy_vocabulary(["as", "hit"]))
    tables = bound.tables
    at_first = tables._together.nbytes
    rng, state = random.Random(0), tables.start
    for _ in range(200):
        tables.forbidden(state)
        state = max(tables.next(state, rng.randrange(tables.vocabulary.width)), tables.start)
    walked = tables._together.nbytes
    again = JointTables(tables.constraints, tables.vocabulary, tables._tree, like=tables, forget=True)
    assert again._together.nbytes <= at_first < walked
