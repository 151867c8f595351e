"""`NCOGuardLLM`: a local transformers model as a LlamaIndex LLM that cannot write what its policy forbids."""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, Unpack

from llama_index.core.base.llms.generic_utils import messages_to_prompt as generic_messages_to_prompt
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
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.instrumentation.span import active_span_id
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.llm import LLM, ToolSelection, default_completion_to_prompt
from llama_index.llms.nco_guard.asked import Asked
from llama_index.llms.nco_guard.copies import Travelling, settings_of
from llama_index.llms.nco_guard.fields import LoadedFields, LoadingLLMFields, NCOGuardFields
from llama_index.llms.nco_guard.messages import described_tools, plain_messages, tool_selections
from llama_index.llms.nco_guard.models import context_window_of, load
from llama_index.llms.nco_guard.options import StopAtIds, check_generation_options, mend, options_of
from llama_index.llms.nco_guard.responses import Request
from llama_index.llms.nco_guard.structured import WritesObjects
from llama_index.llms.nco_guard.written import loading_of, written_loading

from nco_guard import BoundGuard, Guard, arguments
from nco_guard.audit import Sink
from nco_guard.engines.hf.generation import bind_to_model
from nco_guard.engines.hf.inputs import encode_text, render_chat
from nco_guard.engines.hf.kinds import check_kinds, for_transformers, stop_strings
from nco_guard.engines.hf.loading import load_model_id, shared_options
from nco_guard.engines.hf.options import Settings
from nco_guard.engines.hf.reply_calls import ReplyCall
from nco_guard.engines.hf.tool_calls import chat_prompt, tools_refusal
from nco_guard.engines.hf.weights import WEIGHT_OPTIONS
from nco_guard.errors import GenerationError, UnsupportedError
from nco_guard.guards import GuardSource, as_guard, guard_for_call, seeing_through_json
from nco_guard.replies import ReplyFormat, as_reply_format, format_for
from nco_guard.replies.reader import refuse_shown_reasoning
from nco_guard.values import Cleaner

if TYPE_CHECKING:
    from llama_index.core.tools.types import BaseTool
    from llama_index.llms.huggingface import HuggingFaceLLM

__all__ = ["NCOGuardLLM"]


