"""Real generation with Mistral's own tokenizers, tekken and SentencePiece, as transformers reads them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.errors import UnsupportedError
from nco_guard.testing import random_model
from tests.tokens.mistral import MISTRAL, mistral, needs_mistral

pytestmark = [pytest.mark.slow, needs_mistral]

# A model with random weights writes pieces of words of all languages; these rules meet them in every text.
LETTER, SHORT, END = r"(?i)e", r"\b\w{1,3}\b", r"[a-z]$"


@pytest.fixture(scope="module", params=MISTRAL)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    torch.set_num_threads(1)
    tokenizer = mistral(request.param)
    return random_model(tokenizer, 1, hidden=8, spread=2.0), tokenizer


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_sample": True},
        {"num_beams": 3},
        {"do_sample": True, "num_return_sequences": 4},
        {"prompt_lookup_num_tokens": 2},
    ],
    ids=str,
)
def test_no_text_breaks_its_policy(pair: tuple[Any, Any], options: dict[str, Any]) -> None:
    model, tokenizer = pair
    rules = (
        StringRule(id="letter", strings=("e",), case="fold"),
        RegexRule(id="short", regex=SHORT),
        RegexRule(id="end", regex=END),
    )
    guard = Guard(Policy(name="p", rules=rules))
    torch.manual_seed(0)
    for prompt in ("Say it in one word:", "été 日本"):
        result = guard.generate(
            model, tokenizer, prompt, max_new_tokens=24, pad_token_id=tokenizer.eos_token_id, **options
        )
        prompt_length = tokenizer(prompt, return_tensors="pt").input_ids.shape[1]
        sequences = result.output if isinstance(result.output, torch.Tensor) else result.output.sequences
        for text, row in zip(result.texts, sequences, strict=True):
            assert text
            assert tokenizer.decode(row[prompt_length:], skip_special_tokens=True) == text
            for pattern in (LETTER, SHORT, END):
                assert not re.search(pattern, text), pattern


def test_unguarded_the_same_model_writes_what_is_forbidden(pair: tuple[Any, Any]) -> None:
    """Else the test above would prove nothing."""
    model, tokenizer = pair
    inputs = tokenizer("Say it in one word:", return_tensors="pt")
    torch.manual_seed(0)
    output = model.generate(**inputs, max_new_tokens=24, do_sample=True, num_return_sequences=8)
    texts = [tokenizer.decode(row[inputs.input_ids.shape[1] :], skip_special_tokens=True) for row in output]
    for pattern in (LETTER, SHORT, END):
        assert any(re.search(pattern, text) for text in texts), pattern


def test_a_soft_rule_costs_what_it_says(pair: tuple[Any, Any]) -> None:
    """Scores of the first step: less the penalty where the token brings an "e", the same bits elsewhere."""
    model, tokenizer = pair
    guard = Guard(Policy(name="p", rules=(StringRule(id="letter", strings=("e",), penalty=1.5),)))
    result = guard.generate(
        model,
        tokenizer,
        "Say it:",
        max_new_tokens=1,
        output_scores=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    scores, logits = result.output.scores[0][0], result.output.logits[0][0]
    tokens = guard.bind(tokenizer, vocab_width=scores.shape[0]).vocabulary.tokens
    costly = torch.tensor([b"e" in token for token in tokens]) & (scores > -torch.inf)
    plain = ~costly & (scores > -torch.inf)
    assert costly.sum() > 1000
    assert torch.equal(scores[costly], logits[costly] - 1.5)
    assert torch.equal(scores[plain], logits[plain])


def test_without_a_pad_token_of_its_own_several_sequences_are_refused() -> None:
    """The SentencePiece tokenizers name their unknown token, which reads as text."""
    tokenizer = mistral("tokenizer.model.v1")
    model = random_model(tokenizer, 1, hidden=8)
    guard = Guard(Policy(name="p", rules=(StringRule(id="letter", strings=("e",)),)))
    with pytest.raises(UnsupportedError, match="pad token"):
        guard.generate(model, tokenizer, "a", max_new_tokens=2, num_beams=2)


def test_a_batch_is_its_rows(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": tokenizer.eos_token_id}
    guard = Guard(Policy(name="p", rules=(RegexRule(id="short", regex=SHORT, context="prompt"),)))
    prompts = ["Say it in one word:", "été", "a b c d e f g"]
    together = guard.generate(model, tokenizer, prompts, **options)
    for row, prompt in enumerate(prompts):
        alone = guard.generate(model, tokenizer, prompt, **options)
        assert together.token_ids[row] == alone.token_ids[0]
        assert together.outcomes[row] == alone.outcomes[0]
