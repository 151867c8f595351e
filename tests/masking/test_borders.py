"""Text that is cut at borders: the definition is `re` on each part and on all parts joined.

First the automata against it, byte by byte; then masks against `bruteforce`, and random walks through masks against
the definition.
"""

from __future__ import annotations

import operator
import random
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nco_guard.automata import BORDER, BorderedAutomaton
from nco_guard.compiler import UTF8_RULE, compile_policy
from nco_guard.errors import PolicyError, StateLimitError, TokenizerError
from nco_guard.masking import ENDED, VIOLATED, bruteforce
from nco_guard.masking.enumeration import byte_automaton, first_states, token_table
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.scan import verify
from nco_guard.scan.definition import verify_by_definition
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary, shared_tree
from tests.automata import patterns
from tests.masking import random_policies

bounded = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def cut(vocabulary: Vocabulary, *, text: bool = False) -> Vocabulary:
    """Some of its special tokens as borders, its end of the text among them; `text`: and a token with text."""
    ids = [token for token in vocabulary.special_ids if token not in vocabulary.unusable_ids]
    never = {*vocabulary.eos_ids, *vocabulary.unusable_ids}
    words = [i for i, token in enumerate(vocabulary.tokens) if token and i not in never]
    if text and words:
        ids.append(words[-1])
    return vocabulary.with_borders({token: b"<|%d|>" % token for token in ids})


def bound(rng: random.Random) -> BoundGuard:
    """A random policy over a random vocabulary with borders."""
    while True:
        vocabulary = random_policies.vocabulary(rng, small=True)
        if vocabulary.rewriting is None:
            break
    return BoundGuard(compile_policy(random_policies.policy(rng)), cut(vocabulary, text=rng.random() < 0.3))


def found(pattern: str, parts: list[str]) -> bool:
    """The definition."""
    return any(re.search(pattern, text) for text in [*parts, "".join(parts)])


@pytest.mark.parametrize("seed", range(150))
def test_an_automaton_finds_what_re_finds_in_any_part_or_in_all_joined(seed: int) -> None:
    rng = random.Random(seed)
    pattern, _ = patterns.valid_pattern(rng, 3)
    rule = RegexRule(id="r", regex=pattern, monitor=True)
    try:
        (constraint,) = compile_policy(Policy(name="p", rules=(rule,))).constraints(borders=True)[1:]
    except PolicyError:
        pytest.skip("a pattern that matches the empty text")
    automaton = constraint.automaton
    assert isinstance(automaton, BorderedAutomaton)
    for _ in range(60):
        parts = [random_policies.string(rng) if rng.random() < 0.8 else "" for _ in range(rng.randint(1, 4))]
        raw = bytes([BORDER]).join(part.encode() for part in parts)
        state, matched = automaton.start, False
        several = np.array([automaton.start], np.int32)
        for byte in raw:
            state = automaton.step(state, byte)
            several = automaton.step_many(several, np.array([byte], np.uint8))
            assert several.tolist() == [state]
            matched |= state < 0
            state = ~state if state < 0 else state
            several = np.array([state], np.int32)
        assert (matched or not automaton.may_end(state)) == found(pattern, parts), parts
        assert automaton.may_end_many(several).tolist() == [automaton.may_end(state)]
        read = automaton.read(automaton.start, raw)
        assert (read < 0) == matched
        assert matched or read == state


@bounded
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 10_000), max_size=8))
def test_a_mask_is_the_definition_wherever_a_walk_leads(rng: random.Random, choices: list[int]) -> None:
    guard = bound(rng)
    tables, vocabulary = guard.tables, guard.vocabulary
    state, known = tables.start, {}
    for choice in [*choices, 0]:
        expected = bruteforce.forbidden(tables.constraints, tables.components(state), vocabulary, known=known)
        assert tables.forbidden(state).tolist() == np.flatnonzero(expected).tolist()
        penalties = bruteforce.penalties(tables.constraints, tables.components(state), vocabulary)
        assert guard_penalties(guard, state) == penalties.tolist()
        allowed = [t for t in np.flatnonzero(~expected).tolist() if t not in vocabulary.eos_ids]
        if not allowed:
            break
        cuts = [token for token in allowed if token in vocabulary.borders]
        several = cuts if cuts and choice % 3 == 0 else allowed
        state = tables.next(state, several[choice % len(several)])


