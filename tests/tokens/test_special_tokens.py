"""Special, added and padding tokens under a guard: what a reader gets is what counts."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from nco_guard.compiler import compile_policy
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.scan.definition import verify_by_definition
from nco_guard.session import BoundGuard
from nco_guard.testing import Family, tiny_tokenizer
from nco_guard.testing.tokenizers import FAMILIES
from nco_guard.tokens import Binding, read_vocabulary

STRINGS = StringRule(id="strings", strings=("fuck", "b<s>"))


def bind(tokenizer: Any, *rules: Rule, **options: Any) -> BoundGuard:
    compiled = compile_policy(Policy(name="specials", rules=rules or (STRINGS,)))
    return BoundGuard(compiled, read_vocabulary(tokenizer, Binding(**options)))


def letter(bound: BoundGuard, text: str) -> int:
    """A token that adds exactly this text in the middle of a word."""
    raw = text.encode()
    wanted = (b"\xff" + raw, raw) if bound.vocabulary.rewriting is not None else (raw,)
    return next(bound.vocabulary.tokens.index(each) for each in wanted if each in bound.vocabulary.tokens)


@pytest.fixture(scope="module", params=FAMILIES)
def guards(request: pytest.FixtureRequest) -> tuple[Any, BoundGuard, BoundGuard]:
    """One tokenizer, guarded with special tokens skipped and kept."""
    tokenizer = tiny_tokenizer(request.param, special_tokens=("<s>", "<sep>", "<turn>"))
    return tokenizer, bind(tokenizer), bind(tokenizer, skip_special_tokens=False)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_word_cut_by_skipped_special_tokens_is_blocked(guards: Any, data: st.DataObject) -> None:
    """`fu`, special tokens, `ck`: one word if they are skipped, and two if their text is kept."""
    tokenizer, skipped, kept = guards
    specials = [tokenizer.convert_tokens_to_ids(text) for text in ("<s>", "<sep>", "<turn>", "<pad>")]
    word = [letter(skipped, character) for character in "fuck"]
    between = data.draw(st.lists(st.lists(st.sampled_from(specials), max_size=3), min_size=3, max_size=3))
    ids = [word[0], *between[0], word[1], *between[1], word[2], *between[2]]
    cut = any(between)
    for bound, skip in ((skipped, True), (kept, False)):
        session = bound.session()
        for token in ids:
            session.advance(token)
        assert session.mask()[word[3]] == (skip or not cut)
        text = tokenizer.decode([*ids, word[3]], skip_special_tokens=skip)
        assert ("fuck" in text) == (skip or not cut)


def test_the_text_of_a_kept_special_token_is_matched(guards: Any) -> None:
    tokenizer, skipped, kept = guards
    special = tokenizer.convert_tokens_to_ids("<s>")
    for bound, blocked in (
        (skipped, False),
        (kept, "b<s>" in tokenizer.decode([letter(kept, "b"), special])),
    ):
        session = bound.session()
        session.advance(letter(bound, "b"))
        assert session.mask()[special] == blocked


@pytest.mark.parametrize("family", FAMILIES)
def test_every_end_of_sequence_id_ends_and_is_withheld_where_the_text_may_not_end(family: Family) -> None:
    tokenizer = tiny_tokenizer(family, special_tokens=("<s>", "<turn>"))
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<turn>")]
    bound = bind(tokenizer, RegexRule(id="end", regex=r"s\Z"), eos_token_ids=ends)
    assert bound.vocabulary.eos_ids == tuple(sorted(ends))
    for end in ends:
        session = bound.session()
        session.advance(letter(bound, "s"))
        assert session.mask()[ends].all()
        session.advance(letter(bound, "t"))
        assert not session.mask()[ends].any()
        session.advance(end)
        assert session.ended


@pytest.mark.parametrize("family", FAMILIES)
def test_added_tokens_past_the_vocabulary_are_text(family: Family) -> None:
    """Not special, with ids past `vocab_size`: read like any other token, whatever is skipped."""
    tokenizer = tiny_tokenizer(family)
    base = tokenizer.vocab_size
    tokenizer.add_tokens(["fuckery", AddedToken("plain", normalized=False), "uckx"])
    for skip in (True, False):
        bound = bind(tokenizer, skip_special_tokens=skip)
        added = {text: tokenizer.convert_tokens_to_ids(text) for text in ("fuckery", "plain", "uckx")}
        assert min(added.values()) >= base
        mask = bound.session().mask()
        assert mask[added["fuckery"]]
        assert not mask[added["plain"]]
        session = bound.session()
        session.advance(letter(bound, "f"))
        glued = "fuck" in tokenizer.decode([letter(bound, "f"), added["uckx"]])
        assert session.mask()[added["uckx"]] == glued


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_columns_are_always_forbidden(family: Family) -> None:
    tokenizer = tiny_tokenizer(family)
    plain, padded = bind(tokenizer), bind(tokenizer, vocab_width=len(tokenizer) + 60)
    rng = random.Random(0)
    one, other = plain.session(), padded.session()
    for _ in range(30):
        mask = other.mask()
        assert mask[len(tokenizer) :].all()
        assert np.array_equal(mask[: len(tokenizer)], one.mask())
        token = rng.choice(np.flatnonzero(~mask).tolist())
        one.advance(token)
        other.advance(token)
        if one.ended:
            break


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cleanup", [False, True])
def test_random_texts_keep_the_policy_and_are_what_decode_returns(family: Family, cleanup: bool) -> None:
    """Random walks through the masks: no text breaks a rule, and `decode` returns the guarded text."""
    tokenizer = tiny_tokenizer(family)
    tokenizer.add_tokens(["n't", "?", "'"])
    tokenizer.clean_up_tokenization_spaces = cleanup
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = cleanup
    rules = (
        StringRule(id="strings", strings=("fu", "e's", "s.", "a?", "th")),
        RegexRule(id="word", regex=r"\bas?\b", case="fold"),
        RegexRule(id="signs", regex=r"[.?!']{2}|\w[?']\Z"),
    )
    bound = bind(tokenizer, *rules)
    compiled = compile_policy(Policy(name="specials", rules=rules))
    rng, ended = random.Random(5), 0
    tempting = [
        index
        for index, token in enumerate(bound.vocabulary.tokens)
        if token.strip(b" \xff")
        in (b"a", b"s", b"as", b"f", b"u", b".", b"?", b"'", b"e", b"t", b"h", b"n't", b"")
    ]
    for _ in range(40):
        session = bound.session()
        for _ in range(20):
            allowed = ~session.mask()
            choices = [index for index in tempting if allowed[index]] if rng.random() < 0.7 else []
            choices = choices or np.flatnonzero(allowed).tolist()
            session.advance(rng.choice(choices))
            if session.ended:
                break
            if session.may_end:
                assert verify_by_definition(compiled, session.text).ok
                assert session.text == tokenizer.decode(list(session.token_ids), skip_special_tokens=True)
                ended += 1
    assert ended > 50
