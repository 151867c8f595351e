"""Where a JSON text stands in its schema: two texts at one place can be continued by the same texts.

The place is: the containers that are open, each with what its schema still asks of it (the last key, the number of
items where that counts) and the keys in it that the schema does not name, and what is being written now. What a
finished value was does not matter; the content of a string matters where its schema asks for more than a length. In
objects for which several schemas stand open, all that was written in them counts.

Whoever reads JSON keeps the last value of a key that stands twice. The library lets that be written; here it is not.
Numbers that the library does not hold exactly (`shapes.exact_numbers`) are followed here.

Cost: a few microseconds a byte, next to nothing for the content of strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from nco_guard.shapes.exact_numbers import NumberSets, is_one, may_begin, numbers_of, wide_numbers
from nco_guard.shapes.key_names import KeyNames, key_in_json
from nco_guard.shapes.keywords import asks_itself, schema_parts
from nco_guard.shapes.rests import JsonRests

__all__ = ["JsonPlaces"]

Node = Mapping[str, Any]

_OF_STRINGS = ("minLength", "maxLength")
_OF_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_OF_ARRAYS = ("items", "prefixItems", "minItems", "maxItems")
_OF_OBJECTS = ("properties", "required", "additionalProperties", "minProperties", "maxProperties")
_FREE_OF = {
    "string": {*_OF_STRINGS, *_OF_NUMBERS, *_OF_ARRAYS, *_OF_OBJECTS},
    "number": {*_OF_STRINGS, *_OF_ARRAYS, *_OF_OBJECTS, "pattern", "format"},
    "array": {*_OF_STRINGS, *_OF_NUMBERS, *_OF_ARRAYS, *_OF_OBJECTS, "pattern", "format"},
    "object": {*_OF_STRINGS, *_OF_NUMBERS, *_OF_ARRAYS, *_OF_OBJECTS, "pattern", "format"},
}
# What is known of schemas of strings, their patterns and formats read.
_ASKED = {*_FREE_OF["string"], "type", "pattern", "format"}
# In place of all keys that a schema does not name, and of none yet: halves of surrogate pairs, which no key holds.
_FURTHER, _NO_KEY = "\udfff", "\udffe"
# Characters under way: 1 to 3 bytes are still to come; 4 to 7 where the next one is not free.
_LEADS = {0xE0: 4, 0xED: 5, 0xF0: 6, 0xF4: 7}
_LEFT_AFTER_LEAD = {4: 1, 5: 1, 6: 2, 7: 2}
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]*)?")


class _Frame(NamedTuple):
    """An open container.

    nodes: which schemas stand for it; last: its last key, or how many items it has; written: keys in it that the schema
    does not name, all of them where it is not known; further: how many these are, as far as it matters.
    """

    kind: str
    nodes: int
    last: str | int
    written: frozenset[str] = frozenset()
    further: int = 0


class _Json(NamedTuple):
    """mode: what is expected, or being written:

    "value", "first" (a value or the end of an array), "key" (one, or the end of an object), "next key", "colon",
    "after" (a value); in "name" (a key), "string", "number", "word". nodes: the schemas of the value. tail: what was
    written of it, as far as that matters. length: characters of a string, where they count. escape, inside: of an
    escape, of a character. space: whether the last byte is one between. whole: all that was written in the outermost
    container in which that matters, which is number `depth` of those open.
    """

    frames: tuple[_Frame, ...]
    mode: str
    nodes: int
    tail: bytes = b""
    length: int = -1
    escape: bytes = b""
    inside: int = 0
    space: bool = False
    whole: bytes = b""
    depth: int = -1


def _admits(node: Node, kind: str) -> bool:
    types = node.get("type")
    if types is None:
        return True
    given = [types] if isinstance(types, str) else types
    return kind in given or (kind == "number" and "integer" in given)


class JsonPlaces:
    """Of a JSON Schema."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._wide = wide_numbers(schema) if isinstance(schema, Mapping) else {}
        self._sets: list[tuple[Node, ...]] = []
        self._exact: list[NumberSets | None] = []
        self._numbers: dict[object, int] = {}
        self._within: dict[tuple[int, str | int], int] = {}
        self._tails: dict[tuple[int, str], int] = {}
        self._free_digits: dict[int, bool] = {}
        self._names: dict[int, KeyNames] = {}
        self._rests = JsonRests()
        self.start = _Json((), "value", self._set([schema]))

    # -- schemas -----------------------------------------------------------------------------------------------

    def _set(self, schemas: list[Any]) -> int:
        nodes: dict[int, Node] = {}
        for schema in schemas:
            for node in self._alternatives(schema, set()):
                nodes[id(node)] = node
        wide = self._wide and not self._wide.keys().isdisjoint(nodes)
        exact = numbers_of({"allOf": schemas}, self._target) if wide else None
        key = tuple(nodes), exact
        if key not in self._numbers:
            self._numbers[key] = len(self._sets)
            self._sets.append(tuple(nodes.values()))
            self._exact.append(exact)
        return self._numbers[key]

    def _alternatives(self, schema: Any, seen: set[int]) -> Iterator[Node]:
        """The schemas that may stand for a value together or instead of one another, taken apart."""
        if schema is True:
            yield _ANYTHING
            return
        if not isinstance(schema, Mapping) or id(schema) in seen:
            return
        seen.add(id(schema))
        further = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
        if "$ref" in schema:
            further.append(self._target(schema["$ref"]))
        if not further or any(map(asks_itself, schema)):
            yield schema
        for each in further:
            yield from self._alternatives(each, seen)

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return _UNKNOWN
        found = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            else:
                return _UNKNOWN
        return found

    def _only(self, nodes: int, kind: str) -> Node | None:
        """The one schema that stands for values of a kind, if there is one and no other, and all of it is known."""
        admitting = [node for node in self._sets[nodes] if _admits(node, kind)]
        if len(admitting) != 1 or self._odd(admitting[0], kind):
            return None
        return admitting[0]

    def _odd(self, node: Node, kind: str) -> bool:
        """Whether a schema asks something of values of a kind by which what was written of them matters."""
        known = _FREE_OF[kind]
        return any(name not in known and name != "type" and asks_itself(name) for name in node)

    def _counted(self, nodes: int, kind: str) -> int:
        """How much of the content of a string or number matters: -1 all, 0 nothing, else so many characters."""
        key = (nodes, kind)
        if key not in self._tails:
            admitting = [node for node in self._sets[nodes] if _admits(node, kind)]
            exact = kind == "number" and self._exact[nodes] is not None
            if exact or not admitting or any(self._odd(node, kind) for node in admitting):
                self._tails[key] = -1
            else:
                lengths = [node[name] for node in admitting for name in _OF_STRINGS if name in node]
                self._tails[key] = 1 + max(map(int, lengths)) if kind == "string" and lengths else 0
        return self._tails[key]

    def _child(self, frame: _Frame, name: str | int) -> int:
        """The schemas of what stands under a key, or at a place."""
        key = (frame.nodes, name)
        if key not in self._within:
            kind = "object" if frame.kind == "{" else "array"
            node = self._only(frame.nodes, kind)
            if node is not None:
                self._within[key] = self._set([_under(node, name)])
            else:
                # Which of them it is, is not known; proposals are made of all.
                several = [_under(each, name) for each in self._sets[frame.nodes] if _admits(each, kind)]
                self._within[key] = self._set([True, *several, _UNKNOWN])
        return self._within[key]

    def _named(self, frame: _Frame, raw: bytes) -> _Frame | None:
        """An object with one key more; None for one that stands there, or could be taken for one of the schema's."""
        node, name = self._only(frame.nodes, "object"), str(json.loads(raw))
        position = self._named_in(frame.nodes).position
        if name in position:
            passed = frame.last in position and position[name] <= position[str(frame.last)]
            twice = passed or frame.last == _FURTHER or raw != key_in_json(name)
            return None if twice else frame._replace(last=name)
        if name in frame.written:
            return None
        last = name if node is None else _FURTHER
        counted = 0 if node is None else max(node.get("minProperties", -1), node.get("maxProperties", -1)) + 1
        count = min(frame.further + 1, int(counted))
        return frame._replace(last=last, written=frame.written | {name}, further=count)

    def _named_in(self, nodes: int) -> KeyNames:
        """What the one schema names that stands for an object; nothing where several do."""
        if nodes not in self._names:
            self._names[nodes] = KeyNames(self._only(nodes, "object"))
        return self._names[nodes]

    def _wanting(self, frame: _Frame, more: int) -> bool:
        """Whether more keys than so many must still come in an object."""
        node = self._only(frame.nodes, "object") if frame.kind == "{" else None
        return node is not None and frame.further + more < node.get("minProperties", 0) - len(
            self._named_in(frame.nodes).position
        )

    def _items(self, frame: _Frame) -> int:
        """The number of items after one more, as far as it matters."""
        node = self._only(frame.nodes, "array") or {}
        counts = [node.get("minItems", 0), node.get("maxItems", 0), len(node.get("prefixItems", ()))]
        return min(int(frame.last) + 1, 1 + max(map(int, counts)))

    def unfollowed(self) -> int | None:
        """A schema of numbers that are followed here and stands where they are not; its `id`."""
        done, waiting = set[int](), [self.start.nodes]
        while waiting:
            nodes = waiting.pop()
            if nodes in done:
                continue
            done.add(nodes)
            for kind, sign in (("object", "{"), ("array", "[")):
                node = self._only(nodes, kind)
                if node is None:
                    admitting = [one for one in self._sets[nodes] if _admits(one, kind)]
                    found = next((each for one in admitting for each in self._wide_below(one)), None)
                    if found is not None:
                        return found
                    continue
                names = [*node.get("properties", {}), *node.get("required", ()), _FURTHER]
                inner = names if sign == "{" else [*range(len(node.get("prefixItems", ())) + 1)]
                waiting += [self._child(_Frame(sign, nodes, _NO_KEY), name) for name in inner]
        return None

    def _wide_below(self, schema: Any) -> Iterator[int]:
        waiting, seen = [schema], set[int]()
        while waiting:
            node = waiting.pop()
            if not isinstance(node, Mapping) or id(node) in seen:
                continue
            seen.add(id(node))
            if node is not schema and id(node) in self._wide:
                yield id(node)
            waiting += [inner for _, inner, _ in schema_parts(node)]
            if "$ref" in node:
                waiting.append(self._target(node["$ref"]))

    # -- bytes -------------------------------------------------------------------------------------------------

    def key(self, place: _Json) -> Hashable:
        """See `Places`."""
        if place.depth >= 0:
            return place.frames[: place.depth], place.whole
        return place

    def kind(self, place: _Json) -> Hashable:
        """See `Places`: of keys that were written matters which of them the one under way may still become."""
        if place.depth >= 0:
            return self.key(place)
        frames = [
            frame._replace(written=frozenset()) if frame.written and not self._wanting(frame, 0) else frame
            for frame in place.frames
        ]
        if place.mode == "next key":
            # Another key must come, whatever stands there.
            frames[-1] = place.frames[-1]
        elif place.mode == "name":
            frames[-1] = place.frames[-1]
            if not self._wanting(frames[-1], 1):
                tail, left = self._open_name(place)
                written = frozenset(left) & frames[-1].written
                frames[-1] = frames[-1]._replace(written=written)
                place = place._replace(tail=tail)
        return place._replace(frames=tuple(frames))

    def akin(self, place: _Json) -> Hashable:
        """See `Places`: how many items and characters there are does not matter once enough are."""
        kind = self.kind(place)
        if not isinstance(kind, _Json):
            return kind
        frames = [
            frame._replace(last=min(int(frame.last), self._items_needed(frame)))
            if frame.kind == "["
            else frame
            for frame in kind.frames
        ]
        needed = 0
        if kind.mode == "string" and kind.length > 0:
            needed = max((int(node.get("minLength", 0)) for node in self._of_strings(kind)), default=0)
        return kind._replace(frames=tuple(frames), length=min(kind.length, needed))

    def _items_needed(self, frame: _Frame) -> int:
        node = self._only(frame.nodes, "array") or {}
        return max(int(node.get("minItems", 0)), len(node.get("prefixItems", ())))

    def plain(self, place: _Json, way: bytes) -> bool:
        """See `Places`: it opens no key in an object that is open already, if that has any of its own."""
        if place.depth >= 0:
            return True
        open_ = len(place.frames)
        for byte in way:
            before, after = place, self._step(place, byte)
            if after is None:
                return False
            place = after
            if place.mode == "name" != before.mode and len(place.frames) <= open_:
                node = self._only(place.frames[-1].nodes, "object") or {}
                if node.get("additionalProperties", True) is not False:
                    return False
        return True

    def _open_name(self, place: _Json) -> tuple[bytes, list[str]]:
        """A key under way as far as it matters, and the keys that it may become but must not."""
        frame, tail = place.frames[-1], place.tail
        others = [name for name in frame.written if key_in_json(name).startswith(tail)]
        left = [*self._named_in(frame.nodes).begun(tail), *others]
        return (tail if left else b"?"), left

    def after_others(self, place: _Json) -> tuple[Hashable, list[bytes]] | None:
        """See `Places`."""
        if place.mode != "name" or place.depth >= 0 or place.escape or place.inside:
            return None
        if self._wanting(place.frames[-1], 1):
            return None
        other = self.kind(place)
        assert isinstance(other, _Json)
        frame = other.frames[-1]._replace(written=frozenset())
        other = other._replace(frames=(*other.frames[:-1], frame), tail=b"?")
        return other, [key_in_json(name)[len(place.tail) : -1] for name in self._open_name(place)[1]]

    def toward(self, place: _Json) -> Iterable[bytes]:
        """See `Places`."""
        if place.escape or place.inside:
            return ()
        if place.mode in ("value", "first", "number"):
            return self._rests.of_number(self._sets[place.nodes], place.tail)
        if place.mode == "name":
            return self._names_toward(place)
        if place.mode != "string":
            return ()
        admitting = self._of_strings(place)
        length = -1 if self._counted(place.nodes, "string") < 0 else place.length
        return map(_ended, self._rests.of_string(place.nodes, admitting, place.tail, length))

    def _names_toward(self, place: _Json) -> Iterator[bytes]:
        """The key that must come next, and those that schemas name by patterns."""
        frame = place.frames[-1]
        needed = self._named_in(frame.nodes).required_after(str(frame.last))
        if needed is not None and key_in_json(needed).startswith(place.tail):
            yield key_in_json(needed)[len(place.tail) :]
        yield from map(_ended, self._rests.of_name(frame.nodes, self._sets[frame.nodes], place.tail))

    def _of_strings(self, place: _Json) -> list[Node]:
        return [node for node in self._sets[place.nodes] if _admits(node, "string")]

    def alike(self, place: _Json) -> Hashable:
        """See `Places`: of the content of a string, what its patterns, formats and lengths say of it."""
        if place.mode != "string" or place.depth >= 0 or not place.tail:
            return self.kind(place)
        if any(name not in _ASKED and asks_itself(name) for node in self._of_strings(place) for name in node):
            return self.kind(place)
        whole = place.tail.removesuffix(place.escape).decode(errors="ignore").encode()
        stands = self._rests.stands(place.nodes, self._of_strings(place), whole)
        return place._replace(tail=b""), stands

    def after_characters(self, place: _Json, count: int) -> _Json | None:
        """See `Places`."""
        if place.mode != "string" or place.depth >= 0 or place.escape or place.inside:
            return None
        matters = self._counted(place.nodes, "string")
        if matters < 0:
            return None
        return place._replace(length=min(place.length + count, matters))

    def feed(self, place: _Json, data: bytes) -> _Json | None:
        """See `Places`."""
        for byte in data:
            whole = place.depth
            after = self._step(place, byte)
            if after is None:
                return None
            place = after
            if place.depth >= 0 and (whole >= 0 or len(place.whole) == 0):
                place = place._replace(whole=place.whole + bytes([byte]))
        return place

    def _step(self, place: _Json, byte: int) -> _Json | None:
        mode = place.mode
        if mode == "string":
            return self._in_string(place, byte)
        if mode == "name":
            return self._in_name(place, byte)
        if mode in ("number", "word"):
            known = self._in_scalar(place, byte)
            if known is not None:
                return self._goes_on(known)
            if not self.may_end(place):
                return None
            place = self._value_over(place)
        if byte in b" \t\n\r":
            return place._replace(space=True)
        place = place._replace(space=False)
        if byte in b"}]":
            return self._closed(place)
        if mode in ("key", "next key"):
            return place._replace(mode="name", tail=b'"')
        if mode == "colon":
            return place._replace(mode="value", tail=b"")
        if byte == 0x2C:
            frame = place.frames[-1]
            if frame.kind == "{":
                return place._replace(mode="next key")
            return place._replace(mode="value", nodes=self._child(frame, int(frame.last)))
        return self._goes_on(self._begun(place, byte))

    def _goes_on(self, place: _Json) -> _Json | None:
        """A place, if a number that is being written there may become one that is let be."""
        exact = self._exact[place.nodes] if place.mode == "number" else None
        return place if exact is None or may_begin(exact, place.tail) else None

    def may_end(self, place: _Json) -> bool:
        """See `Places`."""
        exact = self._exact[place.nodes] if place.mode == "number" else None
        return exact is None or is_one(exact, place.tail)

    @property
    def watches(self) -> bool:
        """See `Places`."""
        return bool(self._wide)

    def _begun(self, place: _Json, byte: int) -> _Json:
        """The first byte of a value."""
        if byte == 0x22:
            matters = self._counted(place.nodes, "string")
            return place._replace(mode="string", tail=b'"' if matters < 0 else b"", length=0)
        if byte in b"{[":
            kind = chr(byte)
            frame = _Frame(kind, place.nodes, _NO_KEY if kind == "{" else 0)
            depth, whole = place.depth, place.whole
            if depth < 0 and self._only(place.nodes, "object" if kind == "{" else "array") is None:
                depth, whole = len(place.frames), b""
            mode, nodes = ("key", place.nodes) if kind == "{" else ("first", self._child(frame, 0))
            return place._replace(
                frames=(*place.frames, frame), mode=mode, nodes=nodes, depth=depth, whole=whole
            )
        mode = "number" if byte in b"-0123456789" else "word"
        return place._replace(mode=mode, tail=bytes([byte]))

    def _closed(self, place: _Json) -> _Json:
        frames = place.frames[:-1]
        inside = place.depth < len(frames)
        depth, whole = (place.depth, place.whole) if inside else (-1, b"")
        return self._value_over(place._replace(frames=frames, depth=depth, whole=whole))

    def _value_over(self, place: _Json) -> _Json:
        """A value is complete: an array has one item more."""
        frames = place.frames
        if frames and frames[-1].kind == "[":
            frames = (*frames[:-1], frames[-1]._replace(last=self._items(frames[-1])))
        nodes = frames[-1].nodes if frames else 0
        return _Json(frames, "after", nodes, whole=place.whole, depth=place.depth)

    def _in_scalar(self, place: _Json, byte: int) -> _Json | None:
        """A byte more of a number or word; None where it is over."""
        if place.mode == "word":
            return place._replace(tail=place.tail + bytes([byte])) if 0x61 <= byte <= 0x7A else None
        if byte not in b"+-.eE0123456789":
            return None
        tail = place.tail + bytes([byte])
        if self._digits_are_free(place.nodes, negative=tail[:1] == b"-"):
            tail = _in_short(tail)
        return place._replace(tail=tail)

    def _digits_are_free(self, nodes: int, *, negative: bool) -> bool:
        """Whether a number may have any digits: nothing is asked of it, or that it is not negative, and it is not."""
        if negative or self._counted(nodes, "number") == 0:
            return self._counted(nodes, "number") == 0
        if nodes not in self._free_digits:
            found = [node for node in self._sets[nodes] if _admits(node, "number")]
            met = bool(found) and all(_asks_no_digits(node) for node in found)
            self._free_digits[nodes] = met and self._exact[nodes] is None
        return self._free_digits[nodes]

    def _in_name(self, place: _Json, byte: int) -> _Json | None:
        tail = place.tail + bytes([byte])
        if byte == 0x22 and not place.escape:
            frame = self._named(place.frames[-1], tail)
            if frame is None:
                return None
            child = self._child(frame, str(frame.last))
            frames = (*place.frames[:-1], frame)
            return place._replace(frames=frames, mode="colon", tail=b"", nodes=child)
        if place.escape:
            escape = place.escape + bytes([byte])
            over = len(escape) == (6 if escape[1:2] == b"u" else 2)
            # A key is spelled in one way, so that it cannot stand twice in two.
            if escape not in _BEGUN_ESCAPES:
                return None
            return place._replace(tail=tail, escape=b"" if over else escape)
        if place.inside:
            return place._replace(tail=tail, inside=_LEFT_AFTER_LEAD.get(place.inside, place.inside - 1))
        if byte == 0x5C:
            return place._replace(tail=tail, escape=b"\\")
        inside = _LEADS.get(byte, 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3) if byte >= 0xC0 else 0
        return place._replace(tail=tail, inside=inside)

    def _in_string(self, place: _Json, byte: int) -> _Json:
        matters = self._counted(place.nodes, "string")
        tail = place.tail + bytes([byte]) if matters < 0 else b""
        more = min(place.length + 1, matters) if matters >= 0 else place.length
        if place.escape:
            escape = place.escape + bytes([byte])
            over = len(escape) == (6 if escape[1:2] == b"u" else 2)
            return place._replace(
                tail=tail, escape=b"" if over else escape, length=more if over else place.length
            )
        if place.inside:
            inside = _LEFT_AFTER_LEAD.get(place.inside, place.inside - 1)
            return place._replace(tail=tail, inside=inside, length=place.length if inside else more)
        if byte == 0x22:
            return self._value_over(place)
        if byte == 0x5C:
            return place._replace(tail=tail, escape=b"\\")
        if byte >= 0xC0:
            inside = _LEADS.get(byte, 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3)
            return place._replace(tail=tail, inside=inside)
        return place._replace(tail=tail, length=more)


