"""Guards that change: what is new is built, the rest is shared, and both mean what a guard made afresh means."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

from nco_guard import Guard
from nco_guard.demo import load
from nco_guard.errors import ForbiddenTokenError, PolicyError, TokenizerError
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.testing import tiny_tokenizer
from tests.masking import random_policies


def same_masks(rng: random.Random, ours: BoundGuard, afresh: BoundGuard) -> None:
    """A random walk shows equal masks."""
    one, other = ours.session("ab"), afresh.session("ab")
    for _ in range(12):
        forbidden = one.forbidden_ids()
        assert forbidden.tolist() == other.forbidden_ids().tolist()
        assert one.may_end == other.may_end
        allowed = sorted(
            set(range(ours.vocabulary.width)) - set(forbidden.tolist()) - {*ours.vocabulary.eos_ids}
        )
        if not allowed:
            break
        token = rng.choice(allowed)
        one.advance(token)
        other.advance(token)


@pytest.mark.parametrize("seed", range(4))
def test_rules_may_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    tokenizer = tiny_tokenizer(rng.choice(["byte-level", "byte-fallback", "wordpiece"]))
    guard = Guard(Policy(name="first", rules=(StringRule(id="s", strings=("fuck", "ass")),)))
    guard.bind(tokenizer).session().forbidden_ids()
    for step in range(12):
        ids = [rule.id for rule in guard.policy.rules]
        if len(ids) > 1 and rng.random() < 0.35:
            guard = guard.without(rng.choice(ids))
        else:
            try:
                guard = guard.with_rules(random_policies.rule(rng, f"r{step}"))
            except PolicyError:
                continue  # no pattern that can be enforced
        if rng.random() < 0.7:
            same_masks(rng, guard.bind(tokenizer), Guard(guard.policy).bind(tokenizer))


def test_what_is_known_of_rules_that_stay_is_shared() -> None:
    tokenizer = tiny_tokenizer("byte-level")
    guard = Guard.from_presets("pii")
    before = guard.bind(tokenizer).tables
    after = guard.with_rules(StringRule(id="new", strings=("codeword",))).bind(tokenizer).tables
    assert set(map(id, before.tables)) < set(map(id, after.tables))
    assert len(after.tables) == len(before.tables) + 1
    assert guard.bind(tokenizer).tables is before
    less = guard.without(guard.policy.rules[0].id).bind(tokenizer).tables
    assert set(map(id, less.tables)) < set(map(id, before.tables))


def test_a_guard_made_from_an_unbound_one_still_finds_what_its_elders_know() -> None:
    tokenizer = tiny_tokenizer("byte-level")
    guard = Guard.from_presets("pii")
    known = guard.bind(tokenizer).tables.tables
    grandchild = guard.with_rules(StringRule(id="a", strings=("aa",))).with_rules(
        StringRule(id="b", strings=("bb",))
    )
    assert set(map(id, known)) < set(map(id, grandchild.bind(tokenizer).tables.tables))


def test_another_tokenizer_in_the_place_of_a_lost_one_is_read_anew() -> None:
    guard = Guard(Policy(name="p", rules=(StringRule(id="s", strings=("fuck",)),)))
    tokenizer = tiny_tokenizer("byte-level")
    guard.bind(tokenizer)
    wider = guard.with_rules(StringRule(id="t", strings=("ass",)))
    del tokenizer
    gc.collect()
    for family in ("byte-fallback", "byte-level", "wordpiece"):
        other = tiny_tokenizer(family)
        assert wider.bind(other).vocabulary.digest == Guard(wider.policy).bind(other).vocabulary.digest


def test_a_session_goes_on_under_another_guard() -> None:
    tokenizer = tiny_tokenizer("byte-level")
    guard = Guard(Policy(name="p", rules=(StringRule(id="s", strings=("fuck",)),)))
    bound = guard.bind(tokenizer)
    session = bound.session()
    for token in tokenizer("what the as").input_ids:
        session.advance(token)
    stricter = guard.with_rules(StringRule(id="t", strings=("ass",))).bind(tokenizer)
    moved = session.with_guard(stricter)
    assert moved.token_ids == session.token_ids
    (letter,) = tokenizer("s").input_ids
    assert moved.mask()[letter]
    assert not session.mask()[letter]
    session.advance(letter)
    with pytest.raises(ForbiddenTokenError, match=r"t$"):
        session.with_guard(stricter)
    with pytest.raises(TokenizerError, match="another vocabulary"):
        session.with_guard(guard.bind(tiny_tokenizer("byte-fallback")))


def test_a_policy_for_one_request() -> None:
    """The guard of an application, and a word more for one of its users."""
    model, tokenizer = load()
    guard = Guard.from_presets("pii")
    prompt = "The capital of"
    usual = guard.generate(model, tokenizer, prompt, max_new_tokens=12)
    word = usual.texts[0].split()[0]
    stricter = guard.with_rules(StringRule(id="user", strings=(word,)))
    assert word not in stricter.generate(model, tokenizer, prompt, max_new_tokens=12).texts[0]
    assert guard.generate(model, tokenizer, prompt, max_new_tokens=12).texts == usual.texts


def test_changes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    guard = Guard(Policy(name="p", rules=(StringRule(id="s", strings=("fuck",)),)), cache=tmp_path)
    with pytest.raises(PolicyError, match="same id"):
        guard.with_rules(StringRule(id="s", strings=("other",)))
    with pytest.raises(PolicyError, match="no rule of this name, known: s"):
        guard.without("t")
    with pytest.raises(PolicyError, match="without rules"):
        guard.without("s")
    with pytest.raises(PolicyError, match="r"):
        guard.with_rules(RegexRule(id="r", regex="a*"))
    assert [rule.id for rule in guard.policy.rules] == ["s"]
