"""Formats of users: whatever is wrong with one is said with its field, however it is given, before anything runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from nco_guard.errors import ArgumentError, ArgumentValueError
from nco_guard.replies import ReplyFormat, ReplyReader, as_reply_format, shipped_formats
from nco_guard.replies.entry_faults import template_fault, written_fault
from nco_guard.replies.parser import calls_in
from nco_guard.replies.writing import written_calls
from tests.replies.families import FORMATS

GONE: Any = object()
BASE = {**shipped_formats()["hermes"].model_dump(mode="json", exclude={"examples"}), "name": "own"}
CALLS, THOUGHT = "response_template.fields.tool_calls", "response_template.fields.reasoning_content"
XML = {"open": "<p=", "after_key": ">", "close": "</p>"}
UNREAD = "call: a call that is written by it is not read"


def entry(changes: Mapping[str, Any]) -> dict[str, Any]:
    made = deepcopy(BASE)
    for path, value in changes.items():
        *names, last = path.split(".")
        holder = made
        for name in names:
            holder = holder[name]
        holder[last] = value
        if value is GONE:
            del holder[last]
    return made


def tags(**arguments: Any) -> dict[str, Any]:
    return {
        "arguments": "xml",
        "call.argument": XML,
        f"{CALLS}.content": "xml-inline",
        f"{CALLS}.content_args": arguments,
    }


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"name": GONE}, "name: Field required"),
    ({"name": 3}, "name: "),
    ({"name": "Own Format"}, "name: "),
    ({"title": float("nan")}, "title: "),
    ({"unheard": 1}, "unheard: "),
    ({"response_template": GONE}, "response_template: "),
    ({"response_template": "x"}, "response_template: "),
    ({"response_template.fields": [1]}, "response_template.fields: an object"),
    ({"response_template.fields": {}}, "response_template.fields: an object"),
    ({"response_template.strat": "x"}, "response_template: Unknown keys in response_template: ['strat']"),
    ({CALLS: "x"}, CALLS),
    ({CALLS: None}, CALLS),
    ({THOUGHT: []}, THOUGHT),
    ({"response_template.fields.other": {}}, "At most one field may omit"),
    (
        {"response_template.fields.contents": {}, "response_template.fields.content": GONE},
        "response_template.fields.contents: it has no beginning",
    ),
    (
        {"response_template.fields": {"tool_call": {"open": "x"}, "content": {}}},
        "call: response_template.fields has no",
    ),
    ({f"{CALLS}.open": 3, f"{CALLS}.open_pattern": GONE}, "Field 'tool_calls': 'open' must be a string"),
    ({f"{CALLS}.open": [3], f"{CALLS}.open_pattern": GONE}, "Field 'tool_calls': 'open' list"),
    ({f"{CALLS}.open": "", f"{CALLS}.open_pattern": GONE}, "Field 'tool_calls': 'open' literals"),
    ({f"{CALLS}.open": "<a>", f"{CALLS}.open_pattern": "<a>"}, "Field 'tool_calls': cannot specify both"),
    ({f"{CALLS}.open_pattern": "("}, f"{CALLS}.open_pattern: it is no pattern"),
    ({f"{CALLS}.open_pattern": "x*"}, f"{CALLS}.open_pattern: it matches where there is nothing"),
    ({f"{CALLS}.close": ""}, "Field 'tool_calls': 'close' literals"),
    ({f"{CALLS}.close_pattern": "["}, f"{CALLS}.close_pattern: it is no pattern"),
    ({f"{CALLS}.close_pattern": 1}, f"{CALLS}.close_pattern: a pattern in a string is needed, not int"),
    (
        {f"{CALLS}.close_pattern": None},
        f"{CALLS}.close_pattern: a pattern in a string is needed, not NoneType",
    ),
    ({f"{CALLS}.close_pattern": "x*"}, f"{CALLS}.close_pattern: it matches where there is nothing"),
    ({f"{CALLS}.close": "<a>", f"{CALLS}.close_pattern": "<a>"}, "Field 'tool_calls': cannot specify both"),
    ({f"{CALLS}.content": "jsn"}, "Field 'tool_calls': unknown content parser 'jsn'"),
    ({f"{CALLS}.content_args": "x"}, f"{CALLS}.content_args: an object is needed"),
    ({f"{CALLS}.content_args": {"unqoted_keys": True}}, f"{CALLS}.content_args: unqoted_keys is none of"),
    ({f"{CALLS}.content_args": {"string_delims": "x"}}, f"{CALLS}.content_args.string_delims: "),
    ({f"{CALLS}.content_args": {"string_delims": ["x"]}}, f"{CALLS}.content_args.string_delims: "),
    ({f"{CALLS}.opne": "x"}, "Field 'tool_calls': unknown keys ['opne']"),
    ({f"{CALLS}.transform": {"type": "function", "function": "{nothing}"}}, UNREAD),
    ({f"{CALLS}.transform": 3}, UNREAD),
    ({f"{CALLS}.transform_each": "yes"}, "Field 'tool_calls': transform_each must be a bool"),
    (
        {"response_template.start_anchor": 3, "response_template.start_anchor_pattern": GONE},
        "'start_anchor' must be a string",
    ),
    (
        {"response_template.start_anchor": GONE, "response_template.start_anchor_pattern": "("},
        "response_template.start_anchor_pattern: it is no pattern",
    ),
    (
        {"response_template.start_anchor": "a", "response_template.start_anchor_pattern": "a"},
        "cannot specify both",
    ),
    (tags(), f"{CALLS}.content_args.tag_pattern: it is needed"),
    (tags(tag_pattern="("), f"{CALLS}.content_args.tag_pattern: it is no pattern"),
    (tags(tag_pattern="<a>(.*)</a>"), f"{CALLS}.content_args.tag_pattern: it needs the groups"),
    ({"arguments": "xml", "call.argument": {**XML, "nested": "x"}}, CALLS),
    ({"arguments": "xml"}, "call.argument: it is there for"),
    ({"arguments": "yaml"}, "arguments: "),
    ({"arguments": "pythonic"}, UNREAD),
    ({"objects": "x"}, "objects: "),
    ({"objects": "names"}, UNREAD),
    ({"call": "x"}, "call: "),
    ({"call": {"open": "<"}}, "call.after_name: Field required"),
    ({"call.opne": "x"}, "call.opne: "),
    ({"call.before": 1}, "call.before: "),
    ({"call.argument": XML}, "call.argument: it is there for"),
    ({"call.open": '<nope>{"name": "'}, UNREAD),
    (
        {
            "call.open": '<nope>{"name": "',
            f"{THOUGHT}.open_pattern": r"\^x",
            f"{THOUGHT}.open": GONE,
            "reasoning": None,
        },
        UNREAD,
    ),
    ({"call.close": "} ", f"{CALLS}.close": " ", f"{CALLS}.close_pattern": GONE}, UNREAD),
    ({"reasoning": "x"}, "reasoning: "),
    ({"reasoning": {"open": "x"}}, "reasoning.close: Field required"),
    ({"reasoning": {"open": "[z]", "close": "[/z]"}}, "reasoning: what it writes is not read"),
    ({THOUGHT: GONE}, "reasoning: what it writes is not read"),
    ({"known_by": "x"}, "known_by: "),
    ({"known_by": [""]}, "known_by, known_not_by: "),
    ({"special": "x"}, "special: "),
    ({"offering": {"system": "x", "result": "{result}"}}, "offering: system: it says nowhere {tools}"),
    ({"limits": "x"}, "limits: "),
    ({"examples": [{"text": 1}]}, "examples.0.text: "),
]


@pytest.mark.parametrize(
    ("changes", "said"), MISTAKES, ids=lambda each: each[:40] if isinstance(each, str) else ""
)
def test_a_mistake_is_named_with_its_field(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    given = entry(changes)

    def by_file() -> ReplyFormat:
        (tmp_path / "own.json").write_text(json.dumps(given))
        return as_reply_format(tmp_path / "own.json")

    ways: list[Any] = [
        lambda: as_reply_format(given),
        by_file,
        lambda: as_reply_format(ReplyFormat(**given)),
        lambda: ReplyReader("pii", form=ReplyFormat(**given)),
    ]
    for way in ways:
        with pytest.raises(ArgumentValueError) as caught:
            way()
        assert str(caught.value).startswith("reply_format")
        assert said in str(caught.value)


def _ended_by(mark: str) -> ReplyFormat:
    return ReplyFormat(
        **entry({"call.close": f"}}{mark}", f"{CALLS}.close": mark, f"{CALLS}.close_pattern": GONE})
    )


@pytest.mark.parametrize("mark", ["!", "\\n", "x\n", "\u00e9", "\U0001f600\U0001f600", "</c>", '"]', "d8"])
def test_what_ends_a_call_is_escaped_in_strings(mark: str) -> None:
    form = as_reply_format(_ended_by(mark))
    for text in (f"a{mark}b", mark, f"{mark}{mark}", f'"{mark}\\{mark}', "plain"):
        calls = [("probe_tool", {"key": text})]
        assert calls_in(form, written_calls(form, calls), []) == calls


@pytest.mark.parametrize("mark", [" ", "0", "u", "\\", "\\u", "\n", "}", '"', ":"])
def test_what_has_no_escape_is_written_as_it_stands(mark: str) -> None:
    written = written_calls(_ended_by(mark), [("probe_tool", {"key": f"a{mark}", "other": [1, 0]})])
    assert written.endswith(mark)


@pytest.mark.parametrize(
    "given", [3, None, b"x", ["a"], "x.yaml", "", "missing.json", Path("/"), {1: 2}, {}, "a\0b.json"]
)
def test_what_is_no_entry_is_refused(given: Any) -> None:
    with pytest.raises(ArgumentError, match="reply_format"):
        as_reply_format(given)


def test_fields_have_names() -> None:
    fields = {3: {"open": "x"}, "tool_calls": BASE["response_template"]["fields"]["tool_calls"]}
    with pytest.raises(ArgumentValueError, match=r"response_template\.fields\.3: a field has a name"):
        as_reply_format(entry({"response_template.fields": fields}))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_entries_that_ship_have_no_fault(form: ReplyFormat) -> None:
    assert template_fault(form) is written_fault(form) is None
    assert as_reply_format(form.model_dump(mode="json")) == form


def test_an_entry_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    form = as_reply_format(ReplyFormat(**BASE))
    monkeypatch.delattr("transformers.utils.chat_parsing.ResponseParser")
    assert as_reply_format(form) is form
