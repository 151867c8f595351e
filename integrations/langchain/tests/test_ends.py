"""Tools under `NCOGuardMiddleware` that end or cancel: what they say on their way out is clean, and they still end."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest
from checks import check_everything
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.errors import NodeCancelledError
from places import Everything

from langchain_nco_guard import NCOGuardMiddleware
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Policy

SAID = "no john.doe@example.com here"
ASK: Any = {"messages": [("human", "x")]}


class Abort(BaseException):
    """An end of somebody's own."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.detail = {"row": text}


def chained() -> BaseException:
    error = KeyboardInterrupt("stop")
    error.__cause__ = ValueError(SAID)
    error.add_note(SAID)
    return error


ENDS: dict[str, Any] = {
    "exit": lambda: SystemExit(SAID),
    "interrupt": lambda: KeyboardInterrupt(SAID),
    "cancelled": lambda: asyncio.CancelledError(SAID),
    "generator": lambda: GeneratorExit(SAID),
    "own": lambda: Abort(SAID),
    "group": lambda: BaseExceptionGroup(SAID, [SystemExit(SAID), ValueError(SAID)]),
    "chained": chained,
}
KEPT: dict[str, Any] = {
    "exit": SystemExit,
    "interrupt": KeyboardInterrupt,
    "cancelled": (asyncio.CancelledError, NodeCancelledError),  # the graph says it so
    "generator": (GeneratorExit, RuntimeError),  # a coroutine may not end by it, says Python
    "own": BaseException,
    "group": BaseExceptionGroup,
    "chained": KeyboardInterrupt,
}


def run(end: str, way: str, tool: str, *middleware: Any) -> tuple[BaseException, Everything]:
    """What comes out of an agent whose tool ends, and what its callbacks see."""

    def stop(x: str) -> str:
        """Ends."""
        raise ENDS[end]()

    async def astop(x: str) -> str:
        """Ends."""
        raise ENDS[end]()

    tools = [
        StructuredTool.from_function(stop, name="sync"),
        StructuredTool.from_function(stop, coroutine=astop, name="both"),
    ]
    call = AIMessage("", tool_calls=[{"name": tool, "args": {"x": "1"}, "id": "c"}])
    made = create_agent(ScriptedChatModel(script=[call]), tools=tools, middleware=middleware)
    seen = Everything()
    config: Any = {"callbacks": [seen]}

    async def drain() -> None:
        async for _ in made.astream(ASK, config, stream_mode=["messages", "updates"]):
            pass

    uses: dict[str, Any] = {
        "invoke": lambda: made.invoke(ASK, config),
        "stream": lambda: list(made.stream(ASK, config, stream_mode=["messages", "updates"])),
        "ainvoke": lambda: asyncio.run(made.ainvoke(ASK, config)),
        "astream": lambda: asyncio.run(drain()),
    }
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        uses[way]()
    return caught.value, seen


@pytest.mark.parametrize("action", ["redact", "raise"])
@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
@pytest.mark.parametrize("end", ENDS)
def test_what_ends_a_tool_ends_the_agent_and_is_clean(
    policy: Policy, end: str, way: str, action: Any
) -> None:
    for tool in ("sync", "both"):
        error, seen = run(end, way, tool, NCOGuardMiddleware(policy, action=action))
        assert isinstance(error, KEPT[end])
        assert "john" not in "".join(traceback.format_exception(error))
        check_everything(policy, [error, seen.seen])
        assert "on_tool_start" in seen.names
        assert "john" not in repr(seen.seen)


@pytest.mark.parametrize("end", [end for end in ENDS if end != "cancelled"])
def test_the_same_without_the_middleware_shows_it(end: str) -> None:
    error, seen = run(end, "invoke", "sync")
    assert "john" in "".join(traceback.format_exception(error))
    assert "john" in repr(seen.seen) or end == "chained"
