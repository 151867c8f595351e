"""No text breaks an accepted policy: at a limit what was found is forgotten, and others never notice."""

from __future__ import annotations

import random
import re

import pytest

from nco_guard import Guard
from nco_guard.automata import AlternatingMachine, automaton
from nco_guard.compiler import compile_policy
from nco_guard.errors import StateLimitError
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.session import BoundGuard, Session
from nco_guard.testing import toy_vocabulary

GROWING = RegexRule(id="growing", regex=r"a.{12}b")
IBAN = RegexRule(id="iban", regex=r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]){4,10}", checksum="mod97")
WORDS = StringRule(id="words", strings=("weather",))


def bound_to(*rules: RegexRule | StringRule) -> BoundGuard:
    return BoundGuard(
        compile_policy(Policy(name="limits", rules=rules)), toy_vocabulary(["aa", "ca", "AB", "12"])
    )


def wander(session: Session, letters: bytes, tokens: int, seed: int = 0) -> None:
    """A random text, under masks that are looked at in every step."""
    rng = random.Random(seed)
    for _ in range(tokens):
        forbidden = set(session.forbidden_ids().tolist())
        session.advance(rng.choice([byte for byte in letters if byte not in forbidden]))


@pytest.mark.parametrize(
    ("rule", "letters", "tokens"), [(GROWING, b"aacc", 900), (IBAN, b"ABCDE0123456789", 150)]
)
def test_at_the_limit_of_an_automaton_what_was_found_is_forgotten(
    rule: RegexRule, letters: bytes, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = bound_to(rule, WORDS).session()
    wander(free, letters, tokens)
    found = free._text.bound.stats["automaton_states"]
    monkeypatch.setattr(automaton, "_STATE_LIMIT", found // 2)
    bound = bound_to(rule, WORDS)
    first, session = bound.tables, bound.session()
    wander(session, letters, tokens)
    assert bound.tables is not first
    assert bound.limits_met
    assert session.token_ids == free.token_ids
    assert session.forbidden_ids().tolist() == free.forbidden_ids().tolist()


def test_a_text_that_is_too_much_alone_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "_STATE_LIMIT", 400)
    bound = bound_to(GROWING, WORDS)
    heavy, innocent = bound.session(), bound.session()
    wander(innocent, b"xyz", 5)
    with pytest.raises(StateLimitError, match="growing") as caught:
        wander(heavy, b"aacc", 900)
    assert caught.value.rule_id == "growing"
    assert len(heavy.token_ids) > 50
    for _ in range(3):
        with pytest.raises(StateLimitError):
            heavy.forbidden_ids()
        # The guard is whole for others, and so is this session further back.
        wander(innocent, b"xyz", 5)
        wander(bound.session(), b"the quick fox.", 30)
    heavy.rollback(len(heavy.token_ids) - 10)
    wander(heavy, b"xyz", 10)


def test_what_automata_hold_counts_against_the_memory_limit() -> None:
    compiled = compile_policy(Policy(name="limits", rules=(GROWING,)))
    vocabulary = toy_vocabulary(["aa", "ca"])
    free = BoundGuard(compiled, vocabulary)
    bound = BoundGuard(compiled, vocabulary, memory_limit=4 << 20)
    for seed in range(12):
        wander(free.session(), b"aacc", 150, seed)
        wander(bound.session(), b"aacc", 150, seed)
        assert bound.stats["table_bytes"] < 6 << 20
    assert free.stats["table_bytes"] > 6 << 20


@pytest.fixture
def small_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AlternatingMachine.__init__.__kwdefaults__, "state_limit", 1500)


@pytest.mark.usefixtures("small_machines")
def test_the_verifier_reads_on_whatever_it_has_read_before() -> None:
    guard = Guard(Policy(name="limits", rules=(GROWING, WORDS)))
    rng = random.Random(0)
    for length in (700, 700, 700, 2500, 40):
        text = "".join(rng.choices("aac", k=length)) + "b, weather"
        expected = [match.span() for match in re.finditer(r"a.{12}b|weather", text)]
        assert [(f.start, f.end) for f in guard.verify(text).findings] == expected
        stream = guard.verifier.stream(piece=200)
        found = [*stream.feed(text[:300]), *stream.feed(text[300:]), *stream.finish()]
        assert sorted((f.start, f.end) for f in found) == expected
