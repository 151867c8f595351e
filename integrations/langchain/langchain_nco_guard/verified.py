"""`VerifiedChatModel`: any other chat model, what it says verified before anybody sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Literal, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LangSmithParams, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableBinding
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field, field_validator

from langchain_nco_guard._chunks import ChunkFilter, as_chunk
from langchain_nco_guard._cleaning import Cleaner
from langchain_nco_guard._errors import TypedErrors
from langchain_nco_guard._guards import GuardSource, as_guard
from nco_guard import Guard
from nco_guard.errors import UnsupportedError, ViolationError
from nco_guard.redaction import REDACTED

__all__ = ["RETRY_PROMPT", "VerifiedChatModel"]

RETRY_PROMPT = "Your answer broke the output policy (rules: {rules}). Answer again and leave that out."
OnViolation = Literal["block", "redact", "retry"]


class VerifiedChatModel(TypedErrors, BaseChatModel):
    """A chat model whose answers are verified after it wrote them: for hosted models, which cannot be guarded.

    Guarantee: for every hard rule, no match in the text that comes out, at any moment of a stream, nor in a tool call,
    nor anywhere else in the message. The model itself may well write it, and whoever hosts it sees it. Callbacks and
    tracers see this model and never the inner one.

    Attributes:
        on_violation: "block" raises `ViolationError`; "redact" puts `replacement` in its place; "retry" asks again, at
            most `max_retries` times with `retry_prompt` added, then blocks.

    Streams are held back exactly as long as a match could still be completed; with "retry" until the message is
    complete. Tool calls appear once they are complete. Not passed on: log probabilities, which repeat the text in
    pieces.
    """

    inner: BaseChatModel
    guard: Any
    on_violation: OnViolation = "block"
    replacement: Any = REDACTED
    max_retries: int = Field(default=2, ge=0)
    retry_prompt: str = RETRY_PROMPT

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    @field_validator("guard")
    @classmethod
    def _guard_from(cls, value: GuardSource) -> Guard:
        return as_guard(value)

    @classmethod
    def over(cls, inner: BaseChatModel, guard: GuardSource, **options: Any) -> Self:
        """A verified model in the place of `inner`: with its callbacks, cache, rate limiter and profile."""
        checked = as_guard(guard)
        # Refused now rather than in the middle of an answer.
        checked.stream_verifier(replacement=options.get("replacement", REDACTED))
        names = (
            "callbacks", "tags", "metadata", "cache", "rate_limiter", "disable_streaming", "output_version", "profile",
        )  # fmt: skip
        known = type(inner).model_fields
        taken: dict[str, Any] = {name: getattr(inner, name) for name in names if name in known}
        fields: dict[str, Any] = {"inner": inner, "guard": checked, **taken, **options}
        return cls(**fields)

    @property
    def _llm_type(self) -> str:
        return f"nco-guard-verified-{self.inner._llm_type}"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {
            "inner": self.inner._get_llm_string(),
            "policy_digest": self.guard.policy.digest,
            "on_violation": self.on_violation,
            "replacement": str(self.replacement),
        }

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self.inner._get_ls_params(stop=stop, **kwargs)

    def get_token_ids(self, text: str) -> list[int]:
        """The inner model's."""
        return self.inner.get_token_ids(text)

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The inner model's own way to offer tools, with the verification kept around it."""
        choice = {} if tool_choice is None else {"tool_choice": tool_choice}
        bound: Any = self.inner.bind_tools(tools, **choice, **kwargs)
        arguments: dict[str, Any] = {}
        while isinstance(bound, RunnableBinding):
            arguments = {**bound.kwargs, **arguments}
            bound = bound.bound
        if not isinstance(bound, BaseChatModel):
            raise UnsupportedError(
                f"{type(self.inner).__name__}.bind_tools returns a {type(bound).__name__}, which cannot be "
                "verified from here; verify its output with to_runnable(guard)"
            )
        model = self if bound is self.inner else self.model_copy(update={"inner": bound})
        return model.bind(**arguments)

    # -- answers -----------------------------------------------------------------------------------------------

    def _cleaner(self) -> Cleaner:
        action: Literal["redact", "raise"] = "redact" if self.on_violation == "redact" else "raise"
        return Cleaner(self.guard, action, replacement=self.replacement, where="model output")

    def _clean(self, result: ChatResult) -> ChatResult:
        cleaner = self._cleaner()
        generations = [
            ChatGeneration(
                message=cleaner.message(generation.message),
                generation_info=cleaner.metadata(generation.generation_info or {}) or None,
            )
            for generation in result.generations
        ]
        return ChatResult(generations=generations, llm_output=cleaner.metadata(result.llm_output or {}))

    def _again(self, messages: list[BaseMessage], error: ViolationError, attempt: int) -> list[BaseMessage]:
        """The messages of the next attempt; raises if there is none."""
        if self.on_violation != "retry" or attempt >= self.max_retries:
            raise error
        return [*messages, HumanMessage(self.retry_prompt.format(rules=", ".join(error.rule_ids)))]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        asked, attempt = messages, 0
        while True:
            try:
                # Not through `invoke`: callbacks would be shown the text before it is verified.
                return self._clean(self.inner._generate(asked, stop=stop, **kwargs))
            except ViolationError as error:
                asked, attempt = self._again(messages, error, attempt), attempt + 1

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        asked, attempt = messages, 0
        while True:
            try:
                return self._clean(await self.inner._agenerate(asked, stop=stop, **kwargs))
            except ViolationError as error:
                asked, attempt = self._again(messages, error, attempt), attempt + 1

    # -- streams -----------------------------------------------------------------------------------------------

    @property
    def _streams(self) -> bool:
        return type(self.inner)._stream is not BaseChatModel._stream

    @property
    def _streams_async(self) -> bool:
        return type(self.inner)._astream is not BaseChatModel._astream

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        if self.on_violation == "retry" or not self._streams:
            yield _whole(self._generate(messages, stop=stop, **kwargs))
            return
        chunks = ChunkFilter(self._cleaner())
        for chunk in self.inner._stream(messages, stop=stop, **kwargs):
            if (shown := chunks.feed(chunk)) is not None:
                yield shown
        yield from chunks.finish()

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if self.on_violation == "retry" or not (self._streams or self._streams_async):
            yield _whole(await self._agenerate(messages, stop=stop, **kwargs))
            return
        chunks = ChunkFilter(self._cleaner())
        async for chunk in self.inner._astream(messages, stop=stop, **kwargs):
            if (shown := chunks.feed(chunk)) is not None:
                yield shown
        for shown in chunks.finish():
            yield shown


def _whole(result: ChatResult) -> ChatGenerationChunk:
    """A verified answer as a stream of one chunk."""
    generation = result.generations[0]
    message = as_chunk(generation.message).model_copy(update={"chunk_position": "last"})
    return ChatGenerationChunk(message=message, generation_info=generation.generation_info)
