"""Values that `+` joins, shown ahead of their end as far as that is certain.

What a value says is decided by the walker of whole values alone (`texts_of`, `Cleaner.field`). A *front* only proposes
what might be shown early; nothing is shown that, with what was shown before, holds a match, and the end is whatever of
the cleaned whole is not shown yet.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from nco_guard.errors import RedactionError
from nco_guard.values.blocks import is_piecemeal, role_of_key
from nco_guard.values.flows import TextFlow
from nco_guard.values.pieces import CleanerLike
from nco_guard.values.redacting import Searched
from nco_guard.values.roles import Role, fields_of
from nco_guard.values.texts import SEPARATORS, texts_of
from nco_guard.values.trees import Tree, is_read_alone, read_with_others

__all__ = ["NOTHING", "Joined", "front_of", "summed"]

_STEP = 256  # shown is looked at again once this part of it is new, so that all looks together are linear
_DEPTH = 8  # dictionaries within one another that are shown ahead of their end


class _Nothing:
    """No value."""


NOTHING: Final = _Nothing()


class Front(Protocol):
    """Proposes what of a growing value may be shown early."""

    def feed(self, piece: Any, whole: Any) -> Any:
        """What may come next, or NOTHING. `whole`: all pieces, this one too."""

    def finish(self) -> Mapping[Any, Any]:
        """What the front ends by itself: rests of values by key."""


def joins(value: Any) -> bool:
    """Whether a framework puts other pieces onto one like this by `+`."""
    fields = fields_of(type(value))
    return hasattr(type(value), "__add__") and (fields is None or fields.chunk is not None)


def summed(before: Any, part: Any) -> Any:
    """Two parts as frameworks join them; the second where they cannot be. Errors: none."""
    if before is NOTHING or part is NOTHING:
        return part if before is NOTHING else before
    try:
        return before + part
    except TypeError:
        return part


class Joined:
    """Pieces of any one value.

    Guarantee: what is shown, joined by `+`, holds no match at any moment, and at the end is `Cleaner.field` of all
    pieces joined, or `RedactionError` is raised. Cost: linear in what is shown.
    """

    def __init__(self, cleaner: CleanerLike, role: Role, front: Front | None) -> None:
        self._cleaner = cleaner
        self._role = role
        self._front = front
        self._waits = False  # for the end: more cannot be shown before
        self._whole: Any = NOTHING
        self._shown: Any = NOTHING
        self._pending: Any = NOTHING
        self._next: tuple[Any, Any] = (NOTHING, NOTHING)
        self._is_told = False

    def takes(self, piece: Any) -> bool:
        """Whether a piece goes on with this value."""
        if isinstance(piece, str) and isinstance(self._whole, str):
            return True
        if not (joins(piece) or joins(self._whole)) or _is_alone(piece) or _is_alone(self._whole):
            return False
        try:
            self._next = piece, self._whole + piece
        except Exception:
            return False  # for a framework too
        return True

    def feed(self, piece: Any) -> list[Any]:
        """Read on."""
        is_first = self._whole is NOTHING
        known, joined = self._next
        self._next = NOTHING, NOTHING
        if is_first:
            self._whole = piece
        else:
            self._whole = joined if known is piece else self._whole + piece
        if self._cleaner.action == "report":
            return [piece]
        if is_first and not joins(piece):
            # Nothing is put onto it, as far as can be told: a value of its own.
            self._shown = self._cleaner.field(piece, self._role)
            self._is_told = True
            return [self._shown]
        self._is_told = False
        if self._front is not None:
            self._pending = summed(self._pending, self._front.feed(piece, self._whole))
        return self._released()

    def finish(self) -> list[Any]:
        """The value is complete."""
        if self._is_told:
            return []
        final = self._cleaner.field(self._whole, self._role)
        if self._cleaner.action == "report":
            return []
        apart = self._apart()
        if self._shown is NOTHING and not apart:
            return [final]
        for rest in (_rest(self._shown, final, apart), final):
            total = summed(self._shown, rest)
            if _same(total, final, apart):
                if apart and (rules := self._rules(total)):
                    raise RedactionError(rules)
                return [] if rest is NOTHING else [rest]
        # What was shown cannot be taken back.
        raise RedactionError(self._rules(self._whole))

    def _apart(self) -> dict[Any, Any]:
        """The rests of what the front ends by itself."""
        rests = {} if self._front is None else self._front.finish()
        pending = self._pending if isinstance(self._pending, dict) else {}
        return {key: summed(pending.get(key, NOTHING), rest) for key, rest in rests.items()}

    def _released(self) -> list[Any]:
        """What is pending, if it may stand beside what was shown."""
        ready = self._pending
        if ready is NOTHING or self._waits or _size(ready) * _STEP < _size(self._shown):
            return []
        total = summed(self._shown, ready)
        if self._rules(total):
            self._waits = True
            return []
        self._shown = copy.copy(total)
        self._pending = NOTHING
        return [ready]

    def _rules(self, value: Any) -> tuple[str, ...]:
        return self._cleaner.finder.rules(texts_of(value, self._role))


def _is_alone(value: Any) -> bool:
    """Whether a framework's own type says that its objects are no pieces."""
    fields = fields_of(type(value))
    return fields is not None and fields.chunk is None


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return len(value) if isinstance(value, (str, list)) else 1


