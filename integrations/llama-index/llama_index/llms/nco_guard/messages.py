"""LlamaIndex's messages and tools as the plain dictionaries that chat templates take, and calls in messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools.types import BaseTool

from nco_guard.errors import UnsupportedError

__all__ = ["described_tools", "plain_messages", "tool_selections"]

_ROLES = {
    MessageRole.DEVELOPER: "system",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
    MessageRole.FUNCTION: "tool",
}


def described_tools(tools: Any) -> list[dict[str, Any]]:
    """Tools of LlamaIndex as OpenAI's APIs have them. Errors: `UnsupportedError`, which names a tool by its place."""
    if isinstance(tools, BaseTool | str) or not isinstance(tools, Iterable):
        raise UnsupportedError(f"tools: give a list of tools, not a {type(tools).__name__}")
    described = []
    for number, tool in enumerate(tools):
        if not isinstance(tool, BaseTool):
            raise UnsupportedError(
                f"tools[{number}]: a {type(tool).__name__}; make a tool of it by FunctionTool.from_defaults"
            )
        described.append(tool.metadata.to_openai_tool(skip_length_check=True))
    return described


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
    """Roles, text, reasoning, tool calls. Raises `UnsupportedError` for content that is no text (images, ...)."""
    if not messages:
        raise UnsupportedError("messages: at least one is needed")
    return [_plain(message) for message in messages]


def _plain(message: ChatMessage) -> dict[str, Any]:
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ToolCallBlock):
            function = {"name": block.tool_name, "arguments": block.tool_kwargs}
            calls.append({"type": "function", "function": function})
        elif isinstance(block, ThinkingBlock):
            reasoning.append(block.content or "")
        elif not isinstance(block, CachePoint):
            raise UnsupportedError(f"messages: a {type(block).__name__} cannot be given to a text model")
    role = _ROLES.get(message.role, message.role.value)
    plain: dict[str, Any] = {"role": role, "content": "\n".join(texts)}
    if any(reasoning) and role == "assistant":
        plain["reasoning_content"] = "".join(reasoning)
    if calls and role == "assistant":
        plain["tool_calls"] = calls
    if role == "tool":
        for name in ("name", "tool_call_id"):
            if name in message.additional_kwargs:
                plain[name] = message.additional_kwargs[name]
    return plain
