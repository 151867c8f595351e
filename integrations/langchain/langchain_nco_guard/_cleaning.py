"""What LangChain's types are made of, for `nco_guard.values`, which looks into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, BaseMessageChunk, ToolMessage
from langchain_core.outputs import ChatResult, Generation, GenerationChunk, LLMResult
from langchain_core.prompt_values import ChatPromptValue, ImagePromptValue, StringPromptValue
from langgraph.types import Command, Interrupt, Send

from nco_guard import Guard, OnMatch
from nco_guard.audit import RunRecorder
from nco_guard.scan import Replacement
from nco_guard.values import Cleaner as ValueCleaner
from nco_guard.values import Role, register
from nco_guard.values.shapes import copied

__all__ = ["Cleaner"]


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


class Cleaner(ValueCleaner):
    """Redacts or refuses values, and records texts in the audit sink. `parsed`: messages are JSON that is parsed."""

    def __init__(
        self,
        guard: Guard,
        action: OnMatch,
        *,
        replacement: Replacement = None,
        where: str = "text",
        record: bool = True,
        parsed: bool = False,
    ) -> None:
        self.guard = guard
        self.recorder = RunRecorder(guard.log.sink) if record and guard.log.sink is not None else None
        self._parsed = parsed
        super().__init__(guard, action, replacement=replacement, where=where, record=self.recorder)

    def value(self, value: Any) -> Any:
        """Any Python value. Errors about a message say whether it was in its tool calls."""
        if self.action == "raise" and isinstance(value, AIMessage):
            self.at("tool-call arguments").value([*value.tool_calls, *value.invalid_tool_calls])
        cleaned = super().value(value)
        if not self._parsed or not isinstance(cleaned, AIMessage):
            return cleaned
        text = self.json_text(cleaned.text)
        return cleaned if text == cleaned.text else cleaned.model_copy(update={"content": text})
