"""Guarded agents whose tools, documents and models are full of personal data leave none of it in anything that this
library writes: no log, database, span, warning, error, traceback or repr.

What LlamaIndex's own observers are shown, results of tools among it, is LlamaIndex's: `docs/llama-index.md` says so.
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
from llama_index.core import Document, SummaryIndex
from llama_index.core.agent.react import ReActChatFormatter
from llama_index.core.agent.workflow import AgentStream, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import TextBlock, ToolCallBlock
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.nco_guard import (
    NCOGuardAuditHandler,
    NCOGuardLLM,
    NCOGuardOutputParser,
    NCOGuardPostprocessor,
    VerifiedLLM,
)
from llama_index.llms.nco_guard.testing import ScriptedLLM
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nco_guard import Guard, Policy, RegexRule, demo
from nco_guard.audit import JsonLinesSink, LoggingSink, MemorySink, fan_out, verify_log
from nco_guard.audit.otel import OpenTelemetrySink
from nco_guard.audit.sqlite import SqliteSink
from nco_guard.errors import AuditError, DeadEndError, NCOGuardError, ViolationError

pytestmark = pytest.mark.anyio
CANARIES = ("maria.lopez@canary-mail.example", "312-555-0155", "4111 1111 1111 1111")
PIECES = ("canary-mail", "maria.lopez", "555-0155", "5550155", "4111 1111", "41111111")
RECORD = json.dumps({"name": "Maria Lopez", "email": CANARIES[0], "phone": CANARIES[1], "card": CANARIES[2]})
ASK = "What is the phone number of Maria Lopez?"
HEADER = "You are the support assistant.\nTools: {tool_desc}\nNames: {tool_names}"
SAID = f"Write to {CANARIES[0]} or call {CANARIES[1]}; card {CANARIES[2]}."


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
                *map(repr, self.memory.events),
                *("".join(traceback.format_exception(error)) + repr(error) for error in self.caught),
                *self.others,
            ]
        )


@pytest.fixture
def record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], policy: Policy
) -> Iterator[Record]:
    made = Record(tmp_path)
    handler = NCOGuardAuditHandler(policy, made.sink)
    get_dispatcher().add_event_handler(handler)
    try:
        with (
            caplog.at_level(logging.DEBUG, "nco_guard"),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            yield made
    finally:
        get_dispatcher().event_handlers.remove(handler)
    written = made.everything()
    assert len(made.memory.events) > 3
    text = "\n".join([written, caplog.text, *capfd.readouterr(), *(str(one.message) for one in warned)])
    for canary in (*CANARIES, *PIECES):
        assert canary not in text, text[max(0, text.find(canary) - 400) : text.find(canary) + 100]
    assert verify_log(made.log).ok


@pytest.fixture(scope="module")
def pii(policy: Policy) -> Policy:
    # Besides the preset, a rule that only records: what it finds was really written.
    return policy.with_rules(RegexRule(id="long-words", regex=r"\b[a-z]{6,}\b", monitor=True))


@pytest.fixture
def lookups() -> list[FunctionTool]:
    def lookup_customer(name: str) -> str:
        """Look up a customer."""
        return RECORD

    def lookup_order(order_id: str) -> str:
        """Look up an order."""
        return RECORD

    return [FunctionTool.from_defaults(lookup_customer), FunctionTool.from_defaults(lookup_order)]


def agents(llm: Any, tools: list[FunctionTool]) -> Iterator[Any]:
    for streaming in (True, False):
        yield FunctionAgent(tools=tools, llm=llm, system_prompt=demo.SYSTEM_PROMPT, streaming=streaming)
        yield ReActAgent(
            tools=tools,
            llm=llm,
            streaming=streaming,
            formatter=ReActChatFormatter.from_defaults(system_header=HEADER),
        )


async def test_agents_over_a_local_model(
    record: Record, pii: Policy, pair: tuple[Any, Any], lookups: list[FunctionTool]
) -> None:
    guard = Guard(pii, audit=record.sink)
    llm = NCOGuardLLM(*pair, guard=guard, max_new_tokens=48)
    for agent in agents(llm, lookups):
        handler = agent.run(ASK)
        shown = [event async for event in handler.stream_events() if isinstance(event, AgentStream)]
        record.of(*shown, str(await handler))  # the output itself holds what tools returned
    assert any(event.kind == "intervention" for event in record.memory.events)
    record.of(llm, llm.to_payload(), llm.to_dict(), guard, guard.log.history, *guard.log.history.runs)


async def test_agents_over_a_hosted_llm(record: Record, pii: Policy, lookups: list[FunctionTool]) -> None:
    call = ToolCallBlock(tool_call_id="1", tool_name="lookup_customer", tool_kwargs={"name": CANARIES[0]})
    acts = f'Thought: I look.\nAction: lookup_customer\nAction Input: {{"name": "{CANARIES[0]}"}}\n'
    for script in (
        [ChatMessage(blocks=[TextBlock(text="I look."), call]), SAID],
        [acts, f"Thought: I can answer without using any more tools.\nAnswer: {SAID}"],
    ):
        llm = VerifiedLLM(ScriptedLLM(script=script), guard=pii, action="redact", audit=record.sink)
        for agent in agents(llm, lookups):
            if isinstance(agent, ReActAgent) is isinstance(script[0], str):
                handler = agent.run(ASK)
                shown = [event async for event in handler.stream_events() if isinstance(event, AgentStream)]
                record.of(*shown, str(await handler))  # the output itself holds what tools returned
                assert "[redacted]" in str(shown) or not agent.streaming
    record.of(llm.to_payload(), llm.guard, llm.guard.log.history)


async def test_runs_that_are_blocked(record: Record, pii: Policy, lookups: list[FunctionTool]) -> None:
    llm = VerifiedLLM(ScriptedLLM(script=[SAID]), guard=pii, audit=record.sink)
    for agent in agents(llm, lookups):
        with pytest.raises(ViolationError) as caught:
            await agent.run(ASK)
        record.error(caught.value)
    for use in (
        lambda: llm.complete(ASK),
        lambda: list(llm.stream_complete(ASK)),
        lambda: NCOGuardOutputParser(pii).parse(SAID),
        lambda: (
            SummaryIndex.from_documents([Document(text=RECORD)])
            .as_query_engine(
                llm=llm, node_postprocessors=[NCOGuardPostprocessor(pii, action="raise", audit=record.sink)]
            )
            .query(ASK)
        ),
    ):
        with pytest.raises(ViolationError) as caught:
            use()
        record.error(caught.value)


def test_queries_over_documents_full_of_it(record: Record, pii: Policy, pair: tuple[Any, Any]) -> None:
    llm = NCOGuardLLM(*pair, guard=Guard(pii, audit=record.sink), max_new_tokens=32)
    cleaned = NCOGuardPostprocessor(pii, audit=record.sink)
    index = SummaryIndex.from_documents([Document(text=RECORD, metadata={"author": CANARIES[0]})])
    engine = index.as_query_engine(llm=llm, node_postprocessors=[cleaned])
    answer = engine.query(ASK)
    record.of(answer, *answer.source_nodes, cleaned, llm)
    streamed = index.as_query_engine(llm=llm, node_postprocessors=[cleaned], streaming=True).query(ASK)
    record.of(*streamed.response_gen, *streamed.source_nodes)
    assert "[redacted]" in str(answer.source_nodes)


async def test_dead_ends_and_records_that_cannot_be_written(
    record: Record, pii: Policy, pair: tuple[Any, Any]
) -> None:
    allowed = pair[1]("a", add_special_tokens=False)["input_ids"][-1:]
    dead = Policy(name="dead", rules=(RegexRule(id="letters", regex="[ab]"), *pii.rules))
    only: Any = {"prefix_allowed_tokens_fn": lambda *_: allowed}
    llm = NCOGuardLLM(*pair, guard=Guard(dead, audit=record.sink), max_new_tokens=8, generate_kwargs=only)
    messages = [ChatMessage(role="user", content=f"Repeat: {SAID}")]
    for use in (lambda: llm.chat(messages), lambda: list(llm.stream_chat(messages))):
        with pytest.raises(DeadEndError) as caught:
            use()
        record.error(caught.value)
    with pytest.raises(DeadEndError) as caught:
        await llm.achat(messages)
    record.error(caught.value)

    def full(event: Any) -> None:
        if event.kind in ("run_finished", "verification"):
            raise OSError(28, "No space left on device")

    for made in (
        NCOGuardLLM(*pair, guard=pii, audit=full, max_new_tokens=4),
        VerifiedLLM(ScriptedLLM(script=[SAID]), guard=pii, action="redact", audit=full),
    ):
        with pytest.raises(AuditError) as lost:
            made.chat(messages)
        record.error(lost.value)
    for build in (
        lambda: VerifiedLLM(ScriptedLLM(script=[SAID]), guard=pii, replacement=CANARIES[0]),
        lambda: NCOGuardPostprocessor(pii, replacement=CANARIES[0]),
        lambda: llm.chat(messages, guidance_scale=2.0),
    ):
        with pytest.raises(NCOGuardError) as refused:
            build()
        record.error(refused.value)