def _rest(shown: Any, final: Any, apart: Mapping[Any, Any]) -> Any:
    """What is to come after what was shown."""
    if shown is NOTHING:
        return final if not apart else _entries(final, [*_left_of({}, final, apart)])
    if isinstance(final, str) and isinstance(shown, str) and str.startswith(final, shown):
        return final[len(shown) :] or NOTHING
    if isinstance(final, list) and isinstance(shown, list) and _same(shown, final[: len(shown)]):
        return final[len(shown) :] or NOTHING
    if isinstance(final, dict) and isinstance(shown, dict):
        return _entries(final, [*_left_of(shown, final, apart)])
    return final


def _left_of(
    shown: Mapping[Any, Any], final: Mapping[Any, Any], apart: Mapping[Any, Any]
) -> Iterator[tuple[Any, Any]]:
    for key, value in final.items():
        if key in apart:
            yield key, apart[key]
        elif key not in shown:
            yield key, value
        else:
            yield key, _rest(shown[key], value, {})


def _entries(like: Any, entries: list[tuple[Any, Any]]) -> Any:
    """A dictionary of the same class with those of the entries that are something."""
    given = [(key, value) for key, value in entries if value is not NOTHING]
    if not given:
        return NOTHING
    made = type(like)()
    for key, value in given:
        made[key] = value
    return made


def _same(one: Any, other: Any, apart: Mapping[Any, Any] | None = None) -> bool:
    """Whether two values are equal, apart from entries that are ended by themselves."""
    if one is other:
        return True
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            key in (apart or {}) or _same(value, other[key]) for key, value in one.items()
        )
    try:
        return bool(one == other)
    except Exception:  # as arrays do, which have no single answer
        return False


# -- fronts ----------------------------------------------------------------------------------------------------


Chunks = Callable[[Any], Any]
"""A piece -> what streams objects like it (`feed`, `finish`), or None if it is no such object."""


def front_of(cleaner: CleanerLike, piece: Any, role: Role, chunks: Chunks, depth: int = 0) -> Front | None:
    """What proposes parts of values like this one; None: all of it waits for its end."""
    if role not in (Role.VALUE, Role.TEXT, Role.BLOCKS):
        return None
    if _is_text(piece):
        return _TextFront(cleaner)
    if type(piece) is list:
        return _ListFront(cleaner, role)
    if isinstance(piece, dict) and joins(piece) and depth < _DEPTH:
        return _DictFront(cleaner, chunks, depth)
    return None


def _is_text(value: Any) -> bool:
    """Whether a value is a text, which `+` puts after another as it is."""
    return isinstance(value, str) and type(value).__add__ is str.__add__


class _TextFront:
    """A text: as far as no match can begin in it."""

    def __init__(self, cleaner: CleanerLike) -> None:
        self._flow = TextFlow(cleaner.finder, cleaner.action, cleaner.where)
        self._is_over = False

    def feed(self, piece: Any, whole: Any) -> Any:
        if self._is_over or not _is_text(piece):
            self._is_over = True
            return NOTHING
        try:
            return "".join(part.text for part in self._flow.feed(str.__str__(piece))) or NOTHING
        except RedactionError:
            self._is_over = True
            return NOTHING

    def finish(self) -> Mapping[Any, Any]:
        return {}


