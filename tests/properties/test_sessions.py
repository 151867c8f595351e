"""Properties of sessions for Hypothesis to break: policies of every kind, vocabularies of every family, prompts.

What is true is said by `reference`: Python's `re`, containment, plain sums. No mask, automaton or verifier has a part
in it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from nco_guard.compiler import compile_policy
from nco_guard.guard import Guard
from nco_guard.masking import ENDED
from nco_guard.policy import AutomatonRule, Policy, Rule, StringRule
from nco_guard.scan.definition import verify_by_definition
from nco_guard.session import BoundGuard, RowTracker, Session
from nco_guard.testing import Family
from nco_guard.testing.tokenizers import FAMILIES
from nco_guard.tokens import Vocabulary
from tests.fuzz import worlds
from tests.properties import strategies
from tests.properties.harness import PROPERTIES, limited, prop
from tests.properties.reference import Reference, broken

CHOICES = st.lists(st.integers(0, 10_000), max_size=9)


def bind(policy: Policy, vocabulary: Vocabulary) -> BoundGuard:
    return BoundGuard(compile_policy(policy), vocabulary)


def prompt_for(vocabulary: Vocabulary, prompt: str) -> str:
    """Where the decoder rewrites text there is no one place where the output begins."""
    return "" if vocabulary.rewriting is not None else prompt


def walk(session: Session, choices: Sequence[int]) -> bool:
    """Random allowed tokens, at most as many as choices, to where the text may end; False if there is no way."""
    for at, choice in enumerate(choices):
        allowed = np.flatnonzero(~session.mask(remaining=len(choices) - at - 1)).tolist()
        if not allowed:
            assert at == 0, "an allowed token led nowhere"
            return False
        session.advance(allowed[choice % len(allowed)])
        if session.ended:
            return True
    return session.may_end


def read(vocabulary: Vocabulary, ids: Sequence[int], rule: Rule, prompt: str) -> str | None:
    """The text that a rule is about; None if it is no text at all (ill-formed UTF-8)."""
    raw = vocabulary.raw_bytes(ids)
    marks = vocabulary.rewriting.marks if vocabulary.rewriting is not None else b""
    try:
        for part in re.split(b"[" + re.escape(marks) + b"]", raw) if marks else [raw]:
            part.decode()
    except UnicodeDecodeError:
        return None
    if rule.context == "prompt" and prompt:
        return raw.decode()
    return vocabulary.text_of(ids)


def good(policy: Policy, vocabulary: Vocabulary, ids: Sequence[int], prompt: str) -> bool:
    """Whether a whole text keeps the policy, by definition."""
    for rule in policy.rules:
        text = read(vocabulary, ids, rule, prompt)
        if text is None or (rule.mode == "hard" and Reference(rule).blocks(text, prompt)):
            return False
    return True


@prop(
    120,
    policy=strategies.policies(("hard", "hard", "hard", "soft", "monitor")),
    vocabulary=strategies.vocabularies(),
    prompt=strategies.prompts,
    choices=CHOICES,
)
def test_no_violation(policy: Policy, vocabulary: Vocabulary, prompt: str, choices: list[int]) -> None:
    prompt = prompt_for(vocabulary, prompt)
    session = bind(policy, vocabulary).session(prompt)
    assume(walk(session, choices))
    with limited():
        assert good(policy, vocabulary, session.token_ids, prompt), session.text


@cache
def readers() -> dict[Family, Any]:
    return {family: worlds.tokenizer(family) for family in FAMILIES}


@prop(
    40,
    policy=strategies.policies(("hard",)),
    family=st.sampled_from(FAMILIES),
    choices=st.lists(st.integers(0, 1 << 30), min_size=4, max_size=9),
)
def test_no_violation_in_what_a_real_tokenizer_decodes(
    policy: Policy, family: Family, choices: list[int]
) -> None:
    tokenizer = readers()[family]
    session = Guard(policy).bind(tokenizer).session()
    assume(walk(session, choices))
    text = tokenizer.decode(list(session.token_ids), skip_special_tokens=True)
    assert text == session.text
    with limited():
        assert not broken(policy, text)


@prop(
    20,
    policy=strategies.policies(("hard",), most=2),
    vocabulary=strategies.vocabularies(size=4),
    prompt=strategies.prompts,
    choices=st.lists(st.integers(0, 10_000), max_size=3),
)
def test_what_is_forbidden_has_no_good_continuation(
    policy: Policy, vocabulary: Vocabulary, prompt: str, choices: list[int]
) -> None:
    prompt = prompt_for(vocabulary, prompt)
    assume(all(Reference(rule).exact for rule in policy.rules))
    session = bind(policy, vocabulary).session(prompt)
    usable = [i for i in range(vocabulary.width) if i not in {*vocabulary.unusable_ids, *vocabulary.eos_ids}]
    loud = [i for i in usable if vocabulary.tokens[i]]
    for choice in [*choices, 0]:
        ids = list(session.token_ids)
        forbidden = session.forbidden_ids().tolist()
        with limited(20.0):
            for token in forbidden:
                if token in vocabulary.eos_ids:
                    assert not good(policy, vocabulary, [*ids, token], prompt), "the text could end"
                elif token in usable:
                    for length in range(3):
                        for more in itertools.product(loud, repeat=length):
                            assert not good(policy, vocabulary, [*ids, token, *more], prompt), (token, more)
        allowed = [token for token in usable if token not in forbidden]
        if not allowed:
            break
        session.advance(allowed[choice % len(allowed)])


def settled_at_once(rule: Rule) -> bool:
    """Whether a match is complete with its last character, whatever follows."""
    if rule.whole_word or rule.json_escapes:
        return False
    if isinstance(rule, StringRule | AutomatonRule):
        return True
    return all(
        re.search(r"\(\?[=!<]|\\[bBAZ]|[$^]", source) is None for source in (rule.regex, rule.stop_at or "")
    )


@prop(
    60,
    policy=strategies.policies(("hard", "soft", "soft", "monitor")),
    vocabulary=strategies.vocabularies(plain=True),
    prompt=strategies.prompts,
    choices=CHOICES,
    seed=st.integers(0, 1 << 30),
)
def test_scores_change_by_the_rules_and_by_nothing_else(
    policy: Policy, vocabulary: Vocabulary, prompt: str, choices: list[int], seed: int
) -> None:
    """Forbidden: -inf. Allowed: the same bits, less the penalties of the soft rules whose match the token completes."""
    torch = pytest.importorskip("torch")
    from nco_guard.engines.hf import GuardLogitsProcessor

    bound = bind(policy, vocabulary)
    processor = GuardLogitsProcessor(bound)
    width, ids = vocabulary.width, [vocabulary.special_ids[0]]
    session = bound.session(ids)
    generator = torch.Generator().manual_seed(seed)
    for choice in choices:
        scores = torch.randn(1, width, generator=generator)
        result = processor(torch.tensor([ids]), scores)[0].numpy()
        mask, penalties = session.mask(), session.penalties()
        assert (result[mask] == -np.inf).all()
        plain = ~mask & (penalties == 0)
        assert result[plain].tobytes() == scores[0].numpy()[plain].tobytes()
        costly = ~mask & (penalties > 0)
        assert np.array_equal(result[costly], scores[0].numpy()[costly] - penalties[costly])
        soft = [rule for rule in policy.rules if rule.mode == "soft"]
        if all(settled_at_once(rule) and Reference(rule).exact for rule in soft):
            before = session.text
            for token, data in enumerate(vocabulary.tokens):
                if data and token not in vocabulary.unusable_ids:
                    with limited():
                        ends = [
                            rule.penalty
                            for rule in soft
                            if max(Reference(rule).ends(before + data.decode(), stop=True), default=0)
                            > len(before)
                        ]
                    assert penalties[token] == np.float32(sum(ends)), (before, data)
        allowed = [t for t in np.flatnonzero(~mask).tolist() if t not in vocabulary.eos_ids]
        if not allowed:
            break
        ids.append(allowed[choice % len(allowed)])
        session.advance(ids[-1])


def the_same(one: Session, other: Session) -> None:
    assert one.token_ids == other.token_ids
    assert np.array_equal(one.mask(), other.mask())
    assert np.array_equal(one.penalties(), other.penalties())
    assert (one.text, one.may_end, one.ended) == (other.text, other.may_end, other.ended)


@prop(
    60,
    policy=strategies.policies(),
    vocabulary=strategies.vocabularies(),
    prompt=strategies.prompts,
    choices=CHOICES,
    others=CHOICES,
)
def test_a_fork_is_a_copy(
    policy: Policy, vocabulary: Vocabulary, prompt: str, choices: list[int], others: list[int]
) -> None:
    """Copied half-way, both go on by themselves, and each is what a session is that never had a copy."""
    bound = bind(policy, vocabulary)
    session = bound.session(prompt)

    def go_on(one: Session, picks: Sequence[int]) -> None:
        for pick in picks:
            allowed = np.flatnonzero(~one.mask()).tolist()
            if one.ended or not allowed:
                break
            one.advance(allowed[pick % len(allowed)])

    half = len(choices) // 2
    go_on(session, choices[:half])
    copy = session.fork()
    the_same(copy, session)
    # In turns, so that whatever they shared would show.
    for first, second in itertools.zip_longest(choices[half:], others):
        go_on(session, [first] if first is not None else [])
        go_on(copy, [second] if second is not None else [])
    for one in (session, copy):
        alone = bind(policy, vocabulary).session(prompt)
        for token in one.token_ids:
            alone.advance(token)
        the_same(one, alone)
        back = len(one.token_ids) // 2
        one.rollback(back)
        alone.rollback(back)
        the_same(one, alone)


@prop(
    60,
    policy=strategies.policies(),
    vocabulary=strategies.vocabularies(),
    moves=st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10_000)), min_size=1, max_size=4), max_size=8
    ),
    cuts=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    prompts=st.lists(st.lists(st.integers(0, 10_000), min_size=3, max_size=3), min_size=2, max_size=3),
)
def test_a_batch_is_its_rows(
    policy: Policy,
    vocabulary: Vocabulary,
    moves: list[list[tuple[int, int]]],
    cuts: list[int],
    prompts: list[list[int]],
) -> None:
    """Rows are copied, dropped, permuted and cut back; each has the mask of a session of its own, prompt included."""
    bound = bind(policy, vocabulary)
    texts = [i for i in range(vocabulary.width) if i not in {*vocabulary.eos_ids, *vocabulary.unusable_ids}]
    rows: list[tuple[list[int], list[int]]] = [
        ([texts[p % len(texts)] for p in prompt], []) for prompt in prompts
    ]
    # Equal prompts with different answers cannot be told apart once they meet; distinct ones are.
    assume(len({tuple(prompt) for prompt, _ in rows}) == len(rows))
    tracker = RowTracker(bound)

    def check() -> None:
        states = tracker.advance(np.array([prompt + answer for prompt, answer in rows], np.int64)).tolist()
        for (prompt, answer), state in zip(rows, states, strict=True):
            session = bound.session(prompt)
            for token in answer:
                session.advance(token)
            if session.ended:
                assert state == ENDED
            else:
                assert tracker.tables.forbidden(state).tolist() == session.forbidden_ids().tolist()
                assert tracker.tables.may_end(state) == session.may_end
                dense = np.zeros(vocabulary.width, np.float32)
                ids, amounts = tracker.tables.penalties(state)
                dense[ids] = amounts
                assert np.array_equal(dense, session.penalties())

    check()
    for move, cut in zip(moves, cuts, strict=False):
        length = max(0, len(rows[0][1]) - (cut if cut > 1 else 0))
        following = []
        for parent, pick in move:
            prompt, answer = rows[parent % len(rows)]
            session = bound.session(prompt)
            for token in answer[:length]:
                session.advance(token)
            allowed = [t for t in np.flatnonzero(~session.mask()).tolist() if t not in vocabulary.eos_ids]
            if allowed:
                following.append((prompt, [*answer[:length], allowed[pick % len(allowed)]]))
        if not following:
            break
        rows = following
        check()


@prop(
    150,
    policy=strategies.policies(),
    prompt=strategies.prompts,
    text=strategies.texts,
)
def test_the_verifier_finds_the_leftmost_longest_matches(policy: Policy, prompt: str, text: str) -> None:
    assume(all(Reference(rule).exact for rule in policy.rules))
    with limited():
        expected = sorted(
            (start, end, rule.id)
            for rule in policy.rules
            for start, end in Reference(rule).findings(text, prompt)
        )
    report = verify_by_definition(policy, text, context=prompt)
    assert [(found.start, found.end, found.rule_id) for found in report.findings] == expected
    hard = {rule.id for rule in policy.rules if rule.mode == "hard"}
    assert report.ok == (not hard.intersection(rule_id for *_, rule_id in expected))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROPERTIES)
def test_at_length(name: str) -> None:
    PROPERTIES[name]()
