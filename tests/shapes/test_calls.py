"""Calls of tools as shapes: what an entry writes is let through, and what is let through is read as valid calls."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
import numpy as np
import pytest

from nco_guard import Guard, Policy, RegexRule, Shape, StringRule, demo
from nco_guard.errors import ArgumentError, ContradictionError, ShapeError
from nco_guard.guards import seeing_through_json
from nco_guard.replies import (
    InvalidCall,
    Reasoning,
    ReplyFormat,
    ReplyReader,
    Text,
    ToolCall,
    shipped_formats,
)
from nco_guard.replies.enforcing import calls_shape, opening_of_calls
from nco_guard.replies.writing import written_calls, written_reply
from nco_guard.session import BoundGuard, Session
from nco_guard.shapes.library import GrammarReader, tokenizer_of
from nco_guard.shapes.tools import calls_refusal
from nco_guard.values.texts import texts_of

FORMS = shipped_formats()
_QUICK = (
    "gemma-4",
    "minimax-m3",
    "lfm2",
    "qwen3-coder",
    "glm-4.7",
    "hermes",
    "gpt-oss",
    "llama-3",
    "mistral",
    "smollm2",
    "functionary-3.2",
)
SOME = [pytest.param(name, marks=() if name in _QUICK else pytest.mark.slow) for name in FORMS]
TOOLS: list[dict[str, Any]] = [
    {
        "name": "find",
        "parameters": {
            "type": "object",
            "properties": {
                "q": {"type": "string", "maxLength": 12},
                "n": {"type": "number"},
                "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 2},
            },
            "required": ["q"],
        },
    },
    {"name": "find_all", "parameters": {"type": "object", "properties": {"deep": {"type": "boolean"}}}},
    {"type": "function", "function": {"name": "now"}},
]
SCHEMAS = {
    "find": {**TOOLS[0]["parameters"], "additionalProperties": False},
    "find_all": {**TOOLS[1]["parameters"], "additionalProperties": False},
    "now": {"type": "object", "additionalProperties": False},
}
POLICY = Policy(
    name="p", rules=[RegexRule(id="letters", regex=r"[zyw]{2}"), RegexRule(id="word", regex=r"(?i)the")]
)


def prompt_of(form: ReplyFormat) -> str:
    """What precedes a reply, by which the format knows where it stands."""
    return form.examples[0].prefix if form.name == "functionary-3.2" else ""


def behind(form: ReplyFormat, text: str) -> str:
    begun = form.call.before if form.call and prompt_of(form).endswith(form.call.before or "\0") else ""
    return text.removeprefix(begun)


@pytest.fixture(scope="module")
def tokenizers() -> dict[tuple[str, ...], Any]:
    return {}


def tokenizer_for(form: ReplyFormat, kept: dict[tuple[str, ...], Any]) -> Any:
    """The tokenizer that ships, with the family's special tokens."""
    if form.special not in kept:
        from transformers import AutoTokenizer

        kept[form.special] = AutoTokenizer.from_pretrained(demo.model_path())
        known = [one for one in form.special if one not in kept[form.special].get_vocab()]
        kept[form.special].add_special_tokens({"additional_special_tokens": known})
    return kept[form.special]


def bound_to(shape: Shape, tokenizer: Any, policy: Policy = POLICY) -> BoundGuard:
    guard = seeing_through_json(Guard(policy))
    return guard.with_shape(shape).bind(tokenizer, skip_special_tokens=False)


def read(form: ReplyFormat, text: str, tools: list[dict[str, Any]] = TOOLS) -> list[Any]:
    prefix = prompt_of(form)
    reader = ReplyReader(seeing_through_json(Guard(POLICY)), form=form, tools=tools, prefix=prefix)
    return [*reader.feed(text), *reader.finish()]


