"""Arguments in Python: what is let through is read as a valid value, and any valid value can be written."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from nco_guard import Shape
from nco_guard.errors import ShapeError
from nco_guard.replies import InvalidCall, ToolCall, shipped_formats
from nco_guard.replies.writing import written_calls
from tests.shapes.test_tagged_calls import DEFS, SCHEMAS, fits, read, shape_of, tool

FORMS = {name: form for name, form in shipped_formats().items() if form.arguments == "pythonic"}
VALUES: list[Any] = [
    *(
        "",
        "a",
        "ab",
        "1",
        "null",
        "0-a",
        "1z",
        "all",
        "aa1",
        "ä'b\"\\",
        "\n\t",
        "x" * 30,
        "漢字",
        "#",
    ),
    *(0, 1, -3, -4, 11, 12, 4, 6, 10**20, 0.5, -0.5, 1.5, 1.75, 12.25, True, False, None),
    *([], [1], ["a"], [True], [True, False], [True] * 3, [None, {"a": "b"}], {}, {"n": 1}, {"m": 1}),
    {"n": 1, "below": [{"n": 2, "below": []}]},
]
TEXTS = [
    *(
        "true",
        "null",
        "'a'",
        '"a',
        "1e3",
        "-0",
        "007",
        "1.50",
        "+1",
        "1_0",
        '"\\x41"',
        '"\\u0041"',
        "[True]",
        "(1,)",
    ),
    *(
        '{"n": 1, "n": 2}',
        '{"n": 1.0}',
        "[1,2,]",
        '"a" "b"',
        "b'a'",
        "f()",
        "1, w=2",
        "[ ]",
        "#",
        '"a"#',
        "{1: 2}",
    ),
]


@pytest.mark.parametrize("name", ["lfm2", pytest.param("olmo-3", marks=pytest.mark.slow), "pythonic"])
@pytest.mark.parametrize("kind", SCHEMAS)
def test_values_are_written_if_and_only_if_they_are_valid(name: str, kind: str) -> None:
    form, tools = FORMS[name], [tool(SCHEMAS[kind])]
    shape = shape_of(tools, form, kind)
    if shape is None:
        return
    validator = jsonschema.Draft202012Validator({**SCHEMAS[kind], "$defs": DEFS})
    for value in VALUES:
        text = written_calls(form, [("f", {"v": value})])
        assert fits(shape, text) == validator.is_valid(value), text
        if validator.is_valid(value):
            (call,) = read(form, text, tools)
            assert json.dumps(call.arguments) == json.dumps({"v": value})
    assert form.call is not None
    for said in TEXTS:
        text = form.call.before + f"f(v={said})" + form.call.after
        found = read(form, text, tools)
        valid = len(found) == 1 and isinstance(found[0], ToolCall) and [*found[0].arguments] == ["v"]
        assert not fits(shape, text) or (valid and validator.is_valid(found[0].arguments["v"])), text


def test_names_keys_and_arguments_that_are_not_enforced() -> None:
    form = FORMS["lfm2"]
    for name in ("class", "a b", "f(", "1f", "ﬁnd"):
        with pytest.raises(ShapeError, match="cannot write its name"):
            Shape.tools([{"name": name}], form)
    Shape.tools([{"name": "tools.find"}], form)
    with pytest.raises(ShapeError, match=r"2\*\*53"):
        Shape.tools([tool({"type": "integer", "minimum": 2**60})], form)
    parameters = {"type": "object", "properties": {"class": {"type": "integer"}, "c": {"type": "integer"}}}
    shape = Shape.tools([{"name": "f", "parameters": parameters}], form, choice="f")
    assert fits(shape, written_calls(form, [("f", {"c": 1})]))
    assert not fits(shape, written_calls(form, [("f", {"class": 1})]))
    with pytest.raises(ShapeError, match="'f': "):
        Shape.tools([{"name": "f", "parameters": {**parameters, "required": ["class"]}}], form)
    free = Shape.tools([{"name": "f", "parameters": parameters, "strict": False}], form, choice="f")
    for arguments in ({}, {"c": "x", "a": [1], "b": None}, {"b": {"a": True}}):
        assert fits(free, written_calls(form, [("f", arguments)]))
    assert not fits(free, written_calls(form, [("f", {"a": 1, "b": 2})]).replace("b=", "a="))
    assert not fits(free, written_calls(form, [("f", {"if": 1})]))
    several = written_calls(form, [("f", {"a": 1}), ("f", {"a": 2})])
    assert fits(free, several)
    assert not any(isinstance(one, InvalidCall) for one in read(form, several, []))
