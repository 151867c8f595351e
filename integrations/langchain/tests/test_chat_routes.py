"""`ChatNCOGuard`: every route, what it gives verified; tool calls, messages, stops, caches, bad usage."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checks import check_message, check_stream, check_text, verify
from langchain_core.caches import InMemoryCache
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField
from langchain_huggingface import HuggingFacePipeline
from pydantic import BaseModel
from transformers import LogitsProcessor, StoppingCriteria

from langchain_nco_guard import ChatNCOGuard
from langchain_nco_guard._guards import joined
from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.demo import SYSTEM_PROMPT, TOOLS, model_path
from nco_guard.errors import UnsupportedError, ViolationError
from nco_guard.guards import seeing_through_json

ASK = "How can I reach Daniel Cohen?"


class lookup_order(BaseModel):
    """Look up an order."""

    order_id: str


def order(text: str) -> list[tuple[str, str]]:
    return [("system", SYSTEM_PROMPT), ("human", text)]


@pytest.fixture(scope="module")
def guard(policy: Policy) -> Guard:
    return Guard(policy)


@pytest.fixture(scope="module")
def chat(loaded: tuple[Any, Any], guard: Guard) -> ChatNCOGuard:
    return ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=guard, max_tokens=24, temperature=0)


def joined_text(chunks: list[Any], policy: Policy) -> str:
    full: AIMessageChunk | None = None
    for chunk in chunks:
        check_message(policy, chunk)
        full = chunk if full is None else full + chunk
        check_message(policy, full)
    assert full is not None
    return check_stream(policy, [chunk.text for chunk in chunks])


async def test_every_route_is_guarded(chat: ChatNCOGuard, policy: Policy, loaded: tuple[Any, Any]) -> None:
    bare = loaded[0].generate(
        **loaded[1].apply_chat_template(
            [{"role": "user", "content": ASK}],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        ),
        max_new_tokens=40,
    )
    assert not verify(policy, loaded[1].decode(bare[0], skip_special_tokens=True)).ok
    for model in (chat, chat.bind(max_tokens=20).with_config(tags=["t"]).with_retry()):
        first = check_message(policy, model.invoke(ASK)).text
        assert check_message(policy, await model.ainvoke(ASK)).text == first
        for answers in (model.batch([ASK, "Hello"]), await model.abatch([ASK, "Hello"])):
            assert check_message(policy, answers[0]).text == first
            check_message(policy, answers[1])
        assert joined_text(list(model.stream(ASK)), policy) == first
        assert joined_text([chunk async for chunk in model.astream(ASK)], policy) == first


async def test_events_of_both_versions_show_guarded_text_only(chat: ChatNCOGuard, policy: Policy) -> None:
    events = [event async for event in chat.astream_events(ASK, version="v2")]
    chunks = [event["data"]["chunk"] for event in events if event["event"] == "on_chat_model_stream"]
    assert joined_text(chunks, policy) == chat.invoke(ASK).text
    stream = chat.stream_events(ASK, version="v3")
    check_stream(policy, list(stream.text))
    assert check_message(policy, stream.output).text == chat.invoke(ASK).text


async def test_in_a_chain(chat: ChatNCOGuard, policy: Policy) -> None:
    chain = ChatPromptTemplate.from_messages([("human", "{question}")]) | chat | StrOutputParser()
    first = check_text(policy, chain.invoke({"question": ASK}))
    assert check_stream(policy, list(chain.stream({"question": ASK}))) == first
    assert check_stream(policy, [piece async for piece in chain.astream({"question": ASK})]) == first


def test_sampled_text_is_guarded_as_well(chat: ChatNCOGuard, policy: Policy) -> None:
    for answer in chat.batch([ASK] * 6, temperature=1.2, top_p=0.95):
        check_message(policy, answer)


async def test_a_call_may_have_its_own_policy_and_caches_tell(
    chat: ChatNCOGuard, policy: Policy, other_policy: Policy, cache: InMemoryCache
) -> None:
    first = check_message(policy, chat.invoke(ASK))
    second = chat.invoke(ASK, guard=other_policy)
    assert "Daniel" in first.text
    assert "Daniel" not in second.text
    assert second.response_metadata["policy_digest"] == other_policy.digest
    assert len(cache._cache) == 2
    assert chat.invoke(ASK).text == first.text
    assert chat.bind(guard=other_policy).invoke(ASK).text == second.text
    assert chat.model_copy(update={"guard": Guard(other_policy)}).invoke(ASK).text == second.text
    assert (await chat.ainvoke(ASK, guard=Guard(other_policy))).text == second.text
    assert "".join(chunk.text for chunk in chat.stream(ASK, guard=other_policy)) == second.text


@pytest.mark.parametrize("stop", ["reached", " or by", "@", "hed"])
async def test_stop_strings_are_left_out_and_the_text_may_end_there(
    chat: ChatNCOGuard, policy: Policy, stop: str
) -> None:
    whole = chat.invoke(ASK).text
    answer = check_message(policy, chat.invoke(ASK, stop=[stop]))
    expected = whole[: whole.index(stop)]
    # Before "hed" stands "reac"; had "reach" been cut out of "reached", it would be a match at its end.
    assert answer.text == expected
    assert answer.response_metadata["finish_reason"] == "stop"
    assert joined_text(list(chat.stream(ASK, stop=[stop])), policy) == expected
    assert joined_text([chunk async for chunk in chat.astream(ASK, stop=[stop])], policy) == expected
    own = chat.model_copy(update={"stop": [stop]})
    assert own.invoke(ASK).text == expected


def test_what_a_stop_string_would_complete_is_cut_back(chat: ChatNCOGuard, policy: Policy) -> None:
    """The word "reach" may not end the text, "reached" may; the stop string takes the rest of it away."""
    for answer in (
        chat.invoke(ASK, stop=["ed"]).text,
        joined_text(list(chat.stream(ASK, stop=["ed"])), policy),
    ):
        assert answer == "Daniel Cohen can be reac"
        check_text(policy, answer)


def test_token_counts_and_reasons(chat: ChatNCOGuard) -> None:
    answer = chat.invoke(ASK)
    assert answer.response_metadata["finish_reason"] == "length"
    assert answer.usage_metadata["output_tokens"] == 24
    chunks = list(chat.stream(ASK))
    assert chunks[-1].usage_metadata == answer.usage_metadata
    assert chunks[-1].response_metadata["finish_reason"] == "length"
    assert chat.get_num_tokens("Hello there") > 1


class After(StoppingCriteria):
    """Stops once a text has so many tokens, prompt included."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return torch.full((input_ids.shape[0],), input_ids.shape[1] >= self.length)


