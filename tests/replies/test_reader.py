"""`ReplyReader`: text and calls, however the reply is cut into pieces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.errors import ViolationError
from nco_guard.replies import InvalidCall, Reasoning, ReplyReader, Text, ToolCall, shipped_formats
from nco_guard.values import Cleaner

GUARD = Guard(
    Policy(
        name="replies",
        rules=(
            StringRule(id="word", strings=("canary",)),
            RegexRule(id="ass", regex=r"\bass\b"),
            StringRule(id="after", strings=("promptend",), context="prompt"),
        ),
    )
)
HERMES = shipped_formats()["hermes-line"]
CALL = '<tool_call>{"name": "f", "arguments": {"q": "x"}}</tool_call>'


def read(pieces: list[str], **options: Any) -> tuple[str, list[Any]]:
    reader = ReplyReader(GUARD, **{"form": HERMES, "tools": [], **options})
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.finish()
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert text == reader.content
    rest = [event for event in events if not isinstance(event, Text)]
    assert [event for event in rest if isinstance(event, ToolCall)] == list(reader.calls)
    return text, [
        (event.name, event.arguments)
        if isinstance(event, ToolCall)
        else (event.text, event.problem if isinstance(event, InvalidCall) else "")
        for event in joined_reasoning(rest)
    ]


def joined_reasoning(events: list[Any]) -> list[Any]:
    """Pieces of reasoning that follow each other as one."""
    joined: list[Any] = []
    for event in events:
        if joined and isinstance(event, Reasoning) and isinstance(joined[-1], Reasoning):
            event = Reasoning(joined.pop().text + event.text)
        joined.append(event)
    return joined


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places})
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


REPLIES: list[tuple[str, dict[str, Any], str, list[Any]]] = [
    ("", {}, "", []),
    ("hello", {}, "hello", []),
    (f"a{CALL}b", {}, "ab", [("f", {"q": "x"})]),
    (f"a{CALL}{CALL}", {"single_call": True}, "a", [("f", {"q": "x"})]),
    (f"a{CALL}", {"tools": None}, f"a{CALL}", []),
    ('a<tool_call>{"name": "f", "parameters": {}}', {}, "a", [("f", {})]),
    ('<tool_call>{"name": "f", "arguments": "{}"}</tool_call>', {}, "", [("f", {})]),
    (
        "a<tool_call>no</tool_call>b",
        {},
        "ab",
        [("<tool_call>no</tool_call>", "the call is not JSON with name and arguments")],
    ),
    (
        "a<tool_call>no</tool_call>b",
        {"invalid_as_text": True},
        "a<tool_call>no</tool_call>b",
        [("<tool_call>no</tool_call>", "the call is not JSON with name and arguments")],
    ),
    ("a<tool_call>no", {}, "a", [("<tool_call>no", "the call is not finished")]),
    (
        "a<tool_call>no",
        {"invalid_as_text": True},
        "a<tool_call>no",
        [("<tool_call>no", "the call is not finished")],
    ),
    ("a <tool", {}, "a <tool", []),
    ("one STOP two", {"stop": ["STOP"]}, "one ", []),
    ("one STO", {"stop": ["STOP"]}, "one STO", []),
    ("first, assSTOPist", {"stop": ["STOP"]}, "first, as", []),
    # A stop string counts in the text that is given, joined.
    (f"a STOP{CALL}", {"stop": ["STOP"]}, "a ", []),
    (f"a{CALL}STOP", {"stop": ["STOP"]}, "a", [("f", {"q": "x"})]),
    (f"a ST{CALL}OP b", {"stop": ["STOP"]}, "a ", [("f", {"q": "x"})]),
    (f"a{CALL}b", {"stop": ["tool", "<", "name", "x", "}}"]}, "ab", [("f", {"q": "x"})]),
    (f"a\n{CALL}\nb", {"stop": ["\n"]}, "a", []),
    (f"a{CALL}b", {"stop": ["</tool"], "tools": None}, "a" + CALL.partition("</tool")[0], []),
    ("<think>STOP</think>a STOP", {"stop": ["STOP"]}, "a ", [("STOP", "")]),
    ("a ST<think>OP</think>OP b", {"stop": ["STOP"]}, "a ", [("OP", "")]),
    ("a <|x|>ST<|x|>OP b", {"stop": ["STOP"], "hidden": ["<|x|>"]}, "a ", []),
    (
        "a<tool_call>STOP</tool_call>b",
        {"stop": ["STOP"]},
        "ab",
        [("<tool_call>STOP</tool_call>", "the call is not JSON with name and arguments")],
    ),
    ("a<tool_call>STOP</tool_call>b", {"stop": ["STOP"], "invalid_as_text": True}, "a<tool_call>", []),
    (
        '"x"}}</tool_call>!',
        {"begun": '<tool_call>{"name": "f", "arguments": {"q": '},
        "!",
        [("f", {"q": "x"})],
    ),
]


@pytest.mark.parametrize(("reply", "options", "text", "calls"), REPLIES)
@given(places=st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=25, deadline=None)
def test_a_reply_reads_the_same_however_it_is_cut(
    reply: str, options: dict[str, Any], text: str, calls: list[Any], places: list[int]
) -> None:
    assert read(cut(reply, places), **options) == (text, calls)


@pytest.mark.parametrize(
    "reply",
    [
        '<tool_call>{"name": "f", "arguments": {"q": "\\u0063anary"}}</tool_call>',
        '<tool_call>{"name": "can\\u0061ry", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"\\u0063anary": 1}}',
        f"cana{CALL}ry",
        "<tool_call>\\u0063anary</tool_call>",
    ],
)
def test_what_parsing_and_cutting_bring_out_is_refused(reply: str) -> None:
    with pytest.raises(ViolationError):
        read([reply])
    with pytest.raises(ViolationError):
        read(list(reply))


@pytest.mark.parametrize(
    "reply",
    [r"a \u0063anary", r"a \\u0063anary", r'{"q": "can\u0061ry"}', r"an \u0061ss", r"\u0061s\u0073 \u0061"],
)
@given(places=st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=25, deadline=None)
def test_what_escapes_of_the_text_read_as_is_refused_where_somebody_parses_it(
    reply: str, places: list[int]
) -> None:
    assert read(cut(reply, places))[0] == reply
    reader = ReplyReader(GUARD, escapes=True)
    with pytest.raises(ViolationError, match="read as JSON"):
        [*map(reader.feed, cut(reply, places)), reader.finish()]
    # What was shown before holds no match in any reading.
    assert reply.startswith(reader.content)
    assert Cleaner(GUARD).rules(reader.content) == ()


@pytest.mark.parametrize("reply", [r"\u0061ssembly", r"a\nb \u0041", "\\", r"\u006", r"C:\new\assets"])
@given(places=st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=25, deadline=None)
def test_escapes_that_read_as_nothing_forbidden_are_shown(reply: str, places: list[int]) -> None:
    assert read(cut(reply, places), escapes=True)[0] == reply


@pytest.mark.parametrize(
    "reply", [r'"\u0430\u0441\u0441\u0430"', r"\u0061ss\u0065t", r"\\u0061ss\\u0065t", r"\ud83d\ude00 x"]
)
@given(places=st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=25, deadline=None)
def test_an_escape_that_has_only_begun_is_no_border_of_a_word(reply: str, places: list[int]) -> None:
    assert read(cut(reply, places), escapes=True)[0] == reply
    assert read(list(reply), escapes=True)[0] == reply


def test_rules_that_read_the_prompt() -> None:
    assert read(["ent"], context="promp")[0] == "ent"
    with pytest.raises(ViolationError):
        read([f"te{CALL}nd"], context="promp")


def test_ids_are_new_and_hold_no_digit() -> None:
    reader = ReplyReader(GUARD, form=HERMES, tools=[])
    first, second = (event for event in reader.feed(CALL + CALL) if isinstance(event, ToolCall))
    assert first.id != second.id
    assert not any(character.isdigit() for character in first.id)
    assert reader.finish() == []
    assert isinstance(
        ReplyReader(GUARD, form=HERMES, tools=[]).feed("<tool_call>1</tool_call>")[0], InvalidCall
    )


PIECEMEAL = [
    Guard(Policy(name="p", rules=rules))
    for rules in (
        (StringRule(id="w", strings=("abc", "cab")), RegexRule(id="b", regex=r"\bba\b")),
        (RegexRule(id="c", regex=r"a.{0,3}b(?!c)", context="prompt"), RegexRule(id="d", regex=r"c\n?$")),
        (RegexRule(id="e", regex="(?<!a)bcc"), StringRule(id="f", strings=("bb", "aa"), case="fold")),
    )
]


@pytest.mark.parametrize("guard", PIECEMEAL)
def test_what_is_shown_is_the_longest_text_that_may_end(guard: Guard) -> None:
    """By the definition, a search of each prefix; the reader keeps where it has got to."""

    @settings(max_examples=150, deadline=None)
    @given(
        pieces=st.lists(st.text("abcB \n", max_size=4), max_size=6), context=st.sampled_from(["", "a", "ab"])
    )
    def holds(pieces: list[str], context: str) -> None:
        reader, text = ReplyReader(guard, context=context), ""
        for piece in [*pieces, None]:
            text += piece or ""
            try:
                events = reader.finish() if piece is None else reader.feed(piece)
            except ViolationError as error:
                assert not guard.verify(text, context=context).ok
                # No way on makes it right, and nobody is shown more.
                assert not any(guard.verify(text + more, context=context).ok for more in ("c", " ", "a", "b"))
                shown = reader.content
                with pytest.raises(ViolationError) as again:
                    reader.finish()
                broken = error.rule_ids
                break
            assert all(isinstance(event, Text) for event in events)
            ends = [end for end in range(len(text) + 1) if guard.verify(text[:end], context=context).ok]
            assert reader.content == text[: ends[-1]]
        else:
            return
        assert (again.value.rule_ids, reader.content) == (broken, shown)

    holds()


def test_no_text_is_searched_again_for_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the text so far was searched")

    body = '{"name": "f", "arguments": {"q": "' + "x" * 500 + '"}}'
    reader = ReplyReader(GUARD, escapes=True, stop=["never"], form=HERMES, tools=[])
    monkeypatch.setattr(type(GUARD.verifier), "verify", refuse)
    for letter in f"a grass cutter <b> {body}" * 3:
        reader.feed(letter)
    assert reader.content.startswith("a grass cutter <b>")
    assert reader.content.endswith("}}")


def test_a_policy_that_forbids_what_ids_begin_with_lets_calls_be() -> None:
    said = '<tool_call>{"name": "z", "arguments": {}}</tool_call>'
    rules: list[StringRule | RegexRule] = [StringRule(id="r", strings=("call",))]
    # Of the last two hardly an id of all letters is without a match.
    rules += [RegexRule(id="r", regex=regex) for regex in ("_", "[b-df-k]", "(?<!a)[bc]")]
    for rule in rules:
        guard = Guard(Policy(name="p", rules=(rule,)))
        reader = ReplyReader(guard, form=HERMES, tools=[])
        (call,) = [one for one in reader.feed(said) + reader.finish() if isinstance(one, ToolCall)]
        assert call.id
        assert guard.verify(call.id).ok
    # Where nothing can be an id, the error says what was searched.
    reader = ReplyReader(
        Guard(Policy(name="p", rules=(RegexRule(id="long", regex="[a-z]{20}"),))), form=HERMES, tools=[]
    )
    with pytest.raises(ViolationError, match=r"id that a tool call .* 'long'"):
        reader.feed(CALL)
