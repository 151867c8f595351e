"""Folding whole texts at once: what `automata.folding.fold_text` gives, with arrays for the places.

Most texts fold to themselves; that is found out by a look-up per character, and for ASCII text by none. Cost: some
nanoseconds per character then, some tens where anything is folded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.charsets import MAX_CODE_POINT
from nco_guard.automata.folding import FoldSpec, read_escapes, settle_escapes

__all__ = ["Folded", "fold", "settled_length"]

Places = NDArray[np.int64]
_LONGEST_ESCAPE = 12


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded text; `starts[i]` to `ends[i]` is where its character i comes from, None where it is in place."""

    text: str
    starts: Places | None = None
    ends: Places | None = None


def fold(text: str, spec: FoldSpec) -> Folded:
    """The folded text and where each of its characters comes from."""
    if spec.trivial:
        return Folded(text)
    denoted = _denoted(text) if spec.json_escapes and "\\" in text else Folded(text)
    folds = _folds(spec.normalize, spec.ignore)
    if not folds.touch(denoted.text):
        return denoted
    counts = folds.lengths[_points(denoted.text)]
    starts = np.arange(len(counts)) if denoted.starts is None else denoted.starts
    ends = np.arange(1, len(counts) + 1) if denoted.ends is None else denoted.ends
    return Folded(denoted.text.translate(folds.images), np.repeat(starts, counts), np.repeat(ends, counts))


def settled_length(text: str) -> int:
    """How much of a text is read alike whatever follows, where JSON escapes count."""
    place = 0
    while (place := text.find("\\", place)) >= 0:
        if len(text) - place < _LONGEST_ESCAPE:
            _, rest = settle_escapes(text[place:])
            return len(text) - len(rest)
        _, _, width = next(read_escapes(text[place : place + _LONGEST_ESCAPE]))
        place += width
    return len(text)


def _denoted(text: str) -> Folded:
    pieces: list[str] = []
    starts: list[Places] = []
    ends: list[Places] = []
    place = 0
    while place < len(text):
        escape = text.find("\\", place)
        plain = len(text) if escape < 0 else escape
        if plain > place:
            pieces.append(text[place:plain])
            starts.append(np.arange(place, plain))
            ends.append(np.arange(place + 1, plain + 1))
        if escape < 0:
            break
        character, _, width = next(read_escapes(text[escape : escape + _LONGEST_ESCAPE]))
        pieces.append(character)
        starts.append(np.array([escape]))
        ends.append(np.array([escape + width]))
        place = escape + width
    return Folded("".join(pieces), np.concatenate(starts), np.concatenate(ends))


def _points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


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
        if self._ascii_stays and text.isascii():
            return False
        return bool(self._changes[_points(text)].any())


@cache
def _folds(normalize: str, ignore: tuple[str, ...]) -> _Folds:
    spec = FoldSpec("nfkc" if normalize == "nfkc" else "none", ignore)
    return _Folds(spec.images)
