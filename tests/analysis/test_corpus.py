"""Over-blocking: shares are those that `re` counts, advice was really tried, refused tokens are those of the masks."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.analysis import overblocking, refused_tokens, sentences
from nco_guard.automata import AlternatingMachine, ClassAutomaton
from nco_guard.automata.patterns.parsing import parse
from nco_guard.compiler import compile_policy
from nco_guard.errors import ForbiddenTokenError
from nco_guard.masking import bruteforce
from nco_guard.masking.byte_strings import ByteStrings
from nco_guard.policy import Rule
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary
from tests.automata import patterns
from tests.masking import random_policies
from tests.properties.reference import Reference

TEXTS = [
    "The assembly passed a class of assistants.", "An ass is an animal.", "Nothing here.", "Class dismissed!",
    "Call 555-1234 now.", "It cost 12 dollars.", "Mass and glass.", "A quiet afternoon.",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_what_a_rule_forbids_is_what_its_definition_forbids(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        policy = random_policies.policy(rng)
        texts = [patterns.text(rng) + rng.choice(["", "ab k1", "é"]) for _ in range(25)]
        found = overblocking(policy, texts, examples=3)
        together = set()
        for rule, counted in zip(policy.rules, found.rules, strict=True):
            if not Reference(rule).exact:
                continue
            blocked = [i for i, text in enumerate(texts) if Reference(rule).blocks(text)]
            assert (counted.forbidden, counted.examples) == (len(blocked), tuple(blocked[:3])), rule
            together.update(blocked if rule.mode == "hard" else ())
        if all(Reference(rule).exact for rule in policy.rules):
            assert found.forbidden == len(together)


@pytest.mark.parametrize("seed", range(3))
def test_byte_strings_read_together_lead_where_each_does_alone(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        pattern, flags = patterns.valid_pattern(rng, 3)
        automaton = ClassAutomaton(AlternatingMachine(parse(pattern, flags)), absorbing=False)
        texts = [patterns.text(rng, 20).encode() for _ in range(rng.choice([0, 1, 5, 40, 60]))]
        some = np.sort(rng.sample(range(len(texts)), rng.choice([0, len(texts) // 2, len(texts)])))
        states = ByteStrings(texts).after(automaton, automaton.start, some.astype(np.int64))
        for index, state in zip(some.tolist(), states.tolist(), strict=True):
            reached = automaton.start
            for byte in texts[int(index)]:
                if reached >= 0:
                    reached = automaton.step(reached, byte)
            assert state == reached


def test_a_substring_that_forbids_much_is_named_with_what_would_forbid_less() -> None:
    rule = StringRule(id="rude", strings=("zebra", "ass"), case="fold")
    found = overblocking(Policy(name="p", rules=(rule,)), TEXTS)
    (counted,) = found.rules
    assert (counted.forbidden, counted.strings) == (4, ((1, 4),))
    assert [(a.change, a.string, a.before, a.after) for a in counted.advice] == [
        ("whole_word: true", None, 4, 1), ("whole_word: true", 1, 4, 1),
    ]  # fmt: skip
    assert counted.advice[1].message == (
        "strings[1] of 'rude' forbids 50.0 % of the texts: with whole_word: true it would forbid 12.5 %"
    )


def test_every_change_advised_was_tried() -> None:
    rules: tuple[Rule, ...] = (
        RegexRule(id="phone", regex=r"\d{3}-\d{4}", stop_at=r"\d"),
        StringRule(id="case", strings=("CLASS",), case="fold"),
        StringRule(id="leet", strings=("l2",), confusables="leet"),
        StringRule(id="ignored", strings=("sis",), ignore=(" ",)),
    )
    texts = [*TEXTS, "This is his.", "1z"]
    found = overblocking(Policy(name="p", rules=rules), texts)
    changes = {
        "no stop_at": {"stop_at": None},
        "case: exact": {"case": "exact"},
        "whole_word: true": {"whole_word": True},
        "nothing ignored": {"ignore": ()},
        "confusables: none": {"confusables": "none"},
        "confusables: letters": {"confusables": "letters"},
        "normalize: none": {"normalize": "none"},
    }
    by_id = {rule.id: rule for rule in rules}
    assert {advice.rule_id for advice in found.advice} >= {"phone", "case"}
    for advice in found.advice:
        rule = by_id[advice.rule_id]
        tried = rule.model_copy(update=changes[advice.change])
        assert advice.before == sum(Reference(rule).blocks(text) for text in texts)
        assert advice.after == sum(Reference(tried).blocks(text) for text in texts) <= advice.before / 2
    assert found.advice[0].before - found.advice[0].after == max(a.before - a.after for a in found.advice)


@pytest.mark.parametrize("seed", range(3))
def test_refused_tokens_are_those_that_the_masks_forbid(seed: int) -> None:
    rng = random.Random(seed)
    rules = (StringRule(id="a", strings=("ab", "k1")), RegexRule(id="b", regex=r"a\b"))
    bound = BoundGuard(compile_policy(Policy(name="p", rules=rules)), toy_vocabulary(["ab", "a ", "k", "1k"]))
    tokens = bound.vocabulary.tokens
    merged = {data: i for i, data in enumerate(tokens) if data}

    def encode(text: str) -> list[int]:
        data, ids = text.encode(), []
        while data:
            length = max(n for n in (1, 2) if data[:n] in merged)
            ids.append(merged[data[:length]])
            data = data[length:]
        return ids

    texts = ["".join(rng.choice("abk1 ") for _ in range(rng.randint(1, 8))) for _ in range(30)]
    refused = total = 0
    known: dict[tuple[tuple[int, ...], int], bool] = {}
    for text in texts:
        constraints = bound.tables.constraints
        states = first = tuple(c.automaton.start for c in constraints)
        for token in [*encode(text), bound.vocabulary.eos_ids[0]]:
            total += 1
            if bruteforce.forbidden(constraints, states, bound.vocabulary, known=known)[token]:
                refused, states = refused + 1, first
            else:
                fed = zip(constraints, states, strict=True)
                states = tuple(bruteforce.feed(c, s, tokens[token])[0] for c, s in fed)
    found = refused_tokens(bound, encode, texts)
    assert (found.tokens, found.refused) == (total, refused)
    assert refused
    assert set(found.by_rule) == {"a", "b"}
    few = refused_tokens(bound, encode, texts, limit=10)
    assert 10 <= few.tokens < total


def test_no_text_is_in_what_comes_back() -> None:
    found = overblocking(
        Policy(name="p", rules=(StringRule(id="rude", strings=("ass",)),)), TEXTS, examples=2
    )
    assert found.rules[0].examples == (0, 1)
    shown = repr(found) + str(found.to_dict()) + "".join(a.message for a in found.advice)
    assert "rude" in shown
    assert not {"ass", "assembly", "animal"} & set(shown.replace("'", " ").split())


def test_without_texts_there_is_no_share() -> None:
    policy = Policy(name="p", rules=(StringRule(id="a", strings=("a",)),))
    with pytest.raises(ValueError, match="at least one"):
        overblocking(policy, [])
    assert overblocking(policy, [""]).forbidden == 0


def test_sentences_end_where_they_mostly_do() -> None:
    assert sentences('One. "Two!" Three?\n\nFour 1.5 five\n') == ["One.", '"Two!"', "Three?", "Four 1.5 five"]
    assert sentences(" \n ") == []


def test_the_masks_refuse_what_a_session_refuses() -> None:
    bound = BoundGuard(
        compile_policy(Policy(name="p", rules=(StringRule(id="a", strings=("ab",)),))), toy_vocabulary()
    )
    session = bound.session()
    session.advance(ord("a"))
    with pytest.raises(ForbiddenTokenError):
        session.advance(ord("b"))
    found = refused_tokens(bound, lambda text: list(text.encode()), ["ab", "ba"])
    assert (found.tokens, found.refused, found.by_rule) == (6, 1, {"a": 1})
    assert np.isclose(found.refused / found.tokens, 1 / 6)
