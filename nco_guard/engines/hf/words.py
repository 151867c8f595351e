"""Which options of generation there are, and what people write for them who come from other libraries."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import cache

from transformers import GenerationConfig, GenerationMixin

from nco_guard.arguments import meant, near
from nco_guard.engines.hf.kinds import OWN_OPTIONS

__all__ = ["call_options", "config_options", "instead", "unknown_option"]

# The option that is meant; integrations say by it where they have another word or place for that.
_OPTIONS = {
    **dict.fromkeys(("max_tokens", "max_output_tokens", "max_completion_tokens"), "max_new_tokens"),
    **dict.fromkeys(("stop", "stop_sequence", "stop_sequences"), "stop_strings"),
    **dict.fromkeys(("n", "num_return"), "num_return_sequences"),
    **dict.fromkeys(("temp", "temprature"), "temperature"),
    **dict.fromkeys(("processors", "logit_processor", "logits_processors"), "logits_processor"),
    "policy": "guard",
}
# What no option does.
_NO_OPTION = {
    **dict.fromkeys(("frequency_penalty", "presence_penalty"), "the nearest here is repetition_penalty=..."),
    **dict.fromkeys(
        ("logprobs", "top_logprobs"),
        "they would repeat the text in pieces, and what was masked; an audit log has what interventions changed",
    ),
    "seed": "sampling is seeded for the process: transformers.set_seed(...) before the call",
}
# `model.generate` takes these out of its keywords before it looks what is left.
_TAKEN_OUT = ("tokenizer", "assistant_tokenizer", "trust_remote_code")


@cache
def config_options() -> frozenset[str]:
    """Options that a `generation_config` can say."""
    return frozenset(name for name in vars(GenerationConfig()) if not name.startswith("_"))


@cache
def call_options() -> frozenset[str]:
    """Options that a call takes whatever the model: those, arguments of `model.generate`, and this library's own."""
    parameters = inspect.signature(GenerationMixin.generate).parameters
    named = (name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD)
    return config_options().union(named, _TAKEN_OUT, OWN_OPTIONS) - {"self"}


def instead(word: str, here: Mapping[str, str]) -> str | None:
    """What to do instead of writing `word`; None where no table has it.

    here: what to do in this place instead of giving an option, by its name in transformers.
    """
    option = _OPTIONS.get(word, word)
    return here.get(option, _NO_OPTION.get(option))


def unknown_option(word: str, known: Iterable[str], here: Mapping[str, str], otherwise: str) -> str:
    """The end of a message about an option that is not known: see `instead`; else the known one that was meant."""
    mend = instead(word, here)
    return f"; {mend}" if mend is not None else meant(near(word, known, _OPTIONS), f"; {otherwise}")
