"""A guard as a step of a chain, and the audit handler."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from checks import check_stream
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.language_models import FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from langchain_nco_guard import NCOGuardAuditHandler, NCOGuardMiddleware, guard_runnable, report_runnable
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Guard, Policy, Report
from nco_guard.audit import Event, JsonLinesSink, MemorySink, read_events
from nco_guard.errors import AuditError, PolicyError, UnsupportedError, ViolationError

TEXT = "Write to john.doe@example.com, or call 312-555-0155."
CLEAN = "Write to [redacted], or call [redacted]."


def model(text: str = TEXT, **options: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=[AIMessage(text)], **options)


async def test_a_guard_redacts_as_a_step_of_a_chain(policy: Policy) -> None:
    step = guard_runnable(Guard(policy), action="redact")
    for chain in (
        model() | StrOutputParser() | step,
        model() | step | StrOutputParser(),
        model(blocks=True) | step | StrOutputParser(),
        FakeListLLM(responses=[TEXT]) | step,
    ):
        assert chain.invoke("x") == CLEAN
        assert await chain.ainvoke("x") == CLEAN
        assert chain.batch(["x", "y"]) == [CLEAN, CLEAN]
        assert check_stream(policy, list(chain.stream("x"))) == CLEAN
        assert check_stream(policy, [piece async for piece in chain.astream("x")]) == CLEAN


def test_text_streams_through_a_guard_as_soon_as_it_is_certain(policy: Policy) -> None:
    chain = model(size=1) | StrOutputParser() | guard_runnable(policy, action="redact")
    assert len(list(chain.stream("x"))) > 6


async def test_a_guard_raises_by_default_and_passes_on_what_is_clean(policy: Policy) -> None:
    step = guard_runnable(policy)
    assert (model("All is well.") | StrOutputParser() | step).invoke("x") == "All is well."
    with pytest.raises(ViolationError, match="'email', 'phone'"):
        step.invoke(TEXT)
    with pytest.raises(ViolationError):
        await (model() | step).ainvoke("x")
    with pytest.raises(ViolationError):
        step.invoke({"a": [TEXT]})


def test_a_guard_can_report_instead(policy: Policy) -> None:
    report = (model() | report_runnable(policy)).invoke("x")
    assert isinstance(report, Report)
    assert report == Guard(policy).verify(TEXT)
    assert report_runnable(policy).invoke("fine").ok


def test_documents_messages_prompts_and_json_pass_through_a_guard(policy: Policy) -> None:
    step = guard_runnable(policy, action="redact")
    assert step.invoke({"a": {"b": [TEXT, 3]}}) == {"a": {"b": [CLEAN, 3]}}
    documents = [Document(TEXT, metadata={"by": "a@example.com"}), Document("fine")]
    assert step.invoke(documents) == [Document(CLEAN, metadata={"by": "[redacted]"}), Document("fine")]
    assert step.invoke([HumanMessage(TEXT)])[0].text == CLEAN
    prompt = ChatPromptTemplate.from_messages([("human", "{q}")]) | step
    assert prompt.invoke({"q": TEXT}).to_messages()[0].text == CLEAN
    retrieve = RunnableLambda(lambda _: documents) | step
    assert retrieve.invoke("x")[0].page_content == CLEAN


def test_what_cannot_be_looked_into_is_refused(policy: Policy) -> None:
    with pytest.raises(UnsupportedError, match="a list_iterator cannot be looked into"):
        guard_runnable(policy).invoke({"pages": iter([TEXT])})
    assert guard_runnable(policy, action="redact").invoke({"pages": iter([TEXT])}) == {
        "pages": "[list_iterator withheld]"
    }
    with pytest.raises(TypeError, match="no text to report on"):
        report_runnable(policy).invoke(3)
    with pytest.raises(ValueError, match=r"one of 'raise', 'redact'$"):
        guard_runnable(policy, "shout")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="replacement itself"):
        guard_runnable(policy, replacement="a@example.com")


# -- audit -------------------------------------------------------------------------------------------------------


@tool
def lookup(name: str) -> str:
    """Look up."""
    return "maria@example.com"


def agent(policy: Policy, *, guarded: bool) -> Any:
    call = {"name": "lookup", "args": {"name": "Maria"}, "id": "1", "type": "tool_call"}
    usage = {"input_tokens": 3, "output_tokens": 7, "total_tokens": 10}
    script = [AIMessage("", tool_calls=[call], usage_metadata=usage), AIMessage(TEXT, usage_metadata=usage)]
    middleware = [NCOGuardMiddleware(policy)] if guarded else []
    return create_agent(ScriptedChatModel(script=script), tools=[lookup], middleware=middleware)


async def test_runs_tools_and_verifications_are_recorded_without_text(policy: Policy, tmp_path: Any) -> None:
    path = tmp_path / "audit.jsonl"
    with JsonLinesSink(path) as sink:
        config = {"callbacks": [NCOGuardAuditHandler(policy, sink)]}
        agent(policy, guarded=True).invoke({"messages": [("human", "hi")]}, config)
        await agent(policy, guarded=True).ainvoke({"messages": [("human", "hi")]}, config)
        list(
            agent(policy, guarded=True).stream(
                {"messages": [("human", "hi")]}, config, stream_mode="messages"
            )
        )
    written = path.read_text()
    for secret in ("john", "maria", "312-555", "Write", "Maria", "hi there"):
        assert secret not in written
    events = read_events(path).events
    started = [event for event in events if event.kind == "run_started"]
    assert [event.model_id.startswith("tool:") for event in started] == [False, True, False] * 3
    assert {event.policy_digest for event in started} == {policy.digest}
    assert all(event.ok for event in events if event.kind == "verification")
    finished = [event for event in events if event.kind == "run_finished"]
    assert len(finished) == len(started)
    assert [event.tokens for event in finished[:3]] == [7, 0, 7]


def test_what_an_unguarded_agent_said_is_in_the_record(policy: Policy) -> None:
    sink = MemorySink()
    handler = NCOGuardAuditHandler(Guard(policy, audit=sink))
    agent(policy, guarded=False).invoke({"messages": [("human", "hi")]}, {"callbacks": [handler]})
    found = [event for event in sink.events if event.kind == "verification" and not event.ok]
    assert [[span.rule_id for span in event.findings] for event in found] == [["email"], ["email", "phone"]]
    assert "example.com" not in json.dumps([event.to_json() for event in sink.events])


def test_errors_are_recorded_by_type_and_a_failing_sink_is_not_swallowed(policy: Policy) -> None:
    sink = MemorySink()
    handler = NCOGuardAuditHandler(policy, sink)
    broken = GenericFakeChatModel(messages=iter([]))
    with pytest.raises(StopIteration):
        broken.invoke("x", {"callbacks": [handler]})
    assert sink.events[-1].error == "StopIteration"

    def full(event: Event) -> None:
        raise OSError("disk full")

    with pytest.raises(AuditError, match="OSError"):
        model().invoke("x", {"callbacks": [NCOGuardAuditHandler(policy, full)]})
    with pytest.raises(AuditError, match="audit: pass a sink"):
        NCOGuardAuditHandler(policy)
    handler.on_llm_end(None, run_id=uuid4())  # type: ignore[arg-type]  # a run that began before it listened


def test_the_middleware_records_what_it_redacted(policy: Policy) -> None:
    sink = MemorySink()
    agent_guard = Guard(policy, audit=sink)
    created = create_agent(model(), middleware=[NCOGuardMiddleware(agent_guard)])
    created.invoke({"messages": [("human", "hi")]})
    found = [event for event in sink.events if event.kind == "verification" and not event.ok]
    assert [[span.rule_id for span in event.findings] for event in found] == [["email", "phone"]]
