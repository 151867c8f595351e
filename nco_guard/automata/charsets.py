"""Sets of characters, and the classes of characters that a pattern cannot tell apart.

A `CharSet` is a sorted tuple of disjoint, non-adjacent inclusive ranges of code points. What a piece of a regular
expression matches is never worked out by casing rules of our own: categories, and everything under IGNORECASE,
are read off by running Python's `re` on the characters in question.

`CharClasses` splits all code points into classes such that every set handed to it is a union of classes
("minterms"). Automata then run over a handful of classes instead of 1.1 million characters.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import cpython

__all__ = [
    "ALL",
    "NEWLINE",
    "CharClasses",
    "CharSet",
    "both",
    "charset_of",
    "complement",
    "decimal_digits",
    "same_letter",
    "same_lower",
    "union",
    "word",
]

MAX_CODE_POINT = 0x10FFFF
CharSet = tuple[tuple[int, int], ...]

ALL: CharSet = ((0, MAX_CODE_POINT),)
EMPTY: CharSet = ()
NEWLINE: CharSet = ((0x0A, 0x0A),)

# Characters with case all lie in planes 0 and 1; a test compares this bound with a scan of all planes.
_LAST_CASED = 0x1FFFF


def union(*sets: CharSet) -> CharSet:
    """All characters of any of the sets. Cost: O(n log n) in the number of ranges."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(r for s in sets for r in s):
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: CharSet) -> CharSet:
    """All code points that are not in the set."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in ranges:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE_POINT:
        gaps.append((start, MAX_CODE_POINT))
    return tuple(gaps)


def both(first: CharSet, second: CharSet) -> CharSet:
    """The characters that are in both sets. Cost: O(n log m) in the ranges of the smaller and the larger set."""
    few, many = sorted((first, second), key=len)
    found: list[tuple[int, int]] = []
    for low, high in few:
        # From the last range that begins at or before `low`.
        for start, end in many[max(0, bisect_right(many, (low, MAX_CODE_POINT)) - 1) :]:
            if start > high:
                break
            if end >= low:
                found.append((max(low, start), min(high, end)))
    return tuple(found)


@cache
def decimal_digits() -> dict[int, CharSet]:
    r"""The characters of `\d`, by their value from 0 to 9."""
    found: dict[int, list[int]] = {}
    for low, high in _category("CATEGORY_DIGIT", False):
        for code in range(low, high + 1):
            found.setdefault(unicodedata.decimal(chr(code)), []).append(code)
    return {value: union(tuple((c, c) for c in codes)) for value, codes in found.items()}


def charset_of(leaf: tuple[Any, Any], flags: int) -> CharSet:
    """The characters that one leaf of a parsed pattern matches, exactly as `re` with these flags would have it.

    `leaf` is an (opcode, argument) pair of CPython's parser: LITERAL, NOT_LITERAL, ANY or IN.
    """
    caseless = bool(flags & re.IGNORECASE)
    exact = _exact(leaf, flags)
    if not caseless:
        return exact
    # Only characters that take part in case mapping can be matched differently; ask `re` about those.
    cased, cased_ranges = _cased_characters()
    found = [ord(c) for c in cpython.leaf_matcher(leaf, flags).findall(cased)]
    untouched = complement(union(complement(exact), cased_ranges))
    return union(untouched, tuple((c, c) for c in found))


@lru_cache(maxsize=1 << 16)
def same_letter(character: str) -> CharSet:
    """The characters that `re.IGNORECASE` takes for this one, itself among them."""
    return charset_of((cpython.LITERAL, ord(character)), int(re.IGNORECASE | re.UNICODE))


def _exact(leaf: tuple[Any, Any], flags: int) -> CharSet:
    op, argument = leaf
    if op is cpython.LITERAL:
        return ((argument, argument),)
    if op is cpython.NOT_LITERAL:
        return complement(((argument, argument),))
    if op is cpython.ANY:
        return ALL if flags & re.DOTALL else complement(NEWLINE)
    negated = False
    parts: list[CharSet] = []
    for item, value in argument:
        if item is cpython.NEGATE:
            negated = True
        elif item is cpython.LITERAL:
            parts.append(((value, value),))
        elif item is cpython.RANGE:
            parts.append((tuple(value),))
        else:
            parts.append(_category(str(value), bool(flags & re.ASCII)))
    ranges = union(*parts)
    return complement(ranges) if negated else ranges


_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


@cache
def _category(name: str, ascii_only: bool) -> CharSet:
    escape = _CATEGORIES[name]
    if escape[1].isupper():
        return complement(_category(name.replace("NOT_", ""), ascii_only))
    last = 0x7F if ascii_only else MAX_CODE_POINT
    characters = np.arange(last + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    runs = re.compile(f"{escape}+", re.ASCII if ascii_only else 0).finditer(characters)
    return tuple((m.start(), m.end() - 1) for m in runs)


def word(ascii_only: bool = False) -> CharSet:
    r"""The characters of `\w`, which decide where `\b` holds."""
    return _category("CATEGORY_WORD", ascii_only)


@cache
def _cased_characters() -> tuple[str, CharSet]:
    lower = cpython.unicode_lower
    found: set[int] = set()
    for c in range(_LAST_CASED + 1):
        image = lower(c)
        if image != c:
            found.add(c)
            found.add(image)
    for c, others in cpython.extra_cases().items():
        found.add(c)
        found.update(others)
    members = sorted(found)
    return "".join(map(chr, members)), union(tuple((c, c) for c in members))


@cache
def same_lower(code: int, *, ascii_only: bool = False) -> CharSet:
    """The characters that a backreference under IGNORECASE takes for this one: `re` compares their lower case only."""
    lower = cpython.ascii_lower if ascii_only else cpython.unicode_lower
    image = lower(code)
    return union(
        ((code, code),), *(((ord(c), ord(c)),) for c in _cased_characters()[0] if lower(ord(c)) == image)
    )


def code_points(text: str) -> NDArray[np.uint32]:
    """The characters of a text, as an array. Read-only."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


