"""`VerifiedChatModel`: any other chat model, what it says verified before anybody sees it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Self, Unpack

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import LangChainException
from langchain_core.language_models import BaseChatModel, LangSmithParams, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig, ensure_config
from langchain_core.tools import BaseTool
from langchain_core.utils.utils import LC_ID_PREFIX
from pydantic import ConfigDict, Field, PrivateAttr, field_validator, model_validator

from langchain_nco_guard._cleaning import RecordingCleaner
from langchain_nco_guard._errors import TypedErrors
from langchain_nco_guard._fields import VerifiedFields
from langchain_nco_guard._guards import GuardField, refuse_reasoning_of_others
from langchain_nco_guard._structured import verified_structured_output
from langchain_nco_guard._unobserved import UnobservedCalls
from langchain_nco_guard._wrappers import callbacks_of, described, model_of, silenced, with_tools
from langchain_nco_guard.runnables import guard_runnable
from nco_guard import OnMatch, arguments
from nco_guard.errors import UnsupportedError, ViolationError
from nco_guard.guards import GuardSource, as_guard, check_replacement

__all__ = ["ACTIONS", "RETRY_PROMPT", "VerifiedChatModel"]

RETRY_PROMPT = "Your answer broke the output policy (rules: {rules}). Answer again and leave that out."
# What is done about a match in an answer.
ACTIONS = ("raise", "redact", "retry")
# Of the model that is verified, unless something else is said.
_TAKEN = ("tags", "metadata", "cache", "disable_streaming", "profile")


class VerifiedChatModel(TypedErrors, BaseChatModel):
    """A chat model whose answers are verified after it wrote them: for hosted models, which cannot be guarded.

    Guarantee: for every hard rule, no match in the text that comes out, at any moment of a stream, nor in a tool call,
    nor anywhere else in the message, nor in an error. The model itself may well write it, and whoever hosts it sees it.
    Callbacks, tracers and caches see this model and never the inner one.

    Attributes:
        inner: a chat model, or one behind `bind`, `with_config`, `with_retry`, `with_fallbacks`, `configurable_fields`
            or `init_chat_model(configurable_fields=...)`.
        action: "raise" raises `ViolationError`; "redact" puts `replacement` in its place; "retry" asks again, at most
            `max_retries` times with `retry_prompt` added, then raises.

    Streams are held back exactly as long as a match could still be completed; with "retry", and where the text is to be
    parsed (structured output), until the message is complete. Tool calls appear once they are complete. Not passed on:
    log probabilities, which repeat the text in pieces.

    Reasoning is verified as text, also where the policy leaves it free (`applies_to`).

    Errors at construction: `UnsupportedError` for what is no model, and for a policy that hides reasoning, unless the
    model is a `ChatNCOGuard` that hides it; `PolicyError` for a replacement that is forbidden itself.

    Examples:
        >>> VerifiedChatModel.over(hosted, "pii", action="redact").invoke("Maria?").text
        'Write to [redacted].'
    """

    inner: Any
    guard: GuardField
    action: OnMatch = "raise"
    replacement: Any = None
    max_retries: int = Field(default=2, ge=0)
    retry_prompt: str = RETRY_PROMPT

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    _configurable: dict[str, Any] = PrivateAttr(default_factory=dict)
    _middleware: Any = PrivateAttr(default=None)  # the one that made it
    # Somebody will parse the text of the answer as JSON.
    _json: bool = PrivateAttr(default=False)

    @field_validator("inner")
    @classmethod
    def _inner_runs(cls, value: Any) -> Any:
        if not isinstance(value, Runnable):
            raise UnsupportedError(f"inner: a chat model is needed, got {type(value).__name__}")
        return value

    @field_validator("action", mode="before")
    @classmethod
    def _known_action(cls, value: Any) -> str:
        return arguments.choice("action", value, ACTIONS)

    @model_validator(mode="after")
    def _may_stand(self) -> Self:
        check_replacement(self.guard, self.replacement)
        refuse_reasoning_of_others(self.inner, self.guard.policy)
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """See the base class; another guard or replacement is checked as at construction."""
        given = dict(update or {})
        if "guard" in given:
            given["guard"] = as_guard(given["guard"])
        copied = super().model_copy(update=given, deep=deep)
        if "guard" in given or "replacement" in given:
            check_replacement(copied.guard, copied.replacement)
            refuse_reasoning_of_others(copied.inner, copied.guard.policy)
        return copied

    @classmethod
    def over(cls, inner: Runnable[Any, Any], guard: GuardSource, **options: Unpack[VerifiedFields]) -> Self:
        """A verified model in the place of `inner`: with its callbacks, tags, metadata, cache and profile.

        Errors: `UnsupportedError` for what is no model and for listeners on it; `PolicyError` for a replacement that
        is forbidden itself.
        """
        model = model_of(inner)
        taken: dict[str, Any] = {} if model is None else {name: getattr(model, name) for name in _TAKEN}
        if callbacks := callbacks_of(inner):
            taken["callbacks"] = callbacks
        return cls(**{"inner": inner, "guard": guard, **taken, **options})

    @property
    def _model(self) -> BaseChatModel | None:
        return model_of(self.inner)

    @property
    def _llm_type(self) -> str:
        model = self._model
        return f"nco-guard-verified-{type(self.inner).__name__ if model is None else model._llm_type}"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        chosen = hashlib.sha256(repr(sorted(self._configurable.items())).encode()).hexdigest()
        return {
            "inner": described(self.inner),
            **({"configurable": chosen} if self._configurable else {}),
            "policy_digest": self.guard.log.digest,
            "action": self.action,
            "replacement": repr(self.replacement),
        }

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        model = self._model
        return (
            super()._get_ls_params(stop=stop, **kwargs)
            if model is None
            else model._get_ls_params(stop=stop, **kwargs)
        )

    def get_token_ids(self, text: str) -> list[int]:
        """The inner model's."""
        model = self._model
        return super().get_token_ids(text) if model is None else model.get_token_ids(text)

    # -- what is built from it ---------------------------------------------------------------------------------

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The inner model's own way to offer tools, with the verification kept around it."""
        choice = {} if tool_choice is None else {"tool_choice": tool_choice}
        bound: Runnable[LanguageModelInput, AIMessage] = self._around(
            with_tools(self.inner, tools, **choice, **kwargs)
        )
        return bound

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """The inner model's own way to answer with objects (its `method` included), and the objects verified, too."""
        answer = verified_structured_output(
            self.inner,
            schema,
            include_raw=include_raw,
            options=kwargs,
            around=self._around,
            own=super().with_structured_output,
            cleaner=self._object_cleaner,
        )
        return answer | guard_runnable(self.guard, action=self._each_time, replacement=self.replacement)

    def _object_cleaner(self) -> RecordingCleaner:
        return RecordingCleaner(
            self.guard,
            self._each_time,
            replacement=self.replacement,
            where="object made of the answer",
            again=True,
        )

    def _around(self, bound: Any, *, parsed: bool = False) -> Any:
        """This model around a runnable that was made from the inner one."""
        arguments: dict[str, Any] = {}
        known = isinstance(self.inner, BaseChatModel)
        while known and isinstance(bound, RunnableBinding) and not bound.config.get("callbacks"):
            arguments = {**bound.kwargs, **arguments}
            bound = bound.bound
        if not isinstance(bound, Runnable) or (known and not isinstance(bound, BaseChatModel)):
            raise UnsupportedError(
                f"{type(self.inner).__name__} makes a {type(bound).__name__} of itself, which cannot be verified from "
                "here; verify its output with guard_runnable(guard)"
            )
        model = self if bound is self.inner and not parsed else self.model_copy(update={"inner": bound})
        model._json = model._json or parsed
        return model.bind(**arguments) if arguments else model

    # -- configurable fields of the inner model ----------------------------------------------------------------

    def _under(self, config: RunnableConfig | None) -> Any:
        """This model with what a config says about the inner one's fields."""
        given = ensure_config(config).get("configurable") or {}
        values = {name: value for name, value in given.items() if not name.startswith("__")}
        if isinstance(self.inner, BaseChatModel) or not values:
            return super()
        model = self.model_copy()
        model._configurable = values
        return super(VerifiedChatModel, model)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:
        """See `Runnable`."""
        return self._under(config).invoke(input, config, **kwargs)  # type: ignore[no-any-return]

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:
        """See `Runnable`."""
        return await self._under(config).ainvoke(input, config, **kwargs)  # type: ignore[no-any-return]

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """See `Runnable`."""
        yield from self._under(config).stream(input, config, **kwargs)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """See `Runnable`."""
        async for chunk in self._under(config).astream(input, config, **kwargs):
            yield chunk

    def stream_events(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """See `BaseChatModel`."""
        return self._under(config).stream_events(input, config, **kwargs)

    def astream_events(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """See `BaseChatModel`."""
        return self._under(config).astream_events(input, config, **kwargs)

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def _each_time(self) -> OnMatch:
        """What is done about a match in one attempt."""
        return "redact" if self.action == "redact" else "raise"

    def _cleaner(self, kwargs: Mapping[str, Any]) -> RecordingCleaner:
        """For one call. Errors: `UnsupportedError` for a guard among its options, which nobody would enforce."""
        for name in ("guard", "policy"):
            if name in kwargs:
                raise UnsupportedError(
                    f"{name}: calls of a verified model take none; make another: VerifiedChatModel.over(model, guard)"
                )
        parsed = self._parsed(kwargs)
        return RecordingCleaner(
            self.guard, self._each_time, replacement=self.replacement, where="model output", parsed=parsed
        )

    def _parsed(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether somebody will parse the text of the answer."""
        return self._json or kwargs.get("response_format") is not None

    def _unobserved(self, cleaner: RecordingCleaner) -> UnobservedCalls:
        return UnobservedCalls(self._configurable, lambda error: cleaner.error(error, LangChainException))

    def _request(
        self, inside: UnobservedCalls, stop: list[str] | None, kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {**kwargs, "config": inside.config, **({} if stop is None else {"stop": stop})}

    @staticmethod
    def _clean(cleaner: RecordingCleaner, messages: Sequence[Any]) -> ChatResult:
        made = [cleaner.value(_own(message)) for message in messages]
        return ChatResult(generations=[ChatGeneration(message=message) for message in made])

    def _again(self, messages: list[BaseMessage], error: ViolationError, attempt: int) -> list[BaseMessage]:
        """The messages of the next attempt; raises if there is none."""
        if self.action != "retry" or attempt >= self.max_retries:
            raise error
        return [*messages, HumanMessage(self.retry_prompt.format(rules=", ".join(error.rule_ids)))]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        inner, asked, attempt, cleaner = silenced(self.inner), messages, 0, self._cleaner(kwargs)
        while True:
            inside = self._unobserved(cleaner)
            try:
                if _answers_by_generate(inner):
                    callbacks = inside.config["callbacks"]
                    result = inside.call(inner.generate, [asked], stop=stop, callbacks=callbacks, **kwargs)
                    return self._clean(cleaner, [one.message for one in result.generations[0]])
                return self._clean(
                    cleaner, [inside.call(inner.invoke, asked, **self._request(inside, stop, kwargs))]
                )
            except ViolationError as error:
                asked, attempt = self._again(messages, error, attempt), attempt + 1

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        inner, asked, attempt, cleaner = silenced(self.inner), messages, 0, self._cleaner(kwargs)
        while True:
            inside = self._unobserved(cleaner)
            try:
                if _answers_by_generate(inner):
                    callbacks = inside.config["callbacks"]
                    result = await inside.acall(
                        inner.agenerate, [asked], stop=stop, callbacks=callbacks, **kwargs
                    )
                    return self._clean(cleaner, [one.message for one in result.generations[0]])
                request = self._request(inside, stop, kwargs)
                return self._clean(cleaner, [await inside.acall(inner.ainvoke, asked, **request)])
            except ViolationError as error:
                asked, attempt = self._again(messages, error, attempt), attempt + 1

    # -- streams -----------------------------------------------------------------------------------------------

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        if self.action == "retry" or self._parsed(kwargs):
            yield _whole(self._generate(messages, stop=stop, **kwargs))
            return
        cleaner = self._cleaner(kwargs)
        inside = self._unobserved(cleaner)
        request = self._request(inside, stop, kwargs)
        chunks = inside.call(silenced(self.inner).stream, messages, **request)
        for shown in inside.through(chunks, cleaner.stream(), _own_chunk):
            yield ChatGenerationChunk(message=shown)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if self.action == "retry" or self._parsed(kwargs):
            yield _whole(await self._agenerate(messages, stop=stop, **kwargs))
            return
        cleaner = self._cleaner(kwargs)
        inside = self._unobserved(cleaner)
        request = self._request(inside, stop, kwargs)
        chunks = inside.call(silenced(self.inner).astream, messages, **request)
        async for shown in inside.athrough(chunks, cleaner.stream(), _own_chunk):
            yield ChatGenerationChunk(message=shown)


def _answers_by_generate(inner: Any) -> bool:
    """`generate` gives every answer of a call, `invoke` the first one; but somebody may have made `invoke` anew."""
    return isinstance(inner, BaseChatModel) and type(inner).invoke is BaseChatModel.invoke


def _own(answer: Any) -> BaseMessage:
    """A message without the id of a run that nobody is to know of; it gets that of this model's run."""
    if not isinstance(answer, BaseMessage):
        raise UnsupportedError(
            f"a {type(answer).__name__} where a message was expected: verify what a chain gives with "
            "guard_runnable(guard)"
        )
    hidden = (answer.id or "").startswith(LC_ID_PREFIX)
    return answer.model_copy(update={"id": None}) if hidden else answer


def _own_chunk(answer: Any) -> AIMessageChunk:
    return _as_chunk(_own(answer))


def _whole(result: ChatResult) -> ChatGenerationChunk:
    """A verified answer as a stream of one chunk."""
    generation = result.generations[0]
    return ChatGenerationChunk(message=_as_chunk(generation.message))


def _as_chunk(message: BaseMessage) -> AIMessageChunk:
    """A whole message as the only chunk of a stream; chunks as they are."""
    if isinstance(message, AIMessageChunk):
        return message
    fields = {name: getattr(message, name) for name in AIMessage.model_fields if hasattr(message, name)}
    return AIMessageChunk(**{**fields, "type": "AIMessageChunk", "chunk_position": "last"})
