"""What says how a reply is cut into fields, and reads it byte by byte: the interface, and the bytes that cut nothing.

A reply is one text, and it is shown as several. Where it is cut depends on what its format is (marks, patterns, what a
parser makes of them), never on a policy, so it is found once for all rules.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection
from copy import copy
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import SINK, TableAutomaton
from nco_guard.automata.charsets import CharClasses

__all__ = ["NOWHERE", "WHOLE", "Cut", "Cutter", "Cutting", "JsonField", "Region", "UncutText"]

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


class Cut(NamedTuple):
    """What has become certain of a reply with a byte.

    kind: "text" of a field; a "mark" (or what else is in no field), which is part of the whole; a field's region ends,
    or begins.
    """

    kind: Literal["text", "mark", "end", "begin"]
    field: str
    data: bytes = b""


class Cutter(ABC):
    """Reads replies byte by byte. A place, a number above `NOWHERE`, is all that matters of what was read.

    start: the place of an empty reply. classes: uint8 [256]: bytes of one class lead from every place to the same one,
    and are text of the same field, or of none. kinds: the characters that it can tell apart; None: not known.
    """

    start: int
    classes: NDArray[np.uint8]
    kinds: CharClasses | None = None

    @abstractmethod
    def step(self, place: int, byte: int) -> tuple[int, tuple[Cut, ...]]:
        """The next place, and what is certain with it."""

    @abstractmethod
    def end(self, place: int) -> tuple[Cut, ...]:
        """What is certain if nothing follows."""

    @abstractmethod
    def field(self, place: int) -> str:
        """The field that text goes on with here."""

    @abstractmethod
    def held(self, place: int) -> bytes:
        """What was read and is not certain to be text, since it may be the beginning of a mark."""

    def settled(self, place: int) -> tuple[tuple[Cut, ...], str]:
        """What is certain as soon as something follows that no mark goes on with, and the field that this is text of.

        By default, that what is held back is text.
        """
        field = self.field(place)
        return (Cut("text", field, self.held(place)),), field

    def certain(self, place: int) -> bool:
        """Whether the field is over whatever follows, though what is `settled` waits for it."""
        del place
        return False

    def begun(self, text: str) -> tuple[int, tuple[Cut, ...]]:
        """The place of an empty reply that a prompt begins with this text, and what is certain of the text."""
        place, cuts = self.start, list[Cut]()
        for byte in text.encode():
            place, more = self.step(place, byte)
            cuts += more
        return place, tuple(cuts)


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

    @property
    def json_field(self) -> JsonField | None:
        """The field that holds JSON, if one does."""
        return None

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

    It may end where what is held back is text of the field, if nothing follows.
    """

    def __init__(self, cutter: Cutter) -> None:
        super().__init__()
        self._cutter = cutter
        self.start = self.spaceless_start = cutter.start
        self.lock = threading.Lock()

    def _find(self, state: int, byte: int) -> int:
        place, cuts = self._cutter.step(state, byte)
        self.room_for(place)
        settled, field = said = self._cutter.settled(state)
        # A mark that is complete is no text, though nothing is said of it before something follows.
        after = said if place == NOWHERE else self._cutter.settled(place)
        cut = not _text_of(*after) and bool(cuts or after != said)
        if not _text_of(settled, field):
            # What follows it is text of another field.
            cuts, field = (
                (cuts[len(settled) :], field) if cuts[: len(settled)] == settled else (settled, field)
            )
        reached = place if place != NOWHERE and not cut and _text_of(cuts, field) else ~place
        self._table[state, self._cutter.classes == self._cutter.classes[byte]] = reached
        return reached

    @property
    def byte_classes(self) -> NDArray[np.uint8]:
        """Those of the cutter."""
        return self._cutter.classes

    def may_end(self, state: int) -> bool:
        """Whether what is held back is text."""
        return _text_of(self._cutter.end(state), self._cutter.field(state))

    def holds_many(self, places: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether something is held back."""
        distinct, at = np.unique(places, return_inverse=True)
        found: NDArray[np.bool_] = np.array([bool(self._cutter.held(one)) for one in distinct.tolist()], bool)
        return found[at.ravel()]

    def room_for(self, place: int) -> None:
        """Have a row for a place that was found elsewhere."""
        while self._count <= place:
            self._taken(self._room())


def _text_of(cuts: tuple[Cut, ...], field: str) -> bool:
    return all(cut.kind == "text" and cut.field == field for cut in cuts)
