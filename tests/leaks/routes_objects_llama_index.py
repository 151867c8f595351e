"""Routes of LlamaIndex by which objects are made of clean text: what the class makes of it is looked at as well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.prompts import PromptTemplate
from llama_index.core.types import PydanticProgramMode
from llama_index.llms.nco_guard import NCOGuardLLM, VerifiedLLM
from pydantic import BaseModel

from nco_guard.errors import NCOGuardError, ViolationError
from tests.leaks.hosts_llama_index import HostedLLM, Reply, observed, watched_callbacks
from tests.leaks.local import insisting, tokenizer
from tests.leaks.routes import Route, Run, routes
from tests.leaks.shapes_casts import SAID

__all__ = ["ROUTES"]

ROUTES: list[Route] = []
_NAMES = "llama_index.llms.nco_guard."
_PROMPT = PromptTemplate("What is {x}?")
_ASK = [ChatMessage(role="user", content="What is it?")]
_objects = partial(routes, ROUTES, carries=["cast"], raises=(ViolationError, NCOGuardError, Exception))


async def _each(stream: Any) -> list[Any]:
    return [one async for one in await stream]


_WAYS: dict[str, Callable[[Any, Any], list[Any]]] = {
    "structured_predict": lambda llm, kind: [llm.structured_predict(kind, _PROMPT, x="it")],
    "astructured_predict": lambda llm, kind: [asyncio.run(llm.astructured_predict(kind, _PROMPT, x="it"))],
    "stream_structured_predict": lambda llm, kind: [*llm.stream_structured_predict(kind, _PROMPT, x="it")],
    "astream_structured_predict": lambda llm, kind: asyncio.run(
        _each(llm.astream_structured_predict(kind, _PROMPT, x="it"))
    ),
    "as_structured_llm, chat": lambda llm, kind: [llm.as_structured_llm(kind).chat(_ASK)],
    "as_structured_llm, achat": lambda llm, kind: [asyncio.run(llm.as_structured_llm(kind).achat(_ASK))],
    "as_structured_llm, stream_chat": lambda llm, kind: [*llm.as_structured_llm(kind).stream_chat(_ASK)],
}


def _looked_at(run: Run, found: Any) -> None:
    """An object, or an answer with one, as somebody reads it who prints it, asks it, or writes it down."""
    run.places.add("object", found, parsed=True)
    if (message := getattr(found, "message", None)) is not None:
        run.places.add("content", message.content, parsed=True)
        found = found.raw
    if isinstance(found, BaseModel):
        run.places.add("object as JSON", found.model_dump_json(by_alias=True), parsed=True)
        for name in type(found).model_computed_fields:
            run.places.add("computed field", getattr(found, name))


def _run(run: Run, llm: Callable[[Any], Any], way: str) -> None:
    with observed(run.places), watched_callbacks(run.places) as manager:
        for found in _WAYS[way](llm(manager), run.value()):
            _looked_at(run, found)


@_objects("NCOGuardLLM, object, {}", _WAYS, covers=[_NAMES + "NCOGuardLLM"])
@_objects(
    "NCOGuardLLM, object by a call, {}",
    [(way, "DEFAULT") for way in ("structured_predict", "astructured_predict", "stream_structured_predict")],
    covers=[_NAMES + "NCOGuardLLM"],
)
def written(run: Run, way: str, mode: str = "LLM") -> None:
    called = f"<tool_call>{json.dumps({'name': 'Found', 'arguments': SAID})}</tool_call>"

    def made(manager: Any) -> Any:
        return NCOGuardLLM(
            insisting(json.dumps(SAID) if mode == "LLM" else called),
            tokenizer(),
            guard=run.guard(),
            max_new_tokens=110,
            generate_kwargs={"do_sample": False},
            callback_manager=manager,
            pydantic_program_mode=PydanticProgramMode[mode],
        )

    _run(run, made, way)


@_objects(
    "VerifiedLLM, object, {}, {}",
    [
        *((way, "redact") for way in _WAYS),
        ("structured_predict", "raise"),
        ("stream_structured_predict", "raise"),
    ],
    covers=[_NAMES + "VerifiedLLM"],
)
@_objects(
    "VerifiedLLM, object by text, {}, {}, {}",
    [
        (way, "redact", "LLM")
        for way in ("structured_predict", "astructured_predict", "stream_structured_predict")
    ],
    covers=[_NAMES + "VerifiedLLM"],
)
def verified(run: Run, way: str, action: Any, mode: str = "DEFAULT") -> None:
    block: Any = ToolCallBlock(tool_call_id="1", tool_name="Found", tool_kwargs=dict(SAID))
    if mode == "LLM":
        block = TextBlock(text=json.dumps(SAID))

    def made(manager: Any) -> Any:
        kwargs = {} if mode == "LLM" else {"tool_calls": [json.dumps(SAID)]}  # where programs look for calls
        hosted = HostedLLM(
            script=[Reply([block], kwargs)],
            callback_manager=manager,
            pydantic_program_mode=PydanticProgramMode[mode],
        )
        return VerifiedLLM(hosted, guard=run.guard(), action=action)

    _run(run, made, way)
