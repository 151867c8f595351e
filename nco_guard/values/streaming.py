"""`ValueStream`: values that arrive in pieces, each part shown as soon as no match can begin in it any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from nco_guard.errors import ClosedError, RedactionError, ViolationError
from nco_guard.values.cleaning import unlike
from nco_guard.values.flows import TextFlow
from nco_guard.values.pieces import BlockFlow, Room
from nco_guard.values.printing import printed_forms
from nco_guard.values.roles import Fields, Role, fields_of
from nco_guard.values.shapes import copied
from nco_guard.values.texts import texts_of
from nco_guard.values.trees import Tree

__all__ = ["Parts", "ValueStream"]


class Parts(Protocol):
    """Pieces of one value in, pieces that may be shown out."""

    def takes(self, piece: Any) -> bool:
        """Whether a piece goes on with this value."""

    def feed(self, piece: Any) -> list[Any]:
        """Read on."""

    def finish(self) -> list[Any]:
        """The value is complete."""


class ValueStream:
    """Values that arrive in pieces; pieces that may be shown come out.

    Texts, lists, dictionaries that `+` joins (LangChain's `AddableDict`), and registered types with a `chunk` are taken
    for pieces of one value: every text in them is held back from the first place at which a match began that could
    still be completed. Everything else is a value of its own, cleaned as it comes.

    Guarantee: the pieces shown, joined as the framework joins them, are `Cleaner.value` of all pieces joined; no text
    in them holds a match at any moment. Parts that only together make a match (`{"ssn": ...}`, `{...: 1234}`) cannot be
    replaced once one of them was shown: `RedactionError`. Errors: as `Cleaner`.
    """

    def __init__(self, room: Room, role: Role = Role.VALUE) -> None:
        self._room = room
        self._role = role
        self._parts: Parts | None = None
        self._closed = False

    def feed(self, piece: Any) -> list[Any]:
        """Read on; what may be shown now."""
        if self._closed:
            raise ClosedError("this stream is over; use a new one for another value")
        self._closed = True  # unless this succeeds
        shown: list[Any] = []
        if self._parts is not None and not self._parts.takes(piece):
            shown += self._parts.finish()
            self._parts = None
        if self._parts is None:
            self._parts = _parts(self._room, piece, self._role)
        shown += self._parts.feed(piece)
        self._closed = False
        return shown

    def finish(self) -> list[Any]:
        """No more pieces come; the rest."""
        if self._closed:
            raise ClosedError("this stream is over; use a new one for another value")
        self._closed = True
        return [] if self._parts is None else self._parts.finish()


def _parts(room: Room, piece: Any, role: Role) -> Parts:
    """How pieces like this one are joined."""
    if role in (Role.VALUE, Role.TEXT, Role.BLOCKS):
        if isinstance(piece, str):
            return _Text(room)
        if isinstance(piece, list):
            return _List(room, role)
        if isinstance(piece, dict) and hasattr(type(piece), "__add__"):
            return _Dictionary(room)
        fields = fields_of(type(piece))
        if fields is not None and fields.chunk is not None:
            return _Chunks(room, fields)
    return _Values(room, role)


class _Text:
    """Pieces of a text."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._flow = TextFlow(room.finder, room.action, room.where)
        self._shown = False

    def takes(self, piece: Any) -> bool:
        return isinstance(piece, str)

    def feed(self, piece: str) -> list[Any]:
        text = "".join(part.text for part in self._flow.feed(str(piece)))
        self._shown = self._shown or bool(text)
        return [piece if self._may_stay(piece, text) else text] if text else []

    def _may_stay(self, piece: str, shown: str) -> bool:
        """Whether a piece of a class derived from `str` is shown as it came: nothing of it waits, in it is nothing."""
        if type(piece) is str or not str.__eq__(piece, shown):
            return False
        return not self._room.finder.rules(texts_of(piece))

    def finish(self) -> list[Any]:
        text = "".join(part.text for part in self._flow.finish())
        self._room.recorded(self._flow)
        # Even nothing is an answer.
        return [text] if text or not self._shown else []


class _Values:
    """Values that are no pieces of one another."""

    def __init__(self, room: Room, role: Role) -> None:
        self._room = room
        self._role = role

    def takes(self, piece: Any) -> bool:
        return isinstance(_parts(self._room, piece, self._role), _Values)

    def feed(self, piece: Any) -> list[Any]:
        return [self._room.value(piece)]

    def finish(self) -> list[Any]:
        return []


class _List:
    """Lists that are put one after the other; blocks in them are read together."""

    def __init__(self, room: Room, role: Role) -> None:
        self._room = room
        self._blocks = BlockFlow(room, in_pieces=False, texts_flow=role is Role.BLOCKS)
        self._shown = False
        self._kind: type = list

    def takes(self, piece: Any) -> bool:
        return isinstance(piece, list)

    def feed(self, piece: list[Any]) -> list[Any]:
        self._kind = type(piece)
        return self._given(self._blocks.feed(piece))

    def finish(self) -> list[Any]:
        shown = self._given(self._blocks.finish())
        for flow in self._blocks.flows:
            self._room.recorded(flow)
        if not shown and not self._shown:
            return [self._kind()]
        return shown

    def _given(self, shown: list[Any]) -> list[Any]:
        self._shown = self._shown or bool(shown)
        return [self._kind(shown)] if shown else []


class _Dictionary:
    """Dictionaries that `+` joins: what stands under one key is joined in turn."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._below: dict[Any, Parts] = {}
        self._keys: dict[Any, Any] = {}
        self._shown: dict[Any, Any] = {}
        self._kind: type = dict

    def takes(self, piece: Any) -> bool:
        return isinstance(piece, dict) and hasattr(type(piece), "__add__")

    def feed(self, piece: Mapping[Any, Any]) -> list[Any]:
        self._kind = type(piece)
        shown: list[tuple[Any, Any]] = []
        for key, part in piece.items():
            parts = self._below.get(key)
            if part is None and parts is not None:
                continue  # which adds nothing
            if parts is not None and not parts.takes(part):
                shown += [(key, one) for one in parts.finish()]
                parts = None
            if parts is None:
                parts = self._below[key] = _parts(self._room, part, Role.VALUE)
            shown += [(key, one) for one in parts.feed(part)]
        return self._given(shown)

    def finish(self) -> list[Any]:
        return self._given([(key, one) for key, parts in self._below.items() for one in parts.finish()])

    def _given(self, shown: list[tuple[Any, Any]]) -> list[Any]:
        """As few dictionaries as hold all of it."""
        found: list[dict[Any, Any]] = []
        for key, part in shown:
            named = self._key(key)
            place = next((one for one in found if named not in one), None)
            if place is None:
                place = self._kind()
                found.append(place)
            place[named] = part
            self._shown[named] = _sum(self._shown.get(named), part)
        if found:
            self._check()
        return found

    def _key(self, key: Any) -> Any:
        if key not in self._keys:
            new = self._room.value(key)
            self._keys[key] = new if new is key else unlike(new, {*self._keys.values()}, self._room.finder)
        return self._keys[key]

    def _check(self) -> None:
        """What was shown under several keys may make no match together."""
        if len(self._shown) < 2 or self._room.action == "report":
            return
        finder = self._room.finder
        rules = finder.rules(printed_forms(Tree(self._shown)))
        if rules:
            raise (
                ViolationError(rules, self._room.where)
                if self._room.action == "raise"
                else RedactionError(rules)
            )


class _Chunks:
    """Objects that `+` joins: their texts flow, everything else is kept and comes last."""

    def __init__(self, room: Room, fields: Fields) -> None:
        self._room = room
        self._fields = fields
        self._flowing = [n for n, role in fields.roles.items() if role in (Role.TEXT, Role.BLOCKS)]
        self._flows: dict[str, BlockFlow] = {}
        self._lists: set[str] = set()  # fields that have come as lists
        self._rest: Any = None
        self._bare: tuple[Any, Any] = (None, None)

    def takes(self, piece: Any) -> bool:
        fields = fields_of(type(piece))
        return fields is not None and fields.chunk is not None

    def feed(self, piece: Any) -> list[Any]:
        shown: dict[str, list[Any]] = {}
        emptied: dict[str, Any] = {}
        for name in self._flowing:
            given = getattr(piece, name, None)
            if isinstance(given, list):
                self._lists.add(name)
            if given and isinstance(given, (str, list)):
                shown[name] = self._flow(name).feed([given] if isinstance(given, str) else given)
                emptied[name] = "" if isinstance(given, str) and name not in self._lists else []
        rest = copied(piece, emptied) if emptied else piece
        self._rest = rest if self._rest is None else self._rest + rest
        return self._pieces(piece, shown)

    def _flow(self, name: str) -> BlockFlow:
        if name not in self._flows:
            self._flows[name] = BlockFlow(self._room, in_pieces=True)
        return self._flows[name]

    def _pieces(self, piece: Any, shown: Mapping[str, list[Any]]) -> list[Any]:
        fields = {
            name: parts if name in self._lists else "".join(parts) for name, parts in shown.items() if parts
        }
        if not fields:
            return []
        assert self._fields.chunk is not None
        bare = self._fields.chunk(piece, dict.fromkeys(fields, ""))
        if bare != self._bare[0]:
            self._bare = bare, self._room.value(bare)
        return [self._fields.chunk(self._bare[1], fields)]

    def finish(self) -> list[Any]:
        shown = {name: flow.finish() for name, flow in self._flows.items()}
        kept: dict[str, Any] = {}
        for name, blocks in self._flows.items():
            for flow in blocks.flows:
                self._room.recorded(flow)
            if blocks.rest:
                kept[name] = [*(getattr(self._rest, name, None) or []), *self._joined(name, blocks.rest)]
        pieces = self._pieces(self._rest, shown)
        return [*pieces, self._room.value(copied(self._rest, kept) if kept else self._rest)]

    def _joined(self, name: str, blocks: list[Any]) -> list[Any]:
        """Blocks as `+` joins them: one of them may be the pieces of many that came with the same index."""
        assert self._fields.chunk is not None
        whole = None
        for block in blocks:
            whole = _sum(whole, self._fields.chunk(self._rest, {name: [block]}))
        joined: list[Any] = getattr(whole, name)
        return joined


def _sum(before: Any, part: Any) -> Any:
    if before is None:
        return part
    try:
        return before + part
    except TypeError:
        return part
