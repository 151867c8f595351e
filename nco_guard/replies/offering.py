"""How tools are put to a model: which there are, in one form; in words where its chat template has no place for them.

Most chat templates show tools and write calls and results. For a model without such a template the same conversation is
told in messages of text: what the tools are and how to call one, in the system's; calls as the model writes them, in
its own; results in the user's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from nco_guard.errors import ArgumentError, ShapeError, UnsupportedError
from nco_guard.replies.formats import OfferingTexts, ReplyFormat
from nco_guard.replies.writing import written_calls
from nco_guard.shapes.keywords import plain_schema

__all__ = ["calls_in_words", "has_calls", "messages_in_words", "offered_tools"]

_EXAMPLE = ("tool_name", {"argument": "value"})
_TEXTS = OfferingTexts(
    system=(
        "You can call these tools; the arguments of each are described by a JSON schema:\n"
        "<tools>{tools}</tools>\n"
        "To call one, answer in exactly this form, with its name and arguments:\n"
        "{call}\n"
        "What it gives comes back between <tool_response> and </tool_response>. Where no tool helps, answer in words."
    ),
    result="<tool_response>\n{result}\n</tool_response>",
)


def offered_tools(tools: Any) -> list[dict[str, Any]]:
    """`tools=` of a call as OpenAI's APIs have them, `{"type": "function", "function": {"name": ..., ...}}`.

    tools: None or descriptions of functions, each in that form, with the function's fields beside its type, or without
    a type. What is there twice is offered once, as it stands first: titles and descriptions may differ.
    Errors: `UnsupportedError`, which names the tool by its place, for anything else: tools that a provider runs
    (`{"type": "web_search"}`) among it, and two tools of one name.

    Examples:
        >>> offered_tools([{"name": "find", "parameters": {}}])
        [{'type': 'function', 'function': {'name': 'find', 'parameters': {}}}]
    """
    if tools is None:
        return []
    if isinstance(tools, Mapping | str | bytes) or not isinstance(tools, Sequence):
        raise UnsupportedError("tools: give a list of descriptions of functions, as OpenAI's APIs take them")
    offered: dict[str, dict[str, Any]] = {}
    for number, tool in enumerate(tools):
        described = _offered(f"tools[{number}]", tool)
        before = offered.setdefault(described["function"]["name"], described)
        if _asked(before) != _asked(described):
            raise UnsupportedError(
                f"tools[{number}]: another tool before it has the same name, and a call says the name alone; give it "
                "one of its own"
            )
    return [*offered.values()]


def _asked(tool: Mapping[str, Any]) -> tuple[Any, Any]:
    """What calls of a tool may hold."""
    parameters = tool["function"].get("parameters") or {}
    try:
        asked = plain_schema(parameters)
    except (ShapeError, ArgumentError):
        asked = parameters
    return asked, tool["function"].get("strict")


def _offered(where: str, tool: Any) -> dict[str, Any]:
    if not isinstance(tool, Mapping):
        raise UnsupportedError(f"{where}: the description of a function is needed, not {type(tool).__name__}")
    kind = tool.get("type", "function")
    if kind != "function":
        raise UnsupportedError(f"{where}: a tool of type {kind!r} is run by its provider; give a function")
    function = tool.get("function", {name: value for name, value in tool.items() if name != "type"})
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        raise UnsupportedError(f"{where}: it needs a function with a name")
    return {"type": "function", "function": dict(function)}


def has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether tools were called in a conversation."""
    return any(message.get("tool_calls") or message.get("role") == "tool" for message in messages)


def calls_in_words(form: ReplyFormat, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A conversation whose calls stand at the end of what the model said, written in its format.

    For a chat template that shows tools and results, and leaves out the calls that were made. Errors:
    `UnsupportedError` for a format that does not say how calls are written.
    """
    return [_in_words(form, message) for message in messages]


def messages_in_words(
    form: ReplyFormat,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    system: bool = True,
) -> list[dict[str, Any]]:
    """A conversation with tools as one of text, for a chat template that knows nothing of tools.

    Tools are described at the end of the system's message, which is there for it if need be; calls stand at the end of
    what the model said, written in its format; results are messages of the user, one for results that follow each
    other. The words are those of the format's `offering`, else words of ours that hold for any format.

    Args:
        system: there may be a system's message; else what it would say begins the first of the user's.

    Errors: `UnsupportedError` for a format that does not say how calls are written.

    Examples:
        >>> from nco_guard.replies import shipped_formats
        >>> call = {"function": {"name": "find", "arguments": {"q": "x"}}}
        >>> said = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "y"}]
        >>> [one["role"] for one in messages_in_words(shipped_formats()["smollm2"], said, [])]
        ['assistant', 'user']
    """
    texts = form.offering or _TEXTS
    told: list[dict[str, Any]] = []
    result = False
    for message in messages:
        if message.get("role") == "tool":
            text = texts.result.replace("{result}", str(message.get("content") or ""))
            if result:
                told[-1]["content"] += "\n" + text
            else:
                told.append({"role": "user", "content": text})
            result = True
            continue
        told.append(_in_words(form, message))
        result = False
    offer = ""
    if tools:
        described = json.dumps([dict(tool) for tool in tools], ensure_ascii=False)
        offer = texts.system.replace("{call}", written_calls(form, [_EXAMPLE])).replace("{tools}", described)
    return _begun_with(told, offer, system)


def _in_words(form: ReplyFormat, message: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in message.items() if name != "tool_calls"}
    if calls := message.get("tool_calls"):
        functions = [call.get("function", call) for call in calls]
        written = written_calls(form, [(one["name"], _object(one.get("arguments"))) for one in functions])
        told["content"] = "\n".join(text for text in (message.get("content"), written) if text)
    return told


def _object(arguments: Any) -> dict[str, Any]:
    """Arguments as they are, or as JSON in a string."""
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = json.loads(arguments)
    if not isinstance(arguments, Mapping | None):
        raise UnsupportedError(
            f"messages: the arguments of a call are an object, not {type(arguments).__name__}; this model's chat "
            "template shows no calls, so they are written out"
        )
    return dict(arguments or {})


def _begun_with(told: list[dict[str, Any]], offer: str, system: bool) -> list[dict[str, Any]]:
    """The conversation with an offer in the system's message, or at the beginning of the user's first."""
    first = [message["content"] for message in told[:1] if message["role"] == "system"]
    rest = told[len(first) :]
    text = "\n\n".join(one for one in (*first, offer) if one)
    if not text:
        return told
    if system:
        return [{"role": "system", "content": text}, *rest]
    for message in rest:
        if message["role"] == "user":
            message["content"] = f"{text}\n\n{message['content']}"
            return rest
    return [{"role": "user", "content": text}, *rest]
