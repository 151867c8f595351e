"""Every shipped format: examples are read as they say, what is written is read again, however the reply is cut.

The slow definition is the whole text at once through transformers' own `parse_response`.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_parsing import parse_response

from nco_guard import Guard, Policy, StringRule
from nco_guard.errors import UnsupportedError
from nco_guard.replies import InvalidCall, Reasoning, ReplyReader, Text, ToolCall, shipped_formats
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.parser import Regions, pythonic_calls
from nco_guard.replies.writing import begun_call, begun_name, function_of, written_calls, written_reply
from tests.replies.families import PARSED

GUARD = Guard(Policy(name="p", rules=[StringRule(id="word", strings=["canary"])]))
FORMATS = list(shipped_formats().values())
CALLING = [form for form in FORMATS if form.call is not None]
EXAMPLES = [(form, number) for form in FORMATS for number in range(len(form.examples))]
TOOL = {
    "name": "find",
    "parameters": {
        "type": "object",
        "properties": {
            "q": {"type": "string"},
            "n": {"type": "integer"},
            "deep": {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
            },
            "on": {"type": "boolean"},
        },
        "required": ["q"],
    },
}
TOOLS = [{"type": "function", "function": function} for function in (TOOL, {"name": "now"})]
CALLS = [("find", {"q": "x y", "n": 3, "on": True}), ("now", {}), ("find", {"q": "é ü", "deep": {"a": [1]}})]
Read = tuple[str, str, list[tuple[str, Any]], list[str]]


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places})
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


def read(form: ReplyFormat, pieces: list[str], **options: Any) -> Read:
    reader = ReplyReader(GUARD, form=form, **{"tools": TOOLS, **options})
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.finish()
    content = "".join(event.text for event in events if isinstance(event, Text))
    reasoning = "".join(event.text for event in events if isinstance(event, Reasoning))
    assert (content, reasoning) == (reader.content, reader.reasoning)
    calls = [(event.name, event.arguments) for event in events if isinstance(event, ToolCall)]
    return content, reasoning, calls, [event.text for event in events if isinstance(event, InvalidCall)]


PLACES = st.lists(st.integers(0, 400), max_size=8)


@pytest.mark.parametrize(("form", "number"), EXAMPLES, ids=lambda each: getattr(each, "name", str(each)))
@given(places=PLACES)
@settings(max_examples=15, deadline=None)
def test_examples_are_read_as_they_say(form: ReplyFormat, number: int, places: list[int]) -> None:
    example = form.examples[number]
    wanted = (
        example.content,
        example.reasoning,
        [(call.name, call.arguments) for call in example.calls],
        [*example.invalid],
    )
    tools = example.tools or TOOLS
    for pieces in (cut(example.text, places), [*example.text]):
        assert read(form, pieces, prefix=example.prefix, tools=tools) == wanted


@pytest.mark.parametrize(("form", "number"), EXAMPLES, ids=lambda each: getattr(each, "name", str(each)))
@given(places=PLACES)
@settings(max_examples=15, deadline=None)
def test_pieces_of_regions_joined_are_the_reply(form: ReplyFormat, number: int, places: list[int]) -> None:
    example = form.examples[number]
    for calls in (True, False):
        regions = Regions(form, calls=calls)
        pieces = [
            piece for each in cut(example.text, places) for piece in regions.feed(each)
        ] + regions.finish()
        assert "".join(piece.text for piece in pieces) == example.text


BLANKS = ["\n" * 2000, " \n" * 50 + "So." + "\n " * 50 + "So.\n"]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("text", BLANKS, ids=["nothing else", "between"])
def test_runs_of_blanks_are_looked_through_a_few_times(form: ReplyFormat, text: str) -> None:
    """A reply may be nothing but blanks, as of a model that has lost its way."""
    regions, fed = Regions(form), []
    feed = regions._parser.feed

    def noted(piece: str) -> list[dict[str, Any]]:
        fed.append(piece)
        return feed(piece)

    regions._parser.feed = noted  # type: ignore[method-assign]
    pieces = [piece for letter in text for piece in regions.feed(letter)] + regions.finish()
    assert "".join(piece.text for piece in pieces) == "".join(fed) == text
    assert len(fed) < 150


def test_blanks_of_a_prompt_are_no_part_of_the_reply() -> None:
    form = shipped_formats()["hermes"]
    for prompt in ("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>So."):
        found = read(form, ["x", "y"], prefix=prompt + "\n" * 50)
        assert "".join(found[:2]) == "xy"


PARTS = ["a", " ", "\n" * 40, "\n", "\n\n", "Hello.", '{"a": 1}', "<", "[", "<tool", "</", "find", '"', "}"]


def parts_of(form: ReplyFormat) -> list[str]:
    """What replies are put together of at random: marks, halves of them, whole calls, text."""
    marks = [example.text for example in form.examples]
    if form.call is not None:
        marks += [written_calls(form, CALLS[: 3 if form.call.several else 1]), begun_name(form, "find")]
        marks += [
            mark for mark in (form.call.open, form.call.close, form.call.before, form.call.after) if mark
        ]
    if form.reasoning is not None:
        marks += [form.reasoning.open, form.reasoning.close, written_reply(form, "So.", reasoning="Hm.")]
    return [*PARTS, *marks, *(mark[: len(mark) // 2] for mark in marks)]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_any_reply_reads_the_same_however_it_is_cut(form: ReplyFormat) -> None:
    @given(st.lists(st.sampled_from(parts_of(form)), max_size=6).map("".join), PLACES, st.booleans())
    @settings(max_examples=60, deadline=None)
    def holds(text: str, places: list[int], offered: bool) -> None:
        options = {"tools": TOOLS if offered else None, "invalid_as_text": len(places) % 2 == 0}
        whole = read(form, [text], **options)
        assert read(form, cut(text, places), **options) == whole
        assert read(form, [*text], **options) == whole
        if not offered:
            assert whole[2:] == ([], [])
        regions = Regions(form, calls=offered)
        pieces = [piece for each in cut(text, places) for piece in regions.feed(each)] + regions.finish()
        assert "".join(piece.text for piece in pieces) == text

    holds()


def by_transformers(form: ReplyFormat, text: str) -> tuple[str, str, list[tuple[str, Any]]] | None:
    """The definition; None where transformers cannot read the text. Content is joined, as it is here."""
    template = copy.deepcopy(form.response_template)
    for name in ("content", "reasoning_content"):
        if name in template["fields"]:
            template["fields"][name] |= {"repeats": True, "join": "", "content_args": {"strip": False}}
    try:
        message = parse_response(text, template, prefix="", tools=TOOLS)
    except (ValueError, KeyError, TypeError):
        return None
    calls = []
    for one in message.get("tool_calls", []):
        for call in one if isinstance(one, list) else [one]:
            function = call["function"]
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                return None
            calls.append((function["name"], function.get("arguments", function.get("parameters", {}))))
    return message.get("content", ""), message.get("reasoning_content", ""), calls


@pytest.mark.parametrize("form", PARSED, ids=lambda form: form.name)
def test_what_transformers_can_read_is_read_as_it_does(form: ReplyFormat) -> None:
    seen = []

    @given(st.lists(st.sampled_from(parts_of(form)), max_size=5).map("".join))
    @settings(max_examples=80, deadline=None)
    def holds(text: str) -> None:
        content, reasoning, calls, invalid = read(form, [text])
        wanted = by_transformers(form, text)
        if wanted is None or invalid:
            return
        seen.append(text)
        assert (reasoning, calls) == wanted[1:]
        if "open" not in form.response_template["fields"].get("content", {"open": ""}):
            assert content == wanted[0]

    holds()
    assert len(seen) > 10


@pytest.mark.parametrize("form", CALLING, ids=lambda form: form.name)
@pytest.mark.parametrize("count", [1, 2, 3])
@given(places=PLACES)
@settings(max_examples=10, deadline=None)
def test_what_is_written_is_read_again(form: ReplyFormat, count: int, places: list[int]) -> None:
    assert form.call is not None
    if count > 1 and not form.call.several:
        with pytest.raises(UnsupportedError, match="holds one at most"):
            written_calls(form, CALLS[:count])
        return
    reasoning = "First this,\nthen that." if form.reasoning else ""
    text = written_reply(form, reasoning=reasoning, calls=CALLS[:count])
    assert read(form, cut(text, places)) == ("", reasoning, CALLS[:count], [])


@pytest.mark.parametrize("form", CALLING, ids=lambda form: form.name)
def test_what_is_begun_and_ended_is_read_as_a_call_of_that_tool(form: ReplyFormat) -> None:
    for tool in TOOLS:
        function = function_of(tool)
        begun = begun_call(form, tool)
        assert begun.startswith(begun_name(form, function["name"]))
        arguments = {"q": "x"} if "parameters" in function else {}
        whole = written_calls(form, [(function["name"], arguments)])
        whole = whole if whole.startswith(begun) else whole.replace("'", '"')  # of Python's quotes
        assert whole.startswith(begun)
        rest = whole[len(begun) :]
        assert read(form, [rest], begun=begun) == ("", "", [(function["name"], arguments)], [])
        for example in form.examples:
            prefix = example.prefix + begun_call(form, tool, example.prefix)
            if example.prefix and rest:
                assert read(form, [rest], prefix=prefix) == ("", "", [(function["name"], arguments)], [])


@pytest.mark.parametrize("form", CALLING, ids=lambda form: form.name)
def test_a_call_that_breaks_off_is_no_call_and_is_not_lost(form: ReplyFormat) -> None:
    assert form.call is not None
    whole = written_calls(form, [("find", {"q": "x", "deep": {"a": [1, 2]}})])
    after = len(begun_name(form, "find"))
    for end in range(after, len(whole)):
        content, _, calls, invalid = read(form, [whole[:end]])
        if calls:
            assert calls == [("find", {"q": "x", "deep": {"a": [1, 2]}})]
        else:
            # What stands around all calls is no part of one.
            told = content + "".join(invalid)
            assert whole[:end].endswith(told)
            assert whole[: end - len(told)].strip() in form.call.before
        shown = read(form, [whole[:end]], invalid_as_text=True)
        assert shown[2] == calls
        assert calls or shown[0] == told


@pytest.mark.parametrize("form", [form for form in FORMATS if form.call is None], ids=lambda form: form.name)
def test_formats_without_calls_say_so(form: ReplyFormat) -> None:
    with pytest.raises(UnsupportedError, match="does not say how calls are written"):
        written_calls(form, CALLS)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("[f(a=1)]", [("f", {"a": 1})]),
        ("f(a='x'), g.h()", [("f", {"a": "x"}), ("g.h", {})]),
        (
            "[f(a=true, b=None, c=[false, {'k': -1.5}])]",
            [("f", {"a": True, "b": None, "c": [False, {"k": -1.5}]})],
        ),
        ('f(a=\'x\n"y"\', b="it\'s\n")', [("f", {"a": 'x\n"y"', "b": "it's\n"})]),
        ("[f(1)]", None),
        ("[f(a=1, **b)]", None),
        ("[f(a=b)]", None),
        ("[f(a={1: 2})]", None),
        ("[f(a=(1, 2))]", None),
        ("[f(a=b'x')]", None),
        ("[]", None),
        ("f(a=1", None),
        ("x", None),
        ("[" * 5000, None),
    ],
)
def test_calls_written_as_python(text: str, calls: Any) -> None:
    assert pythonic_calls(text) == calls


def test_text_between_regions_that_all_begin_is_text_and_anchors_are_not() -> None:
    """As a template of the tokenizer's own may be: no field for what stands outside of regions."""
    template = {
        "start_anchor": "<|start|>assistant",
        "fields": {
            "reasoning_content": {"open": "<|channel|>analysis<|message|>", "close": "<|end|>"},
            "content": {"open": "<|channel|>final<|message|>", "close": "<|return|>"},
        },
    }
    form = ReplyFormat(name="own", title="own", response_template=template)
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
    )
    for pieces in ([text], [*text]):
        assert read(form, pieces) == ("Yes.", "Hm.", [], [])
        assert read(form, ["Oh.", *pieces, "Ah."]) == ("Oh.Yes.Ah.", "Hm.", [], [])
    for first, second in itertools.pairwise([text[:4], text[4:9], text[9:]]):
        assert read(form, [first, second])[3] == []
