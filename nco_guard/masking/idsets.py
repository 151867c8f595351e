"""Sorted arrays of token ids as sets.

NumPy's own set routines hash or sort whatever they get; for sets that are a good part of the vocabulary a bit per token
is several times faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_IDS", "Ids", "holds", "minus", "union"]

Ids = NDArray[np.int64]

NO_IDS: Ids = np.zeros(0, np.int64)
_SPARSE = 32  # below one in so many ids, sorting is the faster way


def holds(ids: Ids, token: int) -> bool:
    """Whether a token is among sorted ids. Cost: a binary search."""
    at = ids.searchsorted(token)
    return bool(at < len(ids) and ids[at] == token)


def union(parts: Sequence[Ids], width: int) -> Ids:
    """All ids of any of the sets, sorted. Cost: O(n log n), or O(width) for large sets."""
    total = sum(map(len, parts))
    if total * _SPARSE > width:
        mask = np.zeros(width, bool)
        for part in parts:
            mask[part] = True
        return np.flatnonzero(mask)
    if not total:
        return NO_IDS
    joined = np.concatenate(parts)
    joined.sort()
    fresh = np.ones(len(joined), bool)
    np.not_equal(joined[1:], joined[:-1], out=fresh[1:])
    return joined[fresh]


def minus(ids: Ids, gone: Ids, width: int) -> Ids:
    """The ids that are not in the second set, in their order. Both without duplicates."""
    if not len(gone) or not len(ids):
        return ids
    if (len(ids) + len(gone)) * _SPARSE > width:
        mask = np.ones(width, bool)
        mask[gone] = False
        return ids[mask[ids]]
    return ids[~np.isin(ids, gone, assume_unique=True, kind="sort")]