class NothingAfter(LogitsProcessor):
    """Leaves no token once a text has so many of them, prompt included."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, -torch.inf) if input_ids.shape[1] >= self.length else scores


def streamed_as_invoked(model: ChatNCOGuard, options: dict[str, Any]) -> str:
    """The finish reason; it, the text and the usage are the same on both routes."""
    whole = model.invoke(ASK, **options)
    full, *chunks = model.stream(ASK, **options)
    for chunk in chunks:
        full += chunk
    assert full.text == whole.text
    assert full.usage_metadata == whole.usage_metadata
    assert full.response_metadata == whole.response_metadata
    return str(full.response_metadata["finish_reason"])


def test_a_stream_says_why_it_ended_as_a_whole_answer_does(loaded: tuple[Any, Any]) -> None:
    # The model writes "312-55" in tokens of one digit: after "3" the text may not end.
    rules = (StringRule(id="digit", strings=("3",), whole_word=True),)
    guard = Guard(Policy(name="digits", rules=rules, on_dead_end="end"))
    chat = ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=guard, max_tokens=200, temperature=0)
    whole = chat.invoke(ASK)
    ids, usage = chat.tokenizer(whole.text, add_special_tokens=False)["input_ids"], whole.usage_metadata
    three = usage["input_tokens"] + ids.index(chat.tokenizer.convert_tokens_to_ids("3")) + 1
    # The last token is the end of the sequence, and the limit; without it the limit ends the text.
    for reason, options in {
        "stop": {"max_tokens": usage["output_tokens"]},
        "length": {"max_tokens": usage["output_tokens"] - 1},
        "trimmed": {"stopping_criteria": [After(three)]},
        "dead_end": {"logits_processor": [NothingAfter(three)]},
    }.items():
        assert streamed_as_invoked(chat, options) == reason


# -- tools -----------------------------------------------------------------------------------------------------


async def test_tool_calls_on_every_route(chat: ChatNCOGuard, policy: Policy) -> None:
    model = chat.bind_tools(TOOLS, max_tokens=48)
    messages = order("Look up order A-1042.")
    answers = [model.invoke(messages), await model.ainvoke(messages), model.batch([messages])[0]]
    for chunks in (list(model.stream(messages)), [chunk async for chunk in model.astream(messages)]):
        full = chunks[0]
        for chunk in chunks[1:]:
            full += chunk
        answers.append(full)
    for answer in answers:
        check_message(policy, answer)
        (call,) = answer.tool_calls
        assert (call["name"], call["args"]) == ("lookup_order", {"order_id": "A-1042"})
        assert call["id"]
        assert answer.text == ""
        assert answer.response_metadata["finish_reason"] == "tool_calls"


def test_arguments_are_guarded_while_they_are_written(loaded: tuple[Any, Any], chat: ChatNCOGuard) -> None:
    forbidden = Policy(name="ids", rules=(RegexRule(id="order", regex=r"A-\d{4}"),))
    model = chat.model_copy(update={"guard": Guard(forbidden)}).bind_tools(TOOLS)
    answer = check_message(forbidden, model.invoke(order("Look up order A-1042.")))
    assert "A-1042" not in str(answer)
    for chunk in model.stream(order("Look up order A-1042.")):
        check_message(forbidden, chunk)


@pytest.mark.parametrize(
    "choice", ["lookup_order", "any", True, "required", {"function": {"name": "lookup_order"}}]
)
def test_a_tool_choice_is_enforced(chat: ChatNCOGuard, choice: Any) -> None:
    tools = [tool for tool in TOOLS if tool["function"]["name"] == "lookup_order"]
    model = chat.model_copy(update={"max_tokens": 48}).bind_tools(tools, tool_choice=choice)
    answer = model.invoke(order("I am waiting for order B-2210."))
    assert [call["name"] for call in answer.tool_calls] == ["lookup_order"]
    assert answer.tool_calls[0]["args"] == {"order_id": "B-2210"}


def test_a_choice_that_comes_with_a_call_is_read_as_a_bound_one(chat: ChatNCOGuard) -> None:
    model = chat.bind_tools(TOOLS)
    answer = model.invoke(
        order("Look up order A-1042."), tool_choice={"function": {"name": "lookup_customer"}}
    )
    assert [call["name"] for call in (*answer.tool_calls, *answer.invalid_tool_calls)] == ["lookup_customer"]
    for choice, match in (("fly", "no such tool"), ({}, "no tool is named")):
        with pytest.raises(UnsupportedError, match=match):
            model.invoke("Hi", tool_choice=choice)
    with pytest.raises(UnsupportedError, match="no tools are given"):
        chat.invoke("Hi", tool_choice="any")


def test_of_several_tools_the_likelier_is_called(chat: ChatNCOGuard) -> None:
    model = chat.bind_tools(TOOLS, tool_choice="any")
    assert model.invoke(order("Look up order A-1042.")).tool_calls[0]["name"] == "lookup_order"
    assert model.invoke(order("Find the customer Maria Lopez.")).tool_calls[0]["name"] == "lookup_customer"


def test_no_tool_is_called_where_none_may_be(chat: ChatNCOGuard) -> None:
    assert chat.bind_tools(TOOLS, tool_choice="none").invoke(order("Look up order A-1042.")).tool_calls == []


def test_the_answer_to_a_tool_message_is_guarded(chat: ChatNCOGuard, policy: Policy) -> None:
    model = chat.bind_tools(TOOLS)
    question = [*order("How can I reach Maria Lopez?")]
    call = AIMessage(
        "",
        tool_calls=[
            {"name": "lookup_customer", "args": {"name": "Maria Lopez"}, "id": "1", "type": "tool_call"}
        ],
    )
    result = ToolMessage('{"name": "Maria Lopez", "phone": "312-555-0155"}', tool_call_id="1")
    answer = check_message(policy, model.invoke([*question, call, result]))
    assert answer.text


def test_structured_answers(chat: ChatNCOGuard) -> None:
    chat = chat.model_copy(update={"max_tokens": 48})
    structured = chat.with_structured_output(lookup_order, method="function_calling")
    assert structured.invoke(order("Look up order A-1042.")) == lookup_order(order_id="A-1042")
    structured = chat.with_structured_output(lookup_order, method="json_schema")
    assert isinstance(structured.invoke(order("Look up order A-1042.")), lookup_order)
    raw = chat.with_structured_output(lookup_order, include_raw=True).invoke(order("Look up order A-1042."))
    assert raw["parsed"] == lookup_order(order_id="A-1042")


def test_escapes_in_arguments_are_seen_through(policy: Policy) -> None:
    guard = seeing_through_json(Guard(policy))
    assert not guard.verify('{"to": "john\\u0040enron.com"}').ok
    assert not guard.verify('{"to": "john@enron.com"}').ok
    assert seeing_through_json(guard) is guard


def test_what_only_parsing_brings_out_is_an_error(chat: ChatNCOGuard) -> None:
    """4e15 is no run of digits as text, and is one to the tool."""
    digits = Guard(Policy(name="d", rules=(RegexRule(id="digits", regex=r"\d{15}"),)))
    call = chat._prepare([HumanMessage("x")], None, {"tools": TOOLS, "guard": digits})
    with pytest.raises(ViolationError, match="tool call, its JSON escapes read"):
        call.reading().whole(
            '<tool_call>{"name": "lookup_order", "arguments": {"order_id": 4e15}}</tool_call>'
        )


def test_text_that_a_tool_call_kept_apart_is_an_error(chat: ChatNCOGuard, policy: Policy) -> None:
    call = chat._prepare([HumanMessage("x")], None, {"tools": TOOLS})
    made = '<tool_call>{"name": "lookup_order", "arguments": {}}</tool_call>'
    with pytest.raises(ViolationError, match="'email'"):
        call.reading().whole(f"john@enr{made}on.com")


def test_broken_calls_are_invalid_ones(chat: ChatNCOGuard) -> None:
    call = chat._prepare([HumanMessage("x")], None, {"tools": TOOLS})
    for body in ("nonsense", '{"name": 3}', '{"name": "x", "arguments": []}', '{"name": "x"'):
        parsed = call.reading().whole(f"a<tool_call>{body}</tool_call>b")
        assert (parsed.content, len(parsed.invalid_calls), parsed.calls) == ("ab", 1, ())
    assert call.reading().whole('<tool_call>{"name": "x", "arguments": {').invalid_calls


def test_two_policies_join(policy: Policy, other_policy: Policy) -> None:
    one, two = Guard(policy), Guard(Policy(name="x", rules=(RegexRule(id="email", regex="zzz"),)))
    both = joined(one, two)
    assert [rule.id for rule in both.policy.rules] == ["email", "phone", "word", "email-2"]
    assert joined(one, Guard(policy)) is one
    assert joined(one, two) is both


# -- errors and bad usage --------------------------------------------------------------------------------------


class Broken(LogitsProcessor):  # type: ignore[misc]
    """A processor of the user's that fails after some tokens."""

    failed = 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if input_ids.shape[1] > 20:
            self.failed += 1
            raise ArithmeticError("broken")
        return scores


