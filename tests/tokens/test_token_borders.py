"""Tokenizers with borders: what a reader gets of the raw reply, and where it is cut."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.errors import ArgumentError, ArgumentValueError, TokenizerError
from nco_guard.testing import Family, tiny_tokenizer
from nco_guard.testing.tokenizers import FAMILIES
from nco_guard.tokens import Binding, TextPieces, read_vocabulary, shared_vocabulary
from tests.tokens.mistral import MISTRAL, mistral, needs_mistral

SPECIAL = ("<s>", "<|call|>", "[ARGS]")
CUTTING = [family for family in FAMILIES if family != "wordpiece"]


def special_ids(tokenizer: Any) -> list[int]:
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    return [index for index, token in added.items() if token.special]


def some_ids(tokenizer: Any, rng: random.Random) -> list[int]:
    specials = special_ids(tokenizer)
    special = [index for index in specials if index != tokenizer.eos_token_id]
    plain = [index for index in range(len(tokenizer)) if index not in specials]
    return [rng.choice(special if rng.random() < 0.3 else plain) for _ in range(rng.randint(0, 9))]


@pytest.mark.parametrize("family", CUTTING)
def test_a_text_with_borders_is_what_decode_keeps_and_parts_are_what_stands_between(family: Family) -> None:
    tokenizer = tiny_tokenizer(family, special_tokens=SPECIAL)
    vocabulary = read_vocabulary(tokenizer, Binding(borders="special"))
    literals = [tokenizer.convert_ids_to_tokens(token) for token in special_ids(tokenizer)]
    rng, several = random.Random(3), 0
    for _ in range(400):
        ids = some_ids(tokenizer, rng)
        if rng.random() < 0.3:
            ids.append(tokenizer.eos_token_id)
        text = tokenizer.decode(ids, skip_special_tokens=False)
        if "\ufffd" in text:
            continue
        assert vocabulary.text_of(ids) == text
        ended = text.removesuffix(tokenizer.eos_token)
        parts = re.split("|".join(map(re.escape, literals)), ended)
        assert vocabulary.parts_of(ids) == parts
        assert vocabulary.searched(ids) == "".join(parts)
        pieces = TextPieces(vocabulary)
        assert "".join([*(pieces.feed([token]) for token in ids), pieces.finish()]) == text
        several += len(parts) > 2
    assert several > 20


@pytest.mark.parametrize("family", CUTTING)
def test_prompts_are_read_as_ever(family: Family) -> None:
    tokenizer = tiny_tokenizer(family, special_tokens=SPECIAL)
    for skip in (True, False):
        plain = read_vocabulary(tokenizer, Binding(skip_special_tokens=skip))
        cutting = read_vocabulary(tokenizer, Binding(skip_special_tokens=skip, borders="special"))
        rng = random.Random(4)
        for _ in range(50):
            ids = some_ids(tokenizer, rng)
            assert cutting.context_bytes(ids) == plain.context_bytes(ids)
            assert cutting.continuation_of(ids, ()) == plain.continuation_of(ids, ())


def test_ids_are_borders_one_by_one_and_other_special_tokens_stay_what_they_were() -> None:
    tokenizer = tiny_tokenizer("byte-level", special_tokens=SPECIAL)
    tokenizer.add_tokens(["<tool>"])
    call, tool, args = map(tokenizer.convert_tokens_to_ids, ("<|call|>", "<tool>", "[ARGS]"))
    letter = tokenizer("a", add_special_tokens=False).input_ids[0]
    vocabulary = read_vocabulary(tokenizer, Binding(borders=(call, tool)))
    assert vocabulary.borders == tuple(sorted((call, tool)))
    assert vocabulary.text_of([letter, call, letter, args, tool, letter]) == "a<|call|>a<tool>a"
    assert vocabulary.parts_of([letter, call, letter, args, tool, letter]) == ["a", "a", "a"]
    assert args in vocabulary.silent_ids
    assert call not in vocabulary.silent_ids


@needs_mistral
@pytest.mark.parametrize("name", MISTRAL[1:])
def test_mistral_tokens_cut_too(name: str) -> None:
    tokenizer = mistral(name)
    inner = tokenizer.tokenizer.instruct_tokenizer.tokenizer
    call = next(
        i for i in range(inner.n_words) if inner.is_special(i) and "TOOL_CALLS" in inner.id_to_piece(i)
    )
    plain = read_vocabulary(tokenizer)
    vocabulary = read_vocabulary(tokenizer, Binding(borders="special"))
    letter = plain.tokens.index(b"a")
    assert vocabulary.text_of([letter, call, letter]) == "a[TOOL_CALLS]a"
    assert vocabulary.parts_of([letter, call, letter]) == ["a", "a"]
    guard = Guard(
        Policy(name="p", rules=[StringRule(id="aa", strings=["aa"]), RegexRule(id="end", regex=r"b\Z")])
    )
    session = guard.bind(tokenizer, borders="special").session()
    session.advance(letter)
    session.advance(call)
    assert session.mask()[letter]
    session.advance(plain.tokens.index(b"b"))
    assert session.mask()[call]


def test_what_cannot_be_cut_is_refused_by_name() -> None:
    tokenizer = tiny_tokenizer("byte-level")
    with pytest.raises(TokenizerError, match="borders"):
        read_vocabulary(tokenizer, Binding(borders=(len(tokenizer) + 3,)))
    with pytest.raises(TokenizerError, match="clean_up_tokenization_spaces"):
        read_vocabulary(tiny_tokenizer("wordpiece"), Binding(borders="special"))
    guard = Guard(Policy(name="p", rules=[StringRule(id="a", strings=["a"])]))
    for given, error in (("all", ArgumentValueError), (3, ArgumentError), (["<s>"], ArgumentError)):
        with pytest.raises(error, match="borders"):
            guard.bind(tokenizer, borders=given)


def test_a_guard_is_bound_once_for_each_set_of_borders() -> None:
    tokenizer = tiny_tokenizer("byte-level", special_tokens=SPECIAL)
    guard = Guard(Policy(name="p", rules=[StringRule(id="a", strings=["a"])]))
    call = tokenizer.convert_tokens_to_ids("<|call|>")
    bound = guard.bind(tokenizer, borders=[call])
    assert guard.bind(tokenizer, borders={call}) is bound
    assert guard.bind(tokenizer) is not bound
    assert (
        guard.with_rules(StringRule(id="b", strings=["b"])).bind(tokenizer, borders=[call]).vocabulary.borders
    )
    assert shared_vocabulary(tokenizer, Binding(borders=(call,))) is bound.vocabulary


def test_a_cache_changes_nothing_and_tells_borders_apart(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer("byte-level", special_tokens=SPECIAL)
    rules = [
        RegexRule(id="word", regex=r"\bass\b", case="fold"),
        StringRule(id="plain", strings=["fox jumps"]),
        StringRule(id="words", strings=["lazy", "dog"], whole_word=True),
    ]
    policy = Policy(name="p", rules=rules)
    call = tokenizer.convert_tokens_to_ids("<|call|>")
    ids = tokenizer("class of ass lazy fox", add_special_tokens=False).input_ids
    for borders in (None, "special", [call], "special", None):
        kept, fresh = (
            Guard(policy, cache=cache).bind(tokenizer, borders=borders).session()
            for cache in (tmp_path, False)
        )
        for token in [*ids[:3], call, *ids[3:]]:
            assert np.array_equal(kept.forbidden_ids(), fresh.forbidden_ids())
            if kept.mask()[token]:
                continue
            kept.advance(token)
            fresh.advance(token)
        kept._text.bound.save()
