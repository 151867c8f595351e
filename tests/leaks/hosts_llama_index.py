"""A hosted LLM of LlamaIndex's that says what a shape says, and observers that keep all they are shown."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    LogProb,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.callbacks.base_handler import BaseCallbackHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection

from tests.leaks.places import Places

__all__ = ["HostedLLM", "Reply", "observed", "watched_callbacks"]

_SIZE = 5


@dataclass
class Reply:
    """An answer: its blocks, and all else that comes with it."""

    blocks: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    raw: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    logprobs: list[list[LogProb]] | None = None
    error: Exception | None = None

    def message(self) -> ChatMessage:
        """The whole message."""
        blocks = [block.model_copy(deep=True) for block in self.blocks]
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=dict(self.kwargs))

    def response(self, message: ChatMessage | None = None, delta: str | None = None) -> ChatResponse:
        """A response around it."""
        return ChatResponse(
            message=message or self.message(),
            raw=self.raw,
            delta=delta,
            additional_kwargs=dict(self.extra),
            logprobs=self.logprobs,
        )


class HostedLLM(FunctionCallingLLM):
    """Says what it was told to, one answer after the other, again and again; streams it in small pieces."""

    script: list[Any]
    asked: list[int] = []

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True, model_name="hosted")

    def _next(self) -> Reply:
        said = self.script[len(self.asked) % len(self.script)]
        self.asked.append(1)
        return said() if callable(said) else said

    def _whole(self) -> ChatResponse:
        said = self._next()
        if said.error is not None:
            raise said.error
        return said.response()

    def _pieces(self) -> Iterator[ChatResponse]:
        said = self._next()
        message = said.message()
        text = message.content or ""
        for end in range(_SIZE, len(text) + _SIZE, _SIZE):
            shown = ChatMessage(role=message.role, blocks=[TextBlock(text=text[:end])])
            yield said.response(shown, text[end - _SIZE : end])
            if said.error is not None:
                raise said.error
        yield said.response(message, "")

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        return self._whole()

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        return self._whole()

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        return self._pieces()

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        return _later(self._pieces())

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        return _completion(self._whole())

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        return _completion(self._whole())

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        return (_completion(chunk) for chunk in self._pieces())

    @llm_completion_callback()
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        return _later(_completion(chunk) for chunk in self._pieces())

    def _prepare_chat_with_tools(
        self, tools: Any, user_msg: Any = None, chat_history: Any = None, **_: Any
    ) -> Any:
        asked = ChatMessage(content=user_msg) if isinstance(user_msg, str) else user_msg
        return {"messages": [*(chat_history or ()), *([] if asked is None else [asked])]}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        calls = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
        if not calls and error_on_no_tool_call:
            raise ValueError("no tool call")
        made = []
        for call in calls:
            arguments = call.tool_kwargs
            made.append(
                ToolSelection(
                    tool_id=call.tool_call_id or "1",
                    tool_name=call.tool_name,
                    tool_kwargs=_parsed(arguments) if isinstance(arguments, str) else arguments,
                )
            )
        return made


def _parsed(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return {}


def _completion(chunk: ChatResponse) -> CompletionResponse:
    return CompletionResponse(
        text=chunk.message.content or "",
        delta=chunk.delta,
        raw=chunk.raw,
        logprobs=chunk.logprobs,
        additional_kwargs={**chunk.additional_kwargs, **chunk.message.additional_kwargs},
    )


async def _later(chunks: Any) -> Any:
    for chunk in chunks:
        yield chunk


class _Events(BaseEventHandler):
    seen: list[Any] = []

    def handle(self, event: Any, **kwargs: Any) -> None:
        self.seen.append((type(event).__name__, event))


class _Spans(BaseSpanHandler[BaseSpan]):
    _seen: list[Any] = PrivateAttr(default_factory=list)

    def new_span(self, id_: str, bound_args: Any, *args: Any, **kwargs: Any) -> BaseSpan:
        self._seen.append(("span begins", dict(bound_args.arguments)))
        return BaseSpan(id_=id_)

    def prepare_to_exit_span(
        self, id_: str, bound_args: Any, *args: Any, result: Any = None, **kwargs: Any
    ) -> Any:
        # A stream is looked at by whoever reads it: one that was left in the middle would go on here.
        self._seen.append(("span ends", None if inspect.isgenerator(result) else result))
        return self.open_spans.get(id_)

    def prepare_to_drop_span(
        self, id_: str, bound_args: Any, *args: Any, err: Any = None, **kwargs: Any
    ) -> Any:
        self._seen.append(("span dropped", err))
        return self.open_spans.get(id_)


class _Callbacks(BaseCallbackHandler):
    def __init__(self) -> None:
        super().__init__([], [])
        self.seen: list[Any] = []

    def on_event_start(self, event_type: Any, payload: Any = None, **kwargs: Any) -> str:
        self.seen.append((f"callback {event_type.name} begins", payload))
        return str(kwargs.get("event_id", ""))

    def on_event_end(self, event_type: Any, payload: Any = None, **kwargs: Any) -> None:
        self.seen.append((f"callback {event_type.name} ends", payload))

    def start_trace(self, trace_id: Any = None) -> None:
        pass

    def end_trace(self, trace_id: Any = None, trace_map: Any = None) -> None:
        pass


@contextmanager
def observed(places: Places, *, hidden: tuple[str, ...] = ()) -> Iterator[None]:
    """Events and spans of LlamaIndex's instrumentation are looked at in the end, but for those named."""
    events, spans = _Events(seen=[]), _Spans()
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(events)
    dispatcher.add_span_handler(spans)
    try:
        yield
    finally:
        dispatcher.event_handlers.remove(events)
        dispatcher.span_handlers.remove(spans)
        for name, event in [*((f"event {name}", event) for name, event in events.seen), *spans._seen]:
            if name not in hidden:
                places.add(name, event, printed=False)


@contextmanager
def watched_callbacks(places: Places) -> Iterator[CallbackManager]:
    """A callback manager whose events are looked at in the end."""
    callbacks = _Callbacks()
    try:
        yield CallbackManager([callbacks])
    finally:
        for name, payload in callbacks.seen:
            places.add(name, payload, printed=False)
