"""Agents that run to their end on models that really write: the one that ships, and SmolLM2-135M-Instruct.

What is looked at is form: calls that are calls, each with its result, an end, nothing that the policy forbids anywhere,
and a record of every run. Whether an answer is a good one is the model's affair.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from checks import check_chunks, check_everything
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from langchain_nco_guard import ChatNCOGuard, NCOGuardMiddleware
from nco_guard import Guard, Policy
from nco_guard.audit import JsonLinesSink, verify_log
from nco_guard.demo import SYSTEM_PROMPT

QUESTION = {"messages": [("human", "Look up order A-1042.")]}
LIMIT: Any = {"recursion_limit": 12}
MAIL = "maria@example.com"


@tool
def lookup_order(order_id: str) -> str:
    """Look up an order."""
    return json.dumps({"order_id": order_id, "status": "shipped", "email": MAIL})


@tool
def lookup_customer(name: str) -> str:
    """Look up a customer."""
    return json.dumps({"name": name, "email": MAIL})


class Contact(BaseModel):
    """How to get in touch."""

    way: str


class Status(BaseModel):
    """What is known of an order."""

    order_id: str
    status: str


class CallsFirst(AgentMiddleware[Any, Any, Any]):
    """The first answer is a call of a tool, and is none of the others': a small model would rather talk."""

    def _asked(self, request: Any) -> Any:
        called = any(isinstance(message, ToolMessage) for message in request.messages)
        return request.override(tool_choice="none" if called else "any")

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._asked(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._asked(request))


class CallsOnce(AgentMiddleware[Any, Any, Any]):
    """Tools are there until one was called: which to call, and when to stop, is the model's wit."""

    def _asked(self, request: Any) -> Any:
        called = any(isinstance(message, ToolMessage) for message in request.messages)
        return request.override(tools=[]) if called else request

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._asked(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._asked(request))


@dataclass
class Host:
    """A model with a guard and a record."""

    chat: ChatNCOGuard
    policy: Policy
    sink: JsonLinesSink
    log: Path

    def agent(
        self, *tools: Any, guarded: bool = True, calls: bool = False, around: Any = (), **options: Any
    ) -> Any:
        around = [*around, CallsFirst()] if calls else [*around]
        if guarded:
            around.append(NCOGuardMiddleware(self.policy))
        return create_agent(
            self.chat, tools=list(tools), middleware=around, system_prompt=SYSTEM_PROMPT, **options
        )

    def check_record(self, answers: int) -> None:
        """Each answer of the model is one run, begun, verified and ended, in a log that is whole."""
        self.sink.close()
        assert verify_log(self.log).ok
        events = [json.loads(line) for line in self.log.read_text().splitlines()]
        ours = [event for event in events if event.get("run_id") and event["kind"].startswith("run_")]
        runs = Counter(event["run_id"] for event in ours)
        finished = [event for event in ours if event["kind"] == "run_finished"]
        assert len(finished) == len(runs) >= answers > 0
        assert set(runs.values()) == {2}
        assert MAIL not in self.log.read_text()


@pytest.fixture(params=["shipped", pytest.param("smollm2", marks=pytest.mark.slow)])
def host(request: pytest.FixtureRequest, policy: Policy, tmp_path: Path) -> Host:
    model, tokenizer = request.getfixturevalue("loaded" if request.param == "shipped" else "smollm2")
    sink = JsonLinesSink(log := tmp_path / "log.jsonl")
    guard = Guard(policy, audit=sink)
    chat = ChatNCOGuard(model=model, tokenizer=tokenizer, guard=guard, max_tokens=64, temperature=0)
    return Host(chat, policy, sink, log)


def check_course(policy: Policy, result: dict[str, Any]) -> list[AIMessage]:
    """Every call has its result, in order, and nothing was broken; the model's answers."""
    messages = result["messages"]
    check_everything(policy, result)
    assert isinstance(messages[0], HumanMessage)
    answers = [message for message in messages if isinstance(message, AIMessage)]
    for place, message in enumerate(messages):
        if not isinstance(message, AIMessage):
            continue
        assert message.invalid_tool_calls == []
        assert message.usage_metadata["output_tokens"] > 0
        assert all(isinstance(call["args"], dict) and call["id"] for call in message.tool_calls)
        after = messages[place + 1 : place + 1 + len(message.tool_calls)]
        assert [call["id"] for call in message.tool_calls] == [one.tool_call_id for one in after]
    return answers


