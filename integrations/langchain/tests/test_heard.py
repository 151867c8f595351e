"""A guard's own sink hears of what every class finds, and `audit=` beside it is refused in one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tools import tool

import langchain_nco_guard as package
from langchain_nco_guard import (
    ChatNCOGuard,
    GuardedPipeline,
    NCOGuardAuditHandler,
    NCOGuardMiddleware,
    VerifiedChatModel,
    guard_runnable,
    report_runnable,
)
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Guard, Policy, RegexRule
from nco_guard.audit import MemorySink, RunRecorder
from nco_guard.errors import AuditError, UnsupportedError
from nco_guard.values import Cleaner

POLICY = Policy(name="mail", rules=[RegexRule(id="email", regex=r"[\w.]+@\w+\.[a-z]{2,}")])
TEXT = "Write to jane.doe@example.com today."
ESCAPED = r"Write to jane.doe\u0040example.com today."
ASK = "<|user|>What contact details do we have for Maria Lopez?<|end|><|assistant|>"


@tool
def lookup(name: str) -> str:
    """Look up."""
    return TEXT


class _Adding(AgentMiddleware[Any, Any, Any]):
    """Changes answers after they were verified."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        response = handler(request)
        response.result = [AIMessage(TEXT)]
        return response


def hosted(*said: AIMessage) -> ScriptedChatModel:
    return ScriptedChatModel(script=list(said or [AIMessage(TEXT)]))


def asks_tool(guard: Guard) -> None:
    call = {"name": "lookup", "args": {"name": "Maria"}, "id": "1", "type": "tool_call"}
    model = hosted(AIMessage("", tool_calls=[call]), AIMessage("Fine."))
    create_agent(model, tools=[lookup], middleware=[NCOGuardMiddleware(guard)]).invoke({"messages": "Maria?"})


def asks(guard: Guard, model: Any, *others: Any, **options: Any) -> None:
    middleware = [NCOGuardMiddleware(guard, **options), *others]
    create_agent(model, middleware=middleware).invoke({"messages": (options and TEXT) or "Maria?"})


def metadata() -> AIMessage:
    return AIMessage("Fine.", response_metadata={"note": TEXT})


FINDS: dict[str, Callable[[Guard, Any], Any]] = {
    "ChatNCOGuard": lambda guard, pipe: ChatNCOGuard(
        model=pipe.model, tokenizer=pipe.tokenizer, guard=guard, max_tokens=40, temperature=0
    ).invoke("What contact details do we have for Maria Lopez?"),
    "GuardedPipeline": lambda guard, pipe: GuardedPipeline(pipeline=pipe, guard=guard).invoke(ASK),
    "VerifiedChatModel": lambda guard, _: VerifiedChatModel.over(hosted(), guard, action="redact").invoke(
        "x"
    ),
    "VerifiedChatModel, stream": lambda guard, _: list(
        VerifiedChatModel.over(hosted(), guard, action="redact").stream("x")
    ),
    "VerifiedChatModel, metadata": lambda guard, _: VerifiedChatModel.over(hosted(metadata()), guard).invoke(
        "x"
    ),
    "NCOGuardMiddleware": lambda guard, _: asks(guard, hosted()),
    "NCOGuardMiddleware, tools": lambda guard, _: asks_tool(guard),
    "NCOGuardMiddleware, input": lambda guard, _: asks(guard, hosted(AIMessage("Fine.")), check_input=True),
    "NCOGuardMiddleware, of others": lambda guard, _: asks(guard, hosted(AIMessage("Fine.")), _Adding()),
    "NCOGuardAuditHandler": lambda guard, _: hosted().invoke(
        "x", {"callbacks": [NCOGuardAuditHandler(guard)]}
    ),
    "guard_runnable": lambda guard, _: guard_runnable(guard, "redact").invoke({"a": [TEXT]}),
    "guard_runnable, stream": lambda guard, _: list((hosted() | guard_runnable(guard, "redact")).stream("x")),
    "report_runnable": lambda guard, _: report_runnable(guard).invoke(TEXT),
    "report_runnable, stream": lambda guard, _: list((hosted() | report_runnable(guard)).stream("x")),
}


def test_no_class_is_left_out() -> None:
    assert {name.split(",")[0] for name in FINDS} == set(package.__all__)


@pytest.mark.parametrize("name", list(FINDS))
def test_the_guard_s_sink_hears_of_what_is_found(name: str, pipe: Any) -> None:
    sink = MemorySink()
    FINDS[name](Guard(POLICY, audit=sink), pipe)
    heard = [event for event in sink.events if event.kind == "verification" and not event.ok]
    heard += [event for event in sink.events if event.kind == "intervention"]
    assert heard
    assert "jane" not in "".join(event.to_json() for event in sink.events)


def test_nobody_has_to_listen() -> None:
    assert guard_runnable(Guard(POLICY), "redact").invoke(TEXT) == "Write to [redacted] today."
    assert not report_runnable(Guard(POLICY)).invoke(TEXT).ok


def test_a_second_sink_is_refused_with_the_mend() -> None:
    with pytest.raises(UnsupportedError, match=r"audit: the Guard has a sink.* leave audit= out"):
        NCOGuardAuditHandler(Guard(POLICY, audit=MemorySink()), MemorySink())
    with pytest.raises(AuditError, match="audit: pass a sink"):
        NCOGuardAuditHandler(Guard(POLICY))


def said(sink: MemorySink) -> list[tuple[Any, ...]]:
    return [(event.ok, event.length, event.findings) for event in sink.events if event.kind == "verification"]


@pytest.mark.parametrize("text", [TEXT, ESCAPED, "Fine."])
@pytest.mark.parametrize("kind", ["answer", "result", "input"])
def test_the_handler_records_a_text_as_a_cleaner_does(kind: str, text: str) -> None:
    wanted, sink, run = MemorySink(), MemorySink(), uuid4()
    Cleaner(POLICY, "report", record=RunRecorder(wanted)).text(text)
    handler = NCOGuardAuditHandler(POLICY, sink)
    if kind == "answer":
        handler.on_chat_model_start({}, [[]], run_id=run)
        handler.on_llm_end(LLMResult(generations=[[ChatGeneration(message=AIMessage(text))]]), run_id=run)
    elif kind == "result":
        handler.on_tool_start({}, "", run_id=run)
        handler.on_tool_end(text, run_id=run)
    else:
        handler.on_tool_start({}, text, run_id=run)
    assert said(sink) == said(wanted) != []
