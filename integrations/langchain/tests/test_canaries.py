"""Guarded agents whose tools and models are full of personal data leave none of it in anything that is written: no log,
database, span, trace, warning, error, traceback or repr.

What may hold it are the user's own messages, as the user wrote them, and nothing here asks with them.
"""

from __future__ import annotations

import io
import json
import logging
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
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
from nco_guard.audit import JsonLinesSink, LoggingSink, MemorySink, fan_out, verify_log
from nco_guard.audit.otel import OpenTelemetrySink
from nco_guard.audit.sqlite import SqliteSink
from nco_guard.demo import SYSTEM_PROMPT
from nco_guard.errors import AuditError, DeadEndError, ViolationError

CANARIES = ("maria.lopez@canary-mail.example", "312-555-0155", "4111 1111 1111 1111")
PIECES = ("canary-mail", "maria.lopez", "555-0155", "5550155", "4111 1111", "41111111")
RECORD = json.dumps({"name": "Maria Lopez", "email": CANARIES[0], "phone": CANARIES[1], "card": CANARIES[2]})
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


class Record:
    """Everything that is written while agents run, and what was raised."""

    def __init__(self, folder: Path) -> None:
        self.log, self.database = folder / "log.jsonl", folder / "log.db"
        self.stream, self.memory = io.StringIO(), MemorySink()
        logger = logging.getLogger("canary-test")
        logger.handlers = [logging.StreamHandler(self.stream)]
        logger.setLevel(logging.DEBUG)
        self.exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.lines, self.rows = JsonLinesSink(self.log), SqliteSink(self.database)
        tracer = provider.get_tracer("test")
        self.sink = fan_out(
            self.lines, self.rows, self.memory, LoggingSink(logger), OpenTelemetrySink(tracer)
        )
        self.trace = Trace()
        self.caught: list[BaseException] = []
        self.others: list[str] = []

    def of(self, *objects: Any) -> None:
        """Objects of this library that somebody might print."""
        self.others += [form(one) for one in objects for form in (repr, str)]

    def error(self, error: BaseException) -> None:
        """With all that led to it, shown by tracebacks or not."""
        chain: list[BaseException | None] = [error]
        for one in chain:
            if one is not None and one not in self.caught:
                self.caught.append(one)
                chain += [one.__cause__, one.__context__]

    def everything(self) -> str:
        self.lines.close()
        self.rows.close()
        return "\n".join(
            [
                self.log.read_text(),
                self.database.read_bytes().decode("latin-1"),
                self.stream.getvalue(),
                *(span.to_json() for span in self.exporter.get_finished_spans()),
                self.trace.text(),
                *map(repr, self.memory.events),
                *("".join(traceback.format_exception(error)) + repr(error) for error in self.caught),
                *self.others,
            ]
        )


def assert_silent(text: str) -> None:
    for canary in (*CANARIES, *PIECES):
        assert canary not in text, text[max(0, text.find(canary) - 600) : text.find(canary) + 200]


@pytest.fixture
def record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[Record]:
    made = Record(tmp_path)
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield made
    written = made.everything()
    assert len(made.memory.events) > 3
    assert_silent(
        "\n".join([written, caplog.text, *capfd.readouterr(), *(str(one.message) for one in warned)])
    )
    assert verify_log(made.log).ok


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


async def test_agents_over_a_local_model(record: Record, pii: Policy, loaded: tuple[Any, Any]) -> None:
    guard = Guard(pii, audit=record.sink)
    chat = ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=guard, max_tokens=32, temperature=0)
    middleware = NCOGuardMiddleware(guard)
    handler = NCOGuardAuditHandler(guard, record.sink)
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


async def test_agents_over_a_hosted_model(record: Record, pii: Policy) -> None:
    guard = Guard(pii, audit=record.sink)
    middleware = NCOGuardMiddleware(guard, check_input=True)
    handler = NCOGuardAuditHandler(guard, record.sink)
    made = create_agent(hosted(), tools=[lookup_customer], middleware=[middleware])
    shown = await on_every_route(made, {"callbacks": [handler, record.trace]})
    assert str(shown).count("[redacted]") > 20
    record.of(shown, guard, middleware, handler)


@pytest.mark.parametrize("action", ["redact", "raise"])
@pytest.mark.parametrize(
    "broken", [fails, fails_loudly, fails_while_failing], ids=["cause", "itself", "group"]
)
async def test_tools_that_fail(record: Record, pii: Policy, broken: Any, action: Any) -> None:
    """Whatever an error, its notes, its cause and its context hold."""
    guard = Guard(pii, audit=record.sink)
    config: Any = {"callbacks": [NCOGuardAuditHandler(guard, record.sink), record.trace]}

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
async def test_runs_that_are_blocked(record: Record, pii: Policy, action: Any) -> None:
    guard = Guard(pii, audit=record.sink)
    middleware = NCOGuardMiddleware(guard, action=action)
    made = create_agent(hosted(), tools=[lookup_customer], middleware=[middleware])
    config: Any = {"callbacks": [NCOGuardAuditHandler(guard, record.sink), record.trace]}
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
def test_structured_answers_that_do_not_parse(record: Record, pii: Policy, strategy: Any) -> None:
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
            made.invoke(ASK, {"callbacks": [NCOGuardAuditHandler(guard, record.sink), record.trace]})
        record.error(caught.value)


def test_dead_ends_and_records_that_cannot_be_written(
    record: Record, pii: Policy, loaded: tuple[Any, Any], pipe: Any
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


def test_errors_at_construction_repeat_nothing(record: Record, pii: Policy, pipe: Any) -> None:
    guard = Guard(pii, audit=record.sink)
    GuardedPipeline(pipeline=pipe, guard=guard).invoke("Hello")
    for build in (
        lambda: NCOGuardMiddleware(pii, replacement=CANARIES[0]),
        lambda: VerifiedChatModel.over(hosted(), pii, replacement=CANARIES[0]),
    ):
        with pytest.raises(ValueError, match="replacement") as caught:
            build()
        record.error(caught.value)