def _under(node: Node, name: str | int) -> Any:
    """What a schema says of what stands under a key, or at a place."""
    if isinstance(name, str):
        properties = node.get("properties", {})
        return properties[name] if name in properties else node.get("additionalProperties", True)
    first = node.get("prefixItems", ())
    return first[name] if name < len(first) else node.get("items", True)


# The characters that have to be escaped, as `json` does it, and what these escapes begin with.
_BEGUN_ESCAPES = frozenset(
    key_in_json(chr(code))[1:end]
    for code in (*range(0x20), 0x22, 0x5C)
    for end in range(2, len(key_in_json(chr(code))))
)


def _ended(rest: str) -> bytes:
    return key_in_json(rest)[1:]


def _asks_no_digits(node: Node) -> bool:
    """Whether all numbers that are not negative are what a schema says of numbers."""
    asked = {name for name in node if name not in _FREE_OF["number"] and name != "type" and asks_itself(name)}
    return asked <= {"minimum"} and node.get("minimum", 0) <= 0


def _in_short(tail: bytes) -> bytes:
    """A number in which one digit stands for several, where no more than that matters."""
    match = _NUMBER.fullmatch(tail)
    if match is None:
        return tail
    sign = b"-" if tail[:1] == b"-" else b""
    whole = tail[len(sign) :]
    if match[2] is not None:
        return b"e" + match[2][1:2].strip(b"0123456789") + (b"9" if tail[-1:].isdigit() else b"")
    if match[1] is not None:
        return b"." if len(match[1]) == 1 else b".9"
    return sign + (b"9" if whole[:1] not in (b"0", b"") else whole)


_ANYTHING: Node = {}
_UNKNOWN: Node = {"unknown": True}
