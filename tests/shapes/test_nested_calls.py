"""Arguments within each other, in marks of their own or in tags: what is let through is read as valid, and any valid
arguments that the family's reader reads as they were written can be written."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from nco_guard import Guard, Policy, RegexRule, Shape
from nco_guard.errors import ContradictionError, PolicyError, ShapeError
from nco_guard.replies import InvalidCall, ReplyFormat, ReplyReader, Text, ToolCall, shipped_formats
from nco_guard.replies.enforcing import calls_shape
from nco_guard.replies.writing import written_calls, written_reply
from nco_guard.session import BoundGuard
from nco_guard.shapes.library import GrammarReader, tokenizer_of
from nco_guard.shapes.tools import calls_refusal
from nco_guard.tokens import Vocabulary
from tests.shapes.strategies import nested, values
from tests.shapes.test_python_calls import VALUES
from tests.shapes.test_tagged_calls import DEFS, SCHEMAS, fits, read, tool

NAMES = ("gemma-4", "functiongemma", "minimax-m3")
FORMS = {name: shipped_formats()[name] for name in NAMES}
TAGS = "]<]minimax[>["
CLOSED = {"type": "object", "additionalProperties": False}
MORE: dict[str, Any] = {
    "lists": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1}},
    "pair": {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "integer"}],
        "minItems": 2,
        "items": False,
    },
    "rest": {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
    "counted": {"type": "array", "items": {"enum": ["a", 1]}, "minItems": 2, "maxItems": 3},
    "numbers by name": {"type": "object", "additionalProperties": {"type": "integer"}},
    "constant": {"const": {"a": [1, "b"], "n": None}},
    "some objects": {"enum": [{"n": 1}, [1], ["a"], "a"]},
    "either": {
        "anyOf": [
            {"properties": {"n": {"type": "integer"}}, "required": ["n"], **CLOSED},
            {"properties": {"below": {"type": "array", "items": {"type": "string"}}}, **CLOSED},
        ]
    },
    "list or object": {"type": ["array", "object"], "items": {"type": "integer"}},
    "named so": {
        "properties": {"item": {"type": "integer"}, "invoke": {"type": "integer"}, "a-b": {"type": "null"}},
        **CLOSED,
    },
}
OTHERS: list[Any] = [
    *(
        [[1]],
        [[1], [2, 3]],
        [[]],
        ["x", 1],
        ["x"],
        ["x", 1, 2],
        [1, "x", "y"],
        [1, 2],
        ["a", 1, "a"],
        ["a", "a"],
    ),
    *({"a": 1, "b.c": 2}, {"a": "x"}, {"item": 1}, {"invoke": 1}, {"a-b": None}, {"a": [1, "b"], "n": None}),
    *(
        {"below": ["x", ""]},
        {"n": 1, "below": ["x"]},
        {"x": {"y": {"z": [{}]}}},
        {"_": {"item": {"item": "x"}}},
    ),
    *('<|"|', "<escape", "a<|", "]", "]<]minimax[>", "</v>", "[1]", "{}", " ", "true", "\x1c"),
]


def kept(form: ReplyFormat, schema: Any, value: Any, tools: list[dict[str, Any]]) -> bool:
    """Whether a value is written so that it is read as itself."""
    calls = read(form, written_calls(form, [("f", {"v": value})]), tools)
    if len(calls) != 1 or isinstance(calls[0], InvalidCall):
        return False
    return json.dumps(calls[0].arguments) == json.dumps({"v": value})


def left_out(form: ReplyFormat, value: Any, schema: Any) -> bool:
    """What is valid and read, and need not come: keys that are not named and are no names, whole numbers that floats do
    not hold; in tags what is nearly a number or list beside such, and lists and objects of which nothing is said."""
    tags = form.name == "minimax-m3"
    if isinstance(value, str):
        return tags and schema != {"type": "string"} and value[:1] in tuple("[{ 0123456789-.")
    if isinstance(value, dict) and any(not key.replace("_", "").isalnum() for key in value):
        return True
    if isinstance(value, int) and abs(value) >= 10**15:
        return True
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    unsaid = schema in ({}, {"type": "object"}) and (
        schema == {} or any(isinstance(one, list | dict) for one in within)
    )
    return tags and isinstance(value, list | dict) and (unsaid or schema == MORE["list or object"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [*SCHEMAS, *MORE])
def test_values_are_written_if_and_only_if_they_are_read_as_valid_ones(name: str, kind: str) -> None:
    form, schema = FORMS[name], {**SCHEMAS, **MORE}[kind]
    tools = [tool(schema)]
    validator = jsonschema.Draft202012Validator({**schema, "$defs": DEFS})
    try:
        shape = Shape.tools(tools, form, choice="f", parallel=False)
    except ShapeError:
        assert not any(
            validator.is_valid(one) and kept(form, schema, one, tools) for one in [*VALUES, *OTHERS]
        )
        return
    for value in [*VALUES, *OTHERS]:
        text = written_calls(form, [("f", {"v": value})])
        calls = read(form, text, tools)
        found = (
            calls[0].arguments.get("v", ...) if len(calls) == 1 and isinstance(calls[0], ToolCall) else ...
        )
        valid = found is not ... and validator.is_valid(found)
        if fits(shape, text):
            assert valid, (text, found)
        elif valid and json.dumps(found) == json.dumps(value):
            assert left_out(form, value, schema), (text, found)


def walked(shape: Shape, random_: random.Random, most: int = 400) -> str | None:
    """A random text of a shape, byte by byte; None if it is not over soon."""
    reader, places = GrammarReader(shape.grammar, tokenizer_of(None)), shape.places()
    found, place, text = reader.at(b""), places.start, bytearray()
    while not found.is_accepting():
        mask = np.flatnonzero(reader.mask(found)[:256]).tolist()
        open_ = [(byte, after) for byte in mask if (after := places.feed(place, bytes([byte]))) is not None]
        # What ends something is chosen often, so that texts come to an end.
        ends = [(byte, after) for byte, after in open_ if byte in b'<]}"'] if random_.random() < 0.4 else []
        if not open_ or len(text) > most:
            return None
        byte, place = random_.choice(ends or open_)
        found.consume_tokens([byte])
        text.append(byte)
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


@given(
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from("abcd"), nested, min_size=1, max_size=3),
    st.randoms(),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[*HealthCheck])
def test_what_random_schemas_let_through_is_read_as_valid(
    name: str, properties: dict[str, Any], random_: random.Random
) -> None:
    form = FORMS[name]
    parameters = {"type": "object", "properties": properties, "required": [*properties][:1]}
    tools = [{"name": "f", "parameters": parameters}]
    try:
        shape = Shape.tools(tools, form, choice="f", parallel=False)
    except ShapeError:
        reject()
    for _ in range(3):
        text = walked(shape, random_)
        if text is not None:
            (call,) = read(form, text, tools)
            assert isinstance(call, ToolCall), text
            jsonschema.validate(call.arguments, parameters)


@given(
    st.sampled_from(NAMES),
    nested,
    st.lists(values, min_size=1, max_size=5),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[*HealthCheck])
def test_random_values_are_written_only_if_they_are_read_as_valid(
    name: str, schema: Any, some: list[Any]
) -> None:
    form, tools = FORMS[name], [tool(schema)]
    try:
        shape = Shape.tools(tools, form, choice="f", parallel=False)
    except ShapeError:
        reject()
    validator = jsonschema.Draft202012Validator(schema)
    for value in some:
        text = written_calls(form, [("f", {"v": value})])
        if fits(shape, text):
            (call,) = read(form, text, tools)
            assert isinstance(call, ToolCall)
            assert validator.is_valid(call.arguments["v"]), text


def vocabulary_of(form: ReplyFormat, texts: list[str]) -> Vocabulary:
    """Tokens of the letters in some texts, and of the family's marks."""
    letters = sorted({letter for text in texts for letter in text} | {*"ab1,:{}[]<>/"})
    tokens = [*letters, *(mark for mark in form.special if len(mark) > 1), TAGS]
    return Vocabulary.build(
        [*(token.encode() for token in dict.fromkeys(tokens)), b"<end>"],
        eos_ids=[len(dict.fromkeys(tokens))],
        skip_special_tokens=False,
    )