@pytest.mark.parametrize("route", ["invoke", "stream", "astream"])
async def test_an_error_in_decoding_arrives_as_it_is(chat: ChatNCOGuard, route: str) -> None:
    broken = Broken()
    model = chat.model_copy(update={"generation_kwargs": {"logits_processor": [broken]}})
    with pytest.raises(ArithmeticError, match="broken"):
        await take(model, route)
    assert broken.failed == 1


async def take(model: ChatNCOGuard, route: str) -> None:
    if route == "invoke":
        model.invoke(ASK)
    elif route == "stream":
        list(model.stream(ASK))
    else:
        async for _ in model.astream(ASK):
            pass


def test_a_path_a_pipeline_and_a_langchain_pipeline_do_as_well(
    policy: Policy, pipe: Any, chat: ChatNCOGuard
) -> None:
    expected = chat.invoke(ASK).text
    for model in (
        ChatNCOGuard(model=str(model_path()), guard=policy, max_tokens=24, temperature=0),
        ChatNCOGuard.from_pipeline(pipe, policy, max_tokens=24, temperature=0),
        ChatNCOGuard.from_pipeline(HuggingFacePipeline(pipeline=pipe), policy, max_tokens=24, temperature=0),
    ):
        assert model.invoke(ASK).text == expected
    half = ChatNCOGuard(model=model_path(), guard=policy, model_kwargs={"dtype": "bfloat16"})
    assert str(half.model.dtype) == "torch.bfloat16"
    chosen = half.configurable_fields(max_tokens=ConfigurableField("n"))
    made, _ = chosen.prepare({"configurable": {"n": 3}})  # made anew of the fields
    assert (made.model, made.max_tokens) == (half.model, 3)


