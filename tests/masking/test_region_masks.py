"""Masks over replies that marks cut into fields: `bruteforce`, and `re` on each text that is shown."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nco_guard import Guard, Policy, RegexRule, StringRule, verify
from nco_guard.automata import FieldMark, ReplyFields
from nco_guard.compiler import compile_policy
from nco_guard.errors import ArgumentError, PolicyError, TokenizerError
from nco_guard.masking import bruteforce
from nco_guard.masking.bordered import RegionTable
from nco_guard.policy import AppliesTo, Rule
from nco_guard.scan.definition import verify_by_definition
from nco_guard.session import BoundGuard
from nco_guard.testing import tiny_tokenizer
from nco_guard.tokens import Vocabulary
from tests.masking import random_policies

bounded = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MARKS = (
    FieldMark("<t>", "content", "reasoning"),
    FieldMark("</t>", "reasoning", "content"),
    FieldMark("<c>", "content", "call"),
    FieldMark("</c>", "call", "content"),
)
REPLY = ReplyFields(MARKS)
# Marks in the letters of the rules.
ODD = ReplyFields(
    (FieldMark("ab", "content", "x"), FieldMark("1b", "x", "content"), FieldMark("b ", "x", "y"))
)
PIECES = [b"<t>", b"</t>", b"<c>", b"</c>", b"<", b"</", b"t>", b"c>a", b"a<", b">", b"/"]


def bound(rng: random.Random) -> BoundGuard:
    """A random policy over a random vocabulary, in fields."""
    plain = random_policies.vocabulary(rng, small=True)
    words = rng.sample(plain.tokens[:-5], min(len(plain.tokens) - 5, 14))
    tokens = [*words, *rng.sample(PIECES, 8), b"", b"<end>"]
    vocabulary = Vocabulary.build(
        tokens,
        eos_ids=[len(tokens) - 2, len(tokens) - 1],
        skip_special_tokens=False,
        strips_first_space=rng.random() < 0.3,
    )
    regions = rng.choice([REPLY, REPLY, ODD, REPLY.freed("call"), ReplyFields(MARKS, "reasoning")])
    policy = random_policies.policy(rng)
    if rng.random() < 0.3:
        policy = policy.model_copy(update={"applies_to": AppliesTo(reasoning="free")})
    return BoundGuard(compile_policy(policy), vocabulary.with_regions(regions))


@bounded
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 10_000), max_size=7))
def test_a_mask_is_the_definition_wherever_a_walk_leads(rng: random.Random, choices: list[int]) -> None:
    guard = bound(rng)
    tables, vocabulary = guard.tables, guard.vocabulary
    state, known = tables.start, {}
    for choice in [*choices, 0]:
        expected = bruteforce.forbidden(tables.constraints, tables.components(state), vocabulary, known=known)
        assert tables.forbidden(state).tolist() == np.flatnonzero(expected).tolist()
        amounts = np.zeros(vocabulary.width, np.float32)
        ids, values = tables.penalties(state)
        amounts[ids] = values
        penalties = bruteforce.penalties(tables.constraints, tables.components(state), vocabulary)
        assert amounts.tolist() == penalties.tolist()
        allowed = [t for t in np.flatnonzero(~expected).tolist() if t not in vocabulary.eos_ids]
        if not allowed:
            break
        state = tables.next(state, allowed[choice % len(allowed)])


@bounded
@given(st.randoms(use_true_random=False))
def test_what_masks_allow_keeps_the_policy_in_every_text_that_is_shown(rng: random.Random) -> None:
    guard = bound(rng)
    vocabulary, policy = guard.vocabulary, guard.policy
    assert vocabulary.regions is not None
    regions = vocabulary.regions.freed(*policy.unbound_fields)
    for _ in range(3):
        prompt = random_policies.string(rng) if rng.random() < 0.4 else ""
        session = guard.session(prompt)
        for _ in range(12):
            mask = session.mask()
            allowed = [t for t in np.flatnonzero(~mask).tolist() if t not in vocabulary.eos_ids]
            if not allowed:
                break
            session.advance(rng.choice(allowed))
            if "\ufffd" in session.text:
                continue
            first = vocabulary.raw_bytes(session.token_ids)[:1]
            space = " " if prompt and vocabulary.strips_first_space and first == b" " else ""
            if space:
                continue  # which rules see it is the same as for any text
            reports = [
                verify_by_definition(
                    policy,
                    "".join(region.text for region in each),
                    context=prompt if each[0].name == regions.joined else "",
                )
                for each in regions.texts(session.text)
            ]
            assert session.may_end == all(report.ok for report in reports)
            found = verify(policy, session.text, context=prompt, regions=vocabulary.regions)
            assert found.ok == session.may_end


def tiny(*rules: Rule, regions: ReplyFields = REPLY, **fields: Any) -> BoundGuard:
    """Byte by byte; 256 ends the text."""
    tokens = [*(bytes([byte]) for byte in range(256)), b"<end>"]
    vocabulary = Vocabulary.build(tokens, eos_ids=[256], skip_special_tokens=False)
    policy = Policy(name="tiny", rules=rules, **fields)
    return BoundGuard(compile_policy(policy), vocabulary.with_regions(regions))


def written(guard: BoundGuard, text: str) -> str | None:
    """The first token that is forbidden on the way, and what stands before it; None: nothing is."""
    session = guard.session()
    for place, byte in enumerate([*text.encode(), 256]):
        if session.mask()[byte]:
            return text[:place]
        session.advance(byte)
    return None


WORD = RegexRule(id="word", regex=r"\bass\b")


def test_what_is_kept_of_tokens_that_cut_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "my as<t>x</t>assume<c>b</c>a<t"

    def walked(free: str) -> tuple[list[list[bool]], int]:
        # What is free is in no mark: it makes another cutter, of which nothing is kept yet.
        guard = tiny(WORD, regions=ReplyFields(MARKS, free=(free,)))
        (table,) = [table for table in guard.tables.tables if isinstance(table, RegionTable)]
        session, masks, kept = guard.session(), list[list[bool]](), list[int]()
        for byte in text.encode():
            masks.append(session.mask().tolist())
            session.advance(byte)
            kept.append(table._known.nbytes)
        return masks, max(kept)

    masks, most = walked("one")
    monkeypatch.setattr("nco_guard.masking.bordered._KEPT", 3_000)
    again, few = walked("other")
    assert again == masks
    assert few <= 3_000 < most


def test_text_before_a_mark_may_have_to_end_there() -> None:
    guard = tiny(WORD)
    assert written(guard, "assume<t>class</t>") is None
    assert written(guard, "my ass<t>x") == "my ass"  # "<" ends the word already
    assert written(tiny(RegexRule(id="end", regex=r"ass\Z")), "my ass<t>x") == "my ass<t"
    assert written(tiny(RegexRule(id="end", regex=r"ass\Z")), "my ass<b>x") is None


def test_content_goes_on_and_calls_begin_anew() -> None:
    plain = tiny(StringRule(id="plain", strings=("assume",)))
    assert written(plain, "ass<c>ume</c>u<c>x</c>me") == "ass<c>ume</c>u<c>x</c>m"
    assert written(plain, "<c>ass</c><c>ume</c>") is None
    begins = tiny(RegexRule(id="begins", regex=r"^ume"))
    assert written(begins, "ass<c>ume") == "ass<c>um"
    assert written(begins, "ass<c></c>ume") is None


def test_a_mark_that_is_not_completed_is_text() -> None:
    guard = tiny(StringRule(id="text", strings=("a<c.", "<t>")))
    assert written(guard, "a<c>x</c>a<t>y") is None  # as marks they are in no text
    assert written(guard, "a<c.") == "a<c"
    assert written(guard, "<c><t>") == "<c><t"


@pytest.mark.parametrize("kind", ["guarded", "free", "hidden"])
def test_reasoning_is_bound_as_the_policy_says(kind: Any) -> None:
    guard = tiny(WORD, applies_to={"reasoning": kind})
    text = "a<t>my ass</t>b"
    assert (written(guard, text) is None) == (kind != "guarded")
    assert verify(guard.policy, text, regions=REPLY).ok == (kind != "guarded")
    assert written(guard, "<c>my ass</c>") is not None
    assert written(guard, "my ass</t>") is not None


def test_a_policy_from_before_keeps_its_digest_and_others_have_their_own() -> None:
    plain = Policy(name="p", rules=[WORD])
    free = Policy(name="p", rules=[WORD], applies_to={"reasoning": "free"})
    assert "applies_to" not in plain.to_json()
    assert free.digest != plain.digest
    assert Policy.from_yaml(free.to_yaml()) == free
    with pytest.raises(PolicyError, match="reasoning"):
        Policy(name="p", rules=[WORD], applies_to={"reasoning": "never"})  # type: ignore[arg-type]


def test_findings_are_where_they_are_in_the_reply() -> None:
    policy = Policy(name="p", rules=[WORD, StringRule(id="plain", strings=["assume"])])
    report = verify(policy, "xass<c>ass</c>ume", regions=REPLY)
    assert [(f.rule_id, f.start, f.end) for f in report.findings] == [("plain", 1, 17), ("word", 7, 10)]


def test_a_rule_of_a_group_is_named_by_the_text_that_ends() -> None:
    guard = tiny(*(StringRule(id=word, strings=(word,), whole_word=True) for word in ("ass", "ume")))
    tables = guard.tables
    state = tables.start
    for byte in b"ass<c>um":
        assert tables.rules_at_fault(state, 0x3C) == (("ass",) if tables.next(state, 0x3C) < 0 else ())
        following = tables.next(state, byte)
        state = following if following >= 0 else tables.forced([state], [byte])
    assert tables.rules_at_fault(tables.next(state, ord("e")), 256) == ("ume",)


def test_a_tokenizer_whose_marks_are_special_tokens() -> None:
    tokenizer = tiny_tokenizer("byte-level", special_tokens=("<s>", "<t>", "</t>"))
    think, end = tokenizer.convert_tokens_to_ids(["<t>", "</t>"])
    guard = Guard(
        Policy(name="p", rules=[RegexRule(id="end", regex=r"as\Z")], applies_to={"reasoning": "hidden"})
    )
    session = guard.bind(tokenizer, regions=REPLY, skip_special_tokens=False).session()
    ids = tokenizer("as", add_special_tokens=False).input_ids
    for token in ids:
        session.advance(token)
    assert session.mask()[[think, tokenizer.eos_token_id]].all()
    assert not session.mask()[end]  # no mark in this field
    session.rollback(len(ids))
    for token in (think, *ids):
        session.advance(token)
    assert not session.mask()[[think, end, tokenizer.eos_token_id]].any()
    assert session.text == "<t>as"
    session.advance(tokenizer.eos_token_id)
    assert session.text == "<t>as"
    with pytest.raises(TokenizerError, match="skip_special_tokens"):
        guard.bind(tokenizer, regions=REPLY)
    with pytest.raises(TokenizerError, match="borders"):
        guard.bind(tokenizer, regions=REPLY, skip_special_tokens=False, borders="special")
    with pytest.raises(ArgumentError, match="regions"):
        guard.bind(tokenizer, regions="content")  # type: ignore[arg-type]
