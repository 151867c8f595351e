"""For tests and demonstrations: an LLM that says what a script says, as a hosted one would, in small pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
    TextBlock,
)
from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.llms.nco_guard.messages import tool_selections

if TYPE_CHECKING:
    from llama_index.core.tools.types import BaseTool

__all__ = ["ScriptedLLM"]


class ScriptedLLM(FunctionCallingLLM):
    """Answers with `script`, one message after the other, then from the start again; completions are their texts.

    Attributes:
        script: messages; a text stands for one.
        size: characters in each piece of a stream.
        asked: the messages of each call so far; a completion's prompt is a user's message.
    """

    script: list[ChatMessage | str]
    size: int = 3
    asked: list[list[ChatMessage]] = Field(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of this class."""
        return "ScriptedLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """A chat model that calls functions."""
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True, model_name="scripted")

    def _next(self, messages: Sequence[ChatMessage]) -> ChatMessage:
        self.asked.append(list(messages))
        said = self.script[(len(self.asked) - 1) % len(self.script)]
        if isinstance(said, str):
            return ChatMessage(role=MessageRole.ASSISTANT, content=said)
        return said.model_copy(deep=True, update={"role": MessageRole.ASSISTANT})

    def _pieces(self, message: ChatMessage) -> list[ChatResponse]:
        """Text first; everything else comes with the last chunk."""
        text = message.content or ""
        chunks = []
        for end in range(self.size, len(text) + self.size, self.size):
            said = ChatMessage(role=message.role, blocks=[TextBlock(text=text[:end])])
            chunks.append(
                ChatResponse(message=said, delta=text[end - self.size : end], raw={"text": text[:end]})
            )
        return [*chunks, ChatResponse(message=message, delta="", raw={"text": text})]

    # -- routes ------------------------------------------------------------------------------------------------

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The next message of the script."""
        message = self._next(messages)
        return ChatResponse(message=message, raw={"text": message.content})

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The next message of the script."""
        message = self._next(messages)
        return ChatResponse(message=message, raw={"text": message.content})

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The next message of the script, in pieces."""
        chunks = self._pieces(self._next(messages))
        return (chunk for chunk in chunks)

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """The next message of the script, in pieces."""
        return _arriving(self._pieces(self._next(messages)))

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The text of the next message."""
        message = self._next([ChatMessage(content=prompt)])
        return CompletionResponse(text=message.content or "", raw={"text": message.content})

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The text of the next message."""
        message = self._next([ChatMessage(content=prompt)])
        return CompletionResponse(text=message.content or "", raw={"text": message.content})

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The text of the next message, in pieces."""
        chunks = self._pieces(self._next([ChatMessage(content=prompt)]))
        return (_completion(chunk) for chunk in chunks)

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """The text of the next message, in pieces."""
        chunks = self._pieces(self._next([ChatMessage(content=prompt)]))
        return (_completion(chunk) async for chunk in _arriving(chunks))

    # -- tools -------------------------------------------------------------------------------------------------

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        asked = ChatMessage(content=user_msg) if isinstance(user_msg, str) else user_msg
        return {"messages": [*(chat_history or ()), *([] if asked is None else [asked])], **kwargs}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The calls among the blocks of a message."""
        calls = tool_selections(response.message)
        if not calls and error_on_no_tool_call:
            raise ValueError("the script has no tool call here")
        return calls


async def _arriving(chunks: list[ChatResponse]) -> ChatResponseAsyncGen:
    for chunk in chunks:
        yield chunk


def _completion(chunk: ChatResponse) -> CompletionResponse:
    return CompletionResponse(text=chunk.message.content or "", delta=chunk.delta, raw=chunk.raw)
