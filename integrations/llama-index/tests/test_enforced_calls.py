"""Calls of tools whose arguments are enforced by the tools' schemas, on every route; also where the model may talk."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.llms import ChatMessage
from llama_index.core.program import FunctionCallingProgram
from llama_index.core.tools import FunctionTool
from llama_index.llms.nco_guard import NCOGuardLLM
from pydantic import BaseModel, ConfigDict, Field

from nco_guard import Policy, RegexRule, demo
from nco_guard.errors import ArgumentError, DeadEndError, ShapeError

pytestmark = pytest.mark.anyio
POLICY = Policy(name="digits", rules=[RegexRule(id="digits", regex=r"\d{3}")])
ASK = "Please check order B-22."


class Ticket(BaseModel):
    """Open a ticket."""

    model_config = ConfigDict(extra="forbid")
    subject: str = Field(max_length=16)
    priority: Literal["low", "high"]
    days: int = Field(ge=0, le=9)


class Search(BaseModel):
    """Search."""

    model_config = ConfigDict(extra="forbid")
    words: list[str] = Field(min_length=1, max_length=2)
    exact: bool


KINDS: dict[str, type[BaseModel]] = {"open_ticket": Ticket, "search": Search}


def ticket(**given: Any) -> str:
    return str(sorted(given))


TOOLS = [
    FunctionTool.from_defaults(ticket, name=name, description=str(kind.__doc__), fn_schema=kind)
    for name, kind in KINDS.items()
]


@pytest.fixture(scope="module")
def llm(pair: tuple[Any, Any]) -> NCOGuardLLM:
    return NCOGuardLLM(*pair, guard=POLICY, max_new_tokens=96, generate_kwargs={"do_sample": True})


def check(llm: NCOGuardLLM, response: Any) -> list[str]:
    """The calls of a message are of their schemas; the names."""
    calls = llm.get_tool_calls_from_response(response)
    for call in calls:
        KINDS[call.tool_name].model_validate(call.tool_kwargs, strict=True)
    assert response.message.additional_kwargs["tool_calls"]
    return [call.tool_name for call in calls]


@pytest.mark.parametrize("choice", ["open_ticket", "search", "required"])
async def test_required_calls_are_of_their_schema(llm: NCOGuardLLM, choice: str) -> None:
    asked: dict[str, Any] = {"user_msg": ASK, "tool_choice": choice}
    *_, streamed = llm.stream_chat_with_tools(TOOLS, **asked)
    for answer in (
        llm.chat_with_tools(TOOLS, **asked),
        await llm.achat_with_tools(TOOLS, **asked),
        streamed,
        [one async for one in await llm.astream_chat_with_tools(TOOLS, **asked)][-1],
    ):
        (name,) = check(llm, answer)
        assert choice in (name, "required")


@pytest.mark.parametrize("name", ["qwen3-coder", "lfm2"])
def test_calls_in_tags_and_in_python_are_of_their_schema(pair: tuple[Any, Any], name: str) -> None:
    llm = NCOGuardLLM(*pair, guard=POLICY, reply_format=name, max_new_tokens=200)
    for choice in ("open_ticket", "search", "required"):
        (called,) = check(llm, llm.chat_with_tools(TOOLS, user_msg=ASK, tool_choice=choice, strict=True))
        assert choice in (called, "required")


def test_several_calls_are_each_of_their_schema(llm: NCOGuardLLM) -> None:
    asked: dict[str, Any] = {"user_msg": ASK, "tool_required": True, "max_new_tokens": 200}
    for _ in range(3):
        assert len(check(llm, llm.chat_with_tools(TOOLS, allow_parallel_tool_calls=True, **asked))) >= 1
        assert len(check(llm, llm.chat_with_tools(TOOLS, allow_parallel_tool_calls=False, **asked))) == 1


def test_where_the_model_may_talk_its_calls_are_enforced_if_strict(llm: NCOGuardLLM) -> None:
    called = 0
    for _ in range(6):
        answer = llm.chat_with_tools(TOOLS, user_msg=ASK, strict=True)
        if llm.get_tool_calls_from_response(answer, error_on_no_tool_call=False):
            called += len(check(llm, answer))
        assert "<tool_call>" not in (answer.message.content or "")
    assert called  # the model that ships calls what it is offered


async def test_programs_that_call(llm: NCOGuardLLM) -> None:
    program = FunctionCallingProgram.from_defaults(
        output_cls=Ticket, prompt_template_str="Open a ticket: {what}", llm=llm
    )
    required = FunctionCallingProgram.from_defaults(
        output_cls=Ticket, prompt_template_str="Open a ticket: {what}", llm=llm, tool_choice="required"
    )
    for found in (
        program(what="lost"),
        await program.acall(what="lost"),
        [*required.stream_call(what="lost")][-1],
    ):
        assert type(found) is Ticket


@pytest.mark.parametrize("streaming", [True, False])
async def test_agents_call_and_answer_by_objects(pair: tuple[Any, Any], streaming: bool) -> None:
    options: dict[str, Any] = {"max_new_tokens": 96, "generate_kwargs": {"do_sample": False}}
    strict = NCOGuardLLM(*pair, guard=POLICY, strict=True, **options)
    agent = FunctionAgent(
        tools=TOOLS,
        llm=strict,
        system_prompt=demo.SYSTEM_PROMPT,
        initial_tool_choice="open_ticket",
        output_cls=Search,
        streaming=streaming,
    )
    handler = agent.run("Open a ticket.")
    events = [event async for event in handler.stream_events()]
    answer = await handler
    for event in events:
        if isinstance(event, ToolCallResult):
            KINDS[event.tool_name].model_validate(event.tool_kwargs, strict=True)
            assert not event.tool_output.is_error
    assert type(answer.get_pydantic_model(Search)) is Search

    async def summary(messages: list[ChatMessage]) -> dict[str, Any]:
        found = await strict.as_structured_llm(Search).achat(messages[:1])
        return dict(found.raw.model_dump())

    plain = FunctionAgent(tools=TOOLS, llm=strict, structured_output_fn=summary, streaming=streaming)
    assert Search.model_validate((await plain.run("Open a ticket.")).structured_response)


def test_errors_come_before_anything_is_written(llm: NCOGuardLLM, pair: tuple[Any, Any]) -> None:
    with pytest.raises(DeadEndError, match="allow more max_new_tokens"):
        llm.chat_with_tools(TOOLS, user_msg=ASK, tool_required=True, max_new_tokens=8)

    class Tags(BaseModel):
        tags: set[str]

    tool = FunctionTool.from_defaults(ticket, name="tag", description="Tag.", fn_schema=Tags)
    for call in (llm.chat_with_tools, llm.stream_chat_with_tools):
        for options in ({"tool_required": True}, {"strict": True}):
            with pytest.raises(ShapeError, match=r"tags: .*tag.*strict=False"):
                call([tool], user_msg=ASK, **options)
    loose = llm.chat_with_tools([tool], user_msg=ASK, tool_required=True, strict=False)
    assert llm.get_tool_calls_from_response(loose)[0].tool_name == "tag"
    with pytest.raises(ArgumentError, match=r"^strict: True or False"):
        llm.chat_with_tools(TOOLS, user_msg=ASK, strict="yes")
    with pytest.raises(ArgumentError, match=r"^strict: True or False"):
        NCOGuardLLM(*pair, guard=POLICY, strict="yes")  # type: ignore[arg-type]


def test_strict_is_written_down(pair: tuple[Any, Any]) -> None:
    made = NCOGuardLLM(*pair, guard=POLICY, strict=True)
    again = NCOGuardLLM.from_dict(made.to_dict(), guard=POLICY, model=pair[0], tokenizer=pair[1])
    assert again.strict is True