class NCOGuardLLM(Travelling, WritesObjects):
    """A local transformers model that keeps a policy, as an LLM for query engines, chat engines, agents and workflows.

    Guarantee: no text of a reply matches a hard rule of the policy: not a completion, not a message, not one chunk of a
    stream nor all of them joined, not a string or number in a tool call's arguments. Tokens are masked while the model
    writes; see `nco_guard.engines.hf.generate` for what exactly. What cannot be guaranteed is refused by a typed error,
    at construction where it can be known then, and before anything is generated otherwise. Errors of a generation
    arrive at once, where its text was to arrive. What goes *into* the model (prompts, retrieved text, results of tools)
    is not touched; see `NCOGuardPostprocessor`.

    Args:
        model: a causal language model of transformers, or the path of one.
        tokenizer: its tokenizer; needed with a model object.
        guard: a `Guard` (without `audit` where it has its own sink), a `Policy`, a preset's name or several, or the
            path of a policy file (`nco_guard.guards`).
        audit: receives the events of every call, each run with LlamaIndex's span id as `parent_id`; never text.
        context_window: prompt and reply together, in tokens; by default, and at most, what the model has.
        max_new_tokens: by default what the model's own configuration says, else 256.
        generate_kwargs: options of `model.generate` for every call. Options given with a call come on top of them, and
            `guard=`, `stop=` (strings before which the reply ends), `tools=`, `tool_choice=`, `strict=` and `shape=`
            (what the whole reply is to look like: a `Shape`, a JSON Schema, a pydantic class) can be given with a call,
            too. Logits processors of yours run before the guard. Anything else raises `UnsupportedError`.
        stopping_ids: tokens after which generation stops; they stay in the text.
        is_chat_model: by default, whether the tokenizer has a chat template.
        reply_format: how the model writes reasoning and calls of tools: a `ReplyFormat`, the name of a shipped one, the
            path of an entry or a dict. By default it is found by the tokenizer (`nco_guard.replies.format_for`). Tools
            are supported if the chat template shows them and the format is known. Reasoning is a `ThinkingBlock` of the
            message, streamed too (`additional_kwargs["thinking_delta"]`), and no part of the text.
        strict: None: the schemas of objects, and of tools where a call is required or the tool says `strict`, are
            enforced. True: those of all tools, also where the model may as well talk. False: none; calls have arguments
            of any kind, objects are what LlamaIndex makes of the reply. A call may say another (`strict=`).
        model_kwargs: for `from_pretrained`, where paths are given.
        tokenizer_kwargs: the same of the tokenizer.

    Where a path is given, `device`, `device_map`, `dtype` (or `torch_dtype`) and `quantization_config` say onto which
    devices and as which numbers its weights are loaded (`nco_guard.engines.hf.weights.loading_options`). The remaining
    arguments are LlamaIndex's own.

    Cost: at construction, compiling the policy and binding it to the tokenizer; then as `nco_guard`'s engine. A guard
    given with a call costs the same at its first call. One generation runs in one thread; any number of calls may share
    the object.

    Raises `UnsupportedError` for a model that this cannot guard, `TokenizerError` for a tokenizer that does not fit the
    model or cannot be modelled, `PolicyError` for a policy that cannot be enforced.

    Examples:
        >>> llm = NCOGuardLLM(model, tokenizer, guard="pii", max_new_tokens=8)
        >>> Guard.from_presets("pii").verify(llm.complete("Write to").text).ok
        True
    """

    model_name: str = Field(description="Where the model came from.")
    context_window: int = Field(description="Tokens of a prompt and its reply together.", gt=0)
    max_new_tokens: int = Field(description="The longest reply, in tokens.", gt=0)
    is_chat_model: bool = Field(description="Whether messages go through a chat template.")
    generate_kwargs: dict[str, Any] = Field(description="Options of every model.generate.")
    policy_name: str = Field(description="Name of the policy that is enforced.", frozen=True)
    policy_digest: str = Field(
        description="The guard's digest of its policy; part of every cache key.", frozen=True
    )

    _model: Any = PrivateAttr()
    _tokenizer: Any = PrivateAttr()
    _guard: Guard = PrivateAttr()
    _stopping_ids: tuple[int, ...] = PrivateAttr(default=())
    _drop_inputs: frozenset[str] = PrivateAttr(default=frozenset())
    _form: ReplyFormat | None = PrivateAttr(default=None)
    _given_form: ReplyFormat | None = PrivateAttr(default=None)
    _no_tools: str | None = PrivateAttr(default=None)
    _loading: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        guard: GuardSource,
        audit: Sink | None = None,
        context_window: int | None = None,
        max_new_tokens: int | None = None,
        generate_kwargs: Mapping[str, Any] | None = None,
        stopping_ids: Sequence[int] = (),
        is_chat_model: bool | None = None,
        reply_format: ReplyFormat | str | PathLike[str] | Mapping[str, Any] | None = None,
        strict: bool | None = None,
        model_name: str | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        tokenizer_kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[LoadingLLMFields],
    ) -> None:
        guard = as_guard(guard, audit=audit)
        weights: Any = {name: options.pop(name) for name in WEIGHT_OPTIONS if name in options}  # type: ignore[misc]
        if unknown := sorted(set(options) - set(LLM.model_fields)):
            raise UnsupportedError(f"{', '.join(unknown)}: not an option of NCOGuardLLM{mend(unknown[0])}")
        source = model, tokenizer
        model, tokenizer = load(model, tokenizer, model_kwargs, tokenizer_kwargs, weights)
        generate = options_of(generate_kwargs)
        longest = max_new_tokens if max_new_tokens is not None else generate.get("max_new_tokens")
        check_generation_options(model, {**generate, "max_new_tokens": longest})
        given_form = None if reply_format is None else as_reply_format(reply_format)
        check_kinds({"stopping_ids": stopping_ids}, like="suppress_tokens")
        generate.pop("max_new_tokens", None)
        templated = getattr(tokenizer, "chat_template", None) is not None
        if is_chat_model and not templated and options.get("messages_to_prompt") is None:
            raise UnsupportedError(
                "is_chat_model: the tokenizer has no chat template; set one, or give messages_to_prompt"
            )
        super().__init__(
            model_name=model_name or str(getattr(model, "name_or_path", "") or type(model).__name__),
            context_window=context_window_of(model, context_window),
            max_new_tokens=longest or getattr(model.generation_config, "max_new_tokens", None) or 256,
            is_chat_model=templated if is_chat_model is None else is_chat_model,
            generate_kwargs=generate,
            strict=None if strict is None else arguments.truth("strict", strict),
            policy_name=guard.policy.name,
            policy_digest=guard.log.digest,
            **{name: value for name, value in options.items() if value is not None},
        )
        self._model, self._tokenizer, self._guard = model, tokenizer, guard
        self._loading = written_loading(
            *source, self.model_name, weights, model_kwargs=model_kwargs, tokenizer_kwargs=tokenizer_kwargs
        )
        self._stopping_ids = tuple(stopping_ids)
        self._given_form = given_form
        self._form = given_form or format_for(tokenizer, getattr(model.config, "model_type", None))
        self._no_tools = (
            tools_refusal(self._form, tokenizer, given=given_form is not None) if templated else ""
        )
        self._bind(guard, generate)  # a tokenizer that does not fit is refused here

    @classmethod
    def from_model_id(
        cls,
        model_id: str,
        task: str = "text-generation",
        *,
        guard: GuardSource,
        audit: Sink | None = None,
        backend: str = "default",
        model_kwargs: Mapping[str, Any] | None = None,
        pipeline_kwargs: Mapping[str, Any] | None = None,
        batch_size: int = 4,
        **options: Unpack[LoadedFields],
    ) -> Self:
        """An LLM by what LangChain's `HuggingFacePipeline.from_model_id` takes, and by arguments of this class.

        `pipeline_kwargs` are `generate_kwargs` here, and `batch_size` is checked and has no meaning: replies are
        written one by one. Raises what the constructor raises, and `UnsupportedError` for another task or backend.
        """
        checked, given = as_guard(guard, audit=audit), dict(options)
        generate = options_of(pipeline_kwargs, "pipeline_kwargs")
        if generate.get("return_full_text") is False:
            del generate["return_full_text"]
        weights: Any = {name: given.pop(name) for name in WEIGHT_OPTIONS if name in given}
        model, tokenizer = load_model_id(
            model_id, task, backend, batch_size=batch_size, model_kwargs=model_kwargs, **weights
        )
        fields: Any = {
            "model_name": str(model_id),
            **given,
            "generate_kwargs": {**generate, **options_of(given.get("generate_kwargs"))},
        }
        made = cls(model, tokenizer, guard=checked, **fields)
        words = {"model_kwargs": model_kwargs, "tokenizer_kwargs": shared_options(model_kwargs)}
        made._loading = written_loading(model_id, None, made.model_name, weights, **words)
        return made

    @classmethod
    def from_huggingface_llm(
        cls,
        llm: HuggingFaceLLM,
        *,
        guard: GuardSource,
        audit: Sink | None = None,
        **options: Unpack[NCOGuardFields],
    ) -> Self:
        """The model of an existing `HuggingFaceLLM`, guarded, with its prompts, limits and options.

        `llm` itself is left as it is, and unguarded: hand out only what this returns. `options`: as of the constructor,
        in place of `llm`'s. Raises `UnsupportedError` for any other LLM: text that is written elsewhere can only be
        verified.
        """
        # Whoever has one has loaded its module.
        module = sys.modules.get("llama_index.llms.huggingface.base")
        if module is None or type(llm) is not module.HuggingFaceLLM:
            raise UnsupportedError(
                f"{type(llm).__name__}: only a HuggingFaceLLM has a local model to guard; give the model of a subclass "
                f"to NCOGuardLLM itself, and verify what is written elsewhere (VerifiedLLM)"
            )
        default = module.HuggingFaceLLM._tokenizer_messages_to_prompt
        ours = getattr(llm.messages_to_prompt, "__func__", None) is default  # the template of the tokenizer
        given: dict[str, Any] = {
            "context_window": min(llm.context_window, context_window_of(llm._model, None)),
            "max_new_tokens": llm.max_new_tokens,
            "generate_kwargs": llm.generate_kwargs,
            "stopping_ids": llm.stopping_ids,
            "is_chat_model": llm.is_chat_model,
            "model_name": llm.model_name,
            "system_prompt": llm.system_prompt or None,
            "query_wrapper_prompt": llm.query_wrapper_prompt,
            "messages_to_prompt": None if ours else llm.messages_to_prompt,
            "completion_to_prompt": llm.completion_to_prompt,
            "callback_manager": llm.callback_manager,
            "pydantic_program_mode": llm.pydantic_program_mode,
            "output_parser": llm.output_parser,
            "rate_limiter": llm.rate_limiter,
        }
        guarded = cls(llm._model, llm._tokenizer, guard=guard, audit=audit, **{**given, **options})
        guarded._drop_inputs = frozenset(llm.tokenizer_outputs_to_remove)
        return guarded

    def with_guard(self, guard: GuardSource) -> Self:
        """This model under another guard, for code that calls the LLM without options (query engines, agents).

        A policy keeps the audit sink; a `Guard` brings its own.
        """
        chosen = guard_for_call(self._guard, guard)
        other = self.model_copy(
            update={"policy_name": chosen.policy.name, "policy_digest": chosen.log.digest}
        )
        other._guard = chosen
        other._bind(chosen, self.generate_kwargs)
        return other

    def _object_cleaner(self, options: Mapping[str, Any]) -> Cleaner:
        guard = guard_for_call(self._guard, options.get("guard"))
        return Cleaner(guard, "raise", where="object made of the answer", record=guard.log.own_recorder())

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        # The model and the guard are shared by design; options and fields are the copy's own.
        return self.model_copy(update={"generate_kwargs": copy.copy(self.generate_kwargs)})

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Settings, as LlamaIndex's own LLMs write them; of the policy its name and digest, never what it forbids.

        Where the model was loaded from a path, that and the options of loading are settings, too. Credentials and
        objects among those are not written, and `from_dict` asks for them by name.
        """
        form = None if self._given_form is None else self._given_form.model_dump(mode="json")
        own = {"stopping_ids": list(self._stopping_ids), "reply_format": form}
        return {**super().to_dict(**kwargs), **own, **self._loading}

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """The LLM that `to_dict` wrote. `kwargs` come on top: `guard=` is needed, as keys are for hosted LLMs,
        `model=` and `tokenizer=` where the model is not at the path that it came from, `audit=` where there was a sink.

        Raises `UnsupportedError` without a guard, and what the constructor raises.
        """
        given = loading_of(settings_of(data, kwargs), data)
        return cls(given.pop("model", None) or given["model_name"], given.pop("tokenizer", None), **given)

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of this class."""
        return "NCOGuardLLM"

    @property
    def guard(self) -> Guard:
        """The guard of calls without a `guard=` of their own."""
        return self._guard

    @property
    def metadata(self) -> LLMMetadata:
        """Limits and abilities, as LlamaIndex asks for them."""
        return LLMMetadata(
            context_window=self.context_window,
            num_output=self.max_new_tokens,
            is_chat_model=self.is_chat_model,
            is_function_calling_model=self._no_tools is None
            and self.is_chat_model
            and not self._custom_messages,
            model_name=self.model_name,
        )

    def to_payload(self) -> dict[str, Any]:
        """What observers are told about this LLM; the policy's name and digest are part of it."""
        return {**super().to_payload(), "policy_name": self.policy_name, "policy_digest": self.policy_digest}

    # -- completions -------------------------------------------------------------------------------------------

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The whole completion of a prompt, without the prompt. See the class for `kwargs` and errors.

        A chat model is asked the prompt as a user's message, unless it is `formatted` already.
        """
        request = self._completion(prompt, formatted, kwargs)
        return request.completion(request.call.run())

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """`complete`, in a thread; the event loop goes on meanwhile."""
        request = self._completion(prompt, formatted, kwargs)
        return request.completion(await request.call.arun())

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The completion as it grows; what was shown is never taken back. The last chunk has the outcome in `raw`."""
        request = self._completion(prompt, formatted, kwargs, streams=True)

        def chunks() -> CompletionResponseGen:
            for reply in request.call.stream():
                yield request.completion(reply)

        return chunks()

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """`stream_complete` for an event loop, which goes on meanwhile."""
        request = self._completion(prompt, formatted, kwargs, streams=True)

        async def chunks() -> CompletionResponseAsyncGen:
            async for reply in request.call.astream():
                yield request.completion(reply)

        return chunks()

    # -- chat --------------------------------------------------------------------------------------------------

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The assistant's whole answer: content, and tool calls where tools were offered."""
        request = self._chat(messages, kwargs)
        return request.message(request.call.run())

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """`chat`, in a thread; the event loop goes on meanwhile."""
        request = await asyncio.to_thread(self._chat, messages, kwargs)
        return request.message(await request.call.arun())

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The answer as it grows. A tool call is shown when it is finished and its arguments are checked."""
        request = self._chat(messages, kwargs, streams=True)

        def chunks() -> ChatResponseGen:
            for reply in request.call.stream():
                yield request.message(reply)

        return chunks()

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """`stream_chat` for an event loop, which goes on meanwhile."""
        request = await asyncio.to_thread(self._chat, messages, kwargs, streams=True)

        async def chunks() -> ChatResponseAsyncGen:
            async for reply in request.call.astream():
                yield request.message(reply)

        return chunks()

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
        messages = list(chat_history or [])
        if user_msg is not None:
            if not isinstance(user_msg, ChatMessage):
                user_msg = ChatMessage(role=MessageRole.USER, content=user_msg)
            messages.append(user_msg)
        return {
            "messages": messages,
            "tools": described_tools(tools),
            "tool_required": tool_required,
            "allow_parallel_tool_calls": allow_parallel_tool_calls,
            **kwargs,
        }

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The calls of a message, parsed. Raises `GenerationError` if there is none and that is an error."""
        calls = tool_selections(response.message)
        if not calls and error_on_no_tool_call:
            raise GenerationError("the model called no tool; give tool_required=True, or ask differently")
        return calls

    # -- requests ----------------------------------------------------------------------------------------------

    @property
    def _custom_messages(self) -> bool:
        return self.messages_to_prompt is not generic_messages_to_prompt

    def _completion(
        self, prompt: str, formatted: bool, kwargs: Mapping[str, Any], streams: bool = False
    ) -> Request:
        special = True
        if not formatted:
            if self.query_wrapper_prompt is not None:
                prompt = self.query_wrapper_prompt.format(query_str=prompt)
            if self.completion_to_prompt not in (None, default_completion_to_prompt):
                prompt = self.completion_to_prompt(prompt)
            elif self.is_chat_model and not self._custom_messages:
                system = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
                prompt = render_chat(self._tokenizer, [*system, {"role": "user", "content": prompt}])
                special = False
            elif self.system_prompt:
                prompt = f"{self.system_prompt}\n\n{prompt}"
        return self._request(prompt, special, Asked.of_text(kwargs), streams=streams)

    def _chat(
        self, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any], streams: bool = False
    ) -> Request:
        asked = Asked.of_chat(kwargs, self.strict)
        if asked.tools and not self.metadata.is_function_calling_model:
            raise UnsupportedError(
                f"tools: {self._no_tools or 'there is no chat template, or messages_to_prompt replaces it'}"
            )
        if self._custom_messages or getattr(self._tokenizer, "chat_template", None) is None:
            to_prompt = self.messages_to_prompt or generic_messages_to_prompt
            return self._request(to_prompt(messages), True, asked, streams=streams)
        prompt = chat_prompt(self._form, self._tokenizer, plain_messages(messages), asked.tools)
        return self._request(prompt, False, asked, streams=streams)

    def _request(self, prompt: str, special: bool, asked: Asked, *, streams: bool) -> Request:
        options = {**self.generate_kwargs, **asked.options}
        guard = guard_for_call(self._guard, options.pop("guard", None))
        stop = stop_strings(options.pop("stop", None))
        check_generation_options(self._model, options)
        options = for_transformers(options)
        # Those of a GenerationConfig end the text as well, and are no part of it either.
        stop += stop_strings(
            Settings(self._model, options).get("stop_strings"), "generation_config.stop_strings"
        )
        if not isinstance(prompt, str):
            raise UnsupportedError(f"prompt: text is needed, got {type(prompt).__name__}")
        if streams and Settings(self._model, options).beams > 1:
            raise UnsupportedError(
                "num_beams: beam search has no text to show before it ends; call without streaming"
            )
        inputs = self._inputs(prompt, special)
        form = self._read_form
        begun, shape = asked.enforced(form, prompt)
        if shape is not None:
            guard = guard.with_shape(shape)
        elif asked.tools:
            guard = seeing_through_json(guard)
        if begun:
            inputs = self._inputs(prompt + begun, special)
        config = options.get("generation_config")
        limit = int(
            options.get("max_new_tokens") or getattr(config, "max_new_tokens", None) or self.max_new_tokens
        )
        options["max_new_tokens"] = min(limit, self.context_window - inputs["input_ids"].shape[1])
        if self._stopping_ids:
            options["stopping_criteria"] = [
                *(options.get("stopping_criteria") or ()),
                StopAtIds(self._stopping_ids),
            ]
        call = ReplyCall(
            guard,
            self._model,
            self._tokenizer,
            inputs=inputs,
            options=options,
            stop=stop,
            form=form,
            tools=asked.tools or None,
            begun=begun,
            single_call=asked.single_call,
            requires_call=asked.choice is not None,
            shape=shape,
            invalid_as_text=True,
            escapes=True,  # agents and programs parse any text
            parent_id=active_span_id.get(),
        )
        return Request(call)

    def _inputs(self, prompt: str, special: bool) -> dict[str, Any]:
        inputs = encode_text(self._tokenizer, self._model, prompt, special=special)
        length = inputs["input_ids"].shape[1]
        if length >= self.context_window:
            raise UnsupportedError(
                f"the prompt has {length} tokens and the context window is {self.context_window}; shorten the prompt"
            )
        return {name: value for name, value in inputs.items() if name not in self._drop_inputs}

    @property
    def _read_form(self) -> ReplyFormat | None:
        """The format that replies are read by."""
        return self._form if self.is_chat_model else None

    def _bind(self, guard: Guard, options: Mapping[str, Any]) -> BoundGuard:
        why = (
            ""
            if self.is_chat_model
            else "is_chat_model=False: replies are text alone; say is_chat_model=True"
        )
        refuse_shown_reasoning(guard.policy, self._read_form, why)
        return bind_to_model(guard, self._model, self._tokenizer, Settings(self._model, options))
