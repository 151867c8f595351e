"""Strings, all at once: the Aho-Corasick automaton over bytes.

Matches are exact-case substrings anywhere; `folded` is for case folding and whole words. Cost: see `tries`;
a million strings of 16 bytes take some seconds and about 150 MB. `patterns_ending(state)` names the strings that end
in a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import Automaton
from nco_guard.automata.strings.tries import ROOT, SPACELESS, SymbolTrie

__all__ = ["AhoCorasick"]

_STATE_LIMIT = 1 << 30
_CHUNK = 8


class AhoCorasick(Automaton):
    """Finds every occurrence of any of the strings; goes on after a match, so overlapping ones are found too.

    Complete from the beginning and immutable, so it may be shared between threads and tables.

    Errors: `ValueError` for no strings or an empty one, `StateLimitError` for more than `state_limit` states.
    """

    start = ROOT
    spaceless_start = SPACELESS

    def __init__(self, patterns: Sequence[bytes], *, state_limit: int = _STATE_LIMIT) -> None:
        if not patterns or not all(patterns):
            raise ValueError("patterns must be one or more non-empty byte strings")
        lengths = np.fromiter(map(len, patterns), np.int32, len(patterns))
        self._build(b"".join(patterns), lengths, state_limit)

    @classmethod
    def of_texts(cls, strings: Sequence[str]) -> AhoCorasick:
        """The automaton of the UTF-8 bytes of the strings, without an object for each of them. Errors: as the class."""
        if not strings or not all(strings):
            raise ValueError("strings must be one or more non-empty texts")
        joined = "".join(strings)
        sizes = map(len, strings) if joined.isascii() else (len(s.encode()) for s in strings)
        automaton = cls.__new__(cls)
        automaton._build(joined.encode(), np.fromiter(sizes, np.int32, len(strings)), _STATE_LIMIT)
        return automaton

    def _build(self, data: bytes, lengths: NDArray[np.int32], state_limit: int) -> None:
        """From strings one after another, in any order."""
        buffer = np.frombuffer(data, np.uint8)
        starts, order = _sorted(buffer, lengths)
        used = np.bincount(buffer, minlength=256) > 0
        # Bytes that are in no string share symbol 0, if there are any; the others keep their order.
        numbers = np.cumsum(used) - int(used.all())
        self._classes: NDArray[np.uint8] = np.where(used, numbers, 0).astype(np.uint8)
        self._trie = SymbolTrie.build(
            self._classes[buffer],
            lengths[order],
            order,
            int(self._classes.max()) + 1,
            spaceless=int(self._classes[0x20]),
            state_limit=state_limit,
            starts=starts,
        )
        self._invert()

    def _invert(self) -> None:
        self._symbol_of = self._classes.tobytes()
        byte_of = bytearray(256)
        for byte, symbol in enumerate(self._symbol_of):
            byte_of[symbol] = byte
        self._byte_of = bytes(byte_of)  # of symbols that are in strings, each of which is one byte's

    def step(self, state: int, byte: int) -> int:
        """The next state, or `~next` if a match completes with this byte."""
        return self._trie.step(state, self._symbol_of[byte])

    def step_many(self, states: NDArray[np.int32], symbols: NDArray[np.uint8]) -> NDArray[np.int32]:
        """`step` for arrays of equal length. int32."""
        return self._trie.step_many(states, self._classes[symbols])

    @property
    def byte_classes(self) -> NDArray[np.uint8]:
        """uint8 [256]: bytes that are in no string are of one class, every other is its own."""
        return self._classes

    def forgets(self, byte: int) -> bool:
        """See `Automaton.forgets`: a byte that is in no string."""
        return byte != 0x20 and not self._classes[byte]

    def may_end(self, state: int) -> bool:
        """Always: an occurrence is complete with its last byte."""
        return True

    def may_end_many(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Always."""
        return np.ones(len(states), bool)

    def distances(self, states: NDArray[np.int32]) -> NDArray[np.uint8]:
        """How many more bytes each state needs, at least, for a match to complete with the last; 255: or more."""
        return self._trie.distances[states]

    def shorter(self, state: int) -> int | None:
        """The state of the longest proper ending of this one's text; None for a state without text.

        What completes a match from a state completes one from there too, or goes on with the state's whole text
        (`longer`).
        """
        return int(self._trie.fail[state]) if state > SPACELESS else None

    def longer(self, state: int) -> tuple[int, bytes]:
        """The bytes by which the text of this state goes on in some string; they lead to as many states from the first.

        Where a string ends in one of those (`outputs`), a match completes.
        """
        first, symbols = self._trie.children(state)
        return first, symbols.translate(self._byte_of)

    def longer_many(
        self, states: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.uint8]]:
        """`longer` for an array: all states led to, for each the index of where it comes from, and its byte."""
        reached, of = self._trie.children_many(states)
        return reached, of, np.frombuffer(self._byte_of, np.uint8)[self._trie.edges[reached]]

    def longer_by(self, states: NDArray[np.int32], symbols: NDArray[np.uint8]) -> NDArray[np.int32]:
        """The state to which the text of each leads by one of these bytes (`longer`), -1 where there is none."""
        return self._trie.child_many(states, self._classes[symbols])

    def ways(self, states: NDArray[np.int32]) -> int:
        """How many states `longer` leads to from these, and from there by one byte more."""
        return self._trie.descendants(states)

    def distance(self, state: int) -> int:
        """`distances` for one state."""
        return int(self._trie.distances[state])

    @property
    def distance_of_all(self) -> NDArray[np.uint8]:
        """uint8 [states]: `distances` of every state."""
        return self._trie.distances

    @property
    def outputs(self) -> NDArray[np.bool_]:
        """bool [states]: whether some string ends where a state's text does."""
        return self._trie.outputs

    def patterns_ending(self, state: int) -> list[int]:
        """Indices of the strings that end in this state, longest first."""
        return self._trie.ending(state)

    @property
    def state_count(self) -> int:
        """All states, the root and the second root included."""
        return self._trie.node_count

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        return self._trie.nbytes + self._classes.nbytes

    def found(self) -> dict[str, NDArray[Any]]:
        """Nothing: it is complete."""
        return {}

    def recall(self, arrays: Mapping[str, NDArray[Any]]) -> bool:
        """There is nothing to take up."""
        return True

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that it consists of, for a cache on disk; `from_arrays` reads it back. Shared, read-only."""
        return {**self._trie.to_arrays(), "classes": self._classes}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> AhoCorasick:
        """The automaton of these arrays, which it goes on using (they may be memory-mapped).

        Errors: `ValueError` for arrays by which a step could leave them. What passes is safe to run; that it is the
        automaton of the right strings is for the caller's checksum to tell.
        """
        classes = arrays.get("classes")
        if classes is None or classes.dtype != np.uint8 or classes.shape != (256,):
            raise ValueError("array 'classes' is missing, or not what an automaton for strings is made of")
        trie = SymbolTrie(arrays)
        if int(classes.max()) >= trie.symbol_count:
            raise ValueError("these arrays do not belong to one automaton for strings")
        automaton = cls.__new__(cls)
        automaton._classes = classes
        automaton._trie = trie
        automaton._invert()
        return automaton


def _sorted(
    buffer: NDArray[np.uint8], lengths: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where each string begins, in the order of the strings, and that order; equal strings in the order given.

    By eight bytes at a time, as numbers, and only where those before were equal. Cost: about 0.3 us a string.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    padded = np.concatenate([buffer, np.zeros(_CHUNK, np.uint8)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, _CHUNK)
    order = np.arange(len(lengths), dtype=np.int32)
    # Places in `order` at which the order is not settled; of those, the ones with one number are equal so far.
    places, group = order.copy(), np.zeros(len(order), np.int32)
    read = 0
    while len(places):
        rows = order[places]
        left = lengths[rows] - read
        keys = windows[ends[rows] - left].view(">u8").astype(np.uint64).ravel()
        # What comes after the end counts as zeros, and of strings that are equal so far the one that ends comes first.
        missing = (8 * (_CHUNK - np.minimum(left, _CHUNK))).astype(np.uint64)
        keys = keys >> missing << missing
        there = np.minimum(left, _CHUNK + 1).astype(np.int8)
        by = (there, keys, group) if read else (there, keys)
        moved = np.lexsort(by)
        order[places] = rows[moved]
        keys, there, group = keys[moved], there[moved], group[moved]
        fresh = np.ones(len(places), bool)
        fresh[1:] = (keys[1:] != keys[:-1]) | (there[1:] != there[:-1]) | (group[1:] != group[:-1])
        group = np.cumsum(fresh, dtype=np.int32)
        alone = fresh & np.append(fresh[1:], True)
        open_still = np.flatnonzero(~alone & (left[moved] > _CHUNK))
        places, group = places[open_still], group[open_still]
        read += _CHUNK
    return ends[order] - lengths[order], order
