"""Calls of tools by a model: whether it can be offered tools, and how it is made to call one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from nco_guard import demo
from nco_guard.engines.hf.inputs import encode, render_chat
from nco_guard.engines.hf.tool_calls import chat_prompt, tools_refusal
from nco_guard.errors import UnsupportedError
from nco_guard.replies import ReplyFormat, ReplyReader, ToolCall, format_for, shipped_formats
from nco_guard.replies.enforcing import required_calls
from nco_guard.replies.writing import begun_call, function_of

FORM = shipped_formats()["hermes-line"]
NESTED = shipped_formats()["minimax-m3"]
ASK = [{"role": "system", "content": demo.SYSTEM_PROMPT}]


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    return demo.load()


def with_template(tokenizer: Any, template: str) -> Any:
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def test_a_template_is_asked_by_rendering_it(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    assert format_for(tokenizer) is FORM
    assert tools_refusal(FORM, tokenizer) is None
    says = '{# <tool_call>{"name": #}{% for m in messages %}{{ m.content }}{% endfor %}'
    shows = says + "{{ tools | tojson }}"
    other = shows + "{% for m in messages %}{{ m.tool_calls | default([]) | tojson }}{% endfor %}"
    refuses = "{{ raise_exception('no') }}"
    for template, reason in (
        (other, "does not show calls that were made as Hermes with each call on one line"),
        (refuses, "does not take a conversation with tools"),
    ):
        assert reason in str(tools_refusal(FORM, with_template(tokenizer, template)))
    assert tools_refusal(FORM, with_template(tokenizer, other), given=True) is None
    assert "does not show calls that were made as Mistral" in str(
        tools_refusal(shipped_formats()["mistral"], tokenizer)
    )
    # What a template does not show is put in words, for which calls have to be written.
    unwritten = FORM.model_copy(update={"call": None})
    for little in (says, shows):
        assert tools_refusal(FORM, with_template(tokenizer, little)) is None
        reason = str(tools_refusal(unwritten, with_template(tokenizer, little)))
        assert "shows no tools or calls, and the format hermes-line has no words" in reason
    unknown = str(tools_refusal(None, tokenizer))
    assert "known are " in unknown
    assert all(word in unknown for word in ("hermes-line", "mistral", "reply_format="))
    mute = ReplyFormat(
        name="own", title="own", response_template={"start_anchor": "x", "fields": {"content": {}}}
    )
    assert "the format own has no calls" in str(tools_refusal(mute, tokenizer, given=True))
    with pytest.raises(UnsupportedError, match=r"refuses these messages \(roles: system\)"):
        render_chat(with_template(tokenizer, refuses), ASK)
    with pytest.raises(UnsupportedError, match=r"refuses these messages \(roles: system\)"):
        encode(with_template(tokenizer, refuses), model, ASK)


def test_tools_go_through_a_template_that_shows_them_and_else_in_words(loaded: tuple[Any, Any]) -> None:
    call = {"type": "function", "function": {"name": "find", "arguments": {"q": "x"}}}
    talk = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "found"},
    ]
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"properties": {}}}}]
    assert chat_prompt(FORM, loaded[1], talk, tools) == render_chat(loaded[1], talk, tools)
    lines = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    silent = with_template(loaded[1], lines)
    told = chat_prompt(FORM, silent, talk, tools)
    assert told.startswith("system: You can call these tools")
    for line in (
        "user: Hi",
        'assistant: <tool_call>{"name": "find", "arguments": {"q": "x"}}</tool_call>',
        "user: <tool_response>\nfound\n</tool_response>",
    ):
        assert line in told
    # With none on offer the calls of a conversation are told still; without both it is as it was.
    assert chat_prompt(FORM, silent, talk) == told[told.index("user: Hi") :]
    assert chat_prompt(FORM, silent, talk[:1]) == "user: Hi\n"
    assert chat_prompt(None, silent, talk[:1], tools) == "user: Hi\n"
    # A template that leaves out only the calls, and one that refuses them.
    half = with_template(loaded[1], "{{ tools | tojson }}\n" + lines)
    told = chat_prompt(FORM, half, talk, tools)
    assert told.startswith('[{"type": "function"')
    assert told.endswith(
        f"assistant: {FORM.call.open}find" + '", "arguments": {"q": "x"}}</tool_call>\ntool: found\n'
    )
    refusing = (
        "{% for m in messages if m.tool_calls %}{{ raise_exception('no') }}{% endfor %}{{ tools | tojson }}"
    )
    whole = chat_prompt(FORM, with_template(loaded[1], refusing + lines), talk, tools)
    assert "user: <tool_response>" in whole
    alone = "{% for m in messages if m.role == 'system' %}{{ raise_exception('no') }}{% endfor %}" + lines
    said = chat_prompt(FORM, with_template(loaded[1], alone), talk, tools)
    assert said.startswith("user: You can call these tools")
    assert "\n\nHi\nassistant: " in said
    assert tools_refusal(FORM, with_template(loaded[1], alone)) is None


def test_templates_that_put_arguments_together_with_text_are_given_text(loaded: tuple[Any, Any]) -> None:
    joins = (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}"
        '{% for c in m.tool_calls or [] %}{{ \'<tool_call>{"name": "\' + c.function.name + \'", "arguments": \' + '
        "c.function.arguments + '}</tool_call>' }}{% endfor %}{% endfor %}"
    )
    tokenizer = with_template(loaded[1], joins)
    assert tools_refusal(FORM, tokenizer) is None
    call = {"type": "function", "function": {"name": "f", "arguments": {"q": "é"}}}
    chat = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    assert render_chat(tokenizer, chat) == '<tool_call>{"name": "f", "arguments": {"q": "é"}}</tool_call>'
    assert call["function"] == {"name": "f", "arguments": {"q": "é"}}
    with pytest.raises(UnsupportedError, match="refuses these messages"):
        render_chat(with_template(tokenizer, "{{ 'a' + 1 }}"), [{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    ("parameters", "end", "arguments"),
    [
        ({}, "", {}),
        ({"properties": {}}, "", {}),
        ({"properties": {"a": {"type": "string"}}}, 'x"}}</tool_call>', {"a": "x"}),
        ({"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["b"]}, "3}}", {"b": 3}),
        ({"properties": {'a"': True}}, "[1]}}</tool_call>", {'a"': [1]}),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "null}}</tool_call>", {"a": None}),
    ],
)
def test_what_is_begun_and_ended_is_read_as_a_call_of_that_tool(
    parameters: Any, end: str, arguments: Any
) -> None:
    for name in ("find", 'a "quoted" näme'):
        bare = {"name": name, "parameters": parameters}
        for tool in (bare, {"type": "function", "function": bare}):
            begun = begun_call(FORM, tool)
            reader = ReplyReader("pii", form=FORM, tools=[tool], begun=begun)
            (call,) = [*reader.feed(end), *reader.finish()]
            assert isinstance(call, ToolCall)
            assert (call.name, call.arguments) == (name, arguments)
            assert function_of(tool) == bare


@pytest.mark.parametrize("end", ["<mm:think>", "<mm:think></mm:think>", ""])
def test_a_call_after_a_prompt_that_opens_the_reasoning_follows_it(end: str) -> None:
    tool, prompt = demo.TOOLS[0], "]~b]ai\n" + end
    begun, shape = required_calls(NESTED, prompt, [tool], "any")
    mark, key = "]<]minimax[>[", next(iter(function_of(tool)["parameters"]["properties"]))
    said = f"x{mark}</{key}>{mark}</invoke>\n{mark}</tool_call>"
    rest = (begun_call(NESTED, tool, prompt) if end == "<mm:think>" else "") + said
    assert begun == ("" if end == "<mm:think>" else begun_call(NESTED, tool, prompt))
    assert shape.begun == begun.encode()
    reader = ReplyReader("pii", form=NESTED, tools=[tool], prefix=prompt + begun)
    (call,) = [one for one in [*reader.feed(rest), *reader.finish()] if isinstance(one, ToolCall)]
    assert call.name == function_of(tool)["name"]


def test_a_format_whose_calls_cannot_be_enforced_is_refused_by_name() -> None:
    fields = FORM.response_template["fields"]
    odd = {**fields["tool_calls"], "content_args": {"allow_non_json": True}}
    template = {**FORM.response_template, "fields": {**fields, "tool_calls": odd}}
    for form, said in (
        (FORM.model_copy(update={"response_template": template}), "hermes-line are not enforced"),
        (FORM.model_copy(update={"call": None}), "hermes-line does not say how calls are written"),
    ):
        with pytest.raises(UnsupportedError, match=f"^tools: .*{said}"):
            required_calls(form, "", demo.TOOLS, "any")


def test_where_calls_are_enforced_the_prompt_goes_on_with_their_beginning(loaded: tuple[Any, Any]) -> None:
    prompt = render_chat(loaded[1], ASK, demo.TOOLS)
    begun, shape = required_calls(FORM, prompt, demo.TOOLS, "any")
    assert begun == '<tool_call>{"name": "'
    assert (shape.kind, shape.begun) == ("tools", begun.encode())
    for tool in demo.TOOLS:
        begun, shape = required_calls(FORM, prompt, [tool], "any")
        assert begun_call(FORM, tool).startswith(begun)
    opened = "<|im_start|>assistant\n<think>\n"
    assert required_calls(shipped_formats()["hermes"], opened, demo.TOOLS, "any")[0] == ""
