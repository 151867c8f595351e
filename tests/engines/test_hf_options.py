"""The options that type checkers know are those that a call takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import torch
from transformers import CompileConfig, GenerationConfig, GenerationMixin

from nco_guard import Guard, Policy
from nco_guard.engines import hf
from nco_guard.engines.hf import BatchOptions, GenerationOptions, StreamOptions
from nco_guard.engines.hf.continuous import ContinuousBatch, generate_batch
from nco_guard.engines.hf.kinds import OWN_OPTIONS, check_kinds
from nco_guard.engines.hf.options import Settings, refuse_continuous
from nco_guard.engines.hf.parameters import ProcessorOptions
from nco_guard.errors import UnsupportedError
from nco_guard.policy import presets
from nco_guard.policy.presets import PresetOptions

# Known to transformers, accepted by the check, and no option of a generation.
NOT_MEANT = {
    "_from_model_config": "how a configuration came to be",
    "transformers_version": "how a configuration came to be",
    "is_assistant": "what transformers says to a model that drafts",
    "num_beam_groups": "refused above 1",
    "continuous_batching_config": "an argument of its own, of ContinuousBatch and generate_batch",
    "inputs": "the prompts",
    "trust_remote_code": "for `custom_generate`, which is refused",
}
#: Taken by `forward` of any decoder, so by `model.generate`, and no field or parameter of transformers' own.
OF_MODELS = {"attention_mask"}
# What shows whether an option is refused for itself, where a text would not do.
VALUES: dict[str, Any] = {
    "max_length": 9,
    "max_new_tokens": 9,
    "num_beams": 2,
    "num_beam_groups": 1,
    "num_return_sequences": 2,
    "pad_token_id": 0,
    "eos_token_id": 0,
    "stop_strings": ["."],
    "logits_processor": [],
    "stopping_criteria": [],
    "cache_implementation": "static",
    "watermarking_config": {},
    "continuous_batching_config": None,
}


@pytest.fixture
def model(byte_level: Any, model_of: Callable[..., Any]) -> Any:
    return model_of(byte_level)


def known() -> set[str]:
    """Every name that transformers knows, and one that only models know."""
    parameters = inspect.signature(GenerationMixin.generate).parameters
    plain = {name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD} - {"self"}
    return {
        *vars(GenerationConfig()),
        *plain,
        *OF_MODELS,
        *OWN_OPTIONS,
        "assistant_tokenizer",
        "trust_remote_code",
    }


def value_of(name: str, model: Any) -> Any:
    special = {"generation_config": GenerationConfig(), "assistant_model": model, "streamer": hf_streamer()}
    return (
        {**VALUES, **special}[name] if name in VALUES | special else next(filter(partial(fits, name), LIKELY))
    )


def fits(name: str, value: Any) -> bool:
    with suppress(UnsupportedError):
        check_kinds({name: value})
        return True
    return False


def hf_streamer() -> Any:
    from transformers.generation.streamers import BaseStreamer

    return BaseStreamer()


# Of the values of other options, the first that one can have.
LIKELY = [
    0.5,
    1,
    True,
    False,
    [1],
    [[1]],
    [[[1], 0.5]],
    (1, 1.5),
    {},
    "constant",
    "rewind",
    CompileConfig(),
    torch.ones(1, 1),
    fits,
]


def taken(model: Any, check: Callable[[str, Any], None]) -> set[str]:
    names = set()
    for name in known():
        try:
            check(name, value_of(name, model))
        except UnsupportedError:
            continue
        names.add(name)
    return names - set(NOT_MEANT)


def test_generation_options_are_what_generate_takes(model: Any) -> None:
    def check(name: str, value: Any) -> None:
        settings = Settings(model, {"do_sample": True, name: value})
        settings.refuse_unsupported()
        settings.refuse_unknown()

    assert taken(model, check) == set(GenerationOptions.__annotations__)


def test_stream_options_are_what_stream_takes(guard: Guard, byte_level: Any, model: Any) -> None:
    def check(name: str, value: Any) -> None:
        if name == "attention_mask":  # given by a text as well
            return
        guard.stream(model, byte_level, "a", **{"do_sample": True, name: value})  # type: ignore[misc]

    assert taken(model, check) == set(StreamOptions.__annotations__)


def test_batch_options_are_what_continuous_batching_takes(model: Any) -> None:
    def check(name: str, value: Any) -> None:
        if name != "when_blocked":  # which the batch takes out beforehand
            refuse_continuous(model, {name: value}, None)

    limits = {"max_new_tokens"}
    assert taken(model, check) - limits == set(BatchOptions.__annotations__)
    assert limits <= set(inspect.signature(ContinuousBatch).parameters)
    assert limits <= set(inspect.signature(generate_batch).parameters)


def test_what_is_left_out_is_known() -> None:
    assert set(NOT_MEANT) <= known()


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Names, kinds and defaults, without what comes first: the guard."""
    listed = list(inspect.signature(function).parameters.values())[1:]
    return {each.name: (each.kind, each.default) for each in listed}


@pytest.mark.parametrize("name", ["generate", "stream"])
def test_the_methods_of_a_guard_take_what_the_engine_takes(name: str) -> None:
    taken = parameters(getattr(Guard, name))
    # An engine takes the guard that `with_shape` makes.
    assert taken.pop("shape") == (inspect.Parameter.KEYWORD_ONLY, None)
    assert taken == parameters(getattr(hf, name))


def test_processor_options_are_the_arguments_of_the_processor() -> None:
    assert set(ProcessorOptions.__annotations__) == set(parameters(hf.GuardLogitsProcessor))


def test_presets_take_their_options() -> None:
    told = {name for preset in presets.available() for name in presets.describe(preset).options}
    assert set(PresetOptions.__annotations__) == {"except_" if name == "except" else name for name in told}


@pytest.mark.parametrize("make", [Policy.from_presets, Guard.from_presets])
def test_a_policy_of_presets_has_its_name(make: Callable[..., Any]) -> None:
    made = make("pii", name="mine", description="ours", only=["email"], monitor=True)
    policy = made if isinstance(made, Policy) else made.policy
    assert (policy.name, policy.description) == ("mine", "ours")
    assert [(rule.id, rule.mode) for rule in policy.rules] == [("pii.email", "monitor")]