class _Line:
    """Texts that are read as one, joined in every way that a reader may see."""

    def __init__(self, cleaner: CleanerLike) -> None:
        self._flows = [
            (TextFlow(cleaner.finder, "redact", cleaner.where), separator) for separator in SEPARATORS
        ]
        self._ends = [0] * len(SEPARATORS)
        self._is_begun = False
        self._is_lost = False

    def feed(self, text: str) -> tuple[int, ...]:
        """Read on; where the text ends in each flow."""
        for index, (flow, separator) in enumerate(self._flows):
            text_here = separator + text if self._is_begun else text
            self._ends[index] += len(text_here)
            try:
                if not self._is_lost:
                    flow.feed(text_here)
            except RedactionError:
                self._is_lost = True
        self._is_begun = True
        return tuple(self._ends)

    def is_clear(self, ends: tuple[int, ...]) -> bool:
        """Whether no match touches what comes before these places, however the text goes on."""
        return not self._is_lost and all(
            flow.clear >= end for (flow, _), end in zip(self._flows, ends, strict=True)
        )


class _ListFront:
    """Lists: elements in which nothing is found, as far as no match can begin in texts that are read together."""

    def __init__(self, cleaner: CleanerLike, role: Role) -> None:
        self._cleaner = cleaner
        self._role = role
        self._lines: dict[Any, _Line] = {}
        self._waiting: list[tuple[Any, list[tuple[_Line, tuple[int, ...]]]]] = []
        self._are_alone = False
        self._is_over = False

    def feed(self, piece: Any, whole: Any) -> Any:
        self._is_over = self._is_over or type(piece) is not list
        if not self._is_over:
            for element in piece:
                self._take(element)
        ready: list[Any] = []
        while self._waiting and (
            self._are_alone or all(line.is_clear(ends) for line, ends in self._waiting[0][1])
        ):
            ready.append(self._waiting.pop(0)[0])
        return ready or NOTHING

    def _take(self, element: Any) -> None:
        if self._is_over or not Searched(Tree([element], self._role), self._cleaner.finder).is_clean:
            self._is_over = True  # what comes after it may only come after it
            return
        self._are_alone = self._are_alone or is_read_alone(element, self._role)
        lines: list[tuple[_Line, tuple[int, ...]]] = []
        if not self._are_alone:
            for kind, text in read_with_others(element, self._role):
                line = self._lines.setdefault(kind, _Line(self._cleaner))
                lines.append((line, line.feed(text)))
        self._waiting.append((element, lines))

    def finish(self) -> Mapping[Any, Any]:
        return {}


class _DictFront:
    """Dictionaries: what stands under keys that match nothing, each as its own front says."""

    def __init__(self, cleaner: CleanerLike, chunks: Chunks, depth: int) -> None:
        self._cleaner = cleaner
        self._chunks = chunks
        self._depth = depth
        self._below: dict[Any, Front | None] = {}
        self._streams: dict[Any, Any] = {}

    def feed(self, piece: Any, whole: Any) -> Any:
        if not isinstance(piece, dict) or not isinstance(whole, dict):
            return NOTHING
        return _entries(piece, [(key, self._part(key, part, whole)) for key, part in piece.items()])

    def _part(self, key: Any, part: Any, whole: Mapping[Any, Any]) -> Any:
        if part is None:
            return NOTHING
        if key in self._streams or key not in self._below:
            stream = self._streams.get(key) or self._begun(key, part)
            if stream is not None:
                return _all(stream.feed(part)) if stream.takes(part) else NOTHING
        if not self._is_value(key, whole):
            self._below[key] = None
        front = self._below[key]
        return NOTHING if front is None else front.feed(part, whole.get(key))

    def _begun(self, key: Any, part: Any) -> Any:
        self._below[key] = None
        if self._cleaner.finder.rules(texts_of(key)):
            return None
        stream = self._chunks(part) if self._depth == 0 else None
        if stream is not None:
            self._streams[key] = stream
        else:
            self._below[key] = front_of(self._cleaner, part, Role.VALUE, self._chunks, self._depth + 1)
        return stream

    @staticmethod
    def _is_value(key: Any, whole: Mapping[Any, Any]) -> bool:
        """Whether what stands under a key is read like any other value, in this dictionary."""
        value = whole.get(key)
        return role_of_key(whole, key, Role.VALUE) is Role.VALUE and not is_piecemeal(key, value)

    def finish(self) -> Mapping[Any, Any]:
        return {key: _all(stream.finish()) for key, stream in self._streams.items()}


def _all(pieces: list[Any]) -> Any:
    total: Any = NOTHING
    for piece in pieces:
        total = summed(total, piece)
    return total
