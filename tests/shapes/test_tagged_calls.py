"""Arguments in tags: a text may stand in a tag if and only if it is read as a valid value that is written as it prints."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import pytest

from nco_guard import Guard, Policy, Shape, StringRule
from nco_guard.errors import ShapeError
from nco_guard.replies import InvalidCall, ReplyFormat, ReplyReader, ToolCall, shipped_formats
from nco_guard.shapes.library import GrammarReader, tokenizer_of
from nco_guard.shapes.tagged import tag_marks
from nco_guard.shapes.tools import calls_refusal
from tests.shapes.formats import FORMATS

FORMS = {
    name: form
    for name, form in shipped_formats().items()
    if form.arguments == "xml" and calls_refusal(form) is None
}
QUICK = ("qwen3-coder", "deepseek-v3.2", "minicpm-5")
GUARD = Guard(Policy(name="p", rules=[StringRule(id="word", strings=["canary"])]))
DEFS = {
    "Kind": {"enum": ["a", "b"], "type": "string"},
    "Node": {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "below": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
        "required": ["n"],
        "additionalProperties": False,
    },
}
SCHEMAS: dict[str, Any] = {
    "text": {"type": "string"},
    "short": {"type": "string", "minLength": 1, "maxLength": 3},
    "optional text": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "text or whole": {"type": ["string", "integer"]},
    "short or number": {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "number"}]},
    "text or list": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
    "truth or whole": {"type": ["boolean", "integer"]},
    "whole or truth": {"type": ["integer", "boolean"]},
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "bounded": {"type": "integer", "minimum": -3, "exclusiveMaximum": 12},
    "bounded number": {"type": "number", "minimum": -0.5, "maximum": 1.5},
    "even": {"type": "integer", "multipleOf": 2, "maximum": 4},
    "truth": {"type": "boolean"},
    "nothing": {"type": "null"},
    "pattern": {"type": "string", "pattern": "^[01]-?[a-z]$"},
    "found": {"type": "string", "pattern": "a|l$"},
    "names": {"enum": ["a", "1", 1, True, None, "null", 0.5]},
    "const": {"const": "a"},
    "referred": {"$ref": "#/$defs/Kind"},
    "both": {"allOf": [{"type": "string", "minLength": 2}, {"pattern": "^[a1]+$"}]},
    "untyped": {},
    "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    "tree": {"$ref": "#/$defs/Node"},
    "optional tree": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
    "anything": {"type": "object"},
}
TEXTS = [
    *("".join(some) for size in range(5) for some in itertools.product("01-.a", repeat=size)),
    *("".join(some) for size in range(3) for some in itertools.product(' \\n"<[]{},:', repeat=size)),
    *("null", "None", " null", "nul", "nulla", "true", "false", "True", " true ", "truer", "1e3", "+1", "1_0", "١"),
    *("[]", "[1]", "[true]", "[true, false]", "[true, true, true]", "[1e3]", '["a"]', "[ ]", " []", "[", "[a"),
    *('{"n": 1}', '{"n": 1, "n": 1}', '{"n": 1.0}', '{"n": 1, "below": [{"n": 2}]}', '{"m": 1}', "{}", "{a"),
    *("ä", "äää", "äääa", "漢a", "\n", "a\n", "\na", "</", "</parameter", "a" * 40, "9" * 15, "1" + "0" * 15),
    *("0.50", "-0", "-0.0", "-0.5", "12.25", "0.0001", "0.00001", "3.0", "1.5", "1.50", "-3", "-4", "12", "11", "4"),
]


def tool(schema: Any, **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"v": schema}, "required": ["v"], "$defs": DEFS}
    return {"name": "f", "parameters": parameters, **more}


def in_tag(form: ReplyFormat, text: str, kind: str) -> str:
    assert form.call is not None and form.call.argument is not None
    call, argument = form.call, form.call.argument
    marks = tag_marks(argument, form.response_template["fields"]["tool_calls"], [])
    close = call.close.replace("{index}", "0").replace("{number}", "1")
    after = call.after_name.replace("{index}", "0").replace("{number}", "1")
    written = marks.opened("v", kind) + text + argument.close
    return call.before + call.open + "f" + after + written + close + call.after


def read(form: ReplyFormat, text: str, tools: list[dict[str, Any]]) -> list[Any]:
    reader = ReplyReader(GUARD, form=form, tools=tools)
    return [event for event in [*reader.feed(text), *reader.finish()] if isinstance(event, ToolCall | InvalidCall)]


KINDS = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", list: "array", dict: "object",
}  # fmt: skip


def said(form: ReplyFormat, text: str, tools: list[dict[str, Any]]) -> Any:
    """What is read of a text in a tag; no call's value is Ellipsis."""
    calls = read(form, in_tag(form, text, "string"), tools)
    if len(calls) != 1 or isinstance(calls[0], InvalidCall) or [*calls[0].arguments] != ["v"]:
        return ...
    return calls[0].arguments["v"]


def prints_so(value: Any, text: str) -> bool:
    if isinstance(value, str):
        return value == text
    return text.replace("[ ]", "[]") == json.dumps(value)


def left_out(value: Any, text: str, kind: str) -> bool:
    """What is valid and need not come: whole numbers with a point, or beyond what floats hold; what is nearly a number
    or a list beside those; where Python's `$` differs from others'."""
    if isinstance(value, str):
        return text.endswith("\n") or (kind not in ("untyped", "text", "short") and like_others(text))
    return text.endswith(".0") or "1.0" in text or (isinstance(value, int) and abs(value) >= 10**15)


def like_others(text: str) -> bool:
    try:
        return bool(text.lstrip()[:1] in ("[", "{") or float(text) == float(text))
    except ValueError:
        return False


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FORMS]
)
@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_text_may_stand_in_a_tag_if_it_is_read_as_a_valid_value(name: str, kind: str) -> None:
    form, tools = FORMS[name], [tool(SCHEMAS[kind])]
    shape = Shape.tools(tools, form, choice="f", parallel=False)
    reader, start = GrammarReader(shape.grammar, tokenizer_of(None)), shape.places().start
    validator = jsonschema.Draft202012Validator({**SCHEMAS[kind], "$defs": DEFS})
    some = TEXTS if name == "qwen3-coder" else random.Random(kind).sample(TEXTS, 150)
    for text in some:
        value = said(form, text, tools)
        if value is ...:
            wanted = False
        else:
            wanted = validator.is_valid(value) and prints_so(value, text)
        written = in_tag(form, text, KINDS.get(type(value), "string")).encode()
        may = reader.leads(reader.at(b""), written, ends=True) and shape.places().feed(start, written) is not None
        assert may == wanted or (not may and left_out(value, text, kind)), (kind, text, value)
