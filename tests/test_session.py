"""Sessions: one sequence under a guard."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.compiler import compile_policy
from nco_guard.errors import ForbiddenTokenError, GenerationError
from nco_guard.session import BoundGuard, Session
from nco_guard.testing import toy_vocabulary
from tests.masking import random_policies


def bind(
    *rules: StringRule | RegexRule, merges: tuple[str, ...] = ("fu", "ck", "duck", "ass", "ist", " ")
) -> BoundGuard:
    return BoundGuard(compile_policy(Policy(name="test", rules=rules)), toy_vocabulary(merges))


def allowed(session: Session) -> list[int]:
    return [t for t in np.flatnonzero(~session.mask()).tolist() if t not in session._bound.vocabulary.eos_ids]


@pytest.mark.parametrize("seed", range(4))
def test_rollback_is_replay_and_fork_is_a_copy(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        bound = random_policies.bound(rng)
        session = bound.session()
        for _ in range(15):
            choices = allowed(session)
            if not choices:
                break
            session.advance(rng.choice(choices))
        count = len(session.token_ids)
        back = rng.randint(0, count)
        fork = session.fork()
        fork.rollback(back)
        replay = bound.session()
        for token in session.token_ids[: count - back]:
            replay.advance(token)
        assert fork.token_ids == replay.token_ids
        assert np.array_equal(fork.mask(), replay.mask())
        assert np.array_equal(fork.penalties(), replay.penalties())
        assert fork.may_end == replay.may_end
        assert len(session.token_ids) == count


def test_a_forbidden_token_is_refused_by_rule_and_the_session_stays() -> None:
    bound = bind(StringRule(id="bad", strings=("fuck",)))
    vocabulary = bound.vocabulary
    fu, ck = vocabulary.tokens.index(b"fu"), vocabulary.tokens.index(b"ck")
    session = bound.session()
    session.advance(fu)
    assert session.mask()[ck]
    assert ck in session.forbidden_ids()
    with pytest.raises(ForbiddenTokenError, match="bad"):
        session.advance(ck)
    assert session.text == "fu"
    with pytest.raises(ForbiddenTokenError, match="outside"):
        session.advance(vocabulary.width)


def test_the_text_may_not_end_while_the_end_would_complete_a_match() -> None:
    bound = bind(RegexRule(id="word", regex=r"\bass\b"))
    tokens = bound.vocabulary.tokens
    session = bound.session()
    session.advance(tokens.index(b"ass"))
    assert not session.may_end
    eos = bound.vocabulary.eos_ids[0]
    assert session.mask()[eos]
    assert session.mask()[tokens.index(b" ")]
    assert not session.mask()[tokens.index(b"ist")]
    session.advance(tokens.index(b"ist"))
    assert session.may_end
    session.advance(eos)
    assert session.ended
    with pytest.raises(GenerationError, match="ended"):
        session.advance(eos)
    assert session.text == "assist"


def test_with_one_token_left_the_text_must_be_able_to_end() -> None:
    bound = bind(RegexRule(id="word", regex=r"\bass\b"))
    ass = bound.vocabulary.tokens.index(b"ass")
    session = bound.session()
    assert not session.mask()[ass]
    assert session.mask(remaining=0)[ass]
    assert not session.mask(remaining=1)[ass]


def test_a_rule_that_reads_the_prompt_continues_it() -> None:
    rules = [RegexRule(id="mail", regex=r"\w+@\w+\.com", context=c) for c in ("output", "prompt")]
    for rule, expected in zip(rules, (False, True), strict=True):
        bound = bind(rule, merges=(".com", "enron"))
        token = bound.vocabulary.tokens.index(b".com")
        assert bound.session(context="john@enron").mask()[token] == expected
        ids = [bound.vocabulary.tokens.index(bytes([b])) for b in b"john@"] + [
            bound.vocabulary.tokens.index(b"enron")
        ]
        assert bound.session(context=ids).mask()[token] == expected
        assert not bound.session().mask()[token]


def test_a_match_within_the_prompt_does_not_count() -> None:
    bound = bind(StringRule(id="bad", strings=("duck",), context="prompt"))
    session = bound.session(context="a duck and a du")
    assert session.mask()[bound.vocabulary.tokens.index(b"ck")]
    assert not session.mask()[bound.vocabulary.tokens.index(b"fu")]


def test_soft_rules_subtract_once_per_rule_and_go_on_watching() -> None:
    rules = (
        StringRule(id="a", strings=("uc", "ck"), penalty=2.0),
        StringRule(id="b", strings=("duck",), penalty=0.5),
    )
    bound = bind(*rules)
    duck, ck = bound.vocabulary.tokens.index(b"duck"), bound.vocabulary.tokens.index(b"ck")
    session = bound.session()
    for _ in range(3):
        assert session.penalties()[duck] == np.float32(2.5)
        assert session.penalties()[ck] == np.float32(2.0)
        session.advance(duck)


def test_monitored_rules_touch_nothing() -> None:
    bound = bind(StringRule(id="seen", strings=("duck",), monitor=True))
    session = bound.session()
    assert (
        session.forbidden_ids().tolist()
        == bind(StringRule(id="other", strings=("zzzz",))).session().forbidden_ids().tolist()
    )
    assert not session.penalties().any()
    duck = bound.vocabulary.tokens.index(b"duck")
    assert bound.tables.rules_completing(bound.tables.start, duck) == ("seen",)


def test_rollback_refuses_more_tokens_than_there_are() -> None:
    session = bind(StringRule(id="bad", strings=("x",))).session()
    with pytest.raises(ValueError, match="between 0 and 0"):
        session.rollback(1)
    session.advance(ord("a"))
    with pytest.raises(ValueError, match="between 0 and 1"):
        session.rollback(-1)
    assert session.text == "a"
    session.rollback(1)
    assert session.text == ""
