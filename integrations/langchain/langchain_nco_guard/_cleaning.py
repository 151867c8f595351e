"""What LangChain's types are made of, for `nco_guard.values`, which looks into them."""

from __future__ import annotations

from typing import Literal, TypeVar

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, BaseMessageChunk, ToolMessage
from langchain_core.outputs import (
    ChatGenerationChunk,
    ChatResult,
    Generation,
    GenerationChunk,
    LLMResult,
)
from langchain_core.prompt_values import ChatPromptValue, ImagePromptValue, StringPromptValue
from langgraph.types import Command, Interrupt, Send

from nco_guard import Guard
from nco_guard.audit import RunRecorder
from nco_guard.redaction import REDACTED, Replacement
from nco_guard.values import Cleaner as ValueCleaner
from nco_guard.values import Role, register

__all__ = ["Cleaner"]

M = TypeVar("M", bound=BaseMessage)

_MESSAGE = {
    "content": Role.BLOCKS,
    "response_metadata": Role.METADATA,
    "id": Role.IDENTIFIER,
    "type": Role.KEEP,
}
_CALLING = {"usage_metadata": Role.METADATA, "chunk_position": Role.KEEP}
_GENERATION = {"text": Role.TEXT, "generation_info": Role.METADATA, "type": Role.KEEP}
_RESULT = {"llm_output": Role.METADATA, "run": Role.KEEP, "type": Role.KEEP}

register(BaseMessage, _MESSAGE)
register(BaseMessageChunk, {}, chunk=True)
register(AIMessage, _CALLING)
register(AIMessageChunk, _CALLING, chunk=True)
register(ToolMessage, {"tool_call_id": Role.IDENTIFIER, "status": Role.KEEP})
register(Document, {"page_content": Role.TEXT, "id": Role.IDENTIFIER, "type": Role.KEEP})
register(StringPromptValue, {"text": Role.TEXT, "type": Role.KEEP})
register(ChatPromptValue, {"type": Role.KEEP})
register(ImagePromptValue, {"image_url": Role.MEDIA, "type": Role.KEEP})
register(Generation, _GENERATION)
register(GenerationChunk, {}, chunk=True)
register(ChatGenerationChunk, {}, chunk=True)
register(LLMResult, _RESULT)
register(ChatResult, _RESULT)
register(Command, {"graph": Role.KEEP})
register(Send, {"node": Role.KEEP})
register(Interrupt, {"id": Role.KEEP, "response_schema": Role.KEEP})


class Cleaner(ValueCleaner):
    """Redacts or refuses values, and records each text in the guard's audit sink.

    parsed: the text of messages is JSON that somebody will parse.
    """

    def __init__(
        self,
        guard: Guard,
        action: Literal["redact", "raise"],
        *,
        replacement: Replacement = REDACTED,
        where: str = "text",
        record: bool = True,
        parsed: bool = False,
    ) -> None:
        self.guard = guard
        self.recorder = RunRecorder(guard.audit) if record and guard.audit is not None else None
        self._parsed = parsed
        super().__init__(guard, action, replacement=replacement, where=where, record=self.recorder)

    def message(self, message: M) -> M:
        """A message: its text, its tool calls, and all else that it carries. Unchanged (the same object) if clean."""
        if self.action == "raise" and isinstance(message, AIMessage):
            # Errors say where it was.
            self.at("tool-call arguments").value([*message.tool_calls, *message.invalid_tool_calls])
        cleaned: M = self.value(message)
        if self._parsed and (text := self.json_text(cleaned.text)) != cleaned.text:
            return cleaned.model_copy(update={"content": text})
        return cleaned
