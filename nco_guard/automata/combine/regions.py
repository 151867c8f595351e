"""Replies that marks cut into fields (content, reasoning, calls of tools), and automata that watch the fields.

A reply is one text, and it is shown as several: what stands between `<think>` and `</think>` is reasoning, between
`<tool_call>` and `</tool_call>` a call. A mark is looked for in the field that it ends; another field begins behind it.
The mark that is complete first counts, and of those that are complete at one place the longest, as for stop strings.
`ReplyFields.split` is the definition; `RegionsAutomaton` does the same byte by byte, so tokens may straddle marks, for
these and for whatever else says how replies are cut (`cutting`).

Cost: what may be the beginning of a mark is held back, or read both ways, so a state becomes a handful of states.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import SINK, Automaton, TableAutomaton
from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.combine.cutting import NOWHERE, WHOLE, Cut, Cutter, Cutting, Moves, Region
from nco_guard.errors import ArgumentValueError

__all__ = ["FieldMark", "RegionsAutomaton", "ReplyFields"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_UNBOUND = -1  # in place of a state: no rule looks at this field


@dataclass(frozen=True)
class FieldMark:
    """A text that ends a field wherever it stands there, and which field begins behind it."""

    text: str
    within: str
    opens: str


@dataclass(frozen=True)
class ReplyFields(Cutting):
    """How marks cut a reply.

    marks: see `FieldMark`. first: the field in which a reply begins. joined: the field whose regions are one text, that
    goes on where it was; each region of all others is a text of its own. free: fields that no rule looks at. whole: the
    reply as it is written is a text, too, but for free fields and the marks around them.

    Errors: `ArgumentValueError` for a mark without text, for two that say different things of one, and for a field's
    name that is not of letters, digits, `_`, `.` and `-`.

    Examples:
        >>> think = FieldMark("<think>", "content", "reasoning"), FieldMark("</think>", "reasoning", "content")
        >>> [(region.name, region.text) for region in ReplyFields(think).split("<think>Well.</think>Yes.")]
        [('content', ''), ('reasoning', 'Well.'), ('content', 'Yes.')]
    """

    marks: tuple[FieldMark, ...]
    first: str = "content"
    joined: str = "content"
    free: tuple[str, ...] = ()
    whole: bool = False

    def __post_init__(self) -> None:
        if not all(mark.text for mark in self.marks):
            raise ArgumentValueError("marks: each of them needs a text")
        if len({(mark.text, mark.within) for mark in self.marks}) < len(set(self.marks)):
            raise ArgumentValueError("marks: one text cannot end a field in two ways")
        if odd := [name for name in (*self.names, self.joined) if not _NAME.fullmatch(name)]:
            raise ArgumentValueError(
                f"marks: {odd[0]!r} is no name of a field; use letters, digits, '_', '.' and '-', a letter first"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The fields, the first one first."""
        found = (name for mark in self.marks for name in (mark.within, mark.opens))
        return tuple(dict.fromkeys((self.first, *found)))

    @property
    def together(self) -> tuple[str, ...]:
        """The one joined field."""
        return (self.joined,)

    def split(self, text: str) -> list[Region]:
        """The definition: the regions of a reply, in order; some may be empty."""
        found, name, begin = list[Region](), self.first, 0
        for end in range(1, len(text) + 1):
            complete = [
                mark for mark in self.marks if mark.within == name and text[begin:end].endswith(mark.text)
            ]
            if complete:
                mark = max(complete, key=lambda mark: len(mark.text))
                found.append(Region(name, text[begin : end - len(mark.text)], begin))
                name, begin = mark.opens, end
        return [*found, Region(name, text[begin:], begin)]

    def texts(self, text: str) -> list[list[Region]]:
        """What is shown of a reply, each as the regions that it is joined of, in the order in which these end.

        Of the joined field that is, at each end of a region, all that there is of it. Free fields are left out.
        """
        found, whole = list[list[Region]](), list[Region]()
        for region in self.split(text):
            if region.name in self.free:
                continue
            if region.name == self.joined:
                whole = [*whole, region]
            found.append(whole if region.name == self.joined else [region])
        return [*found, self._whole(text)] if self.whole else found

    def _whole(self, text: str) -> list[Region]:
        """The reply as it is written, free fields and the marks around them left out."""
        pieces, free = list[Region](), set(self.free)
        regions = [*self.split(text), None]
        for before, after in itertools.pairwise(regions):
            assert before is not None
            if before.name not in free:
                pieces.append(Region(WHOLE, before.text, before.start))
                end = before.start + len(before.text)
                if after is not None and after.name not in free:
                    pieces.append(Region(WHOLE, text[end : after.start], end))
        return pieces or [Region(WHOLE, "", 0)]

    def cutter(self) -> Cutter:
        """What looks for the marks, byte by byte."""
        return _marks_of(self)

    def freed(self, *names: str) -> ReplyFields:
        """These regions, with more fields that no rule looks at."""
        return replace(self, free=tuple(dict.fromkeys((*self.free, *names))))


