"""How LangChain's types are read by `nco_guard.values`: messages, documents, prompts, results.

Fields that are not named are read as any value. Importing this registers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, BaseMessageChunk, ToolMessage
from langchain_core.outputs import ChatResult, Generation, GenerationChunk, LLMResult
from langchain_core.prompt_values import ChatPromptValue, ImagePromptValue, StringPromptValue
from langgraph.types import Command, Interrupt, Send

from nco_guard.values import Role, register
from nco_guard.values.shapes import copied


def _piece(message: Any, fields: Mapping[str, Any]) -> Any:
    """A chunk of the same message with some fields alone."""
    kept = {name: getattr(message, name) for name in ("id", "role", "tool_call_id") if hasattr(message, name)}
    return type(message)(**{"content": "", **kept, **fields})


def _without_emptied(chunk: Any, changed: Mapping[str, Any]) -> Any:
    """A chunk without the pieces of calls of which nothing is left: LangChain takes each for a call of its own."""
    if "tool_call_chunks" not in changed:
        return copied(chunk, changed)
    pieces = zip(changed["tool_call_chunks"], chunk.tool_call_chunks, strict=True)
    left = [new for new, old in pieces if new["args"] or not old["args"] or new.get("name") or new.get("id")]
    return copied(chunk, {**changed, "tool_call_chunks": left})


_MESSAGE = {"content": Role.BLOCKS, "response_metadata": Role.METADATA, "id": Role.IDENTIFIER}

register(BaseMessage, {**_MESSAGE, "type": Role.KEEP})
register(BaseMessageChunk, {}, chunk=_piece)
register(AIMessageChunk, {}, rebuild=_without_emptied)
register(AIMessage, {"usage_metadata": Role.METADATA, "chunk_position": Role.KEEP})
register(ToolMessage, {"tool_call_id": Role.IDENTIFIER, "status": Role.KEEP})
register(Document, {"page_content": Role.TEXT, "id": Role.IDENTIFIER, "type": Role.KEEP})
register(StringPromptValue, {"text": Role.TEXT, "type": Role.KEEP})
register(ChatPromptValue, {"type": Role.KEEP})
register(ImagePromptValue, {"image_url": Role.MEDIA, "type": Role.KEEP})
register(Generation, {"text": Role.TEXT, "generation_info": Role.METADATA, "type": Role.KEEP})
register(GenerationChunk, {}, chunk=lambda chunk, fields: type(chunk)(**{"text": "", **fields}))
for _result in (LLMResult, ChatResult):
    register(_result, {"llm_output": Role.METADATA, "run": Role.KEEP, "type": Role.KEEP})
register(Command, {"graph": Role.KEEP})
register(Send, {"node": Role.KEEP})
register(Interrupt, {"id": Role.KEEP, "response_schema": Role.KEEP})
