"""What may be given with a call, and what is refused: nothing is accepted and then ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import GenerationConfig

from nco_guard.arguments import near
from nco_guard.engines.hf.kinds import OWN_OPTIONS
from nco_guard.engines.hf.options import Settings
from nco_guard.errors import UnsupportedError

__all__ = [
    "check_generation_options",
    "check_marks",
    "forced_tool",
    "hint",
    "offered",
    "options_of",
]

_OBJECTS = frozenset(
    {
        "assistant_model",
        "generation_config",
        "logits_processor",
        "prefix_allowed_tokens_fn",
        "stopping_criteria",
    }
)
_KNOWN = {*_OBJECTS, *OWN_OPTIONS} | {
    name for name in vars(GenerationConfig()) if not name.startswith("_")
} - {
    "is_assistant",
    "max_length",
    "stop_strings",
    "transformers_version",
}
_HINTS = {
    "max_length": "use max_new_tokens",
    "max_tokens": "use max_new_tokens",
    "policy": "use guard=",
    "is_assistant": "the model that is guarded writes itself; its helper is assistant_model",
    "stop_strings": "use stop=",
    "streamer": "use stream_complete or stream_chat",
    "skip_special_tokens": "the guard's text is always the one without special tokens",
    "inputs": "give the prompt as text",
    "input_ids": "give the prompt as text",
}


def hint(name: str) -> str:
    """What to write in the place of an option that is not known here."""
    close = near(name, _KNOWN)
    return _HINTS.get(name) or (f"did you mean {close!r}?" if close else "leave it out")


def check_generation_options(model: Any, options: Mapping[str, Any]) -> None:
    """Raise `UnsupportedError`, by name, for an option or value that `model.generate` does not know, or under which the
    guarantee would not hold. None is no value.
    """
    for name in options:
        if name not in _KNOWN:
            raise UnsupportedError(f"{name}: not an option of this LLM, and nothing is ignored; {hint(name)}")
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
            raise UnsupportedError(f"generation_config.is_assistant: {hint('is_assistant')}")


def options_of(given: Any) -> dict[str, Any]:
    """`generate_kwargs` as a dictionary of its own. Raises `UnsupportedError` for anything but names and values."""
    if given is not None and not isinstance(given, Mapping):
        raise UnsupportedError(f"generate_kwargs: a dictionary is needed, got {type(given).__name__}")
    return dict(given or {})


def check_marks(marks: Any) -> None:
    """Raise `UnsupportedError` for marks of tool calls that are neither None nor two strings, none of them empty."""
    if marks is None:
        return
    if (
        not isinstance(marks, list | tuple)
        or len(marks) != 2
        or not all(isinstance(m, str) and m for m in marks)
    ):
        raise UnsupportedError("tool_call_marks: two strings are needed, none of them empty, or None")


def offered(tools: Any) -> list[dict[str, Any]]:
    """`tools=` as a list. Raises `UnsupportedError` for anything but descriptions of tools with a name."""
    if tools is None:
        return []
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Mapping) for tool in tools):
        raise UnsupportedError(
            "tools: give a list of descriptions, as tool.metadata.to_openai_tool() makes them"
        )
    for tool in tools:
        function = tool.get("function", tool)
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise UnsupportedError("tools: each needs a function with a name")
    return [dict(tool) for tool in tools]


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
