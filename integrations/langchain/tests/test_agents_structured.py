"""Structured responses of agents, and agents that are tools of agents."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from checks import check_everything
from hosts import ASK, CLEAN, SECRETS, hosted, lookup_customer
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from pydantic import BaseModel, computed_field

from langchain_nco_guard import NCOGuardMiddleware
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Policy
from nco_guard.errors import RedactionError, ViolationError


def test_structured_responses_are_checked(policy: Policy) -> None:
    call = {"name": "Contact", "args": {"way": "john.doe@example.com"}, "id": "1", "type": "tool_call"}
    model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call])])
    made = create_agent(model, middleware=[NCOGuardMiddleware(policy)], response_format=Contact)
    assert made.invoke(ASK)["structured_response"] == Contact(way="[redacted]")


class Contact(BaseModel):
    """How to get in touch."""

    way: str


PROVIDER = ProviderStrategy(Contact)


async def test_structured_responses_by_the_provider_are_checked_too(policy: Policy) -> None:
    def made(said: str, **options: Any) -> Any:
        model = ScriptedChatModel(script=[AIMessage(said)])
        return create_agent(
            model, middleware=[NCOGuardMiddleware(policy, **options)], response_format=PROVIDER
        )

    plain, escaped = '{"way": "john.doe@example.com"}', r'{"way": "john\u0040example.com"}'
    for said in (plain, escaped):
        for result in (made(said).invoke(ASK), await made(said).ainvoke(ASK)):
            assert result["structured_response"] == Contact(way="[redacted]")
            assert result["messages"][-1].text == '{"way": "[redacted]"}'
        for mode in ("messages", "updates", "values"):
            check_everything(policy, list(made(said).stream(ASK, stream_mode=mode)))
        with pytest.raises(ViolationError, match="model output"):
            made(said, action="raise").invoke(ASK)
        with pytest.raises(ViolationError, match="model output"):
            await made(said, action="raise").ainvoke(ASK)


class Computes(Contact):
    """Computes what is forbidden of clean text."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def address(self) -> str:
        return f"{self.way}@example.com"


@dataclass
class Prints:
    """Says what is forbidden where it is printed."""

    way: str

    def __repr__(self) -> str:
        return f"{self.way}@example.com"


@pytest.mark.parametrize("schema", [Computes, Prints])
async def test_an_object_that_cannot_be_replaced_in_part_is_an_error(policy: Policy, schema: Any) -> None:
    """No text stands where code expects an object of the class."""
    for strategy, said in ((ToolStrategy, ""), (ProviderStrategy, '{"way": "maria"}')):
        call = {"name": schema.__name__, "args": {"way": "maria"}, "id": "1", "type": "tool_call"}
        answer = AIMessage(said, tool_calls=[] if said else [call])
        made = create_agent(
            ScriptedChatModel(script=[answer]),
            middleware=[NCOGuardMiddleware(policy)],
            response_format=strategy(schema),
        )
        with pytest.raises(RedactionError, match="email"):
            made.invoke(ASK)
        with pytest.raises(RedactionError, match="email"):
            await made.ainvoke(ASK)


def test_structured_responses_of_a_local_model(local: Any, policy: Policy, other_policy: Policy) -> None:
    question = {"messages": [("human", "How can I reach Daniel Cohen?")]}
    both = [NCOGuardMiddleware(policy), NCOGuardMiddleware(other_policy)]
    free = create_agent(local(), response_format=ToolStrategy(Contact)).invoke(question)
    assert isinstance(free["structured_response"], Contact)
    kept = create_agent(local(), middleware=both, response_format=ToolStrategy(Contact)).invoke(question)
    assert "Daniel" not in kept["structured_response"].way
    check_everything(policy, kept["structured_response"])
    for strategy in (PROVIDER, Contact):
        told = create_agent(local(max_tokens=16), middleware=both, response_format=strategy).invoke(question)
        assert isinstance(told["structured_response"], Contact)
        assert json.loads(told["messages"][-1].text) == told["structured_response"].model_dump()
        check_everything(policy, told["structured_response"])
        check_everything(other_policy, told["structured_response"])


# -- agents within agents ----------------------------------------------------------------------------------------


def with_a_sub_agent(policy: Policy, *inner: AgentMiddleware[Any, Any, Any]) -> Any:
    """An agent, one of whose tools is an agent."""
    sub = create_agent(hosted(), tools=[lookup_customer], middleware=inner)

    @tool
    def ask_support(question: str) -> str:
        """Ask another agent."""
        return str(sub.invoke({"messages": [("human", question)]})["messages"][-1].text)

    call = {"name": "ask_support", "args": {"question": "Maria?"}, "id": "9", "type": "tool_call"}
    model = ScriptedChatModel(
        script=[AIMessage("", tool_calls=[call]), AIMessage("They said: 312-555-0155.")]
    )
    return create_agent(model, tools=[ask_support], middleware=[NCOGuardMiddleware(policy)])


async def test_agents_within_agents(policy: Policy) -> None:
    """LangGraph streams what runs within a tool, so each agent needs the middleware; the results are clean anyway."""
    for inner in ([NCOGuardMiddleware(policy)], []):
        result = with_a_sub_agent(policy, *inner).invoke(ASK)
        check_everything(policy, result["messages"])
        assert result["messages"][2].text == CLEAN
    ours = NCOGuardMiddleware(policy)
    for mode in ("messages", "updates", "values"):
        made = with_a_sub_agent(policy, ours)
        check_everything(policy, list(made.stream(ASK, stream_mode=mode, subgraphs=True)))
    events = [event async for event in with_a_sub_agent(policy, ours).astream_events(ASK, version="v2")]
    check_everything(policy, events)
    assert sum(event["event"] == "on_chat_model_end" for event in events) == 4
    leaky = list(with_a_sub_agent(policy).stream(ASK, stream_mode="messages", subgraphs=True))
    assert "".join(chunk.text for _, (chunk, _) in leaky).count(SECRETS[1]) == 1
