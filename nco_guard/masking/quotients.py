"""Smaller trees for automata that tell few bytes apart, shared by constraints with similar alphabets.

A rule about digits needs a node for "a digit, a digit, another character", not one for each of the 100,000 tokens that
look so to it. Constraints whose bytes fall into the same few classes share one quotient of the prefix tree.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from nco_guard.storage.store import Store, digest, made_by
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["Quotients"]

Classes = NDArray[np.uint8]

# Most classes of ASCII bytes for which a quotient is built, and up to which constraints share one. Text is mostly
# ASCII: with more, nearly all of the tree is left.
_ASCII_CLASSES = 10
_MOST = 24  # quotients, a megabyte each; a crowd of rules whose letters differ takes the whole tree
_SHARED_CLASSES = 16


def joint_classes(first: Classes, second: Classes) -> Classes:
    """The classes of bytes that either of two partitions tells apart, numbered from 0."""
    _, classes = np.unique(first.astype(np.int32) << 8 | second, return_inverse=True)
    found: Classes = classes.ravel().astype(np.uint8)
    return found


def _ascii_count(classes: Classes) -> int:
    return len(set(classes[:0x80].tolist()))


def _variety(classes: Classes) -> tuple[bool, int]:
    """The order in which quotients are planned: few classes first, but one class of ASCII characters last."""
    count = _ascii_count(classes)
    return count == 1, count


class Quotients:
    """The prefix tree of a vocabulary and its quotients, made as they are asked for. For use under one lock."""

    def __init__(self, tree: PrefixTree, vocabulary: Vocabulary, store: Store | None = None) -> None:
        self.tree = tree
        self._vocabulary = vocabulary
        self._store = store
        self._scratch: dict[int, NDArray[np.bool_]] = {}  # of trees that are kept here
        self._made: list[tuple[Classes, PrefixTree | None]] = []  # None: planned, not needed yet

    def plan(self, partitions: Iterable[Classes]) -> None:
        """Decide which constraints share a quotient; builds none.

        Well-formed UTF-8, which tells no ASCII characters apart, joins others but has no quotient made for it alone:
        its walks are short in any tree.
        """
        for classes in sorted(partitions, key=_variety):
            if _ascii_count(classes) > _ASCII_CLASSES or self._place(classes) is not None:
                continue
            for place, (other, made) in enumerate(self._made):
                joined = joint_classes(other, classes)
                if made is None and _ascii_count(joined) <= _SHARED_CLASSES:
                    self._made[place] = (joined, None)
                    break
            else:
                if _ascii_count(classes) > 1 and len(self._made) < _MOST:
                    self._made.append((classes, None))

    def _place(self, classes: Classes) -> int | None:
        """Where there is a quotient whose classes are as fine as these or finer."""
        for place, (finer, _) in enumerate(self._made):
            if joint_classes(finer, classes).max() == finer.max():
                return place
        return None

    def of(self, classes: Classes) -> PrefixTree:
        """The smallest tree at hand on which an automaton that tells these classes apart runs as on the whole one."""
        if _ascii_count(classes) > _ASCII_CLASSES:
            return self.tree
        place = self._place(classes)
        if place is None and (_ascii_count(classes) == 1 or len(self._made) >= _MOST):
            return self.tree
        if place is None:
            place = len(self._made)
            self._made.append((classes, None))
        finer, made = self._made[place]
        if made is None:
            made = self._kept(finer)
            self._made[place] = (finer, made)
        return made

    def _kept(self, classes: Classes) -> PrefixTree:
        if self._store is None:
            return self._merged(classes)
        key = digest(made_by(), self._vocabulary.digest, classes.tobytes())
        kept = self._store.load("quotient", key)
        if kept is None:
            made = self._merged(classes)
            self._store.save("quotient", key, {} if made is self.tree else made.to_arrays())
            return made
        return PrefixTree.from_arrays(kept, classes) if kept else self.tree

    def _merged(self, classes: Classes) -> PrefixTree:
        made = self.tree.quotient(classes)
        return self.tree if len(made) * 2 > len(self.tree) else made

    def scratch(self, tree: PrefixTree) -> NDArray[np.bool_]:
        """A bit for each node of a tree, for whoever leaves it all False; one for all users of the tree."""
        if id(tree) not in self._scratch:
            self._scratch[id(tree)] = np.zeros(len(tree), bool)
        return self._scratch[id(tree)]

    @property
    def nbytes(self) -> int:
        """Bytes held beyond the whole tree."""
        return sum(made.nbytes for _, made in self._made if made is not None and made is not self.tree)
