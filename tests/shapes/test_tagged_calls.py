"""Arguments in tags: a text may stand in one if and only if it is read as a valid value that prints so."""

from __future__ import annotations

import itertools
import json
import random
import re
from functools import lru_cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_guard import Guard, Policy, Shape, StringRule
from nco_guard.errors import ShapeError
from nco_guard.replies import InvalidCall, ReplyFormat, ReplyReader, ToolCall, shipped_formats
from nco_guard.replies.writing import written_calls
from nco_guard.shapes.branches import read_as
from nco_guard.shapes.dialect import searched_pattern
from nco_guard.shapes.format_texts import FORMAT_TEXTS
from nco_guard.shapes.library import GrammarReader, library_since, tokenizer_of
from nco_guard.shapes.number_texts import whole_between
from nco_guard.shapes.tagged import tag_marks
from tests.shapes.formats import FORMATS

FORMS = {
    name: form
    for name, form in shipped_formats().items()
    if form.call and form.call.argument and not form.call.argument.nested
}
QUICK = ("qwen3-coder", "deepseek-v3.2", "minicpm-5")
GUARD = Guard(Policy(name="p", rules=[StringRule(id="word", strings=["canary"])]))
DEFS = {
    "Kind": {"enum": ["a", "b"], "type": "string"},
    "Node": {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "below": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        },
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
    *(
        "null",
        "None",
        " null",
        "nul",
        "nulla",
        "true",
        "false",
        "True",
        " true ",
        "truer",
        "1e3",
        "+1",
        "1_0",
        "١",
    ),
    *(
        "[]",
        "[1]",
        "[true]",
        "[true, false]",
        "[true, true, true]",
        "[1e3]",
        '["a"]',
        "[ ]",
        " []",
        "[",
        "[a",
    ),
    *('{"n": 1}', '{"n": 1, "n": 1}', '{"n": 1.0}', '{"n": 1, "below": [{"n": 2}]}', '{"m": 1}', "{}", "{a"),
    *("ä", "äää", "äääa", "漢a", "\n", "a\n", "\na", "</", "</parameter", "a" * 40, "9" * 15, "1" + "0" * 15),
    *(
        "0.50",
        "-0",
        "-0.0",
        "-0.5",
        "12.25",
        "0.0001",
        "0.00001",
        "3.0",
        "1.5",
        "1.50",
        "-3",
        "-4",
        "12",
        "11",
        "4",
    ),
]


def tool(schema: Any, **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"v": schema}, "required": ["v"], "$defs": DEFS}
    return {"name": "f", "parameters": parameters, **more}


def in_tag(form: ReplyFormat, text: str, kind: str) -> str:
    assert form.call is not None
    assert form.call.argument is not None
    call, argument = form.call, form.call.argument
    marks = tag_marks(argument, form.response_template["fields"]["tool_calls"], [])
    close = call.close.replace("{index}", "0").replace("{number}", "1")
    after = call.after_name.replace("{index}", "0").replace("{number}", "1")
    written = marks.opened("v", kind) + text + argument.close
    return call.before + call.open + "f" + after + written + close + call.after


def read(form: ReplyFormat, text: str, tools: list[dict[str, Any]]) -> list[Any]:
    reader = ReplyReader(GUARD, form=form, tools=tools)
    return [
        event for event in [*reader.feed(text), *reader.finish()] if isinstance(event, ToolCall | InvalidCall)
    ]


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


def shape_of(tools: list[dict[str, Any]], form: ReplyFormat, kind: str) -> Shape | None:
    """The shape of one call of a tool with a schema of a kind; None where the library is too old, which it says."""
    if kind == "even" and not library_since(1, 8):
        with pytest.raises(ShapeError, match=r"llguidance before 1\.8"):
            Shape.tools(tools, form, choice="f", parallel=False)
        return None
    return Shape.tools(tools, form, choice="f", parallel=False)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FORMS]
)
@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_text_may_stand_in_a_tag_if_it_is_read_as_a_valid_value(name: str, kind: str) -> None:
    form, tools = FORMS[name], [tool(SCHEMAS[kind])]
    shape = shape_of(tools, form, kind)
    if shape is None:
        return
    validator = jsonschema.Draft202012Validator({**SCHEMAS[kind], "$defs": DEFS})
    some = random.Random(kind).sample(TEXTS, 500 if name == "qwen3-coder" else 150)
    for text in some:
        value = said(form, text, tools)
        wanted = value is not ... and validator.is_valid(value) and prints_so(value, text)
        may = fits(shape, in_tag(form, text, KINDS.get(type(value), "string")))
        assert may == wanted or (not may and left_out(value, text, kind)), (kind, text, value)