def test_bad_usage_is_refused_at_construction(loaded: tuple[Any, Any], policy: Policy) -> None:
    model, tokenizer = loaded

    def build(**options: Any) -> ChatNCOGuard:
        return ChatNCOGuard(**{"model": model, "tokenizer": tokenizer, "guard": policy, **options})

    import copy

    mute = copy.deepcopy(tokenizer)
    mute.chat_template = None
    toolless = copy.deepcopy(tokenizer)
    toolless.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    grown = copy.deepcopy(tokenizer)
    grown.add_tokens([f"<extra{i}>" for i in range(50)])
    for options, error, match in (
        ({"tokenizer": None}, UnsupportedError, "without one"),
        ({"model_kwargs": {"dtype": "float32"}}, UnsupportedError, "model_kwargs: for loading"),
        ({"tokenizer": mute}, UnsupportedError, "no chat template"),
        ({"tokenizer": grown}, ValueError, "columns"),
        ({"model": object()}, UnsupportedError, "give a loaded transformers model"),
        ({"generation_kwargs": {"penalty_alpha": 0.6}}, UnsupportedError, "penalty_alpha"),
        ({"guard": 3}, TypeError, "a Guard, a Policy"),
        ({"no_such_field": 1}, ValueError, "no_such_field"),
        ({"max_tokens": 0}, ValueError, "max_tokens"),
    ):
        with pytest.raises(error, match=match):
            build(**options)
    with pytest.raises(
        UnsupportedError, match=r"not known how this model.*known are .*hermes.*reply_format="
    ):
        build(tokenizer=toolless).bind_tools(TOOLS)
    with pytest.raises(UnsupportedError, match="no such tool"):
        build().bind_tools(TOOLS, tool_choice="fly")