def checked(events: list[Any]) -> list[ToolCall]:
    """The calls, each valid; nothing else is there but text and reasoning."""
    assert not any(isinstance(event, InvalidCall) for event in events)
    calls = [event for event in events if isinstance(event, ToolCall)]
    for call in calls:
        jsonschema.validate(call.arguments, SCHEMAS[call.name])
        said = [json.dumps(call.arguments, ensure_ascii=False), *texts_of(call.arguments)]
        assert not any(re.search(rule.regex, text) for rule in POLICY.rules for text in said)  # type: ignore[union-attr]
    return calls


def taken(session: Session, text: str, tokenizer: Any) -> bool:
    """Whether a text is let come, token by token."""
    for token in tokenizer(text, add_special_tokens=False)["input_ids"]:
        if token in set(session.forbidden_ids().tolist()):
            return False
        session.advance(token)
    return session.may_end


def drawn(session: Session, width: int, random_: random.Random, limit: int) -> str:
    """A text of random tokens that are let come, the call's marks rather than others."""
    allowed = np.ones(width, bool)
    for left in range(limit, 0, -1):
        allowed[:] = True
        allowed[session.forbidden_ids(remaining=left - 1)] = False
        ids = np.flatnonzero(allowed)
        assert len(ids)
        session.advance(int(random_.choice(ids.tolist())))
        if session.ended:
            break
    else:
        assert session.may_end
    return session.text


@pytest.mark.parametrize("name", SOME)
def test_what_an_entry_writes_is_of_the_shape_token_by_token(name: str, tokenizers: Any) -> None:
    form = FORMS[name]
    tokenizer = tokenizer_for(form, tokenizers)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("find", {"q": 'ä "b"\\', "n": -1.5, "tags": ["a", "b"]}),
        ("find_all", {}),
        ("now", {}),
        ("find_all", {"deep": True}),
    ]
    given = calls if form.call and form.call.several else calls[:1]
    prompt = prompt_of(form)
    auto = bound_to(calls_shape(form, TOOLS, prompt=prompt), tokenizer)
    texts = [
        written_calls(form, given),
        written_calls(form, given[:1]),
        written_reply(form, "Hi <b", calls=given),
    ]
    if not any("\\A" in str(value) for value in form.response_template["fields"]["tool_calls"].values()):
        texts.append(written_reply(form, "So.\n", calls=given))
    else:
        texts = texts[:2]
    # What ends texts of this tokenizer closes the reasoning of some families.
    if form.reasoning and tokenizer.eos_token not in form.reasoning.close:
        texts += [
            written_reply(form, reasoning="Hm <tool_call>.", calls=given),
            written_reply(form, "Hi", reasoning="Hm."),
        ]
    for text in (behind(form, one) for one in texts):
        assert taken(auto.session(), text, tokenizer), text
        assert [(call.name, call.arguments) for call in checked(read(form, text))] in (given, given[:1], [])
    required = bound_to(calls_shape(form, TOOLS, choice="any", prompt=prompt), tokenizer)
    assert taken(required.session(), behind(form, texts[0]), tokenizer)
    assert not taken(required.session(), form.answer + "Hi", tokenizer)
    begun = opening_of_calls(form, TOOLS[:1], "find", prompt)
    assert behind(form, texts[0]).startswith(begun)
    assert calls_shape(form, TOOLS, choice="find", prompt=prompt).behind(begun).begun == begun.encode()
    one = bound_to(calls_shape(form, TOOLS, choice="find_all", parallel=False, prompt=prompt), tokenizer)
    assert taken(one.session(), behind(form, written_calls(form, [("find_all", {})])), tokenizer)
    assert not taken(one.session(), behind(form, texts[0]), tokenizer)
    if len(given) > 1:
        assert not taken(one.session(), behind(form, written_calls(form, [("find_all", {})] * 2)), tokenizer)


