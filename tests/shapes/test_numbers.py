"""Numbers of every size: exactly those of the schema, as `jsonschema` says over Python's whole numbers."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from nco_guard import Guard, Shape
from nco_guard.errors import ShapeError
from nco_guard.replies import shipped_formats
from nco_guard.shapes.library import GrammarReader, library_since, tokenizer_of
from tests.shapes.driver import Taste, tokenizer, vocabulary, write
from tests.shapes.joint import NOTHING, Joint, bound_to

FAR = 2**63
EDGES = [
    *(sign * (2**power + more) for power in (53, 60, 63, 64, 80) for more in (-1, 0, 1) for sign in (1, -1)),
    *(sign * 10**power for power in (15, 18, 19, 25) for sign in (1, -1)),
    0,
    1,
    -1,
    12,
]


def takes(shape: Shape, text: str) -> bool:
    """Whether a text is of a shape: by the library and by what is followed beside it."""
    matcher, places = GrammarReader(shape.grammar, tokenizer_of(None)), shape.places()
    place = places.feed(places.start, text.encode())
    led = matcher.leads(matcher.at(b""), text.encode(), ends=True)
    return led and place is not None and places.may_end(place)


def validates(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("kind", ["integer", "number"])
def test_bounds_of_every_size_are_exact(name: str, kind: str) -> None:
    for bound in EDGES:
        schema = {"type": kind, name: bound}
        shape = Shape.json(schema)
        for value in {*EDGES, bound - 1, bound + 1, bound - 1000, bound + 1000}:
            assert takes(shape, str(value)) == validates(schema, value), (schema, value)


def test_values_of_every_size_are_exact() -> None:
    for value in EDGES:
        for schema in (
            {"const": value},
            {"enum": [value, "a", None]},
            {"enum": [value, value + 2], "type": "integer"},
        ):
            shape = Shape.json(schema)
            for other in (value, value - 1, value + 1, value + 2, -value, value * 10, 5):
                assert takes(shape, str(other)) == validates(schema, other), (schema, other)
    assert takes(Shape.json({"enum": [FAR, "a", None]}), '"a"')
    assert not takes(Shape.json({"enum": [FAR, "a", None]}), '"b"')


@pytest.mark.parametrize("bounds", [{"maximum": 4}, {"minimum": -5, "maximum": 4}, {"minimum": 0}, {}])
@pytest.mark.parametrize("kind", ["integer", "number"])
def test_multiples_below_zero_are_among_them(kind: str, bounds: dict[str, Any]) -> None:
    schema = {"type": kind, "multipleOf": 2, **bounds}
    shape = Shape.json(schema)
    for value in range(-9, 9):
        assert takes(shape, str(value)) == validates(schema, value), (schema, value)


def test_whole_numbers_are_taken_from_among_fractions() -> None:
    for listed in ({"type": "integer"}, {"type": ["integer", "null"]}):
        schema = {**listed, "enum": [0.5, 1, None]}
        shape = Shape.json({"anyOf": [schema, {"const": 7}]})
        for value, text in ((0.5, "0.5"), (1, "1"), (2, "2"), (None, "null")):
            assert takes(shape, text) == validates(schema, value), (schema, text)
    nowhere = {"anyOf": [{"type": "integer", "minimum": 0.2, "maximum": 0.8}, {"type": "null"}]}
    if library_since(1, 9):
        assert takes(Shape.json(nowhere), "null")
    else:
        with pytest.raises(ShapeError, match=r"install llguidance>=1\.9"):
            Shape.json(nowhere)


@pytest.mark.parametrize("name", ["minItems", "maxItems"])
def test_items_are_counted_as_far_as_the_library_does(name: str) -> None:
    schema = {"properties": {"a": {"type": "array", name: 2**31}}}
    ways: list[Callable[[], Shape]] = [
        lambda: Shape.json(schema),
        lambda: Shape.lark(f"start: %json {json.dumps(schema)}"),
    ]
    for make in ways:
        if library_since(1, 9):
            assert make().grammar
        else:
            with pytest.raises(ShapeError, match=r"install llguidance>=1\.9"):
                make()


DRAWN: list[Any] = [
    {"type": "integer", "minimum": -FAR, "maximum": FAR - 1},
    {"type": "integer", "minimum": -FAR, "maximum": -FAR + 3},
    {"type": "integer", "multipleOf": 10**9 + 7, "exclusiveMinimum": -(10**20)},
    {"allOf": [{"type": "integer", "multipleOf": 65537}, {"multipleOf": 65539}, {"minimum": -(10**12)}]},
    {"anyOf": [{"type": "integer", "minimum": 10**18}, {"type": "number", "exclusiveMaximum": -(10**17)}]},
    {
        "$defs": {"id": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}},
        "$ref": "#/$defs/id",
        "minimum": 2**60,
    },
    {"oneOf": [{"type": "string"}, {"const": 2**70}]},
    {"type": "number", "minimum": 1e19, "maximum": 1e25},
    {"type": "number", "exclusiveMinimum": 1e-300, "maximum": 10**30},
    {"type": "integer", "multipleOf": 2**40},
]


@pytest.mark.parametrize("number", range(len(DRAWN)))
def test_random_numbers_are_of_a_schema_as_validators_say(number: int) -> None:
    schema, source = DRAWN[number], random.Random(number)
    shape = Shape.json(schema)
    products = (65537 * 65539, 10**9 + 7, 2**40, 65537)
    for _ in range(400):
        size = source.choice((1, 3, 10**6, 10**12, 10**18, FAR, 2**64, 10**24, 10**31))
        value = (
            source.randint(-size, size)
            if source.random() < 0.7
            else source.choice(EDGES) + source.randint(-3, 3)
        )
        value = value * source.choice(products) if source.random() < 0.3 else value
        assert takes(shape, str(value)) == validates(schema, value), (schema, value)


@pytest.mark.parametrize("number", range(len(DRAWN) + 1))
def test_what_is_written_under_them_validates(number: int) -> None:
    """Texts from masks, within so many tokens: each ends, and is what the schema says."""
    schema = DRAWN[number] if number < len(DRAWN) else {"type": "object", "properties": {
        "id": DRAWN[0], "all": {"type": "array", "items": DRAWN[2], "minItems": 1}, "name": {"type": "string"}
    }, "required": ["id", "all"]}  # fmt: skip
    words = vocabulary("byte-level")
    bound = bound_to(schema, NOTHING, words)
    for seed in range(3):
        taste = Taste(random.Random(seed), words, ["-", "12", str(-FAR), str(FAR - 1)])
        written = write(Joint(bound.session(), 90), words, taste, most=90)
        assert written.end == "ended", (schema, written)
        assert validates(schema, json.loads(written.text)), (schema, written)


WRITTEN_AS_ZERO = [{"const": -0.0}, {"enum": [-0.0]}, {"type": "number", "minimum": -0.0, "maximum": -0.0}]


@pytest.mark.parametrize("schema", WRITTEN_AS_ZERO)
def test_zero_has_no_sign(schema: Any) -> None:
    assert takes(Shape.json(schema), "0")
    bound = bound_to(schema, NOTHING, vocabulary("byte-level"))
    assert not bound.session().mask().all()


def test_whole_numbers_with_a_point_are_whole() -> None:
    shape = Shape.json({"type": "integer", "const": 3.0})
    assert takes(shape, "3")
    assert not takes(shape, "30")


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"const": {"a": [2**60 + 1]}}, "#"),
        ({"type": "object", "patternProperties": {"^a": {"const": 2**60}}}, "#/patternProperties/^a"),
        ({"properties": {"x": {"const": 10**300}}}, "#/properties/x/const"),
        ({"properties": {"x": {"const": 0.12345678901234567}}}, "#/properties/x/const"),
        ({"enum": [1, 1e-9]}, "#/enum/1"),
        (
            {"allOf": [{"properties": {"a": {"minimum": -FAR}}}, {"required": ["a"]}]},
            "#/allOf/0/properties/a",
        ),
    ],
)
def test_numbers_that_cannot_be_followed_are_refused(schema: Any, place: str) -> None:
    with pytest.raises(ShapeError) as caught:
        Shape.json(schema)
    assert caught.value.place == place


MAKERS = """
import functools, json
from nco_guard import Shape
from nco_guard.errors import NCOGuardError
from nco_guard.shapes.library import GrammarReader, library_since, tokenizer_of
FAR = 2**63
sizes = [-FAR, 1 - FAR, 512 - FAR, 1024 - FAR, FAR - 1, FAR, 2 * FAR, -2 * FAR, 10**30, -10**30, 10**400, 1e308, -1e308,
         5e-324, -5e-324, 2**32 - 1, 2**32, 2**31, 10**9 + 7, 0.5, 2.0**-20, 2.0**-40]