class CharClasses:
    """Classes of code points that a family of character sets cannot tell apart.

    `count` classes, numbered from 0; `starts[i]` is the first code point of the i-th elementary range and
    `range_classes[i]` its class. Cost: O(n log n) in the number of ranges.
    """

    def __init__(self, sets: Iterable[CharSet]) -> None:
        distinct = list(dict.fromkeys(sets))
        edges = {0}
        for ranges in distinct:
            for low, high in ranges:
                edges.add(low)
                edges.add(high + 1)
        edges.discard(MAX_CODE_POINT + 1)
        self.starts: NDArray[np.int64] = np.array(sorted(edges), dtype=np.int64)
        membership = np.zeros((len(self.starts), max(1, len(distinct))), dtype=bool)
        for column, ranges in enumerate(distinct):
            if ranges:
                lows = np.array([r[0] for r in ranges])
                position = np.searchsorted(lows, self.starts, side="right") - 1
                highs = np.array([r[1] for r in ranges])
                membership[:, column] = (position >= 0) & (self.starts <= highs[position])
        packed = np.packbits(membership, axis=1)
        signatures: dict[bytes, int] = {}
        self.range_classes: NDArray[np.int64] = np.array(
            [signatures.setdefault(row.tobytes(), len(signatures)) for row in packed], dtype=np.int64
        )
        self.count = len(signatures)
        first = {c: i for i, c in reversed(list(enumerate(self.range_classes.tolist())))}
        self._ascii: bytes | None = None
        self._masks: dict[CharSet, int] = {}
        for column, ranges in enumerate(distinct):
            self._masks[ranges] = sum(1 << c for c in range(self.count) if membership[first[c], column])

    @classmethod
    def of_disjoint(cls, sets: Sequence[CharSet]) -> CharClasses:
        """Classes for sets of which no two share a character: class `i + 1` is `sets[i]`, class 0 all the rest.

        Cost: linear, where `CharClasses(sets)` is quadratic in the number of sets; `mask` knows nothing of them.
        """
        ranges = sorted((low, high, i) for i, members in enumerate(sets, start=1) for low, high in members)
        bounds: list[tuple[int, int]] = []
        position = 0
        for low, high, owner in ranges:
            if low > position:
                bounds.append((position, 0))
            bounds.append((low, owner))
            position = high + 1
        if position <= MAX_CODE_POINT:
            bounds.append((position, 0))
        classes = cls(())
        classes.starts = np.array([start for start, _ in bounds], np.int64)
        classes.range_classes = np.array([owner for _, owner in bounds], np.int64)
        classes.count = len(sets) + 1
        return classes

    @classmethod
    def of_ranges(cls, starts: NDArray[np.int64], range_classes: NDArray[np.int64]) -> CharClasses:
        """The classes that had these `starts` and `range_classes`; `mask` knows nothing of their sets."""
        classes = cls(())
        classes.starts, classes.range_classes = starts, range_classes
        classes.count = int(range_classes.max()) + 1
        return classes

    def sets(self) -> list[CharSet]:
        """Each class as a set of characters."""
        ends = np.append(self.starts[1:], MAX_CODE_POINT + 1) - 1
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.count)]
        for low, high, owner in zip(
            self.starts.tolist(), ends.tolist(), self.range_classes.tolist(), strict=True
        ):
            found[owner].append((low, high))
        return [union(tuple(ranges)) for ranges in found]

    def mask(self, ranges: CharSet) -> int:
        """The classes that make up one of the given sets, as a bit mask."""
        return self._masks[ranges]

    def of_text(self, text: str) -> Sequence[int]:
        """The class of each character of a text. Cost: a table look-up per character for ASCII, else as `of`."""
        if self.count <= 256 and text.isascii():
            if self._ascii is None:
                self._ascii = bytes(self.of(np.arange(128, dtype=np.uint32)).tolist()).ljust(256, b"\0")
            return text.encode("ascii").translate(self._ascii)
        found: list[int] = self.of(code_points(text)).tolist()
        return found

    def of(self, code_points: NDArray[np.uint32]) -> NDArray[np.int64]:
        """The class of each code point. Cost: one binary search per character, vectorised."""
        found: NDArray[np.int64] = self.range_classes[
            np.searchsorted(self.starts, code_points, side="right") - 1
        ]
        return found
