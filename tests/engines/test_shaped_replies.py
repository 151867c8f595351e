"""Replies of a shape: the same on every route, marks in them being text; what cannot be had is said first."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
import torch
from pydantic import BaseModel

from nco_guard import Guard, Policy, RegexRule, Shape, demo
from nco_guard.engines.hf.inputs import encode_text, render_chat
from nco_guard.engines.hf.reply_calls import Reply, ReplyCall
from nco_guard.errors import ArgumentError, ContradictionError, DeadEndError, ShapeError, UnsupportedError
from nco_guard.replies import shipped_formats
from nco_guard.replies.parser import REASONING, region_at_end
from nco_guard.replies.writing import begun_answer, written_reply
from nco_guard.testing import biased_model, tiny_tokenizer

FORM = shipped_formats()["hermes-line"]
GUARD = Guard(
    Policy(name="p", rules=[RegexRule(id="mail", regex=r"\w@\w"), RegexRule(id="low", regex=r"\blow\b")])
)
TICKET = {
    "type": "object",
    "properties": {
        "subject": {"type": "string", "maxLength": 30},
        "priority": {"enum": ["low", "high"]},
        "mail": {"type": "string", "maxLength": 30},
    },
    "required": ["subject", "priority", "mail"],
}


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    torch.set_num_threads(1)
    return demo.load()


def call_of(loaded: tuple[Any, Any], **options: Any) -> ReplyCall[Any]:
    model, tokenizer = loaded
    prompt = render_chat(tokenizer, [{"role": "user", "content": "A ticket from jo@example.com, as JSON."}])
    prompt += options.pop("opened", "")
    given = {"max_new_tokens": 60, "do_sample": False, **options.pop("options", {})}
    guard = options.pop("guard", GUARD)
    options = {"form": FORM, "shape": TICKET, **options}
    return ReplyCall(guard, model, tokenizer, encode_text(tokenizer, model, prompt), given, **options)


def routes(make: Callable[[], ReplyCall[Any]]) -> Iterator[Reply]:
    async def asynchronous() -> tuple[Reply, list[Reply]]:
        return await make().arun(), [reply async for reply in make().astream()]

    whole, last = asyncio.run(asynchronous())
    yield from (make().run(), whole)
    for replies in ([*make().stream()], last):
        assert "".join(reply.delta for reply in replies) == replies[-1].content
        yield replies[-1]


def test_a_reply_is_of_the_shape_on_every_route(loaded: Any) -> None:
    found = list(routes(lambda: call_of(loaded)))
    assert len({reply.content for reply in found}) == 1
    for reply in found:
        value = json.loads(reply.content)
        jsonschema.validate(value, TICKET)
        assert value["priority"] == "high"
        assert not any(re.search(rule.regex, reply.content) for rule in GUARD.policy.rules)  # type: ignore[union-attr]
        assert (reply.calls, reply.invalid_calls, reply.reasoning) == ((), (), "")


@pytest.mark.parametrize(
    "options", [{"num_return_sequences": 3, "do_sample": True}, {"num_beams": 3}, {"tables": "auto"}], ids=str
)
def test_so_are_several_replies_and_those_of_beams(loaded: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    replies = call_of(loaded, options=options).answers()
    assert len(replies) == options.get("num_return_sequences", 1)
    for reply in replies:
        jsonschema.validate(json.loads(reply.content), TICKET)


def test_marks_in_it_are_text(loaded: Any) -> None:
    text = '<think>so</think><tool_call>{"name": "find", "arguments": {}}</tool_call>'
    for reply in routes(lambda: call_of(loaded, shape=Shape.regex(re.escape(text)))):
        assert reply.content == text
        assert not reply.calls
        assert not reply.reasoning


class Answer(BaseModel):
    ok: bool


def test_classes_and_grammars_are_shapes_too(loaded: Any) -> None:
    Answer.model_validate_json(call_of(loaded, shape=Answer).run().content)
    assert call_of(loaded, shape=Shape.lark('start: "low" | "slow"')).run().content == "slow"


def test_without_time_there_is_an_error_and_no_half_reply(loaded: Any) -> None:
    with pytest.raises(DeadEndError):
        call_of(loaded, options={"max_new_tokens": 3}).run()
    with pytest.raises(DeadEndError):
        list(call_of(loaded, options={"max_new_tokens": 3}).stream())


def test_reasoning_that_the_prompt_opened_is_closed_first(loaded: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"shape: .*begun_answer"):
        call_of(loaded, opened="<think>")
    closing = begun_answer(FORM, "<|assistant|><think>")
    jsonschema.validate(json.loads(call_of(loaded, opened="<think>" + closing).run().content), TICKET)


@pytest.mark.parametrize("name", shipped_formats())
def test_what_a_prompt_goes_on_with_is_what_text_begins_with(name: str) -> None:
    form = shipped_formats()[name]
    assert written_reply(form, "So.") == form.answer + "So."
    for example in form.examples:
        if example.content and not (example.reasoning or example.calls) and example.prefix:
            prompt = example.prefix + begun_answer(form, example.prefix)
            assert region_at_end(form, prompt) != REASONING
            assert begun_answer(form, prompt) == ""
            if form.answer in example.text:
                assert (example.prefix + example.text).startswith(prompt)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": [{"name": "find"}]}, "tools: .*leave tools or shape out"),
        ({"requires_call": True}, "requires_call"),
        ({"stop": ("x",)}, "stop: .*leave stop or shape out"),
        ({"options": {"when_blocked": "rewind"}}, "when_blocked='mask'"),
        ({"options": {"rewind": {"back_to": "match"}}}, "when_blocked='mask'"),
        (
            {"guard": Guard(Policy(name="r", when_blocked="rewind", rules=GUARD.policy.rules))},
            "when_blocked='mask'",
        ),
        ({"options": {"tables": "device"}}, "tables='host'"),
    ],
    ids=["tools", "required", "stop", "rewind", "settings", "policy", "device"],
)
def test_what_cannot_be_had_with_a_shape_is_said_before_anything_runs(
    loaded: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UnsupportedError, match=said):
        call_of(loaded, **options)


def test_so_are_what_is_no_shape_and_what_the_policy_forbids(loaded: Any) -> None:
    with pytest.raises(ArgumentError, match="shape: list is none"):
        call_of(loaded, shape=[])
    with pytest.raises(ShapeError, match="colour"):
        call_of(loaded, shape={"type": "string", "format": "colour"})
    with pytest.raises(ContradictionError) as found:
        call_of(loaded, shape={"type": "object", "properties": {"a": {"const": "low"}}, "required": ["a"]})
    assert (found.value.place, found.value.rule_ids[0]) == ("#/properties/a", "low")
    with pytest.raises(ShapeError, match="no text of this shape"):
        call_of(loaded, shape=Shape.regex("a@b"))


def test_a_bound_guard_and_a_tokenizer_that_rewrites_are_refused(loaded: Any) -> None:
    bound = GUARD.bind(loaded[1])
    with pytest.raises(UnsupportedError, match="not yet bound"):
        call_of(loaded, guard=bound)
    tokenizer = tiny_tokenizer("wordpiece")
    inputs = encode_text(tokenizer, loaded[0], "hello")
    with pytest.raises(ShapeError, match="rewrites text"):
        ReplyCall(GUARD, biased_model(tokenizer, "a"), tokenizer, inputs, {}, shape=TICKET)