PATTERNS = ["a1?b", "aa", "[1-3]{2}", "true", r"\[\]", "n:", "<n>", "ba"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 60))]
)
def test_random_tools_under_random_policies(name: str, seed: int) -> None:
    """What is let through is read as calls that are valid and keep the policy, whatever tokens it is made of."""
    form, rng = FORMS[name], random.Random(f"{name}{seed}")
    leaves: list[Any] = [
        {"enum": ["a", "ab", "b1", 1, True]},
        {"type": "string", "maxLength": 3, "pattern": "^[ab1]*$"},
        {"type": "integer", "minimum": 0, "maximum": 40},
        {"type": "boolean"},
    ]
    fields: dict[str, Any] = {}
    for key in rng.sample(["n", "m", "o", "p"], rng.randint(1, 3)):
        leaf = rng.choice(leaves)
        around: list[Any] = [
            leaf,
            {"type": "array", "items": leaf, "maxItems": 2},
            {
                "type": "object",
                "properties": {"n": leaf, "l": {"type": "array", "items": leaf}},
                "required": ["n"],
            },
        ]
        fields[key] = rng.choice(around)
    parameters = {"type": "object", "properties": fields, "required": rng.sample([*fields], 1)}
    tools = [{"name": "f", "parameters": parameters}, {"name": "fa"}]
    rules = [RegexRule(id=f"r{n}", regex=one) for n, one in enumerate(rng.sample(PATTERNS, 2))]
    try:
        guard = Guard(Policy(name="p", rules=rules))
        shaped = guard.with_shape(
            calls_shape(form, tools, choice=rng.choice(["required", "f"]), parallel=True)
        )
        texts = [written_calls(form, [("f", {"n": "ab1", "m": [True, {"l": 0}]}), ("fa", {"op": 234567.89})])]
        bound = BoundGuard(shaped._compiled, vocabulary_of(form, texts), shape=shaped._left_of_shape)
    except (ContradictionError, ShapeError, PolicyError):
        return
    end = len(bound.vocabulary.tokens) - 1
    for _ in range(4):
        session = bound.session()
        for left in range(150, 0, -1):
            allowed = np.setdiff1d(np.arange(end + 1), session.forbidden_ids(remaining=left - 1))
            session.advance(int(rng.choice(allowed.tolist())))
            if session.ended:
                break
        text = session.text.removesuffix("<end>")
        reader = ReplyReader(guard, form=form, tools=tools)
        events = [*reader.feed(text), *reader.finish()]
        calls = [one for one in events if isinstance(one, ToolCall)]
        assert calls, text
        assert not any(isinstance(one, InvalidCall) for one in events), text
        for call in calls:
            jsonschema.validate(call.arguments, parameters if call.name == "f" else {"maxProperties": 0})


