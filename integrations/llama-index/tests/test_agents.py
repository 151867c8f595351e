"""Agents and workflows that run for real: the model that ships calls tools, and its stream keeps the policy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import interegular
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
from llama_index.core.program import LLMTextCompletionProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.core.types import PydanticProgramMode
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from llama_index.llms.nco_guard import NCOGuardLLM
from pydantic import BaseModel

from nco_guard import Policy, RegexRule, StringRule, demo
from nco_guard.errors import ArgumentError, DeadEndError, GenerationError, UnsupportedError, ViolationError
from nco_guard.policy import AutomatonRule

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
        tools=tools, llm=NCOGuardLLM(*pair, guard=nothing), system_prompt=demo.SYSTEM_PROMPT
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
    called = [event.tool_name async for event in handler.stream_events() if isinstance(event, ToolCall)]
    assert called[0] == "lookup_customer"
    keeps([str(await handler)])


async def test_a_react_agent_answers(llm: NCOGuardLLM, tools: list[FunctionTool], keeps: Keeps) -> None:
    agent = ReActAgent(tools=tools, llm=llm, formatter=ReActChatFormatter.from_defaults(system_header=HEADER))
    answer, events = await run(agent, "What contact details do we have for Maria Lopez?", keeps)
    assert answer
    assert any(isinstance(event, AgentStream) for event in events)


class Steer:
    """Pulls the model towards a script, one text per generation; where that is forbidden it goes its own way."""

    def __init__(self, tokenizer: Any, *texts: str) -> None:
        self._scripts = [
            [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            for text in texts
        ]
        self._length = self._begin = -1

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        length = input_ids.shape[1]
        if length != self._length + 1:
            self._begin, self._script = length, self._scripts.pop(0)
        self._length = length
        scores[:, self._script[min(length - self._begin, len(self._script) - 1)]] += 1e4
        return scores


async def test_a_react_agent_acts_and_keeps_the_policy_on_the_way(
    pair: tuple[Any, Any], policy: Policy, tools: list[FunctionTool], keeps: Keeps
) -> None:
    """The model is drawn to tell what the tool told it; with the guard it cannot."""
    action = 'Thought: I look.\nAction: lookup_order\nAction Input: {"order_id": "A-1042"}\n'
    leak = "Thought: I know.\nAnswer: Write to jane.doe@example.com or call 503-555-0123."
    answers = []
    for given in (policy, Policy(name="nothing", rules=[StringRule(id="nothing", strings=["no such word"])])):
        llm = NCOGuardLLM(*pair, guard=given, max_new_tokens=80)
        llm.generate_kwargs = {"logits_processor": [Steer(pair[1], action, leak)]}
        formatter = ReActChatFormatter.from_defaults(system_header=HEADER)
        agent = ReActAgent(tools=tools, llm=llm, formatter=formatter)
        if given is policy:
            answer, events = await run(agent, ASK, keeps)
            called = [event.tool_kwargs for event in events if isinstance(event, ToolCallResult)]
            assert called == [{"order_id": "A-1042"}]
        else:
            answer = str(await agent.run(ASK))
        answers.append(answer)
    assert answers[0].startswith("Write to jane")
    assert answers[1] == "Write to jane.doe@example.com or call 503-555-0123."


NAMED = {"type": "function", "function": {"name": "lookup_order"}}
AS_ELSEWHERE = {"type": "tool", "name": "lookup_order"}


@pytest.mark.parametrize("choice", ["required", True, "lookup_order", NAMED, AS_ELSEWHERE, {"type": "any"}])
def test_a_call_can_be_required(llm: NCOGuardLLM, tools: list[FunctionTool], choice: Any) -> None:
    order = tools[:1]
    response = llm.chat_with_tools(order, user_msg="Please check order B-2201.", tool_choice=choice)
    calls = llm.get_tool_calls_from_response(response)
    assert [(call.tool_name, call.tool_kwargs) for call in calls] == [
        ("lookup_order", {"order_id": "B-2201"})
    ]
    *_, last = llm.stream_chat_with_tools(order, user_msg="Please check order B-2201.", tool_choice=choice)
    assert [c.tool_kwargs for c in llm.get_tool_calls_from_response(last)] == [{"order_id": "B-2201"}]


def test_of_several_calls_one_counts_unless_more_are_allowed(
    llm: NCOGuardLLM, pair: tuple[Any, Any], tools: list[FunctionTool]
) -> None:
    two = "".join(
        f'<tool_call>{{"name": "lookup_order", "arguments": {{"order_id": "{one}"}}}}</tool_call>'
        for one in ("A-1", "B-2")
    )
    for options, count in (
        ({}, 1),
        ({"allow_parallel_tool_calls": False}, 1),
        ({"allow_parallel_tool_calls": True}, 2),
    ):
        drawn = {"logits_processor": [Steer(pair[1], two)], "max_new_tokens": 90}
        response = llm.chat_with_tools(tools, user_msg=ASK, **drawn, **options)
        calls = llm.get_tool_calls_from_response(response)
        assert [call.tool_kwargs for call in calls] == [{"order_id": "A-1"}, {"order_id": "B-2"}][:count]


def test_a_required_call_that_does_not_come_is_an_error(llm: NCOGuardLLM, tools: list[FunctionTool]) -> None:
    with pytest.raises(DeadEndError, match="3 more tokens are too few"):
        llm.chat_with_tools(tools, user_msg=ASK, tool_required=True, max_new_tokens=3)
    with pytest.raises(GenerationError, match="called no tool"):
        llm.get_tool_calls_from_response(llm.chat([ChatMessage(role="user", content="Hello")]))


def test_choices_that_cannot_be_honoured_are_refused(llm: NCOGuardLLM, tools: list[FunctionTool]) -> None:
    for options in ({"tool_choice": "no_such_tool"}, {"tool_choice": "none", "tool_required": True}):
        with pytest.raises(UnsupportedError, match="tool_choice"):
            llm.chat_with_tools(tools, user_msg=ASK, **options)
    for flag in ("allow_parallel_tool_calls", "tool_required"):
        with pytest.raises(ArgumentError, match=f"^{flag}: True or False"):
            llm.chat_with_tools(tools, user_msg=ASK, **{flag: "no"})
    without = llm.chat_with_tools(tools, user_msg=ASK, tool_choice="none")
    assert not llm.get_tool_calls_from_response(without, error_on_no_tool_call=False)


def test_arguments_keep_the_policy_while_they_are_written(
    llm: NCOGuardLLM, tools: list[FunctionTool]
) -> None:
    """The model would copy the order number into the call; it has to write another."""
    policy = Policy(name="orders", rules=[StringRule(id="orders", strings=["1042"], json_escapes=True)])
    response = llm.chat_with_tools(tools, user_msg=ASK, tool_choice="lookup_order", guard=policy)
    assert "1042" not in str(response.message.model_dump())


def test_what_json_escapes_hide_is_withheld(pair: tuple[Any, Any], tools: list[FunctionTool]) -> None:
    """A ready-made automaton cannot see the escape while it is written; the call is refused when it is read."""
    call = r'<tool_call>{"name": "find", "arguments": {"key": "\u0061ss"}}</tool_call>'
    automaton = interegular.parse_pattern("ass").to_fsm()
    policy = Policy(name="word", rules=[AutomatonRule(id="word", fsm=automaton)])
    llm = NCOGuardLLM(*pair, guard=policy)
    tool = FunctionTool.from_defaults(lambda key: key, name="find", description="Find.")
    with pytest.raises(ViolationError, match="word"):
        llm.chat_with_tools([tool], user_msg="go", logits_processor=[Steer(pair[1], call)])
    chunks = llm.stream_chat_with_tools([tool], user_msg="go", logits_processor=[Steer(pair[1], call)])
    with pytest.raises(ViolationError, match="word"):
        assert not any(chunk.message.content or chunk.message.blocks for chunk in chunks)
    for given in (False, True):  # where tools are on offer, strings are seen through escapes anyhow
        seeing = Policy(name="word", rules=[StringRule(id="word", strings=["ass"], json_escapes=given)])
        steer = {"logits_processor": [Steer(pair[1], call)], "guard": seeing}
        answer = llm.chat_with_tools([tool], user_msg="go", **steer)
        (called,) = llm.get_tool_calls_from_response(answer)
        assert called.tool_kwargs["key"].startswith("a")
        assert "ass" not in called.tool_kwargs["key"]


async def test_what_agents_and_programs_would_read_in_escapes_is_withheld(pair: tuple[Any, Any]) -> None:
    """Text is parsed by ReAct agents and programs; what it reads as then is looked at before it is shown."""
    policy = Policy(name="word", rules=[StringRule(id="word", strings=["ass"])])
    llm = NCOGuardLLM(*pair, guard=policy)

    def steered(text: str) -> NCOGuardLLM:
        steer = {"logits_processor": [Steer(pair[1], text)]}
        return NCOGuardLLM(*pair, guard=policy, generate_kwargs=steer)

    said = r'{"order_id": "\u0061ss"}'

    def options() -> dict[str, Any]:
        return {"logits_processor": [Steer(pair[1], said)]}

    asked = [ChatMessage(role="user", content="go")]
    calls: list[Callable[[], Any]] = [
        lambda: llm.complete("go", **options()),
        lambda: llm.chat(asked, **options()),
        lambda: LLMTextCompletionProgram.from_defaults(
            output_cls=LookupOrder, prompt_template_str="go", llm=steered(said)
        )(),
    ]
    for call in calls:
        with pytest.raises(ViolationError, match="read as JSON"):
            call()
    with pytest.raises(ViolationError, match="read as JSON"):
        await llm.achat(asked, **options())
    shown: list[str] = []
    with pytest.raises(ViolationError, match="read as JSON"):
        shown.extend(str(chunk.delta) for chunk in llm.stream_chat(asked, **options()))
    assert "ass" not in "".join(shown).replace(r"\u0061", "a")

    found: list[str] = []
    tool = FunctionTool.from_defaults(lambda key: found.append(key) or "", name="find", description="Find.")
    thought = 'Thought: I need a tool.\nAction: find\nAction Input: {"key": "\\u0061ss"}'
    formatter = ReActChatFormatter.from_defaults(system_header=HEADER)
    agent = ReActAgent(tools=[tool], llm=steered(thought), formatter=formatter)
    handler = agent.run("go")
    events = [event async for event in handler.stream_events()]
    with pytest.raises(ViolationError, match="read as JSON"):
        await handler
    assert not found
    assert not any(isinstance(event, ToolCall) for event in events)


class LookupOrder(BaseModel):
    """Look up an order."""

    order_id: str


async def test_structured_prediction_goes_through_guarded_calls(llm: NCOGuardLLM) -> None:
    prompt = PromptTemplate("Please check order {order}.")
    assert llm.structured_predict(LookupOrder, prompt, order="B-2201").order_id
    assert (await llm.astructured_predict(LookupOrder, prompt, order="B-2201")).order_id
    policy = Policy(name="orders", rules=[StringRule(id="orders", strings=["2201"], json_escapes=True)])
    guarded = llm.with_guard(policy)
    assert "2201" not in guarded.structured_predict(LookupOrder, prompt, order="B-2201").order_id


def test_structured_prediction_reads_no_escapes_into_an_object(pair: tuple[Any, Any]) -> None:
    """By a call of a tool, and by JSON in the text. What is enforced as JSON holds no such escape; where it is only
    asked for, the object is withheld."""
    word = StringRule(id="word", strings=["ass"])
    ready = AutomatonRule(id="word", fsm=interegular.parse_pattern("ass").to_fsm())
    prompt, asked = PromptTemplate("go"), [ChatMessage(role="user", content="go")]
    call, text = '{}"}}}}</tool_call>', '{{"order_id": "{}"}}'  # the prompt begins the call

    def steered(mode: PydanticProgramMode, said: str, rule: Any) -> NCOGuardLLM:
        steer = {"logits_processor": [Steer(pair[1], said)]}
        llm = NCOGuardLLM(*pair, guard=Policy(name="word", rules=[rule]), generate_kwargs=steer)
        llm.pydantic_program_mode = mode
        return llm

    uses: list[Callable[..., Any]] = [
        lambda llm, **strict: llm.structured_predict(LookupOrder, prompt, strict),
        lambda llm, **strict: [*llm.stream_structured_predict(LookupOrder, prompt, strict)][-1],
        lambda llm, **strict: llm.as_structured_llm(LookupOrder).chat(asked, **strict).raw,
        lambda llm, **strict: llm.as_structured_llm(LookupOrder).complete("go", **strict).raw,
        lambda llm, **strict: [*llm.as_structured_llm(LookupOrder).stream_chat(asked, **strict)][-1].raw,
    ]
    for use in uses:
        for mode in (PydanticProgramMode.DEFAULT, PydanticProgramMode.LLM):
            way = call if mode == PydanticProgramMode.DEFAULT else text
            for rule in (word, ready):
                for strict in ({}, {"strict": False}):
                    made = use(steered(mode, way.format("B-1"), rule), **strict)
                    assert made == LookupOrder(order_id="B-1")
                assert "ass" not in use(steered(mode, way.format(r"\u0061ss"), rule)).order_id
                if mode == PydanticProgramMode.LLM:
                    with pytest.raises(ViolationError, match=r"its JSON escapes read|read as JSON"):
                        use(steered(mode, way.format(r"\u0061ss"), rule), strict=False)


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


def test_structured_prediction_reads_no_numbers_into_an_object(pair: tuple[Any, Any]) -> None:
    """JSON in the text of a local model, whose numbers parsing brings out; what is enforced has them as they print."""

    class Card(BaseModel):
        n: int

    prompt = PromptTemplate("go")
    rule = RegexRule(id="card", regex=r"(?<!\d)4\d{15}(?!\d)")

    def steered(number: str) -> NCOGuardLLM:
        steer = {"logits_processor": [Steer(pair[1], f'{{"n": {number}}}')]}
        llm = NCOGuardLLM(*pair, guard=Policy(name="card", rules=[rule]), generate_kwargs=steer)
        llm.pydantic_program_mode = PydanticProgramMode.LLM
        return llm

    uses: list[Callable[..., Any]] = [
        lambda llm, **strict: llm.structured_predict(Card, prompt, strict),
        lambda llm, **strict: llm.as_structured_llm(Card).complete("go", **strict).raw,
        lambda llm, **strict: [*llm.stream_structured_predict(Card, prompt, strict)][-1],
    ]
    for use in uses:
        assert use(steered("4.1e3"), strict=False).n == 4100
        with pytest.raises(ViolationError, match="read as JSON"):
            use(steered("4.111111111111111e15"), strict=False)
        for number in ("4.111111111111111e15", "4111111111111111"):
            assert not re.fullmatch(rule.regex, str(use(steered(number)).n))
