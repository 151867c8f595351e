"""What an LLM is made of: the model and its tokenizer; what does not fit together is refused here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from llama_index.core.llms.llm import LLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from nco_guard.engines.hf.inputs import check_model
from nco_guard.engines.hf.kinds import count
from nco_guard.errors import TokenizerError, UnsupportedError

__all__ = ["context_window_of", "load"]


def load(
    model: Any,
    tokenizer: Any,
    model_kwargs: Mapping[str, Any] | None,
    tokenizer_kwargs: Mapping[str, Any] | None,
) -> tuple[Any, Any]:
    """Model and tokenizer, loaded where paths are given, refused where nothing can be guarded."""
    if not isinstance(model, str | os.PathLike):
        _refuse(model)
    if tokenizer is None and not isinstance(model, str | os.PathLike):
        raise TokenizerError("give the model's tokenizer too: NCOGuardLLM(model, tokenizer, guard=...)")
    for name, given, used in (
        ("model_kwargs", model_kwargs, isinstance(model, str | os.PathLike)),
        ("tokenizer_kwargs", tokenizer_kwargs, tokenizer is None or isinstance(tokenizer, str | os.PathLike)),
    ):
        if given and not used:
            raise UnsupportedError(f"{name}: they are for loading from a path, and an object is given")
    if tokenizer is None or isinstance(tokenizer, str | os.PathLike):
        tokenizer = AutoTokenizer.from_pretrained(tokenizer or model, **(tokenizer_kwargs or {}))
    if isinstance(model, str | os.PathLike):
        model = AutoModelForCausalLM.from_pretrained(model, **(model_kwargs or {}))
        _refuse(model)
    return model, tokenizer


def _refuse(model: Any) -> None:
    if isinstance(model, LLM):
        raise UnsupportedError(
            f"{type(model).__name__} is an LLM of LlamaIndex: use NCOGuardLLM.from_huggingface_llm for a "
            f"HuggingFaceLLM; others write their text elsewhere, where it can only be verified (VerifiedLLM)"
        )
    check_model(model)
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedError("encoder-decoder models are not supported here; use nco_guard.Guard.generate")
    if not model.can_generate():
        raise UnsupportedError(
            f"{type(model).__name__} does not generate text; load it by AutoModelForCausalLM"
        )


def context_window_of(model: Any, wanted: int | None) -> int:
    """Tokens of a prompt and its reply. Raises `UnsupportedError` for more than the model has positions."""
    wanted = count("context_window", wanted)
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions is None:
        return wanted or 4096
    if wanted is not None and wanted > positions:
        raise UnsupportedError(f"context_window: {wanted} is more than the model's {positions} positions")
    return int(wanted or positions)