@pytest.mark.parametrize("name", NAMES)
def test_free_text_no_call_several_and_calls_that_break_off(name: str) -> None:
    form, rng = FORMS[name], random.Random(name)
    tools = [tool({"type": "array", "items": {"type": "string"}})]
    shape = Shape.tools(tools, form)
    calls: list[tuple[str, Any]] = [("f", {"v": ["a", "<b"]}), ("f", {"v": []})]
    whole = written_reply(form, "Hi <b", calls=calls)
    for text in ("", "Hi <b", written_reply(form, "Hi", calls=calls[:1]), whole, written_calls(form, calls)):
        assert fits(shape, text), text
    assert not fits(Shape.tools(tools, form, parallel=False), whole)
    assert not fits(Shape.tools(tools, form, choice="f"), "Hi <b")
    guard = Guard(Policy(name="p", rules=[RegexRule(id="r", regex="zz")]))
    for _ in range(20):
        reader, events, at = ReplyReader(guard, form=form, tools=tools), list[Any](), 0
        while at < len(whole):
            step = rng.randint(1, 9)
            events += reader.feed(whole[at : at + step])
            at += step
        events += reader.finish()
        assert "".join(one.text for one in events if isinstance(one, Text)) == "Hi <b"
        assert [(one.name, one.arguments) for one in events if isinstance(one, ToolCall)] == calls
    # A call that is not over is none, nor is it of the shape.
    one, called = written_calls(form, calls[:1]), Shape.tools(tools, form, choice="f")
    for end in range(1, len(one)):
        valid = [each for each in read(form, one[:end], tools) if isinstance(each, ToolCall)]
        assert not fits(called, one[:end])
        assert all(call.arguments == calls[0][1] for call in valid)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_family_cannot_say_is_refused_by_tool_and_field(name: str) -> None:
    form = FORMS[name]
    assert calls_refusal(form) is None
    bad = "a-b" if name != "minimax-m3" else "invoke"

    def refused(parameters: dict[str, Any]) -> ShapeError:
        with pytest.raises(ShapeError, match="'f': ") as found:
            Shape.tools([{"name": "f", "parameters": parameters}], form)
        return found.value

    deep = {"type": "object", "properties": {bad: {"type": "integer"}}, "required": [bad]}
    assert refused(deep).place == f"#/properties/{bad}"
    assert refused({"properties": {"c": deep}, "required": ["c"]}).place == "#/properties/c"
    many = {"type": "array", "items": {"type": "integer"}, "minItems": 300}
    assert refused({"properties": {"c": many}, "required": ["c"]}).place == "#/properties/c"
    wide = {"type": "array", "items": {"type": "integer", "minimum": 2**60}}
    if name != "minimax-m3":
        assert refused({"properties": {"c": wide}, "required": ["c"]}).place == "#/properties/c"
    with pytest.raises(ShapeError, match="its name"):
        Shape.tools([{"name": "a b" if name != "minimax-m3" else 'a"b'}], form)
    # Where it need not be said, it is left out, in what may hold itself too.
    node = {
        "type": "object",
        "properties": {"below": {"$ref": "#/$defs/n"}, bad: {}},
        "additionalProperties": False,
    }
    parameters = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}
    shape = Shape.tools([{"name": "f", "parameters": parameters}], form, choice="f")
    assert fits(shape, written_calls(form, [("f", {"n": {"below": {"below": {}}}})]))
    required = {**parameters, "$defs": {"n": {**node, "required": [bad]}}}
    shape = Shape.tools([{"name": "f", "parameters": required}], form, choice="f")
    assert fits(shape, written_calls(form, [("f", {})]))
    assert not fits(shape, written_calls(form, [("f", {"n": {}})]))


