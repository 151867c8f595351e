"""Calls whose arguments are of their tools' schemas: required ones, and all of them where that is asked for."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from checks import check_everything, check_message
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from pydantic import BaseModel, Field, TypeAdapter

from langchain_nco_guard import ChatNCOGuard
from nco_guard import Policy, RegexRule
from nco_guard.errors import ContradictionError, DeadEndError, ShapeError, UnsupportedError

QUESTION = "What is the value of magic_function(3)? Use the tool."
DIGITS = Policy(name="digits", rules=(RegexRule(id="digit", regex=r"\d"),))


@tool
def book_room(
    floor: Annotated[int, Field(ge=1, le=9)],
    kind: Literal["single", "double"],
    notes: Annotated[list[str], Field(max_length=2)],
    late: bool = False,
) -> str:
    """Book a room."""
    return f"{floor} {kind}"


@tool
def ring(number: Annotated[str, Field(pattern=r"^\+\d{6,9}$")]) -> str:
    """Ring somebody up."""
    return number


@tool
def wait() -> str:
    """Do nothing."""
    return "done"


class Node(BaseModel):
    """A tree."""

    name: str = Field(max_length=4)
    below: list[Node] = Field(max_length=1)


TOOLS: list[Any] = [book_room, ring, wait, Node]
ARGUMENTS = {
    "book_room": TypeAdapter(book_room.tool_call_schema),
    "ring": TypeAdapter(ring.tool_call_schema),
    "wait": TypeAdapter(wait.tool_call_schema),
    "Node": TypeAdapter(Node),
}


def check_calls(policy: Policy, answer: AIMessage, *, least: int = 1) -> None:
    check_message(policy, answer)
    assert answer.invalid_tool_calls == []
    assert len(answer.tool_calls) >= least
    for call in answer.tool_calls:
        # What it writes is what the tool is called with: nothing is cast, nothing is left over.
        made = ARGUMENTS[call["name"]].validate_json(json.dumps(call["args"]), strict=True)
        assert set(call["args"]) <= set(type(made).model_fields)


def sum_of(chunks: Any) -> Any:
    first, *rest = chunks
    for chunk in rest:
        first += chunk
    return first


def without_ids(answer: AIMessage) -> Any:
    calls = [(call["name"], call["args"]) for call in answer.tool_calls]
    return answer.content, calls, answer.usage_metadata


@pytest.mark.parametrize("choice", ["any", "book_room", "ring", "wait", "Node"])
@pytest.mark.parametrize("strict", [None, True])
async def test_required_calls_are_of_their_schemas_on_every_route(
    local: Any, policy: Policy, choice: str, strict: bool | None
) -> None:
    offered = local(policy, max_tokens=72).bind_tools(TOOLS, tool_choice=choice, strict=strict)
    answers = [
        offered.invoke(QUESTION),
        await offered.ainvoke(QUESTION),
        sum_of(offered.stream(QUESTION)),
        sum_of([chunk async for chunk in offered.astream(QUESTION)]),
        *offered.batch([QUESTION, QUESTION]),
    ]
    for answer in answers:
        check_calls(policy, answer)
        assert choice in ("any", answer.tool_calls[0]["name"])
        assert without_ids(answer) == without_ids(answers[0])


@pytest.mark.parametrize("seed", range(6))
def test_several_required_calls_by_chance(loaded: tuple[Any, Any], policy: Policy, seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    chat = ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=policy, max_tokens=96, temperature=2.0)
    several = chat.bind_tools(TOOLS, tool_choice="any").invoke(QUESTION)
    check_calls(policy, several)
    one = chat.bind_tools(TOOLS, tool_choice="any", parallel_tool_calls=False).invoke(QUESTION)
    check_calls(policy, one)
    assert len(one.tool_calls) == 1


@pytest.mark.parametrize("seed", range(6))
def test_strict_calls_that_nobody_requires(loaded: tuple[Any, Any], policy: Policy, seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    chat = ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=policy, max_tokens=72, temperature=1.2)
    question = ["Look up order A-1042.", "Hello", QUESTION][seed % 3]
    for offered in (chat.bind_tools(TOOLS, strict=True), chat.bind_tools([{**described(), "strict": True}])):
        check_calls(policy, offered.invoke(question), least=0)


def described() -> dict[str, Any]:
    return {"name": "wait", "description": "Do nothing.", "parameters": {"type": "object", "properties": {}}}


def test_a_model_is_kept_from_what_it_would_call(local: Any, policy: Policy) -> None:
    """It knows `lookup_order(order_id: str)`, and is offered one with a number: only `strict` keeps it to that."""

    @tool
    def lookup_order(order_id: int) -> str:
        """Look up an order."""
        return str(order_id)

    from nco_guard.demo import SYSTEM_PROMPT

    order = [("system", SYSTEM_PROMPT), ("human", "Look up order A-1042.")]
    free = local(policy).bind_tools([lookup_order]).invoke(order)
    assert free.tool_calls[0]["args"] == {"order_id": "A-1042"}
    kept = local(policy).bind_tools([lookup_order], strict=True).invoke(order)
    assert [list(call["args"]) for call in kept.tool_calls] in ([["order_id"]], [])
    assert all(type(call["args"]["order_id"]) is int for call in kept.tool_calls)
    required = local(policy).bind_tools([lookup_order], tool_choice="any").invoke(order)
    assert type(required.tool_calls[0]["args"]["order_id"]) is int
    open_ = local(policy).bind_tools([lookup_order], tool_choice="any", strict=False).invoke(order)
    assert isinstance(open_.tool_calls[0]["args"], dict)


@pytest.mark.parametrize("given", [{"tool_choice": "ring"}, {"strict": True}], ids=str)
def test_what_schema_and_policy_contradict_is_said_when_it_is_bound(
    local: Any, given: dict[str, Any]
) -> None:
    with pytest.raises(ContradictionError, match="ring") as caught:
        local(DIGITS).bind_tools([ring], **given)
    assert caught.value.rule_ids == ("digit",)
    assert str(caught.value.place).endswith("/properties/number")
    free = local(DIGITS).bind_tools([ring])
    with pytest.raises(ContradictionError):
        free.invoke(QUESTION, **given)


@pytest.mark.parametrize("given", [{"tool_choice": "any"}, {"strict": True}], ids=str)
def test_what_cannot_be_enforced_is_said_when_it_is_bound(local: Any, given: dict[str, Any]) -> None:
    class Several(BaseModel):
        """Kinds."""

        kinds: set[str]

    with pytest.raises(ShapeError, match=r"'Several'.*strict=False") as caught:
        local().bind_tools([wait, Several], **given)
    assert str(caught.value.place).endswith("/properties/kinds")
    local().bind_tools([wait, Several])
    answer = local().bind_tools([wait, Several], tool_choice="Several", strict=False).invoke(QUESTION)
    assert isinstance(answer.tool_calls[0]["args"], dict)


def test_a_tool_that_is_given_twice_is_one_and_two_of_one_name_are_refused(
    local: Any, policy: Policy
) -> None:
    noted = {**described(), "parameters": {**described()["parameters"], "title": "Wait"}}
    offered = local(policy).bind_tools([described(), described(), noted], tool_choice="any")
    check_calls(policy, offered.invoke(QUESTION))
    other = {"name": "wait", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}
    with pytest.raises(UnsupportedError, match=r"tools\[1\]: another tool before it has the same name"):
        local(policy).bind_tools([described(), other], tool_choice="any")


def test_a_call_without_room_says_what_to_raise(local: Any) -> None:
    offered = local(max_tokens=8).bind_tools([book_room], tool_choice="any")
    for call in (lambda: offered.invoke("x"), lambda: list(offered.stream("x"))):
        with pytest.raises(DeadEndError, match="max_new_tokens"):
            call()


@pytest.mark.parametrize("name", ["qwen3-coder", "glm-4.7", "lfm2", "apertus", "gemma-4", "minimax-m3"])
@pytest.mark.parametrize("choice", ["any", "book_room", "ring"])
def test_calls_that_are_no_json(local: Any, policy: Policy, name: str, choice: str) -> None:
    offered = local(policy, reply_format=name, max_tokens=160).bind_tools(
        [book_room, ring, wait], tool_choice=choice, strict=True
    )
    answers = [offered.invoke(QUESTION), sum_of(offered.stream(QUESTION))]
    for answer in answers:
        check_calls(policy, answer)
        assert choice in ("any", answer.tool_calls[0]["name"])
        assert without_ids(answer) == without_ids(answers[0])


def test_json_beside_tools_where_the_model_calls_none(local: Any, policy: Policy) -> None:
    from nco_guard.demo import SYSTEM_PROMPT
    from nco_guard.demo import TOOLS as KNOWN

    asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": Node.model_json_schema()}}
    offered = local(policy).bind_tools(KNOWN, response_format=asked)
    order = [("system", SYSTEM_PROMPT), ("human", "Look up order A-1042.")]
    hello = [("system", SYSTEM_PROMPT), ("human", "Hello")]
    for question, calls in ((order, 1), (hello, 0)):
        whole, streamed = offered.invoke(question), sum_of(offered.stream(question))
        for answer in (whole, streamed):
            check_everything(policy, [answer.content, answer.tool_calls])
            assert len(answer.tool_calls) == calls
            assert without_ids(answer) == without_ids(whole)
            if not calls:
                Node.model_validate_json(answer.text, strict=True)
    required = local(policy).bind_tools(KNOWN, response_format=asked, tool_choice="any").invoke(hello)
    assert required.tool_calls
    none = local(policy).bind_tools(KNOWN, response_format=asked, tool_choice="none").invoke(order)
    Node.model_validate_json(none.text, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["any", "book_room", "ring", "wait", "Node"])
def test_required_calls_on_smollm2(smollm2: tuple[Any, Any], policy: Policy, choice: str) -> None:
    chat = ChatNCOGuard(model=smollm2[0], tokenizer=smollm2[1], guard=policy, max_tokens=96, temperature=0)
    offered = chat.bind_tools(TOOLS, tool_choice=choice)
    answers = [offered.invoke(QUESTION), sum_of(offered.stream(QUESTION))]
    for answer in answers:
        check_calls(policy, answer)
        assert without_ids(answer) == without_ids(answers[0])
    check_calls(policy, chat.bind_tools(TOOLS, strict=True).invoke(QUESTION), least=0)
