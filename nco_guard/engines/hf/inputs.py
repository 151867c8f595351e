"""What goes into a generation: prompts of every form as ids, and what a model and a tokenizer say about themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from nco_guard.arguments import whole_characters
from nco_guard.engines.hf.options import Settings
from nco_guard.errors import UnsupportedError
from nco_guard.tokens import Vocabulary

__all__ = [
    "check_loaded",
    "check_model",
    "encode",
    "encode_text",
    "fill_empty_prompts",
    "first_token",
    "is_chat",
    "logits_width",
    "model_id",
    "pad_token_id",
    "refuse_right_padding",
]


def encode(tokenizer: Any, model: Any, prompts: Any) -> dict[str, Any]:
    """Keyword arguments for `model.generate`: ids and mask, padded on the left, on the model's device."""
    encoded: Mapping[str, Any]
    check_loaded(model, tokenizer)
    if isinstance(prompts, torch.Tensor):
        if prompts.is_floating_point() or prompts.ndim not in (1, 2):
            raise UnsupportedError(
                "prompts: a tensor of token ids is needed, whole numbers [length] or [rows, length]"
            )
        encoded = {"input_ids": prompts if prompts.ndim == 2 else prompts[None]}
    elif isinstance(prompts, Mapping):
        if not isinstance(prompts.get("input_ids"), torch.Tensor):
            raise UnsupportedError(
                'prompts: the mapping needs a tensor of "input_ids", as tokenizer(..., return_tensors="pt") gives'
            )
        encoded = prompts
    else:
        single = isinstance(prompts, str) or is_chat(prompts)
        whole_characters("prompts", prompts)
        if isinstance(prompts, list | tuple) and not prompts:
            raise UnsupportedError("prompts: the list is empty; give at least one prompt")
        batch = [prompts] if single else list(prompts) if isinstance(prompts, Sequence) else []
        options = {"return_tensors": "pt", "padding": len(batch) > 1}
        if not getattr(model.config, "is_encoder_decoder", False):
            options["padding_side"] = "left"
        if len(batch) > 1 and getattr(tokenizer, "pad_token_id", None) is None:
            raise UnsupportedError("several prompts need a pad token: set tokenizer.pad_token")
        if batch and all(isinstance(prompt, str) for prompt in batch):
            encoded = tokenizer(batch, **options)
        elif batch and all(is_chat(prompt) for prompt in batch):
            prefilled = {prompt[-1].get("role") == "assistant" for prompt in batch}
            if len(prefilled) > 1:
                raise UnsupportedError("chats that end with the assistant and others cannot share a batch")
            encoded = tokenizer.apply_chat_template(
                batch,
                add_generation_prompt=not all(prefilled),
                continue_final_message=all(prefilled),
                return_dict=True,
                **options,
            )
        else:
            raise UnsupportedError(
                "prompts: give a string, strings, a chat (list of messages), chats, a tensor of ids, or what "
                "the tokenizer returns"
            )
    return _on_device(encoded, model)


def encode_text(tokenizer: Any, model: Any, text: str, *, special: bool = False) -> dict[str, Any]:
    """One text that is written out already, as keyword arguments for `model.generate`.

    special: whether the tokenizer adds its special tokens.
    """
    return _on_device(tokenizer(text, return_tensors="pt", add_special_tokens=special), model)


def _on_device(encoded: Mapping[str, Any], model: Any) -> dict[str, Any]:
    return {
        name: value.to(model.device) if isinstance(value, torch.Tensor) else value
        for name, value in encoded.items()
        if name != "token_type_ids"
    }


def check_loaded(model: Any, tokenizer: Any) -> None:
    """`UnsupportedError` for what is no model, or no tokenizer, with what it is instead."""
    if hasattr(tokenizer, "generate") and not hasattr(model, "generate"):
        if callable(model):
            raise UnsupportedError("model, tokenizer: these are in the wrong order; give the model first")
        raise UnsupportedError("tokenizer: this is a model; give its tokenizer")
    check_model(model)
    if hasattr(tokenizer, "generate"):
        raise UnsupportedError("tokenizer: this is a model; give its tokenizer")
    if not callable(tokenizer):
        raise UnsupportedError(_not_loaded("tokenizer", tokenizer, "AutoTokenizer"))


def check_model(model: Any) -> None:
    """`UnsupportedError` for what is no model, with what it is instead."""
    if hasattr(model, "task") and hasattr(model, "tokenizer"):
        raise UnsupportedError("model: this is a pipeline; use guard.wrap(pipeline)(prompts)")
    if not all(hasattr(model, name) for name in ("generate", "config", "get_output_embeddings")):
        raise UnsupportedError(_not_loaded("model", model, "AutoModelForCausalLM"))


def _not_loaded(name: str, given: Any, loader: str) -> str:
    kind = "its name" if isinstance(given, str) else type(given).__name__
    return f"{name}: give a loaded transformers {name}, as {loader}.from_pretrained(...) returns, not {kind}"


def is_chat(prompt: Any) -> bool:
    """Whether a prompt is a list of messages."""
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, str)
        and len(prompt) > 0
        and all(isinstance(message, Mapping) for message in prompt)
    )


def model_id(model: Any) -> str | None:
    """The name under which a model was loaded; None if it has none."""
    name = getattr(model.config, "_name_or_path", None)
    return str(name)[:512] if name else None


def first_token(model: Any, tokenizer: Any, settings: Settings) -> torch.Tensor:
    """int64 [1, 1]: what an empty prompt stands for. `UnsupportedError` if there is no such token."""
    begin = settings.get("bos_token_id")
    begin = getattr(tokenizer, "bos_token_id", None) if begin is None else begin
    if begin is None:
        raise UnsupportedError(
            "an empty prompt needs a tokenizer or a model with a beginning-of-sequence token; give some text, or "
            "bos_token_id"
        )
    return torch.tensor([[int(begin)]], device=model.device)


def fill_empty_prompts(arguments: dict[str, Any], first: Callable[[], torch.Tensor]) -> None:
    """Prompts of a batch that hold nothing but pads: each becomes what an empty prompt alone stands for."""
    mask, ids = arguments.get("attention_mask"), arguments["input_ids"]
    if not isinstance(mask, torch.Tensor) or mask.shape != ids.shape or bool(mask.any(-1).all()):
        return
    empty = ~mask.any(-1)
    arguments["input_ids"], arguments["attention_mask"] = ids.clone(), mask.clone()
    arguments["input_ids"][empty, -1] = first().to(ids)[0, 0]
    arguments["attention_mask"][empty, -1] = 1


def refuse_right_padding(arguments: Mapping[str, Any]) -> None:
    """`UnsupportedError` where pads would stand between a prompt and its text."""
    mask = arguments.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.ndim == 2 and bool((mask[:, -1] == 0).any()):
        raise UnsupportedError("the prompts are padded on the right: set tokenizer.padding_side = 'left'")


def logits_width(model: Any) -> int:
    """Columns of the model's logits."""
    weight = getattr(model.get_output_embeddings(), "weight", None)
    return int(model.config.get_text_config().vocab_size if weight is None else weight.shape[0])


def pad_token_id(settings: Settings, tokenizer: Any, vocabulary: Vocabulary) -> int | None:
    """The id with which finished rows are filled; None if nobody names one."""
    for value in (
        settings.get("pad_token_id"),
        getattr(tokenizer, "pad_token_id", None),
        *vocabulary.eos_ids,
    ):
        if value is not None:
            return int(value)
    return None
