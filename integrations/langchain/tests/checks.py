"""What a user received, looked at in every way that a reader could."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from nco_guard import Policy, Report
from nco_guard import verify as search
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.values import Cleaner

__all__ = [
    "check_chunks",
    "check_everything",
    "check_message",
    "check_stream",
    "check_text",
    "texts_in",
    "verify",
]

# Compiling takes longer than searching short texts.
compiled = cache(compile_policy)


def violated_rules(policy: CompiledPolicy, value: Any) -> tuple[str, ...]:
    return Cleaner(policy).rules(value)


def verify(policy: Policy, text: str) -> Report:
    return search(compiled(policy), text)


def check_text(policy: Policy, text: str) -> str:
    assert verify(policy, text).ok
    return text


def check_stream(policy: Policy, pieces: Sequence[str]) -> str:
    """Clean at every moment, as if the text ended there, and as a whole."""
    shown = ""
    for piece in pieces:
        assert verify(policy, piece).ok
        shown += piece
        assert verify(policy, shown).ok
    return shown


def check_message(policy: Policy, message: BaseMessage) -> BaseMessage:
    assert verify(policy, message.text).ok
    assert verify(policy, str(message.content)).ok
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            assert violated_rules(compiled(policy), call["args"]) == ()
        for invalid in message.invalid_tool_calls:
            assert verify(policy, invalid["args"] or "").ok
    assert verify(policy, json.dumps(message.additional_kwargs, default=str)).ok
    return message


def texts_in(value: Any) -> Iterable[str]:
    """Every string in whatever a stream or a callback shows."""
    if isinstance(value, type):
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseMessage):
        yield from texts_in(value.model_dump())
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from texts_in(key)
            yield from texts_in(part)
    elif isinstance(value, (list, tuple, set)):
        for part in value:
            yield from texts_in(part)
    elif hasattr(value, "model_dump"):
        yield from texts_in(value.model_dump())
    elif hasattr(value, "__dict__") and type(value).__module__.startswith(("langchain", "langgraph")):
        yield from texts_in(vars(value))


def check_everything(policy: Policy, value: Any) -> None:
    for text in texts_in(value):
        assert verify(policy, text).ok


def check_chunks(policy: Policy, chunks: list[tuple[BaseMessage, Any]]) -> list[str]:
    """Every message of a stream, chunk by chunk and joined; the texts of the model's own messages."""
    messages: dict[str | None, BaseMessage] = {}
    pieces: dict[str | None, list[str]] = {}
    for chunk, _ in chunks:
        check_message(policy, chunk)
        if isinstance(chunk, AIMessageChunk):
            known = messages.get(chunk.id)
            messages[chunk.id] = check_message(policy, chunk if known is None else known + chunk)
            pieces.setdefault(chunk.id, []).append(chunk.text)
    return [check_stream(policy, parts) for parts in pieces.values()]