@lru_cache(maxsize=4)
def readers(shape: Shape) -> tuple[GrammarReader, Any]:
    return GrammarReader(shape.grammar, tokenizer_of(None)), shape.places()


def fits(shape: Shape, text: str) -> bool:
    reader, places = readers(shape)
    return (
        reader.leads(reader.at(b""), text.encode(), ends=True)
        and places.feed(places.start, text.encode()) is not None
    )


@pytest.mark.parametrize("name", QUICK)
def test_arguments_that_are_not_enforced_are_any_that_are_read(name: str) -> None:
    """Of a schema that cannot be enforced, too; keys stand once, and lists and objects say each key once."""
    form = FORMS[name]
    free = tool({"anyOf": [{"type": "object"}, {"type": "array", "uniqueItems": True}]}, strict=False)
    with pytest.raises(ShapeError, match="uniqueItems"):
        Shape.tools([{**free, "strict": None}], form)
    shape = Shape.tools([free], form, choice="f")
    for arguments, may in (
        ({}, True),
        ({"v": {"a": [1]}}, True),
        ({"v": [1, 1]}, True),
        ({"v": "x", "w": "y z", "u": "[1"}, True),
        ({"w": "null"}, True),
    ):
        text = written_calls(form, [("f", arguments)])
        assert fits(shape, text) == may, text
        assert [(call.name, call.arguments) for call in read(form, text, [free])] == [("f", arguments)]
    kind = "object" if "{" in str(form.call and form.call.argument) else "string"
    assert not fits(shape, in_tag(form, '{"a": 1, "a": 2}', kind))
    assert not fits(shape, in_tag(form, "[1e999]", kind))
    again = written_calls(form, [("f", {"w": "a", "x": "b"})])
    assert fits(shape, again)
    assert not fits(shape, again.replace('"x"', '"w"').replace("=x>", "=w>"))
    several = again + (form.call.between if form.call else "") + again
    assert form.call is None or form.call.before or fits(shape, several)


def test_ways_to_be_valid_and_keys_that_are_not_named() -> None:
    form = FORMS["qwen3-coder"]
    either: list[dict[str, Any]] = [
        {"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
        {"properties": {"b": {"const": "x"}}, "additionalProperties": {"type": "string", "maxLength": 2}},
    ]
    parameters = {"type": "object", "anyOf": [{"type": "object", **one} for one in either]}
    function = {"name": "f", "parameters": parameters}
    shape = Shape.tools([function], form, choice="f")
    for arguments in ({"a": 1}, {"b": "x"}, {}, {"b": "x", "c": "yy"}, {"c": "", "d": "z"}):
        text = written_calls(form, [("f", arguments)])
        assert fits(shape, text), text
        (call,) = read(form, text, [function])
        jsonschema.validate(call.arguments, parameters)
    for arguments in ({"a": 1, "b": "x"}, {"b": "y"}, {"c": "xyz"}, {"c": 1.5}):
        assert not fits(shape, written_calls(form, [("f", arguments)])), arguments


def test_names_and_keys_that_a_family_cannot_write() -> None:
    form = FORMS["qwen3-coder"]
    parameters = {"type": "object", "properties": {"a>b": {"type": "integer"}, "c": {"type": "integer"}}}
    shape = Shape.tools([{"name": "f", "parameters": parameters}], form, choice="f")
    assert fits(shape, written_calls(form, [("f", {"c": 1})]))
    assert not fits(shape, written_calls(form, [("f", {"a>b": 1})]))
    with pytest.raises(ShapeError, match="'f': "):
        Shape.tools([{"name": "f", "parameters": {**parameters, "required": ["a>b"]}}], form)
    with pytest.raises(ShapeError, match="its name"):
        Shape.tools([{"name": "f>g"}], form)
    with pytest.raises(ShapeError, match="number of arguments"):
        Shape.tools([{"name": "f", "parameters": {**parameters, "minProperties": 1}}], form)


def _whole_as_float(text: str) -> bool:
    try:
        return float(text).is_integer()
    except (ValueError, OverflowError):
        return False


TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]


