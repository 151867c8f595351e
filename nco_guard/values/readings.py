r"""What a text says to whoever parses it: its JSON escapes read, as often as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nco_guard.automata.folding import FoldSpec
from nco_guard.automata.spans.folds import FoldedText

__all__ = ["ESCAPES", "LEVELS", "Reading", "readings"]

LEVELS = 3
"""So often escapes may be written one around the other, as by programs that put JSON into JSON."""
ESCAPES = FoldSpec(json_escapes=True)
"""One level of them, as what a text is folded for."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as it is read; `_levels`: how it came out of the text as it was written, level by level."""

    text: str
    _levels: tuple[FoldedText, ...] = ()

    def original(self, start: int, end: int) -> tuple[int, int]:
        """A span of this reading as one of the text as it was written."""
        span = start, end
        for level in reversed(self._levels):
            span = level.original(span)
        return span


def readings(text: str) -> Iterator[Reading]:
    """The text as it is, then with its escapes read, then with those that come out of it, up to `LEVELS` times."""
    reading = Reading(text)
    yield reading
    for _ in range(LEVELS):
        if "\\" not in reading.text:
            return
        level = FoldedText(ESCAPES)
        read = level.feed(reading.text, final=True)
        if read == reading.text:
            return
        reading = Reading(read, (*reading._levels, level))
        yield reading
