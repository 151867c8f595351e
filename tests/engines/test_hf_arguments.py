"""What a generation is given and cannot be meant, by name and before anything is generated; and prompts of nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, pipeline

from nco_guard import Guard
from nco_guard.engines.hf import GuardLogitsProcessor
from nco_guard.errors import (
    ArgumentError,
    ArgumentValueError,
    NCOGuardError,
    TokenizerError,
    UnsupportedError,
)

HALF = "a\ud800"
ModelOf = Callable[..., Any]


@pytest.mark.parametrize(
    "prompts",
    [HALF, ["a", HALF], [{"role": "user", "content": HALF}], [{"role": "user", "content": [{"text": HALF}]}]],
)
def test_half_a_character_in_a_prompt_is_named(
    guard: Guard, byte_level: Any, model_of: ModelOf, prompts: Any
) -> None:
    model = model_of(byte_level)
    with pytest.raises(ArgumentValueError, match=r"prompts: half of a character .* at position 1"):
        guard.generate(model, byte_level, prompts, max_new_tokens=1)
    with pytest.raises(ArgumentValueError, match="half of a character"):
        list(guard.stream(model, byte_level, prompts, max_new_tokens=1))
    pipe = guard.wrap(pipeline("text-generation", model=model, tokenizer=byte_level))
    with pytest.raises(ArgumentValueError, match="text_inputs: half of a character"):
        pipe(prompts, max_new_tokens=1)
    with pytest.raises(ArgumentValueError, match="stop_strings: half"):
        guard.generate(model, byte_level, "a", max_new_tokens=1, stop_strings=["a", HALF])


@pytest.mark.parametrize("given", [[], "", [""], ("a", ""), 3, {}])
def test_stop_strings_that_say_nothing_are_refused(
    guard: Guard, byte_level: Any, model_of: ModelOf, given: Any
) -> None:
    with pytest.raises(UnsupportedError, match="stop_strings: give a string"):
        guard.generate(model_of(byte_level), byte_level, "a", max_new_tokens=1, stop_strings=given)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        (lambda ids, scores: None, UnsupportedError, r"float scores .* not NoneType"),
        (
            lambda ids, scores: torch.zeros_like(scores, dtype=torch.int64),
            UnsupportedError,
            "not torch.int64",
        ),
        (lambda ids, scores: scores > 0, UnsupportedError, "not torch.bool"),
        (lambda ids, scores: scores.numpy(), UnsupportedError, "not ndarray"),
        (lambda ids, scores: scores[0], UnsupportedError, "a row of scores for each row of ids"),
        (lambda ids, scores: scores[:, :3], TokenizerError, "have 3 columns .* processor before"),
    ],
)
def test_a_processor_that_returns_no_scores_is_told_so(
    guard: Guard, byte_level: Any, model_of: ModelOf, changes: Any, error: type[Exception], says: str
) -> None:
    model = model_of(byte_level)
    for tables in ("host", "device"):
        with pytest.raises(error, match=says):
            guard.generate(
                model, byte_level, "a", max_new_tokens=1, logits_processor=[changes], tables=tables
            )
    scores = torch.zeros(1, len(byte_level))
    with pytest.raises(error, match=says):
        guard.logits_processor(byte_level)(torch.tensor([[1]]), changes(None, scores))


def test_empty_prompts_of_a_batch_are_like_one_alone(
    guard: Guard, byte_level: Any, model_of: ModelOf
) -> None:
    model = model_of(byte_level)
    with pytest.raises(UnsupportedError, match=r"an empty prompt needs .* beginning-of-sequence"):
        guard.generate(model, byte_level, ["", "a b c"], max_new_tokens=2)
    options = {"max_new_tokens": 8, "bos_token_id": 5}
    alone = [guard.generate(model, byte_level, prompt, **options).texts[0] for prompt in ("", "a b c")]
    assert guard.generate(model, byte_level, ["", "a b c"], **options).texts == alone
    given = byte_level(["", "a b c"], return_tensors="pt", padding=True, padding_side="left")
    before = given["input_ids"].clone()
    assert guard.generate(model, byte_level, given, **options).texts == alone
    assert torch.equal(given["input_ids"], before)
    right = byte_level(["a", "a b c"], return_tensors="pt", padding=True, padding_side="right")
    with pytest.raises(UnsupportedError, match="padded on the right"):
        guard.generate(model, byte_level, right, **options)


def test_what_is_called_can_be_called(guard: Guard, byte_level: Any) -> None:
    bound = guard.bind(byte_level)
    for name in ("on_forced", "on_step"):
        with pytest.raises(ArgumentError, match=f"{name}: give a function"):
            GuardLogitsProcessor(bound, **{name: 3})
    for wrong in (3, "ab", {"a": 1}, guard):
        with pytest.raises(UnsupportedError, match="guards: give a list"):
            guard.logits_processor(byte_level, guards=wrong)
    for given in (3, guard.policy, bound):
        with pytest.raises(UnsupportedError, match=rf"guards\[1\]: {type(given).__name__} is no guard"):
            guard.logits_processor(byte_level, guards=[None, given])


@pytest.mark.parametrize("wrong", [None, b"x", 3, [], [None], [3], {"role": "user", "content": "x"}, {}])
def test_prompts_that_are_none(guard: Guard, byte_level: Any, model_of: ModelOf, wrong: Any) -> None:
    model = model_of(byte_level)
    pipe = guard.wrap(pipeline("text-generation", model=model, tokenizer=byte_level))
    with pytest.raises(NCOGuardError, match="text_inputs: "):
        pipe(wrong, max_new_tokens=1)
    with pytest.raises(NCOGuardError, match="prompts: "):
        guard.generate(model, byte_level, wrong, max_new_tokens=1)
    with pytest.raises(NCOGuardError, match="prompts: "):
        list(guard.stream(model, byte_level, wrong, max_new_tokens=1))


def test_an_option_that_is_none_is_not_given(guard: Guard, byte_level: Any, model_of: ModelOf) -> None:
    model = model_of(byte_level)
    wanted = guard.generate(model, byte_level, "a", max_new_tokens=4).texts
    nothing = {"num_beams": None, "stop_strings": None, "logits_processor": None, "streamer": None}
    assert guard.generate(model, byte_level, "a", max_new_tokens=4, **nothing).texts == wanted


ODD: list[tuple[dict[str, Any], str]] = [
    ({"stop": 3}, "did you mean 'stop_strings'"),
    ({"temperature": "hot"}, "temperature: a number from 0 on is needed"),
    ({"temperature": 0, "do_sample": True}, "temperature: 0 is no sampling; leave do_sample out"),
    ({"do_sample": "yes"}, "do_sample: True or False is needed"),
    ({"top_p": "x"}, "top_p: a number from 0 to 1 is needed"),
    ({"top_k": -1}, "top_k: a whole number of at least 0 is needed"),
    ({"repetition_penalty": 0}, "repetition_penalty: a number above 0 is needed"),
    ({"min_new_tokens": -1}, "min_new_tokens: a whole number of at least 0"),
    ({"max_time": "x"}, "max_time: a number above 0 is needed"),
    ({"bad_words_ids": 3}, "bad_words_ids: a list of lists of token ids"),
    ({"prefix_allowed_tokens_fn": 3}, "prefix_allowed_tokens_fn: give a function"),
    ({"generation_config": GenerationConfig(top_p=3.0)}, "generation_config.top_p: a number from 0 to 1"),
    ({"inputs": torch.zeros(1, 2, dtype=torch.int64)}, "^inputs: "),
    ({"attention_mask": 3}, "^attention_mask: "),
    ({"guard": "pii"}, r"^guard: the guard is the one that is called; .* guards=\[\.\.\.\]"),
    (
        {"num_beams": 2, "num_return_sequences": 3},
        "^num_(return_sequences: num_beams=2 finds no more|beams, )",
    ),
]


@pytest.mark.parametrize(("options", "says"), ODD)
def test_odd_options_are_named_wherever_a_model_writes(
    guard: Guard, byte_level: Any, model_of: ModelOf, options: dict[str, Any], says: str
) -> None:
    model = model_of(byte_level)
    given = {"max_new_tokens": 2, **options}
    pipe = guard.wrap(pipeline("text-generation", model=model, tokenizer=byte_level))
    calls: list[Callable[[], Any]] = [
        lambda: guard.generate(model, byte_level, "a b", **given),
        lambda: guard.stream(model, byte_level, "a b", **given),
        lambda: pipe("a b", **given),
    ]
    for call in calls:
        with pytest.raises(UnsupportedError, match=says):
            call()


def test_texts_and_lengths_that_do_not_go_together(guard: Guard, byte_level: Any, model_of: ModelOf) -> None:
    model = model_of(byte_level)
    with pytest.raises(UnsupportedError, match=r"num_return_sequences: greedy .* num_beams=2"):
        guard.generate(model, byte_level, "a", max_new_tokens=2, num_return_sequences=2)
    size = len(byte_level("a b c").input_ids)
    for call in (guard.generate, lambda *given, **options: list(guard.stream(*given, **options))):
        with pytest.raises(UnsupportedError, match=f"max_length: {size} counts the prompt .* max_new_tokens"):
            call(model, byte_level, "a b c", max_length=size)
    assert len(guard.generate(model, byte_level, "a b c", max_length=size + 2).token_ids[0]) <= 2


def test_numbers_of_other_kinds_are_numbers(guard: Guard, byte_level: Any, model_of: ModelOf) -> None:
    model = model_of(byte_level)
    wanted = guard.generate(model, byte_level, "a", max_new_tokens=4, repetition_penalty=2.0).texts
    for two, four in ((2, np.int64(4)), (np.float32(2), torch.tensor(4))):
        assert (
            guard.generate(model, byte_level, "a", max_new_tokens=four, repetition_penalty=two).texts
            == wanted
        )
