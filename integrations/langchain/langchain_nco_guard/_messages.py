"""Between LangChain's messages and what a chat template reads and a model writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages import ToolCall as LangChainToolCall
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk

from nco_guard.engines.hf.reply_calls import Reply
from nco_guard.errors import UnsupportedError
from nco_guard.replies import Reasoning, Text, ToolCall

__all__ = ["chunks_of", "message_of", "template_messages", "usage_of"]

# Blocks that say again what stands in `tool_calls`.
_REPEATED = (
    "tool_use",
    "tool_call",
    "tool_call_chunk",
    "invalid_tool_call",
    "function_call",
    "input_json_delta",
)


# Blocks that templates read beside the content.
_APART = ("reasoning",)


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
        if reasoning := _reasoning_of(message):
            entry["reasoning_content"] = reasoning
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
        elif block.get("type") not in (*_REPEATED, *_APART):
            raise UnsupportedError(
                f"content blocks of type {block.get('type')!r}: this model reads text; leave them out"
            )
    return "".join(texts)


def _reasoning_of(message: AIMessage) -> str:
    blocks = message.content if isinstance(message.content, list) else []
    apart = [block for block in blocks if isinstance(block, dict) and block.get("type") in _APART]
    return "".join(str(block.get("reasoning") or "") for block in apart)


def message_of(reply: Reply, metadata: Mapping[str, Any]) -> AIMessage:
    """A whole reply; its content is text, or where there is reasoning blocks, in the order in which they came."""
    content: str | list[str | dict[str, Any]] = reply.content
    if reply.reasoning:
        content = [_block(part) for part in reply.parts]
    return AIMessage(
        content=content,
        tool_calls=[
            LangChainToolCall(type="tool_call", name=call.name, args=call.arguments, id=call.id)
            for call in reply.calls
        ],
        invalid_tool_calls=_invalid(reply),
        usage_metadata=usage_of(reply),
        response_metadata=dict(metadata),
    )


def _block(part: Text | Reasoning) -> dict[str, Any]:
    kind = "text" if isinstance(part, Text) else "reasoning"
    return {"type": kind, kind: part.text}


def chunks_of(reply: Reply, metadata: Mapping[str, Any]) -> Iterator[AIMessageChunk]:
    """What the last piece added to a reply: text, reasoning, whole calls; at its end, how it ended."""
    index = len(reply.calls) - sum(isinstance(event, ToolCall) for event in reply.news)
    said = [event for event in reply.news if isinstance(event, Text | Reasoning)]
    # The last of them belongs to the last part.
    part = len(reply.parts) - 1 - sum(type(one) is not type(other) for one, other in pairwise(said))
    before: type = type(said[0]) if said else Text
    for event in reply.news:
        if isinstance(event, Text | Reasoning):
            part, before = part + (type(event) is not before), type(event)
            first = part == 0 and isinstance(event, Text)
            yield AIMessageChunk(content=event.text if first else [{**_block(event), "index": part}])
        elif isinstance(event, ToolCall):
            arguments = json.dumps(event.arguments, ensure_ascii=False)
            call = tool_call_chunk(name=event.name, args=arguments, id=event.id, index=index)
            yield AIMessageChunk(content="", tool_call_chunks=[call])
            index += 1
    if reply.outcome is not None:
        yield AIMessageChunk(
            content="",
            invalid_tool_calls=_invalid(reply),
            usage_metadata=usage_of(reply),
            response_metadata=dict(metadata),
            chunk_position="last",
        )


def usage_of(reply: Reply) -> UsageMetadata | None:
    """The tokens of a reply that is over."""
    if (usage := reply.usage) is None:
        return None
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
    )


def _invalid(reply: Reply) -> list[InvalidToolCall]:
    return [
        InvalidToolCall(type="invalid_tool_call", name=None, args=call.text, id=call.id, error=call.problem)
        for call in reply.invalid_calls
    ]