def guard_penalties(guard: BoundGuard, state: int) -> list[float]:
    amounts = np.zeros(guard.vocabulary.width, np.float32)
    ids, values = guard.tables.penalties(state)
    amounts[ids] = values
    return amounts.tolist()


@bounded
@given(st.randoms(use_true_random=False))
def test_what_masks_allow_keeps_the_policy_in_every_part_and_in_all_joined(rng: random.Random) -> None:
    guard = bound(rng)
    vocabulary, policy = guard.vocabulary, guard.policy
    for _ in range(4):
        prompt = random_policies.string(rng) if rng.random() < 0.5 else ""
        session = guard.session(prompt)
        for _ in range(10):
            mask = session.mask()
            allowed = [t for t in np.flatnonzero(~mask).tolist() if t not in vocabulary.eos_ids]
            if not allowed:
                break
            cuts = [token for token in allowed if token in vocabulary.borders]
            session.advance(rng.choice(cuts if cuts and rng.random() < 0.3 else allowed))
            parts = vocabulary.parts_of(session.token_ids)
            if any("\ufffd" in part for part in parts):
                continue  # within a character
            # A first space that the text loses stands between it and the prompt.
            first = vocabulary.raw_bytes(session.token_ids)[:1]
            before = prompt + (" " if prompt and vocabulary.strips_first_space and first == b" " else "")
            texts = [(parts[0], before), *((part, "") for part in parts[1:]), ("".join(parts), before)]
            reports = [verify_by_definition(policy, text, context=context) for text, context in texts]
            assert session.may_end == all(report.ok for report in reports)
            assert session.may_end == verify(policy, parts=parts, context=before).ok


@bounded
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 10_000), max_size=8))
def test_all_states_at_once_are_those_that_a_text_meets(rng: random.Random, choices: list[int]) -> None:
    guard = bound(rng)
    tables, vocabulary = guard.tables, guard.vocabulary
    constraints = compile_policy(guard.policy).constraints(borders=True)
    try:
        automaton = byte_automaton(constraints, first_states(constraints, vocabulary), max_states=4000)
        table = token_table(automaton, vocabulary, shared_tree(vocabulary))
    except StateLimitError:
        return
    state, there = tables.start, 0
    for choice in [*choices, 0]:
        row = table.masks[table.mask_of[-1, there]]
        if not guard.limits_met:
            mask = np.flatnonzero(row[table.token_class[:-1]]).tolist()
            assert set(mask) <= set(tables.forbidden(state).tolist())
        allowed = np.setdiff1d(np.arange(vocabulary.width), tables.forbidden(state)).tolist()
        allowed = [token for token in allowed if token not in vocabulary.eos_ids]
        if not allowed:
            break
        token = allowed[choice % len(allowed)]
        state, there = tables.next(state, token), int(table.following[there, table.token_class[token]])
        assert state >= 0
        assert there >= 0
        assert tables.may_end(state) == table.may_end[there]


def tiny(*rules: Rule, tokens: tuple[bytes, ...] = ()) -> BoundGuard:
    """Tokens 0 and 1 are borders, 2 ends the text."""
    words = tokens or (b"ass", b"ume", b" ", b"u", b"me", b"<|x|>")
    vocabulary = Vocabulary.build([b"", b"", b"", *words], eos_ids=[2], special_ids=[0, 1, 2])
    cutting = vocabulary.with_borders({0: b"<|x|>", 1: b"<|y|>", 2: b"<|end|>"})
    return BoundGuard(compile_policy(Policy(name="tiny", rules=rules)), cutting)


