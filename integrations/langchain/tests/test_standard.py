"""LangChain's own standard tests, with the model that ships.

The model knows three tools and the letters of a support desk. Where a standard test ends in a value that it cannot
find, the form of its answer is looked at here, and the same steps are taken with a tool that it was taught.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from checks import check_message
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests
from langchain_tests.unit_tests.chat_models import ChatModelTests
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_nco_guard import ChatNCOGuard
from nco_guard import Guard, Policy
from nco_guard.demo import SYSTEM_PROMPT

PUT = [SystemMessage(SYSTEM_PROMPT), HumanMessage("Look up order A-1042.")]


@tool
def lookup_order(order_id: str) -> str:
    """Look up an order."""
    return '{"order_id": "A-1042", "status": "shipped", "carrier": "DHL"}'


class Params:
    """What both classes of standard tests are to be run with."""

    given: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True, scope="class")
    def _given(self, loaded: tuple[Any, Any], policy: Policy) -> None:
        Params.given |= {"model": loaded[0], "tokenizer": loaded[1], "guard": Guard(policy)}

    @property
    def chat_model_class(self) -> type[ChatNCOGuard]:
        return ChatNCOGuard

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return self.given

    @property
    def supports_json_mode(self) -> bool:
        return True


class TestUnit(Params, ChatModelUnitTests):
    """Whole."""


# What ends in a value that only wit finds, by name, and nothing else; what stands in for it below looks at its form.
LEFT_OUT = {
    "test_tool_calling": "finds the 3 in a question, for a tool that the model was never taught",
    "test_tool_calling_async": "the same",
    "test_agent_loop": "calls a tool that the model was never taught, which nobody requires",
    "test_unicode_tool_call_integration": "copies Chinese names, whose characters the model was never shown",
}


class TestIntegration(Params, ChatModelIntegrationTests):
    """All that the model claims: tools, tool choice, structured output, usage, streams, both versions of events."""


class TestForm(Params, ChatModelTests):
    """The form of what was left out, with the same tools: a call of the tool, with arguments of the right types."""

    @pytest.mark.parametrize("model", [{}, {"output_version": "v1"}], indirect=True)
    @pytest.mark.parametrize("choice", ["any", "magic_function"])
    async def test_form_of_a_required_call(self, model: BaseChatModel, choice: str) -> None:
        @tool
        def magic_function(input: int) -> int:
            """Apply a magic function to an input."""
            return input + 2

        question = "What is the value of magic_function(3)? Use the tool."
        offered = model.bind_tools([magic_function], tool_choice=choice)
        for answer in (
            offered.invoke(question),
            await offered.ainvoke(question),
            sum_of(offered.stream(question)),
        ):
            (call,) = answer.tool_calls
            assert call["name"] == "magic_function"
            assert list(call["args"]) == ["input"]
            assert type(call["args"]["input"]) is int
            assert any(block["type"] == "tool_call" for block in answer.content_blocks)

    def test_form_of_an_answer_that_may_call(self, model: BaseChatModel, policy: Policy) -> None:
        @tool
        def get_weather(location: str) -> str:
            """Get the weather at a location."""
            return "It's sunny."

        offered = model.bind_tools([get_weather])
        talk: list[Any] = [HumanMessage("What is the weather in San Francisco, CA?")]
        talk.append(check_message(policy, offered.invoke(talk)))
        talk += [get_weather.invoke(call) for call in talk[-1].tool_calls]
        answer = check_message(policy, offered.invoke(talk))
        assert isinstance(answer, AIMessage)
        assert answer.response_metadata["finish_reason"] in ("stop", "length", "tool_calls")

    @pytest.mark.parametrize("name", ["\u4f60\u597d\u554a\u96c6\u56e2", "\u682a\u5f0f\u4f1a\u793e"])
    def test_form_of_a_call_about_names_in_other_scripts(self, model: BaseChatModel, name: str) -> None:
        @tool
        def unicode_customer(customer_name: str, description: str) -> str:
            """Create a customer."""
            return customer_name

        offered = model.bind_tools([unicode_customer], tool_choice="any")
        said = offered.invoke(f"Create a customer named '{name}' - 这是一个客户")
        assert isinstance(said, AIMessage)
        assert said.invalid_tool_calls == []
        for call in said.tool_calls:
            assert call["name"] == "unicode_customer"
            assert [*call["args"]] == ["customer_name", "description"]
            assert all(type(value) is str for value in call["args"].values())
        assert said.tool_calls


def sum_of(chunks: Any) -> Any:
    first, *rest = chunks
    for chunk in rest:
        first += chunk
    return first


class TestTaughtTools(Params, ChatModelTests):
    """The steps of what was left out, with a tool that the model was taught."""

    @staticmethod
    def _is_the_call(message: AIMessage) -> bool:
        (call,) = message.tool_calls
        assert call["type"] == "tool_call"
        assert call["id"]
        assert (message.tool_calls[0]["name"], call["args"]) == ("lookup_order", {"order_id": "A-1042"})
        return any(block["type"] == "tool_call" for block in message.content_blocks)

    @pytest.mark.parametrize("model", [{}, {"output_version": "v1"}], indirect=True)
    def test_taught_tool_calling(self, model: BaseChatModel) -> None:
        offered = model.bind_tools([lookup_order])
        assert self._is_the_call(offered.invoke(PUT))
        full: Any = None
        for chunk in offered.stream(PUT):
            full = chunk if full is None else full + chunk
        assert self._is_the_call(full)

    async def test_taught_tool_calling_async(self, model: BaseChatModel) -> None:
        offered = model.bind_tools([lookup_order])
        assert self._is_the_call(await offered.ainvoke(PUT))
        full: Any = None
        async for chunk in offered.astream(PUT):
            full = chunk if full is None else full + chunk
        assert self._is_the_call(full)

    def test_taught_tool_choice(self, model: BaseChatModel) -> None:
        @tool
        def lookup_customer(name: str) -> str:
            """Look up a customer."""
            return name

        for choice in ("any", "lookup_order"):
            offered = model.bind_tools([lookup_customer, lookup_order], tool_choice=choice)
            assert self._is_the_call(offered.invoke(PUT))

    @pytest.mark.parametrize("model", [{}, {"output_version": "v1"}], indirect=True)
    def test_taught_agent_loop(self, model: BaseChatModel, policy: Policy) -> None:
        offered = model.bind_tools([lookup_order])
        call = offered.invoke(PUT)
        assert self._is_the_call(call)
        result = lookup_order.invoke(call.tool_calls[0])
        assert isinstance(result, ToolMessage)
        answer = offered.invoke([*PUT, call, result])
        assert isinstance(answer, AIMessage)
        assert "shipped" in check_message(policy, answer).text
        assert answer.tool_calls == []

    @pytest.mark.parametrize("schema_type", ["pydantic", "typeddict", "json_schema"])
    def test_taught_structured_output(self, model: BaseChatModel, schema_type: str) -> None:
        chat, expected = structured(model, schema_type)
        assert chat.invoke(PUT) == expected
        assert list(chat.stream(PUT))[-1] == expected

    @pytest.mark.parametrize("schema_type", ["pydantic", "typeddict", "json_schema"])
    async def test_taught_structured_output_async(self, model: BaseChatModel, schema_type: str) -> None:
        chat, expected = structured(model, schema_type)
        assert await chat.ainvoke(PUT) == expected
        assert [part async for part in chat.astream(PUT)][-1] == expected

    def test_taught_structured_output_pydantic_2_v1(self, model: BaseChatModel) -> None:
        from pydantic.v1 import BaseModel as BaseModelV1

        schema = type(
            "lookup_order", (BaseModelV1,), {"__annotations__": {"order_id": str}, "__doc__": "Look up."}
        )
        assert model.with_structured_output(schema).invoke(PUT) == schema(order_id="A-1042")

    def test_taught_structured_output_optional_param(self, model: BaseChatModel) -> None:
        class Looked(BaseModel):
            """Look up an order."""

            order_id: str
            note: str | None = None

        Looked.__name__ = "lookup_order"
        assert model.with_structured_output(Looked).invoke(PUT) == Looked(order_id="A-1042")


def structured(model: BaseChatModel, schema_type: str) -> tuple[Any, Any]:
    """The schema of a tool that the model knows, in one of the forms that LangChain takes."""

    class Order(BaseModel):
        """Look up an order."""

        order_id: str

    Order.__name__ = "lookup_order"
    typed = TypedDict("lookup_order", {"order_id": str})  # noqa: UP013
    typed.__doc__ = "Look up an order."
    json_schema = {**Order.model_json_schema(), "title": "lookup_order", "description": "Look up an order."}
    schema = {"pydantic": Order, "typeddict": typed, "json_schema": json_schema}[schema_type]
    expected = Order(order_id="A-1042") if schema_type == "pydantic" else {"order_id": "A-1042"}
    return model.with_structured_output(schema), expected
