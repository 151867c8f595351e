"""What is cut out of guarded text is checked again, however the text was split."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.llms.nco_guard.replies import ReplyReader, parse_call

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.errors import ViolationError
from nco_guard.verify import verify

MARKS = ("<tool_call>", "</tool_call>")
NOTHING = compile_policy(Policy(name="nothing", rules=[StringRule(id="nothing", strings=["\0"])]))
WORD = compile_policy(Policy(name="word", rules=[RegexRule(id="word", regex=r"\bass\b")]))


def call(name: str = "find", **arguments: Any) -> str:
    return f"{MARKS[0]}{json.dumps({'name': name, 'arguments': arguments})}{MARKS[1]}"


def read(
    pieces: list[str], policy: CompiledPolicy = NOTHING, **options: Any
) -> tuple[list[str], ReplyReader]:
    reader = ReplyReader(policy, **options)
    shown = [reader.feed(piece) for piece in pieces]
    shown.append(reader.feed("", final=True))
    return shown, reader


def expected(text: str, stops: list[str]) -> str:
    """The definition: up to the first stop string, then up to the first whole call."""
    for size in range(len(text) + 1):
        if any(text[:size].endswith(stop) for stop in stops):
            text = min((text[: text.index(stop)] for stop in stops if stop in text), key=len)
            break
    start = 0
    while (opened := text.find(MARKS[0], start)) >= 0:
        closed = text.find(MARKS[1], opened)
        body = text[opened + len(MARKS[0]) : closed if closed >= 0 else len(text)]
        if parse_call(body) is not None:
            return text[:opened]
        if closed < 0:
            break
        start = closed + len(MARKS[1])
    return text


PARTS = st.sampled_from(
    ["a", "<", "<tool", MARKS[0], MARKS[1], call(), call(x="</"), "STOP", "ST", "ass", " ", "b"]
)


@given(parts=st.lists(PARTS, max_size=8), cuts=st.lists(st.integers(0, 120), max_size=6), stops=st.booleans())
def test_content_does_not_depend_on_how_the_text_was_split(
    parts: list[str], cuts: list[int], stops: bool
) -> None:
    text = "".join(parts)
    stop = ["STOP"] if stops else []
    edges = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    shown, reader = read(pieces, stop=stop, marks=MARKS)
    whole, same = read([text], stop=stop, marks=MARKS)
    assert "".join(shown) == reader.content == same.content == "".join(whole) == expected(text, stop)
    assert [(c.name, c.arguments) for c in reader.calls] == [(c.name, c.arguments) for c in same.calls]


@given(parts=st.lists(PARTS, max_size=8), cuts=st.lists(st.integers(0, 120), max_size=6))
def test_nothing_shown_matches_however_the_text_was_split(parts: list[str], cuts: list[int]) -> None:
    """The engine hands over pieces after which the text may end; what the reader cuts may end as well."""
    text = "".join(parts)
    ends = [size for size in range(len(text) + 1) if verify(WORD, text[:size]).ok]
    if not verify(WORD, text).ok:
        return
    edges = sorted({0, *(cut for cut in cuts if cut in ends), len(text)})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    reader = ReplyReader(WORD, stop=["STOP"], marks=MARKS)
    for piece in pieces:
        reader.feed(piece)
        assert verify(WORD, reader.content).ok
    reader.feed("", final=True)
    assert verify(WORD, reader.content).ok


def test_a_call_is_shown_once_it_is_whole() -> None:
    reader = ReplyReader(NOTHING, marks=MARKS)
    text = "Wait. " + call(x=1)
    for character in text[:-1]:
        reader.feed(character)
        assert not reader.calls
    reader.feed(text[-1])
    assert reader.content == "Wait. "
    assert [(c.name, c.arguments) for c in reader.calls] == [("find", {"x": 1})]


def test_several_calls_are_read_unless_one_is_wanted() -> None:
    text = call(x=1) + "\n" + call("look", y=2) + " done"
    assert [c.name for c in read([text], marks=MARKS)[1].calls] == ["find", "look"]
    assert [c.name for c in read([text], marks=MARKS, single_call=True)[1].calls] == ["find"]
    assert read([text], marks=MARKS)[1].content == ""


def test_a_call_without_its_closing_mark_counts_and_one_cut_short_is_text() -> None:
    assert read([call(x=1).removesuffix(MARKS[1])], marks=MARKS)[1].calls
    cut = call(x=1)[:-16]
    assert read([cut], marks=MARKS)[1].content == cut
    assert not read([cut], marks=MARKS)[1].calls


def test_a_call_that_the_prompt_began_is_read_with_its_beginning() -> None:
    begun = MARKS[0] + '{"name": "find", "arguments":'
    shown, reader = read([' {"x": ', "1}}", MARKS[1]], marks=MARKS, begun=begun, stop=["find"])
    assert not "".join(shown)
    assert [(c.name, c.arguments) for c in reader.calls] == [("find", {"x": 1})]


@pytest.mark.parametrize(
    "body",
    [
        r'{"name": "find", "arguments": {"x": "\u0061ss"}}',
        r'{"name": "find", "arguments": {"\u0061ss": 1}}',
        r'{"name": "find", "arguments": {"x": [["\u0061ss"]]}}',
        r'{"name": "\u0061ss", "arguments": {}}',
        r'{"name": "find", "arguments": "{\"x\": \"\\u0061ss\"}"}',
    ],
)
def test_what_json_escapes_hide_is_found_once_a_call_is_parsed(body: str) -> None:
    assert verify(WORD, body).ok
    with pytest.raises(ViolationError, match="word"):
        read([MARKS[0] + body + MARKS[1]], WORD, marks=MARKS)


@pytest.mark.parametrize(
    "body", ["", "null", "[]", '{"name": 1, "arguments": {}}', '{"name": "x"}', "[" * 5000, "{"]
)
def test_what_is_no_call_is_none(body: str) -> None:
    assert parse_call(body) is None
