"""How tools are put to a model."""

import copy
import json
from typing import Any

import pytest

from nco_guard.errors import ArgumentValueError, UnsupportedError
from nco_guard.replies import as_reply_format, shipped_formats
from nco_guard.replies.offering import has_calls, messages_in_words, offered_tools
from nco_guard.replies.parser import calls_in
from nco_guard.replies.writing import written_calls

FUNCTION = {"name": "find", "description": "Find.", "parameters": {"type": "object", "properties": {}}}


def test_tools_come_to_one_form() -> None:
    wanted = [{"type": "function", "function": FUNCTION}]
    for tool in ({"type": "function", "function": FUNCTION}, {"function": FUNCTION}, FUNCTION):
        assert offered_tools([tool]) == wanted
    assert offered_tools(({"type": "function", **FUNCTION},)) == wanted
    assert offered_tools([FUNCTION, {"function": FUNCTION}]) == wanted
    assert offered_tools(None) == offered_tools([]) == []


@pytest.mark.parametrize(
    ("tools", "match"),
    [
        ("find", "tools: give a list"),
        (FUNCTION, "tools: give a list"),
        (3, "tools: give a list"),
        ([FUNCTION, "find"], r"tools\[1\]: the description of a function is needed, not str"),
        ([{"type": "web_search"}], r"tools\[0\]: a tool of type 'web_search'"),
        ([{"type": "function"}], r"tools\[0\]: it needs a function with a name"),
        ([{"function": {"name": ""}}], r"tools\[0\]: it needs a function with a name"),
        ([{"function": "find"}], r"tools\[0\]: it needs a function with a name"),
        ([FUNCTION, {"name": "find"}], r"tools\[1\]: another tool before it has the same name"),
        ([{"name": 3}], r"tools\[0\]: it needs a function with a name"),
    ],
    ids=str,
)
def test_what_is_no_tool_is_refused_by_its_place(tools: Any, match: str) -> None:
    with pytest.raises(UnsupportedError, match=f"^{match}"):
        offered_tools(tools)


# -- tools in words ------------------------------------------------------------------------------------------------

TOOLS = offered_tools([FUNCTION])
CALLS = [("find", {"q": "Oslo"}), ("find", {"q": "Köln", "most": 3})]
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Where?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"function": {"name": name, "arguments": given}} for name, given in CALLS],
    },
    {"role": "tool", "content": "in Norway", "tool_call_id": "1"},
    {"role": "tool", "content": "on the Rhine", "tool_call_id": "2"},
    {"role": "assistant", "content": "There."},
]
WRITING = [form for form in shipped_formats().values() if form.call is not None]


@pytest.mark.parametrize("form", WRITING, ids=lambda form: form.name)
def test_calls_in_words_are_read_as_the_calls_that_they_were(form: Any) -> None:
    """In every format: what a model is shown of its calls is what is read from it."""
    said = CALLS if form.call.several else CALLS[:1]
    talk = [{**TALK[1], "tool_calls": TALK[1]["tool_calls"][: len(said)]}]
    (told,) = messages_in_words(form, talk, [])
    assert told["role"] == "assistant"
    assert "tool_calls" not in told
    assert "I look." in told["content"]
    schema = {"properties": {"q": {"type": "string"}, "most": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "find", "parameters": schema}}]
    assert calls_in(form, told["content"].removeprefix("I look."), tools) == said


@pytest.mark.parametrize("form", WRITING, ids=lambda form: form.name)
def test_every_format_can_be_offered_tools(form: Any) -> None:
    before = copy.deepcopy(TALK)
    system, *rest = messages_in_words(form, TALK[:1] if not form.call.several else TALK, TOOLS)
    assert before == TALK
    assert system["role"] == "system"
    assert json.dumps(TOOLS, ensure_ascii=False) in system["content"]
    assert {message["role"] for message in rest} <= {"user", "assistant"}
    example = ("tool_name", {"argument": "value"})
    assert (form.offering is None) == (written_calls(form, [example]) in system["content"])


def test_results_that_follow_each_other_are_one_message_of_the_user() -> None:
    told = messages_in_words(shipped_formats()["hermes"], TALK, [])
    assert [message["role"] for message in told] == ["user", "assistant", "user", "assistant"]
    assert told[2]["content"] == (
        "<tool_response>\nin Norway\n</tool_response>\n<tool_response>\non the Rhine\n</tool_response>"
    )


def test_the_offer_stands_behind_what_the_system_says_or_before_the_user() -> None:
    form = shipped_formats()["smollm2"]
    talk = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    system, user = messages_in_words(form, talk, TOOLS)
    assert system["content"].startswith("Be kind.\n\n")
    assert user == talk[1]
    (user,) = messages_in_words(form, talk, TOOLS, system=False)
    assert user["role"] == "user"
    assert user["content"] == system["content"] + "\n\nHi"
    assert messages_in_words(form, talk, []) == talk
    (alone,) = messages_in_words(form, [], TOOLS, system=False)
    assert alone["role"] == "user"


def test_what_tools_say_of_themselves_is_put_in_as_it_is() -> None:
    """Descriptions and results that look like places for others."""
    odd = {"name": "f", "description": "{call} {tools} {result}"}
    system, user = messages_in_words(
        shipped_formats()["hermes"], [{"role": "tool", "content": "{result} {tools}"}], offered_tools([odd])
    )
    assert system["content"].count("{call} {tools} {result}") == 1
    assert user["content"] == "<tool_response>\n{result} {tools}\n</tool_response>"


def test_arguments_may_be_json_in_a_string_and_nothing_else() -> None:
    form = shipped_formats()["hermes"]

    def told(arguments: Any) -> str:
        call = {"function": {"name": "f", "arguments": arguments}}
        return str(messages_in_words(form, [{"role": "assistant", "tool_calls": [call]}], [])[0]["content"])

    assert calls_in(form, told('{"a": 1}')) == calls_in(form, told({"a": 1})) == [("f", {"a": 1})]
    assert calls_in(form, told(None)) == [("f", {})]
    for arguments in ("{", "[1]", [1], 3):
        with pytest.raises(UnsupportedError, match=r"^messages: the arguments of a call are an object"):
            told(arguments)


def test_whether_tools_were_called() -> None:
    assert has_calls(TALK)
    assert has_calls(TALK[2:3])
    assert not has_calls(TALK[:1])
    assert not has_calls([{"role": "assistant", "content": "x", "tool_calls": []}])


def test_an_offering_says_where_tools_and_results_stand() -> None:
    entry = shipped_formats()["smollm2"].model_dump(mode="json")
    for texts, field in (
        ({"system": "x", "result": "{result}"}, "system"),
        ({"system": "{tools}", "result": ""}, "result"),
    ):
        with pytest.raises(ArgumentValueError, match=f"offering: {field}: it says nowhere"):
            as_reply_format({**entry, "offering": texts})
    without = as_reply_format({**entry, "call": None, "offering": None})
    with pytest.raises(UnsupportedError, match="does not say how calls are written"):
        messages_in_words(without, TALK, TOOLS)