def test_content_that_is_no_text_is_refused(chat: ChatNCOGuard) -> None:
    with pytest.raises(UnsupportedError, match="image"):
        chat.invoke([HumanMessage([{"type": "image", "url": "https://example.com/x.png"}])])


def test_the_prompt_counts_where_a_rule_says_so(loaded: tuple[Any, Any]) -> None:
    continued = Policy(name="c", rules=(StringRule(id="s", strings=("Daniel",), context="prompt"),))
    model = ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=continued, max_tokens=12, temperature=0)
    for text in (
        model.invoke(ASK, stop=["zz"]).text,
        "".join(c.text for c in model.stream(ASK, stop=["zz"])),
    ):
        assert "Daniel" not in text
        assert text


def test_no_option_puts_another_guard_in_place_of_the_models_own(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    strict, lax = (Guard(Policy(name=one, rules=({"id": one, "regex": one},))) for one in ("[a-zA-Z]", "zzz"))
    chat = ChatNCOGuard(model=model, tokenizer=tokenizer, guard=strict, max_tokens=8)
    for name, value in (
        ("guards", [lax]),
        ("tables", None),
        ("skip_special_tokens", False),
        ("on_step", print),
    ):
        with pytest.raises(UnsupportedError, match=name):
            chat.invoke("hi", **{name: value})
        with pytest.raises(UnsupportedError, match=name):
            chat.bind(**{name: value}).invoke("hi")
        with pytest.raises(UnsupportedError, match=name):
            [*chat.stream("hi", **{name: value})]
        with pytest.raises(UnsupportedError, match=name):
            ChatNCOGuard(model=model, tokenizer=tokenizer, guard=strict, generation_kwargs={name: value})
        with pytest.raises(UnsupportedError, match=name):
            chat.model_copy(update={"generation_kwargs": {name: value}}).invoke("hi")
    with pytest.raises(UnsupportedError, match="guard"):
        ChatNCOGuard(model=model, tokenizer=tokenizer, guard=strict, generation_kwargs={"guard": lax})


@pytest.mark.parametrize(
    ("fields", "extra", "match"),
    [
        ({}, {"stop_strings": ["a"]}, "it is stop="),
        ({"max_tokens": 3}, {"max_new_tokens": 5}, "it is max_tokens="),
        ({"temperature": 0}, {"do_sample": True}, "it is temperature="),
        ({"temperature": 1}, {"temperature": 3.0}, "it is temperature="),
    ],
)
def test_an_option_is_given_once(
    loaded: tuple[Any, Any], policy: Policy, fields: dict[str, Any], extra: dict[str, Any], match: str
) -> None:
    model, tokenizer = loaded
    with pytest.raises(UnsupportedError, match=match):
        ChatNCOGuard(model=model, tokenizer=tokenizer, guard=policy, generation_kwargs=extra, **fields)


def test_none_in_a_call_is_the_models_own_setting(loaded: tuple[Any, Any], policy: Policy) -> None:
    chat = ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=policy, max_tokens=2, temperature=0)
    assert chat.invoke("hi", max_tokens=None, temperature=None).text == chat.invoke("hi").text
    with pytest.raises(UnsupportedError, match=r"stop=\[\.\.\.\]"):
        chat.invoke("hi", stop_strings=["a"])
