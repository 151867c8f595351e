"""What knows where a text stands within a part of a reply that is no literal: text, keys, values in JSON, numbers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from nco_guard.automata.json_text import JSON_START, OPEN_NUMBERS, json_step
from nco_guard.shapes.marked import MarkedText
from nco_guard.shapes.places import JsonPlaces

__all__ = [
    "ClosedKeyLeaf",
    "JsonLeaf",
    "KeyLeaf",
    "NumberLeaf",
    "OpenKeyLeaf",
    "PartLeaf",
    "TextLeaf",
    "ValueLeaf",
]

_OF_KEYS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
# Before the one of the keys that were written whose value is under way.
_UNDER_WAY = b">"
_OF_NUMBERS = b"+-.eE0123456789"


class PartLeaf(Protocol):
    """What knows where a text stands within a part that is no literal."""

    start: Any

    def feed(self, place: Any, byte: int) -> tuple[Any, int] | None:
        """The place after a byte and which end it is (-1: none yet); None: it may not come."""

    def key(self, place: Any) -> Hashable:
        """Equal for places that can be continued by the same texts."""

    def kind(self, place: Any) -> Hashable:
        """As of `Places`."""


class KeyLeaf:
    """A key up to the mark behind it, which stands once in a call; of keys that are named somewhere else it is none."""

    def __init__(self, mark: str, others: Sequence[str]) -> None:
        self._mark, self._others = mark.encode(), {other.encode() for other in others}
        self.start = b""

    def feed(self, place: bytes, byte: int) -> tuple[Any, int] | None:
        """See `PartLeaf`; at the end the key in place of a place."""
        said = place + bytes([byte])
        behind = said.lstrip(_OF_KEYS)
        if not self._mark.startswith(behind):
            return None
        if behind != self._mark:
            return said, -1
        found = said[: -len(self._mark)]
        return None if found in self._others else (found, 0)

    @staticmethod
    def opened(keys: frozenset[bytes], key: bytes) -> frozenset[bytes]:
        """The keys that were written, with one more."""
        return keys | {key}

    def key(self, place: bytes) -> Hashable:
        """See `PartLeaf`."""
        return place

    kind = key


class TextLeaf:
    """Text up to the first of some marks; what is in none of `ends` may not come. kept: the text itself matters."""

    def __init__(self, text: MarkedText, ends: int, *, kept: bool = False) -> None:
        self.text, self.ends, self.kept = text, ends, kept
        self.start = (0, b"")

    def feed(self, place: tuple[int, bytes], byte: int) -> tuple[Any, int] | None:
        """See `PartLeaf`."""
        state, said = place
        after = self.text.step(state, byte)
        if after >= 0:
            return (after, said + bytes([byte]) if self.kept else b""), -1
        return (None, ~after) if ~after < self.ends else None

    def key(self, place: tuple[int, bytes]) -> Hashable:
        """See `PartLeaf`."""
        return place

    kind = key


class JsonLeaf:
    """An object or an array of a schema."""

    def __init__(self, schema: Any) -> None:
        self.places = JsonPlaces(schema)
        self.start = self.places.start

    def feed(self, place: Any, byte: int) -> tuple[Any, int] | None:
        """See `PartLeaf`."""
        after = self.places.feed(place, bytes([byte]))
        if after is None:
            return None
        return after, 0 if not after.frames and after.mode == "after" else -1

    def key(self, place: Any) -> Hashable:
        """See `PartLeaf`."""
        return self.places.key(place)

    def kind(self, place: Any) -> Hashable:
        """See `PartLeaf`."""
        return self.places.kind(place)


class ValueLeaf(JsonLeaf):
    """Any value of a schema, behind which something stands that is no part of it."""

    def feed(self, place: Any, byte: int) -> tuple[Any, int] | None:
        """See `PartLeaf`."""
        if place.mode == "number" and not place.frames and byte not in b"+-.eE0123456789":
            return None
        return super().feed(place, byte)

    def may_end(self, place: Any) -> bool:
        """Whether the value may be over before a further byte, as only numbers are."""
        return place.mode == "number" and not place.frames


class OpenKeyLeaf(KeyLeaf):
    """A key that is said again behind its value (`ClosedKeyLeaf`)."""

    @staticmethod
    def opened(keys: frozenset[bytes], key: bytes) -> frozenset[bytes]:
        """The keys that were written, with one whose value comes next."""
        return keys | {key, _UNDER_WAY + key}


class ClosedKeyLeaf:
    """The key that was opened, again, up to the mark behind it. A place: what of that is still to come."""

    start = b""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()

    def begun(self, keys: frozenset[bytes]) -> bytes:
        """What is to come, by the keys that were written."""
        return next(key for key in keys if key.startswith(_UNDER_WAY))[1:] + self._mark

    @staticmethod
    def closed(keys: frozenset[bytes]) -> frozenset[bytes]:
        """The keys that were written, none of which is under way."""
        return frozenset(key for key in keys if not key.startswith(_UNDER_WAY))

    def feed(self, place: bytes, byte: int) -> tuple[Any, int] | None:
        """See `PartLeaf`."""
        if place[0] != byte:
            return None
        return place[1:], -1 if len(place) > 1 else 0

    def key(self, place: bytes) -> Hashable:
        """See `PartLeaf`."""
        return place

    kind = key


class _InNumber(NamedTuple):
    json: Any
    step: tuple[str, int] = JSON_START


class NumberLeaf:
    """A number of a schema, written as it prints; what comes behind it is no part of it."""

    def __init__(self, schema: Any) -> None:
        self._places = JsonPlaces(schema)
        self.start = _InNumber(self._places.start)

    def feed(self, place: _InNumber, byte: int) -> tuple[Any, int] | None:
        """See `PartLeaf`."""
        step = json_step(place.step, byte) if byte in _OF_NUMBERS else None
        if step is None or step == JSON_START:
            return None
        inner = self._places.feed(place.json, bytes([byte]))
        return None if inner is None else (_InNumber(inner, step), -1)

    def may_end(self, place: _InNumber) -> bool:
        """Whether the number may be over before a further byte."""
        return place.step != JSON_START and place.step[0] not in OPEN_NUMBERS

    def key(self, place: _InNumber) -> Hashable:
        """See `PartLeaf`."""
        return place._replace(json=self._places.key(place.json))

    def kind(self, place: _InNumber) -> Hashable:
        """See `PartLeaf`."""
        return place._replace(json=self._places.kind(place.json))