@pytest.mark.parametrize("name", SOME)
def test_a_call_without_arguments_begins_with_all_of_them(name: str, tokenizers: Any) -> None:
    form = FORMS[name]
    bare = [{"name": "now", "parameters": {"type": "object", "properties": {}}}]
    written, prompt = behind(form, written_calls(form, [("now", {})])), prompt_of(form)
    for choice in ("now", "any"):
        begun = opening_of_calls(form, bare, choice, prompt)
        assert written.startswith(begun)
        shape = calls_shape(form, bare, choice=choice, prompt=prompt).behind(begun)
        tokenizer = tokenizer_for(form, tokenizers)
        assert taken(bound_to(shape, tokenizer).session(), written.removeprefix(begun), tokenizer)
    # Where a schema allows arguments, they are the model's.
    free = [{"name": "now", "parameters": {"type": "object"}}]
    first = opening_of_calls(form, free, "now", prompt)
    assert begun.startswith(first)
    assert not first.endswith("{}")


@pytest.mark.parametrize("name", SOME)
def test_what_is_let_through_is_read_as_valid_calls(name: str, tokenizers: Any) -> None:
    form, random_ = FORMS[name], random.Random(name)
    tokenizer = tokenizer_for(form, tokenizers)
    for choice in ("any", "find", None):
        shape = calls_shape(form, TOOLS, choice=choice, prompt=prompt_of(form))
        bound = bound_to(shape, tokenizer)
        for number in range(3):
            session = bound.session()
            if choice is None and not _at_start(form) and form.call:
                begin = (form.call.before + form.call.open).replace("{index}", "0").replace("{number}", "1")
                head = form.answer + "Hi " + begin
                for token in tokenizer(head, add_special_tokens=False)["input_ids"]:
                    session.advance(token)
            text = drawn(
                session,
                bound.vocabulary.width,
                random_,
                (260 if number else 130) + 120 * (form.arguments == "xml"),
            )
            for token in bound.vocabulary.eos_ids:
                end = tokenizer.decode([token])
                text = text.removesuffix(end)
            calls = checked(read(form, text))
            if choice is not None:
                assert calls, text
            if choice == "find":
                assert {call.name for call in calls} == {"find"}


def _at_start(form: ReplyFormat) -> bool:
    return "\\A" in str(form.response_template["fields"]["tool_calls"].get("open_pattern"))


def test_reasoning_that_the_prompt_opened_is_free_up_to_its_close(tokenizers: Any) -> None:
    form = FORMS["hermes"]
    tokenizer = tokenizer_for(form, tokenizers)
    prompt = "<|im_start|>assistant\n<think>\n"
    bound = bound_to(calls_shape(form, TOOLS, choice="now", prompt=prompt), tokenizer)
    call = written_calls(form, [("now", {})])
    assert taken(bound.session(), "Hm <tool_call> so.\n</think>\n\n" + call, tokenizer)
    assert not taken(bound.session(), "Hm <tool_call> so.\n</think>\n\nHi" + call, tokenizer)
    assert not taken(bound.session(), "Hm.", tokenizer)
    session = bound.session()
    text = drawn(session, bound.vocabulary.width, random.Random(0), 60)
    reader = ReplyReader(Guard(POLICY), form=form, tools=TOOLS, prefix=prompt)
    events = [*reader.feed(text), *reader.finish()]
    assert [event.name for event in events if isinstance(event, ToolCall)] != []
    assert all(isinstance(event, Reasoning | ToolCall | Text) for event in events)


def test_a_string_cannot_end_the_call_and_numbers_are_written_as_they_print(tokenizers: Any) -> None:
    form = FORMS["hermes-line"]
    tokenizer = tokenizer_for(form, tokenizers)
    bound = bound_to(calls_shape(form, TOOLS), tokenizer)
    head = '<tool_call>{"name": "find", "arguments": {"q": "'
    for said, fits in (
        ("</tool_cal", True), ("</tool_call>", False), ('"', True), ("\\u0041", False), ("\\n", True)
    ):  # fmt: skip
        said = said.replace('"', '\\"')
        assert taken(bound.session(), head + said + '"}}</tool_call>', tokenizer) == fits, said
    for said, fits in (("4.1", True), ("4e1", False), ("1.50", False), ("-0", False), ("0.5", True)):
        assert taken(bound.session(), head + f'x", "n": {said}}}}}</tool_call>', tokenizer) == fits, said


