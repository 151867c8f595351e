"""A JSON Schema as it is given, keyword by keyword, before anything is made of it.

Each keyword is enforced, or an annotation that is left out, or refused with its place and what to write instead; so is
what was meant for a keyword and is none (`minlength`, `requried`). What is left is plain: dicts and lists, whole
numbers as such, references within the schema, nothing that is not reached.

Cost: one walk through what is reached.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote

from nco_guard.automata.json_text import PlainJsonAutomaton
from nco_guard.errors import ShapeError

__all__ = ["asks_itself", "plain_schema", "schema_parts", "within"]

# Levels of lists and dicts in one another that the library's own reader takes.
_DEEP = 100
# What the library counts to.
_MOST = 2**32 - 1
_TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
_SCHEMAS_BY_NAME = ("properties", "patternProperties")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
#: What is enforced.
ENFORCED = (
    "$ref", "type", "const", "enum", "pattern", "format", "required", "items", "additionalItems",
    "additionalProperties",
    *_SCHEMAS_BY_NAME, *_SCHEMA_LISTS, *_COUNTS, *_BOUNDS,
)  # fmt: skip
#: What is refused, and what to write instead.
REFUSED = {
    "not": "write what there may be in place of what there may not",
    "if": "write the cases as anyOf",
    "uniqueItems": "leave it out, or say the items one by one (prefixItems)",
    "contains": "leave it out, or say the items one by one (prefixItems)",
    "propertyNames": "name the keys by properties, or by patternProperties",
    "dependentRequired": "write the cases as anyOf",
    "dependentSchemas": "write the cases as anyOf",
    "dependencies": "write the cases as anyOf",
    "unevaluatedProperties": "say additionalProperties in each object",
    "unevaluatedItems": "say items in each array",
    "$dynamicRef": "write a $ref",
    "$recursiveRef": "write a $ref",
    "contentEncoding": "say what the string looks like by a pattern, or leave it out",
    "contentMediaType": "say what the string looks like by a pattern, or write its schema in place of the string's",
    "contentSchema": "write it in place of the string's",
    "divisibleBy": "it is of an old draft; write multipleOf",
    "disallow": "it is of an old draft; write what there may be as type",
    "extends": "it is of an old draft; write allOf",
}
# Nothing is asked by these values of theirs.
_IDLE: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
    "propertyNames": (True, {}),
}
#: What says something of a value and asks nothing of it, or something only beside a keyword that is not there.
ANNOTATIONS = frozenset((
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment",
    "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$defs", "definitions",
    "discriminator", "nullable", "externalDocs", "xml", "strict", "name", "then", "else", "minContains", "maxContains",
))  # fmt: skip
# What is asked by other schemas.
_COMBINED = ("allOf", "anyOf", "oneOf", "$ref")
_SIMPLE = {re.sub(r"\W|_", "", name).lower(): name for name in (*ENFORCED, *REFUSED)}


def asks_itself(name: Any) -> bool:
    """Whether a key of a schema asks something of values itself: no annotation, and not by other schemas."""
    return name not in ANNOTATIONS and name not in _COMBINED and not str(name).startswith("x-")


def within(place: str, name: str | int) -> str:
    """The JSON Pointer of what stands under a name."""
    return f"{place}/{str(name).replace('~', '~0').replace('/', '~1')}"


def plain_schema(given: Any) -> dict[str, Any]:
    """A schema with what is enforced of it, in new dicts and lists. Errors: `ShapeError`, naming keyword and place."""
    return _Reader(given).read()


def schema_parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """The schemas right within one: where each stands, itself, and whether others stand for the same value."""
    for name in ("properties", "$defs", "definitions", "patternProperties"):
        found = schema.get(name)
        if isinstance(found, Mapping):
            for key, inner in found.items():
                yield f"/{name}{within('', key)}", inner, False
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        found = schema.get(name)
        if isinstance(found, list):
            beside = any(other in schema for other in ("properties", "allOf", "$ref"))
            for number, inner in enumerate(found):
                yield f"/{name}/{number}", inner, name == "allOf" or (name != "prefixItems" and beside)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            yield f"/{name}", schema[name], False


def _shown(name: str) -> str:
    return name.encode("utf-8", "replace").decode()[:60]


@dataclass
class _Reader:
    """One walk. `made`: what has been made of the root."""

    root: Any
    made: dict[str, Any] = field(default_factory=dict)
    _refs: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    _open: set[int] = field(default_factory=set)
    _known: dict[str, str] = field(default_factory=dict)

    def read(self) -> dict[str, Any]:
        """All that is reached from the root."""
        if self.root is True:
            return {}
        if self.root is False:
            raise ShapeError("nothing is of this schema; give one that lets something be", place="#")
        self.made = self.node(self.root, "#", 0)
        for node, place in self._refs:  # which grows meanwhile
            node["$ref"] = self._target(node["$ref"], place)
        self._loops()
        return self.made

    # -- schemas -----------------------------------------------------------------------------------------------

    def schema(self, given: Any, place: str, depth: int) -> Any:
        """A schema within another."""
        return given if isinstance(given, bool) else self.node(given, place, depth)

    def node(self, given: Any, place: str, depth: int) -> dict[str, Any]:
        """A schema that is a mapping."""
        if not isinstance(given, Mapping):
            raise ShapeError(
                f"a schema is a mapping, true or false, not {type(given).__name__}; write one", place=place
            )
        self._enter(given, place, depth)
        made: dict[str, Any] = {}
        for name, value in given.items():
            self._check_name(name, place)
            if name in ENFORCED:
                made[name] = self._keyword(name, value, place, depth)
            elif name in REFUSED:
                self._refuse(name, value, given, place)
            elif asks_itself(name):
                self._unknown(name, place)
        self._open.discard(id(given))
        if "$id" in given and depth and isinstance(given["$id"], str) and not given["$id"].startswith("#"):
            self._renamed(made, place)
        self._old_items(made, place)
        if "$ref" in made:
            self._refs.append((made, place))
        return made

    def _enter(self, given: Any, place: str, depth: int) -> None:
        if id(given) in self._open:
            raise ShapeError("it holds itself; name it in $defs and refer to it by $ref", place=_cut(place))
        if depth > _DEEP:
            raise ShapeError(
                f"more than {_DEEP} levels; name what is below in $defs and refer to it by $ref",
                place=_cut(place),
            )
        self._open.add(id(given))

    def _check_name(self, name: Any, place: str) -> None:
        if not isinstance(name, str):
            raise ShapeError(f"a key is {type(name).__name__}, not text; write it as text", place=place)
        if _half(name):
            raise ShapeError(
                "a key holds half a surrogate pair, which no text can; write it whole", place=place
            )

    def _refuse(self, name: str, value: Any, given: Mapping[str, Any], place: str) -> None:
        if any(value == idle and type(value) is type(idle) for idle in _IDLE.get(name, ())):
            return
        if name == "if" and not ("then" in given or "else" in given):
            return
        raise ShapeError(f"{name}: it cannot be enforced; {REFUSED[name]}", place=place)

    def _unknown(self, name: str, place: str) -> None:
        """What is no keyword is an annotation, but for what is nearly one."""
        meant = _meant(name)
        if meant is not None:
            raise ShapeError(
                f"{_shown(name)}: it is no keyword and would be left out; write {meant}, or x-{_shown(name)} for a "
                "note of your own",
                place=place,
            )

    def _renamed(self, made: Any, place: str) -> None:
        """A part with an `$id` of its own may hold no reference, since that is one within the part."""
        waiting = [made]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                if isinstance(one.get("$ref"), str):
                    raise ShapeError(
                        "$id: references in it are looked for from the root; leave it out", place=place
                    )
                waiting += one.values()
            elif isinstance(one, list):
                waiting += one

    def _old_items(self, made: dict[str, Any], place: str) -> None:
        """Items one by one as older drafts have them."""
        items, further = made.get("items"), made.pop("additionalItems", None)
        if not isinstance(items, list):
            return
        if "prefixItems" in made:
            raise ShapeError(
                "items: a list beside prefixItems; write what follows as one schema", place=place
            )
        made["prefixItems"] = items
        if further is None:
            del made["items"]
        else:
            made["items"] = further

    # -- keywords ----------------------------------------------------------------------------------------------

    def _keyword(self, name: str, value: Any, place: str, depth: int) -> Any:
        at = within(place, name)
        if name in _COUNTS:
            return self._count(name, value, place)
        if name in _BOUNDS:
            return self._bound(name, value, place)
        if name in ("const", "enum"):
            values = self._listed(name, value, place) if name == "enum" else [value]
            found = [
                self._value(each, within(at, number) if name == "enum" else at, depth + 2)
                for number, each in enumerate(values)
            ]
            return found if name == "enum" else found[0]
        if name in _SCHEMAS_BY_NAME:
            if not isinstance(value, Mapping):
                raise ShapeError(f"{name}: a mapping of names to schemas is needed", place=place)
            self._enter(value, at, depth + 1)
            for key in value:
                self._check_name(key, at)
            made = {
                str.__str__(key): self.schema(each, within(at, key), depth + 2) for key, each in value.items()
            }
            self._open.discard(id(value))
            return made
        if name in _SCHEMA_LISTS or (name == "items" and isinstance(value, list | tuple)):
            listed = self._listed(name, value, place)
            return [self.schema(each, within(at, n), depth + 2) for n, each in enumerate(listed)]
        if name in ("items", "additionalItems", "additionalProperties"):
            return self.schema(value, at, depth + 1)
        return self._text(name, value, place)

    def _listed(self, name: str, value: Any, place: str) -> list[Any]:
        if not isinstance(value, list | tuple) or not value:
            raise ShapeError(f"{name}: a list of at least one is needed", place=place)
        return [*value]

    def _text(self, name: str, value: Any, place: str) -> Any:
        """`$ref`, `pattern`, `format`, `type` and `required`, which are text or lists of it."""
        if name == "required" and isinstance(value, bool):
            raise ShapeError(
                "required: true and false are of an old draft; list the names in the object's required",
                place=place,
            )
        many = name in ("type", "required") and isinstance(value, list | tuple)
        texts = list(value) if many else [value]
        if (name == "required" and not many) or not all(isinstance(each, str) for each in texts):
            wanted = {"required": "a list of names", "type": "one of the seven types, or a list of them"}
            raise ShapeError(f"{name}: {wanted.get(name, 'text')} is needed", place=place)
        texts = [str.__str__(each) for each in texts]
        if any(map(_half, texts)):
            raise ShapeError(
                f"{name}: half a surrogate pair, which no text can hold; write it whole", place=place
            )
        if name == "type":
            wrong = [each for each in texts if each not in _TYPES]
            if wrong or not texts:
                which = f"not {_shown(wrong[0])!r}" if wrong else "at least one"
                raise ShapeError(f"type: {', '.join(_TYPES)} are types, {which}", place=place)
        return texts if many else texts[0]

    def _count(self, name: str, value: Any, place: str) -> int:
        whole = _number(value)
        if not isinstance(whole, int) or whole < 0:
            raise ShapeError(f"{name}: a whole number from 0 on is needed", place=place)
        if whole > _MOST:
            raise ShapeError(f"{name}: nothing is counted further than {_MOST}; say less", place=place)
        return whole

    def _bound(self, name: str, value: Any, place: str) -> int | float:
        if isinstance(value, bool) and name.startswith("exclusive"):
            raise ShapeError(
                f"{name}: true and false are of an old draft; write the bound itself as {name}", place=place
            )
        number = _number(value)
        if number is None:
            raise ShapeError(f"{name}: a number is needed", place=place)
        if name == "multipleOf" and number <= 0:
            raise ShapeError("multipleOf: a number above 0 is needed", place=place)
        return number

    def _value(self, value: Any, place: str, depth: int) -> Any:
        """A value of `const` or `enum`."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            if _half(value):
                raise ShapeError("half a surrogate pair, which no text can hold; write it whole", place=place)
            return str.__str__(value)
        if isinstance(value, Mapping | list | tuple):
            self._enter(value, place, depth)
            made: Any
            if isinstance(value, Mapping):
                for key in value:
                    self._check_name(key, place)
                made = {str.__str__(k): self._value(v, within(place, k), depth + 1) for k, v in value.items()}
            else:
                made = [self._value(each, within(place, n), depth + 1) for n, each in enumerate(value)]
            self._open.discard(id(value))
            return made
        number = _number(value)
        if number is None:
            what = f"the number {value}" if isinstance(value, float) else type(value).__name__
            raise ShapeError(f"{what} is no value of JSON; write what JSON has", place=place)
        if not _can_be_written(number):
            raise ShapeError(
                "the number cannot be written: numbers have 300 digits at most, with a point 15, and no exponent; "
                "write one that has",
                place=place,
            )
        return number

    # -- references --------------------------------------------------------------------------------------------

    def _target(self, reference: str, place: str) -> str:
        """A reference as one to a place of what is made; what was not reached yet is made."""
        if reference in self._known:
            return self._known[reference]
        pointer = self._pointer(reference)
        names = None if pointer is None else [_unescaped(each) for each in pointer.split("/")[1:]]
        if names is None:
            raise ShapeError(
                f"$ref: {_shown(reference)!r} is not within this schema; put it into $defs and refer to #/$defs/...",
                place=place,
            )
        given = _inside(self.root, names)
        if given is _NOTHING:
            names = [unquote(each) for each in names]
            given = _inside(self.root, names)
        if given is _NOTHING:
            raise ShapeError(f"$ref: {_shown(reference)!r} leads to nowhere; put it there", place=place)
        found = _inside(self.made, names)
        shown = "".join(within("", each) for each in names)
        if found is _NOTHING or not isinstance(found, dict | bool):
            defined = len(names) == 2 and names[0] in ("$defs", "definitions")
            held, name = (names[0], names[1]) if defined else ("$defs", shown)
            self.made.setdefault(held, {})
            self._known[reference] = f"#{within('', held)}{within('', name)}"
            self.made[held][name] = {}  # known before it is made, since it may refer to itself
            self.made[held][name] = self.schema(given, f"#{shown}", 1)
        else:
            self._known[reference] = f"#{shown}"
        return self._known[reference]

    def _pointer(self, reference: str) -> str | None:
        own = self.root.get("$id", self.root.get("id"))
        if isinstance(own, str) and own and reference.startswith(own.partition("#")[0] + "#"):
            reference = reference[len(own.partition("#")[0]) :]
        if reference == "#" or reference.startswith("#/"):
            return reference[1:]
        return (
            _anchored(self.root, reference[1:]) if reference.startswith("#") and len(reference) > 1 else None
        )

    def _loops(self) -> None:
        """Refuse what only refers to itself."""
        for node, place in self._refs:
            seen = {id(node)}
            while isinstance(node, dict) and "$ref" in node:
                names = [_unescaped(each) for each in cast(str, node["$ref"]).split("/")[1:]]
                node = _inside(self.made, names)
                if id(node) in seen:
                    raise ShapeError(
                        "$ref: it leads back to itself; say somewhere what there is", place=place
                    )
                seen.add(id(node))


