"""Folding texts, whole or as they arrive, and the way back: what `folding.fold_text` gives, with arrays for the places.

Most texts fold to themselves; that is found out by a look-up per character, and for ASCII text by none. Cost: some
nanoseconds per character then, some tens where anything is folded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.charsets import MAX_CODE_POINT, code_points
from nco_guard.automata.folding import FoldSpec, escapes, settled_length

__all__ = ["Folded", "FoldedText", "Originals", "fold", "fold_arrived", "joined"]

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded text; `starts[i]` to `ends[i]` is where its character i comes from, None where it is in place."""

    text: str
    starts: Places | None = None
    ends: Places | None = None

    def start(self, at: int) -> int:
        """Where a character's original begins."""
        return at if self.starts is None else int(self.starts[at])

    def end(self, at: int) -> int:
        """Where a character's original ends."""
        return at + 1 if self.ends is None else int(self.ends[at])


_IN_PLACE = Folded("")


def fold(text: str, spec: FoldSpec) -> Folded:
    """The folded text and where each of its characters comes from."""
    if spec.trivial:
        return Folded(text)
    denoted = _denoted(text) if spec.json_escapes and "\\" in text else Folded(text)
    folds = _folds(spec.normalize, spec.ignore)
    if not folds.touch(denoted.text):
        return denoted
    counts = folds.lengths[code_points(denoted.text)]
    starts = np.arange(len(counts)) if denoted.starts is None else denoted.starts
    ends = np.arange(1, len(counts) + 1) if denoted.ends is None else denoted.ends
    return Folded(denoted.text.translate(folds.images), np.repeat(starts, counts), np.repeat(ends, counts))


def fold_arrived(pending: str, text: str, spec: FoldSpec, *, final: bool) -> tuple[Folded, int, str]:
    """Fold more of a text, as far as that is certain: what it folds to, of how many characters, the escape under way.

    `pending`: the escape that was under way before; `final`: the text ends here.
    """
    if not spec.json_escapes:
        return fold(text, spec), len(text), ""
    text = pending + text
    cut = len(text) if final else settled_length(text)
    return fold(text[:cut], spec), cut, text[cut:]


class FoldedText:
    """A text that is folded as it arrives, and which of its characters each folded one comes from.

    Places count from the start, in the original and in the folded text (`length` so far). Memory: nothing while
    characters stand for themselves, else some bytes for each; `forget` lets go of them.
    """

    def __init__(self, spec: FoldSpec) -> None:
        self._spec = spec
        self._trivial = spec.trivial
        self._pending = ""  # an escape under way
        self.length = 0
        self.settled = 0  # original characters whose folding is certain
        # Parts: by the folded place of their first character its original place, and how they were folded.
        self._firsts: list[int] = []
        self._parts: list[tuple[int, Folded]] = []

    def feed(self, text: str, *, final: bool = False) -> str:
        """What more text folds to, as far as that is certain; `final`: the text ends here."""
        if self._trivial:
            self.length = self.settled = self.settled + len(text)
            return text
        part, cut, self._pending = fold_arrived(self._pending, text, self._spec, final=final)
        if part.text and not (part.starts is None and self._in_place()):
            self._firsts.append(self.length)
            self._parts.append((self.settled, part))
        self.length += len(part.text)
        self.settled += cut
        return part.text

    def _in_place(self) -> bool:
        """Whether the last part goes on if the next character stands for itself."""
        if not self._parts:
            return self.length == self.settled
        first, (place, part) = self._firsts[-1], self._parts[-1]
        return part.starts is None and self.settled - place == self.length - first

    def _part(self, index: int) -> tuple[int, int, Folded]:
        """Of the part that a folded character is in: the first one's places in folded and original text, the part."""
        at = bisect_right(self._firsts, index) - 1
        return (self._firsts[at], *self._parts[at]) if at >= 0 else (0, 0, _IN_PLACE)

    def place(self, index: int) -> int:
        """Where in the original a folded character begins, or the next one that is to come."""
        if index >= self.length:
            return self.settled
        first, place, part = self._part(index)
        return place + part.start(index - first)

    def original(self, span: tuple[int, int]) -> tuple[int, int]:
        """A span of the folded text as one of the original."""
        start = self.place(span[0])
        if span[0] == span[1]:
            return start, start
        first, place, part = self._part(span[1] - 1)
        return start, place + part.end(span[1] - 1 - first)

    def upto(self, place: int) -> int:
        """How many folded characters come from what stands before a place of the original."""
        bounds = [*self._firsts, self.length]
        count = min(place, bounds[0])
        for first, last, (begin, part) in zip(self._firsts, bounds[1:], self._parts, strict=True):
            here = place - begin if part.ends is None else np.searchsorted(part.ends, place - begin, "right")
            count = max(count, min(last, first + int(here)))
        return count

    def forget(self, index: int) -> None:
        """No folded character before this one will be asked for."""
        done = bisect_right(self._firsts, index) - 1 if self._firsts else 0
        if done > 0:
            del self._firsts[:done], self._parts[:done]


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of one rule, where two that meet in a character, which folds to several, are one."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


class Originals:
    """Spans of one rule in a text that is folded as it arrives, given back as those of the original: see `joined`."""

    def __init__(self, folded: FoldedText) -> None:
        self._folded = folded
        self._last: list[tuple[int, int]] = []  # a span that a later one can meet in a character

    def of(self, spans: Iterable[tuple[int, int]], place: int, *, final: bool) -> list[tuple[int, int]]:
        """More spans, as far as they are certain. Later ones begin at a place of the folded text, or after it."""
        found = joined([*self._last, *map(self._folded.original, spans)])
        kept = bool(found) and not final and self._folded.place(place) < found[-1][1]
        self._last = [found.pop()] if kept else []
        return found

    @property
    def kept(self) -> int | None:
        """Where the span begins that is kept back."""
        return self._last[0][0] if self._last else None


def _denoted(text: str) -> Folded:
    pieces: list[str] = []
    begins = np.ones(len(text) + 1, bool)  # a character that is denoted begins here, or the text ends
    place = 0
    for character, start, end in escapes(text):
        pieces += text[place:start], character
        begins[start + 1 : end] = False
        place = end
    places = np.flatnonzero(begins)
    return Folded("".join((*pieces, text[place:])), places[:-1], places[1:])


class _Folds:
    """The images of single characters: as a table for `str.translate`, and their lengths."""

    def __init__(self, images: dict[str, str]) -> None:
        self.images = {ord(c): image for c, image in images.items()}
        self.lengths = np.ones(MAX_CODE_POINT + 1, np.uint8)
        self._changes = np.zeros(MAX_CODE_POINT + 1, bool)
        for code, image in self.images.items():
            self.lengths[code] = len(image)
            self._changes[code] = True
        self._ascii_stays = not self._changes[:128].any()

    def touch(self, text: str) -> bool:
        """Whether any character of a text does not fold to itself."""
        if not self.images or (self._ascii_stays and text.isascii()):
            return False
        return bool(self._changes[code_points(text)].any())


@cache
def _folds(normalize: str, ignore: tuple[str, ...]) -> _Folds:
    spec = FoldSpec("nfkc" if normalize == "nfkc" else "none", ignore)
    return _Folds(spec.images)
