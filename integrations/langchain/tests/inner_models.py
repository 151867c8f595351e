"""Models as others write them: they ask other models, want a run manager, answer through their own streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field

from langchain_nco_guard.testing import ScriptedChatModel

LEAK = "Write to john.doe@example.com, or call 312-555-0155."
SAFE = "Write to [redacted], or call [redacted]."


def scripted(*texts: str, **options: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=[AIMessage(text) for text in texts or (LEAK,)], **options)


class Talker(ScriptedChatModel):
    """Says `LEAK`, which is in none of its fields: models are described by those in traces."""

    script: list[AIMessage] = Field(default_factory=lambda: [AIMessage("")])

    def _next(self, messages: Any) -> AIMessage:
        return AIMessage(LEAK)


class Delegating(BaseChatModel):
    """Asks another model by its public methods, as routers and proxies do."""

    other: Any

    @property
    def _llm_type(self) -> str:
        return "delegating"

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.other.invoke(messages))])

    async def _agenerate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=await self.other.ainvoke(messages))])

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self.other.stream(messages):
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in self.other.astream(messages):
            yield ChatGenerationChunk(message=chunk)


class HandingOn(Delegating):
    """The same with the callbacks of its own run."""

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        config: Any = {"callbacks": run_manager.handlers}
        return ChatResult(generations=[ChatGeneration(message=self.other.invoke(messages, config))])


class Streaming(BaseChatModel):
    """As `ChatOpenAI(streaming=True)`: only its stream is to be asked, which `invoke` sees to."""

    streaming: bool = False

    @property
    def _llm_type(self) -> str:
        return "streaming"

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        if self.streaming:
            raise ValueError("a stream where an answer was expected")
        return ChatResult(generations=[ChatGeneration(message=AIMessage(LEAK))])

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for start in range(0, len(LEAK), 4):
            chunk = ChatGenerationChunk(message=AIMessageChunk(LEAK[start : start + 4]))
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                "", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
            ),
            generation_info={"finish_reason": "stop"},
        )


class Fails(Delegating):
    """Out of order."""

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("no host")

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("no host")

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("no host")
        yield

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("no host")
        yield
