"""What stands around the middleware in an agent: other middleware and its models, tools of every kind, interrupts."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import uuid
from typing import Any

import pytest
from checks import check_everything
from hosts import ASK, CLEAN, RECORD, SECRETS, hosted, lookup_customer
from inner_models import LEAK, SAFE, Fails, scripted
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    LLMToolEmulator,
    LLMToolSelectorMiddleware,
    ModelFallbackMiddleware,
    SummarizationMiddleware,
)
from langchain.tools import ToolRuntime
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from places import Everything
from pydantic import BaseModel

from langchain_nco_guard import ChatNCOGuard, NCOGuardMiddleware, VerifiedChatModel
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Guard, Policy, RegexRule
from nco_guard.errors import UnsupportedError, ViolationError

MODES = ("messages", "updates", "values", "tasks", "checkpoints", "debug", "custom")


async def everything_of(make: Any, ask: Any = ASK) -> list[Any]:
    """All that an agent shows on any route."""
    seen = Everything()
    config: Any = {"callbacks": [seen], "configurable": {"thread_id": "1"}}
    saver = InMemorySaver()
    shown: list[Any] = [make(checkpointer=saver).invoke(ask, config), await make().ainvoke(ask, config)]
    shown += [*saver.list(None)]
    for mode in MODES:
        shown += [*make().stream(ask, config, stream_mode=mode, subgraphs=True)]
        shown += [part async for part in make().astream(ask, config, stream_mode=mode)]
    shown += [event async for event in make().astream_events(ask, config, version="v2")]
    return [*shown, seen.seen]


def assert_clean(policy: Policy, shown: list[Any]) -> None:
    check_everything(policy, shown)
    everything = repr(shown)
    for secret in SECRETS:
        assert secret not in everything, everything[
            everything.find(secret) - 300 : everything.find(secret) + 50
        ]


# -- other middleware --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
async def test_fallback_models_are_guarded_on_either_side(policy: Policy, first: bool) -> None:
    def make(**options: Any) -> Any:
        both = [NCOGuardMiddleware(policy), ModelFallbackMiddleware(Fails(other=None), scripted())]
        return create_agent(Fails(other=None), middleware=both if first else both[::-1], **options)

    shown = await everything_of(make)
    assert shown[0]["messages"][-1].text == SAFE
    assert_clean(policy, shown)


@pytest.mark.parametrize("first", [True, False])
def test_a_local_model_as_a_fallback_is_guarded_by_both_policies(
    local: Any, policy: Policy, other_policy: Policy, first: bool
) -> None:
    both = [NCOGuardMiddleware(other_policy), ModelFallbackMiddleware(local(policy))]
    made = create_agent(Fails(other=None), middleware=both if first else both[::-1])
    answer = made.invoke({"messages": [("human", "How can I reach Daniel Cohen?")]})["messages"][-1]
    check_everything(policy, answer)
    check_everything(other_policy, answer)


def test_models_and_settings_that_later_middleware_puts_in_stay_guarded(
    local: Any, policy: Policy, other_policy: Policy
) -> None:
    class Sets(AgentMiddleware[Any, Any, Any]):
        def __init__(self, **overrides: Any) -> None:
            super().__init__()
            self.tools = []
            self._overrides = overrides

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(dataclasses.replace(request, **self._overrides))

    guard = NCOGuardMiddleware(policy)
    made = create_agent(scripted("fine"), middleware=[guard, Sets(model=scripted().bind(stop=["x"]))])
    texts = [chunk.text for chunk, _ in made.stream(ASK, stream_mode="messages")]
    assert "".join(texts) == SAFE
    own = Sets(model_settings={"guard": other_policy})
    made = create_agent(local(max_tokens=24), middleware=[guard, own])
    answer = made.invoke({"messages": [("human", "How can I reach Daniel Cohen?")]})["messages"][-1]
    check_everything(policy, answer)
    check_everything(other_policy, answer)


def summarizing(model: Any) -> SummarizationMiddleware:
    return SummarizationMiddleware(model=model, trigger=("messages", 3), keep=("messages", 1))


LONG: Any = {
    "messages": [
        ("human", "Hello"),
        ("ai", "Good day"),
        ("human", "How are you?"),
        ("ai", "Well."),
        ("human", "x"),
    ]
}


@pytest.mark.parametrize("first", [True, False])
async def test_summaries_are_written_by_guarded_models_or_not_at_all(policy: Policy, first: bool) -> None:
    def make(model: Any, **options: Any) -> Any:
        both = [NCOGuardMiddleware(policy, action="redact"), summarizing(model)]
        return create_agent(scripted(), middleware=both if first else both[::-1], **options)

    for bare in (scripted(), scripted().bind(stop=["x"]), VerifiedChatModel.over(scripted(), weaker(policy))):
        with pytest.raises(
            UnsupportedError, match=r"SummarizationMiddleware\.model: .* VerifiedChatModel\.over"
        ):
            make(bare)

    def guarded(**options: Any) -> Any:
        return make(VerifiedChatModel.over(scripted(), policy, action="redact"), **options)

    shown = await everything_of(guarded, LONG)
    assert SAFE in repr(shown[0]["messages"][0])
    assert_clean(policy, shown)


def weaker(policy: Policy) -> Policy:
    return policy.without("email")


def test_a_guarded_local_model_may_summarize(local: Any, policy: Policy) -> None:
    made = create_agent(
        scripted(), middleware=[NCOGuardMiddleware(policy), summarizing(local(policy, max_tokens=8))]
    )
    check_everything(policy, made.invoke(LONG))


def test_other_middleware_with_models_is_held_to_the_same(policy: Policy) -> None:
    ours = NCOGuardMiddleware(policy)
    with pytest.raises(UnsupportedError, match=r"LLMToolEmulator\.model"):
        create_agent(hosted(), tools=[lookup_customer], middleware=[ours, LLMToolEmulator(model=scripted())])
    with pytest.raises(UnsupportedError, match=r"LLMToolSelectorMiddleware\.model"):
        create_agent(hosted(), middleware=[ours, LLMToolSelectorMiddleware(model=scripted())])
    with pytest.raises(UnsupportedError, match=r"LLMToolSelectorMiddleware: .* list it after"):
        create_agent(hosted(), middleware=[LLMToolSelectorMiddleware(), ours])
    create_agent(hosted(), middleware=[ours, LLMToolSelectorMiddleware()])
    create_agent(hosted(), middleware=[summarizing(scripted())])  # without ours, as ever
    assert ours.name.startswith("NCOGuardMiddleware_")


def test_what_later_middleware_makes_of_an_answer_is_verified(policy: Policy) -> None:
    class Adds(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            handler(request)
            return AIMessage(LEAK)

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return ToolMessage(LEAK, tool_call_id=request.tool_call["id"])

    made = create_agent(hosted(), tools=[lookup_customer], middleware=[NCOGuardMiddleware(policy), Adds()])
    assert made.invoke(ASK)["messages"][-1].text == SAFE
    ours = NCOGuardMiddleware(policy)
    request = ToolCallRequest({"name": "x", "args": {}, "id": "1"}, lookup_customer, {}, None)  # type: ignore[arg-type]
    assert ours.wrap_tool_call(request, lambda given: Adds().wrap_tool_call(given, None)).text == SAFE


# -- tools -------------------------------------------------------------------------------------------------------


class Person(BaseModel):
    email: str
    phone: str = "312-555-0155"
    age: int = 30


@dataclasses.dataclass
class Account:
    owner: Person
    number: uuid.UUID
    since: datetime.date = dataclasses.field(default_factory=lambda: datetime.date(2020, 1, 2))
    balance: decimal.Decimal = dataclasses.field(default_factory=lambda: decimal.Decimal("1.50"))


def gives(value: Any, **options: Any) -> BaseTool:
    @tool(**options)
    def look() -> Any:
        """Look."""
        return value

    return look


PERSON = Person(email="maria@example.com")
RESULTS: dict[str, Any] = {
    "a model": PERSON,
    "a list of models": [PERSON, PERSON],
    "a dataclass": Account(PERSON, uuid.UUID(int=7)),
    "a document": [
        Document("maria@example.com", id="maria@example.com", metadata={"at": datetime.date(2020, 1, 2)})
    ],
    "keys": {"maria@example.com": 1, "jane@example.com": 2},
    "bytes": b"maria@example.com",
    "a set": {"maria@example.com"},
    "pieces": [{"type": "text", "text": "maria@exam"}, {"type": "text", "text": "ple.com"}],
    "a message": ToolMessage("maria@example.com", tool_call_id="1", artifact=PERSON),
    "a command": Command(update={"messages": [ToolMessage("maria@example.com", tool_call_id="1")]}),
}


@pytest.mark.parametrize("kind", list(RESULTS))
async def test_results_of_every_kind_are_redacted(policy: Policy, kind: str) -> None:
    look = gives(RESULTS[kind])
    call = {"name": "look", "args": {}, "id": "1", "type": "tool_call"}

    def make(**options: Any) -> Any:
        model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call]), AIMessage("Done.")])
        return create_agent(model, tools=[look], middleware=[NCOGuardMiddleware(policy)], **options)

    shown = await everything_of(make)
    assert "redacted" in repr(shown[0]["messages"][2])
    assert_clean(policy, shown)


@pytest.mark.parametrize(
    "artifact", [PERSON, [RECORD], Account(PERSON, uuid.UUID(int=7)), Document("maria@example.com")]
)
async def test_artifacts_are_redacted(policy: Policy, artifact: Any) -> None:
    look = gives(("fine", artifact), response_format="content_and_artifact")
    call = {"name": "look", "args": {}, "id": "1", "type": "tool_call"}

    def make(**options: Any) -> Any:
        model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call]), AIMessage("Done.")])
        return create_agent(model, tools=[look], middleware=[NCOGuardMiddleware(policy)], **options)

    shown = await everything_of(make)
    message = shown[0]["messages"][2]
    assert type(message.artifact) is type(artifact)
    assert message.text == "fine"
    assert_clean(policy, shown)


def test_results_without_a_match_are_what_they_were(policy: Policy) -> None:
    given = Account(Person(email="none", phone="none"), uuid.UUID(int=7))
    look = gives(("fine", given), response_format="content_and_artifact")
    call = {"name": "look", "args": {}, "id": "1", "type": "tool_call"}
    model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call]), AIMessage("Done.")])
    result = create_agent(model, tools=[look], middleware=[NCOGuardMiddleware(policy)]).invoke(ASK)
    assert result["messages"][2].artifact is given


@tool
def confirm(name: str) -> str:
    """Ask a human."""
    answer = interrupt({"question": f"Write to {RECORD['email']}?", "record": [RECORD, PERSON]})
    return f"{answer}: maria@example.com"


async def test_interrupts_show_nothing_and_can_be_resumed(policy: Policy) -> None:
    call = {"name": "confirm", "args": {"name": "Maria"}, "id": "1", "type": "tool_call"}

    def make(**options: Any) -> Any:
        model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call]), AIMessage("Done.")])
        options.setdefault("checkpointer", InMemorySaver())
        return create_agent(model, tools=[confirm], middleware=[NCOGuardMiddleware(policy)], **options)

    shown = await everything_of(make)
    assert shown[0]["__interrupt__"][0].value["question"] == "Write to [redacted]?"
    assert_clean(policy, shown)
    saver = InMemorySaver()
    made, config = make(checkpointer=saver), {"configurable": {"thread_id": "2"}}
    made.invoke(ASK, config)
    assert_clean(
        policy, [made.get_state(config), *saver.list(None), saver.storage, saver.writes, saver.blobs]
    )
    done = made.invoke(Command(resume="yes"), config)
    assert done["messages"][2].text == "yes: [redacted]"
    assert done["messages"][-1].text == "Done."
    blocked = create_agent(
        ScriptedChatModel(script=[AIMessage("", tool_calls=[call])]),
        tools=[confirm],
        middleware=[NCOGuardMiddleware(policy, action="raise")],
        checkpointer=InMemorySaver(),
    )
    with pytest.raises(ViolationError, match="tool result"):
        blocked.invoke(ASK, config)


async def test_commands_for_a_parent_graph_are_redacted(policy: Policy) -> None:
    from langgraph.graph import END, START, MessagesState, StateGraph

    @tool
    def hand_over(runtime: ToolRuntime) -> Command[Any]:
        """Hand over."""
        message = ToolMessage("maria@example.com", tool_call_id=runtime.tool_call_id)
        return Command(
            graph=Command.PARENT, goto="after", update={"messages": [*runtime.state["messages"], message]}
        )

    call = {"name": "hand_over", "args": {}, "id": "1", "type": "tool_call"}

    def make(**options: Any) -> Any:
        model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call])])
        sub = create_agent(model, tools=[hand_over], middleware=[NCOGuardMiddleware(policy)])
        graph = StateGraph(MessagesState)
        graph.add_node("sub", sub, destinations=("after",))
        graph.add_node("after", lambda state: {})
        graph.add_edge(START, "sub")
        graph.add_edge("after", END)
        return graph.compile(**options)

    shown = await everything_of(make)
    assert shown[0]["messages"][-1].text == "[redacted]"
    assert_clean(policy, shown)


async def test_the_whole_agent_once_more_with_every_mode(policy: Policy) -> None:
    def make(**options: Any) -> Any:
        return create_agent(
            hosted(), tools=[lookup_customer], middleware=[NCOGuardMiddleware(policy)], **options
        )

    shown = await everything_of(make)
    assert shown[0]["messages"][-1].text == CLEAN
    assert_clean(policy, shown)


def test_a_guard_for_numbers_reads_results_as_they_print() -> None:
    cards = Guard(Policy(name="cards", rules=(RegexRule(id="card", regex=r"\d{16}"),)))
    look = gives({"card": 4111111111111111, "list": [4111111111111111]})
    call = {"name": "look", "args": {}, "id": "1", "type": "tool_call"}
    model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call]), AIMessage("Done.")])
    result = create_agent(model, tools=[look], middleware=[NCOGuardMiddleware(cards)]).invoke(ASK)
    assert result["messages"][2].text == '{"card": "[redacted]", "list": ["[redacted]"]}'
    assert ChatNCOGuard.with_further_guard.__doc__
