"""What guarded `generate` refuses, by name and with the mend, before anything is generated."""

from typing import Any

import pytest
import torch
from transformers import (
    GenerationConfig,
)

from nco_guard.engines.hf import generate, stream
from nco_guard.errors import (
    ArgumentError,
    GenerationError,
    NCOGuardError,
    UnsupportedError,
)
from nco_guard.testing import biased_model, tiny_tokenizer


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"custom_generate": "somebody/else"}, "custom_generate"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "penalty_alpha"),
        ({"dola_layers": "low"}, "dola_layers"),
        ({"num_beam_groups": 2, "num_beams": 4}, "num_beam_groups"),
        ({"forced_eos_token_id": 2}, "forced_eos_token_id"),
        ({"forced_bos_token_id": 0}, "forced_bos_token_id"),
        ({"token_healing": True}, "token_healing"),
        ({"cache_implementation": "paged"}, "paged"),
        ({"inputs_embeds": torch.zeros(1, 2, 32)}, "inputs_embeds"),
        ({"generation_config": GenerationConfig(forced_eos_token_id=2)}, "forced_eos_token_id"),
    ],
)
def test_what_cannot_be_guaranteed_is_refused(
    options: dict[str, Any], name: str, byte_level: Any, model_of: Any, guard: Any
) -> None:
    with pytest.raises(UnsupportedError, match=name):
        generate(guard, model_of(byte_level), byte_level, "what the", **options)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("logits_processor", lambda ids, scores: scores),
        ("logits_processor", ["no function"]),
        ("stopping_criteria", lambda ids, scores: True),
        ("max_new_tokens", "20"),
        ("max_new_tokens", 2.5),
        ("max_length", -1),
        ("num_beams", 0),
        ("num_beams", "two"),
        ("num_return_sequences", 1.5),
        ("pad_token_id", "x"),
    ],
)
def test_options_of_another_type_are_named_with_what_to_pass(
    name: str, wrong: Any, byte_level: Any, model_of: Any, guard: Any
) -> None:
    with pytest.raises(UnsupportedError, match=rf"{name}: (give a list, as {name}=|a whole number)"):
        generate(guard, model_of(byte_level), byte_level, "x", **{"max_new_tokens": 3, name: wrong})
    if name == "stopping_criteria":
        with pytest.raises(UnsupportedError, match=f"{name}: give a list"):
            list(stream(guard, model_of(byte_level), byte_level, "x", max_new_tokens=3, **{name: wrong}))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (
            {"generation_config": {"max_new_tokens": 3}},
            "generation_config: give a transformers GenerationConfig",
        ),
        ({"assistant_model": "x"}, "assistant_model: give a loaded model"),
        ({"streamer": 3}, "streamer: give a streamer"),
        ({"stop_strings": 3}, "stop_strings: give"),
        ({"stop_strings": ["a", ""]}, "stop_strings: give"),
        ({"eos_token_id": "x"}, "eos_token_id: a whole number"),
        ({"eos_token_id": 2.5}, "eos_token_id: a whole number"),
        ({"on_step": 3}, "on_step: give a function"),
        ({"model": "name"}, "model: give a loaded"),
        ({"tokenizer": "name"}, "tokenizer: give a loaded"),
        ({"prompts": None}, "prompts: give"),
        ({"prompts": 3}, "prompts: give"),
        ({"prompts": torch.zeros(1, 3)}, "prompts: a tensor of token ids"),
    ],
)
def test_arguments_of_another_kind_are_named_with_what_to_pass(
    wrong: dict[str, Any], named: str, byte_level: Any, model_of: Any, guard: Any
) -> None:
    given = {
        "model": model_of(byte_level),
        "tokenizer": byte_level,
        "prompts": "x",
        "max_new_tokens": 3,
        **wrong,
    }
    with pytest.raises(NCOGuardError, match=named):
        generate(guard, given.pop("model"), given.pop("tokenizer"), given.pop("prompts"), **given)


@pytest.mark.parametrize(
    "wrong",
    [
        {"vocab_width": "x"},
        {"vocab_width": 500.5},
        {"eos_token_ids": 3},
        {"eos_token_ids": "x"},
        {"eos_token_ids": [2.5]},
    ],
)
def test_what_binds_a_guard_is_checked_by_name(wrong: dict[str, Any], byte_level: Any, guard: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(wrong))}: .*give"):
        guard.bind(byte_level, **wrong)


def test_scores_that_are_no_numbers_end_a_generation_by_name(
    byte_level: Any, model_of: Any, guard: Any
) -> None:
    def broken(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, torch.nan) if ids.shape[1] > 4 else scores

    for options in ({}, {"do_sample": True}, {"num_beams": 2}, {"tables": "device"}):
        with pytest.raises(GenerationError, match=r"row .*NaN"):
            generate(
                guard,
                model_of(byte_level),
                byte_level,
                "the",
                max_new_tokens=9,
                logits_processor=[broken],
                **options,
            )


def test_batches_need_silent_pads_on_the_left(model_of: Any, guard: Any) -> None:
    tokenizer = tiny_tokenizer("byte-level")
    model = biased_model(tokenizer, ["fuck"])
    tokenizer.padding_side = "right"
    inputs = tokenizer(["what", "a class"], return_tensors="pt", padding=True, return_token_type_ids=False)
    with pytest.raises(UnsupportedError, match="left"):
        generate(guard, model, tokenizer, inputs)
    assert len(generate(guard, model, tokenizer, ["what", "a class"], max_new_tokens=3).texts) == 2
    with pytest.raises(UnsupportedError, match="pad token"):
        generate(guard, model, tokenizer, ["what", "a class"], pad_token_id=tokenizer("x").input_ids[0])
    tokenizer.pad_token = None
    with pytest.raises(UnsupportedError, match="pad_token"):
        generate(guard, model, tokenizer, ["what", "a class"])
