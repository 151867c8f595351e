"""Agents and objects by models that really write, to their end: the one that ships, and SmolLM2-135M-Instruct.

What is looked at is form: calls that are calls, each with its result, an answer, nothing that the policy forbids
anywhere, and a record of every run. Whether an answer is a good one is the model's affair.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentOutput, AgentStream, FunctionAgent, ToolCall, ToolCallResult
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.nco_guard import NCOGuardLLM, verified_tool
from pydantic import BaseModel

from nco_guard import Policy, demo
from nco_guard.audit import JsonLinesSink, verify_log

pytestmark = pytest.mark.anyio
ASK = "Look up order A-1042."
MAIL = "maria@example.com"
PROMPT = PromptTemplate("Please check order {order}.")


class Found(BaseModel):
    """An order."""

    order_id: str


class Status(BaseModel):
    """What is known of an order."""

    order_id: str
    status: str


def lookup_order(order_id: str) -> str:
    """Look up an order."""
    return json.dumps({"order_id": order_id, "status": "shipped", "email": MAIL})


def lookup_customer(name: str) -> str:
    """Look up a customer."""
    return json.dumps({"name": name, "email": MAIL})


@dataclass
class Host:
    """A model with a guard and a record, and tools whose results are verified."""

    llm: NCOGuardLLM
    policy: Policy
    sink: JsonLinesSink
    log: Path

    @property
    def tools(self) -> list[Any]:
        plain = [FunctionTool.from_defaults(one) for one in (lookup_order, lookup_customer)]
        return [verified_tool(one, self.policy) for one in plain]

    def agent(self, **options: Any) -> FunctionAgent:
        return FunctionAgent(tools=self.tools, llm=self.llm, system_prompt=demo.SYSTEM_PROMPT, **options)

    def check_record(self) -> None:
        """Every run of the model was begun, verified and ended, in a log that is whole and repeats nothing."""
        self.sink.close()
        assert verify_log(self.log).ok
        events = [json.loads(line) for line in self.log.read_text().splitlines()]
        begun = [event["run_id"] for event in events if event["kind"] == "run_started"]
        ended = [event["run_id"] for event in events if event["kind"] == "run_finished"]
        assert sorted(begun) == sorted(ended)
        assert len(set(begun)) == len(begun) > 0
        assert MAIL not in self.log.read_text()


@pytest.fixture(params=["shipped", pytest.param("smollm2", marks=pytest.mark.slow)])
def host(request: pytest.FixtureRequest, policy: Policy, tmp_path: Path) -> Host:
    model, tokenizer = request.getfixturevalue("pair" if request.param == "shipped" else "smollm2")
    sink = JsonLinesSink(log := tmp_path / "log.jsonl")
    llm = NCOGuardLLM(
        model,
        tokenizer,
        guard=policy,
        audit=sink,
        max_new_tokens=64,
        generate_kwargs={"do_sample": False},
    )
    return Host(llm, policy, sink, log)


async def run(agent: FunctionAgent, keeps: Any) -> tuple[str, list[Any]]:
    """An agent's answer and calls; every event that it showed is clean, and every call has a result."""
    handler = agent.run(ASK)
    events = [event async for event in handler.stream_events()]
    answer = await handler
    keeps(event.delta for event in events if isinstance(event, AgentStream))
    for event in events:
        if isinstance(event, AgentStream | AgentOutput):
            keeps([event.response if isinstance(event, AgentStream) else event.response.content])
    assert MAIL not in repr(events)
    asked = [
        event for event in events if isinstance(event, ToolCall) and not isinstance(event, ToolCallResult)
    ]
    results = [event for event in events if isinstance(event, ToolCallResult)]
    assert [event.tool_id for event in asked] == [event.tool_id for event in results]
    assert all(isinstance(event.tool_kwargs, dict) and not event.tool_output.is_error for event in results)
    return keeps([str(answer)]), results


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_agent_calls_a_tool_and_answers(host: Host, keeps: Any, streaming: bool) -> None:
    agent = host.agent(initial_tool_choice="lookup_order", streaming=streaming)
    answer, (first, *_) = await run(agent, keeps)
    assert first.tool_name == "lookup_order"
    assert set(first.tool_kwargs) == {"order_id"}
    assert "[redacted]" in first.tool_output.content
    assert answer
    host.check_record()


async def test_an_agent_answers(host: Host, keeps: Any) -> None:
    answer, _ = await run(host.agent(), keeps)
    assert answer
    host.check_record()


async def test_an_agent_answers_by_an_object(host: Host, keeps: Any) -> None:
    agent = host.agent(initial_tool_choice="lookup_order", output_cls=Found)
    answer = await agent.run(ASK)
    keeps([str(answer), answer.structured_response["order_id"]])
    assert isinstance(answer.get_pydantic_model(Found), Found)


async def test_a_call_is_required_on_every_route(host: Host, keeps: Any) -> None:
    llm, asked = host.llm, {"user_msg": ASK, "tool_choice": "lookup_order"}
    *_, streamed = llm.stream_chat_with_tools(host.tools, **asked)
    answers = [
        llm.chat_with_tools(host.tools, **asked),
        await llm.achat_with_tools(host.tools, **asked),
        streamed,
        [one async for one in await llm.astream_chat_with_tools(host.tools, **asked)][-1],
    ]
    for answer in answers:
        (call,) = llm.get_tool_calls_from_response(answer)
        assert call.tool_name == "lookup_order"
        keeps([call.tool_kwargs["order_id"]])
    host.check_record()


CHAT = [ChatMessage(role="user", content="Check order B-2201.")]
OBJECTS: dict[str, Callable[[NCOGuardLLM, type[BaseModel]], Any]] = {
    "structured_predict": lambda llm, kind: llm.structured_predict(kind, PROMPT, order="B-2201"),
    "streamed": lambda llm, kind: [*llm.stream_structured_predict(kind, PROMPT, order="B-2201")][-1],
    "as_structured_llm, chat": lambda llm, kind: llm.as_structured_llm(kind).chat(CHAT).raw,
    "as_structured_llm, complete": lambda llm, kind: llm.as_structured_llm(kind).complete(ASK).raw,
    "as_structured_llm, streamed": lambda llm, kind: [*llm.as_structured_llm(kind).stream_chat(CHAT)][-1].raw,
}


@pytest.mark.parametrize("way", list(OBJECTS))
def test_an_object(host: Host, keeps: Any, way: str) -> None:
    found = OBJECTS[way](host.llm, Found)
    keeps([found.order_id])
    assert type(found) is Found
    host.check_record()


@pytest.mark.parametrize("way", list(OBJECTS))
def test_an_object_of_two_fields(host: Host, keeps: Any, way: str) -> None:
    found = OBJECTS[way](host.llm, Status)
    assert type(found) is Status
    keeps([found.order_id, found.status])
    host.check_record()