makers = []
for kind in ("integer", "number"):
    for size in sizes:
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const"):
            makers.append(lambda kind=kind, name=name, size=size: Shape.json({"type": kind, name: size}))
        makers.append(lambda kind=kind, size=size: Shape.json({"type": kind, "minimum": size, "maximum": size + 5}))
        makers.append(lambda size=size: Shape.json({"enum": [size, [size], {"a": size}]}))
for size in (10**6, 2**31, 2**32, FAR, 10**30):
    for kind, names in (("string", "Length"), ("array", "Items"), ("object", "Properties")):
        for which in ("min", "max"):
            makers.append(lambda kind=kind, name=which + names, size=size: Shape.json({"type": kind, name: size}))
for text in ("a{100000}", "(a{1000}){1000}", "a{4294967295}", "a{4294967296}", "(ab?){5000}", "(" * 300 + ")" * 300,
             "[" + chr(0x10FFFF) + "]", "(?:" * 5000, "a" * 100000, "a{10000000000000000000000}"):
    makers.append(lambda text=text: Shape.regex(text))
    makers.append(lambda text=text: Shape.json({"type": "string", "pattern": text}))
def nested(wrap, count):
    return functools.reduce(lambda inner, _: wrap(inner), range(count), {})
for count in (90, 99, 130, 1000, 50000):
    for wrap in (lambda a: {"type": "array", "items": a}, lambda a: {"allOf": [a]},
                 lambda a: {"anyOf": [a, {"type": "null"}]},
                 lambda a: {"type": "object", "properties": {"a": a}}, lambda a: {"not": a}):
        makers.append(lambda wrap=wrap, count=count: Shape.json(nested(wrap, count)))
    makers.append(lambda count=count: Shape.json({"const": nested(lambda a: [a], count)}))
