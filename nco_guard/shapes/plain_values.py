"""Values in tags: a string as it stands, other values as JSON has them, each up to the mark that ends it.

A text is read as the first of the types that the schema names which it can be, so a string that would be read as
something else cannot be written where its schema has several types; nor can one that holds what ends it or its call.
Lists and objects are JSON; as everywhere, they and numbers are written as they print.

All that is no list or object is one terminal of the grammar, which ends with the closing mark: where several kinds of
values may come, none of them is over before that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Any, NamedTuple

from nco_guard.automata.json_text import JSON_START, OPEN_NUMBERS, json_step
from nco_guard.errors import ShapeError
from nco_guard.shapes.branches import SchemaBranch, branches_of, read_as
from nco_guard.shapes.dialect import searched_pattern
from nco_guard.shapes.exact_numbers import says_wide, whole_values, wide_said
from nco_guard.shapes.format_texts import FORMAT_TEXTS
from nco_guard.shapes.library import in_lark
from nco_guard.shapes.marked import MarkedText, TokenBytes, marked_text
from nco_guard.shapes.number_texts import DECIMALS, WHOLE, WHOLE_IN_FLOATS, whole_between
from nco_guard.shapes.places import JsonPlaces

__all__ = [
    "PlainLeaf",
    "SpreadKind",
    "ValueEnds",
    "ValueGrammar",
    "is_of",
    "named_values",
    "schema_of_kinds",
    "spread_kinds",
    "value_grammar",
]

_ANY = "(?s:.*)"
_BLANKS = r"[\s\x1c-\x1f]*"
_DIGITS = r"\p{Nd}(?:_?\p{Nd})*"
_NUMBER = rf"{_BLANKS}[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?{_BLANKS}"
_BEGUN_NUMBER = re.compile(r"[+-]?[\d_.]*(?:[eE][+-]?[\d_]*)?")
# What is read as something else than a string, and more.
_TAKEN = {
    "integer": _NUMBER,
    "number": _NUMBER,
    "boolean": f"{_BLANKS}(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[01]){_BLANKS}",
    "null": f"{_BLANKS}(?:null|None){_BLANKS}",
    "array": rf"{_BLANKS}\[{_ANY}",
    "object": rf"{_BLANKS}\{{{_ANY}",
}
_WORDS = {"boolean": ("true", "false", "0", "1"), "null": ("null", "none")}
# In place of a text of which it does not matter any more what it is.
_FREE = b"\xff"
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_FLOATS = 10**15 - 1
_OPTIONS = {"whitespace_pattern": "[ ]?"}


@dataclass(frozen=True)
class ValueEnds:
    """By what a value ends, and what it must not hold for that.

    head: written before the mark. mark: at which readers see its end. never: patterns of what a value does not hold.
    first: what it does not begin with.
    """

    head: str
    mark: str
    never: tuple[str, ...] = ()
    first: tuple[str, ...] = ()

    @property
    def close(self) -> str:
        """An expression of what is written behind a value."""
        return re.escape(self.head + self.mark)


@dataclass
class ValueGrammar:
    """A value in a tag: lines of the grammar, what stands for it in rules, and its leaf."""

    lark: str
    leaf: PlainLeaf
    lines: list[str] = field(default_factory=list)


class _In(NamedTuple):
    """state: of the marks. count: characters, as far as they matter. said: the text, where it matters. json: the place
    of a list or object. step: what is written as JSON."""

    state: int = 0
    length: int = 0
    said: bytes = b""
    json: Any = None
    step: tuple[str, int] | None = None


class PlainLeaf:
    """A value up to the mark that ends it.

    cap: how many characters matter. kept: what was written matters, as long as it is `special`; None: all of it.
    numbers: what begins like a number is one, and written as it prints. json: of lists and objects; None: there are
    none. fits: whether a text may be the value, where it is kept.
    """

    def __init__(
        self,
        text: MarkedText,
        end: int,
        *,
        behind: int,
        cap: int = 0,
        special: Callable[[bytes], bool] | None = None,
        numbers: bool = False,
        json: JsonPlaces | None = None,
        fits: Callable[[str], bool] | None = None,
    ) -> None:
        self.text, self._end, self._behind, self._cap = text, end, behind, cap
        self._special, self._numbers, self.json, self._fits = special, numbers, json, fits
        self.start = _In()

    def feed(self, place: _In, byte: int) -> tuple[Any, int] | None:
        """See `PartLeaf`."""
        first = place == self.start
        after = self.text.step(place.state, byte)
        if after < 0:
            return (None, 0) if ~after == self._end and self._over(place, byte) else None
        if place.json is not None or (first and self.json is not None and byte in b"[{"):
            return self._in_json(place, after, byte)
        step = place.step
        if self._numbers and (step is not None or (first and byte in b"-0123456789")):
            before, step = step, json_step(step or JSON_START, byte)
            if step is None or (step == JSON_START and before is not None and before[0] in OPEN_NUMBERS):
                return None
        count = min(place.length + (byte & 0xC0 != 0x80), self._cap)
        return _In(after, count, self._kept(place.said, bytes([byte])), None, step), -1

    def _kept(self, said: bytes, more: bytes) -> bytes:
        """What is kept of a text."""
        if said == _FREE:
            return _FREE
        return said + more if self._special is None or self._special(said + more) else _FREE

    def _over(self, place: _In, byte: int) -> bool:
        """Whether the value may be over with the mark that a byte completes."""
        if place.json is not None:
            return bool(place.json == "over")
        if self._fits is None or place.said == _FREE:
            return True
        return self._fits((place.said + bytes([byte]))[: -self._behind].decode("utf-8", "replace"))

    def _in_json(self, place: _In, after: int, byte: int) -> tuple[Any, int] | None:
        assert self.json is not None
        if place.json == "over":
            return place._replace(state=after), -1
        step = json_step(place.step or JSON_START, byte)
        inner = self.json.feed(self.json.start if place.json is None else place.json, bytes([byte]))
        if step is None or inner is None:
            return None
        if not inner.frames and inner.mode == "after":
            return _In(after, json="over"), -1
        return _In(after, json=inner, step=step), -1

    def key(self, place: _In) -> Hashable:
        """See `PartLeaf`."""
        if self.json is None or place.json is None or place.json == "over":
            return place
        return place._replace(json=self.json.key(place.json))

    def kind(self, place: _In) -> Hashable:
        """See `PartLeaf`."""
        if self.json is None or place.json is None or place.json == "over":
            return place
        return place._replace(json=self.json.kind(place.json))

    def closing(self, place: _In) -> bytes:
        """What brings nearer to the mark; nothing where it depends on more."""
        free = place.said == _FREE and place.json is None and place.length >= self._cap
        return self.text.ways_to(self._end)[place.state] if free else b""

    def kinds(
        self, place: _In, tokens: Sequence[bytes], data: TokenBytes, ids: Sequence[int]
    ) -> Iterator[Any]:
        """The kinds of places after tokens; None for those that have to be fed."""
        reached = self.text.after_tokens(place.state, data).tolist()
        if place.json is not None:
            yield from self._json_kinds(place, tokens, data, ids, reached)
            return
        first, known = place == self.start, dict[tuple[int, int, bytes], _In]()
        others = b"[{" if first and self.json is not None else b""
        others += b"-0123456789" if self._numbers and first else b""
        for token in ids:
            after, said = reached[token], tokens[token]
            if after < 0 or place.step is not None or said[0] in others:
                yield None
                continue
            key = after, min(place.length + data.characters[token], self._cap), self._kept(place.said, said)
            if key not in known:
                known[key] = _In(*key)
            yield known[key]

    def _json_kinds(
        self,
        place: _In,
        tokens: Sequence[bytes],
        data: TokenBytes,
        ids: Sequence[int],
        reached: Sequence[int],
    ) -> Iterator[Any]:
        """Within a string of JSON plain characters are only counted."""
        within = (
            None if self.json is None or place.json == "over" else self.json.after_characters(place.json, 0)
        )
        known: dict[tuple[int, int], _In] = {}
        for token in ids:
            key = reached[token], data.plain[token]
            if within is None or min(key) < 0:
                yield None
                continue
            if key not in known:
                assert self.json is not None
                after = self.json.after_characters(place.json, key[1])
                known[key] = _In(key[0], json=self.json.kind(after), step=place.step)  # type: ignore[arg-type]
            yield known[key]


def value_grammar(
    name: str,
    schema: tuple[Any, Any],
    enforced: tuple[Any, Any],
    types: Sequence[str],
    ends: ValueEnds,
    kinds: Callable[[str], bool] | None = None,
) -> ValueGrammar | None:
    """The values of a schema, by a name for its rules; None if there are none.

    schema: with the root of its references. enforced: the same as the library takes them. types: as what a text is
    read. kinds: which of them may come here. Errors: `ShapeError` for patterns that cannot be enforced.
    """
    made = _Value(name, types, ends)
    for branch in spread_kinds(branches_of(*schema), types):
        if kinds is None or kinds(branch.kind):
            made.add(branch)
    taken = [
        _merged(branch.kind, branch.nodes)
        for branch in spread_kinds(branches_of(*enforced), types)
        if branch.kind in ("array", "object") and (kinds is None or kinds(branch.kind))
    ]
    return made.made(schema[1], taken, enforced[1])


class SpreadKind(NamedTuple):
    """A `SchemaBranch` whose kind is known."""

    kind: str
    nodes: tuple[Mapping[str, Any], ...]


def spread_kinds(branches: Iterable[SchemaBranch], types: Sequence[str]) -> list[SpreadKind]:
    """Branches by kinds that can be read; what may be anything is a text, or what that is read as."""
    found: list[SpreadKind] = []
    for kind, nodes in branches:
        some = ["string", *(each for each in types if each != "string")] if kind is None else [kind]
        found += [SpreadKind(each, nodes) for each in some]
    return found


class _Value:
    """What is gathered of a value. texts: of each way what all must hold, and what must not."""

    def __init__(self, name: str, types: Sequence[str], ends: ValueEnds) -> None:
        self._name, self._types, self._ends = name, types, ends
        self._texts: list[tuple[list[str], list[str]]] = []
        self._json: list[Mapping[str, Any]] = []
        self._numbers: list[Mapping[str, Any]] = []
        self._words: list[str] = []
        self._strings = self._asked = False
        self._cap = 0

    def add(self, branch: SpreadKind) -> None:
        """One more way to be valid."""
        kind, nodes = branch
        values = named_values(nodes)
        if kind in ("array", "object"):
            self._json.append(_merged(kind, nodes))
        elif kind == "string":
            self._string(nodes, values)
        elif values is not None:
            self._literals([one for one in values if is_of(one, kind) and _bounded(one, nodes)])
        elif kind == "boolean":
            self._literals([True, False])
        elif kind == "null":
            self._literals([None])
        else:
            self._number(kind, nodes)

    def _literals(self, values: Iterable[Any]) -> None:
        """Some values as they stand, those that are read as themselves."""
        said = [json.dumps(one) for one in values]
        said = [one for one in said if reads_as_said(one, self._types)]
        self._words += said
        if said:
            self._texts.append((["|".join(map(re.escape, said))], []))

    def _string(self, nodes: Sequence[Mapping[str, Any]], values: list[Any] | None) -> None:
        beside: list[str] = []
        for node in nodes:
            if "pattern" in node:
                beside.append(searched_pattern(node["pattern"]))
            if "format" in node:
                beside += FORMAT_TEXTS[node["format"]]
            least, most = int(node.get("minLength", 0)), node.get("maxLength")
            if least or most is not None:
                beside.append(f"(?s:.{{{least},{'' if most is None else int(most)}}})")
                self._cap = max(self._cap, 1 + max(least, int(most or 0)))
            self._asked |= "pattern" in node or "format" in node
        if values is None:
            self._strings = True
            self._texts.append((beside or [_ANY], [_TAKEN[kind] for kind in self._types if kind in _TAKEN]))
            return
        said = [one for one in values if isinstance(one, str) and isinstance(read_as(one, self._types), str)]
        self._words += said
        if said:
            self._texts.append((["|".join(map(re.escape, said)), *beside], []))

    def _number(self, kind: str, nodes: Sequence[Mapping[str, Any]]) -> None:
        first = [each for each in self._types if each in ("integer", "number", "boolean")]
        floats = [each for each in first if each != "boolean"][:1] == ["number"]
        asked = {name for node in nodes for name in (*_BOUNDS, "multipleOf") if name in node}
        whole = WHOLE_IN_FLOATS if floats else WHOLE
        if kind == "integer" and "multipleOf" not in asked:
            found = whole_between(*_whole_bounds(nodes), in_floats=floats) if asked else whole
        else:
            found = None if asked else f"{whole}|{DECIMALS}"
        if found is not None:
            self._texts.append(([found], ["[01]"] if first[:1] == ["boolean"] else []))
        elif any(says_wide(node, several=len(nodes) > 1) for node in nodes):
            raise ShapeError(f"{wide_said()} cannot be enforced in tags; say less")
        elif asked:
            bounds = {"minimum": -_FLOATS, "maximum": _FLOATS}
            self._numbers.append(_merged(kind, [*nodes, bounds] if floats else nodes))

    def made(self, root: Any, taken: Sequence[Mapping[str, Any]], taken_root: Any) -> ValueGrammar | None:
        """What was added; lists and objects also as the library takes them."""
        name, lines, found = self._name, list[str](), list[str]()
        if self._texts:
            lines.append(f"{name.upper()}: {self._terminal()}")
            found.append(name.upper())
        # Where any string may come, the library would not tell such a number from one.
        numbers = [] if self._strings else self._numbers
        behind = json.dumps(self._ends.head + self._ends.mark, ensure_ascii=False)
        for part, schema in (("j", _any_of(taken, taken_root)), ("n", _any_of(numbers, {}))):
            if schema is not None:
                said = json.dumps({**schema, "x-guidance": _OPTIONS})
                lines.append(f"{name}{part}: %json {said}")
                found.append(f"{name}{part} {behind}")
        if not found:
            return None
        lines.append(f"{name}: " + " | ".join(found))
        return ValueGrammar(name, self._leaf(_any_of(self._json, root), numbers=bool(numbers)), lines)

    def _terminal(self) -> str:
        """All texts, with the mark behind them."""
        close, ends = self._ends.close, self._ends
        ways = []
        for holds, taken in self._texts:
            parts = [_slashed(f"(?:{one}){close}") for one in holds]
            ways.append(" & ".join([*parts, *(f"~{_slashed(f'(?:{one}){close}')}" for one in taken)]))
        never = [
            rf"{_ANY}(?:{re.escape(ends.mark)})(?s:.+)",
            *(rf"{_ANY}(?:{one}){_ANY}" for one in ends.never),
            *(rf"(?:{one}){_ANY}" for one in ends.first),
        ]
        if self._json:
            never.append(rf"{_BLANKS}[\[{{]{_ANY}")
        alternatives = " | ".join(f"({way})" for way in ways)
        return " & ".join([f"({alternatives})", *(f"~{_slashed(one)}" for one in never)])

    def _leaf(self, schema: Mapping[str, Any] | None, *, numbers: bool) -> PlainLeaf:
        ends = self._ends
        patterns = [*(rf"\A(?:{one})" for one in ends.first), *ends.never]
        whole = self._asked or not self._strings
        # The mark without what is written before it is none that may come.
        marks = dict.fromkeys([ends.close, re.escape(ends.mark)])
        return PlainLeaf(
            marked_text(*patterns, *marks),
            len(patterns),
            behind=len((ends.head + ends.mark).encode()),
            cap=self._cap,
            special=None if whole else self._special,
            numbers=numbers,
            json=None if schema is None else JsonPlaces(schema),
            fits=self._fits if numbers else None,
        )

    def _fits(self, said: str) -> bool:
        return said in self._words or reads_as_said(said, self._types)

    def _special(self, said: bytes) -> bool:
        """Whether it matters what a text is: it may still become one of those that are told apart from strings."""
        words = [*self._words, *(word for kind in self._types for word in _WORDS.get(kind, ()))]
        numbers = any(kind in ("integer", "number") for kind in self._types)
        if not words and not numbers and not self._json:
            return False
        try:
            text = said.decode().lstrip()
        except UnicodeDecodeError as error:
            # A character under way.
            return len(said) - error.start < 4 and error.end == len(said)
        core = text.rstrip()
        if core in ("", "+", "-"):
            return True
        behind = self._ends.head.lstrip() + self._ends.mark
        cut = core.find(behind[:1]) if behind[:1] in core else len(core)
        begun = core[:cut].rstrip().lower()
        if any(word.lower().startswith(begun) for word in words):
            return True
        return numbers and _BEGUN_NUMBER.fullmatch(begun) is not None


def reads_as_said(said: str, types: Sequence[str]) -> bool:
    """Whether a value in JSON's notation is read as that value."""
    value, read = json.loads(said), read_as(said, types)
    return isinstance(value, bool) == isinstance(read, bool) and type(read) is not str and bool(value == read)


