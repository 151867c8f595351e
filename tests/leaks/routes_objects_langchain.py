"""Routes of LangChain by which objects are made of clean text: what the class makes of it is looked at as well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from pydantic import BaseModel

from langchain_nco_guard import ChatNCOGuard, NCOGuardMiddleware, VerifiedChatModel
from nco_guard.errors import ViolationError
from tests.leaks.hosts_langchain import Hosted, Said, observers
from tests.leaks.local import insisting, tokenizer
from tests.leaks.routes import Route, Run, routes
from tests.leaks.shapes_casts import SAID

__all__ = ["ROUTES"]

ROUTES: list[Route] = []
_ASK = "What is it?"
_objects = partial(routes, ROUTES, carries=["cast"], raises=(ViolationError, Exception))


def _looked_at(run: Run, found: Any) -> None:
    """An object, or a dictionary with one, as somebody reads it who prints it, asks it, or writes it down."""
    run.places.add("object", found, parsed=True)
    for one in found.values() if isinstance(found, dict) else [found]:
        if isinstance(one, BaseModel) and not isinstance(one, AIMessage):
            run.places.add("object as JSON", one.model_dump_json(by_alias=True), parsed=True)
            for name in type(one).model_computed_fields:
                run.places.add("computed field", getattr(one, name))


async def _streamed(made: Any, config: Any) -> list[Any]:
    return [part async for part in made.astream(_ASK, config)]


_WAYS: dict[str, Callable[[Any, Any], list[Any]]] = {
    "invoke": lambda made, config: [made.invoke(_ASK, config)],
    "ainvoke": lambda made, config: [asyncio.run(made.ainvoke(_ASK, config))],
    "stream": lambda made, config: [*made.stream(_ASK, config)],
    "astream": lambda made, config: asyncio.run(_streamed(made, config)),
    "batch": lambda made, config: made.batch([_ASK], config),
}


def _run(run: Run, made: Any, way: str) -> None:
    with observers(run.places) as config:
        for found in _WAYS[way](made, config):
            _looked_at(run, found)


def _call() -> str:
    return f"<tool_call>{json.dumps({'name': 'Found', 'arguments': SAID})}</tool_call>"


@_objects(
    "ChatNCOGuard, object by {}, {}",
    [
        *(("json_schema", way) for way in _WAYS),
        *(("function_calling", way) for way in ("invoke", "astream")),
        ("json_schema with raw", "invoke"),
        ("json_schema with raw", "stream"),
    ],
    covers=["langchain_nco_guard.ChatNCOGuard"],
)
def written(run: Run, method: str, way: str) -> None:
    script = _call() if method == "function_calling" else json.dumps(SAID)
    chat = ChatNCOGuard(
        model=insisting(script), tokenizer=tokenizer(), guard=run.guard(), max_tokens=110, temperature=0
    )
    name, _, raw = method.partition(" with ")
    made = chat.with_structured_output(run.value(), method=name, include_raw=bool(raw))  # type: ignore[arg-type]
    _run(run, made, way)


def _calling(name: str = "Found") -> Said:
    return Said(
        AIMessage("", tool_calls=[{"name": name, "args": dict(SAID), "id": "1", "type": "tool_call"}])
    )


@_objects(
    "VerifiedChatModel, object, {}, {}",
    [*((way, "redact") for way in _WAYS), ("invoke", "raise"), ("stream", "raise")],
    covers=["langchain_nco_guard.VerifiedChatModel"],
)
def verified(run: Run, way: str, action: Any) -> None:
    model = VerifiedChatModel.over(Hosted(script=[_calling()]), run.guard(), action=action)
    _run(run, model.with_structured_output(run.value()), way)


@_objects(
    "agent, object by {}, {}",
    [(name, on) for name in ("ToolStrategy", "ProviderStrategy") for on in ("redact", "raise")],
    covers=["langchain_nco_guard.NCOGuardMiddleware"],
)
def answered(run: Run, name: str, action: Any) -> None:
    strategy: Any = {"ToolStrategy": ToolStrategy, "ProviderStrategy": ProviderStrategy}[name](run.value())
    said = _calling() if name == "ToolStrategy" else Said(AIMessage(json.dumps(SAID)))
    agent = create_agent(
        Hosted(script=[said]),
        [],
        middleware=[NCOGuardMiddleware(run.guard(), action=action)],
        response_format=strategy,
    )
    with observers(run.places) as config:
        state = agent.invoke({"messages": [("human", _ASK)]}, {**config, "recursion_limit": 6})
        run.places.add("state", state, parsed=True)
        _looked_at(run, state["structured_response"])


@_objects(
    "agent, arguments of a tool, {}", ["redact", "raise"], covers=["langchain_nco_guard.NCOGuardMiddleware"]
)
def given(run: Run, action: Any) -> None:
    """A tool sees its arguments as its schema casts them."""

    def found(**arguments: Any) -> str:
        run.places.add("arguments of a tool", arguments, parsed=True)
        return "fine"

    tool = StructuredTool.from_function(found, name="Found", description="Found.", args_schema=run.value())
    agent = create_agent(
        Hosted(script=[_calling(), Said(AIMessage("fine"))]),
        [tool],
        middleware=[NCOGuardMiddleware(run.guard(), action=action)],
    )
    with observers(run.places) as config:
        run.places.add("state", agent.invoke({"messages": [("human", _ASK)]}, config), parsed=True)
