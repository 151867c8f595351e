"""What the text of a model is to look like: a JSON Schema, a regular expression, a grammar.

A shape says what may be written, a policy what may not; `shape=` enforces both at once. What cannot be enforced exactly
is refused here, before anything runs.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

from pydantic import PydanticUserError

from nco_guard.arguments import choice, text, truth
from nco_guard.automata.automaton import TableAutomaton
from nco_guard.automata.json_text import PlainJsonAutomaton
from nco_guard.compiler import compile_policy
from nco_guard.errors import ArgumentError, ContradictionError, PolicyError, ShapeError
from nco_guard.policy import Policy, RegexRule
from nco_guard.shapes.dialect import whole_pattern
from nco_guard.shapes.exact_numbers import wide_numbers, wide_said
from nco_guard.shapes.keywords import plain_schema, schema_parts
from nco_guard.shapes.library import GrammarReader, check_json_of, complaint, in_lark, tokenizer_of
from nco_guard.shapes.places import JsonPlaces
from nco_guard.shapes.plain_places import PatternPlaces, Places, TextPlaces
from nco_guard.shapes.strict import narrowed
from nco_guard.shapes.tools import CallFormat, CallGrammar, Tool, call_grammar, tools_of

__all__ = ["SHAPE_RULE", "Shape", "ShapeSource", "as_shape"]

#: Stands in place of a rule where the shape forbids a token.
SHAPE_RULE = "shape"

ShapeSource = Any
"""What is given as `shape=`: a `Shape`, a JSON Schema (a mapping, or True for any JSON), or a pydantic class."""

Whitespace = Literal["one", "any", "none"]
_WHITESPACE: dict[str, dict[str, Any]] = {
    "one": {"whitespace_pattern": "[ ]?"},
    "any": {},
    "none": {"whitespace_flexible": False},
}
_HEAD = '%llguidance {"no_forcing": true}\nstart: '


@dataclass(frozen=True, eq=False)
class Shape:
    """What texts are to look like. Made by `Shape.json`, `regex`, `lark` or `tools`; immutable, shared.

    Guarantee: a text that has ended, or was ended by `max_new_tokens` as far as a way was found, is of this shape. A
    text that something else stops (a stop string, a time limit) is refused, not cut.

    kind: "json", "regex", "lark" or "tools". schema: of JSON, as it is read. begun: how a prompt has begun the text.

    Examples:
        >>> Shape.json({"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}).kind
        'json'
        >>> Shape.json({"type": "string", "format": "colour"})
        Traceback (most recent call last):
        ...
        nco_guard.errors.ShapeError: #: Unknown format: colour
    """

    kind: Literal["json", "regex", "lark", "tools"]
    grammar: str = field(repr=False)
    schema: Any = field(default=None, repr=False)
    source: Any = field(default=None, repr=False)
    begun: bytes = field(default=b"", repr=False)

    @classmethod
    def json(cls, schema: Any, *, whitespace: Whitespace = "one") -> Shape:
        """The JSON texts that a JSON Schema, or a pydantic class, lets be.

        Keys come in the schema's order. Objects whose `properties` are given have no others, but for those that are
        required, unless `additionalProperties` says so or `minProperties` asks for more. Numbers are written as they
        print, see `automata.json_text`. `whitespace`: "one" space at most between what belongs together, "any", or
        "none".

        Errors: `ShapeError`, naming the place, for what cannot be enforced exactly (`not`, `uniqueItems`, lookarounds,
        unknown formats, ...); `ArgumentError` for what is no schema.
        """
        choice("whitespace", whitespace, tuple(_WHITESPACE))
        made = _closed(plain_schema(_schema_of(schema)), "#")
        options = _WHITESPACE[whitespace]
        grammar = _json_grammar(narrowed(copy.deepcopy(made)), options)
        said = complaint(grammar)
        if said is not None:
            raise ShapeError(said, place=_place_of(made, said))
        _check_followed(made)
        return cls("json", grammar, schema=made, source=(made, whitespace))

    @classmethod
    def regex(cls, pattern: str) -> Shape:
        r"""The texts that a regular expression of Python's matches as a whole.

        Errors: `ShapeError` for lookarounds, backreferences, and anchors that are not at an end.

        Examples:
            >>> Shape.regex(r"[A-Z]{2}-\d{4}").kind
            'regex'
        """
        if not isinstance(pattern, str):
            raise ArgumentError("pattern: give a regular expression as text")
        spelled = whole_pattern(pattern)
        grammar = f"{_HEAD}/{in_lark(spelled)}/"
        said = complaint(grammar)
        if said is not None:
            raise ShapeError(f"the regular expression cannot be enforced: {said}")
        return cls("regex", grammar, source=spelled)

    @classmethod
    def lark(cls, grammar: str) -> Shape:
        """The texts of a grammar in Lark's notation, as llguidance reads it; it begins with the rule `start`.

        Masks are kept by text, since nothing is known of when two texts are at the same place: such a shape costs more
        in a step than the others. Errors: `ShapeError`.

        Examples:
            >>> Shape.lark('start: "yes" | "no"').kind
            'lark'
        """
        if not isinstance(grammar, str):
            raise ArgumentError("grammar: give a grammar as text")
        check_json_of(grammar)
        made = _HEAD.partition("start")[0] + grammar
        said = complaint(made)
        if said is not None:
            raise ShapeError(f"the grammar cannot be enforced: {said}")
        return cls("lark", made, source=grammar)

    @classmethod
    def tools(
        cls,
        tools: Sequence[Mapping[str, Any]],
        form: CallFormat,
        *,
        choice: str = "auto",
        parallel: bool = True,
        begun: str = "",
        reasoning: bool = False,
    ) -> Shape:
        """Free text or calls of these tools, in the format that a family of models writes them in.

        tools: as OpenAI's APIs have them; each call has the name of one, and arguments of its `parameters`. Where some
        say `strict: true`, the arguments of the others are any object. form: a `nco_guard.replies.ReplyFormat`.
        choice: "auto": text without the beginning of a call, then calls or nothing; "required": calls; a tool's name:
        calls of it. parallel: False for one call at most. begun, reasoning: how the prompt ends, as
        `nco_guard.replies.enforcing.calls_shape` finds it: with so much of a call's beginning; within reasoning,
        which is free up to its close.

        Errors: `ShapeError`, naming tool and place, for what cannot be enforced exactly; `ArgumentError`.

        Examples:
            >>> from nco_guard.replies import shipped_formats
            >>> tool = {"name": "find", "parameters": {"properties": {"q": {"type": "string"}}, "required": ["q"]}}
            >>> Shape.tools([tool], shipped_formats()["hermes"], choice="find").kind
            'tools'
        """
        given = tools_of(tools)
        if not all(hasattr(form, name) for name in ("response_template", "arguments", "call")):
            raise ArgumentError(
                "form: give a ReplyFormat, as nco_guard.replies.shipped_formats() has them by name"
            )
        begun = text("begun", begun)
        parallel, reasoning = truth("parallel", parallel), truth("reasoning", reasoning)
        if choice not in ("auto", "required"):
            given = tuple(tool for tool in given if tool.name == choice)
            if not given:
                raise ArgumentError(f"choice: 'auto', 'required' or the name of a tool, not {choice!r}")
        closed = [replace(tool, schema=_closed_for(tool)) for tool in given]
        make = partial(
            call_grammar,
            form=form,
            required=choice != "auto",
            parallel=parallel,
            begun=begun,
            reasoning=reasoning,
        )
        return cls._calls(closed, make)

    @classmethod
    def _calls(cls, tools: Sequence[Tool], make: Callable[[Sequence[Tool]], CallGrammar]) -> Shape:
        tools = [_enforced(tool) for tool in tools]
        grammar = make(tools).grammar
        if (said := complaint(grammar)) is not None:
            raise ShapeError(f"the calls of these tools cannot be enforced: {said}")
        return cls("tools", grammar, source=(tuple(tools), make))

    def behind(self, begun: str) -> Shape:
        """What is left of the shape where the prompt ends with the beginning of its text.

        Errors: `ShapeError` for what is no beginning of one.
        """
        said = text("begun", begun)
        reader, data = GrammarReader(self.grammar, tokenizer_of(None)), said.encode("utf-8", "replace")
        if not reader.leads(reader.at(b""), data):
            raise ShapeError("begun: no text of this shape begins so")
        return replace(self, begun=data)

    def left_by(self, prune: Callable[[Any], Any]) -> Shape:
        """This shape with what is left of its schemas. Names of tools are looked at, too.

        Errors: as `json`; those of `prune`, which name the tool.
        """
        if self.kind == "json":
            left = prune(self.schema)
            return self if left == self.schema else Shape.json(left, whitespace=self.source[1])
        if self.kind != "tools":
            return self
        tools, make = self.source
        kept = []
        for tool in tools:
            try:
                prune({"const": tool.name})
            except ContradictionError as error:
                raise ContradictionError([(f"tools/{tool.name}/name", error.rule_ids)]) from None
            try:
                kept.append(replace(tool, schema=prune(tool.schema)))
            except ContradictionError as error:
                raise error.within(f"tools/{tool.name}") from None
        same = all(one.schema == tool.schema for one, tool in zip(kept, tools, strict=True))
        return self if same else replace(Shape._calls(kept, make), begun=self.begun)

    def plain(self) -> TableAutomaton | None:
        """What holds beside the policy's rules: JSON is written as it reads."""
        if self.kind == "json":
            return PlainJsonAutomaton()
        if self.kind != "tools":
            return None
        plain = self._made.plain
        if plain is None:
            return None
        plain.start = plain.spaceless_start = plain.read(plain.start, self.begun)
        return plain

    @property
    def _made(self) -> CallGrammar:
        tools, make = self.source
        made: CallGrammar = make(tools)
        return made

    @property
    def says_json(self) -> bool:
        """Whether there are strings in it that are read as JSON."""
        return self.kind in ("json", "tools")

    @property
    def value_types(self) -> dict[str, tuple[str, ...]]:
        """Of calls: as what the text of each argument is read, those of one name in any tool together."""
        found: dict[str, tuple[str, ...]] = {}
        for tool in self.source[0] if self.kind == "tools" else ():
            for key, kinds in tool.types.items():
                found[key] = tuple(dict.fromkeys((*found.get(key, ()), *(kinds or ("string",)))))
        return found

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of what is enforced."""
        return hashlib.sha256(json.dumps([self.grammar, self._beside, self.begun.hex()]).encode()).hexdigest()

    @property
    def _beside(self) -> list[Any]:
        """The schemas: what is enforced of them beside the grammar (`exact_numbers`) does not stand in it."""
        if self.kind == "tools":
            return [tool.schema for tool in self.source[0]]
        return [self.schema]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def places(self) -> Places:
        """What knows where texts of this shape stand."""
        if self.kind == "tools":
            return self._made.places
        if self.kind == "json":
            return JsonPlaces(self.schema)
        if self.kind == "regex":
            try:
                rule = RegexRule(id="shape", regex=rf"\A(?:{self.source})\Z")
                return PatternPlaces(
                    compile_policy(Policy(name="shape", rules=[rule])).constraints()[1].automaton
                )
            except PolicyError:
                pass
        return TextPlaces(self.grammar)


def _schema_of(given: Any) -> Mapping[str, Any] | bool:
    """The schema that is given, or that of a class. Errors: `ArgumentError`; `ShapeError` where a class has none."""
    if isinstance(given, type) and hasattr(given, "model_json_schema"):
        try:
            schema: Mapping[str, Any] = given.model_json_schema()
        except (PydanticUserError, AttributeError) as error:
            said = str(error).partition("\n")[0]
            raise ShapeError(f"{given.__name__}: pydantic makes no JSON Schema of it: {said}") from None
        return schema
    if isinstance(given, Mapping | bool):
        return given
    if hasattr(given, "model_json_schema"):
        raise ArgumentError(f"shape: an object of {type(given).__name__} is none; give the class itself")
    what = given.__name__ if isinstance(given, type) else type(given).__name__
    raise ArgumentError(
        f"shape: {what} is none; give a Shape, a JSON Schema as a mapping, or a pydantic class (of any other type "
        "pydantic.TypeAdapter(...).json_schema() makes a schema)"
    )


def as_shape(given: ShapeSource) -> Shape:
    """A shape that is given, or one of the schema or class that is. Errors: as `Shape.json`."""
    return given if isinstance(given, Shape) else Shape.json(given)


def _enforced(tool: Tool) -> Tool:
    """A tool with what the library is given of its schema. Errors: `ShapeError`, naming tool and place."""
    try:
        enforced = narrowed(copy.deepcopy(tool.schema))
    except ShapeError as error:
        raise ShapeError(f"tool {tool.name!r}: {error.message}", place=error.place) from None
    if (said := complaint(_json_grammar(enforced, _WHITESPACE["one"]))) is not None:
        raise ShapeError(f"tool {tool.name!r}: {said}", place=_place_of(tool.schema, said))
    _check_followed(tool.schema, f"tool {tool.name!r}: ")
    return replace(tool, enforced=enforced)


def _check_followed(schema: Mapping[str, Any], of: str = "") -> None:
    """Refuse numbers that neither the library nor places can follow."""
    wide = wide_numbers(schema)
    unfollowed = JsonPlaces(schema).unfollowed() if wide else None
    if unfollowed is not None:
        raise ShapeError(
            f"{of}{wide_said()} cannot be enforced in an object or array for which several schemas stand (anyOf, "
            "allOf, patternProperties); write one schema for it, or say less of the number",
            place=wide[unfollowed],
        )


def _closed_for(tool: Tool) -> dict[str, Any]:
    try:
        closed: dict[str, Any] = _closed(plain_schema(tool.schema), "#")
    except ShapeError as error:
        raise ShapeError(f"tool {tool.name!r}: {error.message}", place=error.place) from None
    return closed


def _json_grammar(schema: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    return f"{_HEAD}%json {json.dumps({**schema, 'x-guidance': options})}"


_COMBINING = ("allOf", "anyOf", "oneOf", "$ref")


def _closed(schema: Any, place: str, *, open_: bool = False) -> Any:
    """A schema whose objects have no other keys than they name, where nothing is said of others.

    What is required is named: of what value, is free. `minProperties` beyond what is named says that there are others.
    """
    if not isinstance(schema, dict):
        return schema
    alone = not open_ and not any(name in schema for name in _COMBINING)
    if "properties" in schema and "additionalProperties" not in schema and alone:
        required: dict[str, Any] = {
            name: {} for name in schema.get("required", ()) if name not in schema["properties"]
        }
        named = len(schema["properties"]) + len(required)
        if "patternProperties" in schema or schema.get("minProperties", 0) <= named:
            schema["additionalProperties"] = False
            schema["properties"] |= required
    for pointer, inner, part_of_all in schema_parts(schema):
        _closed(inner, place + pointer, open_=part_of_all)
    return schema


def _place_of(schema: Mapping[str, Any], said: str) -> str:
    """The innermost place at which the library says the same."""
    defined = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    found, waiting = "#", [("#", schema)]
    while waiting:
        place, node = waiting.pop()
        if place != "#" and not _is_said_of({**defined, **node}, said):
            continue
        if len(place) > len(found):
            found = place
        waiting += [
            (place + pointer, inner) for pointer, inner, _ in schema_parts(node) if isinstance(inner, Mapping)
        ]
    return found


def _is_said_of(part: dict[str, Any], said: str) -> bool:
    """Whether the library says the same of a part, narrowed as the whole was."""
    try:
        return complaint(_json_grammar(narrowed(copy.deepcopy(part)), {})) == said
    except ShapeError:
        return False