class _MarkCutter(Cutter):
    """Looks for marks, byte by byte."""

    def __init__(self, regions: ReplyFields) -> None:
        self._regions = regions
        self._places: list[tuple[str, bytes]] = [("", b"")]  # nowhere
        self._ids: dict[tuple[str, bytes], int] = {}
        self._known: dict[tuple[int, int], tuple[int, Moves]] = {}
        self._lock = threading.Lock()
        self.start = self._place(regions.first, b"")
        alone = sorted({*b"".join(mark.text.encode() for mark in regions.marks)})
        self.classes = np.zeros(256, np.uint8)
        self.classes[alone] = np.arange(1, len(alone) + 1)
        letters = sorted({ord(letter) for mark in regions.marks for letter in mark.text})
        self.kinds = CharClasses([((code, code),) for code in letters])

    def _place(self, name: str, held: bytes) -> int:
        found = self._ids.get((name, held))
        if found is None:
            self._places.append((name, held))
            found = self._ids[name, held] = len(self._places) - 1
        return found

    def held(self, place: int) -> bytes:
        """See `Cutter.held`."""
        return self._places[place][1]

    def settled(self, place: int) -> tuple[int, tuple[Cut, ...], str]:
        """What is held back is text."""
        name, held = self._places[place]
        return 0, (Cut("text", name, held),), name

    def end(self, place: int) -> tuple[int, tuple[Cut, ...], str]:
        """What is held back is text."""
        return self.settled(place)

    def begun(self, text: str) -> tuple[int, tuple[tuple[str, bytes], ...]]:
        """Nothing is read of prompts."""
        del text
        return self.start, ((self._regions.first, b""),)

    def step(self, place: int, byte: int) -> tuple[int, Moves]:
        """See `Cutter.step`."""
        if place == NOWHERE:
            return NOWHERE, ((0, ()),)
        found = self._known.get((place, byte))
        if found is None:
            name, held = self._places[place]
            with self._lock:
                following, cuts = self._find(name, held + bytes([byte]))
                found = self._known[place, byte] = following, ((0, cuts),)
        return found

    def _find(self, name: str, read: bytes) -> tuple[int, tuple[Cut, ...]]:
        marks = {mark.text.encode(): mark.opens for mark in self._regions.marks if mark.within == name}
        # The longest first: what is left of `read` from each place on.
        rests = [read[place:] for place in range(len(read))]
        for rest in rests:
            if rest in marks:
                opens, before = marks[rest], Cut("text", name, read[: len(read) - len(rest)])
                free = {name, opens} & {*self._regions.free}
                mark = () if free else (Cut("mark", "", rest),)
                return self._place(opens, b""), (before, *mark, Cut("end", name), Cut("begin", opens))
        for rest in rests:
            if any(mark.startswith(rest) for mark in marks):
                return self._place(name, rest), (Cut("text", name, read[: len(read) - len(rest)]),)
        return self._place(name, b""), (Cut("text", name, read),)


@lru_cache(maxsize=256)
def _marks_of(regions: ReplyFields) -> _MarkCutter:
    return _MarkCutter(regions)


class _Reading(NamedTuple):
    """What has been read of the texts of a reply.

    whole: the state of all that is written; joined: those of the joined fields' texts; own: that of any other, each
    `_UNBOUND` where there is none. hits: the states in which matches completed, which are none if another reading
    holds, and whether the end of a region completed them.
    """

    whole: int
    joined: tuple[int, ...]
    own: int
    hits: tuple[tuple[int, bool], ...] = ()


class _Place(NamedTuple):
    """Where a reply is: the cutter's place, and what has been read in each of its readings.

    hits: those that all readings have had with the step to here.
    """

    cut: int
    readings: tuple[_Reading, ...]
    hits: tuple[tuple[int, bool], ...] = ()


