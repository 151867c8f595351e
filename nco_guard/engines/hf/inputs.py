"""What goes into a generation: prompts of every form as ids, and what a model and a tokenizer say about themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jinja2.exceptions import TemplateError

from nco_guard.arguments import as_whole, whole_characters
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
    "render_chat",
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
            with _typed([message for chat in batch for message in chat]):
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


def render_chat(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    answered: bool = True,
) -> str:
    """The prompt that the tokenizer's chat template makes. `UnsupportedError` if the template refuses.

    answered: the beginning of an answer is part of it.
    """
    make = partial(
        tokenizer.apply_chat_template,
        tools=list(tools) if tools else None,
        add_generation_prompt=answered,
        tokenize=False,
    )
    with _typed(messages):
        try:
            prompt: str = make(list(messages))
        except TypeError:
            # Some templates put arguments of calls together with text.
            if (written := _with_written_arguments(messages)) == list(messages):
                raise
            prompt = make(written)
    return prompt


def _with_written_arguments(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages, arguments of calls as JSON in a string."""

    def written(call: Mapping[str, Any]) -> Mapping[str, Any]:
        function = call["function"]
        return {
            **call,
            "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)},
        }

    return [
        {**one, "tool_calls": [written(call) for call in one["tool_calls"]]} if one.get("tool_calls") else one
        for one in messages
    ]


@contextmanager
def _typed(messages: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """What a chat template raises where it refuses messages, as `UnsupportedError`."""
    try:
        yield
    except (TemplateError, TypeError, KeyError) as error:
        roles = ", ".join(str(message.get("role")) for message in messages)
        raise UnsupportedError(f"the chat template refuses these messages (roles: {roles})") from error


def _on_device(encoded: Mapping[str, Any], model: Any) -> dict[str, Any]:
    device = _device_of(model)
    return {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in encoded.items()
        if name != "token_type_ids"
    }


def _device_of(model: Any) -> torch.device:
    """Where the model takes its ids: weights that lie on the disk have no device, and are worked with on one."""
    device: torch.device = model.device
    if device.type == "meta":
        hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
        at = getattr(hook, "execution_device", None)  # a number, too
        device = torch.device("cpu" if at is None else at)
    return device


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
    return torch.tensor([[int(begin)]], device=_device_of(model))


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
    head = model.get_output_embeddings()
    if (width := as_whole(getattr(head, "out_features", None))) is not None:
        return width  # packed weights have another shape
    weight = getattr(head, "weight", None)
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
