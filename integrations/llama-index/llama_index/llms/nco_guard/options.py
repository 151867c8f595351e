"""What may be given with a call, and what is refused: nothing is accepted and then ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import GenerationConfig

from nco_guard.engines.hf.options import Settings
from nco_guard.errors import UnsupportedError

__all__ = ["check_generation_options", "forced_tool", "stop_strings"]

_OBJECTS = frozenset(
    {
        "assistant_model",
        "generation_config",
        "logits_processor",
        "prefix_allowed_tokens_fn",
        "stopping_criteria",
    }
)
_KNOWN = _OBJECTS | {name for name in vars(GenerationConfig()) if not name.startswith("_")} - {
    "max_length",
    "stop_strings",
    "transformers_version",
}
_HINTS = {
    "max_length": "use max_new_tokens",
    "max_tokens": "use max_new_tokens",
    "guard": "use policy=",
    "stop_strings": "use stop=",
    "streamer": "use stream_complete or stream_chat",
    "skip_special_tokens": "the guard's text is always the one without special tokens",
    "inputs": "give the prompt as text",
    "input_ids": "give the prompt as text",
}


def check_generation_options(model: Any, options: Mapping[str, Any]) -> None:
    """Raise `UnsupportedError` for what `model.generate` does not know or the guarantee would not survive."""
    for name in options:
        if name not in _KNOWN:
            raise UnsupportedError(
                f"{name}: not an option of this LLM, and nothing is ignored; {_HINTS.get(name, 'leave it out')}"
            )
    settings = Settings(model, options)
    if (settings.get("num_return_sequences") or 1) > 1:
        raise UnsupportedError(
            "num_return_sequences: a reply is one text; use nco_guard.Guard.generate for several"
        )
    if getattr(options.get("generation_config"), "max_length", None) is not None:
        raise UnsupportedError(
            "generation_config: its max_length would be ignored; set max_new_tokens instead"
        )
    settings.refuse_unsupported()


def stop_strings(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """`stop=` as a tuple. Raises `UnsupportedError` for anything but a string or strings, none of them empty."""
    stops = (value,) if isinstance(value, str) else tuple(value or ())
    if not all(isinstance(stop, str) and stop for stop in stops):
        raise UnsupportedError("stop: give a string or strings, none of them empty")
    return stops


def forced_tool(
    choice: str | Mapping[str, Any] | None, required: bool, names: Sequence[str]
) -> tuple[bool, str | None]:
    """What `tool_choice` and `tool_required` come to: whether a call is required, and of which tool if one is named.

    choice: None, "auto", "none", "required" (or "any"), a tool's name, or `{"type": "function", "function": {"name":
    ...}}`. Raises `UnsupportedError` for a tool that is not offered.
    """
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        choice = function.get("name") if isinstance(function, Mapping) else None
        if choice is None:
            raise UnsupportedError("tool_choice: no tool is named in it")
    if choice in (None, "auto", "none"):
        if required and choice == "none":
            raise UnsupportedError("tool_choice='none' and tool_required=True contradict each other")
        required_name = names[0] if required and len(names) == 1 else None
        return required, required_name
    if choice in ("required", "any"):
        return True, names[0] if len(names) == 1 else None
    if choice not in names:
        raise UnsupportedError(f"tool_choice: {choice!r} is none of the tools on offer")
    return True, str(choice)
