"""Real vocabularies, each read exactly: against `decode`, and masks against their definition.

`NCO_GUARD_TOKENIZERS` names a folder with the subfolders `gpt2`, `llama2`, `llama3` and `qwen`, as
`save_pretrained` writes them. Mistral's tokenizers come with the package mistral-common.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from nco_guard.compiler import compile_policy
from nco_guard.masking import bruteforce
from nco_guard.policy import Policy, presets
from nco_guard.session import BoundGuard
from nco_guard.tokens import Binding, Vocabulary, read_vocabulary
from tests.tokens.mistral import MISTRAL, mistral, needs_mistral

pytestmark = pytest.mark.slow

NAMES = ["gpt2", "llama2", "llama3", "qwen"]
needs_folder = pytest.mark.skipif("NCO_GUARD_TOKENIZERS" not in os.environ, reason="needs real tokenizers")


def real(name: str) -> Any:
    folder = Path(os.environ["NCO_GUARD_TOKENIZERS"]) / name
    if not folder.is_dir():
        pytest.skip(f"no folder {name}")
    return AutoTokenizer.from_pretrained(folder)


def well_formed(vocabulary: Vocabulary, ids: list[int]) -> bool:
    marks = vocabulary.rewriting.marks if vocabulary.rewriting is not None else b""
    raw = vocabulary.raw_bytes(ids)
    parts = re.split(b"[" + re.escape(marks) + b"]", raw) if marks else [raw]
    try:
        return all(part.decode() is not None for part in parts)
    except UnicodeDecodeError:
        return False


def agree(tokenizer: Any, skip: bool, count: int = 6000) -> None:
    """Random ids, special tokens and single bytes among them, decode to `text_of`."""
    vocabulary = read_vocabulary(tokenizer, Binding(skip_special_tokens=skip))
    rng, compared = random.Random(1), 0
    ends = {*vocabulary.eos_ids, *vocabulary.unusable_ids}
    usable = [index for index in range(vocabulary.width) if index not in ends]
    kinds = [
        usable,
        [index for index in usable if len(vocabulary.tokens[index]) <= 2],
        [index for index in vocabulary.special_ids if index not in ends] or usable,
    ]
    for _ in range(count):
        ids = [rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 6))]
        if well_formed(vocabulary, ids):
            compared += 1
            assert vocabulary.text_of(ids) == tokenizer.decode(ids, skip_special_tokens=skip), ids
    assert compared > count / 6


@needs_folder
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_real_vocabularies_decode_as_they_are_read(name: str, skip: bool) -> None:
    agree(real(name), skip)


@needs_mistral
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("name", MISTRAL)
def test_mistral_vocabularies_decode_as_they_are_read(name: str, skip: bool) -> None:
    """tekken, and SentencePiece as mistral-common reads it."""
    agree(mistral(name), skip)


@needs_folder
@pytest.mark.parametrize("name", NAMES)
def test_columns_past_a_real_vocabulary_are_unusable(name: str) -> None:
    tokenizer = real(name)
    plain = read_vocabulary(tokenizer)
    padded = read_vocabulary(tokenizer, Binding(vocab_width=plain.width + 64))
    assert padded.tokens[: plain.width] == plain.tokens
    assert padded.unusable_ids[-64:] == tuple(range(plain.width, plain.width + 64))
    bound = BoundGuard(compile_policy(policy()), padded)
    assert bound.session().mask()[-64:].all()


def policy() -> Policy:
    rules = (
        *presets.load("ldnoobw", languages=["en"], substring=True),
        *presets.load("pii_paper"),
    )
    return Policy(name="strings and numbers", rules=rules)


TEXTS = [
    "john.doe@enron",
    "call 555-123-",
    "078-05-11",
    "what the fu",
    " as",
    "caf",
    "4111 1111 1111 111",
    " ",
]


def masks_equal_the_definition(tokenizer: Any, states: int) -> None:
    vocabulary = read_vocabulary(tokenizer)
    bound = BoundGuard(compile_policy(policy()), vocabulary)
    rng = random.Random(2)
    tables = bound.tables
    for text in rng.sample(TEXTS, states):
        state = tables.start
        for token in tokenizer.encode(text, add_special_tokens=False):
            reached = tables.next(state, token)
            state = reached if reached >= 0 else state
        # One constraint at a time, and a part of the vocabulary that holds every token that could matter.
        forbidden = tables.forbidden(state)
        chosen = np.unique(
            [
                *rng.sample(range(vocabulary.width), 3000),
                *rng.sample(forbidden.tolist(), min(400, len(forbidden))),
            ]
        )
        part = Vocabulary.build(
            [vocabulary.tokens[index] for index in chosen],
            eos_ids=[at for at, index in enumerate(chosen) if index in vocabulary.eos_ids],
            unusable_ids=[at for at, index in enumerate(chosen) if index in vocabulary.unusable_ids],
            rewriting=vocabulary.rewriting,
            strips_first_space=vocabulary.strips_first_space,
        )
        expected = bruteforce.forbidden(tables.constraints, tables.components(state), part)
        assert np.array_equal(expected, np.isin(chosen, forbidden)), text


@needs_folder
@pytest.mark.parametrize("name", NAMES)
def test_masks_over_real_vocabularies_equal_the_definition(name: str) -> None:
    masks_equal_the_definition(real(name), states=5)


@needs_mistral
@pytest.mark.parametrize("name", MISTRAL)
def test_masks_over_mistral_vocabularies_equal_the_definition(name: str) -> None:
    masks_equal_the_definition(mistral(name), states=3)


@needs_mistral
def test_mistral_special_tokens_separate_characters() -> None:
    """decode() begins anew after a skipped special token, so no character may go on there."""
    tokenizer = mistral("tekken_240911.json")
    session = BoundGuard(compile_policy(policy()), read_vocabulary(tokenizer)).session()
    tokens, special = session._text.bound.vocabulary.tokens, session._text.bound.vocabulary.special_ids
    lead, rest = tokens.index(b"\xc3"), tokens.index(b"\xa9")
    silent = next(index for index in special if index != tokenizer.eos_token_id)
    assert not session.mask()[silent]
    session.advance(lead)
    assert session.mask()[silent]
    assert not session.mask()[rest]


@needs_mistral
def test_mistral_cleanup_is_refused() -> None:
    from nco_guard.errors import TokenizerError

    tokenizer = mistral("tekken_240911.json")
    tokenizer.clean_up_tokenization_spaces = True
    with pytest.raises(TokenizerError, match="clean_up_tokenization_spaces"):
        read_vocabulary(tokenizer)
