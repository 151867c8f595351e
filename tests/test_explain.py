"""Explanations agree with the mask, token by token, and name the rules that the definition names."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from nco_guard import BoundGuard, Guard, Policy, RegexRule, Session, StringRule
from nco_guard.analysis import Explanation, TokenExplanation
from nco_guard.compiler import Constraint, compile_policy
from nco_guard.errors import ForbiddenTokenError
from nco_guard.masking import bruteforce
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.policy import Rule
from nco_guard.tokens import Vocabulary
from tests.binding import bind
from tests.masking import random_policies
from tests.properties.reference import Reference

ALONE = ("match", "unavoidable", "end")


@dataclass
class World:
    """A policy over a vocabulary by the definition: constraints fed byte by byte."""

    constraints: tuple[Constraint, ...]
    vocabulary: Vocabulary
    context: bytes
    known: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, rules: list[Rule], vocabulary: Vocabulary, context: bytes) -> World:
        if not rules:
            utf8 = compile_policy(Policy(name="any", rules=(StringRule(id="x", strings=("x",)),)))
            return cls(utf8.constraints(vocabulary.rewriting)[:1], vocabulary, context)
        compiled = compile_policy(Policy(name="some", rules=tuple(rules)))
        return cls(compiled.constraints(vocabulary.rewriting), vocabulary, context)

    def states(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        if ids not in self.known:
            self.known[ids] = self._states(ids)
        return self.known[ids]

    def _states(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        found = []
        for constraint in self.constraints:
            automaton = constraint.automaton
            first = self.vocabulary.strips_first_space or self.vocabulary.rewriting is not None
            state = automaton.spaceless_start if first else automaton.start
            if constraint.reads_prompt and self.context:
                state = automaton.past_prompt(bruteforce.feed(constraint, automaton.start, self.context)[0])
            for token in ids:
                state = bruteforce.feed(constraint, state, self.vocabulary.tokens[token])[0]
            found.append(state)
        return tuple(found)

    def mask(self, ids: tuple[int, ...], left: int = HORIZON) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if (ids, left) not in self.known:
            self.known[ids, left] = bruteforce.forbidden(
                self.constraints, self.states(ids), self.vocabulary, left
            )
        return self.known[ids, left]

    def violates(self, ids: tuple[int, ...], token: int) -> bool:
        """Whether a hard rule, not well-formedness, forbids the token by itself."""
        return any(
            constraint.hard and bruteforce._completes(constraint, state, self.vocabulary, token)
            for constraint, state in zip(self.constraints[1:], self.states(ids)[1:], strict=True)
        )

    def penalty(self, ids: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
        return bruteforce.penalties(self.constraints, self.states(ids), self.vocabulary)


class Worlds:
    """Policies of some rules of one policy each, made once."""

    def __init__(self, bound: BoundGuard, context: bytes) -> None:
        self.bound, self.context = bound, context
        self.known: dict[tuple[str, ...], World] = {}

    def of(self, *rules: Rule) -> World:
        key = tuple(rule.id for rule in rules)
        if key not in self.known:
            self.known[key] = World.of(list(rules), self.bound.vocabulary, self.context)
        return self.known[key]


def spans(rule: Rule, text: str, *, stops: bool) -> set[tuple[int, int]]:
    """All matches of what a rule blocks, or of its whole pattern, as spans of the text."""
    folded, origin = Reference(rule).folded_spans(text, stop=stops)
    return {
        (
            origin[s][0] if s < len(origin) else len(text),
            origin[e - 1][1] if e > s else _place(origin, s, text),
        )
        for s, e in folded
    }


def _place(origin: list[tuple[int, int]], at: int, text: str) -> int:
    return origin[at][0] if at < len(origin) else len(text)


def check_token(session: Session, worlds: Worlds, found: TokenExplanation, left: int | None) -> list[str]:
    """One token of one state against the definition; the codes of its reasons."""
    token = found.token_id
    policy, vocabulary, ids = worlds.bound.policy, worlds.bound.vocabulary, session.token_ids
    assert found.forbidden == any(reason.forbids for reason in found.reasons)
    codes = [reason.code for reason in found.reasons]
    if token in vocabulary.unusable_ids:
        assert codes == ["unusable"]
        return codes
    named = {rule for reason in found.reasons if reason.code in ALONE for rule in reason.rule_ids}
    alone = {rule.id for rule in policy.rules if rule.mode == "hard" and worlds.of(rule).violates(ids, token)}
    assert named == alone
    by_id = {rule.id: rule for rule in policy.rules}
    for reason in found.reasons:
        if reason.code in ("dead-end", "token-limit"):
            assert not alone
            within = HORIZON if reason.code == "dead-end" else left
            assert within is not None
            culprits = [by_id[rule] for rule in reason.rule_ids if rule != "utf-8"]
            assert worlds.of(*culprits).mask(ids, within)[token]
            for dropped in culprits:
                rest = [rule for rule in culprits if rule is not dropped]
                assert not worlds.of(*rest).mask(ids, within)[token]
        elif reason.start is not None and by_id[reason.rule_ids[0]].context != "prompt":
            rule = by_id[reason.rule_ids[0]]
            if Reference(rule).exact:
                text = vocabulary.text_of((*ids, token))
                assert (reason.start, reason.end) in spans(rule, text, stops=True), (rule, text, reason)
    return codes


def agree(seed: int, policies: int, steps: int) -> set[str]:
    """Random policies, vocabularies and texts, every token of each; the codes that were met."""
    rng = random.Random(seed)
    codes: set[str] = set()
    for _ in range(policies):
        bound = random_policies.bound(rng, small=True)
        vocabulary = bound.vocabulary
        prompt = "".join(rng.choice(random_policies.LETTERS) for _ in range(rng.randint(0, 3)))
        session = bound.session(prompt)
        worlds = Worlds(bound, bound.context_bytes(prompt))
        everyone = worlds.of(*bound.policy.rules)
        for _ in range(steps):
            left = rng.choice([None, None, 0, 1, 2])
            expected = everyone.mask(session.token_ids, HORIZON if left is None else left)
            assert np.array_equal(session.mask(left), expected)
            amounts = everyone.penalty(session.token_ids)
            found = {token: session.explain(token, remaining=left) for token in range(vocabulary.width)}
            for token, explained in found.items():
                assert explained.forbidden == expected[token]
                assert np.float32(explained.penalty) == amounts[token]
                codes.update(check_token(session, worlds, explained, left))
            check_everything(session, left, found)
            check_under_way(rng, session, bound)
            allowed = [t for t in np.flatnonzero(~session.mask()).tolist() if t not in vocabulary.eos_ids]
            if not allowed:
                break
            # Where rules do not let the text end there is more to explain.
            open_ended = [t for t in allowed if pending(session, t)]
            session.advance(rng.choice(open_ended if open_ended and rng.random() < 0.6 else allowed))
    return codes


def test_a_token_is_forbidden_iff_it_has_a_reason_and_the_reasons_are_those_of_the_definition() -> None:
    codes = set().union(*(agree(seed, policies=3, steps=3) for seed in range(5)))
    assert {"match", "unavoidable", "encoding", "unusable", "token-limit", "penalty", "monitor"} <= codes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_the_same_at_length(seed: int) -> None:
    agree(seed + 1000, policies=12, steps=6)


def pending(session: Session, token: int) -> bool:
    after = session.fork()
    after.advance(token)
    return not after.may_end and not after.text.endswith("\ufffd")


def check_everything(session: Session, left: int | None, single: dict[int, TokenExplanation]) -> None:
    whole = session.explain(remaining=left, limit=1000)
    assert whole.forbidden == sum(whole.counts.values()) == sum(e.forbidden for e in single.values())
    plain = whole.counts.get("encoding", 0) + whole.counts.get("unusable", 0)
    assert len(whole.tokens) == whole.forbidden - plain
    for token in whole.tokens:
        assert token == single[token.token_id]
    for rule in whole.rules:
        by_rule = [
            t for t, e in single.items()
            if any(r.rule_ids == (rule.rule_id,) and r.code in (*ALONE, "penalty", "monitor") for r in e.reasons)
        ]  # fmt: skip
        assert rule.tokens == len(by_rule)
    few = session.explain(remaining=left, limit=3)
    assert len(few.tokens) == min(3, len(whole.tokens))
    assert {t.token_id for t in few.tokens} <= {t.token_id for t in whole.tokens}


def check_under_way(rng: random.Random, session: Session, bound: BoundGuard) -> None:
    """No way to go on has a match that begins in the text before the first that is said to be under way."""
    if bound.vocabulary.rewriting is not None:
        return  # some of the text may be held back
    text, states = session.text, {rule.rule_id: rule for rule in session.explain(limit=0).rules}
    if "\ufffd" in text:
        return
    for rule in bound.policy.rules:
        if rule.mode != "hard" or rule.context == "prompt" or not Reference(rule).exact:
            continue
        state = states[rule.id]
        if state.start is not None:
            assert state.start + state.length == len(text) or rule.json_escapes
        first = len(text) if state.start is None else state.start
        for _ in range(6):
            more = "".join(rng.choice(random_policies.LETTERS) for _ in range(rng.randint(0, 3)))
            if rule.json_escapes and "\\" in text[-12:] + more:
                continue
            begins = [b for b, e in spans(rule, text + more, stops=True) if b < len(text)]
            assert min(begins, default=first) >= first, (rule, text, more, state)


def written(bound: BoundGuard, text: str) -> Session:
    session = bound.session()
    for byte in text.encode():
        session.advance(bound.vocabulary.tokens.index(bytes([byte])))
    return session


def test_a_match_is_named_with_its_rule_and_its_place() -> None:
    bound = bind(RegexRule(id="ssn", regex=r"\b\d{3}-\d{2}-\d{4}\b"), merges=("20 ",))
    session = written(bound, "it is 078-05-11")
    (rule,) = session.explain().rules
    assert (rule.start, rule.length, rule.tokens) == (6, 9, 1)
    (reason,) = session.explain(bound.vocabulary.tokens.index(b"20 ")).reasons
    assert (reason.code, reason.rule_ids, reason.start, reason.end) == ("match", ("ssn",), 6, 17)
    session = written(bound, "it is 078-05-1120")
    (reason,) = session.explain(bound.vocabulary.eos_ids[0]).reasons
    assert (reason.code, reason.start, reason.end) == ("end", 6, 17)


def test_a_match_that_no_way_on_avoids_is_told_from_a_complete_one() -> None:
    bound = bind(RegexRule(id="x", regex=r"ab(?=\W|\w|\Z)"))
    session = written(bound, "a")
    assert [r.code for r in session.explain(ord("b")).reasons] == ["unavoidable"]
    assert session.explain(ord("b")).reasons[0].start is None


def test_rules_that_only_together_leave_no_way_out_are_named_and_no_others() -> None:
    bound = bind(
        StringRule(id="word", strings=("ass",), whole_word=True),
        RegexRule(id="no-letter", regex=r"ass\w"),
        StringRule(id="other", strings=("zebra",)),
        RegexRule(id="digits", regex=r"\d{3}"),
    )
    session = written(bound, "as")
    (reason,) = session.explain(ord("s")).reasons
    assert (reason.code, reason.rule_ids) == ("dead-end", ("word", "no-letter"))
    assert session.explain().counts["dead-end"] == 1


def test_a_token_that_only_the_limit_forbids_says_so() -> None:
    bound = bind(StringRule(id="word", strings=("ass",), whole_word=True))
    session = written(bound, "as")
    assert not session.explain(ord("s")).forbidden
    (reason,) = session.explain(ord("s"), remaining=0).reasons
    assert (reason.code, reason.rule_ids) == ("token-limit", ("word",))
    # Beside it, the first bytes of characters that no token is left to complete.
    whole = session.explain(remaining=0, limit=100)
    assert whole.counts["token-limit"] == 52
    assert {t.reasons[0].rule_ids for t in whole.tokens if t.token_id != ord("s")} == {("utf-8",)}


def test_a_match_that_begins_in_the_prompt_begins_before_the_output() -> None:
    bound = bind(RegexRule(id="name", regex=r"\d{3}-\d{2}", context="prompt"))
    session = bound.session("call 555-")
    (rule,) = session.explain().rules
    assert (rule.start, rule.length) == (-4, 4)
    session.advance(ord("1"))
    (reason,) = session.explain(ord("2")).reasons
    assert (reason.start, reason.end) == (-4, 2)
    assert "4 before the output" in reason.message


def test_after_the_end_nothing_is_forbidden() -> None:
    bound = bind(StringRule(id="a", strings=("a",)))
    session = bound.session()
    session.advance(bound.vocabulary.eos_ids[0])
    assert session.explain().ended
    assert (session.explain().forbidden, session.explain(ord("a"))) == (0, TokenExplanation(97, False, ()))


def test_wrong_arguments_are_refused() -> None:
    session = bind(StringRule(id="a", strings=("a",))).session()
    for token in (-1, 10**6):
        with pytest.raises(ForbiddenTokenError, match="outside"):
            session.explain(token)
    with pytest.raises(ValueError, match="limit"):
        session.explain(limit=-1)


def test_no_text_is_in_an_explanation() -> None:
    bound = bind(RegexRule(id="r1", regex=r"Bluebird \d+"), StringRule(id="r2", strings=("Canary42",)))
    session = written(bound, "Canary4")
    shown = repr(session.explain()) + repr(session.explain(ord("2"))) + str(session.explain().to_dict())
    shown += "".join(reason.message for reason in session.explain(ord("2")).reasons)
    assert "r2" in shown
    for leak in ("Canary", "Bluebird", "anary"):
        assert leak not in shown


def test_a_crowd_of_rules_is_explained_rule_by_rule() -> None:
    rules = [RegexRule(id=f"r{i}", regex=f"[wx]{{{2 + i % 3}}}y{{{1 + i % 4}}}") for i in range(40)]
    bound = bind(*rules)
    assert len(bound.tables.constraints) == 2
    session = written(bound, "wxw")
    reasons = session.explain(ord("y")).reasons
    assert [r.rule_ids[0] for r in reasons] == [f"r{i}" for i in range(0, 40, 4) if i % 3 < 2]


def test_presets_are_explained_over_the_shipped_tokenizer() -> None:
    from transformers import AutoTokenizer

    from nco_guard import demo

    tokenizer = AutoTokenizer.from_pretrained(demo.model_path())
    guard = Guard(Policy.from_presets("pii", "secrets", "ldnoobw"))
    session = guard.bind(tokenizer).session()
    for token in tokenizer("Write to john.doe", add_special_tokens=False)["input_ids"]:
        session.advance(token)
    whole = session.explain()
    assert isinstance(whole, Explanation)
    assert whole.forbidden == len(session.forbidden_ids()) == sum(whole.counts.values())
    assert "pii.email" in {rule.rule_id for rule in whole.under_way}
