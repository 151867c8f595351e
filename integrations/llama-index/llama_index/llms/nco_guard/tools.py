"""`verified_tool`: what a tool returns, verified before a model, an event stream or a user sees it."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.tools.function_tool import FunctionTool
from llama_index.core.tools.types import AsyncBaseTool, BaseTool, ToolMetadata, ToolOutput
from llama_index.llms.nco_guard.answers import VerifiedQueryEngine, VerifiedRetriever, clean_answer
from llama_index.llms.nco_guard.cleaning import ResponseCleaner

from nco_guard import OnMatch, arguments
from nco_guard.audit import Sink
from nco_guard.errors import UnsupportedError
from nco_guard.guards import GuardSource, as_guard
from nco_guard.scan import Replacement
from nco_guard.values import Role

__all__ = ["verified_tool"]

# The attributes of LlamaIndex's own tools that hold a function which others take out and call.
_FUNCTIONS = ("_fn", "_async_fn", "_real_fn", "_loader")
# Those that hold what others take out and ask.
_ENGINES = {"_query_engine": "BaseQueryEngine", "_retriever": "BaseRetriever"}


def verified_tool(
    tool: BaseTool,
    guard: GuardSource,
    *,
    action: OnMatch = "redact",
    replacement: Replacement = None,
    audit: Sink | None = None,
) -> AsyncBaseTool:
    """A tool like this one, its results verified: agents show them in their event streams, and hosted models read them.

        agent = FunctionAgent(tools=[verified_tool(tool, guard) for tool in tools], llm=llm)

    Guarantee: no match of a hard rule in a result's text, blocks, raw output or raw input, nor in an error that the
    tool raises, with all that led to it. The same holds for what others take out of the tool and call themselves: its
    function, query engine or retriever, as routers, sub-question engines, LangChain's tools and on-demand loaders do.
    What happens inside is not reported to LlamaIndex's callbacks and instrumentation; the call is, with the verified
    result. Arguments reach the tool as they came: the LLM's are for `NCOGuardLLM` and `VerifiedLLM` to keep clean.
    `tool` itself is not changed.

    Args:
        guard: a `Guard` (without `audit` where it has its own sink), a `Policy`, a preset's name or several, or the
            path of a policy file (`nco_guard.guards`).
        action: "redact" replaces matches; "raise" raises `ViolationError`, which an agent tells its model as the
            tool's error. The raw input, which repeats arguments and a tool's own presets, is always redacted.
        replacement: what stands where a match was, a text or a function from a rule's id to one.
        audit: receives a verification event for each text, never text.

    Errors: at once `PolicyError` for a replacement that is itself forbidden, `ViolationError` for a tool whose name is,
        `UnsupportedError` for an engine or retriever that is of neither of LlamaIndex's kinds;
    at a call `RedactionError`, and with "raise" `UnsupportedError` for what cannot be looked into (images, sound,
    video, documents, iterators), in whose place "redact" puts a line that names it.

    Examples:
        >>> from llama_index.core.tools import FunctionTool
        >>> lookup = FunctionTool.from_defaults(lambda: "jane.doe@example.com", name="lookup", description="Look up.")
        >>> verified_tool(lookup, "pii").call().content
        '[redacted]'
    """
    arguments.choice("action", action, ("raise", "redact"))
    checked = as_guard(guard, audit=audit)
    cleaner = ResponseCleaner(checked, action, replacement, where="tool result", failure=RuntimeError)
    verified = copy.copy(tool if isinstance(tool, AsyncBaseTool) else _Asynchronous(tool))
    cleaner.values.at("name of a tool").name(str(verified.metadata.name))
    for name, part in list(vars(verified).items()):
        if name in _FUNCTIONS and callable(part):
            setattr(verified, name, _verified_function(part, cleaner))
        elif isinstance(part, BaseQueryEngine):
            setattr(verified, name, VerifiedQueryEngine(part, cleaner))
        elif isinstance(part, BaseRetriever):
            setattr(verified, name, VerifiedRetriever(part, cleaner))
        elif name in _ENGINES:
            raise UnsupportedError(
                f"tool: its {name} is a {type(part).__name__}, no {_ENGINES[name]}: others would take it out of the "
                "tool and call it as it is; derive it from that class"
            )
    verified.__class__ = _verified_kind(type(verified))
    verified.__dict__["_nco_guard_cleaner"] = cleaner
    return verified


class _Asynchronous(AsyncBaseTool):
    """A tool without async, called with whatever it takes."""

    def __init__(self, tool: BaseTool) -> None:
        self._tool = tool

    @property
    def metadata(self) -> ToolMetadata:
        return self._tool.metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        return self._tool(*args, **kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        return await asyncio.to_thread(self.call, *args, **kwargs)


@functools.cache
def _verified_kind(kind: type[AsyncBaseTool]) -> type[AsyncBaseTool]:
    """A kind of tool that is still of the old kind, for agents look at it, and cleans what its calls return."""

    def call(self: Any, *args: Any, **kwargs: Any) -> ToolOutput:
        cleaner: ResponseCleaner = self._nco_guard_cleaner
        return _clean_output(cleaner.inside.call(kind.call, self, *args, **kwargs), cleaner)

    async def acall(self: Any, *args: Any, **kwargs: Any) -> ToolOutput:
        cleaner: ResponseCleaner = self._nco_guard_cleaner
        return _clean_output(await cleaner.inside.acall(kind.acall, self, *args, **kwargs), cleaner)

    def called(self: Any, *args: Any, **kwargs: Any) -> ToolOutput:
        cleaner: ResponseCleaner = self._nco_guard_cleaner
        return _clean_output(cleaner.inside.call(kind.__call__, self, *args, **kwargs), cleaner)

    methods: dict[str, Any] = {"call": call, "acall": acall, "__module__": kind.__module__}
    if kind.__call__ not in (AsyncBaseTool.__call__, FunctionTool.__call__):  # these two go through `call`
        methods["__call__"] = called
    return type(kind.__name__, (kind,), methods)


def _verified_function(function: Callable[..., Any], cleaner: ResponseCleaner) -> Callable[..., Any]:
    """A tool's function, with its signature, for whoever takes it out of the tool."""

    async def awaited(result: Any) -> Any:
        return _clean_result(await result, cleaner)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def afunction(*args: Any, **kwargs: Any) -> Any:
            return _clean_result(await cleaner.inside.acall(function, *args, **kwargs), cleaner)

        return _alike(afunction, function)

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        result = cleaner.inside.call(function, *args, **kwargs)
        return (
            cleaner.inside.acall(awaited, result)
            if inspect.isawaitable(result)
            else _clean_result(result, cleaner)
        )

    return _alike(plain, function)


def _alike(verified: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """With the same signature, and without the way back to the function that `functools.wraps` leaves."""
    verified.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    del verified.__wrapped__  # type: ignore[attr-defined]
    return verified


def _clean_result(result: Any, cleaner: ResponseCleaner) -> Any:
    if isinstance(result, ToolOutput):
        return _clean_output(result, cleaner)
    if isinstance(result, list | tuple):
        result = type(result)(cleaner.readable(result)) if type(result) in (list, tuple) else result
    else:
        (result,) = cleaner.readable([result])
    return clean_answer(result, cleaner)


def _clean_output(output: ToolOutput, cleaner: ResponseCleaner) -> ToolOutput:
    error = output.exception
    return ToolOutput(
        tool_name=cleaner.values.at("name of a tool").name(output.tool_name),
        blocks=cleaner.values.field(cleaner.readable(output.blocks), Role.BLOCKS),
        raw_input=cleaner.redacting.value(output.raw_input),
        raw_output=_clean_result(output.raw_output, cleaner),
        is_error=output.is_error,
        exception=None if error is None else cleaner.values.error(error, RuntimeError),
    )
