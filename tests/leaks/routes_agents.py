"""Routes through agents of LangChain under `NCOGuardMiddleware`: what models say, what tools return, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolEmulator,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langchain_nco_guard import ChatNCOGuard, NCOGuardMiddleware
from nco_guard.errors import NCOGuardError, ViolationError
from tests.leaks.hosts_langchain import Hosted, Said, failing_host, observers
from tests.leaks.local import insisting, tokenizer
from tests.leaks.routes import Route, Run, route, routes
from tests.leaks.shapes_values import Model

__all__ = ["ROUTES"]

ROUTES: list[Route] = []
_COVERS = ["langchain_nco_guard.NCOGuardMiddleware"]
_agent = partial(route, ROUTES, covers=_COVERS, raises=(ViolationError,))
_agents = partial(routes, ROUTES, covers=_COVERS, raises=(ViolationError,))
_MODES = ["messages", "updates", "values", "custom", "checkpoints", "tasks"]
ASK = {"messages": [HumanMessage("How can I reach her?", id="ask")]}
_CALL = {"name": "lookup", "args": {"name": "x"}, "id": "call-1", "type": "tool_call"}


def _calls() -> Said:
    return Said(AIMessage("I look.", tool_calls=[dict(_CALL)]))  # type: ignore[list-item]


def _ends() -> Said:
    return Said(AIMessage("fine"))


def _comparable(state: Any) -> Any:
    """The messages of a state, without the ids that are drawn anew for each run."""
    messages = state.get("messages", ()) if isinstance(state, dict) else ()
    return [
        (type(one).__name__, one.content, getattr(one, "tool_calls", None), getattr(one, "artifact", None))
        for one in messages
    ]


class Driver:
    """Runs an agent by one of the ways there are, and looks at all that it shows and keeps."""

    def __init__(self, run: Run, agent: Any, saver: InMemorySaver) -> None:
        self.run, self.agent, self.saver = run, agent, saver

    def kept(self, config: dict[str, Any]) -> None:
        places = self.run.places
        places.add("checkpoints", [dict(part) for part in self.saver.storage.values()], parsed=True)
        places.add("checkpoint blobs", list(self.saver.blobs.values()), parsed=True)
        places.add("checkpoint writes", list(self.saver.writes.values()), parsed=True)
        places.add("state", self.agent.get_state(config), parsed=True)
        for past in self.agent.get_state_history(config):
            places.add("state's history", past, parsed=True)

    def invoke(self, given: Any = ASK) -> Any:
        with observers(self.run.places) as observed:
            config = {**observed, "configurable": {"thread_id": "1"}}
            try:
                state = self.agent.invoke(given, config)
                self.run.places.add("state returned", state, parsed=True)
                self.run.places.result = _comparable(state)
                return state
            finally:
                self.kept(config)

    def stream(self, given: Any = ASK) -> Any:
        with observers(self.run.places) as observed:
            config = {**observed, "configurable": {"thread_id": "1"}}
            kept: list[Any] = []
            try:
                kept.extend(self.agent.stream(given, config, stream_mode=_MODES))
            finally:
                self.kept(config)
                self._streamed(kept)

    def _streamed(self, kept: list[Any]) -> None:
        for mode, part in kept:
            self.run.places.add(f"stream of {mode}", part, parsed=True, printed=False)
        by: dict[Any, list[Any]] = {}
        for mode, part in kept:
            if mode == "messages":
                by.setdefault(part[0].id, []).append(part[0])
        for chunks in by.values():
            self.run.places.joined(chunks, "messages of the stream", parsed=True)

    async def ainvoke(self) -> Any:
        with observers(self.run.places) as observed:
            config = {**observed, "configurable": {"thread_id": "1"}}
            try:
                state = await self.agent.ainvoke(ASK, config)
                self.run.places.add("state returned", state, parsed=True)
                self.run.places.result = _comparable(state)
            finally:
                self.kept(config)

    async def astream(self) -> Any:
        with observers(self.run.places) as observed:
            config = {**observed, "configurable": {"thread_id": "1"}}
            kept: list[Any] = []
            try:
                async for part in self.agent.astream(ASK, config, stream_mode=_MODES):
                    kept.append(part)  # noqa: PERF401
            finally:
                self._streamed(kept)

    async def events(self) -> Any:
        with observers(self.run.places) as observed:
            config = {**observed, "configurable": {"thread_id": "1"}}
            chunks: dict[str, list[Any]] = {}
            async for event in self.agent.astream_events(ASK, config, version="v2"):
                self.run.places.add(f"event {event['event']}", event, parsed=True, printed=False)
                if event["event"] == "on_chat_model_stream":
                    chunks.setdefault(event["run_id"], []).append(event["data"]["chunk"])
            for each in chunks.values():
                self.run.places.joined(each, "chunks of events", parsed=True)


def _driver(
    run: Run, model: Any, tools: list[Any], *, extra: Any = (), on: Any = "redact", **options: Any
) -> Driver:
    """`extra`: other middleware, before ours; a tuple of two lists: before and after ours."""
    before, after = extra if isinstance(extra, tuple) and len(extra) == 2 else (extra, ())
    guard = NCOGuardMiddleware(run.guard(), action=on)
    run.places.add("middleware", [repr(guard), str(guard)])
    saver = InMemorySaver()
    agent = create_agent(
        model, tools=tools, middleware=[*before, guard, *after], checkpointer=saver, **options
    )
    return Driver(run, agent, saver)


_WAYS: dict[str, Callable[[Driver], Any]] = {
    "invoke": Driver.invoke,
    "stream": Driver.stream,
    "ainvoke": Driver.ainvoke,
    "astream": Driver.astream,
    "astream_events": Driver.events,
}

# -- what models say -------------------------------------------------------------------------------------------


def _fine() -> Any:
    @tool
    def lookup(name: str = "", m: str = "") -> str:
        """Look up."""
        return "fine"

    return lookup


@_agents(
    "agent, what its model says, {}, {}",
    [
        (name, on)
        for name in _WAYS
        for on in (("redact", "raise", "retry") if name in ("invoke", "stream") else ("redact",))
    ],
    carries=["answer"],
)
def says(run: Run, name: str, on: str) -> Any:
    return _WAYS[name](_driver(run, Hosted(script=[run.value(), _ends]), [_fine()], on=on))


@_agents(
    "agent over a host that fails, {}",
    ["invoke", "stream", "ainvoke"],
    carries=["error"],
    raises=(Exception,),
)
def fails(run: Run, name: str) -> Any:
    return _WAYS[name](_driver(run, failing_host(run.value()), [_fine()]))


_FORMATS: dict[str, Callable[[], Any]] = {
    "ToolStrategy": lambda: ToolStrategy(Model),
    "ToolStrategy without errors": lambda: ToolStrategy(Model, handle_errors=False),
    "ProviderStrategy": lambda: ProviderStrategy(Model),
}


@_agents(
    "agent, {}",
    _FORMATS,
    carries=["value", "json"],
    raises=(Exception,),
    silent=True,
    skips=["circular", "object that cannot be printed"],  # a model answers with what can be written
)
def structured(run: Run, name: str) -> Any:
    value = run.value()
    said = (
        AIMessage(value if isinstance(value, str) else str(value))
        if name == "ProviderStrategy"
        else AIMessage("", tool_calls=[{**_CALL, "name": "Model", "args": {"mail": value}}])  # type: ignore[list-item]
    )
    driver = _driver(run, Hosted(script=[Said(said), _structured]), [], response_format=_FORMATS[name]())
    try:
        return driver.invoke()
    except Exception as error:
        run.places.failed(error)
        return None


def _structured() -> Said:
    return Said(AIMessage("", tool_calls=[{**_CALL, "name": "Model", "args": {"mail": "fine"}}]))  # type: ignore[list-item]


# -- what tools return -----------------------------------------------------------------------------------------


def _tool_of(run: Run) -> Any:
    def lookup(name: str = "") -> Any:
        """Look up."""
        value = run.value()
        if run.shape.kind == "error":
            raise value
        return value

    return StructuredTool.from_function(lookup)


def _async_tool_of(run: Run) -> Any:
    async def lookup(name: str = "") -> Any:
        """Look up."""
        value = run.value()
        if run.shape.kind == "error":
            raise value
        return value

    return StructuredTool.from_function(coroutine=lookup)


def _artifact_of(run: Run) -> Any:
    def lookup(name: str = "") -> Any:
        """Look up."""
        return "fine", run.value()

    return StructuredTool.from_function(lookup, response_format="content_and_artifact")


def _command_of(run: Run) -> Any:
    @tool
    def lookup(call_id: Annotated[str, InjectedToolCallId], name: str = "") -> Any:
        """Look up."""
        return Command(
            update={"messages": [ToolMessage("fine", tool_call_id=call_id)], "found": run.value()},
        )

    return lookup


def _message_of(run: Run) -> Any:
    @tool
    def lookup(call_id: Annotated[str, InjectedToolCallId], name: str = "") -> Any:
        """Look up."""
        value = run.value()
        content = value if isinstance(value, str) else [{"type": "vendor", "value": value}]
        return ToolMessage(content, tool_call_id=call_id, artifact=value, additional_kwargs={"raw": value})

    return lookup


def _interrupting(run: Run) -> Any:
    @tool
    def lookup(name: str = "") -> Any:
        """Look up."""
        return str(interrupt(run.value()))

    return lookup


class Found(AgentState[Any]):
    """A state with room for what a tool found."""

    found: Any


_TOOLS: dict[str, Callable[[Run], Any]] = {
    "result": _tool_of,
    "artifact": _artifact_of,
    "command": _command_of,
    "message": _message_of,
    "interrupt": _interrupting,
}


def _both(*names: str) -> list[tuple[str, str]]:
    return [(name, way) for name in names for way in ("invoke", "stream")]


@_agents(
    "agent, a tool's {}, {}",
    [("result", way) for way in ("invoke", "astream_events", "stream")],
    carries=["value", "step", "text", "error"],
    raises=(ViolationError, Exception),
)
@_agents("agent, a tool's {}, {}", _both("artifact", "command"), carries=["value", "step"])
@_agents("agent, a tool's {}, {}", _both("message", "interrupt"), carries=["value", "text"])
def returns(run: Run, name: str, way: str) -> Any:
    made = _async_tool_of if name == "result" and way.startswith("a") else _TOOLS[name]
    state = {"state_schema": Found} if name == "command" else {}
    return _WAYS[way](_driver(run, Hosted(script=[_calls, _ends]), [made(run)], **state))


@_agent("agent that is interrupted by its tool and goes on", carries=["text"])
def goes_on(run: Run) -> None:
    driver = _driver(run, Hosted(script=[_calls, _ends]), [_interrupting(run)])
    driver.invoke()
    driver.stream(Command(resume="yes"))


@_agent("agent that is a tool of an agent", carries=["answer"])
def nested(run: Run) -> None:
    inner = create_agent(
        Hosted(script=[run.value(), _ends]), tools=[_fine()], middleware=[NCOGuardMiddleware(run.guard())]
    )

    def lookup(name: str = "") -> Any:
        """Ask another agent."""
        return inner.invoke(ASK)["messages"]

    _driver(run, Hosted(script=[_calls, _ends]), [StructuredTool.from_function(lookup)]).stream()


# -- beside other middleware -----------------------------------------------------------------------------------


def _said_by(run: Run) -> Hosted:
    return Hosted(script=[run.value(), _ends])


class Exchanging(AgentMiddleware[Any, Any, Any]):
    """Exchanges the model of a request."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.tools = model, []

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(model=self.model))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(model=self.model))


