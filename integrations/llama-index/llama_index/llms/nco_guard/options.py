"""What may be given with a call, and what is refused: nothing is accepted and then ignored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers import StoppingCriteria

from nco_guard.engines.hf.kinds import OWN_OPTIONS
from nco_guard.engines.hf.options import Settings
from nco_guard.engines.hf.words import config_options, unknown_option
from nco_guard.errors import UnsupportedError

__all__ = ["StopAtIds", "check_generation_options", "mend", "options_of"]

_OBJECTS = frozenset(
    {
        "assistant_model",
        "generation_config",
        "logits_processor",
        "prefix_allowed_tokens_fn",
        "stopping_criteria",
    }
)
# What to do here instead of giving some options of generation.
_HERE = {
    "max_length": "use max_new_tokens",
    "guard": "use guard=",
    "shape": "give shape= with a call of its own",
    "is_assistant": "the model that is guarded writes itself; its helper is assistant_model",
    "stop_strings": "use stop=",
    "streamer": "use stream_complete or stream_chat",
    "skip_special_tokens": "the guard's text is always the one without special tokens",
    "inputs": "give the prompt as text",
    "input_ids": "give the prompt as text",
}
_KNOWN = config_options().union(_OBJECTS, OWN_OPTIONS) - {*_HERE, "transformers_version"}


def mend(name: str) -> str:
    """The end of a message about an option that is not known here."""
    return unknown_option(name, _KNOWN, _HERE, "leave it out")


def check_generation_options(model: Any, options: Mapping[str, Any]) -> None:
    """Raise `UnsupportedError`, by name, for an option or value that `model.generate` does not know, or under which the
    guarantee would not hold. None is no value.
    """
    for name in options:
        if name not in _KNOWN:
            raise UnsupportedError(f"{name}: not an option of this LLM, and nothing is ignored{mend(name)}")
    settings = Settings(model, options)
    if settings.answers > 1:
        raise UnsupportedError(
            "num_return_sequences: a reply is one text; use nco_guard.Guard.generate for several"
        )
    settings.refuse_unsupported()
    config = options.get("generation_config")
    if config is not None:
        if config.max_length is not None:
            raise UnsupportedError(
                "generation_config: its max_length would be ignored; set max_new_tokens instead"
            )
        if config.is_assistant:
            raise UnsupportedError(f"generation_config.is_assistant: {_HERE['is_assistant']}")


def options_of(given: Any, name: str = "generate_kwargs") -> dict[str, Any]:
    """Options of generation as a dictionary of its own. Raises `UnsupportedError` for anything but names and values."""
    if given is not None and not isinstance(given, Mapping):
        raise UnsupportedError(f"{name}: a dictionary is needed, got {type(given).__name__}")
    return dict(given or {})


class StopAtIds(StoppingCriteria):  # type: ignore[misc]
    """Stops after any of some tokens, which stay in the text: `stopping_ids` of LlamaIndex's `HuggingFaceLLM`."""

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids = sorted(set(ids))

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """int64 [rows, length] -> bool [rows]."""
        return torch.isin(input_ids[:, -1], torch.tensor(self._ids, device=input_ids.device))
