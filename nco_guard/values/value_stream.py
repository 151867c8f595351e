"""`ValueStream`: values that arrive in pieces, each part shown as soon as no match can begin in it any more."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Protocol

from nco_guard.copies import Begun
from nco_guard.errors import ClosedError, RedactionError
from nco_guard.values.flows import TextFlow
from nco_guard.values.joining import NOTHING, Joined, front_of, summed
from nco_guard.values.pieces import BlockFlow, CleanerLike
from nco_guard.values.roles import Fields, Role, fields_of
from nco_guard.values.shapes import copied
from nco_guard.values.texts import texts_of

__all__ = ["Parts", "ValueStream"]


class Parts(Protocol):
    """Pieces of one value in, pieces that may be shown out."""

    def takes(self, piece: Any) -> bool:
        """Whether a piece goes on with this value."""

    def feed(self, piece: Any) -> list[Any]:
        """Read on."""

    def finish(self) -> list[Any]:
        """The value is complete."""


class ValueStream(Begun):
    """Values that arrive in pieces; pieces that may be shown come out.

    Texts, registered types with a `chunk`, and everything else that `+` joins (lists, LangChain's `AddableDict`, bytes,
    tuples, numbers) are taken for pieces of one value. Texts, also those under keys of dictionaries that `+` joins, are
    held back from the first place at which a match began that could still be completed; elements of lists in which
    nothing is found as far as no match can begin in texts that are read together. Everything else that `+` joins comes
    when the value is over. What nothing is put onto is a value of its own, cleaned as it comes.

    Guarantee: the pieces shown, joined as the framework joins them, are `Cleaner.value` of all pieces joined; no text
    in them holds a match at any moment. Parts that only together make a match (`{"ssn": ...}`, `{...: 1234}`) cannot be
    replaced once one of them was shown: `RedactionError`, when the value is over. Errors: as `Cleaner`.

    Examples:
        >>> stream = Cleaner("pii").stream()
        >>> shown = [one for part in ("Write to jane.d", "oe@example.com, please.") for one in stream.feed(part)]
        >>> "".join(shown + stream.finish())
        'Write to [redacted], please.'
    """

    def __init__(self, cleaner: CleanerLike, role: Role = Role.VALUE) -> None:
        self._cleaner = cleaner
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
            self._parts = _parts(self._cleaner, piece, self._role)
        shown += self._parts.feed(piece)
        self._closed = False
        return shown

    def finish(self) -> list[Any]:
        """No more pieces come; the rest."""
        if self._closed:
            raise ClosedError("this stream is over; use a new one for another value")
        self._closed = True
        return [] if self._parts is None else self._parts.finish()


def _parts(cleaner: CleanerLike, piece: Any, role: Role) -> Parts:
    """How pieces like this one are joined."""
    if role in (Role.VALUE, Role.TEXT, Role.BLOCKS):
        if isinstance(piece, str):
            return _Text(cleaner)
        if (chunks := _chunks(cleaner, piece)) is not None:
            return chunks
    quiet = cleaner.unrecorded()
    return Joined(cleaner, role, front_of(quiet, piece, role, lambda part: _chunks(quiet, part)))


def _chunks(cleaner: CleanerLike, piece: Any) -> _Chunks | None:
    fields = fields_of(type(piece))
    return None if fields is None or fields.chunk is None else _Chunks(cleaner, fields)


class _Text:
    """Pieces of a text."""

    def __init__(self, cleaner: CleanerLike) -> None:
        self._cleaner = cleaner
        self._flow = TextFlow(cleaner.finder, cleaner.action, cleaner.where)
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
        return not self._cleaner.finder.rules(texts_of(piece))

    def finish(self) -> list[Any]:
        text = "".join(part.text for part in self._flow.finish())
        self._cleaner.recorded(self._flow)
        # Even nothing is an answer.
        return [text] if text or not self._shown else []


class _Chunks:
    """Objects that `+` joins: their texts flow, everything else is kept and comes last."""

    def __init__(self, cleaner: CleanerLike, fields: Fields) -> None:
        self._cleaner = cleaner
        self._fields = fields
        self._flowing = [n for n, role in fields.roles.items() if role in (Role.TEXT, Role.BLOCKS)]
        self._flows: dict[str, BlockFlow] = {}
        self._lists: set[str] = set()  # fields that have come as lists
        self._rest: Any = None
        self._bare: tuple[Any, Any] = (None, None)
        self._whole: Any = NOTHING
        self._shown: Any = NOTHING
        self._pending: list[Any] = []
        self._waits = False  # for the end: blocks make a match that what flows does not tell

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
        self._whole = summed(self._whole, piece)
        return self._released(self._pieces(piece, shown))

    def _released(self, ready: list[Any]) -> list[Any]:
        """What may be shown: blocks are looked at as they stand beside those that were shown."""
        if not self._lists or self._cleaner.action == "report":
            self._shown = reduce(summed, ready, self._shown)
            return ready
        self._pending += ready
        if self._waits or not self._pending:
            return []
        total = reduce(summed, self._pending, self._shown)
        if self._cleaner.finder.rules(texts_of(total)):
            self._waits = True
            return []
        self._shown, ready, self._pending = total, self._pending, []
        return ready

    def _flow(self, name: str) -> BlockFlow:
        if name not in self._flows:
            self._flows[name] = BlockFlow(self._cleaner)
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
            self._bare = bare, self._cleaner.value(bare)
        return [self._fields.chunk(self._bare[1], fields)]

    def finish(self) -> list[Any]:
        shown = {name: flow.finish() for name, flow in self._flows.items()}
        kept: dict[str, Any] = {}
        for name, blocks in self._flows.items():
            for flow in blocks.flows:
                self._cleaner.recorded(flow)
            if blocks.rest:
                kept[name] = [*(getattr(self._rest, name, None) or []), *self._joined(name, blocks.rest)]
        last = self._cleaner.value(copied(self._rest, kept) if kept else self._rest)
        pieces = [*self._pending, *self._pieces(self._rest, shown), last]
        if not self._lists or self._cleaner.action == "report":
            return pieces
        rules = self._cleaner.finder.rules(texts_of(reduce(summed, pieces, self._shown)))
        if rules or self._cleaner.action == "raise":
            # Blocks that do not flow come last, so that others may stand next to them than in the whole.
            final = self._cleaner.unrecorded().value(self._whole)
        if rules:
            if self._shown is not NOTHING:
                raise RedactionError(rules)  # what was shown cannot be taken back
            return [final]
        return pieces

    def _joined(self, name: str, blocks: list[Any]) -> list[Any]:
        """Blocks as `+` joins them: one of them may be the pieces of many that came with the same index."""
        assert self._fields.chunk is not None
        whole: Any = NOTHING
        for block in blocks:
            whole = summed(whole, self._fields.chunk(self._rest, {name: [block]}))
        joined: list[Any] = getattr(whole, name)
        return joined
