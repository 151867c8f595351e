"""For tests and demonstrations: a chat model that says what a script says, as a hosted one would, in small pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field

__all__ = ["ScriptedChatModel"]


class ScriptedChatModel(BaseChatModel):
    """Answers with `script`, one message after the other, then from the start again.

    Attributes:
        size: characters in each piece of a stream.
        blocks: content comes as a list of blocks, as some providers send it.
        arguments: by a tool's name, the JSON text of its arguments where it is to differ from what `json.dumps` makes.
        asked: the messages of each call so far.
    """

    script: list[AIMessage]
    size: int = 3
    blocks: bool = False
    arguments: dict[str, str] = Field(default_factory=dict)
    asked: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Tools are taken and have no effect on the script."""
        return self.bind(tools=list(tools), **kwargs)

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        self.asked.append(messages)
        return self.script[(len(self.asked) - 1) % len(self.script)].model_copy(deep=True)

    def _content(self, text: str) -> str | list[str | dict[str, Any]]:
        return [{"type": "text", "text": text, "index": 0}] if self.blocks else text

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = self._next(messages)
        message.content = self._content(message.text)
        for call in message.tool_calls:
            if call["name"] in self.arguments:
                call["args"] = json.loads(self.arguments[call["name"]])
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        message = self._next(messages)
        for piece in self._pieces(message.text):
            chunk = AIMessageChunk(content=self._content(piece))
            if run_manager is not None:
                run_manager.on_llm_new_token(piece, chunk=ChatGenerationChunk(message=chunk))
            yield ChatGenerationChunk(message=chunk)
        for index, call in enumerate(message.tool_calls):
            body = self.arguments.get(call["name"], json.dumps(call["args"]))
            for place, piece in enumerate(self._pieces(body)):
                name, call_id = (None, None) if place else (call["name"], call["id"])
                part = tool_call_chunk(name=name, args=piece, id=call_id, index=index)
                yield ChatGenerationChunk(
                    message=AIMessageChunk(content=[] if self.blocks else "", tool_call_chunks=[part])
                )
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content=[] if self.blocks else "",
                additional_kwargs=message.additional_kwargs,
                response_metadata=message.response_metadata,
                usage_metadata=message.usage_metadata,
            )
        )

    def _pieces(self, text: str) -> list[str]:
        return [text[start : start + self.size] for start in range(0, len(text), self.size)]
