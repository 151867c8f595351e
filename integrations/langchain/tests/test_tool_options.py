"""What `bind_tools` takes: choices of tools, several calls or one, `strict`; what is not known is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from checks import check_message
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import StructuredTool

from langchain_nco_guard import ChatNCOGuard
from nco_guard import Policy
from nco_guard.demo import SYSTEM_PROMPT, TOOLS
from nco_guard.errors import ArgumentError, UnsupportedError

ORDER = [SystemMessage(SYSTEM_PROMPT), HumanMessage("Look up order A-1042.")]
GREETING = [SystemMessage(SYSTEM_PROMPT), HumanMessage("Hello")]
TWO = (
    '<tool_call>{"name": "lookup_order", "arguments": {"order_id": "A-1"}}</tool_call>'
    '<tool_call>{"name": "lookup_customer", "arguments": {"name": "Maria"}}</tool_call>'
)


LISTED = StructuredTool.from_function(lambda name: name, name="find", description="Find.")


class Drawn:
    """Draws a model to a text, however it would go on."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self._ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        self._begin = -1

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if self._begin < 0:
            self._begin = input_ids.shape[1]
        scores[:, self._ids[min(input_ids.shape[1] - self._begin, len(self._ids) - 1)]] += 1e4
        return scores


def every_route(model: Any, messages: Any) -> list[AIMessage]:
    chunks = list(model.stream(messages))
    full = chunks[0]
    for chunk in chunks[1:]:
        full += chunk
    return [model.invoke(messages), full]


def names_of(answer: AIMessage) -> list[str | None]:
    """Calls that could be read and calls that could not: a form that is kept says nothing of the model's wit."""
    begun = [str(call["args"]) for call in answer.invalid_tool_calls]
    return [call["name"] for call in answer.tool_calls] + [
        name for text in begun for name in ("lookup_order", "lookup_customer") if f'"{name}"' in text
    ]


@pytest.mark.parametrize(
    "choice",
    [
        "any",
        "required",
        True,
        {"type": "any"},
        "lookup_customer",
        {"type": "function", "function": {"name": "lookup_customer"}},
        {"type": "tool", "name": "lookup_customer"},
    ],
    ids=str,
)
def test_a_required_call_is_begun_whatever_is_asked(local: Any, policy: Policy, choice: Any) -> None:
    for answer in every_route(local(policy).bind_tools(TOOLS, tool_choice=choice), GREETING):
        check_message(policy, answer)
        (name,) = names_of(answer)
        assert name == "lookup_customer" or choice in ("any", "required", True, {"type": "any"})


@pytest.mark.parametrize("choice", [None, False, "auto", {"type": "auto"}], ids=str)
def test_as_the_model_likes_it_calls_or_talks(local: Any, choice: Any) -> None:
    model = local().bind_tools(TOOLS, tool_choice=choice)
    for answer in every_route(model, ORDER):
        assert names_of(answer) == ["lookup_order"]
    for answer in every_route(model, GREETING):
        assert names_of(answer) == []
        assert answer.text


@pytest.mark.parametrize("choice", ["none", {"type": "none"}], ids=str)
def test_where_no_call_may_be_there_is_none(local: Any, choice: Any) -> None:
    for answer in every_route(local().bind_tools(TOOLS, tool_choice=choice), ORDER):
        assert names_of(answer) == []
        assert answer.text


@pytest.mark.parametrize(("several", "count"), [(None, 2), (True, 2), (False, 1)])
def test_of_several_calls_one_counts_where_that_is_asked_for(
    local: Any, loaded: tuple[Any, Any], several: bool | None, count: int
) -> None:
    model = local(max_tokens=80).bind_tools(TOOLS, parallel_tool_calls=several)
    for stream in (False, True):
        drawn = model.bind(logits_processor=[Drawn(loaded[1], TWO)])
        answer = drawn.invoke(ORDER) if not stream else sum_of(drawn.stream(ORDER))
        assert names_of(answer) == ["lookup_order", "lookup_customer"][:count]
        assert answer.tool_calls[0]["args"] == {"order_id": "A-1"}
        assert answer.invalid_tool_calls == []


def sum_of(chunks: Any) -> Any:
    first, *rest = chunks
    for chunk in rest:
        first += chunk
    return first


def test_several_calls_can_be_decided_with_the_call(local: Any, loaded: tuple[Any, Any]) -> None:
    model = local(max_tokens=80).bind_tools(TOOLS)
    options = {"logits_processor": [Drawn(loaded[1], TWO)], "parallel_tool_calls": False}
    assert names_of(model.invoke(ORDER, **options)) == ["lookup_order"]


@pytest.mark.parametrize("strict", [None, True, False])
def test_strict_is_taken_and_changes_no_answer(local: Any, strict: bool | None) -> None:
    said = local().bind_tools(TOOLS, strict=strict).invoke(ORDER).tool_calls[0]["args"]
    assert said == {"order_id": "A-1042"}


@pytest.mark.parametrize(
    ("tools", "options", "error", "match"),
    [
        (TOOLS, {"tool_choice": "fly"}, UnsupportedError, "tool_choice 'fly'"),
        (TOOLS, {"tool_choice": 3}, UnsupportedError, "tool_choice 3"),
        (TOOLS, {"tool_choice": {"type": "custom"}}, UnsupportedError, r"tool_choice\['type'\] 'custom'"),
        ([], {"tool_choice": "any"}, UnsupportedError, "tool_choice: a tool call is required"),
        (TOOLS, {"strict": "yes"}, ArgumentError, "strict: True or False"),
        (TOOLS, {"parallel_tool_calls": 1}, ArgumentError, "parallel_tool_calls: True or False"),
        (TOOLS, {"flavour": "sweet"}, UnsupportedError, "flavour: "),
        (TOOLS, {"seed": 1}, UnsupportedError, "seed: "),
        (TOOLS, {"max_tokens": "many"}, UnsupportedError, "max_tokens: "),
        ([{"type": "web_search"}], {}, UnsupportedError, r"tools\[0\]: a tool of type 'web_search'"),
        (None, {}, UnsupportedError, "tools: give a list of tools, not a NoneType"),
        (LISTED, {}, UnsupportedError, "tools: give a list of tools, not a StructuredTool"),
        (
            [*TOOLS, {"name": "lookup_order"}],
            {},
            UnsupportedError,
            rf"tools\[{len(TOOLS)}\]: another tool before",
        ),
        ([*TOOLS, 3], {}, UnsupportedError, rf"tools\[{len(TOOLS)}\]: a int that LangChain cannot describe"),
    ],
)
def test_what_is_not_known_is_refused_when_it_is_bound(
    local: Any, tools: Any, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    chat: ChatNCOGuard = local()
    with pytest.raises(error, match=f"^{match}"):
        chat.bind_tools(tools, **options)
    if tools is TOOLS:
        with pytest.raises(error, match=f"^{match}"):
            chat.bind(tools=TOOLS, **options).invoke(ORDER)


def test_options_of_a_call_can_be_bound_with_tools(local: Any, policy: Policy) -> None:
    chat: BaseChatModel = local()
    short = chat.bind_tools(TOOLS, max_tokens=2, stop=["zz"], guard=policy).invoke(ORDER)
    assert check_message(policy, short).usage_metadata["output_tokens"] == 2
