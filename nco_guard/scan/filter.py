"""Where the conditions of rules hold in a text: a few array operations per character, for all rules together.

A text is an array of codes (see `conditions`). Two tables, indexed by pairs of neighbouring codes, say which of 32
groups of conditions allow a pair at places 0 and 1, and at places 2 and 3; what both allow is looked at again, place by
place, for as many characters as every match has. All of it is NumPy, in blocks that fit a processor's cache.

Cost: about 2 nanoseconds per character for ASCII text, 4 for other text, whatever the number of conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.charsets import code_points
from nco_guard.scan.conditions import ANY, HEAD, Head, Probe

__all__ = ["MARGIN", "Codes", "Condition", "Filter", "codes_of_text", "mask_of"]

Codes = NDArray[np.uint8]
Places = NDArray[np.int64]

MARGIN = 32
"""So many codes 0 follow the codes of a text: conditions look ahead, and beyond the end anything may come."""
_GROUPS = 32
_FEW = 8
_MOST_KEYS = 50_000
_HASH_BITS = 16
_KEPT_SETS = 4096
_NOWHERE = np.empty(0, np.int64)
_BLOCK = 1 << 16  # pairs; their tables and results stay in the cache


def codes_of_text(text: str) -> Codes:
    """The code of each character, and `MARGIN` zeros."""
    codes = np.zeros(len(text) + MARGIN, np.uint8)
    if text.isascii():
        codes[: len(text)] = np.frombuffer(text.encode("ascii"), np.uint8)
        return codes
    points = code_points(text)
    for low in range(0, len(points), _BLOCK):
        block = points[low : low + _BLOCK]
        above = block > 127
        codes[low : low + len(block)] = (block & 127) | (above.astype(np.uint8) << 7)
    return codes


@lru_cache(_KEPT_SETS)
def mask_of(codes: int) -> NDArray[np.bool_]:
    """A set of codes as a table. Shared, read-only."""
    bits = np.frombuffer(codes.to_bytes(32, "little"), np.uint8)
    mask = np.unpackbits(bits, bitorder="little").astype(bool)
    mask.flags.writeable = False
    return mask


@lru_cache(_KEPT_SETS)
def _members(codes: int) -> NDArray[np.int64]:
    return np.flatnonzero(mask_of(codes))


def _hashed(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return (keys * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - _HASH_BITS)


class _Combinations:
    """Looks up all codes of a head together, for conditions of which many combinations would go through a table."""

    def __init__(self, classes: NDArray[np.uint64], keys: dict[int, NDArray[np.uint64]]) -> None:
        self._classes = classes
        self._keys = keys  # by the length of the heads
        # Most places are told by tables of hashes of the first codes, which are quicker to ask.
        self._tables: dict[int, NDArray[np.bool_]] = {}
        for length, all_keys in keys.items():
            shown = min(length, HEAD)
            table = self._tables.setdefault(shown, np.zeros(1 << _HASH_BITS, bool))
            table[_hashed(all_keys >> np.uint64(8 * (length - shown)))] = True

    @classmethod
    def of(cls, heads: Sequence[Head]) -> _Combinations | None:
        """None for few combinations, and where they are too many to list."""
        if len(heads) < _FEW:
            return None
        # Codes that no head tells apart are one class.
        named = sorted({codes for head in heads for codes in head})
        member = np.ascontiguousarray(np.stack([mask_of(codes) for codes in named], axis=1))
        numbers: dict[bytes, int] = {}
        classes = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in member])
        of_codes = {codes: np.unique(classes[_members(codes)]).astype(np.uint64) for codes in named}
        keys: dict[int, list[NDArray[np.uint64]]] = {}
        count = 0
        for head in heads:
            key = np.zeros(1, np.uint64)
            for codes in head:
                key = ((key << np.uint64(8))[:, None] | of_codes[codes]).reshape(-1)
                if len(key) > _MOST_KEYS:
                    return None
            count += len(key)
            if count > _MOST_KEYS + 100 * len(heads):
                return None
            keys.setdefault(len(head), []).append(key)
        return cls(
            classes.astype(np.uint64),
            {length: np.unique(np.concatenate(keys[length])) for length in sorted(keys)},
        )

    def hold(self, codes: Codes, places: Places) -> NDArray[np.bool_]:
        """Whether the codes at each place are one of the combinations."""
        held = np.zeros(len(places), bool)
        key = np.zeros(len(places), np.uint64)
        for ahead in range(HEAD):
            key = (key << np.uint64(8)) | self._classes[codes[places + ahead]]
            table = self._tables.get(ahead + 1)
            if table is not None:
                held |= table[_hashed(key)]
        kept = np.flatnonzero(held)
        places, read = places[kept], 0
        key = np.zeros(len(kept), np.uint64)
        sure = np.zeros(len(kept), bool)
        for length, keys in self._keys.items():
            for ahead in range(read, length):
                key = (key << np.uint64(8)) | self._classes[codes[places + ahead]]
            read = length
            at = np.searchsorted(keys, key)
            sure |= keys[np.minimum(at, len(keys) - 1)] == key
        held[kept] = sure
        return held


class Condition:
    """A probe made ready to be asked for, whatever other ones it is asked for with."""

    def __init__(self, probe: Probe) -> None:
        self.heads = sorted(probe.heads)
        self.follow = [(place, mask_of(codes)) for place, codes in enumerate(probe.follow) if codes != ANY]
        self.exact = _Combinations.of(probe.heads)
        self.before = None if probe.before == ANY else mask_of(probe.before)


class Filter:
    """Finds where each of several conditions holds."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self._conditions = tuple(conditions)
        self._first = np.zeros((256, 256), np.uint32)  # [second code, first code], as pairs lie in memory
        self._second = np.zeros((256, 256), np.uint32)
        self._groups = [np.uint32(0)] * len(conditions)
        for index, count, low in self._shares():
            heads = self._conditions[index].heads
            for number in range(count):
                bit = np.uint32(1 << low + number)
                self._groups[index] |= bit
                self._enter(heads[len(heads) * number // count : len(heads) * (number + 1) // count], bit)

    def _shares(self) -> list[tuple[int, int, int]]:
        """(condition, how many groups it has, the first of them).

        Those with many heads have several for themselves, the others share what is left.
        """
        sizes = [len(condition.heads) for condition in self._conditions]
        total = sum(sizes)
        order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
        shares: list[tuple[int, int, int]] = []
        low = 0
        for rank, index in enumerate(order):
            heads = sizes[index]
            left = min(len(order) - rank - 1, _GROUPS // 2)  # groups that the others should find
            count = max(1, min(_GROUPS * heads // total, heads, _GROUPS - low - left))
            if low >= _GROUPS:
                count, at = 1, _GROUPS - 1 - rank % (_GROUPS // 2)
            else:
                at, low = low, low + count
            shares.append((index, count, at))
        return shares

    def _enter(self, heads: Sequence[Head], bit: np.uint32) -> None:
        pairs: list[set[tuple[int, int]]] = [set(), set()]
        for head in heads:
            a, b, c, d = (*head[:HEAD], *([ANY] * (HEAD - len(head))))
            pairs[0].add((a, b))
            pairs[1].add((c, d))
        for table, entries in zip((self._first, self._second), pairs, strict=True):
            for one, other in entries:
                rows, columns = _members(other), _members(one)
                if len(rows) * len(columns) == 1:
                    table[rows[0], columns[0]] |= bit
                else:
                    table[np.ix_(rows, columns)] |= bit

    def hits(self, codes: Codes, *, is_open: bool = False) -> list[Places]:
        """For each condition the places at which it may hold, ascending; none at which it does is left out.

        `codes` ends with `MARGIN` zeros. `is_open`: the text goes on, so within `MARGIN` of its end all may hold.
        """
        length = len(codes) - MARGIN
        places, groups = self._coarse(codes, length)
        present = int(np.bitwise_or.reduce(groups, initial=np.uint32(0)))
        chosen: dict[int, Places] = {}  # small conditions share groups
        found: list[Places] = []
        tail = np.arange(max(0, length - MARGIN), length + 1) if is_open else _NOWHERE
        for condition, group in zip(self._conditions, self._groups, strict=True):
            hits = _NOWHERE
            if int(group) & present:
                shared = int(group)
                if shared not in chosen:
                    chosen[shared] = places[(groups & group) != 0]
                hits = chosen[shared]
                before, exact = condition.before, condition.exact
                if before is not None and len(hits):
                    preceding = codes[np.maximum(hits - 1, 0)]
                    hits = hits[before[preceding] | (hits == 0)]
                if exact is not None and len(hits):
                    hits = hits[exact.hold(codes, hits)]
                for place, allowed in condition.follow:
                    if not len(hits):
                        break
                    hits = hits[allowed[codes[hits + place]]]
                hits.sort()
            if len(tail):
                hits = np.concatenate((hits[hits < tail[0]], tail))
            found.append(hits)
        return found

    def _coarse(self, codes: Codes, length: int) -> tuple[Places, NDArray[np.uint32]]:
        """Places before `length` that the tables leave, in no order, and the groups that allow each.

        A place at the end would be an empty match, for which there are no conditions; and those in the margin, which
        open classes such as `\\D` allow, have no margin of their own to look ahead in.
        """
        codes = codes[: len(codes) // 2 * 2]
        first, second = self._first.reshape(-1), self._second.reshape(-1)
        left, right = np.empty(_BLOCK, np.uint32), np.empty(_BLOCK, np.uint32)
        places: list[Places] = []
        groups: list[NDArray[np.uint32]] = []
        for shift in (0, 1):
            pairs = codes[shift : len(codes) - shift].view("<u2")
            count = (length - shift + 1) // 2  # of pairs that begin before `length`
            for low in range(0, count, _BLOCK):
                size = min(_BLOCK, count - low)
                # "clip" is the mode that writes into `out` directly; every pair is in range.
                np.take(first, pairs[low : low + size], out=left[:size], mode="clip")
                np.take(second, pairs[low + 1 : low + 1 + size], out=right[:size], mode="clip")
                both = np.bitwise_and(left[:size], right[:size], out=left[:size])
                kept = np.flatnonzero(both != 0)  # of booleans: an array of integers takes ten times as long
                if len(kept):
                    groups.append(both[kept])
                    places.append((kept + low) * 2 + shift)
        if not places:
            return _NOWHERE, np.empty(0, np.uint32)
        return np.concatenate(places), np.concatenate(groups)
