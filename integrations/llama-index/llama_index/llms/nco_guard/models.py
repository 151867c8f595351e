"""What an LLM is made of: the model and its tokenizer; what does not fit together is refused here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.llms.llm import LLM

from nco_guard.engines.hf.kinds import count
from nco_guard.engines.hf.loading import load_local, positions_of
from nco_guard.engines.hf.weights import WeightOptions
from nco_guard.errors import UnsupportedError

__all__ = ["context_window_of", "load"]


def load(
    model: Any,
    tokenizer: Any,
    model_kwargs: Mapping[str, Any] | None,
    tokenizer_kwargs: Mapping[str, Any] | None,
    weights: WeightOptions,
) -> tuple[Any, Any]:
    """As `load_local`. Raises `UnsupportedError` for an LLM of LlamaIndex too."""
    if isinstance(model, LLM):
        raise UnsupportedError(
            f"{type(model).__name__} is an LLM of LlamaIndex: use NCOGuardLLM.from_huggingface_llm for a "
            f"HuggingFaceLLM; others write their text elsewhere, where it can only be verified (VerifiedLLM)"
        )
    return load_local(
        model, tokenizer, model_kwargs=model_kwargs, tokenizer_kwargs=tokenizer_kwargs, **weights
    )


def context_window_of(model: Any, wanted: int | None) -> int:
    """Tokens of a prompt and its reply. Raises `UnsupportedError` for more than the model has positions."""
    wanted = count("context_window", wanted)
    positions = positions_of(model)
    if positions is None:
        return wanted or 4096
    if wanted is not None and wanted > positions:
        raise UnsupportedError(f"context_window: {wanted} is more than the model's {positions} positions")
    return wanted or positions
