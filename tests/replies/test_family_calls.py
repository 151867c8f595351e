"""Calls of every family: what an entry writes it reads, whatever is in them and wherever the reply is cut."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nco_guard.replies import shipped_formats
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.parser import Regions
from nco_guard.replies.writing import begun_call, begun_name, written_calls, written_reply
from tests.replies.families import (
    CALLING,
    FORMATS,
    Call,
    Read,
    at_start,
    calls_of,
    cut_at_random,
    read,
    tools_for,
)

IDS = [form.name for form in CALLING]


@pytest.mark.parametrize("form", CALLING, ids=IDS)
def test_calls_are_read_as_they_were_written(form: ReplyFormat) -> None:
    written_is_read(form, 15)


@pytest.mark.slow
@pytest.mark.parametrize("form", CALLING, ids=IDS)
def test_many_calls_are_read_as_they_were_written(form: ReplyFormat) -> None:
    written_is_read(form, 400)


def written_is_read(form: ReplyFormat, count: int) -> None:
    @given(calls_of(form), st.booleans(), st.randoms(use_true_random=False))
    @settings(max_examples=count, deadline=None)
    def holds(calls: list[Call], reasons: bool, random: Random) -> None:
        tools = tools_for(calls)
        assume(form.arguments != "xml" or all(tools_for([call])[0] in tools for call in calls))
        reasoning = "Ω first,\nthen ψ." if reasons and form.reasoning else ""
        content = "" if at_start(form) else "Σ says."
        text = written_reply(form, content, reasoning=reasoning, calls=calls)
        wanted = Read(content, reasoning, tuple(calls))
        assert read(form, [text], tools=tools) == wanted
        assert read(form, cut_at_random(text, random), tools=tools) == wanted

    holds()


@pytest.mark.parametrize("form", CALLING, ids=IDS)
def test_a_forced_call_goes_on_where_the_prompt_ends(form: ReplyFormat) -> None:
    """However much of it is given: the name, or all up to the value of the first argument."""

    @given(calls_of(form), st.randoms(use_true_random=False))
    @settings(max_examples=10, deadline=None)
    def holds(calls: list[Call], random: Random) -> None:
        name, others = calls[0][0], {key: value for key, value in calls[0][1].items() if key != "q"}
        arguments = {"q": "x", **others}
        tools, whole = tools_for([(name, arguments)]), written_calls(form, [(name, arguments)])
        if form.arguments == "pythonic":
            whole = whole.replace("(q='x'", '(q="x"')
        for prompt in {example.prefix for example in form.examples}:
            for begun, behind in (
                (begun_name(form, name), begun_name(form, name, prompt)),
                (begun_call(form, tools[0]), begun_call(form, tools[0], prompt)),
            ):
                assert whole.startswith(begun)
                rest = cut_at_random(whole[len(begun) :], random)
                wanted = Read(calls=((name, arguments),))
                assert read(form, rest, tools=tools, begun=begun) == wanted
                if prompt:
                    assert read(form, rest, tools=tools, prefix=prompt + behind) == wanted

    holds()


def test_what_a_prompt_begins_is_not_said_again() -> None:
    functionary = shipped_formats()["functionary-3.2"]
    assert begun_name(functionary, "find", "<|end_header_id|>\n\n>>>") == "find"
    assert begun_name(functionary, "find", "<|end_header_id|>\n\n") == ">>>find"
    gemma = shipped_formats()["gemma-4"]
    tool = {"name": "find", "parameters": {"properties": {"q": {"type": "string"}}}}
    assert begun_call(gemma, tool) == '<|tool_call>call:find{q:<|"|>'
    thinking = shipped_formats()["deepseek-v3.1"]
    begun = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find"
    assert begun_name(thinking, "find", "<｜Assistant｜><think>") == "</think>" + begun
    assert begun_name(thinking, "find", "<｜Assistant｜></think>") == begun


@pytest.mark.parametrize("form", FORMATS, ids=[form.name for form in FORMATS])
def test_a_reply_that_breaks_off_loses_nothing(form: ReplyFormat) -> None:
    """Letters that no mark has: each of them is content, reasoning, a call's or an invalid call's."""
    calls = [("find", {"q": "ξ", "deep": {"a": ["ζ", 2]}}), ("find", {"q": "θ"})]
    content = "" if form.call is not None and at_start(form) else "Σσ."
    text = written_reply(
        form,
        content,
        reasoning="Ωω." if form.reasoning else "",
        calls=[] if form.call is None else calls if form.call.several else calls[:1],
    )
    tools = tools_for(calls[:1])
    assert any(letter in text for letter in "Σξ")
    for end in range(len(text) + 1):
        found = read(form, [text[:end]], tools=tools)
        shown = found.content + found.reasoning + "".join(found.invalid) + str(found.calls)
        assert [letter for letter in text[:end] if letter in "Σσξζθ" and letter not in shown] == []
        assert "Ω" not in text[:end] or "Ω" in found.reasoning + found.content
        assert all(call in [*calls] for call in found.calls)
        assert read(form, [*text[:end]], tools=tools) == found
        regions = Regions(form)
        assert "".join(piece.text for piece in [*regions.feed(text[:end]), *regions.finish()]) == text[:end]
