"""What can be a shape, what is refused and where, and what shapes read as."""

from __future__ import annotations

import copy
import datetime
import itertools
import json
import pickle
import random
import re
from typing import Any

import pytest
from pydantic import BaseModel

from nco_guard import Shape
from nco_guard.automata.json_text import PlainJsonAutomaton
from nco_guard.errors import ArgumentError, ShapeError
from nco_guard.shapes.library import GrammarReader, tokenizer_of
from nco_guard.shapes.places import JsonPlaces
from tests.shapes.formats import FORMATS


def reads(shape: Shape, text: str) -> bool:
    matcher = GrammarReader(shape.grammar, tokenizer_of(None))
    return matcher.leads(matcher.at(b""), text.encode(), ends=True)


REFUSED: list[tuple[Any, str, str]] = [
    ({"type": "object", "properties": {"a": {"type": "array", "items": {"format": "hue", "type": "string"}}}},
     "#/properties/a/items", "Unknown format"),
    ({"anyOf": [{"type": "null"}, {"type": "array", "uniqueItems": True}]}, "#/anyOf/1", "uniqueItems"),
    ({"type": "object", "properties": {"x/y~": {"type": "string", "pattern": "(?=a)"}}},
     "#/properties/x~1y~0", "look-around"),
    ({"$defs": {"n": {"not": {}}}, "type": "array", "items": {"$ref": "#/$defs/n"}}, "#/$defs/n", "not"),
    ({"type": "object", "properties": {"x": {"type": "number", "multipleOf": 0.01}}}, "#/properties/x", "floats"),
    (False, "#", "nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "place", "said"), REFUSED)
def test_what_cannot_be_enforced_is_refused_with_its_place(schema: Any, place: str, said: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(said)) as caught:
        Shape.json(schema)
    assert caught.value.place == place
    assert str(caught.value).startswith(place + ": ")
    assert pickle.loads(pickle.dumps(caught.value)).place == place


OF_FORMATS = {
    "date": [
        "2024-02-29",
        "2023-02-29",
        "2023-02-28",
        "0000-01-01",
        "1900-02-29",
        "2000-02-29",
        "2023-04-31",
    ],
    "time": ["12:00:00Z", "23:59:60Z", "12:00:60Z", "12:00:59.25+01:00", "24:00:00Z"],
    "date-time": ["2024-02-29T12:00:00Z", "2023-02-29T12:00:00Z", "2023-01-01T12:00:60Z"],
    "email": [
        "a@b.c",
        f"a@{'b' * 63}",
        f"a@{'b' * 64}",
        f"a@{'.'.join(['b' * 60] * 5)}",
        "a@[127.0.0.1]",
        "a..b@c",
    ],
    "hostname": ["a.b", "b" * 64, ".".join(["b" * 60] * 4), ".".join(["b" * 60] * 5)],
}
NARROWER = {"0000-01-01", "23:59:60Z"}  # what readers in Python do not take


@pytest.mark.parametrize("name", OF_FORMATS)
@pytest.mark.parametrize("beside", [{}, {"pattern": "[ab0-9]"}, {"allOf": [{"minLength": 1}]}], ids=str)
def test_formats_are_what_their_documents_let_be(name: str, beside: dict[str, Any]) -> None:
    shape = Shape.json({"type": "string", "format": name, **beside})
    for text in OF_FORMATS[name]:
        wanted = FORMATS.conforms(text, name) and text not in NARROWER
        assert reads(shape, json.dumps(text)) == wanted, text


def test_every_day_of_some_years_is_a_date_or_none() -> None:
    shape = Shape.json({"type": "string", "format": "date"})
    matcher = GrammarReader(shape.grammar, tokenizer_of(None))
    start = matcher.at(b"")
    for year in (1, 4, 1900, 2000, 2023, 9996):
        for month, day in itertools.product(range(14), range(27, 33)):
            text = f"{year:04}-{month:02}-{day:02}"
            try:
                datetime.date.fromisoformat(text)
            except ValueError:
                wanted = False
            else:
                wanted = True
            assert matcher.leads(start, json.dumps(text).encode(), ends=True) == wanted, text


@pytest.mark.parametrize(
    "pattern", [r"(?=a)b", r"(a)\1", r"a\b", "[", r"a^b", r"(?:x$)+y", "(?m)^a", "a++", "(?>a)b"]
)
def test_patterns_that_cannot_be_enforced_are_refused(pattern: str) -> None:
    with pytest.raises(ShapeError, match="regular expression"):
        Shape.regex(pattern)


def test_what_is_no_shape_is_refused() -> None:
    with pytest.raises(ArgumentError, match="pydantic"):
        Shape.json("string")
    with pytest.raises(ArgumentError, match="pattern"):
        Shape.regex(3)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="unknown name"):
        Shape.lark("start: other")
    with pytest.raises(ArgumentError, match="whitespace"):
        Shape.json({}, whitespace="some")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "pattern", [r"^ab+$", r"\d{2}-\w", r"\A[^a-c]{2}\Z", r"a/b|c\.", r"(?i)x.y", r"é?\s", r"a|^b", r"x$|y"]
)
def test_patterns_read_as_python_reads_them(pattern: str) -> None:
    shape, source = Shape.regex(pattern), random.Random(1)
    for _ in range(400):
        text = "".join(source.choices("abcxXyY.1٣-/é \n_", k=source.randint(0, 4)))
        assert reads(shape, text) == bool(re.fullmatch(pattern, text)), text


class Person(BaseModel):
    name: str
    age: int | None = None


