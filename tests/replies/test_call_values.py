"""Calls tell all that was written: what JSON has not, or what is said twice, is no call, and its text is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_guard.replies import ReplyReader, ToolCall, shipped_formats
from nco_guard.replies.call_values import is_json_value, keys_said_once, loaded_once
from nco_guard.replies.writing import written_calls
from tests.replies.families import GUARD, Read, read

SCHEMA = {"type": "object", "properties": {"n": {"type": "number"}, "o": {"type": "object"}}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
WRITTEN = {
    "hermes": '<tool_call>{"name": "f", "arguments": {%s}}</tool_call>',
    "mistral-args": "[TOOL_CALLS]f[ARGS]{%s}",
    "phi-4-mini": '<|tool_call|>[{"name": "f", "arguments": {%s}}]<|/tool_call|>',
    "gemma-4": "<|tool_call>call:f{%s}<tool_call|>",
    "lfm2": "<|tool_call_start|>[f(%s)]<|tool_call_end|>",
    "qwen3-coder": "<tool_call>\n<function=f>\n%s\n</function>\n</tool_call>",
    "glm-4.7": "<tool_call>f%s</tool_call>",
}
TAG = "<parameter=%s>\n%s\n</parameter>"
REFUSED = [
    ("hermes", '"q": NaN'),
    ("hermes", '"q": [-Infinity]'),
    ("hermes", '"q": 1e999'),
    ("hermes", '"q": "\\ud83d"'),
    ("hermes", '"\\udc00": 1'),
    ("hermes", '"q": 1, "q": 2'),
    ("hermes", '"q": [{"a": 1, "a": 2}]'),
    ("hermes", '"q": ' + "[" * 300 + "]" * 300),
    ("hermes", '"q": ' + "[" * 90_000 + "]" * 90_000),
    ("hermes", '"q": ' + "9" * 6000),
    ("mistral-args", '"q": 1, "q": 2'),
    ("mistral-args", '"q": NaN'),
    ("phi-4-mini", '"q": 1, "q": 2'),
    ("gemma-4", "q:1,q:2"),
    ("gemma-4", "q:{a:1,a:2}"),
    ("gemma-4", "q:NaN"),
    ("lfm2", "q=1e999"),
    ("lfm2", "q='\\ud83d'"),
    ("lfm2", "q={'a': 1, 'a': 2}"),
    ("lfm2", "q=1, q=2"),
    ("lfm2", "q=1)] # and [g("),
    ("lfm2", "q=1), # so\n g("),
    ("lfm2", "q=1), g()(a=1"),
    ("lfm2", "q=1), (lambda: 0)("),
    ("lfm2", "q=1), 'g'("),
    ("lfm2", "q=1), x[0]("),
    ("qwen3-coder", TAG % ("q", 1) + TAG % ("q", 2)),
    ("qwen3-coder", TAG % ("o", '{"a": 1, "a": 2}')),
    ("qwen3-coder", TAG % ("o", '{"a": NaN}')),
    ("qwen3-coder", "so" + TAG % ("q", 1)),
    ("qwen3-coder", TAG % ("q", 1) + "so" + TAG % ("p", 2)),
    ("glm-4.7", "<arg_key>q</arg_key><arg_value>1</arg_value>" * 2),
]


@pytest.mark.parametrize(("name", "arguments"), REFUSED, ids=lambda each: each[:24])
def test_what_cannot_be_told_as_it_was_written_is_no_call(name: str, arguments: str) -> None:
    text = WRITTEN[name] % arguments
    assert read(shipped_formats()[name], ["So.", text], tools=TOOLS) == Read("So.", invalid=(text,))


KEPT: list[tuple[str, str, dict[str, Any]]] = [
    ("hermes", '"q": "\\ud83d\\ude00", "n": 1e9', {"q": "😀", "n": 1e9}),
    ("hermes", '"q": "# a: b, a: c", "o": {"q": {"q": 1}}', {"q": "# a: b, a: c", "o": {"q": {"q": 1}}}),
    ("hermes", '"q": ' + "[" * 100 + "]" * 100, {"q": json.loads("[" * 100 + "]" * 100)}),
    ("gemma-4", 'q:<|"|>a:1,a:2"<|"|>,o:{q:[{q:"a:b"}]}', {"q": 'a:1,a:2"', "o": {"q": [{"q": "a:b"}]}}),
    ("lfm2", "q='# no \\'comment', o={'q': {'q': \"#\"}}", {"q": "# no 'comment", "o": {"q": {"q": "#"}}}),
    ("qwen3-coder", TAG % ("q", "a # b") + TAG % ("o", '{"q": 1}'), {"q": "a # b", "o": {"q": 1}}),
]


@pytest.mark.parametrize(("name", "arguments", "wanted"), KEPT)
def test_what_can_be_told_is_a_call(name: str, arguments: str, wanted: dict[str, Any]) -> None:
    found = read(shipped_formats()[name], [WRITTEN[name] % arguments], tools=TOOLS)
    assert found == Read(calls=(("f", wanted),))


def test_a_call_has_a_name() -> None:
    text = '<tool_call>{"name": "", "arguments": {}}</tool_call>'
    assert read(shipped_formats()["hermes"], [text]) == Read(invalid=(text,))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=3)
    | st.sampled_from(["\ud83d", "\udc00a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", 'b:"', "\ud800", "c\\"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_a_value_is_one_of_json_if_it_is_read_again_as_it_was_written(value: Any) -> None:
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        assert not is_json_value(value)
        return
    assert is_json_value(value)
    assert json.loads(written) == loaded_once(written.decode()) == value
    assert keys_said_once(written.decode(), value)


@given(st.lists(st.tuples(st.sampled_from('ab"'), st.integers(0, 9)), max_size=4))
def test_keys_that_are_said_twice_are_found(pairs: list[tuple[str, int]]) -> None:
    text = "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in pairs) + "}"
    once = len({key for key, _ in pairs}) == len(pairs)
    assert keys_said_once(text, json.loads(text)) == once
    if not once:
        with pytest.raises(ValueError, match="twice"):
            loaded_once(text)


def shown(pieces: list[str], **options: Any) -> str:
    reader = ReplyReader(GUARD, **options)
    for piece in pieces:
        reader.feed(piece)
    reader.finish()
    return reader.content


PIECES = st.lists(st.text("ab<>", max_size=4), max_size=6)
STRINGS = st.lists(st.text("ab<>", min_size=1, max_size=4), min_size=1, max_size=3)


@given(PIECES, STRINGS)
@settings(max_examples=300, deadline=None)
def test_a_reply_ends_at_the_stop_string_that_is_first_whole(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    ends = [end for end in range(len(text) + 1) if text[:end].endswith(tuple(stops))]
    wanted = text
    if ends:
        wanted = text[: ends[0] - max(len(stop) for stop in stops if text[: ends[0]].endswith(stop))]
    assert shown(pieces, stop=stops) == shown([text], stop=stops) == wanted


@given(PIECES, STRINGS)
@settings(max_examples=300, deadline=None)
def test_special_tokens_are_left_out_the_same_however_a_reply_is_cut(
    pieces: list[str], hidden: list[str]
) -> None:
    text, wanted, left = "".join(pieces), "", ""
    for character in text:
        left += character
        if whole := [one for one in hidden if left.endswith(one)]:
            wanted, left = wanted + left[: -max(map(len, whole))], ""
    wanted += left
    assert shown(pieces, hidden=hidden) == shown([text], hidden=hidden) == wanted


@pytest.mark.parametrize("form", ["gemma-4", "hermes", "mistral"])
def test_a_string_stays_one_where_the_schema_lets_it_be(form: str) -> None:
    entry = shipped_formats()[form]
    for types, said, wanted in (
        (["string", "integer"], "1", "1"),
        (["string", "null"], "null", "null"),
        (["integer", "null"], "1", 1),
        (["boolean"], "true", True),
    ):
        tools = [{"name": "f", "parameters": {"type": "object", "properties": {"v": {"type": types}}}}]
        reader = ReplyReader("pii", form=entry, tools=tools)
        events = [*reader.feed(written_calls(entry, [("f", {"v": said})])), *reader.finish()]
        assert [one.arguments for one in events if isinstance(one, ToolCall)] == [{"v": wanted}]
