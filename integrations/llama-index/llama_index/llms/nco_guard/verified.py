"""`VerifiedLLM`: any other LLM, what it writes verified before anybody reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr, SerializeAsAny
from llama_index.core.instrumentation.span import active_span_id
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import LLM, ToolSelection
from llama_index.core.llms.loading import load_llm
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.llms.nco_guard.cleaning import ChatFilter, CompletionFilter, ResponseCleaner
from llama_index.llms.nco_guard.copies import Travelling, settings_of
from llama_index.llms.nco_guard.structured import MakesObjects

from nco_guard import Guard, OnMatch, arguments
from nco_guard.audit import Sink
from nco_guard.errors import UnsupportedError
from nco_guard.guards import GuardSource, as_guard, check_replacement, guard_for_call
from nco_guard.replies.reader import refuse_shown_reasoning
from nco_guard.scan import Replacement
from nco_guard.values import Cleaner

if TYPE_CHECKING:
    from llama_index.core.tools.types import BaseTool

__all__ = ["VerifiedLLM"]

_TAKEN_OVER = (
    "system_prompt",
    "messages_to_prompt",
    "completion_to_prompt",
    "output_parser",
    "pydantic_program_mode",
    "query_wrapper_prompt",
)


def _refuse_hidden(guard: Guard) -> None:
    why = "hosted models show reasoning in ways of their own; use NCOGuardLLM"
    refuse_shown_reasoning(guard.policy, None, why)


class VerifiedLLM(Travelling, MakesObjects):
    """An LLM whose answers are verified after it wrote them: for hosted models, which cannot be guarded.

    Guarantee: no match of a hard rule in any response: not in a completion or message, not at any moment of a stream,
    not in a tool call's name or arguments, JSON escapes read, nor in what else the response carries, nor in an error of
    the LLM with all that led to it. Nothing that happens inside is reported to LlamaIndex's callbacks and
    instrumentation, global handlers among them; they are told of this LLM's calls, with the verified text. The model
    itself may well write it, and whoever hosts it sees it; so does what the inner LLM logs or prints by itself.

    Streams are held back exactly as long as a match could still be completed. Tool calls, thoughts and metadata appear
    with the last chunk. Of the provider's own object (`raw`) only token counts are kept; log probabilities, which
    repeat the text in pieces, are left out. An id that matches becomes another, the same everywhere in the process.

    Args:
        llm: any LLM. Options of a call are its own; `guard=` replaces the guard for that call.
        guard: a `Guard` (without `audit` where it has its own sink), a `Policy`, a preset's name or several, or the
            path of a policy file (`nco_guard.guards`).
        action: "raise" raises `ViolationError`, in a stream where the match is completed; "redact" replaces matches.
        replacement: what stands where a match was, a text or a function from a rule's id to one.
        audit: receives a verification event for each text, with LlamaIndex's span id as `parent_id`; never text.

    Rules that continue the prompt are looked for in the answer alone: how the prompt reaches a hosted model is not
    known.

    Thoughts are verified as text, also where the policy leaves reasoning free (`applies_to`).

    Errors at construction: `UnsupportedError` for what is no LLM, or a structured one (make it from this one by
    `as_structured_llm`), and for a policy that hides reasoning; `PolicyError`, also for a replacement that is itself
    forbidden. In answers: `ViolationError`, also for a tool's name that matches, and `RedactionError`; the LLM's own
    errors, as `GenerationError` where they held a match; with "raise" `UnsupportedError` for images, sound, video and
    documents, which "redact" leaves out with a line that says so. When not to use it: where the model can be guarded
    itself (`NCOGuardLLM`).

    Examples:
        >>> VerifiedLLM(hosted, guard="pii", action="redact").complete("Maria?").text
        'Write to [redacted].'
    """

    inner: SerializeAsAny[LLM] = Field(description="The LLM that writes.")
    action: OnMatch = Field(description="What is done about a match.")
    policy_name: str = Field(description="Name of the policy.", frozen=True)
    policy_digest: str = Field(
        description="The guard's digest of its policy; part of every cache key.", frozen=True
    )

    _guard: Guard = PrivateAttr()
    _replacement: Replacement = PrivateAttr()

    def __init__(
        self,
        llm: LLM,
        *,
        guard: GuardSource,
        action: OnMatch = "raise",
        replacement: Replacement = None,
        audit: Sink | None = None,
    ) -> None:
        if not isinstance(llm, LLM):
            raise UnsupportedError(f"llm: an LLM of LlamaIndex is needed, got {type(llm).__name__}")
        if isinstance(llm, StructuredLLM):
            raise UnsupportedError(
                "llm: a structured LLM gives objects; verify the one inside: VerifiedLLM(...).as_structured_llm(...)"
            )
        arguments.choice("action", action, ("raise", "redact"))
        guard = as_guard(guard, audit=audit)
        check_replacement(guard, replacement)
        _refuse_hidden(guard)
        fields: dict[str, Any] = {name: getattr(llm, name) for name in _TAKEN_OVER}
        fields |= {
            "inner": llm,
            "action": action,
            "callback_manager": llm.callback_manager,
            "policy_name": guard.policy.name,
            "policy_digest": guard.log.digest,
        }
        super().__init__(**fields)
        self.inner = llm  # as it is, not as validation copies it
        self._guard, self._replacement = guard, replacement

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """The LLM that `to_dict` wrote. `kwargs` come on top: `guard=` is needed, as keys are for hosted LLMs; `llm=`
        where LlamaIndex cannot load the one inside; `replacement=` and `audit=` where there were others.

        Raises `UnsupportedError` where one of the first two is missing.
        """
        given = settings_of(data, kwargs)
        inner = given.pop("inner", None)
        llm = given.pop("llm", None)
        if llm is None:
            try:
                llm = load_llm(inner or {})
            except ValueError as error:
                raise UnsupportedError(
                    "llm: LlamaIndex cannot load the LLM inside; give it as llm="
                ) from error
        taken = {
            name: given.pop(name) for name in ("action", "guard", "replacement", "audit") if name in given
        }
        made = cls(llm, **taken)
        own: dict[str, Any] = {
            name: given[name] for name in ("system_prompt", "pydantic_program_mode") if name in given
        }
        return made.model_copy(update=own)

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of this class."""
        return "VerifiedLLM"

    @property
    def guard(self) -> Guard:
        """The guard of calls without a `guard=` of their own."""
        return self._guard

    @property
    def metadata(self) -> LLMMetadata:
        """The inner LLM's; tools are offered only if it is a `FunctionCallingLLM`."""
        known = self.inner.metadata
        calls = known.is_function_calling_model and isinstance(self.inner, FunctionCallingLLM)
        return known.model_copy(update={"is_function_calling_model": calls})

    def to_payload(self) -> dict[str, Any]:
        """What observers are told about this LLM; the policy's name and digest are part of it."""
        own = {
            "class_name": self.class_name(),
            "policy_name": self.policy_name,
            "policy_digest": self.policy_digest,
        }
        return {**self.inner.to_payload(), **own}

    def with_guard(self, guard: GuardSource) -> Self:
        """This LLM under another guard, for code that calls it without options (query engines, agents)."""
        chosen = guard_for_call(self._guard, guard)
        _refuse_hidden(chosen)
        check_replacement(chosen, self._replacement)
        other = self.model_copy(
            update={"policy_name": chosen.policy.name, "policy_digest": chosen.log.digest}
        )
        other._guard = chosen
        return other

    def _cleaner(self, kwargs: dict[str, Any]) -> ResponseCleaner:
        """For one call, whose `guard=` is taken out of its options. All others are the inner LLM's."""
        if "policy" in kwargs:
            raise UnsupportedError("policy: no option of a verified LLM, and nothing is ignored; use guard=")
        guard = guard_for_call(self._guard, kwargs.pop("guard", None))
        _refuse_hidden(guard)
        return ResponseCleaner(guard, self.action, self._replacement, parent_id=active_span_id.get())

    def _object_cleaner(self, options: Mapping[str, Any]) -> Cleaner:
        return self._cleaner(dict(options)).values.at("object made of the answer")

    # -- completions -------------------------------------------------------------------------------------------

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The inner LLM's completion, verified."""
        cleaner = self._cleaner(kwargs)
        return cleaner.completion(
            cleaner.inside.call(self.inner.complete, prompt, formatted=formatted, **kwargs)
        )

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The inner LLM's `acomplete`, verified."""
        cleaner = self._cleaner(kwargs)
        return cleaner.completion(
            await cleaner.inside.acall(self.inner.acomplete, prompt, formatted=formatted, **kwargs)
        )

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The completion as it grows; what was shown is never taken back."""
        cleaner = self._cleaner(kwargs)
        stream = cleaner.inside.call(self.inner.stream_complete, prompt, formatted=formatted, **kwargs)
        return cleaner.inside.through(stream, CompletionFilter(cleaner))

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """The inner LLM's `astream_complete`, verified."""
        cleaner = self._cleaner(kwargs)
        stream = await cleaner.inside.acall(
            self.inner.astream_complete, prompt, formatted=formatted, **kwargs
        )
        return cleaner.inside.athrough(stream, CompletionFilter(cleaner))

    # -- chat --------------------------------------------------------------------------------------------------

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The inner LLM's answer, verified."""
        cleaner = self._cleaner(kwargs)
        return cleaner.chat(cleaner.inside.call(self.inner.chat, messages, **kwargs))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The inner LLM's `achat`, verified."""
        cleaner = self._cleaner(kwargs)
        return cleaner.chat(await cleaner.inside.acall(self.inner.achat, messages, **kwargs))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The answer as it grows; its tool calls come with the last chunk."""
        cleaner = self._cleaner(kwargs)
        stream = cleaner.inside.call(self.inner.stream_chat, messages, **kwargs)
        return cleaner.inside.through(stream, ChatFilter(cleaner))

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """The inner LLM's `astream_chat`, verified."""
        cleaner = self._cleaner(kwargs)
        stream = await cleaner.inside.acall(self.inner.astream_chat, messages, **kwargs)
        return cleaner.inside.athrough(stream, ChatFilter(cleaner))

    # -- tools -------------------------------------------------------------------------------------------------

    def _calling(self) -> FunctionCallingLLM:
        if not isinstance(self.inner, FunctionCallingLLM):
            raise UnsupportedError(f"tools: {type(self.inner).__name__} calls no functions; use a ReActAgent")
        return self.inner

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
        given = {"guard": kwargs.pop("guard")} if "guard" in kwargs else {}
        prepared: Mapping[str, Any] = self._calling()._prepare_chat_with_tools_compat(
            tools,
            user_msg=user_msg,
            chat_history=chat_history,
            verbose=verbose,
            allow_parallel_tool_calls=allow_parallel_tool_calls,
            tool_required=tool_required,
            **kwargs,
        )
        return {**prepared, **given}

    def _validate_chat_with_tools_response(
        self,
        response: ChatResponse,
        tools: Sequence[BaseTool],
        allow_parallel_tool_calls: bool = False,
        **kwargs: Any,
    ) -> ChatResponse:
        kwargs.pop("guard", None)
        return self._calling()._validate_chat_with_tools_response(
            response, list(tools), allow_parallel_tool_calls=allow_parallel_tool_calls, **kwargs
        )

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The calls of a verified answer, as the inner LLM reads them."""
        return self._calling().get_tool_calls_from_response(
            response, error_on_no_tool_call=error_on_no_tool_call, **kwargs
        )