@given(
    st.text(st.sampled_from('0123456789.-+eE_ \n[]{}":,trufalsn'), max_size=5)
    | st.sampled_from(["true", "False", "null", "None", "inf", "nan", "1e5", "{}", "[1]", "1e999"]),
    st.lists(st.sampled_from(TYPES), unique=True),
)
@settings(max_examples=300, deadline=None)
def test_texts_are_read_as_transformers_reads_them(text: str, types: list[str]) -> None:
    from transformers.utils.chat_parsing.response_parser import _coerce

    if "integer" in types and _coerce("3.0", ("integer",)) == "3.0" and _whole_as_float(text):
        return  # earlier versions of transformers read it as another type; what a shape lets be written is the same
    theirs, ours = _coerce(text, tuple(types)), read_as(text, types)
    assert (type(ours), repr(ours)) == (type(theirs), repr(theirs))


@given(st.integers(-2500, 2500), st.integers(-2500, 2500), st.integers(-30000, 30000))
@settings(max_examples=300, deadline=None)
def test_whole_numbers_between_bounds(one: int, other: int, number: int) -> None:
    least, most = sorted((one, other))
    for low, high in ((least, most), (least, None), (None, most)):
        found = whole_between(low, high) or "x"
        for each in (number, least - 1, least, most, most + 1, 0):
            within = (low is None or each >= low) and (high is None or each <= high)
            assert bool(re.fullmatch(found, str(each))) == within
        assert not re.fullmatch(found, "-0")
        assert not re.fullmatch(found, "007")


EXAMPLES = {
    "date": ["2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "2023-04-31"],
    "time": ["23:59:59Z", "01:02:03.5+01:00"],
    "date-time": ["2023-04-30T01:02:03Z"],
    "duration": ["P1Y2M3DT4H5M6S", "PT1S", "P1W"],
    "email": ["a.b@c.de", "a-@b.c"],
    "hostname": ["a.b-c.de", "a-.b"],
    "ipv4": ["1.2.3.4", "256.1.1.1"],
    "ipv6": ["::1", "1:2:3:4:5:6:7:8", "1::", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4"],
    "uuid": ["12345678-1234-1234-1234-123456789abc"],
    "uri": ["http://a.b/c?d#e", "urn:a:b", "a:/b", "x://u@h:80/p"],
}


@given(st.sampled_from(sorted(EXAMPLES)), st.randoms(use_true_random=False))
@settings(max_examples=500, deadline=None)
def test_what_is_taken_for_a_format_is_of_it(kind: str, some: random.Random) -> None:
    text = some.choice(EXAMPLES[kind])
    for _ in range(some.randint(0, 3)):
        at = some.randint(0, len(text))
        text = (
            text[:at]
            + some.choice(["", some.choice("".join(EXAMPLES[kind]))])
            + text[at + some.randint(0, 2) :]
        )
    if all(re.fullmatch(f"(?:{one})", text) for one in FORMAT_TEXTS[kind]):
        assert FORMATS.conforms(text, kind), text


@pytest.mark.parametrize(
    "pattern",
    [r"^\d+$", "ab", "^a|b$", "(^a$|^b)", "^(a|b)+$", r"a\$", "a.b", r"[\w.]$", r"^\\$", "[^a]", "^(a|^b)1"],
)
def test_patterns_of_whole_texts_are_those_in_which_they_are_found(pattern: str) -> None:
    whole = re.compile(searched_pattern(pattern))
    for size in range(4):
        for some in itertools.product("ab1.$\\", repeat=size):
            text = "".join(some)
            assert bool(whole.fullmatch(text)) == bool(re.search(pattern, text)), text


@pytest.mark.parametrize("pattern", ["^a$b", r"\bfoo", "(?=a)b", r"(a)\1", "(", "^(a1?^b)c"])
def test_patterns_that_cannot_be_enforced_are_refused(pattern: str) -> None:
    with pytest.raises(ShapeError, match="regular expression"):
        searched_pattern(pattern)
