"""`NCOGuardLLM`: a local transformers model as a LlamaIndex LLM that cannot write what its policy forbids."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
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
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import LLM, ToolSelection, default_completion_to_prompt
from llama_index.llms.nco_guard.copies import Travelling, settings_of
from llama_index.llms.nco_guard.decoding import Call, StopAtIds
from llama_index.llms.nco_guard.fields import LLMFields, NCOGuardFields
from llama_index.llms.nco_guard.messages import plain_messages, render, tool_selections, writes_calls
from llama_index.llms.nco_guard.models import context_window_of, load
from llama_index.llms.nco_guard.options import (
    check_generation_options,
    check_marks,
    forced_tool,
    hint,
    offered,
    options_of,
)
from llama_index.llms.nco_guard.responses import Request

from nco_guard import BoundGuard, Guard
from nco_guard.audit import Sink
from nco_guard.engines.hf.generation import bind_to_model
from nco_guard.engines.hf.inputs import encode_text
from nco_guard.engines.hf.kinds import check_kinds, settled, stop_strings
from nco_guard.engines.hf.options import Settings
from nco_guard.errors import GenerationError, UnsupportedError
from nco_guard.guards import GuardSource, as_guard, guard_for_call

if TYPE_CHECKING:
    from llama_index.core.tools.types import BaseTool
    from llama_index.llms.huggingface import HuggingFaceLLM

__all__ = ["NCOGuardLLM"]

_DEFAULT_MARKS = ("<tool_call>", "</tool_call>")


class NCOGuardLLM(Travelling, FunctionCallingLLM):
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
        guard: a `Guard` (with its own audit sink, so without `audit`), a `Policy`, a preset's name or several, or the
            path of a policy file (`nco_guard.guards`).
        audit: receives the events of every call, each run with LlamaIndex's span id as `parent_id`; never text.
        context_window: prompt and reply together, in tokens; by default, and at most, what the model has.
        max_new_tokens: by default what the model's own configuration says, else 256.
        generate_kwargs: options of `model.generate` for every call. Options given with a call come on top of them, and
            `guard=`, `stop=` (strings before which the reply ends), `tools=` and `tool_choice=` can be given with a
            call too. Logits processors of yours run before the guard. Anything else raises `UnsupportedError`.
        stopping_ids: tokens after which generation stops; they stay in the text.
        is_chat_model: by default, whether the tokenizer has a chat template.
        tool_call_marks: what the model writes around the JSON of a tool call, or None. Tools are supported if the chat
            template shows tools and writes such calls, and decoding keeps the marks.
        model_kwargs: for `from_pretrained`, where paths are given.
        tokenizer_kwargs: the same.

    The remaining arguments are LlamaIndex's own.

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
    _marks: tuple[str, str] | None = PrivateAttr(default=None)

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
        tool_call_marks: tuple[str, str] | None = _DEFAULT_MARKS,
        model_name: str | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        tokenizer_kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[LLMFields],
    ) -> None:
        guard = as_guard(guard, audit=audit)
        if unknown := sorted(set(options) - set(LLM.model_fields)):
            raise UnsupportedError(f"{', '.join(unknown)}: not an option of NCOGuardLLM; {hint(unknown[0])}")
        model, tokenizer = load(model, tokenizer, model_kwargs, tokenizer_kwargs)
        generate = options_of(generate_kwargs)
        longest = max_new_tokens if max_new_tokens is not None else generate.get("max_new_tokens")
        check_generation_options(model, {**generate, "max_new_tokens": longest})
        check_marks(tool_call_marks)
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
            policy_name=guard.policy.name,
            policy_digest=guard.log.digest,
            **{name: value for name, value in options.items() if value is not None},
        )
        self._model, self._tokenizer, self._guard = model, tokenizer, guard
        self._stopping_ids = tuple(stopping_ids)
        if templated and tool_call_marks is not None and writes_calls(tokenizer, tool_call_marks):
            self._marks = tool_call_marks
        self._bind(guard, generate)  # a tokenizer that does not fit is refused here

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

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        # The model and the guard are shared by design; options and fields are the copy's own.
        return self.model_copy(update={"generate_kwargs": copy.copy(self.generate_kwargs)})

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Settings, as LlamaIndex's own LLMs write them; of the policy its name and digest, never what it forbids."""
        marks = None if self._marks is None else list(self._marks)
        own = {"stopping_ids": list(self._stopping_ids), "tool_call_marks": marks}
        return {**super().to_dict(**kwargs), **own}

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """The LLM that `to_dict` wrote. `kwargs` come on top: `guard=` is needed, as keys are for hosted LLMs,
        `model=` and `tokenizer=` where the model is not at the path that it came from, `audit=` where there was a sink.

        Raises `UnsupportedError` without a guard, and what the constructor raises.
        """
        given = settings_of(data, kwargs)
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
            is_function_calling_model=self._marks is not None
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
        request = self._chat(messages, kwargs)
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
        request = self._chat(messages, kwargs, streams=True)

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
            "tools": [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools],
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
                prompt = render(self._tokenizer, [*system, {"role": "user", "content": prompt}])
                special = False
            elif self.system_prompt:
                prompt = f"{self.system_prompt}\n\n{prompt}"
        return self._request(prompt, special, kwargs, streams=streams)

    def _chat(
        self, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any], streams: bool = False
    ) -> Request:
        options = dict(kwargs)
        tools = offered(options.pop("tools", None))
        choice = options.pop("tool_choice", None)
        names = [str(tool.get("function", tool).get("name")) for tool in tools]
        required, name = forced_tool(choice, bool(options.pop("tool_required", False)), names)
        single = not options.pop("allow_parallel_tool_calls", True)
        if choice == "none":
            tools = []
        if required and not tools:
            raise UnsupportedError("a tool call is required and no tools are given")
        marks = self._marks if tools else None
        if tools and (marks is None or not self.metadata.is_function_calling_model):
            raise UnsupportedError(
                "tools: this model's chat template shows no tools, or writes calls in a form that is not known here "
                "(see tool_call_marks), or messages_to_prompt replaces it"
            )
        if self._custom_messages or getattr(self._tokenizer, "chat_template", None) is None:
            to_prompt = self.messages_to_prompt or generic_messages_to_prompt
            return self._request(to_prompt(messages), True, options, streams=streams)
        begun = ""
        if required and marks is not None:
            # The prompt begins the call, so that the model can only go on with it; up to where tokens part anyway.
            begun = marks[0] + (f'{{"name": "{name}", "arguments":' if name else '{"name":')
        prompt = render(self._tokenizer, plain_messages(messages), tools) + begun
        return self._request(
            prompt,
            False,
            options,
            streams=streams,
            marks=marks,
            begun=begun,
            single_call=single,
            requires_call=required,
        )

    def _request(
        self, prompt: str, special: bool, kwargs: Mapping[str, Any], *, streams: bool, **reading: Any
    ) -> Request:
        options = {**self.generate_kwargs, **kwargs}
        guard = guard_for_call(self._guard, options.pop("guard", None))
        stop = stop_strings(options.pop("stop", None))
        check_generation_options(self._model, options)
        options = settled(options)
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
        inputs = encode_text(self._tokenizer, self._model, prompt, special=special)
        inputs = {name: value for name, value in inputs.items() if name not in self._drop_inputs}
        length = inputs["input_ids"].shape[1]
        if length >= self.context_window:
            raise UnsupportedError(
                f"the prompt has {length} tokens and the context window is {self.context_window}; shorten the prompt"
            )
        config = options.get("generation_config")
        limit = int(
            options.get("max_new_tokens") or getattr(config, "max_new_tokens", None) or self.max_new_tokens
        )
        options["max_new_tokens"] = min(limit, self.context_window - length)
        if self._stopping_ids:
            options["stopping_criteria"] = [
                *(options.get("stopping_criteria") or ()),
                StopAtIds(self._stopping_ids),
            ]
        call = Call(
            guard=guard,
            bound=self._bind(guard, options),
            model=self._model,
            tokenizer=self._tokenizer,
            inputs=inputs,
            options=options,
            stop=stop,
            parent_id=active_span_id.get(),
            **reading,
        )
        return Request(call)

    def _bind(self, guard: Guard, options: Mapping[str, Any]) -> BoundGuard:
        return bind_to_model(guard, self._model, self._tokenizer, Settings(self._model, options))
