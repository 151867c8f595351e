"""`ChatNCOGuard`: a guarded chat model for agents, over a transformers model on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Literal, Self, Unpack

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LangSmithParams, LanguageModelInput, ModelProfile
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    model_validator,
)

from langchain_nco_guard._errors import TypedErrors
from langchain_nco_guard._fields import ChatFields
from langchain_nco_guard._guards import GuardField, guard_of_answer, joined, remember_guard
from langchain_nco_guard._loading import FIELD_OF, fields_of_pipeline, options_of_pipeline
from langchain_nco_guard._messages import chunks_of, message_of, template_messages
from langchain_nco_guard._options import refuse_arguments, refuse_other_words
from langchain_nco_guard._parsers import call_parser, object_parser, verified_object
from langchain_nco_guard._response_format import (
    ANY_OBJECT,
    checked_strict,
    enforces_shapes,
    json_response_format,
    response_shape,
)
from langchain_nco_guard._structured import parsed_output
from langchain_nco_guard._tools import Tools, begun_by_call, described_tools
from nco_guard import Guard, Policy, arguments
from nco_guard.engines.hf.generation import bind_to_model
from nco_guard.engines.hf.inputs import encode_text
from nco_guard.engines.hf.kinds import check_kinds, stop_strings
from nco_guard.engines.hf.loading import load_local, load_model_id, positions_of
from nco_guard.engines.hf.options import Settings
from nco_guard.engines.hf.reply_calls import Reply, ReplyCall
from nco_guard.engines.hf.tool_calls import chat_prompt, tools_refusal
from nco_guard.engines.hf.weights import WEIGHT_OPTIONS, WeightOptions, as_loaded
from nco_guard.errors import UnsupportedError
from nco_guard.guards import GuardSource, as_guard, guard_for_call, seeing_through_json
from nco_guard.replies import ReplyFormat, as_reply_format, format_for
from nco_guard.replies.reader import refuse_shown_reasoning
from nco_guard.replies.writing import begun_answer

__all__ = ["ChatNCOGuard"]

# LangChain passes these with a call; they are no options of generation.
_NOT_OPTIONS = ("stream", "ls_structured_output_format", "structured_output_format", "response_format")
_METHODS = ("function_calling", "json_schema", "json_mode")


class ChatNCOGuard(TypedErrors, BaseChatModel):
    r"""A chat model that cannot write what its policy forbids.

    Guarantee: for every hard rule, no match in the message's text, whatever the prompt, the sampling or the route
    (invoke, stream, batch and their async twins, in chains and agents); and none in a tool call: not in its raw
    JSON, not
    in any argument once parsed (`\u0040` is an @ there). What cannot be guaranteed raises a typed error; nothing is
    generated unguarded. Streamed text is never taken back.

    Attributes:
        model: a causal language model of transformers with a chat template, or a path or name for `from_pretrained`.
        tokenizer: its tokenizer, or the path of one; needed unless `model` is a path.
        guard: a `Guard`, a `Policy`, a preset's name or several, or the path of a policy file (`nco_guard.guards`). A
            call may have its own: `invoke(..., guard=...)`, which replaces this one for that call.
        generation_kwargs: further options of `model.generate`.
        device, device_map, dtype (or torch_dtype), quantization_config: where a path is given, onto which devices and
            as which numbers its weights are loaded, see `nco_guard.engines.hf.weights.loading_options`.
        model_kwargs: further options of `from_pretrained`. These are used up once the model is loaded.
        tokenizer_kwargs: the same of the tokenizer.
        reply_format: how the model writes reasoning and calls of tools: a `ReplyFormat`, the name of a shipped one, the
            path of an entry or a dict. By default it is found by the tokenizer (`nco_guard.replies.format_for`).

    Reasoning is a content block of its own, streamed too: `{"type": "reasoning", "reasoning": ...}`, and no part of
    `.text`.

    `max_tokens`, `temperature` (0: greedy), `top_p`, `top_k`, `stop` and `timeout` (seconds) are LangChain's standard
    parameters; what is None is left to the model's generation configuration. `max_retries` and `api_key` are taken and
    have no meaning for a model on this machine.

    Stop strings are left out of the text, which is cut back to where it may end.
    Errors at construction: `UnsupportedError`, `TokenizerError`, `PolicyError`.

    Examples:
        >>> chat = ChatNCOGuard(model=model, tokenizer=tokenizer, guard="pii", max_tokens=8)
        >>> chat.guard.verify(chat.invoke("How can I reach Daniel?").text).ok
        True
    """

    model: Any
    tokenizer: Any = None
    guard: GuardField
    model_name: str = ""
    max_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, gt=0)
    stop: list[str] | None = Field(default=None, validation_alias=AliasChoices("stop", "stop_sequences"))
    timeout: float | None = Field(default=None, gt=0)
    max_retries: int | None = None
    api_key: SecretStr | None = None
    streaming: bool = False
    generation_kwargs: dict[str, Any] = Field(default_factory=dict)
    device: Any = None
    device_map: Any = None
    dtype: Any = None
    torch_dtype: Any = None
    quantization_config: Any = None
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    tokenizer_kwargs: dict[str, Any] = Field(default_factory=dict)
    reply_format: Any = None

    model_config = ConfigDict(extra="forbid", populate_by_name=True, arbitrary_types_allowed=True)

    # Enforced besides, whatever guard a call has.
    _also: tuple[Guard, ...] = PrivateAttr(default=())
    # How replies are read, given or found.
    _form: ReplyFormat | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _known_words(cls, values: Any) -> Any:
        if isinstance(values, dict):
            refuse_other_words(
                [name for name in values if name not in cls.model_fields and name != "stop_sequences"]
            )
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        if isinstance(self.model, BaseChatModel):
            raise UnsupportedError(
                f"model: {type(self.model).__name__} is a chat model of LangChain; use NCOGuardMiddleware or "
                "VerifiedChatModel for it"
            )
        if isinstance(self.model, str | os.PathLike):
            self.model_name = self.model_name or os.fspath(self.model)
        elif self.tokenizer is None:
            raise UnsupportedError("tokenizer: a model object comes without one; give the model's tokenizer")
        self._load()
        if not getattr(self.tokenizer, "chat_template", None):
            raise UnsupportedError(
                "tokenizer: it has no chat template, so messages cannot be put to the model; set its chat_template"
            )
        if self.reply_format is not None:
            self.reply_format = as_reply_format(self.reply_format)
        model_type = getattr(self.model.config, "model_type", None)
        self._form = self.reply_format or format_for(self.tokenizer, model_type)
        self.model_name = self.model_name or str(getattr(self.model.config, "_name_or_path", "") or "local")
        settings = Settings(self.model, self._options({}))
        settings.refuse_unsupported()
        bound = bind_to_model(self._enforced(), self.model, self.tokenizer, settings)
        if self.profile is None:
            self.profile = self._own_profile(shapes=enforces_shapes(bound.vocabulary))
        return self

    def _load(self) -> None:
        self.model, self.tokenizer = load_local(
            self.model,
            self.tokenizer,
            model_kwargs=self.model_kwargs,
            tokenizer_kwargs=self.tokenizer_kwargs,
            device=self.device,
            device_map=self.device_map,
            dtype=self.dtype,
            torch_dtype=self.torch_dtype,
            quantization_config=self.quantization_config,
        )
        self.model_kwargs, self.tokenizer_kwargs = {}, {}  # a copy is made of the objects
        for name in WEIGHT_OPTIONS:
            setattr(self, name, None)

    @classmethod
    def from_model_id(
        cls,
        model_id: str,
        task: str = "text-generation",
        *,
        guard: GuardSource,
        backend: str = "default",
        device: int | str | None = None,
        device_map: Any = None,
        dtype: Any = None,
        torch_dtype: Any = None,
        quantization_config: Any = None,
        model_kwargs: dict[str, Any] | None = None,
        pipeline_kwargs: dict[str, Any] | None = None,
        batch_size: int = 4,
        **options: Unpack[ChatFields],
    ) -> Self:
        """A chat model by what `HuggingFacePipeline.from_model_id` takes, and by fields of this class.

        `pipeline_kwargs` are options of generation: `max_new_tokens` becomes `max_tokens`, `do_sample=False`
        `temperature=0`, and so on. `batch_size` is checked and has no meaning: a chat model's replies are written one
        by one.

        Errors: as of the constructor; `UnsupportedError` for another task or backend, and for what is said twice.
        """
        checked, generation = as_guard(guard), options_of_pipeline(pipeline_kwargs)
        weights = WeightOptions(
            device=device,
            device_map=device_map,
            dtype=dtype,
            torch_dtype=torch_dtype,
            quantization_config=quantization_config,
        )
        model, tokenizer = load_model_id(
            model_id, task, backend, batch_size=batch_size, model_kwargs=model_kwargs, **weights
        )
        fields: Any = {
            "model_name": str(model_id),
            **options,
            **fields_of_pipeline(generation, model, options),
        }
        return cls(model=model, tokenizer=tokenizer, guard=checked, **fields)

    @classmethod
    def from_pipeline(cls, pipe: Any, guard: GuardSource, **options: Unpack[ChatFields]) -> Self:
        """A chat model made of the model of a transformers pipeline, or of LangChain's `HuggingFacePipeline`."""
        inner = getattr(pipe, "pipeline", None) or pipe
        if getattr(inner, "task", None) != "text-generation":
            raise UnsupportedError(
                f"pipelines for the task {getattr(inner, 'task', None)!r}; use 'text-generation'"
            )
        return cls(model=inner.model, tokenizer=inner.tokenizer, guard=guard, **options)

    def with_further_guard(self, guard: GuardSource) -> Self:
        """This model under a further guard beside its own; a call's own guard does not replace it.

        Reasoning is hidden if one of the policies hides it, and free if all leave it so. An audit event that cannot be
        recorded is an error unless all say `on_audit_failure: warn`. Of `on_dead_end` and `when_blocked` what one
        leaves at its default another decides; two that decide otherwise are a `PolicyError` that names both.
        """
        further = as_guard(guard)
        key = further.policy.digest, further.log.sink
        if any((known.policy.digest, known.log.sink) == key for known in self._also):
            return self
        model = self.model_copy()
        model._also = (*self._also, further)
        model._enforced()  # what cannot be kept together is refused now
        return model

    def _enforced(self, guard: GuardSource | None = None) -> Guard:
        """Everything that a call enforces."""
        enforced = reduce(joined, self._also, guard_for_call(self.guard, guard))
        refuse_shown_reasoning(enforced.policy, self._form)
        return enforced

    @property
    def _joined_policy(self) -> Policy:
        """What calls without a guard of their own are under, all policies joined."""
        return self._enforced().policy

    def _stops(self, stop: Any) -> tuple[str, ...]:
        """The stop strings of a call, this model's own among them."""
        return tuple(dict.fromkeys((*stop_strings(self.stop), *stop_strings(stop))))

    def _own_profile(self, *, shapes: bool) -> ModelProfile:
        """What the model takes and gives, as far as its configuration says; shapes: whether they are enforced."""
        length = None if getattr(self.model, "config", None) is None else positions_of(self.model)
        calls = self._tools_refusal() is None
        profile = ModelProfile(
            name=self.model_name,
            open_weights=True,
            text_inputs=True,
            text_outputs=True,
            image_inputs=False,
            audio_inputs=False,
            video_inputs=False,
            reasoning_output=self._form is not None and self._form.reasons,
            tool_calling=calls,
            tool_choice=calls,
            tool_call_streaming=False,
            structured_output=shapes,
            temperature=True,
        )
        if length is not None:
            profile["max_input_tokens"] = length
            profile["max_output_tokens"] = min(length, self.max_tokens or length)
        return profile

    def _tools_refusal(self) -> str | None:
        return tools_refusal(self._form, self.tokenizer, given=self.reply_format is not None)

    # -- what LangChain wants to know --------------------------------------------------------------------------

    @property
    def _llm_type(self) -> str:
        return "nco-guard"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        """What tells answers apart, the policy among it: caches are keyed on this."""
        return {
            "model_name": self.model_name,
            "policy_digest": self._enforced().log.digest,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop_sequences": self.stop,
            "generation_kwargs": self.generation_kwargs,
            "weights": as_loaded(self.model),
            "reply_format": self._form and self._form.digest,
        }

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        if "guard" in kwargs:
            guard = self._enforced(kwargs["guard"])
            kwargs["guard"] = guard.log.digest
            if kwargs.get("tools") or kwargs.get("response_format") is not None:
                remember_guard(self, seeing_through_json(guard))  # a cache may answer
        return super()._get_invocation_params(stop=stop, **kwargs)

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        return str(sorted(self._get_invocation_params(stop=stop, **kwargs).items()))

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        name = kwargs.get("model")
        params = LangSmithParams(
            ls_provider="nco-guard",
            ls_model_name=name if isinstance(name, str) else self.model_name,
            ls_model_type="chat",
        )
        temperature = kwargs.get("temperature", self.temperature)
        limit = kwargs.get("max_tokens", self.max_tokens)
        if temperature is not None:
            params["ls_temperature"] = temperature
        if limit is not None:
            params["ls_max_tokens"] = limit
        if stops := self._stops(stop):
            params["ls_stop"] = list(stops)
        return params

    def get_token_ids(self, text: str) -> list[int]:
        """The ids of a text by this model's own tokenizer."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    # -- tools -------------------------------------------------------------------------------------------------

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        strict: bool | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Offer tools to the model, through its chat template.

        Args:
            tool_choice: None, False or "auto": as the model likes; "none"; "any", "required" or True: some tool; a
                tool's name: that one. Mappings as OpenAI and Anthropic have them are read too
                (`nco_guard.engines.calls.chosen_tool`). A choice is enforced, and so are the arguments' schemas.
            strict: True: whatever is called, arguments are of their schemas, or it is refused here. None: where a call
                is required, or the tool itself says `strict`. False: arguments may be any JSON object.
            parallel_tool_calls: False: one call at most; else as many as the model likes.

        Further keywords are options of a call, `stop` and `guard` among them.

        Errors: `UnsupportedError` where the chat template shows no tools, where it is not known how the model writes
        calls (the message says which formats are; pass one as `reply_format=`), or not well enough to enforce one; for
        tools, choices and options that are not known, by name; `ArgumentError` for `strict` and `parallel_tool_calls`
        that are neither True nor False. Of schemas that are enforced: `ShapeError`, with tool and place, and
        `ContradictionError`, with the rules too.
        """
        if tools and (reason := self._tools_refusal()) is not None:
            raise UnsupportedError(f"tools: {reason}")
        named = {"tool_choice": tool_choice, "strict": strict, "parallel_tool_calls": parallel_tool_calls}
        bound = {name: value for name, value in named.items() if value is not None}
        offered = described_tools(tools)
        taken = Tools.taken_from({"tools": offered, **bound})
        # Options and guard are needed before the first call, and what is wrong with them is to be known now.
        given = {
            name: value for name, value in kwargs.items() if name not in (*_NOT_OPTIONS, "guard", "stop")
        }
        refuse_other_words(given)
        settings = Settings(self.model, self._options(given))
        settings.refuse_unknown()
        settings.refuse_unsupported()
        guard = self._enforced(kwargs.get("guard"))
        if (shape := response_shape(kwargs.get("response_format"))) is not None:
            bind_to_model(guard.with_shape(shape), self.model, self.tokenizer, settings)
        calls = taken.shape(self._form) if taken.enforced and self._form is not None else None
        guard = seeing_through_json(guard) if calls is None else guard.with_shape(calls)
        bind_to_model(guard, self.model, self.tokenizer, settings)
        return self.bind(tools=offered, **bound, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type | None,
        *,
        include_raw: bool = False,
        method: Literal["function_calling", "json_schema", "json_mode"] = "function_calling",
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """Answers as objects of a schema, which is enforced while they are written, together with the policy.

        schema: a pydantic class (answers are its instances), a TypedDict, a dataclass or a JSON Schema (answers are
        plain values). What a class checks beyond its JSON Schema is checked when the answer is there, and the object
        that comes of it is verified: a class may cast, change and compute what no text said.

        Args:
            method: "function_calling": the answer is a call of a tool of that schema, which the chat template shows.
                "json_schema": its text is JSON of that schema, which the model is not shown. "json_mode": the same; any
                JSON object where `schema` is empty or None.
            include_raw: answers are `{"raw": message, "parsed": object or None, "parsing_error": error or None}`.
            strict: None or True: enforced. False: where a call or any JSON object was written, the schema is the
                parser's affair, and an answer that does not fit it is an error.

        In streams there is one object, once it is complete.

        Errors, before anything is written: `ShapeError` with the place in the schema for what cannot be enforced;
        `ContradictionError` with places and rules where the policy leaves nothing of the schema; `ArgumentError`,
        `UnsupportedError` for what is no schema, no method, no option. Of a call: `DeadEndError` where `max_tokens` has
        no room for the schema; `ViolationError` for an object that holds a match (beside `include_raw` it is the
        `parsing_error`), `UnsupportedError` for one that cannot be looked into.
        """
        arguments.choice("method", method, _METHODS)
        if kwargs:
            raise UnsupportedError(
                f"{next(iter(kwargs))}: no option of with_structured_output; give options of a call to the chat model, "
                "or to bind_tools"
            )
        checked_strict(strict)
        verified = partial(verified_object, self._guard_of)
        asked = {"kwargs": {"method": method, **({} if strict is None else {"strict": strict})}}
        if method == "function_calling":
            (tool,) = described_tools([schema or {}], "schema")
            name = str(tool["function"]["name"])
            calling = self.bind_tools(
                [tool],
                tool_choice=name,
                strict=strict,
                parallel_tool_calls=False,
                ls_structured_output_format={**asked, "schema": schema},
            )
            return parsed_output(calling, call_parser(schema, name, verified), include_raw=include_raw)
        wanted = dict(ANY_OBJECT) if method == "json_mode" and not schema else None
        wanted = wanted or json_response_format(schema, strict)
        self._enforced().with_shape(response_shape(wanted))
        writing = self.bind(
            response_format=wanted, ls_structured_output_format={**asked, "schema": schema or {}}
        )
        return parsed_output(writing, object_parser(schema, verified), include_raw=include_raw)

    def _guard_of(self, message: Any) -> Guard:
        return guard_of_answer(self, self._enforced(), message)

    # -- generation --------------------------------------------------------------------------------------------

    def _options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options of `model.generate`, from the model's own settings and those of one call."""
        refuse_arguments(given, "options of a call")
        refuse_arguments(self.generation_kwargs, "generation_kwargs")
        options = dict(self.generation_kwargs)
        wanted = {
            name: getattr(self, name) if given.get(name) is None else given[name]
            for name in ("max_tokens", "temperature", "top_p", "top_k", "timeout")
        }
        for name, field in FIELD_OF.items():
            if options.get(name) is not None and (field == "stop" or wanted[field] is not None):
                raise UnsupportedError(
                    f"generation_kwargs[{name!r}]: it is {field}=... of this chat model; leave it out"
                )
        for name, like in (("max_tokens", "max_new_tokens"), ("timeout", "max_time")):
            check_kinds({name: wanted[name]}, like=like)
        if wanted["max_tokens"] is not None:
            options["max_new_tokens"] = wanted["max_tokens"]
        if wanted["timeout"] is not None:
            options["max_time"] = wanted["timeout"]
        if wanted["temperature"] == 0:
            options["do_sample"] = False
        elif wanted["temperature"] is not None:
            options |= {"do_sample": True, "temperature": wanted["temperature"]}
        if options.get("do_sample", True):
            options |= {name: wanted[name] for name in ("top_p", "top_k") if wanted[name] is not None}
        options |= {name: value for name, value in given.items() if name not in wanted}
        return options

    def _prepare(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any]
    ) -> ReplyCall[Guard]:
        shape = response_shape(kwargs.get("response_format"))
        given = {name: value for name, value in kwargs.items() if name not in _NOT_OPTIONS}
        tools = Tools.taken_from(given)
        refuse_other_words(given)
        guard = self._enforced(given.pop("guard", None))
        if tools.offered and tools.choice is not None:
            shape = None  # the answer is a call
        if shape is not None:
            guard = guard.with_shape(shape)
        elif tools.offered:
            guard = seeing_through_json(guard)
        options = self._options(given)
        prompt = chat_prompt(self._form, self.tokenizer, template_messages(messages), tools.offered)
        begun, calls = "", None
        if shape is not None:
            begun = begun_answer(self._form, prompt)
        elif tools.enforced and self._form is not None:
            begun, calls = tools.required(self._form, prompt)
        return ReplyCall(
            guard,
            self.model,
            self.tokenizer,
            inputs=encode_text(self.tokenizer, self.model, prompt + begun),
            options=options,
            stop=self._stops(stop),
            form=self._form,
            tools=None if shape is not None else tools.offered or None,
            begun=begun,
            single_call=tools.single,
            escapes=shape is not None,
            shape=calls if shape is None else shape,
        )

    def _replies(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any]
    ) -> tuple[ReplyCall[Guard], Iterator[Reply]]:
        """What answers, and the reply as it grows. Beside tools, JSON is written where the model begins no call."""
        call = self._prepare(messages, stop, kwargs)
        answers = call.shape is not None and call.tools is None
        if answers and kwargs.get("tools"):
            calling = self._prepare(messages, stop, {**kwargs, "response_format": None})
            if calling.tools and (replies := begun_by_call(calling.stream())) is not None:
                return calling, replies
        # What JSON parses to is known at its end.
        return call, iter([*call.stream()]) if answers else call.stream()

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if kwargs.get("response_format") is not None and kwargs.get("tools"):
            call, growing = self._replies(messages, stop, kwargs)
            replies = [*growing][-1:]
        else:
            call = self._prepare(messages, stop, kwargs)
            replies = call.answers()
        return ChatResult(
            generations=[
                ChatGeneration(message=message_of(reply, self._metadata(call, reply))) for reply in replies
            ]
        )

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call, replies = self._replies(messages, stop, kwargs)
        for reply in replies:
            for chunk in chunks_of(reply, self._metadata(call, reply)):
                yield ChatGenerationChunk(message=chunk)

    def _metadata(self, call: ReplyCall[Guard], reply: Reply) -> dict[str, Any]:
        remember_guard(self, call.guard)
        return {
            "model_name": self.model_name,
            "model_provider": "nco-guard",
            "finish_reason": reply.finish_reason,
            "policy_digest": call.guard.log.digest,  # as the run is recorded
        }