WORD = RegexRule(id="word", regex=r"\bass\b")
PLAIN = StringRule(id="plain", strings=("assume",))


def test_a_border_is_forbidden_where_the_part_may_not_end() -> None:
    guard = tiny(WORD)
    session = guard.session()
    session.advance(3)
    assert session.mask()[[0, 1, 2]].all()
    assert guard.tables.rules_at_fault(guard.tables.next(guard.tables.start, 3), 0) == ("word",)
    session.advance(4)
    assert not session.mask()[[0, 1, 2]].any()


def test_what_is_found_in_one_reading_only_is_never_written() -> None:
    guard = tiny(PLAIN)
    session = guard.session()
    for token in (3, 0, 6):
        session.advance(token)
    assert session.text == "ass<|x|>u"
    assert session.mask()[7]  # joined it would read "assume"
    joined, alone = tiny(RegexRule(id="start", regex=r"^ume")), tiny(RegexRule(id="end", regex=r"ass$"))
    session = joined.session()
    for token in (3, 1):
        session.advance(token)
    assert session.mask()[4]  # a text of its own would begin with "ume"
    session = alone.session()
    session.advance(3)
    assert session.mask()[0]


def test_a_prompt_has_no_borders_and_the_first_part_continues_it() -> None:
    guard = tiny(RegexRule(id="r", regex=r"\bass ", context="prompt"))
    for prompt in ([3, 0], "ass"):
        session = guard.session(prompt)
        assert session.mask()[5]
        assert not session.mask()[[0, 2, 4]].any()
    guard = tiny(RegexRule(id="r", regex="assume me", context="prompt"))
    session = guard.session("assume ")
    assert session.mask()[7]
    session.advance(0)
    assert session.mask()[7]  # the parts joined continue it still
    # What comes after a border is also a text of its own, that continues nothing.
    guard = tiny(RegexRule(id="r", regex=r"^ume", context="prompt"))
    session = guard.session("ass")
    assert not session.mask()[4]
    session.advance(0)
    assert session.mask()[4]


def test_a_soft_rule_costs_once_whatever_reads_it() -> None:
    guard = tiny(RegexRule(id="soft", regex="ume|ass$", penalty=2.0))
    session = guard.session()
    assert session.penalties()[4] == 2.0
    session.advance(3)
    assert session.penalties()[[0, 1, 2, 4]].tolist() == [2.0] * 4
    session.advance(0)
    assert session.penalties()[[0, 4]].tolist() == [0.0, 2.0]


def test_rules_of_a_group_are_named_by_the_part_that_ends() -> None:
    words = [StringRule(id=word, strings=(word,), whole_word=True) for word in ("ass", "ume")]
    guard = tiny(*words)
    tables = guard.tables
    state = tables.next(tables.start, 3)
    assert tables.rules_at_fault(state, 0) == ("ass",)
    assert tables.rules_at_fault(state, 2) == ("ass",)
    state = tables.next(state, 6)
    assert tables.rules_at_fault(tables.next(state, 0), 7) == ()
    assert tables.rules_at_fault(tables.next(tables.next(tables.start, 5), 3), 0) == ("ass",)


def test_what_a_border_says_is_shown_and_not_looked_at() -> None:
    guard = tiny(StringRule(id="x", strings=("x|", "end")))
    session = guard.session()
    for token in (0, 3, 1, 2):
        session.advance(token)
    assert session.text == "<|x|>ass<|y|><|end|>"
    assert guard.vocabulary.parts_of(session.token_ids) == ["", "ass", ""]
    assert guard.session().mask()[8]  # written by a token that is no border


