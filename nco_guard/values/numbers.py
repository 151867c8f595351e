"""Numbers as a program shows them that parsed them: what `4.1e3` and `4100.0` print as is `4100`.

Read are numbers behind the first bracket of a text, whether between quotes or not: parsers make numbers of both.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from nco_guard.values.scalars import prints

__all__ = ["BRACKET", "NumbersRead", "settled_numbers"]

BRACKET = re.compile(r"[{\[]")
"""Behind the first of them a text may be JSON."""
_BEFORE = r"(?<![\w.])"
# Whole ones read as they are written; those in base 16 are parsed by lenient readers.
_NUMBER = re.compile(
    _BEFORE
    + r"-?(?:0[xX][0-9a-fA-F]++|[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++))(?!\w|\.\w)"
)
# What may yet become one, or another one, at the end of a text.
_GROWING = re.compile(
    _BEFORE + r"(?:-|-?0[xX][0-9a-fA-F]*+|-?[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]*+)?)\.?\Z"
)


class NumbersRead:
    """A text whose numbers are read as it arrives, and which of its characters each one that is read comes from.

    Places count from the start, in the text as it comes and in the one that is read (`length` so far). A number at the
    end waits: it may grow.
    """

    def __init__(self) -> None:
        self.length = 0
        self.settled = 0  # characters of the text as it comes whose reading is certain
        self._open = False  # whether there was a bracket
        self._before = ""  # the last character that is settled
        self._pending = ""
        # Of each number that reads otherwise: where its reading begins and ends, and where the number does.
        self._firsts: list[int] = []
        self._numbers: list[tuple[int, int, int]] = []

    def feed(self, text: str, *, final: bool = False) -> str:
        """What more text reads as, as far as that is certain; `final`: the text ends here."""
        text, self._pending = self._pending + text, ""
        begin = 0
        if not self._open:
            bracket = BRACKET.search(text)
            if bracket is None:
                return self._settle(text, text)
            self._open, begin = True, bracket.start()
        cut = len(text) if final else self._settled_in(text)
        text, self._pending = text[:cut], text[cut:]
        around, skipped = self._before + text, len(self._before)
        pieces: list[str] = []
        place, length = skipped, self.length
        for found in _NUMBER.finditer(around, skipped + begin):
            if (shown := _shown(found[0])) == found[0]:
                continue
            pieces += around[place : found.start()], shown
            length += found.start() - place
            self._firsts.append(length)
            length += len(shown)
            begin, end = (self.settled + at - skipped for at in found.span())
            self._numbers.append((length, begin, end))
            place = found.end()
        return self._settle(text, "".join((*pieces, around[place:])))

    def _settle(self, text: str, read: str) -> str:
        self.settled += len(text)
        self.length += len(read)
        self._before = text[-1:] or self._before
        return read

    def _settled_in(self, text: str) -> int:
        found = _GROWING.search(self._before + text, len(self._before))
        return len(text) if found is None else found.start() - len(self._before)

    def place(self, index: int) -> int:
        """Where in the text as it comes a character that is read begins, or the next one that is to come."""
        if index >= self.length:
            return self.settled
        at = bisect_right(self._firsts, index) - 1
        if at < 0:
            return index
        last, begin, end = self._numbers[at]
        return begin if index < last else end + index - last

    def original(self, span: tuple[int, int]) -> tuple[int, int]:
        """A span of what is read as one of the text as it comes: of numbers that it touches, the whole."""
        start = self.place(span[0])
        if span[0] == span[1]:
            return start, start
        at = bisect_right(self._firsts, span[1] - 1) - 1
        if at < 0:
            return start, span[1]
        last, _, end = self._numbers[at]
        return start, end + max(0, span[1] - last)


def settled_numbers(text: str) -> int:
    """How much of a text reads alike, its numbers read, whatever follows."""
    if not BRACKET.search(text):
        return len(text)
    found = _GROWING.search(text)
    return len(text) if found is None else found.start()


def _shown(number: str) -> str:
    """What a number prints as, written out where that is possible."""
    value = int(number, 16) if "x" in number or "X" in number else float(number)
    return (prints(value) or (number,))[-1]