makers += [
    lambda: Shape.json({"enum": list(range(30000))}),
    lambda: Shape.json({"const": "a" * 10**6}),
    lambda: Shape.lark('start: %json {"const": -9223372036854775808}'),
    lambda: Shape.lark('start: %json {"type": "integer", "minimum": -9223372036854775808, "maximum": 5}'),
    lambda: Shape.lark('start: %json {"const": -1e300}'),
    lambda: Shape.lark("start: " + "(" * 20000),
    lambda: Shape.lark('start: x{1000000000}\\nx: "a"'),
    lambda: Shape.lark("start: start"),
    lambda: Shape.lark(""),
]
counts = {}
for place, make in enumerate(makers):
    print(place, flush=True)
    try:
        shape = make()
        matcher = GrammarReader(shape.grammar, tokenizer_of(None))
        matcher.mask(matcher.at(b""))
        said = "made"
    except NCOGuardError as error:
        said = type(error).__name__
    counts[said] = counts.get(said, 0) + 1
print(json.dumps(counts))
"""


def test_nothing_that_is_given_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", MAKERS], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, (done.returncode, done.stdout[-20:], done.stderr[-800:])
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts.keys() == {"made", "ShapeError"}
    assert counts["made"] > 150


THE_GUARD = Guard(NOTHING)


def _a_call(schema: Any) -> Shape:
    tool = {"name": "find", "parameters": {"properties": {"n": schema}, "required": ["n"]}}
    return Shape.tools([tool], shipped_formats()["hermes"], choice="find")


@pytest.mark.parametrize("shaped", [Shape.json, _a_call], ids=["json", "tools"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"const": 10**16}, {"const": 10**22}),
        ({"type": "integer", "minimum": 2**53}, {"type": "integer", "minimum": 2**60}),
        ({"type": "integer", "multipleOf": 10_007}, {"type": "integer", "multipleOf": 10_009}),
        ({"enum": [2**53 + 1, "a"]}, {"enum": [2**53 + 3, "a"]}),
    ],
)
def test_shapes_that_differ_in_what_is_followed_beside_the_grammar_are_others(
    shaped: Callable[[Any], Shape], one: Any, other: Any
) -> None:
    assert shaped(one).grammar == shaped(other).grammar
    assert shaped(one) != shaped(other)
    assert shaped(one).digest != shaped(other).digest
    assert shaped(one) == shaped(one)
    assert hash(shaped(one)) == hash(shaped(one))


def test_a_guard_enforces_each_of_two_shapes_of_one_grammar() -> None:
    words = vocabulary("byte-level")
    for number in (10**16, 10**22, 10**16 + 1):
        session = THE_GUARD.with_shape({"const": number}).bind(tokenizer("byte-level")).session()
        for digit in str(number):
            session.advance(words.tokens.index(digit.encode()))
        assert session.may_end
