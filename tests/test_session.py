"""Sessions: one sequence under a guard."""

from __future__ import annotations

import pickle
import random
import sys
import threading
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.compiler import compile_policy
from nco_guard.errors import ArgumentError, ForbiddenTokenError, GenerationError, PolicyError
from nco_guard.session import BoundGuard, Session
from nco_guard.testing import toy_vocabulary
from tests.binding import bind as bind_bytes
from tests.masking import random_policies

bind = partial(bind_bytes, merges=("fu", "ck", "duck", "ass", "ist", " "))


def allowed(session: Session) -> list[int]:
    return [
        t for t in np.flatnonzero(~session.mask()).tolist() if t not in session._text.bound.vocabulary.eos_ids
    ]


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
    assert random_policies.rules_completing(bound.tables, bound.tables.start, duck) == ("seen",)


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


class _Float(float):
    def __int__(self) -> int:  # pragma: no cover - it must not be asked
        raise AssertionError("a float is no token id")


@pytest.mark.parametrize("wrong", [2.0, _Float(2), None, "2", True, np.bool_(True), [2], b"2"])
def test_what_is_no_token_id_is_refused_and_the_session_stays(wrong: object) -> None:
    session = bind(StringRule(id="bad", strings=("x",))).session()
    for call in (session.advance, session.explain, session.rollback):
        if call == session.explain and wrong is None:
            continue  # all tokens
        with pytest.raises(ArgumentError, match=r"(token_id|n): .*; give"):
            call(wrong)  # type: ignore[operator]
    if wrong is not None:
        with pytest.raises(ArgumentError, match=r"remaining: .*or None"):
            session.mask(wrong)  # type: ignore[arg-type]
    assert session.token_ids == ()


def test_whole_numbers_of_other_libraries_are_token_ids() -> None:
    session = bind(StringRule(id="bad", strings=("x",))).session()
    for number in (97, np.int32(98), np.uint8(99), np.array(100)):
        session.advance(number)  # type: ignore[arg-type]
    assert session.text == "abcd"
    assert [type(token) for token in session.token_ids] == [int] * 4
    with pytest.raises(ForbiddenTokenError, match="outside"):
        session.advance(-1)
    with pytest.raises(ValueError, match="0 or more"):
        session.forbidden_ids(-1)


def test_a_memory_limit_that_fresh_tables_nearly_meet_is_refused() -> None:
    compiled = compile_policy(Policy(name="p", rules=(RegexRule(id="r", regex=r"\w+@\w+\.com"),)))
    held = BoundGuard(compiled, toy_vocabulary()).tables.nbytes
    with pytest.raises(PolicyError, match=r"memory_limit.*at least"):
        BoundGuard(compiled, toy_vocabulary(), memory_limit=held + 1)
    bound = BoundGuard(compiled, toy_vocabulary(), memory_limit=4 * held)
    assert not bound.tables.full


def looks_of(session: Session, tokens: list[int]) -> Iterator[tuple[bytes, bytes, bool, bool]]:
    """Everything that can be asked about each beginning of a text."""
    for token in [*tokens, None]:
        assert session.fork().token_ids == session.token_ids
        yield session.mask().tobytes(), session.penalties().tobytes(), session.may_end, session.dead_end
        if token is not None:
            session.advance(token)


def test_threads_that_meet_the_limit_all_the_time_each_keep_to_their_own_text() -> None:
    """Tables are replaced between any two steps; what is asked of a session is about one text and one table."""
    rules = (
        StringRule(id="words", strings=("duck", "assist")),
        RegexRule(id="end", regex=r"\bass\b"),
        StringRule(id="soft", strings=("us",), penalty=2.0),
    )
    oracle, shared = bind(*rules), bind(*rules)
    shared._memory_limit = shared._tables.memory_limit = int(1.02 * shared.tables.nbytes)
    rng = random.Random(5)
    texts: list[list[int]] = []
    for _ in range(16):
        session = oracle.session()
        for _ in range(14):
            session.advance(rng.choice(allowed(session)))
        texts.append(list(session.token_ids))
    expected = [list(looks_of(oracle.session(), text)) for text in texts]
    failures: list[object] = []
    seen: dict[int, object] = {}  # held, so that no other has its id

    def write(number: int) -> None:
        try:
            for text, right in zip(texts[number::8], expected[number::8], strict=True):
                session = shared.session()
                for place, found in enumerate(looks_of(session, text)):
                    seen[id(session._text._tables)] = session._text._tables
                    if found != right[place]:
                        failures.append(
                            (number, place, [a == b for a, b in zip(found, right[place], strict=True)])
                        )
        except BaseException as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures, failures[:3]
    assert len(seen) > 3, "tables were replaced"


@pytest.mark.parametrize("wrong", [3, [None], [1.5], b"abc"])
def test_a_context_that_is_neither_text_nor_token_ids_is_refused(wrong: object) -> None:
    with pytest.raises(ArgumentError, match=r"context: .*give the prompt as text"):
        bind(StringRule(id="bad", strings=("x",))).session(wrong)  # type: ignore[arg-type]


def test_under_another_guard_its_rules_see_the_prompt_that_nobody_had_looked_at() -> None:
    plain = bind(StringRule(id="other", strings=("zebra",)))
    reading = bind(RegexRule(id="word", regex="foobar", context="prompt"))
    for prompt in ("so foo", list(b"so foo")):
        session = plain.session(prompt)
        for text in (b"", b"ba"):
            for token in text:
                session.advance(token)
            expected = reading.session(prompt)
            for token in text:
                expected.advance(token)
            assert session.with_guard(reading).forbidden_ids().tolist() == expected.forbidden_ids().tolist()
        assert session.with_guard(reading).mask()[ord("r")]
        assert pickle.loads(pickle.dumps(session)).with_guard(reading).mask()[ord("r")]
