"""`ChatNCOGuard`: reasoning as a content block of its own, calls that cannot be read, formats that are given."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from test_prompts_read import Writes

from langchain_nco_guard import ChatNCOGuard
from nco_guard import Guard, Policy, StringRule
from nco_guard.demo import TOOLS
from nco_guard.errors import ArgumentValueError, DeadEndError, UnsupportedError
from nco_guard.policy import AppliesTo
from nco_guard.replies import shipped_formats

CALL = '<tool_call>{"name": "lookup_order", "arguments": {"order_id": "K-1"}}</tool_call>'
GUARD = Guard(Policy(name="word", rules=[StringRule(id="word", strings=["Bluebird"])]))


def chat(loaded: tuple[Any, Any], text: str, **options: Any) -> Any:
    model, tokenizer = loaded
    steer = {"logits_processor": [Writes(tokenizer, text)], "max_new_tokens": 200}
    return ChatNCOGuard(
        model=model, tokenizer=tokenizer, **{"guard": GUARD, "generation_kwargs": steer, **options}
    )


def streamed(model: Any) -> AIMessageChunk:
    whole: AIMessageChunk | None = None
    for chunk in model.stream("Hello"):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    return whole


def blocks(message: AIMessage) -> list[Any]:
    """What is said in the blocks; ids differ from call to call, and places are those of a stream."""
    return [
        {name: value for name, value in block.items() if name not in ("id", "index", "extras")}
        for block in message.content_blocks
    ]


@pytest.mark.parametrize("given", [None, "hermes-line"])
async def test_reasoning_is_a_block_of_its_own_streamed_too(loaded: tuple[Any, Any], given: Any) -> None:
    said = f"<think>Hm. An order.</think>Let me see.{CALL}"
    wanted: list[Any] = [
        {"type": "reasoning", "reasoning": "Hm. An order."},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_call", "name": "lookup_order", "args": {"order_id": "K-1"}},
    ]

    def made() -> Any:
        return chat(loaded, said, reply_format=given).bind_tools(TOOLS)

    for message in (made().invoke("Hello"), streamed(made()), await made().ainvoke("Hello")):
        assert message.text == "Let me see."
        assert blocks(message) == wanted
    # Without tools on offer a call is text, and what is reasoned is none all the same.
    for message in (chat(loaded, said).invoke("Hello"), streamed(chat(loaded, said))):
        assert (message.text, blocks(message)[0]) == (f"Let me see.{CALL}", wanted[0])
    assert (chat(loaded, said) | StrOutputParser()).invoke("Hello") == f"Let me see.{CALL}"
    assert chat(loaded, said).profile["reasoning_output"] is True


def test_a_reply_without_reasoning_is_plain_text(loaded: tuple[Any, Any]) -> None:
    for message in (chat(loaded, "Hello.").invoke("Hello"), streamed(chat(loaded, "Hello."))):
        assert message.content == "Hello."


@pytest.mark.parametrize(
    "said",
    [
        "A<think>b</think>c",
        "A<think>b</think>",
        "<think>a</think>B<think>c</think><think>d</think>e",
        f"A{CALL}B<think>c</think>{CALL}D",
        "A<tool_call>no</tool_call>B<think>c</think>D",
    ],
)
def test_what_is_streamed_is_in_the_order_of_what_is_whole(loaded: tuple[Any, Any], said: str) -> None:
    whole = chat(loaded, said).bind_tools(TOOLS).invoke("Hello")
    pieces = streamed(chat(loaded, said).bind_tools(TOOLS))
    assert blocks(pieces) == blocks(whole)
    kept = re.sub(r"<tool_call>.*?</tool_call>", "", said)
    spoken = [part for part in re.split(r"</?think>", kept) if part]
    told = [block.get("text") or block.get("reasoning") for block in blocks(whole)]
    told = [text for text in told if text]
    assert "".join(told) == "".join(spoken)
    assert whole.text == "".join(re.sub(r"<think>.*?</think>", "", kept))
    assert len(whole.invalid_tool_calls) == said.count("no</tool")


def test_reasoning_is_guarded(loaded: tuple[Any, Any]) -> None:
    message = (
        chat(loaded, "x").model_copy(update={"generation_kwargs": {"max_new_tokens": 8}}).invoke("Hello")
    )
    assert GUARD.verify(message.text).ok
    # What is put together of its pieces is masked, and nothing else is left to write here.
    with pytest.raises(DeadEndError):
        chat(loaded, "<think>Blue</think>x<think>bird</think>").invoke("Hello")


@pytest.mark.parametrize("kind", ["free", "hidden"])
def test_a_policy_says_whether_reasoning_is_looked_at_and_shown(loaded: tuple[Any, Any], kind: Any) -> None:
    guard = Guard(GUARD.policy.model_copy(update={"applies_to": AppliesTo(reasoning=kind)}))
    told = [{"type": "reasoning", "reasoning": "Bluebird."}] if kind == "free" else []
    model = chat(loaded, "<think>Bluebird.</think>Yes.", guard=guard)
    for message in (
        model.invoke("Hello"),
        streamed(chat(loaded, "<think>Bluebird.</think>Yes.", guard=guard)),
    ):
        assert blocks(message) == [*told, {"type": "text", "text": "Yes."}]
        assert ("Bluebird" in repr(message)) == (kind == "free")
    with pytest.raises(DeadEndError):
        chat(loaded, "Blue<think>x</think>bird", guard=guard).invoke("Hello")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("free", None, "guarded"),
        (None, "free", "guarded"),
        ("free", "guarded", "guarded"),
        ("free", "free", "free"),
        ("free", "hidden", "hidden"),
        ("hidden", None, "hidden"),
        (None, "hidden", "hidden"),
    ],
)
def test_two_guards_together_leave_free_what_both_do(
    loaded: tuple[Any, Any], one: Any, other: Any, both: str
) -> None:
    def guard(kind: Any, word: str) -> Guard:
        applied = None if kind is None else AppliesTo(reasoning=kind)
        rules = [StringRule(id=word.lower(), strings=[word])]
        return Guard(Policy(name="one", rules=rules, applies_to=applied))

    said = "<think>Bluebird.</think>Yes."
    for words in (("Redbird", "Bluebird"), ("Bluebird", "Redbird")):
        model = chat(loaded, said, guard=guard(one, words[0])).with_further_guard(guard(other, words[1]))
        if both == "guarded":
            with pytest.raises(DeadEndError):
                model.invoke("Hello")
        else:
            shown = [{"type": "reasoning", "reasoning": "Bluebird."}] if both == "free" else []
            assert blocks(model.invoke("Hello")) == [*shown, {"type": "text", "text": "Yes."}]


def test_a_call_that_cannot_be_read_is_told_with_its_text(loaded: tuple[Any, Any]) -> None:
    said = '<tool_call>{"name": "lookup_order", "arguments": {"order_id": "K-1"</tool_call>'
    for model in (chat(loaded, said).bind_tools(TOOLS), chat(loaded, said[:-12]).bind_tools(TOOLS)):
        for message in (model.invoke("Hello"), streamed(chat(loaded, said).bind_tools(TOOLS))):
            (call,) = message.invalid_tool_calls
            assert said.startswith(call["args"])
            assert call["error"] in (
                "the call is not JSON with name and arguments",
                "the call is not finished",
            )
            assert message.text == ""


def test_what_was_reasoned_goes_back_through_the_template(loaded: tuple[Any, Any]) -> None:
    import copy

    model, tokenizer = loaded
    thinks = copy.deepcopy(tokenizer)
    thinks.chat_template = (
        '{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }}|{% endfor %}<tool_call>{#"name"#}'
    )
    made = ChatNCOGuard(model=model, tokenizer=thinks, guard=GUARD, max_tokens=2)
    answered = AIMessage([{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "Yes."}])
    call = made._prepare([HumanMessage("So?"), answered], None, {})
    assert "Hm.|Yes.|" in tokenizer.decode(call.inputs["input_ids"][0])


def test_formats_that_are_given_wrongly_are_refused(loaded: tuple[Any, Any]) -> None:
    with pytest.raises(ArgumentValueError, match="'hermse' is not known; known are"):
        chat(loaded, "x", reply_format="hermse")
    entry = shipped_formats()["hermes-line"].model_dump(mode="json")
    with pytest.raises(ArgumentValueError, match=r"reply_format: call\.after_name: Field required"):
        chat(loaded, "x", reply_format={**entry, "call": {"open": "<"}})
    reads = chat(loaded, CALL, reply_format={**entry, "name": "own", "call": None})
    assert reads.bind_tools(TOOLS).invoke("Hello").tool_calls[0]["name"] == "lookup_order"
    with pytest.raises(UnsupportedError, match="own does not say how calls are written"):
        reads.bind_tools(TOOLS, tool_choice="any")
    assert reads._identifying_params != chat(loaded, CALL)._identifying_params


def test_reasoning_that_cannot_be_told_apart_is_not_said_to_be_hidden(loaded: tuple[Any, Any]) -> None:
    import copy

    from transformers import pipeline

    from langchain_nco_guard import GuardedPipeline

    hides = Guard(GUARD.policy.model_copy(update={"applies_to": AppliesTo(reasoning="hidden")}))
    said = r"applies_to\.reasoning: 'hidden' of the policy 'word': .*"
    with pytest.raises(UnsupportedError, match=said + "the format smollm2 has none; pass a format"):
        chat(loaded, "x", guard=hides, reply_format="smollm2")
    model, tokenizer = loaded
    unknown = copy.deepcopy(tokenizer)
    unknown.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(UnsupportedError, match=said + "not known; pass a format"):
        chat((model, unknown), "x", guard=hides)
    known = chat((model, unknown), "<think>Bluebird.</think>Yes.", guard=hides, reply_format="hermes-line")
    assert blocks(known.invoke("Hello")) == [{"type": "text", "text": "Yes."}]
    with pytest.raises(UnsupportedError, match=said + "not known; pass a format"):
        chat((model, unknown), "x").invoke("Hello", guard=hides)
    pipe = pipeline("text-generation", model=model, tokenizer=tokenizer)
    with pytest.raises(UnsupportedError, match=said + "use ChatNCOGuard"):
        GuardedPipeline(pipeline=pipe, guard=hides)
    with pytest.raises(UnsupportedError, match=said + "use ChatNCOGuard"):
        GuardedPipeline(pipeline=pipe, guard=GUARD).invoke("Hello", guard=hides)
    # Free reasoning is guarded where it is not told apart.
    free = Guard(GUARD.policy.model_copy(update={"applies_to": AppliesTo(reasoning="free")}))
    with pytest.raises(DeadEndError):
        chat((model, unknown), "<think>Bluebird.</think>Yes.", guard=free).invoke("Hello")


def test_a_reply_of_a_shape_has_no_reasoning_to_hide(loaded: tuple[Any, Any]) -> None:
    hides = Guard(GUARD.policy.model_copy(update={"applies_to": AppliesTo(reasoning="hidden")}))
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "boolean"}}}
    assert chat(loaded, "true", guard=hides).invoke("Hello", response_format=schema).text in ("true", "false")