def test_deep_values_come_to_an_end() -> None:
    node = {"type": "object", "properties": {"b": {"$ref": "#/$defs/n"}}, "additionalProperties": False}
    parameters = {"type": "object", "properties": {"b": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}
    tools = [{"name": "f", "parameters": parameters}]
    for form in FORMS.values():
        shape = Shape.tools(tools, form, choice="f")
        for depth in (1, 2, 90, 91, 99):
            deep: dict[str, Any] = {}
            for _ in range(depth):
                deep = {"b": deep}
            text = written_calls(form, [("f", deep)])
            (call,) = read(form, text, tools)
            assert call.arguments == deep
            assert fits(shape, text) == (depth <= 90)


def test_keys_that_are_not_named_are_closed_as_they_were_opened() -> None:
    form = FORMS["minimax-m3"]
    shape = Shape.tools(
        [tool({"type": "object", "additionalProperties": {"type": "string"}})], form, choice="f"
    )
    text = written_calls(form, [("f", {"v": {"ab": "x", "cd": ""}})])
    assert fits(shape, text)
    assert not fits(shape, text.replace("</ab>", "</cd>"))
    assert not fits(shape, text.replace("<cd>", "<ab>").replace("</cd>", "</ab>"))
    inner = tool(
        {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    )
    shape = Shape.tools([inner], form, choice="f")
    text = written_calls(form, [("f", {"v": {"ab": {"cd": "x"}, "cd": {"ab": "y", "cd": "z"}}})])
    assert fits(shape, text)
    assert not fits(shape, text.replace("x]<]minimax[>[</cd>", "x]<]minimax[>[</ab>"))
