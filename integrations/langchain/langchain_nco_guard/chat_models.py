"""`ChatNCOGuard`: a guarded chat model for agents, over a transformers model on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal, Self, Unpack

import torch
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LangSmithParams, LanguageModelInput, ModelProfile
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)
from transformers import AutoModelForCausalLM, AutoTokenizer

from langchain_nco_guard._errors import TypedErrors
from langchain_nco_guard._fields import ChatFields
from langchain_nco_guard._guards import joined, seeing_through_json
from langchain_nco_guard._messages import (
    TOOL_CALL_END,
    TOOL_CALL_START,
    Reply,
    template_messages,
)
from langchain_nco_guard._options import refuse_arguments, refuse_other_words
from langchain_nco_guard._structured import parsed_output
from nco_guard import Guard
from nco_guard.engines.hf import GenerationResult
from nco_guard.engines.hf.generation import bind_to_model
from nco_guard.engines.hf.inputs import check_loaded, encode_text
from nco_guard.engines.hf.kinds import check_kinds, stop_strings
from nco_guard.engines.hf.options import Settings
from nco_guard.errors import UnsupportedError
from nco_guard.guards import GuardSource, as_guard, guard_for_call
from nco_guard.values import Cleaner

__all__ = ["ChatNCOGuard"]

# LangChain passes these with a call; they are no options of generation.
# Options of generation that a field or a call says in LangChain's word.
_FIELD_OF = {
    "do_sample": "temperature",
    "max_new_tokens": "max_tokens",
    "max_time": "timeout",
    "stop_strings": "stop",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
}
_NOT_OPTIONS = (
    "stream",
    "ls_structured_output_format",
    "structured_output_format",
    "strict",
    "parallel_tool_calls",
)


@dataclass(frozen=True)
class _Call:
    """One call, made ready: everything that `guard.generate` and the parsing of its text need."""

    guard: Guard
    encoded: Mapping[str, Any]
    options: dict[str, Any]
    stops: tuple[str, ...]
    prefill: str
    context: str
    offers_tools: bool
    prompt_tokens: int

    def reply(self) -> Reply:
        """A reader of what the model writes."""
        return Reply(
            self.guard, stops=self.stops, context=self.context, begun=self.prefill, calls=self.offers_tools
        )


class ChatNCOGuard(TypedErrors, BaseChatModel):
    r"""A chat model that cannot write what its policy forbids.

    Guarantee: for every hard rule, no match in the message's text, whatever the prompt, the sampling or the route
    (invoke, stream, batch and their async twins, in chains and agents); and none in a tool call: not in its raw
    JSON, not
    in any argument once parsed (`\u0040` is an @ there). What cannot be guaranteed raises a typed error; nothing is
    generated unguarded. Streamed text is never taken back.

    Attributes:
        model: a causal language model of transformers with a chat template, or a path or name for `from_pretrained`.
        tokenizer: its tokenizer; needed unless `model` is a path.
        guard: a `Guard`, a `Policy`, a preset's name or several, or the path of a policy file (`nco_guard.guards`). A
            call may have its own: `invoke(..., guard=...)`, which replaces this one for that call.
        generation_kwargs: further options of `model.generate`.

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
    guard: Any
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

    model_config = ConfigDict(extra="forbid", populate_by_name=True, arbitrary_types_allowed=True)

    # Enforced besides, whatever guard a call has.
    _also: tuple[Guard, ...] = PrivateAttr(default=())
    # Somebody will parse the text of the answer as JSON.
    _json: bool = PrivateAttr(default=False)

    @model_validator(mode="before")
    @classmethod
    def _known_words(cls, values: Any) -> Any:
        if isinstance(values, dict):
            refuse_other_words(
                [name for name in values if name not in cls.model_fields and name != "stop_sequences"]
            )
        return values

    @field_validator("guard")
    @classmethod
    def _guard_from(cls, value: GuardSource) -> Guard:
        return as_guard(value)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if isinstance(self.model, (str, Path)):
            self.model_name = self.model_name or str(self.model)
            if self.tokenizer is None:
                self.tokenizer = AutoTokenizer.from_pretrained(self.model)
            self.model = AutoModelForCausalLM.from_pretrained(self.model).eval()
        if self.tokenizer is None:
            raise UnsupportedError(
                "tokenizer: a model object comes without one; pass the model's own tokenizer"
            )
        if isinstance(self.model, BaseChatModel):
            raise UnsupportedError(
                f"model: {type(self.model).__name__} is a chat model of LangChain; use NCOGuardMiddleware or "
                "VerifiedChatModel for it"
            )
        check_loaded(self.model, self.tokenizer)
        if getattr(self.model.config, "is_encoder_decoder", False):
            raise UnsupportedError("model: encoder-decoder models have no chat template; use GuardedPipeline")
        if not getattr(self.tokenizer, "chat_template", None):
            raise UnsupportedError(
                "tokenizer: it has no chat template, so messages cannot be put to the model; set its chat_template"
            )
        self.model_name = self.model_name or str(getattr(self.model.config, "_name_or_path", "") or "local")
        settings = Settings(self.model, self._options({}))
        settings.refuse_unsupported()
        bind_to_model(self.guard, self.model, self.tokenizer, settings)
        return self

    @classmethod
    def from_pipeline(cls, pipe: Any, guard: GuardSource, **options: Unpack[ChatFields]) -> Self:
        """A chat model made of the model of a transformers pipeline, or of LangChain's `HuggingFacePipeline`."""
        inner = getattr(pipe, "pipeline", None) or pipe
        if getattr(inner, "task", None) != "text-generation":
            raise UnsupportedError(
                f"pipelines for the task {getattr(inner, 'task', None)!r}; use 'text-generation'"
            )
        return cls(model=inner.model, tokenizer=inner.tokenizer, guard=guard, **options)

    def under(self, guard: GuardSource) -> Self:
        """This model under a further policy, which a call's own guard does not replace."""
        further = as_guard(guard)
        if any(known.policy.digest == further.policy.digest for known in self._also):
            return self
        model = self.model_copy()
        model._also = (*self._also, further)
        return model

    def _enforced(self, guard: GuardSource | None = None) -> Guard:
        """Everything that a call enforces."""
        return reduce(joined, self._also, guard_for_call(self.guard, guard))

    def _stops(self, stop: Any) -> tuple[str, ...]:
        """The stop strings of a call, this model's own among them."""
        return tuple(dict.fromkeys((*stop_strings(self.stop), *stop_strings(stop))))

    def _resolve_model_profile(self) -> ModelProfile:
        """What the model takes and gives, as far as its configuration says."""
        config = getattr(self.model, "config", None)
        text: Any = config.get_text_config() if config is not None else None
        length = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
        calls = TOOL_CALL_START in str(getattr(self.tokenizer, "chat_template", "") or "")
        profile = ModelProfile(
            name=self.model_name,
            open_weights=True,
            text_inputs=True,
            text_outputs=True,
            image_inputs=False,
            audio_inputs=False,
            video_inputs=False,
            reasoning_output=False,
            tool_calling=calls,
            tool_choice=calls,
            tool_call_streaming=False,
            structured_output=False,
            temperature=True,
        )
        if isinstance(length, int):
            profile["max_input_tokens"] = length
            profile["max_output_tokens"] = min(length, self.max_tokens or length)
        return profile

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
        }

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        if "guard" in kwargs:
            kwargs["guard"] = self._enforced(kwargs["guard"]).log.digest
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
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Offer tools to the model, through its chat template.

        Args:
            tool_choice: None or "auto": as the model likes; "none"; "any", "required" or True: some tool; a tool's
                name: that one. A choice is enforced by beginning the answer with the call; its arguments remain the
                model's.

        Errors: `UnsupportedError` where the chat template has no place for tools, or where the marks of a tool call are
        special tokens, which are not part of the text.
        """
        if TOOL_CALL_START not in str(self.tokenizer.chat_template):
            raise UnsupportedError(
                f"tools: the chat template does not write tool calls as {TOOL_CALL_START}, the form that is read here"
            )
        if TOOL_CALL_START in self.tokenizer.all_special_tokens:
            raise UnsupportedError(
                f"tools: {TOOL_CALL_START} is a special token, which is no part of the text"
            )
        offered = [convert_to_openai_tool(tool) for tool in tools]
        choice = _chosen(tool_choice, [tool["function"]["name"] for tool in offered])
        # Both are needed before the first call, and what is wrong with them is to be known now.
        settings = Settings(self.model, self._options({}))
        bind_to_model(seeing_through_json(self._enforced()), self.model, self.tokenizer, settings)
        return self.bind(tools=offered, **({} if choice is None else {"tool_choice": choice}), **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        include_raw: bool = False,
        method: Literal["function_calling", "json_schema", "json_mode"] = "function_calling",
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """Answers as objects of a schema; what cannot be parsed raises, the policy holds in either case.

        Args:
            method: "function_calling" and "json_schema" make the model call a tool of that schema; "json_mode" parses
                the text of the answer, which is guarded as what it reads, too (`\\u0040`), and shown once it is
                complete. The schema is asked for and checked, not enforced while decoding; `strict` changes nothing.
        """
        if method != "json_mode":
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)
        parser: Any = JsonOutputParser()
        if isinstance(schema, type) and is_basemodel_subclass(schema):
            parser = PydanticOutputParser(pydantic_object=schema)
        model = self.model_copy()
        model._json = True
        return parsed_output(model, parser, include_raw=include_raw)

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
        for name, field in _FIELD_OF.items():
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
    ) -> _Call:
        if kwargs.get("response_format") is not None:
            raise UnsupportedError(
                "response_format: nothing enforces a schema while this model writes; use ToolStrategy in an agent, "
                "with_structured_output elsewhere"
            )
        given = {
            name: value
            for name, value in kwargs.items()
            if name not in _NOT_OPTIONS and name != "response_format"
        }
        refuse_other_words(given)
        guard = self._enforced(given.pop("guard", None))
        tools = given.pop("tools", None)
        choice = given.pop("tool_choice", None)
        if choice == "none":
            tools = None
        if tools or self._json:
            guard = seeing_through_json(guard)
        prompt: str = self.tokenizer.apply_chat_template(
            template_messages(messages), tools=tools or None, add_generation_prompt=True, tokenize=False
        )
        prefill = ""
        if tools and choice not in (None, "auto"):
            by_name = {tool["function"]["name"]: tool["function"] for tool in tools}
            name = choice if choice in by_name else self._likeliest(prompt, [*by_name])
            prefill = _opening(name) + ', "arguments": ' + _arguments_opening(by_name[name])
        encoded = encode_text(self.tokenizer, self.model, prompt + prefill)
        ids = encoded["input_ids"][0].tolist()
        stops = self._stops(stop)
        options = self._options(given)
        if stops:
            options["stop_strings"] = list(stops)
        bound = bind_to_model(guard, self.model, self.tokenizer, Settings(self.model, options))
        return _Call(
            guard=guard,
            encoded=encoded,
            options=options,
            stops=stops,
            prefill=prefill,
            context=bound.vocabulary.text_of(ids) if bound.needs_context else "",
            offers_tools=bool(tools),
            prompt_tokens=len(ids),
        )

    def _likeliest(self, prompt: str, names: Sequence[str]) -> str:
        """The tool that the model itself would rather call: the likeliest opening."""
        if len(names) == 1:
            return names[0]
        return max(names, key=partial(self._log_probability, prompt))

    @torch.inference_mode()
    def _log_probability(self, prompt: str, name: str) -> float:
        start = encode_text(self.tokenizer, self.model, prompt)["input_ids"].shape[1]
        encoded = encode_text(self.tokenizer, self.model, prompt + _opening(name))
        ids = encoded["input_ids"]
        scores = self.model(**encoded).logits[0, start - 1 : -1].float().log_softmax(-1)
        return float(scores.gather(1, ids[0, start:, None]).sum())

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._prepare(messages, stop, kwargs)
        result = call.guard.generate(self.model, self.tokenizer, call.encoded, **call.options)
        generations = []
        for text, ids, outcome in zip(result.texts, result.token_ids, result.outcomes, strict=True):
            reply = self._checked(call.reply().whole(text))
            message = AIMessage(
                content=reply.content,
                tool_calls=reply.tool_calls,
                invalid_tool_calls=reply.invalid_tool_calls,
                usage_metadata=_usage(call.prompt_tokens, len(ids)),
                response_metadata=self._metadata(kwargs, reply.finish_reason(outcome)),
            )
            generations.append(ChatGeneration(message=message))
        return ChatResult(generations=generations)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = self._prepare(messages, stop, kwargs)
        reply = call.reply()
        calls = 0
        results: list[GenerationResult] = []
        pieces = call.guard.stream(
            self.model, self.tokenizer, call.encoded, on_result=results.append, **call.options
        )
        news = reply.over(pieces)
        if self._json:
            news = iter([*news])
            self._checked(reply)
        for new in news:
            yield _chunk(new, calls)
            calls += not isinstance(new, str)
        result = results[0]
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                invalid_tool_calls=reply.invalid_tool_calls,
                usage_metadata=_usage(call.prompt_tokens, len(result.token_ids[0])),
                response_metadata=self._metadata(kwargs, reply.finish_reason(result.outcomes[0])),
                chunk_position="last",
            )
        )

    def _checked(self, reply: Reply) -> Reply:
        """Text that will be parsed holds nothing that only parsing brings out, such as 4e15."""
        if self._json:
            Cleaner(self._enforced(), "raise", where="structured output").json_text(reply.content)
        return reply

    def _metadata(self, kwargs: Mapping[str, Any], finish_reason: str) -> dict[str, Any]:
        guard = self._enforced(kwargs.get("guard"))
        return {
            "model_name": self.model_name,
            "model_provider": "nco-guard",
            "finish_reason": finish_reason,
            "policy_digest": guard.log.digest,
        }


def _opening(name: str) -> str:
    return f'{TOOL_CALL_START}{{"name": {json.dumps(name)}'


def _arguments_opening(tool: Mapping[str, Any]) -> str:
    """How the arguments of a tool begin: with the first one that is required. Without any, the call is complete."""
    schema = tool.get("parameters") or {}
    properties = schema.get("properties") or {}
    if not properties:
        return "{}}" + TOOL_CALL_END
    name = next(iter([*(schema.get("required") or ()), *properties]))
    quote = '"' if properties.get(name, {}).get("type") == "string" else ""
    return f"{{{json.dumps(name)}: {quote}"


def _chunk(new: Any, index: int) -> ChatGenerationChunk:
    """A piece of text, or a whole call of a tool, as the chunk of a stream."""
    if isinstance(new, str):
        return ChatGenerationChunk(message=AIMessageChunk(content=new))
    arguments = json.dumps(new["args"], ensure_ascii=False)
    call = tool_call_chunk(name=new["name"], args=arguments, id=new["id"], index=index)
    return ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


def _usage(prompt: int, written: int) -> UsageMetadata:
    return UsageMetadata(input_tokens=prompt, output_tokens=written, total_tokens=prompt + written)


def _chosen(choice: str | bool | dict[str, Any] | None, names: Sequence[str]) -> str | None:
    """A tool choice in one form: None, "none", "any" or a tool's name."""
    if isinstance(choice, dict):
        choice = str(choice.get("function", choice).get("name"))
    if choice is None or choice is False or choice == "auto":
        return None
    if choice is True or choice in ("any", "required"):
        return "any"
    if choice == "none" or choice in names:
        return choice
    raise UnsupportedError(
        f"tool_choice {choice!r}: no such tool; one of {', '.join(names)}, 'any', 'auto', 'none'"
    )