class _Nothing:
    """What is not there."""


_NOTHING = _Nothing()


def _inside(node: Any, names: list[str]) -> Any:
    for name in names:
        if isinstance(node, Mapping) and name in node:
            node = node[name]
        elif isinstance(node, list | tuple) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            return _NOTHING
    return node


def _unescaped(name: str) -> str:
    return name.replace("~1", "/").replace("~0", "~")


def _anchored(root: Any, name: str) -> str | None:
    """The pointer of what has an `$anchor`."""
    waiting, seen = [("", root)], set[int]()
    while waiting:
        place, node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Mapping):
            if node.get("$anchor") == name or node.get("$id") == f"#{name}":
                return place
            waiting += [(within(place, key), each) for key, each in node.items() if isinstance(key, str)]
        elif isinstance(node, list | tuple):
            waiting += [(within(place, number), each) for number, each in enumerate(node)]
    return None


def _cut(place: str) -> str:
    """A place that is not endless."""
    parts = place.split("/")
    return place if len(parts) <= 12 else "/".join([*parts[:12], "..."])


def _half(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _number(value: Any) -> int | float | None:
    """A number as it is written: whole ones as such, no zero with a sign; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return int(value)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else float(value)


_in_json: Callable[[], PlainJsonAutomaton] = PlainJsonAutomaton


def _can_be_written(number: int | float) -> bool:
    """Whether a text may say a number (`automata.json_text`)."""
    if isinstance(number, int):
        return abs(number) < 10**300
    automaton = _in_json()
    state = automaton.read(automaton.start, repr(number).encode())
    return state >= 0 and automaton.may_end(state)


def _single(word: str) -> str:
    return f"{word[:-3]}y" if word.endswith("ies") else word.rstrip("s")


def _meant(name: str) -> str | None:
    """The keyword that somebody means who writes what is none."""
    simple = re.sub(r"\W|_", "", name).lower()
    if simple in _SIMPLE:
        return _SIMPLE[simple]
    if len(simple) < 4:
        return None
    for known, keyword in _SIMPLE.items():
        if len(known) >= 4 and (
            _single(known) == _single(simple) or (sorted(known) == sorted(simple) and known[0] == simple[0])
        ):
            return keyword
    close = difflib.get_close_matches(simple, [each for each in _SIMPLE if len(each) >= 6], n=1, cutoff=0.88)
    return _SIMPLE[close[0]] if close else None
