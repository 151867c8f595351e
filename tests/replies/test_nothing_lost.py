"""What stands where calls stand and is none is told with its text: misspelt keys, lists without calls, odd Python."""

from __future__ import annotations

import ast
import json
import re
from random import Random
from typing import Any

import pytest

from nco_guard.replies import ReplyFormat, shipped_formats
from nco_guard.replies.parser import CALLS, Regions, pythonic_calls
from nco_guard.replies.writing import written_calls
from tests.replies.families import CALLING, Read, cut_at_random, read

CALL = ("find", {"key": "Oslo"})
TOOLS = [{"name": "find", "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}}]
BY_NAME = pytest.mark.parametrize("form", CALLING, ids=lambda form: form.name)


def told(form: ReplyFormat, text: str) -> Read:
    """What is read of a reply, which is the same however it is cut."""
    whole = read(form, [text], tools=TOOLS)
    random = Random(text)
    assert all(read(form, cut_at_random(text, random), tools=TOOLS) == whole for _ in range(4))
    return whole


@BY_NAME
def test_a_key_that_is_misspelt_makes_no_call_without_arguments(form: ReplyFormat) -> None:
    text = written_calls(form, [CALL])
    for key in re.finditer(r"(?<!\w)(arguments|parameters)(?!\w)", text):
        for other in (key[0][:-1], key[0].title(), "input"):
            misspelt = text[: key.start()] + other + text[key.end() :]
            found = told(form, misspelt)
            assert not found.calls
            assert "Oslo" in found.content + "".join(found.invalid)


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('"name": "find"', {}),
        ('"name": "find", "id": "1", "type": "function"', {}),
        ('"name": "find", "parameters": {"a": 1}', {"a": 1}),
        ('"name": "find", "arguments": {"a": 1}, "id": "1"', {"a": 1}),
        ('"name": "find", "arguments": "{}"', {}),
        ('"name": "find", "argument": {"a": 1}', None),
        ('"name": "find", "args": {}', None),
        ('"name": "find", "arguments": {}, "parameters": {"a": 1}', None),
        ('"name": "find", "arguments": null', None),
    ],
)
def test_arguments_stand_under_a_key_that_is_known(body: str, arguments: Any) -> None:
    text = f"<tool_call>{{{body}}}</tool_call>"
    wanted = Read(invalid=(text,)) if arguments is None else Read(calls=(("find", arguments),))
    assert told(shipped_formats()["hermes"], text) == wanted


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('"type": "function", "function": {"name": "find"}', {}),
        ('"type": "function", "function": {"name": "find", "arguments": {"a": 1}}', {"a": 1}),
        ('"type": "function", "function": {"name": "find"}, "arguments": {"a": 1}', None),
        ('"type": "function", "function": {"name": "find", "params": {}}', None),
        ('"function": "find", "arguments": {}', None),
    ],
)
def test_arguments_of_a_function_stand_in_it(body: str, arguments: Any) -> None:
    text = f"<tool_calls>\n{{{body}}}\n</tool_calls>"
    wanted = Read(invalid=(text,)) if arguments is None else Read(calls=(("find", arguments),))
    assert told(shipped_formats()["minimax-m1"], text) == wanted


@BY_NAME
@pytest.mark.parametrize("body", ["", " ", "[]", "[[]]", "[ ]", "{}", "null", "[null]", "[{}]", '[[], "x"]'])
def test_a_region_without_calls_is_told_with_its_text(form: ReplyFormat, body: str) -> None:
    pieces = [*(regions := Regions(form)).feed(written_calls(form, [CALL])), *regions.finish()]
    opened = next(one.text for one in pieces if one.region == CALLS and one.kind == "open")
    closed = next((one.text for one in pieces if one.region == CALLS and one.kind == "close"), "")
    text = opened + body + closed
    found = told(form, text)
    if (
        found.calls
    ):  # where the mark that opens a call names it, and the body is arguments or the rest of a name
        assert body.strip() in "".join(name + json.dumps(given) for name, given in found.calls)
    else:
        shown = found.content + "".join(found.invalid)
        assert body.strip() in shown
        assert opened.strip() in shown


def test_what_a_list_without_calls_is() -> None:
    for name, text in (("mistral", "[TOOL_CALLS][]"), ("smollm2", "<tool_call>[]</tool_call>")):
        assert told(shipped_formats()[name], text) == Read(invalid=(text,))


PYTHON: list[tuple[str, Any]] = [
    ('a="""x"""', {"a": "x"}),
    ('a="""x"y\nz"""', {"a": 'x"y\nz'}),
    ("a='''it's # not; this'''", {"a": "it's # not; this"}),
    ('a="""x\n#y""", b="m\nn"', {"a": "x\n#y", "b": "m\nn"}),
    ('a="""x\r\ny"""', {"a": "x\r\ny"}),
    ('a="x\r\ny"', {"a": "x\r\ny"}),
    ('a=r"""x\r\ny"""', None),
    ('a=r"x\ny"', None),
    (r'a=r"x\ny"', {"a": r"x\ny"}),
    ('a="x\\\ny"', {"a": "xy"}),
    ('a="x\\\n\ny"', {"a": "x\ny"}),
    ('a="x" "y"', {"a": "xy"}),
    ('a=f"x"', None),
    ('a=1 # """', None),
    ('a="""x""" # y\n', None),
    ("a=1 #\n", None),
]


@pytest.mark.parametrize(("arguments", "wanted"), PYTHON)
def test_strings_and_comments_of_python(arguments: str, wanted: Any) -> None:
    for text in (f"[f({arguments})]", f"f({arguments})"):
        assert pythonic_calls(text) == (None if wanted is None else [("f", wanted)])
    reply = f"<|tool_call_start|>[f({arguments})]<|tool_call_end|>"
    found = told(shipped_formats()["lfm2"], reply)
    assert found == (Read(invalid=(reply,)) if wanted is None else Read(calls=(("f", wanted),)))


@pytest.mark.parametrize("seed", range(300))
def test_what_python_reads_is_read_as_python_does(seed: int) -> None:
    random = Random(seed)
    parts = ["'", '"', "'''", '"""', "\\", "\n", "#", ";", "x", "r", "\r", " ", "\\n", "\\'"]
    text = "f(a=" + "".join(random.choices(parts, k=random.randint(1, 9))) + ")"
    found = pythonic_calls(text)
    try:
        (keyword,) = ast.parse(text, mode="eval").body.keywords  # type: ignore[attr-defined]
        value = ast.literal_eval(keyword.value)
    except (SyntaxError, ValueError, AttributeError):
        return
    if found is not None and "\r" not in text:
        assert found == [("f", {"a": value})]
    if found is None:  # then something would be lost
        assert "#" in text or "\r" in text or not isinstance(value, str)
