"""Between LangChain's messages and what a chat template reads and a model writes.

Tool calls are read in the form that Hermes, Qwen and the model that ships with nco-guard write:
`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from langchain_nco_guard._text import longest_overlap
from nco_guard.errors import UnsupportedError

__all__ = ["TOOL_CALL_END", "TOOL_CALL_START", "ParsedText", "ToolCallFilter", "parse", "template_messages"]

TOOL_CALL_START = "<tool_call>"
TOOL_CALL_END = "</tool_call>"
# Blocks that say again what stands in `tool_calls`.
_REPEATED = (
    "tool_use",
    "tool_call",
    "tool_call_chunk",
    "invalid_tool_call",
    "function_call",
    "input_json_delta",
)


def template_messages(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Messages as `apply_chat_template` takes them. Errors: `UnsupportedError` for content that is not text."""
    return [_template_message(message) for message in messages]


def _template_message(message: BaseMessage) -> dict[str, Any]:
    content = _text_of(message)
    if isinstance(message, SystemMessage):
        return {"role": "system", "content": content}
    if isinstance(message, HumanMessage):
        return {"role": "user", "content": content, **({"name": message.name} if message.name else {})}
    if isinstance(message, ToolMessage):
        named = {"name": message.name} if message.name else {}
        return {"role": "tool", "content": content, "tool_call_id": message.tool_call_id, **named}
    if isinstance(message, AIMessage):
        entry: dict[str, Any] = {"role": "assistant", "content": content}
        if message.tool_calls:
            entry["tool_calls"] = [
                {
                    "type": "function",
                    "id": call["id"],
                    "function": {"name": call["name"], "arguments": call["args"]},
                }
                for call in message.tool_calls
            ]
        return entry
    role = getattr(message, "role", None)
    if role in ("system", "user", "assistant"):
        return {"role": role, "content": content}
    raise UnsupportedError(f"messages of type {message.type!r}: chat templates know no such role")


def _text_of(message: BaseMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    texts: list[str] = []
    for block in message.content:
        if isinstance(block, str):
            texts.append(block)
        elif block.get("type") == "text":
            texts.append(str(block.get("text", "")))
        elif block.get("type") not in _REPEATED:
            raise UnsupportedError(
                f"content blocks of type {block.get('type')!r}: this model reads text; leave them out"
            )
    return "".join(texts)


@dataclass(frozen=True)
class ParsedText:
    """What a model wrote, taken apart: the text outside of tool calls, and the calls."""

    content: str
    tool_calls: tuple[ToolCall, ...]
    invalid_tool_calls: tuple[InvalidToolCall, ...]


def parse(text: str) -> ParsedText:
    """Take tool calls out of a text. A call that is not valid JSON, or breaks off, is an invalid one."""
    content: list[str] = []
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    rest = text
    while TOOL_CALL_START in rest:
        before, _, rest = rest.partition(TOOL_CALL_START)
        body, closed, rest = rest.partition(TOOL_CALL_END)
        content.append(before)
        call = _read_call(body)
        if call is None or not closed:
            problem = (
                "the call is not finished" if not closed else "the call is not JSON with name and arguments"
            )
            invalid.append(
                InvalidToolCall(type="invalid_tool_call", name=None, args=body, id=_new_id(), error=problem)
            )
        else:
            calls.append(call)
    return ParsedText("".join((*content, rest)), tuple(calls), tuple(invalid))


def _read_call(body: str) -> ToolCall | None:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict) or not isinstance(read.get("name"), str):
        return None
    arguments = read.get("arguments", read.get("parameters", {}))
    if not isinstance(arguments, dict):
        return None
    return ToolCall(type="tool_call", name=read["name"], args=arguments, id=_new_id())


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class ToolCallFilter:
    """Splits streamed text: what may be shown as text at once, and the rest, from the first tool call on.

    Text after a call is kept with it: joined to the text before, it has to be looked at as a whole.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._rest = ""
        self._found = False

    def feed(self, text: str) -> str:
        """Read on; text that certainly is in no tool call."""
        if self._found:
            self._rest += text
            return ""
        self._pending += text
        before, mark, after = self._pending.partition(TOOL_CALL_START)
        if mark:
            self._found, self._rest, self._pending = True, mark + after, ""
            return before
        keep = len(self._pending) - longest_overlap(self._pending, (TOOL_CALL_START,))
        ready, self._pending = self._pending[:keep], self._pending[keep:]
        return ready

    def finish(self) -> tuple[str, str]:
        """The text that is left, and everything from the first tool call on."""
        return self._pending, self._rest
