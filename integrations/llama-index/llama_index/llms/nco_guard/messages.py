"""LlamaIndex chat messages as the plain dictionaries that chat templates take, and prompts made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2.exceptions import TemplateError
from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms.llm import ToolSelection

from nco_guard.errors import UnsupportedError

__all__ = ["plain_messages", "render", "tool_selections", "writes_calls"]

_ROLES = {
    MessageRole.DEVELOPER: "system",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
    MessageRole.FUNCTION: "tool",
}
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "A probe.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
}


def tool_selections(message: ChatMessage) -> list[ToolSelection]:
    """The calls among the blocks of a message, as agents take them; arguments that are no object count as none."""
    return [
        ToolSelection(
            tool_id=block.tool_call_id or "",
            tool_name=block.tool_name,
            tool_kwargs=block.tool_kwargs if isinstance(block.tool_kwargs, dict) else {},
        )
        for block in message.blocks
        if isinstance(block, ToolCallBlock)
    ]


def plain_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Roles, text and tool calls. Raises `UnsupportedError` for content that is no text (images, audio, ...)."""
    if not messages:
        raise UnsupportedError("messages: at least one is needed")
    return [_plain(message) for message in messages]


def _plain(message: ChatMessage) -> dict[str, Any]:
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ToolCallBlock):
            calls.append(_function(block.tool_name, block.tool_kwargs))
        elif not isinstance(block, ThinkingBlock | CachePoint):
            raise UnsupportedError(f"messages: a {type(block).__name__} cannot be given to a text model")
    role = _ROLES.get(message.role, message.role.value)
    plain: dict[str, Any] = {"role": role, "content": "\n".join(texts)}
    if calls and role == "assistant":
        plain["tool_calls"] = calls
    if role == "tool":
        for name in ("name", "tool_call_id"):
            if name in message.additional_kwargs:
                plain[name] = message.additional_kwargs[name]
    return plain


def _function(name: str, arguments: dict[str, Any] | str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def render(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """The prompt that the tokenizer's chat template makes. Raises `UnsupportedError` if the template refuses."""
    try:
        prompt: str = tokenizer.apply_chat_template(
            list(messages), tools=list(tools) if tools else None, add_generation_prompt=True, tokenize=False
        )
    except (TemplateError, TypeError, KeyError) as error:
        roles = ", ".join(str(message["role"]) for message in messages)
        raise UnsupportedError(f"the chat template refuses these messages (roles: {roles})") from error
    return prompt


def writes_calls(tokenizer: Any, marks: tuple[str, str]) -> bool:
    """Whether the tokenizer's chat template shows tools, writes calls between `marks`, and decoding keeps the marks."""
    ask = {"role": "user", "content": "probe"}
    call = {"role": "assistant", "content": "", "tool_calls": [_function("probe_tool", {"key": "value"})]}
    answer = {"role": "tool", "content": "probe"}
    try:
        offered = render(tokenizer, [ask], [_PROBE_TOOL])
        called = render(tokenizer, [ask, call, answer], [_PROBE_TOOL])
    except UnsupportedError:
        return False
    if "probe_tool" not in offered or not all(mark in called for mark in marks):
        return False
    shown = tokenizer.decode(
        tokenizer(f"{marks[0]}{{}}{marks[1]}", add_special_tokens=False)["input_ids"],
        skip_special_tokens=True,
    )
    return all(mark in shown for mark in marks)
