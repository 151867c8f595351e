"""`NCOGuardMiddleware`: a policy for everything that an agent says, calls and reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Literal

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from langchain_nco_guard._cleaning import Cleaner
from langchain_nco_guard._guards import GuardSource, as_guard, joined, with_policy
from langchain_nco_guard.chat_models import ChatNCOGuard
from langchain_nco_guard.verified import RETRY_PROMPT, OnViolation, VerifiedChatModel
from nco_guard import Guard
from nco_guard.redaction import REDACTED, Replacement, cleaned_error

__all__ = ["NCOGuardMiddleware"]

ModelHandler = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncModelHandler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
ToolHandler = Callable[[ToolCallRequest], "ToolMessage | Command[Any]"]
AsyncToolHandler = Callable[[ToolCallRequest], Awaitable["ToolMessage | Command[Any]"]]


class NCOGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """For `create_agent(..., middleware=[NCOGuardMiddleware(policy)])`.

    Guarantee: for every hard rule, no match in any model's text or tool call, or any tool's result, as the agent's
    state,
    its streams ("messages", "updates", "values", `astream_events`) and callbacks show them, sync and async, at any
    moment of a stream.

    * A `ChatNCOGuard` is guarded while it writes, by this policy joined to its own.
    * Any other model is verified after it wrote (see `VerifiedChatModel`): its host sees what it wrote. `on_violation`
      says what becomes of it: "redact" (the default), "block" (raises `ViolationError`) or "retry".
    * Tool results are redacted, or refused with "block", before the model, the state or a callback sees them.
    * With `check_input`, so are the user's messages on their way to the model. The state keeps them as they came.

    Put it last in the list, next to the model: then other middleware may exchange the model or the request, and this
    one sees what is called. Not covered: what middleware before it adds to an answer, what a tool streams by a writer
    of its own, and images, audio and files.

    Errors at construction: `PolicyError` and its kin, also for a replacement that is forbidden itself.
    """

    def __init__(
        self,
        guard: GuardSource,
        *,
        on_violation: OnViolation = "redact",
        replacement: Replacement = REDACTED,
        max_retries: int = 2,
        retry_prompt: str = RETRY_PROMPT,
        check_tool_results: bool = True,
        check_input: bool = False,
    ) -> None:
        super().__init__()
        if on_violation not in ("block", "redact", "retry"):
            raise ValueError(f"on_violation {on_violation!r}: one of 'block', 'redact', 'retry'")
        self.tools = []
        self.guard: Guard = as_guard(guard)
        self._options: dict[str, Any] = {
            "on_violation": on_violation,
            "replacement": replacement,
            "max_retries": max_retries,
            "retry_prompt": retry_prompt,
        }
        action: Literal["redact", "raise"] = "raise" if on_violation == "block" else "redact"
        self._input = (
            Cleaner(self.guard, action, replacement=replacement, where="input") if check_input else None
        )
        self._results = (
            Cleaner(self.guard, action, replacement=replacement, where="tool result")
            if check_tool_results
            else None
        )
        final: Literal["redact", "raise"] = "redact" if on_violation == "redact" else "raise"
        self._final = Cleaner(self.guard, final, replacement=replacement, where="model output", record=False)
        # Refused now rather than in the middle of an answer.
        self.guard.stream_verifier(replacement=replacement)

    @property
    def name(self) -> str:
        """One for each policy: an agent refuses two of one name."""
        return f"{type(self).__name__}_{self.guard.policy.digest[:8]}"

    # -- the model ---------------------------------------------------------------------------------------------

    def _prepared(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        if self._input is not None:
            cleaner = self._input
            messages = [
                cleaner.message(message) if isinstance(message, HumanMessage) else message
                for message in request.messages
            ]
            request = request.override(messages=messages)
        model = request.model
        if isinstance(model, ChatNCOGuard):
            settings = dict(request.model_settings)
            # A policy given with the call would replace this one.
            own = with_policy(model.guard, settings.pop("policy", model.guard))
            model = model.model_copy(update={"guard": joined(own, self.guard)})
            return request.override(model=model, model_settings=settings)
        return request.override(model=VerifiedChatModel.over(model, self.guard, **self._options))

    def _checked(self, response: Any) -> Any:
        """A last look: middleware between this one and the model may have changed what it said."""
        if isinstance(response, AIMessage):
            return self._final.message(response)
        model_response = response.model_response if isinstance(response, ExtendedModelResponse) else response
        model_response.result = [self._final.message(message) for message in model_response.result]
        if model_response.structured_response is not None:
            model_response.structured_response = self._final.value(model_response.structured_response)
        return response

    def wrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        """See `AgentMiddleware`."""
        return self._checked(handler(self._prepared(request)))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncModelHandler) -> Any:
        """See `AgentMiddleware`."""
        return self._checked(await handler(self._prepared(request)))

    # -- tools -------------------------------------------------------------------------------------------------

    def _prepared_tool(self, request: ToolCallRequest) -> ToolCallRequest:
        if self._results is None or request.tool is None:
            return request
        return request.override(tool=_cleaned_tool(request.tool, self._results))

    def _checked_result(self, result: Any) -> Any:
        return result if self._results is None else self._results.tool_result(result)

    def wrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> Any:
        """See `AgentMiddleware`."""
        return self._checked_result(handler(self._prepared_tool(request)))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: AsyncToolHandler) -> Any:
        """See `AgentMiddleware`."""
        return self._checked_result(await handler(self._prepared_tool(request)))


def _cleaned_tool(tool: BaseTool, cleaner: Cleaner) -> BaseTool:
    """The same tool, its result cleaned before LangChain shows it to callbacks."""
    cleaned = tool.model_copy()
    # LangChain reads the signatures of these two, so they are replaced one by one and keep theirs.
    run, arun = tool._run, tool._arun

    @wraps(run)
    def clean_run(*args: Any, **kwargs: Any) -> Any:
        try:
            return cleaner.tool_result(run(*args, **kwargs))
        except Exception as error:
            if (clean := _clean_error(error, cleaner)) is error:
                raise
        raise clean  # here, so that it does not carry the other one as its context

    @wraps(arun)
    async def clean_arun(*args: Any, **kwargs: Any) -> Any:
        try:
            return cleaner.tool_result(await arun(*args, **kwargs))
        except Exception as error:
            if (clean := _clean_error(error, cleaner)) is error:
                raise
        raise clean

    object.__setattr__(cleaned, "_run", clean_run)
    object.__setattr__(cleaned, "_arun", clean_arun)
    return cleaned


def _clean_error(error: Exception, cleaner: Cleaner) -> Exception:
    """The error of a tool as it may be shown: its text goes to the model and to callbacks like a result."""
    if isinstance(error, GraphBubbleUp):
        return error
    return cleaned_error(error, cleaner.guard.compiled, cleaner.text, ToolException)
