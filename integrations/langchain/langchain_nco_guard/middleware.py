"""`NCOGuardMiddleware`: a policy for everything that an agent says, calls and reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.exceptions import LangChainException
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command
from pydantic import BaseModel

from langchain_nco_guard._agent import guarded_request, guarded_tool_request, refuse_unguarded_models
from langchain_nco_guard._cleaning import RecordingCleaner
from langchain_nco_guard._structured import shown_object
from langchain_nco_guard._wrappers import mapped
from langchain_nco_guard.chat_models import ChatNCOGuard
from langchain_nco_guard.verified import ACTIONS, RETRY_PROMPT, VerifiedChatModel
from nco_guard import Guard, OnMatch, arguments
from nco_guard.guards import GuardSource, as_guard
from nco_guard.scan import Replacement
from nco_guard.values.clean_calls import CleanCalls

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

    * A `ChatNCOGuard` is guarded while it writes, by this policy joined to its own
      (`ChatNCOGuard.with_further_guard`), which says whether reasoning is free or hidden.
    * Any other model is verified after it wrote (see `VerifiedChatModel`): its host sees what it wrote. `action` says
      what becomes of it: "redact" (the default), "raise" (`ViolationError`) or "retry".
    * Tool results are redacted, or refused with "raise", before the model, the state or a callback sees them; so are
      arguments that a tool's schema casts to something forbidden, before the tool sees them.
    * With `check_input`, so are the user's messages on their way to the model. The state keeps them as they came.

    Put it first in the list: then it also sees what other middleware makes of an answer or a result. Wherever it is,
    models that others put into a request (`ModelFallbackMiddleware`) are guarded. Middleware that asks a model of its
    own (`SummarizationMiddleware`) is refused when the agent is made, unless that model is a `VerifiedChatModel` or a
    `ChatNCOGuard` under this policy. Not covered: what middleware before it adds to an answer, what a tool streams by a
    writer of its own, and images, audio and files.

    Errors at construction: `PolicyError` and its kin, also for a replacement that is forbidden itself; when the agent
    is made: `UnsupportedError`.

    Examples:
        >>> from langchain.agents import create_agent
        >>> agent = create_agent(hosted, middleware=[NCOGuardMiddleware("pii", action="redact")])
        >>> agent.invoke({"messages": [("human", "Maria?")]})["messages"][-1].text
        'Write to [redacted].'
    """

    def __init__(
        self,
        guard: GuardSource,
        *,
        action: OnMatch = "redact",
        replacement: Replacement = None,
        max_retries: int = 2,
        retry_prompt: str = RETRY_PROMPT,
        check_tool_results: bool = True,
        check_input: bool = False,
    ) -> None:
        super().__init__()
        arguments.choice("action", action, ACTIONS)
        self.tools = []
        self.guard: Guard = as_guard(guard)
        self._options: dict[str, Any] = {
            "action": action,
            "replacement": replacement,
            "max_retries": max_retries,
            "retry_prompt": retry_prompt,
        }
        others: OnMatch = "raise" if action == "raise" else "redact"  # nobody could be asked again for them
        self._input = (
            RecordingCleaner(self.guard, others, replacement=replacement, where="input")
            if check_input
            else None
        )
        self._results = (
            RecordingCleaner(self.guard, others, replacement=replacement, where="tool result")
            if check_tool_results
            else None
        )
        final: OnMatch = "redact" if action == "redact" else "raise"
        self._final = RecordingCleaner(
            self.guard, final, replacement=replacement, where="model output", again=True, read=True
        )
        self._make_requests()

    def _make_requests(self) -> None:
        self._guard_request = guarded_request(self._guarded)
        self._guard_tool_request = guarded_tool_request(self._cleaned_tool)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and other processes make request types of their own."""
        made = ("_guard_request", "_guard_tool_request")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_requests()

    @property
    def name(self) -> str:
        """One for each policy: an agent refuses two of one name."""
        refuse_unguarded_models(self, self.guard)
        return f"{type(self).__name__}_{self.guard.log.digest[-8:]}"

    # -- the model ---------------------------------------------------------------------------------------------

    def _prepared(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        if self._input is not None:
            cleaner = self._input
            messages = [
                cleaner.value(message) if isinstance(message, HumanMessage) else message
                for message in request.messages
            ]
            request = request.override(messages=messages)
        return self._guard_request(request)

    def _guarded(self, model: Any) -> Any:
        """A model as this middleware lets it be asked; the same object if it is one already."""
        if isinstance(model, ChatNCOGuard):
            return model.with_further_guard(self.guard)
        if isinstance(model, VerifiedChatModel) and model._middleware is self:
            return model
        within = mapped(
            model, lambda one: one.with_further_guard(self.guard) if isinstance(one, ChatNCOGuard) else one
        )
        verified = VerifiedChatModel.over(within, self.guard, **self._options)
        verified._middleware = self
        return verified

    def _checked(self, response: Any) -> Any:
        """A last look: middleware between this one and the model may have changed what it said."""
        if isinstance(response, AIMessage):
            return self._final.value(response)
        model_response = response.model_response if isinstance(response, ExtendedModelResponse) else response
        model_response.result = [self._final.value(message) for message in model_response.result]
        if model_response.structured_response is not None:
            model_response.structured_response = shown_object(self._final, model_response.structured_response)
        return response

    def _calls(self) -> CleanCalls:
        """What asks for answers: errors of making an object of one quote what was cast."""
        return CleanCalls(partial(_clean_error, cleaner=self._final, kind=LangChainException))

    def wrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        """See `AgentMiddleware`."""
        return self._checked(self._calls().call(handler, self._prepared(request)))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncModelHandler) -> Any:
        """See `AgentMiddleware`."""
        return self._checked(await self._calls().acall(handler, self._prepared(request)))

    # -- tools -------------------------------------------------------------------------------------------------

    def _prepared_tool(self, request: ToolCallRequest) -> ToolCallRequest:
        return request if self._results is None else self._guard_tool_request(request)

    def _cleaned_tool(self, tool: BaseTool) -> BaseTool:
        cleaned_by = getattr(tool, "_nco_guards", ())
        if self._results is None or self in cleaned_by:
            return tool
        cleaned = _cleaned_tool(tool, self._results)
        object.__setattr__(cleaned, "_nco_guards", (*cleaned_by, self))
        return cleaned

    def _checked_result(self, result: Any) -> Any:
        return result if self._results is None else self._results.value(result)

    def wrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> Any:
        """See `AgentMiddleware`."""
        return self._checked_result(handler(self._prepared_tool(request)))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: AsyncToolHandler) -> Any:
        """See `AgentMiddleware`."""
        return self._checked_result(await handler(self._prepared_tool(request)))


def _cleaned_tool(tool: BaseTool, cleaner: RecordingCleaner) -> BaseTool:
    """A tool like this one, its result cleaned before LangChain shows it to callbacks.

    So are the arguments that a model wrote, once the tool's schema has cast them, before the tool sees them.
    """
    cleaned = tool.model_copy()
    # LangChain reads the signatures of these two, so they are replaced one by one and keep theirs.
    run, arun = tool._run, tool._arun

    calls = CleanCalls(partial(_clean_error, cleaner=cleaner))
    parse, written, arguments_of = (
        _quiet(tool)._parse_input,
        set(tool.args),
        cleaner.at("arguments of a tool"),
    )

    @wraps(parse)
    def clean_parse(*args: Any, **kwargs: Any) -> Any:
        parsed = calls.call(parse, *args, **kwargs)
        if not isinstance(parsed, dict):
            return arguments_of.value(parsed)
        return {
            name: arguments_of.value(value) if name in written else value for name, value in parsed.items()
        }

    @wraps(run)
    def clean_run(*args: Any, **kwargs: Any) -> Any:
        return calls.call(lambda: cleaner.value(run(*args, **kwargs)))

    @wraps(arun)
    async def clean_arun(*args: Any, **kwargs: Any) -> Any:
        async def clean() -> Any:
            return cleaner.value(await arun(*args, **kwargs))

        return await calls.acall(clean)

    object.__setattr__(cleaned, "_parse_input", clean_parse)
    object.__setattr__(cleaned, "_run", clean_run)
    object.__setattr__(cleaned, "_arun", clean_arun)
    return cleaned


def _quiet(tool: BaseTool) -> BaseTool:
    """This tool, its schema without pydantic's warnings about values of another type: they show the values."""
    schema = tool.args_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return tool
    if schema.model_dump is not BaseModel.model_dump:
        return tool

    def model_dump(self: BaseModel, **options: Any) -> dict[str, Any]:
        return BaseModel.model_dump(self, **{**options, "warnings": False})

    own = {"model_dump": model_dump, "__module__": schema.__module__, "__doc__": schema.__doc__}
    make: Any = type(schema)
    return tool.model_copy(update={"args_schema": make(schema.__name__, (schema,), own)})


def _clean_error(
    error: BaseException, cleaner: RecordingCleaner, kind: type[Exception] = ToolException
) -> BaseException:
    """An error as it may be shown: a tool's goes to the model and to callbacks like a result."""
    if isinstance(
        error, GraphBubbleUp
    ):  # not an error: an interrupt for somebody, a command for a parent graph
        shown = tuple(cleaner.value(part) for part in error.args)
        same = all(new is old for new, old in zip(shown, error.args, strict=True))
        return error if same else type(error)(*shown)
    return cleaner.error(error, kind)
