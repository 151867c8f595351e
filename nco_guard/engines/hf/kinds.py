"""What each option of `model.generate` may be: an odd value is refused by name, before anything runs.

transformers says what is wrong with some of them; with others it fails somewhere inside, or goes on as if nothing had
been given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, get_type_hints

import torch
from transformers import CompileConfig, GenerationConfig
from transformers.generation.configuration_utils import (
    ALL_CACHE_IMPLEMENTATIONS,
    BaseWatermarkingConfig,
    WatermarkingConfig,
)

from nco_guard.arguments import as_whole, whole_characters
from nco_guard.engines.hf.parameters import GenerationOptions
from nco_guard.errors import UnsupportedError
from nco_guard.policy import Rewind

__all__ = ["OWN_OPTIONS", "check_kinds", "count", "for_transformers", "stop_strings"]

#: Options of a generation that are the guard's own: transformers does not know them.
OWN_OPTIONS = ("when_blocked", "rewind")
Test = Callable[[Any], bool]


def _is_count(value: Any, least: int = 0) -> bool:
    number = as_whole(value)
    return number is not None and number >= least


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_count, value))


def _are_strings(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(s, str) and s for s in value)


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_ids(one) and one for one in value)


def _is_bias(value: Any) -> bool:
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list) and all(isinstance(one, list | tuple) and len(one) == 2 for one in value):
        pairs = [tuple(one) for one in value]
    else:
        return False
    return bool(pairs) and all(_is_ids(ids) and ids and isinstance(bias, float) for ids, bias in pairs)


def _is_decay(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value))


def _is_watermark(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) <= set(vars(WatermarkingConfig()))


def _needed(test: Test, what: str) -> tuple[Test, str]:
    return test, f"{what} is needed, or leave it out"


_COUNT = _needed(lambda v: _is_count(v, 1), "a whole number of at least 1")
_COUNT_0 = _needed(_is_count, "a whole number of at least 0")
_POSITIVE = _needed(lambda v: _is_number(v) and v > 0, "a number above 0")
_SHARE = _needed(lambda v: _is_number(v) and 0 <= v <= 1, "a number from 0 to 1")
_CUT = _needed(lambda v: _is_number(v) and 0 <= v < 1, "a number from 0 to below 1")
_SOME = _needed(lambda v: _is_number(v) and 0 < v <= 1, "a number above 0, at most 1")
_IDS = _needed(_is_ids, "a list of token ids")
_ID_OR_IDS = _needed(
    lambda v: _is_count(v) or _is_ids(v) or isinstance(v, torch.Tensor),
    "a whole number, a token's id, or a list",
)


def _typed(kind: type) -> list[str]:
    """The options that are of one simple type."""
    return [name for name, hint in get_type_hints(GenerationOptions).items() if hint == kind | None]


# transformers refuses 2 for some of them where it takes 2.0.
_FLOATS = frozenset(_typed(float))
_COUNTS_0 = (
    "min_length",
    "min_new_tokens",
    "top_k",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "pad_token_id",
    "bos_token_id",
)
# For each option a test, and what is said where it fails; `{kind}` is the type of what was given.
_KINDS: dict[str, tuple[Test, str]] = {
    **dict.fromkeys(_typed(bool), _needed(lambda v: isinstance(v, bool), "True or False")),
    **dict.fromkeys((*_typed(int), "num_beam_groups"), _COUNT),
    **dict.fromkeys(_COUNTS_0, _COUNT_0),
    **dict.fromkeys(_FLOATS, _needed(_is_number, "a number")),
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "max_time"), _POSITIVE),
    **dict.fromkeys(("top_p", "min_p", "assistant_confidence_threshold"), _SHARE),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens"), _IDS),
    **dict.fromkeys(("top_h", "typical_p"), _SOME),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff"), _CUT),
    **dict.fromkeys(("eos_token_id", "decoder_start_token_id"), _ID_OR_IDS),
    **{
        name: (
            lambda v: isinstance(v, list | tuple) and all(map(callable, v)),
            f"give a list, as {name}=[one]; everything in it must be callable",
        )
        for name in ("logits_processor", "stopping_criteria")
    },
    "temperature": _needed(lambda v: _is_number(v) and v >= 0, "a number from 0 on"),
    "low_memory": _needed(lambda v: v is False, "False (transformers no longer has it)"),
    "early_stopping": _needed(lambda v: isinstance(v, bool) or v == "never", "True, False or 'never'"),
    "bad_words_ids": _needed(_is_words, "a list of lists of token ids, none of them empty,"),
    "sequence_bias": _needed(_is_bias, "a float for token ids, as a dictionary or a list of pairs,"),
    "exponential_decay_length_penalty": _needed(_is_decay, "a pair (where it begins, the factor)"),
    "cache_implementation": _needed(
        lambda v: isinstance(v, str) and v in (*ALL_CACHE_IMPLEMENTATIONS, "paged"),
        f"one of {', '.join(sorted(map(repr, ALL_CACHE_IMPLEMENTATIONS)))}",
    ),
    "cache_config": _needed(lambda v: isinstance(v, Mapping), "a dictionary"),
    "compile_config": _needed(lambda v: isinstance(v, CompileConfig), "a CompileConfig of transformers"),
    "continuous_batching_config": (
        lambda v: (
            type(v).__name__ == "ContinuousBatchingConfig"
        ),  # only some versions of transformers have it
        "give a transformers ContinuousBatchingConfig",
    ),
    "when_blocked": _needed(lambda v: v in ("mask", "rewind"), "'mask' or 'rewind'"),
    "rewind": (
        lambda v: isinstance(v, Rewind | Mapping),
        "give a Rewind, as Rewind(back_to='match'), not {kind}",
    ),
    "watermarking_config": _needed(
        lambda v: isinstance(v, BaseWatermarkingConfig) or _is_watermark(v),
        "a WatermarkingConfig of transformers, or a dictionary of its fields,",
    ),
    "num_assistant_tokens_schedule": _needed(
        lambda v: v in ("heuristic", "heuristic_transient", "constant"),
        "'heuristic', 'heuristic_transient' or 'constant'",
    ),
    "generation_config": (
        lambda v: isinstance(v, GenerationConfig),
        "give a transformers GenerationConfig, not {kind}",
    ),
    "assistant_model": (
        lambda v: hasattr(v, "generate") and hasattr(v, "config") and not isinstance(v, type),
        "give a loaded model, not {kind}",
    ),
    "streamer": (
        lambda v: hasattr(v, "put") and hasattr(v, "end"),
        "give a streamer with put and end, not {kind}",
    ),
    "attention_mask": (lambda v: isinstance(v, torch.Tensor), "give a tensor, not {kind}"),
    "prefix_allowed_tokens_fn": (callable, "give a function of a row's number and its ids, not {kind}"),
    "stop_strings": (
        lambda v: _are_strings([v] if isinstance(v, str) else v),
        "give a string or a list of strings, none of them empty, or leave it out",
    ),
}


def check_kinds(options: Mapping[str, Any], where: str = "", *, like: str | None = None) -> None:
    """Raise `UnsupportedError` for the first option whose value is none that it can have. None is no value.

    where: what stands before the names in the error. like: an option of `model.generate` that all of them are like, for
    arguments that have names of their own.
    """
    for name, value in options.items():
        test, wanted = _KINDS.get(like or name, (None, ""))
        if value is not None and test is not None and not test(value):
            raise UnsupportedError(f"{where}{name}: {wanted.replace('{kind}', type(value).__name__)}")
        if (like or name) == "stop_strings":
            whole_characters(name, [value])


def count(name: str, value: Any, *, like: str = "max_new_tokens") -> int | None:
    """An option that counts tokens or sequences, as an int; `UnsupportedError`, by name, for anything else."""
    check_kinds({name: value}, like=like)
    return as_whole(value)


def stop_strings(value: Any, name: str = "stop") -> tuple[str, ...]:
    """Stop strings as a tuple. `UnsupportedError` for anything but a string or strings, none of them empty."""
    stops = (
        [value] if isinstance(value, str) else list(value) if isinstance(value, set | frozenset) else value
    )
    if stops is None or stops in ([], ()):
        return ()
    check_kinds({name: stops}, like="stop_strings")
    return tuple(stops)


def for_transformers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as transformers takes them: without None, and numbers as floats where it insists on them."""
    return {
        name: float(value) if name in _FLOATS else value
        for name, value in options.items()
        if value is not None
    }
