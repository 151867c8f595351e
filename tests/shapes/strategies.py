"""What Hypothesis draws: JSON Schemas of every kind, and policies that collide with them.

Schemas are small, and most of them can be met; some cannot. What a schema holds, `kinds` says by name. Policies are
made of the schema's own keys, values, numbers and punctuation, so that most of them forbid something that it wants.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nco_guard.errors import PolicyError
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from tests.properties.strategies import compiles

Schema = Any

KEYS = ("a", "b", "id", "name", "x-1", "é", "to do", 'q"', "n\n", "12", "a/b")
STRINGS = (
    "a",
    "b",
    "ab",
    "aab",
    "name",
    "Ab",
    "",
    "12",
    "1",
    "0.5",
    "null",
    "café",
    "日本",
    'a"b',
    "a\\b",
    "a\nb",
    "/",
    "\u0001",
    "}",
)
PATTERNS = (
    "^a+$",
    "^[ab]{2,4}$",
    "a",
    "^ab",
    "b$",
    r"^\d{2}$",
    r"^\d{3}-\d{2}$",
    "^(a|b1|é)$",
    r"^[^a]{1,3}$",
    r"\w+@\w+",
    r'^"a"$',
    r"^a\.b?$",
    "^(?:ab)*$",
    r"^\s?a\s?$",
    "[A-F0-9]{2}",
    "^$|^a$",
)
FORMATS = (
    "date",
    "time",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
)
TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
NUMBERS: tuple[int | float, ...] = (0, 1, 2, 3, 5, 10, 12, 100, -1, -2, -10, 0.5, 1.5, 0.25, -0.5, 3.25, 99.9)
WHOLE = tuple(number for number in NUMBERS if isinstance(number, int))

keys = st.sampled_from(KEYS)
words = st.sampled_from(STRINGS)
numbers = st.sampled_from(NUMBERS)
scalars = st.one_of(
    words,
    words,
    st.sampled_from(WHOLE),
    numbers,
    st.booleans(),
    st.none(),
    st.sampled_from([1e2, 10.0, -0.0]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(keys, inner, max_size=2)),
    max_leaves=3,
)


@st.composite
def _bounds(draw: st.DrawFn, low: str, high: str, most: int = 4, far: tuple[int, ...] = ()) -> dict[str, int]:
    """Least and most of something, each one, both or none."""
    least = draw(st.integers(0, most))
    found: dict[str, int] = {}
    which = draw(st.sampled_from(["both", "low", "high", "neither"]))
    if which in ("both", "low"):
        found[low] = least
    if which in ("both", "high"):
        found[high] = draw(st.sampled_from([least, least, least + 1, least + 2, *far]))
    return found


@st.composite
def strings(draw: st.DrawFn) -> Schema:
    kind = draw(
        st.sampled_from(["plain", "length", "pattern", "pattern", "format", "format", "pattern and length"])
    )
    found: dict[str, Any] = {"type": "string"}
    if "length" in kind:
        found |= draw(_bounds("minLength", "maxLength", far=(0, 12)))
    if "pattern" in kind:
        found["pattern"] = draw(st.sampled_from(PATTERNS))
    if kind == "format":
        found["format"] = draw(st.sampled_from(FORMATS))
    return found


@st.composite
def numeric(draw: st.DrawFn) -> Schema:
    whole = draw(st.booleans())
    found: dict[str, Any] = {"type": "integer" if whole else "number"}
    low, high = sorted([draw(numbers), draw(numbers)])
    which = draw(st.sampled_from(["both", "low", "low", "high", "high", "neither", "neither"]))
    if which in ("both", "low"):
        found[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if which in ("both", "high"):
        # Often room for some numbers, sometimes for none.
        found[draw(st.sampled_from(["maximum", "maximum", "exclusiveMaximum"]))] = high + draw(
            st.sampled_from([0, 3, 20])
        )
    if draw(st.integers(0, 3)) == 0:
        found["multipleOf"] = draw(st.sampled_from([2, 3, 5, 10] if whole else [2, 0.5, 0.25, 0.1, 1.5]))
    return found


def arrays(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    @st.composite
    def drawn(draw: st.DrawFn) -> Schema:
        found: dict[str, Any] = {"type": "array"}
        if draw(st.booleans()):
            found["items"] = draw(st.one_of(inner, inner, st.booleans()))
        if draw(st.integers(0, 2)) == 0:
            found["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=2))
        return found | draw(_bounds("minItems", "maxItems", most=2))

    return drawn()


def objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    @st.composite
    def drawn(draw: st.DrawFn) -> Schema:
        found: dict[str, Any] = {"type": "object"}
        properties = draw(st.dictionaries(keys, inner, max_size=3))
        if properties:
            found["properties"] = properties
            found["required"] = [key for key in properties if draw(st.booleans())]
        more = draw(st.sampled_from(["no", "no", "no", "any", "as it comes", "typed"]))
        if more != "no" and draw(st.integers(0, 3)) == 0:
            found["required"] = [
                *found.get("required", []),
                draw(keys.filter(lambda key: key not in properties)),
            ]
        if more in ("no", "any"):
            found["additionalProperties"] = more == "any"
        elif more == "typed":
            found["additionalProperties"] = draw(inner)
        if draw(st.booleans() if not properties else st.integers(0, 5).map(lambda drawn: drawn == 0)):
            found |= draw(_bounds("minProperties", "maxProperties", most=2))
        if draw(st.integers(0, 11)) == 0:
            found["patternProperties"] = {draw(st.sampled_from(["^x", "^k[0-9]$"])): draw(inner)}
        return found

    return drawn()


@st.composite
def typed(draw: st.DrawFn) -> Schema:
    """Several types at once; nullable strings and numbers most of all."""
    found: dict[str, Any] = {}
    if draw(st.booleans()):
        base = draw(st.one_of(strings(), numeric()))
        return base | {"type": [base["type"], "null"]}
    found["type"] = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True))
    return found


def combined(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda parts: {"anyOf": parts}, several),
        st.builds(lambda part: {"anyOf": [part, {"type": "null"}]}, inner),
        st.builds(lambda parts: {"oneOf": parts}, several),
        st.builds(lambda parts: {"allOf": parts}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(
            lambda base, more: base | {"anyOf": more}, inner.filter(lambda s: isinstance(s, dict)), several
        ),
    )


fixed = st.one_of(
    st.builds(lambda value: {"const": value}, values),
    st.builds(lambda some: {"enum": some}, st.lists(values, min_size=1, max_size=4, unique_by=json.dumps)),
    st.builds(
        lambda some: {"type": "string", "enum": some}, st.lists(words, min_size=1, max_size=4, unique=True)
    ),
)
leaves = st.one_of(strings(), strings(), numeric(), fixed, fixed, typed(), st.just({"type": "boolean"}))
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(objects(inner), objects(inner), arrays(inner), combined(inner)),
    max_leaves=4,
)


@st.composite
def referring(draw: st.DrawFn) -> Schema:
    """Definitions by name: used several times, with more beside them, in a circle."""
    one = draw(nested)
    kind = draw(st.sampled_from(["twice", "beside", "list", "tree", "root", "chain"]))
    to = {"$ref": "#/$defs/one"}
    if kind == "twice":
        return {
            "$defs": {"one": one},
            "type": "object",
            "properties": {"a": to, "b": to},
            "required": ["a"],
            "additionalProperties": False,
        }
    if kind == "beside":
        return {"$defs": {"one": one}, "$ref": "#/$defs/one", "description": "as it is"}
    if kind == "chain":
        return {
            "$defs": {"one": {"$ref": "#/$defs/two"}, "two": one},
            "type": "array",
            "items": to,
            "maxItems": 2,
        }
    below: dict[str, Any] = {"type": "object", "properties": {"v": one}, "additionalProperties": False}
    if kind == "list":
        below["properties"]["next"] = {"anyOf": [to, {"type": "null"}]}
    elif kind == "tree":
        below["properties"]["below"] = {"type": "array", "items": to, "maxItems": 2}
    else:
        below["properties"]["next"] = {"$ref": "#"}
        return below
    below["required"] = draw(st.sampled_from([["v"], [*below["properties"]], []]))
    return {"$defs": {"one": below}, "$ref": "#/$defs/one"}


schemas: st.SearchStrategy[Schema] = st.one_of(nested, nested, objects(nested), objects(nested), referring())
"""Schemas of every kind that both libraries say they take."""

beyond = st.sampled_from(
    [
        {"not": {"type": "string"}},
        {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 2, "maxItems": 2},
        {"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 2}, "maxItems": 2},
        {"if": {"type": "integer"}, "then": {"minimum": 3}, "else": {"type": "null"}},
        {"type": "object", "propertyNames": {"maxLength": 1}, "additionalProperties": {"type": "null"}},
        {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
        {"type": "string", "format": "no-such-format"},
        {"type": "string", "pattern": "^(?=ab)a"},
        {"oneOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]},
        {"$ref": "https://example.com/elsewhere"},
    ]
)
"""What at least one of them does not take: refused, or not met."""


def parts(schema: Schema) -> Iterator[Schema]:
    """A schema and all schemas within it; what stands in `const` and `enum` is none."""
    yield schema
    if not isinstance(schema, dict):
        return
    for key, held in schema.items():
        if key in ("properties", "$defs", "patternProperties", "definitions"):
            for part in held.values():
                yield from parts(part)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") or (key == "items" and isinstance(held, list)):
            for part in held:
                yield from parts(part)
        elif key in (
            "items",
            "additionalItems",
            "additionalProperties",
            "not",
            "contains",
            "if",
            "then",
            "else",
            "propertyNames",
        ):
            yield from parts(held)


def kinds(schema: Schema) -> frozenset[str]:
    """The keywords of a schema by name; formats and lists of types as kinds of their own."""
    found = set()
    for part in parts(schema):
        if isinstance(part, bool):
            found.add(str(part).lower())
            continue
        found |= part.keys() - {"description", "$defs", "definitions"}
        if "format" in part:
            found.add(f"format: {part['format']}")
        if isinstance(part.get("type"), list):
            found.add("type: several")
        elif "type" in part:
            found.add(f"type: {part['type']}")
    return frozenset(found)


def wanted_texts(schema: Schema) -> list[str]:
    """The texts that a schema names: keys, values as they are written, bounds, and what patterns and formats need."""
    found: dict[str, None] = {}
    for part in parts(schema):
        if not isinstance(part, dict):
            continue
        for key in (*part.get("properties", ()), *part.get("required", ())):
            found[key] = None
        for value in (*part.get("enum", ()), *([part["const"]] if "const" in part else ())):
            for text in _leaves(value):
                found[text] = None
        for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
            if bound in part:
                found[str(part[bound])] = None
        found |= dict.fromkeys(_OF_FORMATS.get(part.get("format", ""), ()))
    return [text for text in found if text]


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, held in value.items():
            yield key
            yield from _leaves(held)
    elif isinstance(value, list):
        for held in value:
            yield from _leaves(held)
    else:
        yield json.dumps(value)


_OF_FORMATS = {
    "date": ("-", "20", "02-"),
    "time": (":", "Z", "00"),
    "date-time": ("T", "Z", "-0"),
    "duration": ("P", "T", "PT"),
    "email": ("@", "."),
    "hostname": ("-", "com"),
    "ipv4": (".", "25", "0.0"),
    "ipv6": (":", "::"),
    "uuid": ("-", "4"),
    "uri": (":", "//", "%"),
}
_PUNCTUATION = (
    '"', '":', '",', '"}', "}", "]", "{", "[", ",", ":", "}}", "[]", "{}", '{"', '\\"', "\\", "\\u", "\\n", "/",
    " ", "\n", "null", "true", "false", "True", "None", "e", "E", ".", ".0", "-", "0", "00", "1", "12", "+",
)  # fmt: skip
_REGEXES = (
    r"\d", r"\d\d", r"\d{3,}", r"(?<!\d)\d{2}(?!\d)", r"[a-z]{2}", r"[^\x00-\x7f]", r"\s", r"\w", r"[A-Z]", r"\d$",
    r'"\s*}', r"^\{", r'"[^"]*"\s*:', r"\.\d*0\b", r"-\d", r"[eE][-+]?\d", r"\\", r"\\u00", r"(?i)null", r"\b[ab]+\b",
    r"\[\s*\]", r"a(?!b)", r"(?<=a)b", r",\s*\"", r"^.{3}",
    "^[Tt]rue$", r"^N", "[A-Z][a-z]",
)  # fmt: skip


@st.composite
def _collision(draw: st.DrawFn, wanted: list[str]) -> str:
    """A text that a schema is likely to want: all of one, a piece of one, one with its punctuation, punctuation."""
    kind = draw(
        st.sampled_from(["whole", "whole", "piece", "quoted", "punctuation"] if wanted else ["punctuation"])
    )
    if kind == "punctuation":
        return draw(st.sampled_from(_PUNCTUATION))
    text = draw(st.sampled_from(wanted))
    if kind == "piece":
        begin = draw(st.integers(0, len(text) - 1))
        return text[begin : draw(st.integers(begin + 1, len(text)))]
    if kind == "quoted":
        shape = draw(st.sampled_from(['"{}"', '{}"', '"{}', '"{}":', "{}}}", "{},", "{}]"]))
        return shape.replace("{}", text)
    return text


@st.composite
def _candidates(draw: st.DrawFn, name: str, wanted: list[str]) -> Rule | None:
    collision = _collision(wanted)
    options: dict[str, Any] = {"case": draw(st.sampled_from(["exact", "exact", "fold"]))}
    mode = draw(st.sampled_from(["hard"] * 8 + ["soft", "monitor"]))
    if mode == "soft":
        options["penalty"] = 4.0
    elif mode == "monitor":
        options["monitor"] = True
    try:
        if draw(st.integers(0, 2)):
            options["whole_word"] = draw(st.integers(0, 3)) == 0
            some = tuple(draw(st.lists(collision, min_size=1, max_size=3, unique=True)))
            return StringRule(id=name, strings=some, **options)
        text = re.escape(draw(collision))
        regex = draw(
            st.one_of(
                st.sampled_from(_REGEXES),
                st.sampled_from(
                    [
                        rf"\b{text}\b",
                        rf"{text}(?!\w)",
                        rf"(?<!\w){text}",
                        rf"{text}.",
                        rf"{text}$",
                        rf"^{text}",
                    ]
                ),
            )
        )
        return RegexRule(id=name, regex=regex, **options)
    except PolicyError:
        return None


def _fit(rule: Rule | None) -> bool:
    return rule is not None and compiles(rule)


@st.composite
def policies_against(draw: st.DrawFn, schema: Schema, most: int = 3) -> Policy:
    """One to three rules, most of them hard, that forbid what the schema is likely to want."""
    wanted = wanted_texts(schema)
    count = draw(st.integers(1, most))
    rules = [draw(_candidates(f"r{place}", wanted).filter(_fit)) for place in range(count)]
    return Policy(name="against", rules=tuple(rules))


@st.composite
def collisions(draw: st.DrawFn, some: st.SearchStrategy[Schema] = schemas) -> tuple[Schema, Policy]:
    """A schema, and a policy against it."""
    schema = draw(some)
    return schema, draw(policies_against(schema))


def same_examples(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """The same examples in every run."""
    found: list[Any] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(example: Any) -> None:
        found.append(example)

    draw()
    return found