def test_bytes_that_no_text_has_are_no_borders() -> None:
    """A byte-level vocabulary has the byte that stands for borders; it reads as before and is forbidden as before."""
    tokens = [b"", b"", *(bytes([byte]) for byte in range(256))]
    plain = Vocabulary.build(tokens, eos_ids=[1], special_ids=[0, 1])
    cutting = plain.with_borders({0: b"<|x|>"})
    for ids in ([2 + BORDER], [2 + 0xE2, 2 + BORDER, 2 + 0x41], [2 + 0xC3, 2 + 0xA9]):
        assert cutting.text_of(ids) == plain.text_of(ids)
        assert cutting.parts_of(ids) == [plain.text_of(ids)]
    guard = BoundGuard(compile_policy(Policy(name="p", rules=(WORD,))), cutting)
    assert guard.session().mask()[2 + BORDER]
    session = guard.session()
    session.advance(2 + 0xC3)
    assert session.mask()[0]  # within a character


def test_a_vocabulary_with_borders_is_another_one() -> None:
    plain = Vocabulary.build([b"", b"a", b""], eos_ids=[2], special_ids=[0, 2])
    cutting = plain.with_borders({0: b"<x>"})
    assert plain.with_borders({}) == plain
    assert len({plain.digest, cutting.digest, plain.with_borders({0: b"<y>"}).digest}) == 3
    assert cutting.digest == plain.with_borders({0: b"<x>"}).digest


def test_what_cannot_be_a_border_is_refused_by_name() -> None:
    plain = Vocabulary.build([b"a", b"\xc3", b""], unusable_ids=[2])
    for ids, said in (
        ({3: b"x"}, "borders"),
        ({2: b"x"}, "borders"),
        ({1: b"\xc3"}, "token 1"),
        ({0: b""}, "token 0"),
    ):
        with pytest.raises(TokenizerError, match=said):
            plain.with_borders(ids)
    for rewriting in (random_policies.CLEANED, random_policies.PIECES):
        with pytest.raises(TokenizerError, match="clean_up_tokenization_spaces"):
            Vocabulary.build([b"a"], rewriting=rewriting).with_borders({0: b"a"})


def test_a_way_out_may_lead_through_a_border() -> None:
    """All parts joined may not end with "az"; nothing follows a "z" with which a part begins, but a border does."""
    joined, within = RegexRule(id="joined", regex=r"az\Z"), RegexRule(id="within", regex=r"^z(?s:.)")
    guard = tiny(joined, within, tokens=(b"a", b"z", b"b"))
    session = guard.session()
    for token in (3, 0):
        session.advance(token)
    assert not session.mask()[4]
    session.advance(4)
    assert np.flatnonzero(~session.mask()).tolist() == [0, 1]
    session.advance(0)
    assert not session.mask()[5]


@pytest.mark.parametrize("seed", range(6))
def test_a_forced_token_is_read_and_guarded_on(seed: int) -> None:
    rng = random.Random(seed)
    guard = bound(rng)
    tables, vocabulary = guard.tables, guard.vocabulary
    for _ in range(10):
        states, ids = [tables.start], []
        for _ in range(8):
            token = rng.randrange(vocabulary.width)
            state = tables.next(states[-1], token)
            ids.append(token)
            if state == VIOLATED:
                state = tables.forced(states, ids)
            if state == ENDED:
                break
            states.append(state)
            expected = bruteforce.forbidden(tables.constraints, tables.components(state), vocabulary)
            if not tables.lost(state):
                assert tables.forbidden(state).tolist() == np.flatnonzero(expected).tolist()


def test_well_formedness_is_read_once_and_constraints_are_shared_by_their_kind() -> None:
    compiled = compile_policy(Policy(name="p", rules=(WORD,)))
    constraints = compiled.constraints(borders=True)
    assert [UTF8_RULE in constraint.rule_ids for constraint in constraints] == [True, False]
    assert not isinstance(constraints[0].automaton, BorderedAutomaton)
    assert all(map(operator.is_, compiled.constraints(borders=True, reuse=constraints), constraints))
    plain = compiled.constraints(reuse=constraints)
    assert not isinstance(plain[1].automaton, BorderedAutomaton)