def test_a_pydantic_class_is_its_schema() -> None:
    shape = Shape.json(Person)
    assert reads(shape, '{"name": "Ann", "age": null}')
    assert reads(shape, '{"name":"Ann"}')
    assert not reads(shape, '{"age": 3}')
    assert not reads(shape, '{"name":"Ann","further":1}')
    assert shape == Shape.json(Person) == pickle.loads(pickle.dumps(shape))
    assert shape.digest == Shape.json(Person).digest != Shape.json(Person, whitespace="any").digest


def test_the_given_schema_is_left_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}
    before = copy.deepcopy(schema)
    Shape.json(schema)
    assert schema == before


def test_space_between_what_belongs_together() -> None:
    texts = ('{"a":1}', '{ "a": 1 }', '{\n  "a": 1}')
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for whitespace, expected in (("none", 1), ("one", 2), ("any", 3)):
        shape = Shape.json(schema, whitespace=whitespace)  # type: ignore[arg-type]
        assert [reads(shape, text) for text in texts] == [number < expected for number in range(3)]


def test_numbers_print_as_they_are_written() -> None:
    automaton, source = PlainJsonAutomaton(), random.Random(0)
    kept = 0
    for _ in range(40_000):
        text = "".join(source.choices("0012345.-e9", k=source.randint(1, 19)))
        try:
            value = json.loads(text)
        except ValueError:
            continue
        state = automaton.read(automaton.start, f"[{text}]".encode())
        lone = automaton.read(automaton.start, text.encode())
        assert (state >= 0) == (lone >= 0 and automaton.may_end(lone))
        if state >= 0:
            kept += 1
            assert str(value) == text
        elif "e" not in text and (isinstance(value, int) or len(text.strip("-0.").replace(".", "")) < 15):
            # Nothing is barred that prints as it is written, but for decimals of more digits than are sure.
            assert str(value) != text
    assert kept > 3000


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (r'"\n\""', True),
        (r'"\u001f\u007f"', True),
        (r'"\u0041"', False),
        (r'"\/"', False),
        (r'"1e5 1.50"', True),
    ],
)
def test_escapes_stand_only_where_they_are_needed(text: str, plain: bool) -> None:
    automaton = PlainJsonAutomaton()
    assert (automaton.read(automaton.start, text.encode()) >= 0) == plain


SCHEMAS: list[Any] = [
    {},
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "maximum": 150},
            "mail": {"type": "string", "format": "email"},
            "kind": {"enum": ["a", 1, {"x": [1]}]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 3},
            "x": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "required": ["name", "kind"],
    },
    {
        "type": "array",
        "items": {
            "anyOf": [
                {"type": "object", "properties": {"k": {"const": k}, "v": {"type": v}}, "required": ["k", "v"]}
                for k, v in (("a", "integer"), ("b", "string"))
            ]
        },
    },
    {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}},
    {"$defs": {"n": {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}},
     "$ref": "#/$defs/n"},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"},
     "minItems": 1, "maxItems": 4},
    {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "integer"}},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}]},
    {"type": "array", "items": {"type": "number", "minimum": 0}},
    {"type": "array", "items": {"type": "integer", "minimum": -7}},
    {"type": "array", "items": {"anyOf": [{"type": "number", "maximum": 0}, {"type": "null"}]}},
]  # fmt: skip


@pytest.mark.parametrize("whitespace", ["one", "any"])
@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_texts_at_one_place_go_on_alike(number: int, whitespace: Any) -> None:
    """Of texts with one key the library lets the same bytes come, now and behind common continuations."""
    shape = Shape.json(SCHEMAS[number], whitespace=whitespace)
    matcher, places, source = (
        GrammarReader(shape.grammar, tokenizer_of(None)),
        JsonPlaces(shape.schema),
        random.Random(2),
    )
    first: dict[Any, tuple[bytes, bytes]] = {}
    for _ in range(60):
        text, place = b"", places.start
        for _ in range(50):
            found = matcher.at(text)
            mask = matcher.mask(found)
            known, other = first.setdefault(places.key(place), (mask.tobytes(), text))
            assert known == mask.tobytes(), (text, other)
            if other != text:
                twin = matcher.at(other)
                for rest in (b'"}', b'0,"', b"]", b'":', b'a"', b" 1}", b'\\n"]'):
                    assert matcher.leads(found, rest) == matcher.leads(twin, rest), (text, other, rest)
            letters = [byte for byte in range(256) if mask[byte]]
            if not letters:
                break
            likely = [byte for byte in letters if byte in b'"}],:0129abtruflsne{[-.']
            byte = source.choice(likely if likely and source.random() < 0.85 else letters)
            text += bytes([byte])
            place = places.feed(place, bytes([byte]))
    assert len(first) > 20


ODD_KEYS = ["", "\0", "a", "\x7f", '"', "\\", "\n", "e\u0301", "\U0010ffff", "\u2028"]


@pytest.mark.parametrize(("one", "other"), [*itertools.permutations(ODD_KEYS, 2)])
def test_keys_that_a_schema_names_are_written_in_its_order_and_once(one: str, other: str) -> None:
    named = {one: {"type": "integer"}, other: {"type": "string"}}
    places = JsonPlaces(Shape.json({"properties": named, "additionalProperties": {"type": "boolean"}}).schema)

    def follows(*pairs: tuple[str, Any]) -> bool:
        said = (f"{json.dumps(key, ensure_ascii=False)}:{json.dumps(value)}" for key, value in pairs)
        return places.feed(places.start, f"{{{','.join(said)}}}".encode()) is not None

    first, second, further = (one, 1), (other, "x"), ("further", True)
    assert follows(first, second, further)
    assert follows(second, further)
    assert follows(further)
    assert not follows(first, first)
    assert not follows(second, first)
    assert not follows(further, first)
