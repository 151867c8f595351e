"""Guarded agents whose tools and models are full of personal data leave none of it in anything that is written: no log,
database, span, trace, warning, error, traceback or repr.

What may hold it are the user's own messages, as the user wrote them, and nothing here asks with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_records import CANARIES, RECORD, Record, silent
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run
from pydantic import BaseModel

from langchain_nco_guard import (
    ChatNCOGuard,
    GuardedPipeline,
    NCOGuardAuditHandler,
    NCOGuardMiddleware,
    VerifiedChatModel,
)
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Guard, Policy, RegexRule
from nco_guard.demo import SYSTEM_PROMPT
from nco_guard.errors import AuditError, DeadEndError, ViolationError

ASK = {"messages": [("human", "What is the phone number of Maria Lopez?")]}


@tool
def lookup_customer(name: str) -> str:
    """Look up a customer."""
    return RECORD


@tool
def lookup_order(order_id: str) -> str:
    """Look up an order."""
    return RECORD


@tool("lookup_customer")
def fails(name: str) -> str:
    """Look up a customer."""
    try:
        raise KeyError(CANARIES[0])
    except KeyError as error:
        # The cause holds more than the error itself: tracebacks show both.
        raise ValueError("no such customer") from error


@tool("lookup_customer")
def fails_loudly(name: str) -> str:
    """Look up a customer."""
    error = ValueError(f"no such customer: {CANARIES[0]}")
    error.add_note(CANARIES[1])
    raise error


@tool("lookup_customer")
def fails_while_failing(name: str) -> str:
    """Look up a customer."""
    try:
        raise KeyError(CANARIES[0])
    except KeyError:
        raise ValueError("no such customer") from ExceptionGroup("all", [OSError(CANARIES[1])])


class Trace(BaseTracer):
    """What LangChain's tracers send away: every run, with its inputs, outputs and errors."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Run] = []

    def _persist_run(self, run: Run) -> None:
        self.runs.append(run)

    def text(self) -> str:
        """Inputs of the whole run are the user's; a model is described by its fields: here, by the script."""

        def of(run: Run) -> Iterator[str]:
            yield repr((run.inputs, run.outputs, run.error, run.events, run.extra.get("metadata"), run.tags))
            for child in run.child_runs:
                yield from of(child)

        return "\n".join(part for run in self.runs for part in of(run))


