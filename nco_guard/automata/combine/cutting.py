"""What says how a reply is cut into fields, and reads it byte by byte: the interface, and the bytes that cut nothing.

A reply is one text, and it is shown as several. Where it is cut depends on what its format is (marks, patterns, what a
parser makes of them), never on a policy, so it is found once for all rules.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import SINK, TableAutomaton
from nco_guard.automata.charsets import CharClasses

__all__ = [
    "NOWHERE",
    "WHOLE",
    "Cut",
    "Cutter",
    "Cutting",
    "JsonField",
    "Moves",
    "Region",
    "UncutText",
    "ValuesIn",
]

#: The place behind bytes that are no text.
NOWHERE = SINK
#: The name of the pieces of the whole reply.
WHOLE = "whole"


class Region(NamedTuple):
    """A piece of one field, without the marks around it; `start`: where in the reply."""

    name: str
    text: str
    start: int


class JsonField(NamedTuple):
    """A field that holds JSON, of which what it says is shown.

    outer: within so many brackets only strings behind the key `named` are; further in, all is.
    """

    name: str
    outer: int = 0
    named: str = ""


class StringMarks(NamedTuple):
    """What stands around strings in a dialect of JSON."""

    opening: str
    closing: str


class ValuesIn(NamedTuple):
    """Where values stand of which each is shown as a text of its own.

    read: a "text" of the fields that rules look at is one value; or it is "json", a "call" of which `call` says what is
    shown, calls in "python", or in a "dialect" of JSON by the marks in `call`. Without regions it is all that is
    written. beside: what may stand beside a text.
    """

    read: Literal["text", "json", "call", "python", "dialect"]
    regions: Cutting | None = None
    beside: str = ""
    call: JsonField | StringMarks | None = None


class Cut(NamedTuple):
    """What has become certain of a reply with a byte.

    kind: "text" of a field; a "mark" (or what else is in no field), which is part of the whole; a field's region ends,
    or begins.
    """

    kind: Literal["text", "mark", "end", "begin"]
    field: str
    data: bytes = b""


#: What becomes of the readings of a reply with a byte: for each, which of those before it was, and what it has read.
Moves = tuple[tuple[int, tuple[Cut, ...]], ...]


class Cutter(ABC):
    """Reads replies byte by byte. A place, a number above `NOWHERE`, is all that matters of what was read.

    Where it is not certain yet whether something is a mark, there are several *readings*, of which one will hold; they
    are numbered from 0 on. What was read of no reading is `held`.

    start: the place of an empty reply. classes: uint8 [256]: bytes of one class lead from every place to the same one,
    and are text of the same field, or of none. kinds: the characters that it can tell apart; None: not known.
    """

    start: int
    classes: NDArray[np.uint8]
    kinds: CharClasses | None = None

    @abstractmethod
    def step(self, place: int, byte: int) -> tuple[int, Moves]:
        """The next place, and its readings."""

    @abstractmethod
    def end(self, place: int) -> tuple[int, tuple[Cut, ...], str]:
        """The reading that holds if nothing follows, what is certain of it then, and the field that it is in."""

    @abstractmethod
    def settled(self, place: int) -> tuple[int, tuple[Cut, ...], str]:
        """The reading that holds as soon as something follows that no mark goes on with, what is certain of it then,
        and the field that this is text of.
        """

    @abstractmethod
    def held(self, place: int) -> bytes:
        """What stands in no reading yet."""

    def waits(self, place: int) -> bool:
        """Whether anything is not certain yet."""
        return bool(self.held(place))

    @abstractmethod
    def begun(self, text: str) -> tuple[int, tuple[tuple[str, bytes], ...]]:
        """The place of an empty reply that a prompt begins with this text. Of each reading the field that it is in, and
        what of that field's own text stands in the prompt.
        """


class Cutting(ABC):
    """How replies are cut into fields. Equal ones cut alike, and say so by `repr`, which goes into digests.

    whole: the reply as it is written is a text that rules look at, too, without free fields and what marks them.
    free: fields that no rule looks at. begun: what the prompt ends with that belongs to the reply.
    """

    free: tuple[str, ...]
    whole: bool
    begun: str = ""
    #: Whether special tokens may be marks, so that they have to be in the text.
    reads_special = True

    @property
    @abstractmethod
    def together(self) -> tuple[str, ...]:
        """Fields of which all regions are one text, which goes on where it was; each region of others is its own."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The fields, the first one first."""

    def values(self, types: Mapping[str, Sequence[str]]) -> tuple[ValuesIn, ...]:
        """Where values stand in the fields. types: as what those of named arguments are read, where that is cast."""
        del types
        return ()

    @abstractmethod
    def freed(self, *names: str) -> Self:
        """This, with more fields that no rule looks at."""

    def only(self, names: Collection[str]) -> Self:
        """This, where rules look at some fields alone, and not at the whole."""
        found = copy(self.freed(*(name for name in self.names if name not in names)))
        found.whole = False
        return found

    def begun_by(self, text: str) -> Cutting:
        """This, for replies that a prompt begins. By default nothing is read of prompts."""
        del text
        return self

    @abstractmethod
    def texts(self, text: str) -> list[list[Region]]:
        """The definition: what is shown of a reply, each as the regions that it is joined of.

        Of a joined field that is, at each end of a region, all that there is of it. Free fields are left out. The
        pieces of the whole reply are called `WHOLE`.
        """

    @abstractmethod
    def cutter(self) -> Cutter:
        """What reads replies byte by byte."""


class UncutText(TableAutomaton):
    """Reads bytes from a place as long as they are text, behind what is `settled` there: `~place` where they are more.

    It may end where all of it is text of the field, if nothing follows.
    """

    def __init__(self, cutter: Cutter) -> None:
        super().__init__()
        self._cutter = cutter
        self.start = self.spaceless_start = cutter.start
        self.lock = threading.Lock()

    def _find(self, state: int, byte: int) -> int:
        place, moves = self._cutter.step(state, byte)
        self.room_for(place)
        uncut = place != NOWHERE
        if uncut:
            before, _, field = self._cutter.settled(state)
            after, held, same = self._cutter.settled(place)
            source, cuts = moves[after]
            uncut = source == before and same == field and _text_of((*cuts, *held), field)
        reached = place if uncut else ~place
        self._table[state, self._cutter.classes == self._cutter.classes[byte]] = reached
        return reached

    @property
    def byte_classes(self) -> NDArray[np.uint8]:
        """Those of the cutter."""
        return self._cutter.classes

    def may_end(self, state: int) -> bool:
        """Whether all that is not certain is text, if nothing follows."""
        present, _, field = self._cutter.settled(state)
        reading, cuts, ended = self._cutter.end(state)
        return reading == present and ended == field and _text_of(cuts, field)

    def waits_many(self, places: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether anything is not certain yet."""
        distinct, at = np.unique(places, return_inverse=True)
        found: NDArray[np.bool_] = np.array([self._cutter.waits(one) for one in distinct.tolist()], bool)
        return found[at.ravel()]

    def room_for(self, place: int) -> None:
        """Have a row for a place that was found elsewhere."""
        while self._count <= place:
            self._taken(self._room())


def _text_of(cuts: tuple[Cut, ...], field: str) -> bool:
    return all(cut.kind == "text" and cut.field == field for cut in cuts)