class Answering(AgentMiddleware[Any, Any, Any]):
    """Answers once in the place of the model."""

    def __init__(self, message: Any) -> None:
        super().__init__()
        self.messages, self.tools = [message], []

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        # A second call of a tool would be followed by a third: agents go on for 10,000 steps.
        return self.messages.pop() if self.messages else AIMessage("fine")


_BESIDE: dict[str, Callable[[Run], Any]] = {
    "SummarizationMiddleware": lambda run: SummarizationMiddleware(
        model=_said_by(run), trigger=("messages", 2), keep=("messages", 1)
    ),
    "ModelFallbackMiddleware": lambda run: ModelFallbackMiddleware(_said_by(run)),
    "ModelRetryMiddleware": lambda run: ModelRetryMiddleware(max_retries=1, initial_delay=0, jitter=False),
    "middleware that exchanges the model": lambda run: Exchanging(_said_by(run)),
    "middleware that answers": lambda run: Answering(run.value().message),
    "LLMToolEmulator": lambda run: LLMToolEmulator(model=_said_by(run)),
    "HumanInTheLoopMiddleware": lambda run: HumanInTheLoopMiddleware(interrupt_on={"lookup": True}),
}


@_agents(
    "agent, {} {} ours",
    # What middleware before ours answers or adds is documented to be outside.
    [
        (name, where)
        for name in _BESIDE
        for where in ("before", "behind")
        if where == "behind" or name != "middleware that answers"
    ],
    carries=["answer"],
    silent=True,
)
def beside(run: Run, name: str, where: str) -> None:
    host: Any = _said_by(run)
    if name == "ModelFallbackMiddleware":
        host = failing_host(ValueError("down"))
    if name in ("SummarizationMiddleware", "middleware that exchanges the model", "LLMToolEmulator"):
        host = Hosted(script=[_calls, _ends])
    extra = [_BESIDE[name](run)]
    try:
        driver = _driver(run, host, [_fine()], extra=([], extra) if where == "behind" else (extra, []))
    except NCOGuardError as error:
        run.places.failed(error)  # refused when the agent is built
        return
    driver.invoke()


@_agent("agent, ToolRetryMiddleware", carries=["error"], raises=(Exception,))
def retried(run: Run) -> None:
    for extra in (([_retry()], []), ([], [_retry()])):
        try:
            _driver(run, Hosted(script=[_calls, _ends]), [_tool_of(run)], extra=extra).invoke()
        except Exception as error:
            run.places.failed(error)


def _retry() -> Any:
    return ToolRetryMiddleware(max_retries=1, initial_delay=0, jitter=False)


# -- local models ----------------------------------------------------------------------------------------------


@_agents(
    "agent over ChatNCOGuard, {}",
    ["invoke", "stream"],
    carries=["written", "called"],
    covers=[*_COVERS, "langchain_nco_guard.ChatNCOGuard"],
)
def writes(run: Run, name: str) -> Any:
    chat = ChatNCOGuard(
        model=insisting(run.value()), tokenizer=tokenizer(), guard=run.guard(), max_tokens=90, temperature=0
    )
    driver = _driver(run, chat, [_fine()])
    driver.agent = driver.agent.with_config(recursion_limit=5)
    try:
        return _WAYS[name](driver)
    except Exception as error:
        if type(error).__name__ != "GraphRecursionError":
            raise
        run.places.failed(error)
        return None
