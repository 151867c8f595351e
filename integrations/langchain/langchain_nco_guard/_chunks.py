"""Streams of message chunks that somebody else produced, on their way to the reader.

Text is shown as soon as no match can begin in it any more. Everything else (tool calls, reasoning, metadata) is
kept until the message is complete, looked at as a whole, and shown in its last chunk.
"""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk

from langchain_nco_guard._cleaning import Cleaner, without_logprobs

__all__ = ["ChunkFilter", "as_chunk"]


class ChunkFilter:
    """Chunks of one message in, chunks that may be shown out; `finish` gives the last one."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner
        self._stream = cleaner.guard.stream_verifier(
            action=cleaner.action, replacement=cleaner.replacement, where=cleaner.where
        )
        self._rest: AIMessageChunk | None = None
        self._info: dict[str, Any] = {}
        self._blocks = False  # content comes as a list of blocks
        self._index: Any = None  # of the text block that is being written

    def feed(self, chunk: ChatGenerationChunk) -> ChatGenerationChunk | None:
        """Read one chunk; what may be shown now."""
        message = as_chunk(chunk.message)
        text, rest = self._split(message)
        self._rest = rest if self._rest is None else self._rest + rest
        self._info.update(without_logprobs(chunk.generation_info or {}))
        return self._text(self._stream.feed(text) if text else "", message.id)

    def finish(self) -> list[ChatGenerationChunk]:
        """The message is complete: the rest of the text, and all that was kept."""
        last = self._text(self._stream.finish(), None)
        self._cleaner.record(self._stream.report)
        final = self._rest if self._rest is not None else AIMessageChunk(content="")
        kept = self._cleaner.message(
            AIMessageChunk(
                content=final.content,
                additional_kwargs=final.additional_kwargs,
                response_metadata=without_logprobs(final.response_metadata),
                tool_call_chunks=final.tool_call_chunks,
                usage_metadata=final.usage_metadata,
                id=final.id,
                chunk_position="last",
            )
        )
        # Parsed anew from the cleaned text of its calls, and looked at once more as the program will read it.
        kept = AIMessageChunk(
            **{
                **kept.model_dump(exclude={"tool_calls", "invalid_tool_calls", "type"}),
                "chunk_position": "last",
            }
        )
        self._cleaner.at("tool-call arguments").json_value([call["args"] for call in kept.tool_calls])
        info = self._cleaner.metadata(self._info) or None
        ending = ChatGenerationChunk(message=kept, generation_info=info)
        return [ending] if last is None else [last, ending]

    def _text(self, text: str, message_id: str | None) -> ChatGenerationChunk | None:
        if not text:
            return None
        content: str | list[str | dict[str, Any]] = text
        if self._blocks:
            block: dict[str, Any] = {"type": "text", "text": text}
            content = [block if self._index is None else {**block, "index": self._index}]
        return ChatGenerationChunk(message=AIMessageChunk(content=content, id=message_id))

    def _split(self, message: AIMessageChunk) -> tuple[str, AIMessageChunk]:
        """The text of a chunk, and the chunk without it."""
        if isinstance(message.content, str):
            return message.content, message.model_copy(update={"content": [] if self._blocks else ""})
        self._blocks = True
        texts: list[str] = []
        others: list[str | dict[str, Any]] = []
        for block in message.content:
            if isinstance(block, str):
                texts.append(block)
            elif block.get("type") == "text":
                texts.append(str(block.get("text", "")))
                self._index = block.get("index", self._index)
                if set(block) - {"type", "text", "index", "id"}:
                    others.append({**block, "text": ""})
            else:
                others.append(block)
        return "".join(texts), message.model_copy(update={"content": others})


def as_chunk(message: BaseMessage) -> AIMessageChunk:
    """A whole message as the only chunk of a stream; chunks as they are."""
    if isinstance(message, AIMessageChunk):
        return message
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    chunks = [
        tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"], ensure_ascii=False), id=call["id"], index=i
        )
        for i, call in enumerate(calls)
    ]
    return AIMessageChunk(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        tool_call_chunks=chunks,
        usage_metadata=message.usage_metadata if isinstance(message, AIMessage) else None,
        id=message.id,
        name=message.name,
    )
