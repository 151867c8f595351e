"""From bytes to characters: UTF-8 decoding as tables, and well-formedness as an automaton.

Source: The Unicode Standard, table 3-7 (well-formed UTF-8 byte sequences).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.charsets import MAX_CODE_POINT, CharClasses

__all__ = ["ILL_FORMED", "byte_classes_of", "utf8_table"]

ILL_FORMED = -1
_BLOCK = 64  # code points that share all bytes but the last


@lru_cache(maxsize=256)
def _shared_table(starts: bytes, range_classes: bytes) -> NDArray[np.int32]:
    return Utf8Classes(np.frombuffer(starts, np.int64), np.frombuffer(range_classes, np.int64)).table


def utf8_table(classes: CharClasses) -> NDArray[np.int32]:
    """`Utf8Classes.table` of these classes; rules that tell the same characters apart share one, read-only."""
    return _shared_table(classes.starts.tobytes(), classes.range_classes.tobytes())


def equal_columns(table: NDArray[np.int32]) -> NDArray[np.uint8]:
    """uint8 [256]: bytes of one class have equal columns in a table with a column for each byte."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(column.tobytes(), len(numbers)) for column in table.T], np.uint8)


def byte_classes_of(table: NDArray[np.int32]) -> NDArray[np.uint8]:
    """`equal_columns` of a table of `utf8_table`, but for the space, which is by itself."""
    classes = equal_columns(table)
    if np.count_nonzero(classes == classes[0x20]) > 1:
        classes[0x20] = classes.max() + 1
    return classes


class Utf8Classes:
    """A trie over the UTF-8 encoding that ends in the class of the character read.

    `table[node, byte]`: a class number (>= 0), `ILL_FORMED`, or `-2 - node` for a character that goes on in `node`.
    Node 0 stands between characters. Equal sub-tries are shared, so a pattern that treats all non-ASCII characters
    alike has 8 nodes. Cost: well under a millisecond, and some microseconds for each block of 64 characters that has
    several classes.
    """

    def __init__(self, starts: NDArray[np.int64], range_classes: NDArray[np.int64]) -> None:
        """The first code point of each elementary range, and its class."""
        self._rows: list[NDArray[np.int32]] = [np.full(256, ILL_FORMED, np.int32)]
        self._known: dict[bytes, int] = {}

        leaf = self._leaves(starts, range_classes)  # node of each block of 64 code points
        top = self._rows[0]
        top[0:0x80] = range_classes[np.searchsorted(starts, np.arange(0x80), side="right") - 1]
        top[0xC2:0xE0] = -2 - leaf[2:0x20]

        # Three bytes: 16 groups of 64 blocks; E0 starts at 0x800, ED stops before the surrogates.
        three = (-2 - leaf[: 16 * _BLOCK]).reshape(16, _BLOCK).copy()
        three[0, :0x20] = ILL_FORMED
        three[0xD, 0x20:] = ILL_FORMED
        top[0xE0:0xF0] = -2 - self._share(three)

        # Four bytes: planes 1 to 16 in groups of 64 blocks, then of 64 groups; F4 stops after 0x10FFFF.
        groups = self._share((-2 - leaf[16 * _BLOCK :]).reshape(-1, _BLOCK))
        four = np.full((5, _BLOCK), ILL_FORMED, np.int32)
        flat = -2 - groups
        four[0, 0x10:] = flat[:0x30]
        four[1] = flat[0x30:0x70]
        four[2] = flat[0x70:0xB0]
        four[3] = flat[0xB0:0xF0]
        four[4, :0x10] = flat[0xF0:0x100]
        top[0xF0:0xF5] = -2 - self._share(four)
        self.table: NDArray[np.int32] = np.stack(self._rows)
        self.table.flags.writeable = False

    def _leaves(self, starts: NDArray[np.int64], range_classes: NDArray[np.int64]) -> NDArray[np.int32]:
        # Only blocks within which a range begins hold several classes, and only those are written out.
        count = (MAX_CODE_POINT + 1) // _BLOCK
        bounds = np.append((starts + _BLOCK - 1) // _BLOCK, count)
        first_classes = np.repeat(range_classes, np.diff(bounds))  # of the first character of each block
        mixed = np.zeros(count, bool)
        mixed[starts[starts % _BLOCK > 0] // _BLOCK] = True
        node_of: NDArray[np.int32] = np.zeros(int(range_classes.max()) + 1, np.int32)
        for value in np.flatnonzero(np.bincount(first_classes[~mixed])).tolist():
            node_of[value] = self._node(np.full(_BLOCK, value, np.int32))
        nodes: NDArray[np.int32] = node_of[first_classes]
        written = np.flatnonzero(mixed)
        characters = written[:, None] * _BLOCK + np.arange(_BLOCK)
        owners = range_classes[np.searchsorted(starts, characters, side="right") - 1].astype(np.int32)
        nodes[written] = [self._node(row) for row in owners]
        return nodes

    def _share(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """A node for each row of 64 continuation bytes, equal rows sharing one."""
        return np.array([self._node(row) for row in rows], np.int32)

    def _node(self, continuation: NDArray[np.int32]) -> int:
        key = continuation.tobytes()
        node = self._known.get(key)
        if node is None:
            node = len(self._rows)
            row = np.full(256, ILL_FORMED, np.int32)
            row[0x80:0xC0] = continuation
            self._rows.append(row)
            self._known[key] = node
        return node
