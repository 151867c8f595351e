r"""What a text says to whoever parses it: its JSON escapes read, as often as they are written, and its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from nco_guard.automata.folding import FoldSpec, settled_length
from nco_guard.automata.spans.folds import FoldedText
from nco_guard.values.numbers import NumbersRead, settled_numbers

__all__ = ["ESCAPES", "LEVELS", "Way", "readings"]

LEVELS = 3
"""So often escapes may be written one around the other, as by programs that put JSON into JSON."""
ESCAPES = FoldSpec(json_escapes=True)
"""One level of them, as what a text is folded for."""


class Way(Protocol):
    """How a text that arrives reads, and the way back: `FoldedText` and `NumbersRead`."""

    def feed(self, text: str, *, final: bool = False) -> str:
        """What more text reads as, as far as that is certain; `final`: the text ends here."""

    def place(self, index: int) -> int:
        """Where in the text as it comes a character that is read begins, or the next one that is to come."""

    def original(self, span: tuple[int, int]) -> tuple[int, int]:
        """A span of what is read as one of the text as it comes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as it is read; `_levels`: how it came out of the text as it was written, level by level."""

    text: str
    _levels: tuple[Way, ...] = ()

    def original(self, start: int, end: int) -> tuple[int, int]:
        """A span of this reading as one of the text as it was written."""
        span = start, end
        for level in reversed(self._levels):
            span = level.original(span)
        return span

    @property
    def settled(self) -> int:
        """How much of the text as it was written is read alike, here and with its numbers read, whatever follows."""
        here = min(settled_length(self.text), settled_numbers(self.text))
        return self.original(here, len(self.text))[0]

    def through(self, way: Way) -> Reading:
        """This one, read once more."""
        return Reading(way.feed(self.text, final=True), (*self._levels, way))


def readings(text: str) -> Iterator[Reading]:
    """The text as it is, then with its escapes read, then with those that come out of it, up to `LEVELS` times.

    Each of these also with its numbers read, where that makes a difference.
    """
    reading = Reading(text)
    yield reading
    yield from _numbers_read(reading)
    for _ in range(LEVELS):
        if "\\" not in reading.text:
            return
        read = reading.through(FoldedText(ESCAPES))
        if read.text == reading.text:
            return
        reading = read
        yield reading
        yield from _numbers_read(reading)


def _numbers_read(reading: Reading) -> Iterator[Reading]:
    read = reading.through(NumbersRead())
    if read.text != reading.text:
        yield read
