r"""What a text says to whoever parses it: its JSON escapes read, as often as they are written.

A `Reading` is a text and, for each of its characters, where it comes from in the text as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nco_guard.automata.folding import read_escapes

__all__ = ["LEVELS", "Reading", "readings"]

LEVELS = 3
"""So often escapes may be written one around the other, as by programs that put JSON into JSON."""


@dataclass(frozen=True, slots=True)
class Reading:
    """`text[i]` is written at `[starts[i], ends[i])`; both None where it is the text as it was written."""

    text: str
    starts: Sequence[int] | None = None
    ends: Sequence[int] | None = None

    def original(self, start: int, end: int) -> tuple[int, int]:
        """A span of this reading as one of the text as it was written."""
        if self.starts is None or self.ends is None:
            return start, end
        first = self.starts[start] if start < len(self.starts) else self.ends[-1]
        return first, self.ends[end - 1] if end > start else first


def readings(text: str) -> Iterator[Reading]:
    """The text as it is, then with its escapes read, then with those that come out of it, up to `LEVELS` times."""
    reading = Reading(text)
    yield reading
    for _ in range(LEVELS):
        if "\\" not in reading.text:
            return
        reading, before = _unescaped(reading), reading
        if reading.text == before.text:
            return
        yield reading


def _unescaped(reading: Reading) -> Reading:
    found = list(read_escapes(reading.text))
    spans = [reading.original(start, end) for _, start, end in found]
    return Reading("".join(c for c, _, _ in found), [s for s, _ in spans], [e for _, e in spans])