class TracedRecord(Record):
    """With what LangChain's tracers send away."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.trace = Trace()

    def more(self) -> Iterable[str]:
        return (self.trace.text(),)


@pytest.fixture
def record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[TracedRecord]:
    with silent(TracedRecord(tmp_path), caplog, capfd) as made:
        yield made


@pytest.fixture(scope="module")
def pii() -> Policy:
    # Besides the preset, a rule that only records: what it finds was really written.
    words = RegexRule(id="long-words", regex=r"\b[a-z]{6,}\b", monitor=True)
    return Policy.from_presets("pii").with_rules(words)


def hosted() -> ScriptedChatModel:
    call = {"name": "lookup_customer", "args": {"name": CANARIES[0]}, "id": "1", "type": "tool_call"}
    return ScriptedChatModel(
        script=[
            AIMessage("I look.", tool_calls=[call]),
            AIMessage(f"Write to {CANARIES[0]} or call {CANARIES[1]}; card {CANARIES[2]}."),
        ]
    )


async def on_every_route(made: Any, config: dict[str, Any]) -> list[Any]:
    shown: list[Any] = [made.invoke(ASK, config), await made.ainvoke(ASK, config)]
    for mode in ("messages", "updates"):
        shown += [*made.stream(ASK, config, stream_mode=mode)]
        shown += [part async for part in made.astream(ASK, config, stream_mode=mode)]
    return shown + [event async for event in made.astream_events(ASK, config, version="v2")]


async def test_agents_over_a_local_model(record: TracedRecord, pii: Policy, loaded: tuple[Any, Any]) -> None:
    guard = Guard(pii, audit=record.sink)
    chat = ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=guard, max_tokens=32, temperature=0)
    middleware = NCOGuardMiddleware(guard)
    handler = NCOGuardAuditHandler(guard)
    made = create_agent(
        chat,
        tools=[lookup_customer, lookup_order],
        system_prompt=SYSTEM_PROMPT,
        middleware=[middleware],
    )
    shown = await on_every_route(made, {"callbacks": [handler, record.trace]})
    assert any(event.kind == "intervention" for event in record.memory.events)
    assert "[redacted]" in str(shown)  # the tool's result
    record.of(shown, guard, chat, middleware, handler, guard.log.history, *guard.log.history.runs)


async def test_agents_over_a_hosted_model(record: TracedRecord, pii: Policy) -> None:
    guard = Guard(pii, audit=record.sink)
    middleware = NCOGuardMiddleware(guard, check_input=True)
    handler = NCOGuardAuditHandler(guard)
    made = create_agent(hosted(), tools=[lookup_customer], middleware=[middleware])
    shown = await on_every_route(made, {"callbacks": [handler, record.trace]})
    assert str(shown).count("[redacted]") > 20
    record.of(shown, guard, middleware, handler)


@pytest.mark.parametrize("action", ["redact", "raise"])
@pytest.mark.parametrize(
    "broken", [fails, fails_loudly, fails_while_failing], ids=["cause", "itself", "group"]
)
async def test_tools_that_fail(record: TracedRecord, pii: Policy, broken: Any, action: Any) -> None:
    """Whatever an error, its notes, its cause and its context hold."""
    guard = Guard(pii, audit=record.sink)
    config: Any = {"callbacks": [NCOGuardAuditHandler(guard), record.trace]}

    def fresh() -> Any:
        call = {"name": "lookup_customer", "args": {"name": "Maria"}, "id": "1", "type": "tool_call"}
        model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call])])
        return create_agent(model, tools=[broken], middleware=[NCOGuardMiddleware(guard, action=action)])

    wanted = "withheld" if action == "raise" and broken is fails_loudly else "no such customer"
    with pytest.raises(Exception, match=wanted) as caught:
        fresh().invoke(ASK, config)
    record.error(caught.value)
    with pytest.raises(Exception, match=wanted) as caught:
        await fresh().ainvoke(ASK, config)
    record.error(caught.value)
    with pytest.raises(Exception, match=wanted) as caught:
        list(fresh().stream(ASK, config, stream_mode="messages"))
    record.error(caught.value)
    if wanted == "no such customer" and broken is not fails_loudly:
        assert type(caught.value) is ValueError  # its own type, where it is clean itself


@pytest.mark.parametrize("action", ["raise", "retry"])
async def test_runs_that_are_blocked(record: TracedRecord, pii: Policy, action: Any) -> None:
    guard = Guard(pii, audit=record.sink)
    middleware = NCOGuardMiddleware(guard, action=action)
    made = create_agent(hosted(), tools=[lookup_customer], middleware=[middleware])
    config: Any = {"callbacks": [NCOGuardAuditHandler(guard), record.trace]}
    for _ in range(2):  # the call's arguments, the answer
        with pytest.raises(ViolationError) as caught:
            made.invoke(ASK, config)
        record.error(caught.value)
        with pytest.raises(ViolationError) as caught:
            await made.ainvoke(ASK, config)
        record.error(caught.value)
        with pytest.raises(ViolationError) as caught:
            list(made.stream(ASK, config, stream_mode="messages"))
        record.error(caught.value)
    record.of(middleware, guard)


class Contact(BaseModel):
    """How to get in touch."""

    way: int


@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
def test_structured_answers_that_do_not_parse(record: TracedRecord, pii: Policy, strategy: Any) -> None:
    """Errors of pydantic repeat what they were given."""
    guard = Guard(pii, audit=record.sink)
    call = {"name": "Contact", "args": {"way": CANARIES[0]}, "id": "1", "type": "tool_call"}
    said = (
        AIMessage("", tool_calls=[call])
        if strategy is ToolStrategy
        else AIMessage(json.dumps({"way": CANARIES[0]}))
    )
    options = {"handle_errors": False} if strategy is ToolStrategy else {}
    made = create_agent(
        ScriptedChatModel(script=[said]),
        middleware=[NCOGuardMiddleware(guard)],
        response_format=strategy(Contact, **options),
    )
    for _ in range(3):
        with pytest.raises(Exception, match="Contact") as caught:
            made.invoke(ASK, {"callbacks": [NCOGuardAuditHandler(guard), record.trace]})
        record.error(caught.value)


def test_dead_ends_and_records_that_cannot_be_written(
    record: TracedRecord, pii: Policy, loaded: tuple[Any, Any], pipe: Any
) -> None:
    allowed = loaded[1]("a", add_special_tokens=False)["input_ids"][-1:]
    dead = Policy(name="dead", rules=(RegexRule(id="letters", regex="[ab]"), *pii.rules))
    only: Any = {"prefix_allowed_tokens_fn": lambda *_: allowed}
    guard = Guard(dead, audit=record.sink)
    chat = ChatNCOGuard(
        model=loaded[0], tokenizer=loaded[1], guard=guard, max_tokens=8, generation_kwargs=only
    )
    llm = GuardedPipeline(pipeline=pipe, guard=guard, pipeline_kwargs=only)
    question = f"Repeat: {' '.join(CANARIES)}"
    for use in (
        lambda: chat.invoke(question),
        lambda: list(chat.stream(question)),
        lambda: llm.invoke(question),
        lambda: list(llm.stream(question)),
    ):
        with pytest.raises(DeadEndError) as caught:
            use()
        record.error(caught.value)

    def full(event: Any) -> None:
        if event.kind == "run_finished":
            raise OSError(28, "No space left on device")

    with pytest.raises(AuditError) as stopped:
        ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=Guard(pii, audit=full), max_tokens=4).invoke(
            question
        )
    record.error(stopped.value)
    with pytest.raises(Exception, match="audit") as lost:
        create_agent(hosted(), tools=[lookup_customer], middleware=[NCOGuardMiddleware(pii)]).invoke(
            ASK, {"callbacks": [NCOGuardAuditHandler(pii, full)]}
        )
    record.error(lost.value)
    record.of(chat, llm, guard)


def test_errors_at_construction_repeat_nothing(record: TracedRecord, pii: Policy, pipe: Any) -> None:
    guard = Guard(pii, audit=record.sink)
    GuardedPipeline(pipeline=pipe, guard=guard).invoke("Hello")
    for build in (
        lambda: NCOGuardMiddleware(pii, replacement=CANARIES[0]),
        lambda: VerifiedChatModel.over(hosted(), pii, replacement=CANARIES[0]),
        lambda: VerifiedChatModel(inner=hosted(), guard=pii, replacement=CANARIES[0]),
    ):
        with pytest.raises(ValueError, match="replacement") as caught:
            build()
        record.error(caught.value)
