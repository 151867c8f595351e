"""Rules that read the prompt: masks, verifier and generation agree on what crosses the border."""

from __future__ import annotations

import random
import re
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest

from nco_guard import Guard, Policy, RegexRule, StringRule, verify
from nco_guard.testing import Family, biased_model, tiny_tokenizer
from tests.automata import patterns
from tests.binding import bind as bind_bytes

bind = partial(bind_bytes, merges=("ass", "du", "ck", "ling", "99"))


def test_a_match_that_only_the_prompt_prevents_is_no_finding() -> None:
    """After "cl", "ass" makes "class"."""
    policy = Policy(name="p", rules=(RegexRule(id="word", regex=r"\bass\b", context="prompt"),))
    assert verify(policy, "ass", context="cl").ok
    assert not verify(policy, "ass", context="cl ").ok
    assert not verify(policy, "ass").ok
    tokenizer = tiny_tokenizer("byte-level")
    model = biased_model(tokenizer, ("class", "ass "), 1)
    result = Guard(policy).generate(model, tokenizer, "the cl", max_new_tokens=6)
    assert result.reports[0].ok
    assert not re.search(r"\bass\b", "the cl" + result.texts[0])


def test_a_match_within_the_prompt_is_not_reported_but_its_longer_form_is() -> None:
    policy = Policy(name="p", rules=(RegexRule(id="duck", regex=r"duck(?:ling)?", context="prompt"),))
    assert verify(policy, "s", context="a duck").ok
    (found,) = verify(policy, "lings", context="a duck").findings
    assert (found.start, found.end) == (0, 4)
    bound = bind(*policy.rules)
    session = bound.session(context="a duck")
    assert session.mask()[bound.vocabulary.tokens.index(b"ling")]
    assert not session.mask()[bound.vocabulary.tokens.index(b"du")]


def test_a_prompt_that_is_past_the_stop_point_does_not_open_the_way_to_the_whole_match() -> None:
    rule = RegexRule(id="ssn", regex=r"\d{3}-\d{2}-\d{4}", stop_at=r"\d{3}-\d{2}-\d{2}", context="prompt")
    bound = bind(rule)
    session = bound.session(context="it is 123-45-67")
    nines = bound.vocabulary.tokens.index(b"99")
    assert session.mask()[nines]
    assert not bound.session(context="it is 123-45").mask()[nines]


@pytest.mark.parametrize(
    ("rule", "prompt", "goes_on", "stays_free"),
    [
        (RegexRule(id="r", regex=r"\bass\b", context="prompt"), "an ass", " ass", ""),
        (StringRule(id="r", strings=("ass",), whole_word=True, context="prompt"), "an ass", " ass", "ist"),
        (RegexRule(id="r", regex=r"ass(?= du)", context="prompt"), "an ass", " ass du", " du"),
        (RegexRule(id="r", regex=r"ass(?! du)", context="prompt"), "an ass", " ass ", " x"),
        (RegexRule(id="r", regex=r"duck(?:ling)?\b", context="prompt"), "a duck", "ling", ", a du"),
        (RegexRule(id="r", regex=r"\b\d{2,4}\b", checksum="luhn", context="prompt"), "is 18", "26", ""),
        (
            StringRule(id="r", strings=("ass",), whole_word=True, ignore=("*",), context="prompt"),
            "as*s",
            " a*ss",
            "*",
        ),
        (StringRule(id="r", strings=("u00",), json_escapes=True, context="prompt"), "\\u00", "x u00", "x"),
        (StringRule(id="r", strings=("f",), json_escapes=True, context="prompt"), "\\u00", "66", "67"),
    ],
)
def test_a_match_that_ends_in_the_prompt_does_not_count_even_if_the_output_decides_it(
    rule: RegexRule | StringRule, prompt: str, goes_on: str, stays_free: str
) -> None:
    """What stands in the prompt is not the model's doing: it may end there, or go on as it likes."""
    guard = bind(rule)

    def writes(text: str) -> bool:
        session = guard.session(prompt)
        for byte in text.encode():
            if session.mask()[byte]:
                return False
            session.advance(byte)
        return session.may_end

    assert writes("")
    assert writes(stays_free)
    assert verify(guard.policy, stays_free, context=prompt).ok
    assert not writes(goes_on)
    assert not verify(guard.policy, goes_on, context=prompt).ok