def is_of(value: Any, kind: str) -> bool:
    """Whether a value is of a JSON type."""
    if isinstance(value, bool) or value is None:
        return kind == ("null" if value is None else "boolean")
    if isinstance(value, int | float):
        return kind == "number" or (kind == "integer" and float(value).is_integer())
    return kind == ("string" if isinstance(value, str) else "array" if isinstance(value, list) else "object")


def named_values(nodes: Iterable[Mapping[str, Any]]) -> list[Any] | None:
    """The values that all schemas name, if any names some."""
    found: list[Any] | None = None
    for node in nodes:
        for some in ([node["enum"]] if "enum" in node else []) + (
            [[node["const"]]] if "const" in node else []
        ):
            said = {json.dumps(one, sort_keys=True) for one in some}
            found = [
                one for one in (some if found is None else found) if json.dumps(one, sort_keys=True) in said
            ]
    return found


def _bounded(value: Any, nodes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a number is within all bounds; what is none is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    return all(
        value >= node.get("minimum", value)
        and value <= node.get("maximum", value)
        and value > node.get("exclusiveMinimum", value - 1)
        and value < node.get("exclusiveMaximum", value + 1)
        and ("multipleOf" not in node or (value / node["multipleOf"]).is_integer())
        for node in nodes
    )


def _whole_bounds(nodes: Iterable[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    """The least and the greatest whole number that all schemas let be."""
    least = [ceil(node["minimum"]) for node in nodes if "minimum" in node]
    least += [floor(node["exclusiveMinimum"]) + 1 for node in nodes if "exclusiveMinimum" in node]
    most = [floor(node["maximum"]) for node in nodes if "maximum" in node]
    most += [ceil(node["exclusiveMaximum"]) - 1 for node in nodes if "exclusiveMaximum" in node]
    return max(least, default=None), min(most, default=None)


def schema_of_kinds(found: Sequence[SpreadKind], root: Any) -> dict[str, Any] | None:
    """One schema for values of some branches, with what it refers to; None for none."""
    return _any_of([_merged(one.kind, one.nodes) for one in found], root)


def _merged(kind: str, nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Schemas that all stand for a value, as one."""
    nodes = [whole_values(dict(node), kind) for node in nodes]
    if len(nodes) <= 1:
        return {**(nodes[0] if nodes else {}), "type": kind}
    return {"type": kind, "allOf": nodes}


def _any_of(schemas: Sequence[Mapping[str, Any]], root: Any) -> dict[str, Any] | None:
    """One schema for any of some, with what they refer to; None for none."""
    if not schemas:
        return None
    found: dict[str, Any] = dict(schemas[0]) if len(schemas) == 1 else {"anyOf": list(schemas)}
    if "$ref" not in json.dumps(found):
        return found
    defined = {name: root[name] for name in ("$defs", "definitions") if name in root}
    rest = {name: root[name] for name in root if name not in defined}
    defined = {
        "$defs": {**defined.get("$defs", {}), _ROOT: rest},
        **{k: v for k, v in defined.items() if k != "$defs"},
    }
    moved: dict[str, Any] = _moved({**found, **defined})
    return moved


_ROOT = "nco_guard_root"


def _moved(value: Any) -> Any:
    """A schema in which references to the root lead to where that stands now."""
    if isinstance(value, list):
        return [_moved(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: _moved(one) for name, one in value.items()}
    reference = made.get("$ref")
    if isinstance(reference, str) and not reference.startswith(("#/$defs/", "#/definitions/")):
        made["$ref"] = f"#/$defs/{_ROOT}" + reference.removeprefix("#")
    return made


def _slashed(pattern: str) -> str:
    return f"/{in_lark(pattern)}/"