def test_of_strict_tools_alone_arguments_are_enforced() -> None:
    form = FORMS["hermes-line"]
    tools = [
        {**TOOLS[0], "strict": True},
        {"name": "other", "parameters": {"properties": {"a": {"type": "integer"}}}},
    ]

    def fits(shape: Shape, name: str, arguments: dict[str, Any]) -> bool:
        reader = GrammarReader(shape.grammar, tokenizer_of(None))
        return reader.leads(reader.at(b""), written_calls(form, [(name, arguments)]).encode(), ends=True)

    shape = Shape.tools(tools, form)
    assert fits(shape, "other", {"b": [1]})
    assert fits(shape, "find", {"q": "x"})
    assert not fits(shape, "find", {"b": [1]})
    assert not fits(Shape.tools(tools[1:], form), "other", {"b": [1]})
    assert fits(Shape.tools([{**tools[1], "strict": False}], form), "other", {"b": [1]})


@pytest.mark.parametrize("given", ["string", ["string", "null"], [], 5, "objct"])
def test_arguments_are_an_object(given: Any) -> None:
    """Those of another type would be read as no call."""
    with pytest.raises(ArgumentError, match=r"tools\[0\]\.parameters\.type"):
        Shape.tools([{"name": "f", "parameters": {"type": given}}], FORMS["hermes"])
    one, other = (
        Shape.tools([{"name": "f", "parameters": {"type": each, "properties": {}}}], FORMS["hermes"])
        for each in (["object", "null"], "object")
    )
    assert one == other


def test_calls_of_every_family_that_ships_can_be_enforced() -> None:
    assert [name for name, form in FORMS.items() if calls_refusal(form) is not None] == []


def test_what_cannot_be_enforced_is_refused_by_name() -> None:
    form = FORMS["hermes"]
    with pytest.raises(ShapeError, match=r"tool 'a': .*colour") as found:
        Shape.tools(
            [{"name": "a", "parameters": {"properties": {"c": {"type": "string", "format": "colour"}}}}], form
        )
    assert found.value.place == "#/properties/c"
    unwritten = form.model_copy(update={"call": None})
    with pytest.raises(ShapeError, match="hermes does not say how calls are written"):
        Shape.tools(TOOLS, unwritten)
    for tools, said in (([], "at least one"), ([{}], r"tools\[0\]"), ([TOOLS[0], TOOLS[0]], "another tool")):
        with pytest.raises(ArgumentError, match=said):
            Shape.tools(tools, form)
    with pytest.raises(ArgumentError, match="choice"):
        Shape.tools(TOOLS, form, choice="none")


def test_a_tool_that_the_policy_forbids_is_named(tokenizers: Any) -> None:
    tool = {"name": "a", "parameters": {"properties": {"w": {"const": "the"}}, "required": ["w"]}}
    with pytest.raises(ContradictionError) as found:
        Guard(POLICY).with_shape(Shape.tools([tool], FORMS["hermes"]))
    assert found.value.place == "tools/a#/properties/w"
    assert "word" in found.value.rule_ids
    for family in ("hermes", "lfm2", "qwen3-coder"):
        with pytest.raises(ContradictionError) as found:
            Guard(POLICY).with_shape(Shape.tools([{"name": "the"}], shipped_formats()[family]))
        assert (found.value.place, found.value.rule_ids) == ("tools/the/name", ("word",))


@pytest.mark.parametrize(("rule", "forbidden"), [("mark", "<tool_call>"), ("brace", "{")])
def test_what_forbids_every_call_is_named(rule: str, forbidden: str, tokenizers: Any) -> None:
    guard = Guard(Policy(name="closed", rules=[StringRule(id=rule, strings=[forbidden])]))
    shape = Shape.tools([{"name": "a"}], FORMS["hermes"], choice="required")
    with pytest.raises(ShapeError, match=rf"policy 'closed' \(the shortest is forbidden by '{rule}'\)"):
        guard.with_shape(shape).bind(tokenizer_for(FORMS["hermes"], tokenizers))