@pytest.mark.parametrize("seed", range(3))
def test_what_the_masks_forbid_is_what_ends_in_the_output(seed: int) -> None:
    """By `re` on the joined text: a token may be written iff no match ends in the output, whatever follows."""
    rng = random.Random(seed)
    checked = 0
    while checked < 150:
        pattern, flags = patterns.valid_pattern(rng, 3)
        if flags or (
            any(mark in pattern for mark in ("(?", "\\b", "\\B", "$", "^", "\\A", "\\Z", "*?"))
            and ("(?:" not in pattern or re.search(r"\(\?[^:]|\\[bBAZ]|[$^]", pattern))
        ):
            continue
        if re.search(pattern, ""):
            continue
        context, text = patterns.text(rng, 5), patterns.text(rng, 4)
        bound = bind(RegexRule(id="r", regex=pattern, context="prompt"))
        vocabulary = bound.vocabulary
        session = bound.session(context=context)
        blocked = False
        for byte in text.encode():
            token = vocabulary.tokens.index(bytes([byte]))
            if token in session.forbidden_ids():
                blocked = True
                break
            session.advance(token)
        joined = context + text
        spans = [
            (start, end)
            for end in range(len(context) + 1, len(joined) + 1)
            for start in range(end)
            if re.compile(pattern).fullmatch(joined, start, end)
        ]
        # Some texts are blocked earlier: every way on from them completes a match.
        assert blocked or not spans, (pattern, context, text)
        if spans:
            checked += 1
        if not blocked:
            assert verify(bound.policy, text, context=context).ok
            checked += 1


def test_rules_about_the_output_alone_see_it_without_the_space_that_decoding_drops() -> None:
    """Beside a rule that reads the prompt, for which that space stands between prompt and output."""
    tokenizer: Any = tiny_tokenizer("byte-fallback")
    model = biased_model(tokenizer, (" what is this",), 2, bonus=40.0)
    rules = (
        RegexRule(id="starts with a space", regex=r"\A\s"),
        StringRule(id="s", strings=("fuck", "x what"), context="prompt"),
    )
    guard = Guard(Policy(name="p", rules=rules))
    spaced = 0
    for prompt in ("the", "a b"):
        result = guard.generate(model, tokenizer, prompt, max_new_tokens=8)
        assert result.reports[0].ok
        spaced += tokenizer.convert_ids_to_tokens(result.token_ids[0][0]).startswith("▁")
    assert spaced


@pytest.mark.parametrize("family", ["byte-level", "byte-fallback", "unigram"])
def test_generation_never_completes_what_the_prompt_began(family: str) -> None:
    tokenizer: Any = tiny_tokenizer(family)
    model = biased_model(tokenizer, ("fuck", "@enron.com"), 2)
    rules = (
        StringRule(id="s", strings=("fuck",), context="prompt"),
        RegexRule(id="m", regex=r"\w+@\w+\.com", context="prompt"),
    )
    guard = Guard(Policy(name="p", rules=rules))
    for prompt in ("what fu", "jo@enron.c", "the jo"):
        for sampled in (False, True):
            result = guard.generate(model, tokenizer, prompt, max_new_tokens=8, do_sample=sampled)
            ids = tokenizer(prompt, return_tensors="np").input_ids[0]
            joined = tokenizer.decode(np.concatenate([ids, result.token_ids[0]]), skip_special_tokens=True)
            assert not re.search(r"fuck|\w+@\w+\.com", joined), joined


@pytest.mark.parametrize("family", get_args(Family))
def test_the_text_of_a_prompt_is_what_decode_reads_past_its_ends_of_sequence(family: Family) -> None:
    """Chat templates put one after each turn. A first space is kept, which `decode` may drop."""
    tokenizer: Any = tiny_tokenizer(family)
    reads, does_not = (
        Guard(Policy(name="p", rules=(StringRule(id="s", strings=("zzz",), context=context),))).bind(
            tokenizer
        )
        for context in ("prompt", "output")
    )
    turns = [tokenizer("what is , the end", add_special_tokens=False).input_ids for _ in range(3)]
    ids = [token for turn in turns for token in (*turn, tokenizer.eos_token_id)]
    text = reads.prompt_text(ids)
    assert text.strip(" ") == tokenizer.decode(ids, skip_special_tokens=True).strip(" ") != ""
    assert len(text) > 2 * len(reads.prompt_text(turns[0]))
    assert reads.prompt_text("what") == "what"
    assert reads.prompt_text(None) == does_not.prompt_text(ids) == does_not.prompt_text("what") == ""
