"""Agents and workflows that run for real: the model that ships calls tools, and its stream keeps the policy."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.agent.react import ReActChatFormatter
from llama_index.core.agent.workflow import (
    AgentOutput,
    AgentStream,
    AgentWorkflow,
    FunctionAgent,
    ReActAgent,
    ToolCall,
    ToolCallResult,
)
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from llama_index.llms.nco_guard import NCOGuardLLM
from pydantic import BaseModel

from nco_guard import Policy, RegexRule, StringRule, demo
from nco_guard.errors import GenerationError, UnsupportedError, ViolationError
from nco_guard.testing import biased_model, tiny_tokenizer

pytestmark = pytest.mark.anyio
Keeps = Any
ASK = "Where is order A-1042?"
HEADER = "You are the support assistant of Harbor Lane.\nTools: {tool_desc}\nNames: {tool_names}"


async def run(agent: Any, request: str, keeps: Keeps, **options: Any) -> tuple[str, list[Any]]:
    """Run an agent; everything that it showed on the way is checked, chunk by chunk and joined."""
    handler = agent.run(request, **options)
    events = [event async for event in handler.stream_events()]
    answer = await handler
    keeps(event.delta for event in events if isinstance(event, AgentStream))
    for event in events:
        if isinstance(event, AgentStream):
            keeps([event.response])
        if isinstance(event, ToolCall | ToolCallResult):
            keeps(map(str, event.tool_kwargs.values()))
        if isinstance(event, AgentOutput):
            keeps([event.response.content])
    return keeps([str(answer)]), events


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_function_agent_calls_a_tool_and_tells_what_it_may(
    llm: NCOGuardLLM, tools: list[FunctionTool], keeps: Keeps, streaming: bool
) -> None:
    """The tool's answer holds an address and a number; the agent's stream and answer hold neither."""
    agent = FunctionAgent(tools=tools, llm=llm, system_prompt=demo.SYSTEM_PROMPT, streaming=streaming)
    answer, events = await run(agent, ASK, keeps)
    called = [event for event in events if isinstance(event, ToolCallResult)]
    assert [(event.tool_name, event.tool_kwargs) for event in called] == [
        ("lookup_order", {"order_id": "A-1042"})
    ]
    assert "jane.doe@example.com" in str(called[0].tool_output)
    assert "A-1042" in answer
    assert "shipped" in answer


async def test_without_the_guard_the_same_agent_tells_all(
    pair: tuple[Any, Any], tools: list[FunctionTool], keeps: Keeps
) -> None:
    """So that the test above can fail."""
    nothing = Policy(name="nothing", rules=[StringRule(id="nothing", strings=["no such word"])])
    agent = FunctionAgent(
        tools=tools, llm=NCOGuardLLM(*pair, policy=nothing), system_prompt=demo.SYSTEM_PROMPT
    )
    with pytest.raises(AssertionError):
        keeps([str(await agent.run(ASK))])


async def test_an_agent_workflow_runs_and_remembers(
    llm: NCOGuardLLM, tools: list[FunctionTool], keeps: Keeps
) -> None:
    agent = AgentWorkflow(agents=[FunctionAgent(name="support", tools=tools, llm=llm)], root_agent="support")
    context = Context(agent)
    first, _ = await run(agent, ASK, keeps, ctx=context)
    second, _ = await run(agent, "Look up the customer Maria Lopez.", keeps, ctx=context)
    assert first != second


async def test_a_first_tool_can_be_demanded(
    llm: NCOGuardLLM, tools: list[FunctionTool], keeps: Keeps
) -> None:
    agent = FunctionAgent(tools=tools, llm=llm, initial_tool_choice="lookup_customer")
    handler = agent.run(ASK)
    first = [e async for e in handler.stream_events() if isinstance(e, ToolCall)][0]
    assert first.tool_name == "lookup_customer"
    keeps([str(await handler)])


async def test_a_react_agent_answers(llm: NCOGuardLLM, tools: list[FunctionTool], keeps: Keeps) -> None:
    agent = ReActAgent(tools=tools, llm=llm, formatter=ReActChatFormatter.from_defaults(system_header=HEADER))
    answer, events = await run(agent, "What contact details do we have for Maria Lopez?", keeps)
    assert answer
    assert any(isinstance(event, AgentStream) for event in events)


async def test_a_react_agent_acts() -> None:
    """A model that longs to write one action, and may not write the value that it longs for."""
    action = 'Thought: t.\nAction: find\nAction Input: {"key": "secret"}\n'
    tokenizer = tiny_tokenizer(texts=[action])
    model = biased_model(tokenizer, [action], bonus=40.0)
    seen: list[str] = []

    def find(key: str) -> str:
        """Find."""
        seen.append(key)
        return "found"

    tool = FunctionTool.from_defaults(find, return_direct=True)
    formatter = ReActChatFormatter.from_defaults(system_header=HEADER)
    policy = Policy(name="secret", rules=[RegexRule(id="secret", regex="secret")])
    nothing = Policy(name="nothing", rules=[StringRule(id="nothing", strings=["no such word"])])
    for given, expected in ((nothing, {"secret"}), (policy, set())):
        llm = NCOGuardLLM(model, tokenizer, policy=given, max_new_tokens=80)
        agent = ReActAgent(tools=[tool], llm=llm, formatter=formatter, early_stopping_method="force")
        answer = str(await agent.run("go", max_iterations=1)) if given is nothing else llm.complete("go").text
        assert ("found" in answer) == (given is nothing)
        assert "secret" not in answer
        assert expected <= set(seen)
        seen.clear()


@pytest.mark.parametrize(
    "choice", ["required", "lookup_order", {"type": "function", "function": {"name": "lookup_order"}}]
)
def test_a_call_can_be_required(llm: NCOGuardLLM, tools: list[FunctionTool], choice: Any) -> None:
    order = tools[:1]
    response = llm.chat_with_tools(order, user_msg="Please check order B-2201.", tool_choice=choice)
    calls = llm.get_tool_calls_from_response(response)
    assert [(call.tool_name, call.tool_kwargs) for call in calls] == [
        ("lookup_order", {"order_id": "B-2201"})
    ]
    *_, last = llm.stream_chat_with_tools(order, user_msg="Please check order B-2201.", tool_choice=choice)
    assert [c.tool_kwargs for c in llm.get_tool_calls_from_response(last)] == [{"order_id": "B-2201"}]


def test_a_required_call_that_does_not_come_is_an_error(llm: NCOGuardLLM, tools: list[FunctionTool]) -> None:
    with pytest.raises(GenerationError, match="required"):
        llm.chat_with_tools(tools, user_msg=ASK, tool_required=True, max_new_tokens=3)
    with pytest.raises(GenerationError, match="called no tool"):
        llm.get_tool_calls_from_response(llm.chat([ChatMessage(role="user", content="Hello")]))


def test_choices_that_cannot_be_honoured_are_refused(llm: NCOGuardLLM, tools: list[FunctionTool]) -> None:
    for options in ({"tool_choice": "no_such_tool"}, {"tool_choice": "none", "tool_required": True}):
        with pytest.raises(UnsupportedError, match="tool_choice"):
            llm.chat_with_tools(tools, user_msg=ASK, **options)
    without = llm.chat_with_tools(tools, user_msg=ASK, tool_choice="none")
    assert not llm.get_tool_calls_from_response(without, error_on_no_tool_call=False)


def test_arguments_keep_the_policy_while_they_are_written(
    llm: NCOGuardLLM, tools: list[FunctionTool]
) -> None:
    """The model would copy the order number into the call; it has to write another."""
    policy = Policy(name="orders", rules=[StringRule(id="orders", strings=["1042"], json_escapes=True)])
    response = llm.chat_with_tools(tools, user_msg=ASK, tool_choice="lookup_order", policy=policy)
    assert "1042" not in str(response.message.model_dump())


def test_what_json_escapes_hide_is_withheld(pair: tuple[Any, Any], tools: list[FunctionTool]) -> None:
    """A rule without `json_escapes` cannot see the escape while it is written; the call is refused when it is read."""
    tokenizer = pair[1]
    call = r'<tool_call>{"name": "find", "arguments": {"key": "\u0061ss"}}</tool_call>'
    forced = tokenizer(call, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    policy = Policy(name="word", rules=[StringRule(id="word", strings=["ass"])])
    llm = NCOGuardLLM(*pair, policy=policy)

    def write(length: int) -> Any:
        def choose(input_ids: Any, scores: Any) -> Any:
            scores[:, forced[min(input_ids.shape[1] - length, len(forced) - 1)]] += 1e4
            return scores

        return choose

    tool = FunctionTool.from_defaults(lambda key: key, name="find", description="Find.")
    prompt = llm._chat(**_split(llm._prepare_chat_with_tools([tool], user_msg="go")))
    processor = write(prompt.call.inputs["input_ids"].shape[1])
    with pytest.raises(ViolationError, match="word") as caught:
        llm.chat_with_tools([tool], user_msg="go", logits_processor=[processor])
    assert "ss" not in str(caught.value).replace("session", "").replace("ass", "")
    shown = []
    with pytest.raises(ViolationError, match="word"):
        for chunk in llm.stream_chat_with_tools([tool], user_msg="go", logits_processor=[processor]):
            shown.append(chunk)
    assert not any(chunk.message.content or chunk.delta for chunk in shown)


def _split(arguments: dict[str, Any]) -> dict[str, Any]:
    messages = arguments.pop("messages")
    return {"messages": messages, "kwargs": arguments}


class LookupOrder(BaseModel):
    """Look up an order."""

    order_id: str


async def test_structured_prediction_goes_through_guarded_calls(llm: NCOGuardLLM) -> None:
    prompt = PromptTemplate("Please check order {order}.")
    assert llm.structured_predict(LookupOrder, prompt, order="B-2201").order_id
    assert (await llm.astructured_predict(LookupOrder, prompt, order="B-2201")).order_id
    policy = Policy(name="orders", rules=[StringRule(id="orders", strings=["2201"], json_escapes=True)])
    guarded = llm.with_policy(policy)
    assert "2201" not in guarded.structured_predict(LookupOrder, prompt, order="B-2201").order_id


class Draft(Event):
    """A first answer, for the second step."""

    text: str


class Chunk(Event):
    """What the user sees."""

    text: str


class Support(Workflow):
    """Two steps of one's own: an answer, then a streamed second one."""

    def __init__(self, llm: NCOGuardLLM, **options: Any) -> None:
        super().__init__(**options)
        self._llm = llm

    @step
    async def draft(self, ctx: Context, event: StartEvent) -> Draft:
        return Draft(text=(await self._llm.acomplete(event.get("ask"))).text)

    @step
    async def answer(self, ctx: Context, event: Draft) -> StopEvent:
        shown = ""
        messages = [ChatMessage(role="user", content=f"Repeat: {event.text}")]
        async for chunk in await self._llm.astream_chat(messages):
            ctx.write_event_to_stream(Chunk(text=chunk.delta or ""))
            shown += chunk.delta or ""
        return StopEvent(result=shown)


async def test_a_workflow_streams_within_the_policy(llm: NCOGuardLLM, keeps: Keeps) -> None:
    handler = Support(llm, timeout=60).run(ask="What contact details do we have for Maria Lopez?")
    chunks = [event.text async for event in handler.stream_events() if isinstance(event, Chunk)]
    assert len(chunks) > 3
    assert keeps(chunks) == await handler
