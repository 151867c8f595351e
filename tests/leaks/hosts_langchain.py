"""A hosted chat model of LangChain's that says what a shape says, and observers that keep all they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run as TracedRun

from tests.leaks.places import Places

__all__ = ["Callbacks", "Hosted", "Said", "Trace", "failing_host", "observers"]

_SIZE = 5


@dataclass
class Said:
    """An answer, whole, and in the pieces in which it is streamed (by default cut from the whole)."""

    message: AIMessage
    chunks: list[AIMessageChunk] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    llm_output: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None

    def pieces(self) -> list[AIMessageChunk]:
        """The chunks: text in small pieces, all else in the last."""
        if self.chunks is not None:
            return [chunk.model_copy(deep=True) for chunk in self.chunks]
        message = self.message
        if isinstance(message.content, str):
            text = message.content
            content: list[Any] = [text[at : at + _SIZE] for at in range(0, len(text), _SIZE)]
        else:
            content = [piece for block in message.content for piece in _pieces(block)]
        made = [AIMessageChunk(content=part, id=message.id) for part in content]
        rest = {
            name: getattr(message, name)
            for name in ("additional_kwargs", "response_metadata", "usage_metadata", "name", "id")
        }
        calls = [
            {"name": call["name"], "args": _json(call["args"]), "id": call["id"], "index": index}
            for index, call in enumerate(message.tool_calls)
        ]
        empty: Any = "" if isinstance(message.content, str) else []
        made.append(AIMessageChunk(content=empty, tool_call_chunks=calls, **rest))
        if message.invalid_tool_calls:
            made[-1] = made[-1].model_copy(update={"invalid_tool_calls": message.invalid_tool_calls})
        return made


def _json(value: Any) -> str:
    import json

    return json.dumps(value)


def _pieces(block: Any) -> Iterator[list[Any]]:
    """A text block in pieces; any other whole."""
    if isinstance(block, str):
        yield from ([block[at : at + _SIZE]] for at in range(0, len(block), _SIZE))
    elif block.get("type") == "text" and set(block) <= {"type", "text", "index"}:
        text = block["text"]
        yield from ([{**block, "text": text[at : at + _SIZE]}] for at in range(0, len(text), _SIZE))
    else:
        yield [block]


class Hosted(BaseChatModel):
    """Says what it was told to, one answer after the other, again and again; streams it in small pieces."""

    script: list[Any]
    asked: list[Any] = []

    @property
    def _llm_type(self) -> str:
        return "hosted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=list(tools), **kwargs)

    def _next(self, messages: list[BaseMessage]) -> Said:
        said = self.script[len(self.asked) % len(self.script)]
        self.asked.append(len(messages))
        return said() if callable(said) else said

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        said = self._next(messages)
        if said.error is not None:
            raise said.error
        generation = ChatGeneration(
            message=said.message.model_copy(deep=True), generation_info=said.info or None
        )
        return ChatResult(generations=[generation], llm_output=said.llm_output)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        said = self._next(messages)
        pieces = said.pieces()
        for index, message in enumerate(pieces):
            if said.error is not None and index == len(pieces) // 2:
                raise said.error
            info = said.info if index == len(pieces) - 1 else None
            chunk = ChatGenerationChunk(message=message, generation_info=info or None)
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def failing_host(error: Exception) -> Hosted:
    """A model that begins an answer and fails."""
    return Hosted(script=[Said(AIMessage("Some text of the answer"), error=error)])


class Trace(BaseTracer):
    """What LangChain's tracers send away: every run, with its inputs, outputs, events and errors."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[TracedRun] = []

    def _persist_run(self, run: TracedRun) -> None:
        self.runs.append(run)

    def everything(self) -> list[Any]:
        """Of each run and all within it; what a model is made of (its `serialized`) is its script here."""
        kept: list[Any] = []
        left = list(self.runs)
        while left:
            run = left.pop()
            metadata = (run.extra or {}).get("metadata")
            kept += [run.inputs, run.outputs, run.error, run.events, metadata, run.tags, run.name]
            left += run.child_runs
        return kept


class Callbacks(BaseCallbackHandler):
    """Keeps what every callback is given."""

    run_inline = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.tokens: list[str] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.seen.append(("on_chat_model_start", messages))

    def on_llm_start(self, serialized: Any, prompts: Any, **kwargs: Any) -> None:
        self.seen.append(("on_llm_start", prompts))

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        self.tokens.append(token if isinstance(token, str) else str(token))
        self.seen.append(("on_llm_new_token", [token, chunk]))

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.seen.append(("on_llm_end", response))

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.seen.append(("on_llm_error", [error, kwargs.get("response")]))

    def on_tool_start(self, serialized: Any, input_str: Any, **kwargs: Any) -> None:
        self.seen.append(("on_tool_start", [input_str, kwargs.get("inputs")]))

    def on_tool_end(self, output: Any, **kwargs: Any) -> None:
        self.seen.append(("on_tool_end", output))

    def on_tool_error(self, error: BaseException, **kwargs: Any) -> None:
        self.seen.append(("on_tool_error", error))

    def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        self.seen.append(("on_chain_end", outputs))

    def on_chain_error(self, error: BaseException, **kwargs: Any) -> None:
        self.seen.append(("on_chain_error", error))

    def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
        self.seen.append(("on_retriever_end", documents))

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self.seen.append(("on_custom_event", data))


class observers:
    """`with observers(places) as config`: a tracer and callbacks that are looked at in the end."""

    def __init__(self, places: Places, *, chains: bool = True) -> None:
        self.places, self.chains = places, chains
        self.trace, self.callbacks = Trace(), Callbacks()

    def __enter__(self) -> dict[str, Any]:
        return {"callbacks": [self.trace, self.callbacks]}

    def __exit__(self, *_: object) -> None:
        for name, value in self.callbacks.seen:
            if self.chains or not name.startswith("on_chain"):
                self.places.add(f"callback {name}", value, printed=False)
        self.places.add("tokens of callbacks, joined", "".join(self.callbacks.tokens))
        chunks = [value[1] for name, value in self.callbacks.seen if name == "on_llm_new_token" and value[1]]
        if chunks:
            self.places.joined(chunks, "chunks of callbacks")
        for value in self.trace.everything():
            self.places.add("tracer", value, printed=False)
