"""Where strings are in finished text: by looking up pieces of the text in the set of them.

The definition, nearly word for word, and none of the code by which masks find strings: what the verifier uses. Cost:
per character of the text one look-up for each length that strings with the same beginning have; the set holds the
strings themselves.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache, cached_property

from nco_guard.automata.charsets import same_letter

__all__ = ["SubstringSearcher", "fold_case"]

_BEGINNING, _ENDING = 3, 8
_WORD = re.compile(r"\w")
_OUTSIDE = re.compile(r"(?<!\w).", re.DOTALL)  # what does not go on with a word


@cache
def _first_of_case(character: str) -> str:
    """The first of the characters that `re.IGNORECASE` takes for this one: the same for all of them."""
    return chr(same_letter(character)[0][0])


class _FirstOfCase(dict[int, str]):
    """A table for `str.translate`, filled as characters are met."""

    def __missing__(self, code: int) -> str:
        found = self[code] = _first_of_case(chr(code))
        return found


_FOLDED = _FirstOfCase()


def fold_case(text: str) -> str:
    """The text with every character replaced by the first that `re.IGNORECASE` takes for it; offsets stay."""
    # Of the characters that are one letter to `re`, the ASCII capital comes first.
    return text.upper() if text.isascii() else text.translate(_FOLDED)


def _common(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


class SubstringSearcher:
    r"""Finds strings in text. `caseless`: as `re.IGNORECASE` compares; `whole_word`: no `\w` touches on either side."""

    reach = 1  # so many characters before a place can decide what is found there
    crowded = False  # nothing is found lazily
    nbytes = 0

    def __init__(self, strings: Sequence[str], *, caseless: bool = False, whole_word: bool = False) -> None:
        if not strings or not all(strings):
            raise ValueError("strings must be one or more non-empty texts")
        self.caseless = caseless
        self.whole_word = whole_word
        if caseless:
            table = {ord(c): _first_of_case(c) for c in set().union(*strings)}
            strings = [s.translate(table) for s in strings]
        self._strings = frozenset(strings)
        self.longest = max(map(len, strings))
        self._shown = min(_BEGINNING, *map(len, strings))
        lengths: dict[str, set[int]] = {}
        for string in self._strings:
            lengths.setdefault(string[: self._shown], set()).add(len(string))
        shared: dict[tuple[int, ...], tuple[int, ...]] = {}
        # Longest first.
        self._lengths: dict[str, tuple[int, ...]] = {}
        for beginning, found in lengths.items():
            ordered = tuple(sorted(found, reverse=True))
            self._lengths[beginning] = shared.setdefault(ordered, ordered)

    @cached_property
    def _by_end(self) -> tuple[int, dict[str, set[int]]]:
        """By their last characters, as many as all strings have, how long strings are; and so many."""
        size = min(_ENDING, *map(len, self._strings))
        lengths: dict[str, set[int]] = {}
        for string in self._strings:
            lengths.setdefault(string[-size:], set()).add(len(string))
        return size, lengths

    def places(self, text: str, low: int, high: int) -> Iterator[int]:
        """Where in `text[low:high]` a string begins, as far as a few characters tell; none is left out.

        Near the end, where more text may decide, that is everywhere.
        """
        known, size = self._lengths, self._shown
        piece = text[low:high]
        folded = fold_case(piece) if self.caseless else piece
        last = high - size
        outside = (found.start() for found in _OUTSIDE.finditer(text, low, high))
        for place in outside if self.whole_word else range(low, high):
            if place > last or folded[place - low : place - low + size] in known:
                yield place

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._strings)

    def may_start(self, text: str, at: int) -> bool:
        """Whether what precedes a place allows a match to start there."""
        return not self.whole_word or at == 0 or not _WORD.match(text, at - 1)

    def may_stop(self, text: str, at: int) -> bool:
        """Whether what follows a place allows a match to stop there; so does the end of the text."""
        return not (self.whole_word and _WORD.match(text, at))

    def stops(self, text: str, since: int, low: int) -> Iterator[int]:
        """The places after `low` at which some string ends that begins at `since` or later, whatever follows it.

        Cost: a look-up for each place, and one for each length that strings with such an end have.
        """
        folded = fold_case(text) if self.caseless else text
        size, known = self._by_end
        for stop in range(max(low + 1, since + size), len(text) + 1):
            for length in known.get(folded[stop - size : stop], ()):
                start = stop - length
                if start >= since and folded[start:stop] in self._strings and self.may_start(text, start):
                    yield stop
                    break

    def stops_of(self, text: str, start: int, piece: str) -> Iterator[int]:
        """The ends of the strings that start at a place of a text, the longest first.

        `piece`: the text from there on (`fold_case` of it, if caseless), `longest` characters if there are so many.
        """
        lengths = self._lengths.get(piece[: self._shown])
        if lengths is not None and self.may_start(text, start):
            for length in lengths:
                if length <= len(piece) and piece[:length] in self._strings:
                    stop = start + length
                    if self.may_stop(text, stop):
                        yield stop

    def stop_of(self, text: str, start: int, piece: str) -> int:
        """The first of `stops_of`; 0: there is none."""
        return next(self.stops_of(text, start, piece), 0) if piece[: self._shown] in self._lengths else 0

    def occurrences(self, text: str) -> Iterator[tuple[int, int, str]]:
        """(start, end, the string as it is looked for) of each string at each place of a text."""
        folded = fold_case(text) if self.caseless else text
        for start in range(len(text)):
            for stop in self.stops_of(text, start, folded[start : start + self.longest]):
                yield start, stop, folded[start:stop]

    def begins(self, piece: str) -> bool:
        """Whether some string may begin with a piece, as far as its first characters tell."""
        return piece[: self._shown] in self._lengths or len(piece) < self._shown

    def goes_on(self, piece: str, *, pending: bool) -> bool:
        """Whether more text can make a string of a piece. `pending`: so can what shows that it is a whole word."""
        ordered = self._sorted
        at = bisect_left(ordered, piece)
        if at < len(ordered) and ordered[at] == piece:
            if self.whole_word and pending:
                return True
            at += 1
        return at < len(ordered) and ordered[at].startswith(piece)

    def beginning(self, text: str) -> tuple[int, int] | None:
        """The longest stretch of the text with which some string begins; the first if there are several."""
        folded = fold_case(text) if self.caseless else text
        ordered, longest = self._sorted, self.longest
        best: tuple[int, int] | None = None
        for start in range(len(text)):
            if not self.may_start(text, start):
                continue
            piece = folded[start : start + longest]
            at = bisect_left(ordered, piece)
            # No string shares more of its beginning with the text than one of its neighbours in sorted order.
            common = max(_common(piece, near) for near in ordered[max(0, at - 1) : at + 1])
            if common > (0 if best is None else best[1] - best[0]):
                best = start, start + common
        return best