def test_an_agent_answers(host: Host) -> None:
    answers = check_course(host.policy, host.agent(lookup_order, lookup_customer).invoke(QUESTION))
    assert answers[-1].tool_calls == []
    assert answers[-1].text
    host.check_record(len(answers))


async def test_an_agent_calls_a_tool_and_answers(host: Host) -> None:
    def run() -> Any:
        return host.agent(lookup_order, lookup_customer, calls=True)

    results = [run().invoke(QUESTION), await run().ainvoke(QUESTION)]
    for result in results:
        first, last = check_course(host.policy, result)
        assert [call["name"] for call in first.tool_calls] in (["lookup_order"], ["lookup_customer"])
        assert last.text
        (told,) = [one for one in result["messages"] if isinstance(one, ToolMessage)]
        assert told.status == "success"
        assert "[redacted]" in told.text
    assert [one.text for one in results[0]["messages"]] == [one.text for one in results[1]["messages"]]
    host.check_record(4)


async def test_a_stream_of_an_agent_is_what_it_answers(host: Host) -> None:
    whole = host.agent(lookup_order, calls=True).invoke(QUESTION)
    said = [one.text for one in whole["messages"] if isinstance(one, AIMessage)]
    run = host.agent(lookup_order, calls=True)
    assert check_chunks(host.policy, list(run.stream(QUESTION, stream_mode="messages"))) == said
    run = host.agent(lookup_order, calls=True)
    chunks = [chunk async for chunk in run.astream(QUESTION, stream_mode="messages")]
    assert check_chunks(host.policy, chunks) == said


def test_without_the_guard_a_tool_tells_all(host: Host) -> None:
    """So that the tests above can fail."""
    result = host.agent(lookup_order, calls=True, guarded=False).invoke(QUESTION)
    with pytest.raises(AssertionError):
        check_course(host.policy, result)
    check_everything(host.policy, [one for one in result["messages"] if isinstance(one, AIMessage)])


STRATEGIES: dict[str, Any] = {
    "tool": ToolStrategy(Contact),
    "provider": ProviderStrategy(Contact),
    "provider, strict": ProviderStrategy(Contact, strict=True),
    "class": Contact,
    "schema": ProviderStrategy(Contact.model_json_schema()),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_an_agent_answers_by_an_object(host: Host, strategy: str) -> None:
    agent = host.agent(response_format=STRATEGIES[strategy])
    results = [agent.invoke(QUESTION), await agent.ainvoke(QUESTION)]
    for result in results:
        check_course(host.policy, result)
        Contact.model_validate(result["structured_response"], from_attributes=True)
        assert result["structured_response"] == results[0]["structured_response"]
    chunks = list(agent.stream(QUESTION, stream_mode="messages"))
    (said,) = check_chunks(host.policy, [(one, given) for one, given in chunks if one.type != "tool"])
    assert said == next(one for one in results[0]["messages"] if isinstance(one, AIMessage)).text
    host.check_record(3)


@pytest.mark.parametrize("strategy", ["provider", "class", "schema"])
async def test_an_agent_with_tools_calls_them_or_answers_by_an_object(host: Host, strategy: str) -> None:
    agent = host.agent(lookup_order, response_format=STRATEGIES[strategy])
    for result in (agent.invoke(QUESTION, LIMIT), await agent.ainvoke(QUESTION, LIMIT)):
        answers = check_course(host.policy, result)
        assert answers[-1].tool_calls == []
        assert json.loads(answers[-1].text).keys() == {"way"}
        Contact.model_validate(result["structured_response"], from_attributes=True)
    shown = [one for one, _ in agent.stream(QUESTION, LIMIT, stream_mode="messages")]
    assert json.loads("".join(one.text for one in shown if one.id == shown[-1].id)).keys() == {"way"}
    host.check_record(2)


@pytest.mark.parametrize("schema", [Status, Status.model_json_schema()], ids=["class", "schema"])
async def test_an_agent_with_tools_answers_by_the_call_of_an_object(host: Host, schema: Any) -> None:
    """Each answer is a call: of a tool, then of the object."""

    def run() -> Any:
        return host.agent(lookup_order, around=[CallsOnce()], response_format=ToolStrategy(schema))

    for result in (run().invoke(QUESTION, LIMIT), await run().ainvoke(QUESTION, LIMIT)):
        answers = check_course(host.policy, result)
        assert len(answers) <= 2
        assert all(answer.tool_calls for answer in answers)
        Status.model_validate(result["structured_response"], from_attributes=True)
    host.check_record(2)
