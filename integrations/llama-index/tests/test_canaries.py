"""Guarded agents whose tools, documents and models are full of personal data leave none of it in anything that this
library writes: no log, database, span, warning, error, traceback or repr.

What LlamaIndex's own observers are shown, results of tools among it, is LlamaIndex's: `docs/llama-index.md` says so.
"""

from __future__ import annotations

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

from nco_guard import Guard, Policy, RegexRule, demo
from nco_guard.errors import AuditError, DeadEndError, NCOGuardError, ViolationError
from tests.agent_records import CANARIES, RECORD, Record, silent

pytestmark = pytest.mark.anyio
ASK = "What is the phone number of Maria Lopez?"
HEADER = "You are the support assistant.\nTools: {tool_desc}\nNames: {tool_names}"
SAID = f"Write to {CANARIES[0]} or call {CANARIES[1]}; card {CANARIES[2]}."


@pytest.fixture
def record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], policy: Policy
) -> Iterator[Record]:
    made = Record(tmp_path)
    handler = NCOGuardAuditHandler(policy, made.sink)
    with silent(made, caplog, capfd, "nco_guard"):
        get_dispatcher().add_event_handler(handler)
        try:
            yield made
        finally:
            get_dispatcher().event_handlers.remove(handler)


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