def _without(reading: _Reading, certain: Sequence[tuple[int, bool]]) -> _Reading:
    return reading._replace(hits=tuple(hit for hit in reading.hits if hit not in certain))


class RegionsAutomaton(TableAutomaton):
    """Watches, over a reply as it is written, what `inner` forbids in the texts that `regions` makes of it.

    A match completes with a byte if it does in the text of a field, or as the reply is written where that is looked at,
    and with a mark if the text before it may not end. The reply may end where all these texts may. A prompt has no
    marks: joined fields, and the whole, continue it.
    """

    def __init__(self, inner: Automaton, regions: Cutting, cutter: Cutter) -> None:
        super().__init__()
        self.inner = inner
        self.regions = regions
        self.cutter = cutter
        self._together = regions.together
        # Free fields are no part of the whole, so there it is read once it is certain what a byte belongs to.
        self._late = regions.whole and not {*regions.free}.isdisjoint(regions.names)
        self._keys: list[_Place] = [_Place(NOWHERE, (_Reading(SINK, (), SINK),))]
        self._ids: dict[_Place, int] = {}
        self._spaceless: dict[int, int] = {}
        self._classes: NDArray[np.uint8] | None = None
        self.start = self._state(self._first("", inner.start))
        self.spaceless_start = self._without_space(self.start)

    def _first(self, begun: str, state: int) -> _Place:
        """An empty reply that begins in a prompt; `state`: that of the inner automaton after what it continues."""
        cut, fields = self.cutter.begun(begun)
        joined = tuple(_UNBOUND if name in self.regions.free else state for name in self._together)
        whole = state if self.regions.whole else _UNBOUND
        readings = list[_Reading]()
        for name, data in fields:
            own = self._begun(name)
            for byte in data if own != _UNBOUND else b"":
                own = self.inner.step(own, byte)
                own = ~own if own < 0 else own
            readings.append(_Reading(whole, joined, own))
        return _Place(cut, tuple(readings))

    def _begun(self, name: str) -> int:
        """What has been read of a field's own text when a region of it begins."""
        return _UNBOUND if name in self._together or name in self.regions.free else self.inner.start

    def _state(self, key: _Place) -> int:
        state = self._ids.get(key)
        if state is None:
            state = self._room()
            self._keys[state:] = [key]
            self._ids[key] = self._taken(state)
        return state

    def _without_space(self, state: int) -> int:
        """A state of an empty reply, for decoders that drop its first space."""
        found = self._room()
        self._keys[found:] = [self._keys[state]]
        self._spaceless[self._taken(found)] = state
        return found

    def read_prompt(self, context: Iterable[int]) -> int:
        """See `Automaton.read_prompt`."""
        return self._state(self._first("", self.inner.read_prompt(context)))

    def begin(self, text: str, *, context: bytes = b"", spaceless: bool = False) -> int:
        """The state of an empty reply that begins in a prompt, with this text. Matches in that do not count."""
        first = self.inner.read_prompt(context) if context else self.inner.start
        state = self._state(self._first(text, first))
        return state if context or not spaceless else self._without_space(state)

    def _find(self, state: int, byte: int) -> int:
        if state in self._spaceless and byte == 0x20:
            return self._spaceless[state]
        reached = self._follow(self._keys[state], byte)
        # All bytes that mean the same are settled at once.
        row = self._table[state]
        alike = self.byte_classes == self.byte_classes[byte]
        row[alike] = reached
        return reached

    def _follow(self, place: _Place, byte: int) -> int:
        cut, moves = self.cutter.step(place.cut, byte)
        if cut == NOWHERE:
            return SINK
        data, readings = bytes([byte]), list[_Reading]()
        for at, cuts in moves:
            before = place.readings[at]
            if before.whole != _UNBOUND and not self._late:
                hits = [*before.hits]
                before = before._replace(whole=self._through(before.whole, data, hits), hits=(*hits,))
            readings.append(self._read(before, cuts))
        # One of them will hold, so what all of them say is certain.
        certain = [hit for hit in readings[0].hits if all(hit in other.hits for other in readings)]
        left = [_without(reading, certain) for reading in readings] if certain else readings
        state = self._state(_Place(cut, tuple(left), tuple(certain)))
        return ~state if certain else state

    def _read(self, before: _Reading, cuts: Sequence[Cut]) -> _Reading:
        """A reading after what has become certain of it."""
        if not cuts:
            return before
        whole, own, joined, hits = before.whole, before.own, [*before.joined], [*before.hits]
        for kind, name, data in cuts:
            if kind == "begin":
                own = self._begun(name)
                continue
            free = name in self.regions.free
            if self._late and not free and kind in ("text", "mark"):
                whole = self._through(whole, data, hits)
            if free or kind == "mark":
                continue
            at = self._together.index(name) if name in self._together else -1
            current = own if at < 0 else joined[at]
            if kind == "end":
                if current != _UNBOUND and not self.inner.may_end(current):
                    hits.append((current, True))
                continue
            current = self._through(current, data, hits)
            if at < 0:
                own = current
            else:
                joined[at] = current
        return _Reading(whole, tuple(joined), own, tuple(dict.fromkeys(hits)))

    def _through(self, state: int, data: bytes, hits: list[tuple[int, bool]]) -> int:
        if state == _UNBOUND:
            return state
        for byte in data:
            state = self.inner.step(state, byte)
            if state < 0:
                state = ~state
                hits.append((state, False))
        return state

    def cut(self, state: int) -> int:
        """The cutter's place; 0 for a state in which nothing of a reply matters."""
        return self._keys[state].cut

    def _current(self, reading: _Reading, name: str) -> int:
        return reading.joined[self._together.index(name)] if name in self._together else reading.own

    def released(self, state: int) -> tuple[tuple[int, ...], bool]:
        """The inner states that read what is text of the field from here on, behind what is settled then; and whether a
        match completed in that. None where no rule looks at the field, nor at the whole.
        """
        place = self._keys[state]
        at, cuts, name = self.cutter.settled(place.cut)
        reading = self._read(place.readings[at], cuts)
        found = [each for each in (reading.whole, self._current(reading, name)) if each != _UNBOUND]
        if self._late and name in self.regions.free:
            found = []
        if state in self._spaceless:
            found = [self.inner.spaceless_start if each == self.inner.start else each for each in found]
        return tuple(dict.fromkeys(found)), bool(reading.hits)

    def ended(self, state: int) -> tuple[tuple[int, bool], ...]:
        """The inner states in which matches complete if the reply ends here, and whether its end completes them."""
        place = self._keys[state]
        at, cuts, name = self.cutter.end(place.cut)
        reading = self._read(place.readings[at], cuts)
        hits = [*reading.hits]
        # Fields that are over were asked when they ended.
        for each in (self._current(reading, name), reading.whole):
            if not hits and each != _UNBOUND and not self.inner.may_end(each):
                hits.append((each, True))
        return tuple(hits)

    def may_end(self, state: int) -> bool:
        """Whether the reply may end here, with what is held back."""
        return state == SINK or not self.ended(state)

    def hits(self, state: int) -> tuple[tuple[int, bool], ...]:
        """Of a state that a match leads to: the inner states in which it completed, and whether a mark did it."""
        return self._keys[state].hits

    @property
    def byte_classes(self) -> NDArray[np.uint8]:
        """Those of the inner automaton and of the cutter; the space is by itself."""
        if self._classes is None:
            own = self.cutter.classes.astype(np.int64) * 2
            own[0x20] += 1
            _, numbers = np.unique(self.inner.byte_classes + own * 256, return_inverse=True)
            self._classes = numbers.ravel().astype(np.uint8)
        return self._classes

    @property
    def kinds(self) -> CharClasses | None:
        """Those of the inner automaton; the characters of marks are by themselves."""
        kinds, own = self.inner.kinds, self.cutter.kinds
        return None if kinds is None or own is None else CharClasses([*kinds.sets(), *own.sets()])

    def distances(self, states: NDArray[np.int32]) -> NDArray[np.int16]:
        """The least of what is under way, less what is held back, and of what a mark leads to."""
        return np.array([self._distance(state) for state in states.tolist()], np.int16)

    def _distance(self, state: int) -> int:
        if state == SINK:
            return 255
        place = self._keys[state]
        held = len(self.cutter.held(place.cut))
        far = [self.inner.distance(self.inner.start) - held]
        for reading in place.readings:
            if reading.hits:
                return 0
            far += [
                self.inner.distance(each) - held
                for each in (*reading.joined, reading.own)
                if each != _UNBOUND
            ]
            if reading.whole != _UNBOUND:
                far.append(self.inner.distance(reading.whole) - (held if self._late else 0))
        return max(0, min(255, *far))

    @property
    def nbytes(self) -> int:
        """Bytes held by the transition table, the inner automaton's included."""
        return super().nbytes + 400 * len(self._keys) + self.inner.nbytes
