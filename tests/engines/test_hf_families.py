"""Guarded generation with other tokenizers and models: WordPiece, cleaned texts, encoder-decoder models."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from tokenizers import decoders
from transformers import (
    BertConfig,
    BertLMHeadModel,
    BertTokenizer,
    GenerationConfig,
    StoppingCriteria,
    TextStreamer,
)

from nco_guard.engines.hf import generate, stream
from nco_guard.errors import UnsupportedError
from nco_guard.policy import RegexRule, StringRule
from nco_guard.testing import biased_model, random_model, tiny_tokenizer
from nco_guard.testing.tokenizers import FAMILIES

PROMPTS = ["what the", "a class of passengers said", "the lazy dog"]
WANTED = (
    "fuck",
    " fuck",
    "ass.",
    " ass",
    "jo@enron.com",
    " .com",
    "enron .com",
    "n .",
    " ' s",
    "e 's",
    " n't",
    " ?",
)


def cleaned(family: str) -> Any:
    """A tokenizer whose decode() cleans up; with tokens for what is cleaned away."""
    tokenizer = tiny_tokenizer(family)
    if family == "wordpiece":
        # Its decoder cleans token by token already; left to itself, the whole text is cleaned.
        tokenizer.backend_tokenizer.decoder = decoders.WordPiece(cleanup=False)
        tokenizer.add_tokens([".", "?", "'", "n't"])
    tokenizer.clean_up_tokenization_spaces = True
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    return tokenizer


@pytest.fixture(scope="module", params=FAMILIES)
def cleaning(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    tokenizer = cleaned(request.param)
    return tokenizer, biased_model(tokenizer, WANTED)


@pytest.fixture(scope="module")
def wordpiece() -> tuple[Any, Any]:
    tokenizer = tiny_tokenizer("wordpiece")
    return tokenizer, biased_model(tokenizer, WANTED)


@pytest.fixture(scope="module")
def seq2seq() -> tuple[Any, Any]:
    tokenizer = tiny_tokenizer("unigram")
    tokenizer.padding_side = "right"
    return tokenizer, biased_model(tokenizer, ("fuck", "jo@enron.com", "ass"), seq2seq=True)


@pytest.fixture
def strict(guard_of: Any) -> Any:
    """Rules that only cleaned texts meet, among others."""
    return guard_of(
        StringRule(id="strings", strings=("fuck", "n.c", "e's")),
        StringRule(id="word", strings=("ass",), whole_word=True, case="fold"),
        RegexRule(id="mail", regex=r"[a-z]+@[a-z]+\.com"),
        RegexRule(id="dots", regex=r"[a-z]\.$"),
        RegexRule(id="many", regex=r"[.?!]{3}"),
    )


MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True, "num_return_sequences": 4},
    "hot": {"do_sample": True, "num_return_sequences": 4, "temperature": 5.0},
    "beams": {"num_beams": 4, "num_return_sequences": 3},
}


def check(guard: Any, tokenizer: Any, model: Any, options: dict[str, Any], seeds: int = 2) -> list[str]:
    texts: list[str] = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        result = generate(guard, model, tokenizer, PROMPTS, max_new_tokens=25, **options)
        for text, ids, report in zip(result.texts, result.token_ids, result.reports, strict=True):
            assert report.ok
            assert guard.clean(text)
            assert text == tokenizer.decode(ids, skip_special_tokens=True)
            texts.append(text)
    return texts


@pytest.mark.parametrize("mode", MODES)
def test_wordpiece_texts_keep_the_policy(mode: str, wordpiece: Any, strict: Any) -> None:
    check(strict, *wordpiece, MODES[mode])


def test_bert_as_a_decoder_keeps_the_policy(guard_of: Any) -> None:
    """BERT's own classes, whose end of sequence the model alone knows."""
    letters = "abcdefghijklmnopqrstuvwxyz.@?'"
    named = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = BertTokenizer(vocab={piece: index for index, piece in enumerate(named)}, padding_side="left")
    config = BertConfig(
        vocab_size=len(named),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        is_decoder=True,
        eos_token_id=tokenizer.sep_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertLMHeadModel(config).eval()
    guard = guard_of(
        StringRule(id="pairs", strings=("ab", "e", "x.", "##a")), RegexRule(id="end", regex=r"[m-z]\Z")
    )
    torch.manual_seed(0)
    result = generate(
        guard, model, tokenizer, ["a b", "c"], max_new_tokens=20, do_sample=True, num_return_sequences=8
    )
    for text, ids in zip(result.texts, result.token_ids, strict=True):
        assert guard.clean(text)
        assert text == tokenizer.decode(ids, skip_special_tokens=True)
    assert any(text.startswith("##") for text in result.texts)
    assert {"ended", "length"} & set(result.outcomes)


@pytest.mark.parametrize("mode", MODES)
def test_cleaned_texts_keep_the_policy(mode: str, cleaning: Any, strict: Any) -> None:
    """What counts is the text after `clean_up_tokenization_spaces`, whatever the family."""
    check(strict, *cleaning, MODES[mode])


def test_unguarded_texts_are_rewritten_into_what_is_forbidden(cleaning: Any, strict: Any) -> None:
    """Else the other tests would prove nothing: matches appear in texts that had none before the cleanup."""
    tokenizer, model = cleaning
    inputs = tokenizer(PROMPTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    torch.manual_seed(0)
    output = model.generate(**inputs, max_new_tokens=25, do_sample=True, num_return_sequences=60)
    new = 0
    for row in output[:, inputs.input_ids.shape[1] :].tolist():
        before = tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        after = tokenizer.decode(row, skip_special_tokens=True)
        for rule in (r"n\.c", r"e's", r"[a-z]\.$", r"[.?!]{3}"):
            new += bool(re.search(rule, after)) and not re.search(rule, before)
    assert new > 0


@pytest.mark.parametrize("limit", range(1, 8))
def test_cleaned_texts_may_end_at_the_limit(limit: int, cleaning: Any, strict: Any) -> None:
    tokenizer, model = cleaning
    torch.manual_seed(limit)
    result = generate(
        strict, model, tokenizer, PROMPTS, max_new_tokens=limit, do_sample=True, num_return_sequences=3
    )
    assert all(map(strict.clean, result.texts))
    assert set(result.outcomes) <= {"length", "ended"}


def test_streams_of_rewritten_text_are_never_taken_back(cleaning: Any, strict: Any) -> None:
    tokenizer, model = cleaning
    for seed in range(3):
        options: dict[str, Any] = {"max_new_tokens": 25, "do_sample": True}
        torch.manual_seed(seed)
        expected = generate(strict, model, tokenizer, "what the", **options).texts[0]
        torch.manual_seed(seed)
        assert "".join(stream(strict, model, tokenizer, "what the", **options)) == expected
    with pytest.raises(UnsupportedError, match="rewrites"):
        generate(
            strict, model, tokenizer, "what the", streamer=TextStreamer(tokenizer, skip_special_tokens=True)
        )


def test_a_cleaned_prompt_and_its_answer_read_as_one_text(guard_of: Any) -> None:
    tokenizer = cleaned("byte-level")
    for prompt in ("jo@enron ", tokenizer("jo@enron ").input_ids):
        bound = guard_of(RegexRule(id="mail", regex=r"[a-z]+@[a-z]+\.com", context="prompt")).bind(tokenizer)
        session = bound.session(context=prompt)
        for token in tokenizer(".co").input_ids:
            session.advance(token)
        assert session.mask()[tokenizer("m").input_ids[0]]


def test_a_setting_switched_after_binding_is_noticed(guard_of: Any) -> None:
    tokenizer = cleaned("byte-level")
    guard = guard_of(StringRule(id="dot", strings=("a.",)))
    n, dot = tokenizer("a").input_ids[0], tokenizer(" .").input_ids
    for cleanup in (True, False, True):
        tokenizer.clean_up_tokenization_spaces = cleanup
        session = guard.bind(tokenizer).session()
        session.advance(n)
        for token in dot[:-1]:
            session.advance(token)
        assert session.mask()[dot[-1]] == cleanup


# Encoder-decoder models


@pytest.mark.parametrize("mode", [*MODES, "beam sampling", "penalties"])
def test_encoder_decoder_texts_keep_the_policy(mode: str, seq2seq: Any, guard: Any) -> None:
    more = {
        "beam sampling": {"num_beams": 3, "do_sample": True},
        "penalties": {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "min_new_tokens": 8},
    }
    check(guard, *seq2seq, {**MODES, **more}[mode])


def test_the_unguarded_encoder_decoder_writes_what_is_forbidden(seq2seq: Any, guard: Any) -> None:
    tokenizer, model = seq2seq
    inputs = tokenizer(PROMPTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    torch.manual_seed(0)
    output = model.generate(**inputs, max_new_tokens=25, do_sample=True, num_return_sequences=8)
    texts = tokenizer.batch_decode(output, skip_special_tokens=True)
    assert sum(not guard.clean(text) for text in texts) >= 4


def test_what_the_encoder_reads_matters(seq2seq: Any, guard: Any) -> None:
    """The prompt reaches the encoder, and a batch padded on the right equals its rows one by one."""
    tokenizer, _ = seq2seq
    model = random_model(tokenizer, 3, seq2seq=True)
    together = generate(guard, model, tokenizer, PROMPTS, max_new_tokens=15)
    for prompt, text in zip(PROMPTS, together.texts, strict=True):
        assert generate(guard, model, tokenizer, prompt, max_new_tokens=15).texts == [text]
    assert len(set(together.texts)) > 1


def test_lengths_of_decoders_count_the_start_token_as_transformers_does(seq2seq: Any, guard: Any) -> None:
    tokenizer, model = seq2seq
    for options, expected in [
        ({"max_new_tokens": 7}, 7),
        ({"max_length": 6}, 5),
        (
            {
                "generation_config": GenerationConfig(
                    max_length=9, decoder_start_token_id=model.config.pad_token_id
                )
            },
            8,
        ),
    ]:
        result = generate(guard, model, tokenizer, PROMPTS, eos_token_id=tokenizer.eos_token_id, **options)
        assert max(len(ids) for ids in result.token_ids) == expected
        assert set(result.outcomes) <= {"length", "ended"}
        assert all(map(guard.clean, result.texts))


@pytest.mark.parametrize("limit", range(1, 8))
def test_a_decoder_cut_by_the_limit_may_end_there(limit: int, seq2seq: Any, guard: Any) -> None:
    tokenizer, model = seq2seq
    torch.manual_seed(limit)
    options = {"max_new_tokens": limit, "do_sample": True, "num_return_sequences": 3}
    result = generate(guard, model, tokenizer, PROMPTS, **options)
    assert all(map(guard.clean, result.texts))
    assert set(result.outcomes) <= {"length", "ended"}


def test_a_decoder_stopped_from_outside_is_trimmed(seq2seq: Any, guard: Any) -> None:
    class AtLength(StoppingCriteria):
        def __init__(self, length: int) -> None:
            self.length = length

        def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            return torch.full((len(input_ids),), input_ids.shape[1] > self.length)

    tokenizer, model = seq2seq
    for length in range(1, 12):
        result = generate(
            guard, model, tokenizer, "what the", max_new_tokens=30, stopping_criteria=[AtLength(length)]
        )
        assert guard.clean(result.texts[0])
        assert result.output.shape[1] == 1 + len(result.token_ids[0])


def test_rules_that_read_the_prompt_do_not_see_what_an_encoder_reads(seq2seq: Any, guard_of: Any) -> None:
    """The answer of an encoder-decoder model does not continue its prompt."""
    tokenizer, model = seq2seq
    texts = []
    for context in ("output", "prompt"):
        guard = guard_of(
            RegexRule(id="start", regex=r"\A[a-m]", context=context), StringRule(id="s", strings=("fuck",))
        )
        for skip in (True, False):
            texts.append(
                generate(guard, model, tokenizer, PROMPTS, max_new_tokens=12, skip_special_tokens=skip).texts
            )
            assert not any(re.match(r"[a-m]", text) for text in texts[-1])
    assert texts[0] == texts[2]
    assert texts[1] == texts[3]


def test_streams_of_encoder_decoders(seq2seq: Any, guard: Any) -> None:
    tokenizer, model = seq2seq
    expected = generate(guard, model, tokenizer, "what the", max_new_tokens=25).texts[0]
    assert "".join(stream(guard, model, tokenizer, "what the", max_new_tokens=25)) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"decoder_input_ids": torch.tensor([[0, 5]])},
        {"forced_bos_token_id": 3},
        {"forced_eos_token_id": 3},
        {"encoder_outputs": (torch.zeros(1, 2, 32),)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_would_begin_or_force_an_answer_is_refused(
    options: dict[str, Any], seq2seq: Any, guard: Any
) -> None:
    tokenizer, model = seq2seq
    with pytest.raises(UnsupportedError, match=next(iter(options))):
        generate(guard, model, tokenizer, "what the", **options)


def test_encoder_decoders_with_a_loop_of_their_own_are_refused(seq2seq: Any, guard: Any) -> None:
    tokenizer, model = seq2seq

    class Own(type(model)):  # type: ignore[misc]
        def generate(self, **options: Any) -> Any:
            return super().generate(**options)

    with pytest.raises(UnsupportedError, match="generate"):
        generate(guard, Own(model.config), tokenizer, "what the")
