"""Between LangChain's messages and what a chat template reads and a model writes.

Tool calls are read in the form that Hermes, Qwen and the model that ships with nco-guard write:
`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages import ToolCall as LangChainToolCall

from nco_guard import Guard
from nco_guard.errors import UnsupportedError
from nco_guard.values import ReplyReader
from nco_guard.values.replies import Event, Text, ToolCall

__all__ = ["TOOL_CALL_END", "TOOL_CALL_START", "Reply", "template_messages"]

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


class Reply:
    """What a model writes, as messages have it: pieces of text, and calls, as they become complete.

    The reading is that of `nco_guard.values`; text without stop strings and calls is shown as it was guarded.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        stops: Sequence[str] = (),
        context: str = "",
        begun: str = "",
        calls: bool = False,
    ) -> None:
        marks = (TOOL_CALL_START, TOOL_CALL_END) if calls else None
        needed = calls or any(stops)
        self._reader = (
            ReplyReader(guard, context=context, stop=stops, marks=marks, begun=begun) if needed else None
        )
        self.content = ""
        self.tool_calls: list[LangChainToolCall] = []
        self.invalid_tool_calls: list[InvalidToolCall] = []

    @property
    def stopped(self) -> bool:
        """Whether a stop string was met."""
        return self._reader is not None and self._reader.stopped

    def feed(self, text: str) -> list[str | LangChainToolCall]:
        """Read on; what is new."""
        return self._told([Text(text)] if self._reader is None else self._reader.feed(text))

    def finish(self) -> list[str | LangChainToolCall]:
        """The text is over."""
        return [] if self._reader is None else self._told(self._reader.finish())

    def whole(self, text: str) -> Reply:
        """All of a text."""
        self.feed(text)
        self.finish()
        return self

    def over(self, pieces: Iterable[str]) -> Iterator[str | LangChainToolCall]:
        """What is new, piece by piece of a whole text."""
        for piece in pieces:
            yield from self.feed(piece)
        yield from self.finish()

    def _told(self, events: Sequence[Event]) -> list[str | LangChainToolCall]:
        new: list[str | LangChainToolCall] = []
        for event in events:
            if isinstance(event, Text):
                self.content += event.text
                new += [event.text] if event.text else []
            elif isinstance(event, ToolCall):
                call = LangChainToolCall(type="tool_call", name=event.name, args=event.arguments, id=event.id)
                self.tool_calls.append(call)
                new.append(call)
            else:
                self.invalid_tool_calls.append(
                    InvalidToolCall(
                        type="invalid_tool_call", name=None, args=event.text, id=event.id, error=event.problem
                    )
                )
        return new

    def finish_reason(self, outcome: str) -> str:
        """Why it ended, in the words of hosted models; `outcome` is the engine's."""
        if self.tool_calls:
            return "tool_calls"
        return "stop" if self.stopped or outcome in ("ended", "stopped") else outcome
