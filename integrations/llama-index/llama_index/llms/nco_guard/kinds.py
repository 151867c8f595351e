"""What each option of `model.generate` may be: an odd value is refused by name, before anything runs.

transformers says what is wrong with some of them; with others it fails somewhere inside, or goes on as if nothing had
been given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from transformers import CompileConfig, GenerationConfig
from transformers.generation.configuration_utils import (
    ALL_CACHE_IMPLEMENTATIONS,
    BaseWatermarkingConfig,
    ContinuousBatchingConfig,
    WatermarkingConfig,
)

from nco_guard.errors import UnsupportedError

__all__ = ["check_kinds", "settled"]

Test = Callable[[Any], bool]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))


def _is_ids(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(_is_int(one) and one >= 0 for one in value)


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


def _are_callable(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(callable, value))


_FLAG = (lambda v: isinstance(v, bool), "True or False")
_COUNT = (lambda v: _is_int(v) and v >= 1, "a whole number from 1 on")
_COUNT_0 = (lambda v: _is_int(v) and v >= 0, "a whole number from 0 on")
_NUMBER = (_is_number, "a number")
_POSITIVE = (lambda v: _is_number(v) and v > 0, "a number above 0")
_SHARE = (lambda v: _is_number(v) and 0 <= v <= 1, "a number from 0 to 1")
_CUT = (lambda v: _is_number(v) and 0 <= v < 1, "a number from 0 to below 1")
_ID_OR_IDS = (lambda v: (_is_int(v) and v >= 0) or _is_ids(v), "a token id, or a list of them")
_SOME = (lambda v: _is_number(v) and 0 < v <= 1, "a number above 0, at most 1")

_FLAGS = (
    "do_sample",
    "use_cache",
    "renormalize_logits",
    "remove_invalid_values",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "return_dict_in_generate",
    "disable_compile",
    "token_healing",
)
_COUNTS = (
    "max_new_tokens",
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "prefill_chunk_size",
    "max_cache_len",
    "prompt_lookup_num_tokens",
    "max_matching_ngram_size",
    "num_assistant_tokens",
    "assistant_lookbehind",
    "target_lookbehind",
)
_COUNTS_0 = (
    "min_length",
    "min_new_tokens",
    "top_k",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "pad_token_id",
    "bos_token_id",
)
# 2 is refused by transformers where 2.0 is taken.
_FLOATS = (
    "temperature",
    "top_p",
    "min_p",
    "top_h",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "repetition_penalty",
    "encoder_repetition_penalty",
    "diversity_penalty",
)

_KINDS: dict[str, tuple[Test, str]] = {
    **dict.fromkeys(_FLAGS, _FLAG),
    **dict.fromkeys(_COUNTS, _COUNT),
    **dict.fromkeys(_COUNTS_0, _COUNT_0),
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "max_time"), _POSITIVE),
    **dict.fromkeys(("length_penalty", "diversity_penalty", "guidance_scale"), _NUMBER),
    **dict.fromkeys(("top_p", "min_p", "assistant_confidence_threshold"), _SHARE),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens"), (_is_ids, "a list of token ids")),
    "temperature": (lambda v: _is_number(v) and v >= 0, "a number from 0 on"),
    "low_memory": (lambda v: v is False, "False (transformers no longer has it)"),
    "top_h": _SOME,
    "typical_p": _SOME,
    "epsilon_cutoff": _CUT,
    "eta_cutoff": _CUT,
    "eos_token_id": _ID_OR_IDS,
    "decoder_start_token_id": _ID_OR_IDS,
    "early_stopping": (lambda v: isinstance(v, bool) or v == "never", "True, False or 'never'"),
    "bad_words_ids": (_is_words, "a list of lists of token ids, none of them empty"),
    "sequence_bias": (_is_bias, "token ids with a float each, as a dictionary or a list of pairs"),
    "exponential_decay_length_penalty": (_is_decay, "a pair of numbers: where it begins, and the factor"),
    "cache_implementation": (
        lambda v: isinstance(v, str) and v in (*ALL_CACHE_IMPLEMENTATIONS, "paged"),
        f"one of {', '.join(sorted(map(repr, ALL_CACHE_IMPLEMENTATIONS)))}",
    ),
    "cache_config": (lambda v: isinstance(v, Mapping), "a dictionary"),
    "compile_config": (lambda v: isinstance(v, CompileConfig), "a CompileConfig of transformers"),
    "continuous_batching_config": (
        lambda v: isinstance(v, ContinuousBatchingConfig),
        "a ContinuousBatchingConfig of transformers",
    ),
    "watermarking_config": (
        lambda v: isinstance(v, BaseWatermarkingConfig) or _is_watermark(v),
        "a WatermarkingConfig of transformers, or a dictionary of its fields",
    ),
    "num_assistant_tokens_schedule": (
        lambda v: v in ("heuristic", "heuristic_transient", "constant"),
        "'heuristic', 'heuristic_transient' or 'constant'",
    ),
    "generation_config": (lambda v: isinstance(v, GenerationConfig), "a GenerationConfig of transformers"),
    "assistant_model": (
        lambda v: hasattr(v, "generate") and hasattr(v, "config") and not isinstance(v, type),
        "a model of transformers",
    ),
    "logits_processor": (_are_callable, "a list of logits processors"),
    "stopping_criteria": (_are_callable, "a list of stopping criteria"),
    "prefix_allowed_tokens_fn": (callable, "a function of a row's number and its ids"),
}


def check_kinds(options: Mapping[str, Any], where: str = "") -> None:
    """Raise `UnsupportedError` for the first option whose value is none that it can have. None is no value.

    where: what stands before the names in the error.
    """
    for name, value in options.items():
        test, wanted = _KINDS.get(name, (None, ""))
        if value is not None and test is not None and not test(value):
            raise UnsupportedError(f"{where}{name}: {wanted} is needed")


def settled(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as transformers takes them: without None, and whole numbers as floats where it insists on them."""
    return {
        name: float(value) if name in _FLOATS and _is_int(value) else value
        for name, value in options.items()
        if value is not None
    }
