"""Ways out: a few short texts that are tried first to show that a text can be brought to an allowed end.

Whether rules leave each other a common way out takes a search in general. Nearly always a byte or two is proof enough:
a full stop, a space, a letter, or the rest of a character. Which of these *paths* each rule allows is a word of bits
per automaton state; what several rules allow together is their intersection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import BORDER, Automaton
from nco_guard.automata.combine.rewriting import CONTINUATION
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["NEVER", "Bits", "OpenPaths", "ShortWays", "borders_written", "is_letter", "short_ways"]

Bits = NDArray[np.int64]


LETTER_BYTES = 3
# The bytes that well-formed UTF-8 is made of.
_USED = np.array([byte for byte in range(0xF5) if byte not in (0xC0, 0xC1)], np.uint8)
#: Of a text that no tokens write: how many it needs.
NEVER = 1 << 30


def short_ways(tokens_needed: Callable[[bytes], int]) -> list[tuple[bytes, int]]:
    """The short texts that are tried first wherever a text is to be brought to an end, and how many tokens they take.

    Those that the tokens can write; a byte or two, or the rest of a character.
    """
    spread = (0x80, 0x90, 0xA0, 0xB0)
    texts = [
        *(bytes([b]) for b in b"ea .0-\nxZl_,"),
        *(bytes([b]) for b in spread),
        *(bytes([b, 0x80]) for b in spread),
        *(bytes([b, 0x80, 0x80]) for b in (0x80, 0x90)),
        # Short pieces of WordPiece vocabularies and the like.
        *(bytes([first, byte]) for first in (CONTINUATION, 0x20) for byte in b"ea.0-"),
    ]
    needed = ((text, tokens_needed(text)) for text in texts)
    return [(text, tokens) for text, tokens in needed if tokens < NEVER]


def is_letter(token: bytes) -> bool:
    """Whether a token is one of those that ways out are put together of where single bytes are no tokens."""
    return len(token) <= LETTER_BYTES and token.removeprefix(bytes([CONTINUATION])).isascii()


def borders_written(vocabulary: Vocabulary) -> list[bytes]:
    """The border, as what a way out may be made of, where some token is one."""
    border = bytes([BORDER])
    return [border] if any(vocabulary.tokens[token] == border for token in vocabulary.borders) else []


class ShortWays:
    """The short texts (`short_ways`) that a vocabulary can write, as paths that automata are led along together.

    Bit n of a word stands for path n. `tokens` int64 [paths]: how many tokens each takes; path 0 is to end at once.
    `longest`: bytes of the longest. `single` uint8: the bytes that are tokens of their own. `borders`: what beside
    characters a way out may be made of.
    """

    def __init__(self, tree: PrefixTree, borders: Sequence[bytes] = ()) -> None:
        """`borders`: `BORDER`, if a text can be cut."""
        self.borders = list(borders)
        last = int(tree.child_count[0]) + 1
        self.single: NDArray[np.uint8] = tree.byte[1:last][tree.exact[1:last] > 0]
        self._tree = tree
        self._needed: dict[bytes, int] = {}
        self._last: tuple[bytes, list[int]] = (b"", [0])
        found = [([], 0), *((list(text), tokens) for text, tokens in short_ways(self._tokens_needed))]
        self.tokens: NDArray[np.int64] = np.array([tokens for _, tokens in found], np.int64)
        self.every: int = (1 << len(found)) - 1
        self.longest: int = max(len(path) for path, _ in found)
        # Every beginning of a path, by length: where it goes on from in the level before, and its last byte.
        level: dict[tuple[int, ...], int] = {(): 0}
        self._levels: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []
        self._ends = [(0, [0], [0])]  # per level: (length, column of each path that ends there, its number)
        for length in range(1, 1 + max(len(path) for path, _ in found)):
            stems = dict.fromkeys(tuple(path[:length]) for path, _ in found if len(path) >= length)
            above = np.array([level[stem[:-1]] for stem in stems], np.int64)
            self._levels.append((above, np.array([stem[-1] for stem in stems], np.uint8)))
            level = {stem: column for column, stem in enumerate(stems)}
            ending = [(level[tuple(path)], n) for n, (path, _) in enumerate(found) if len(path) == length]
            self._ends.append((length, [column for column, _ in ending], [n for _, n in ending]))

    @cached_property
    def letters(self) -> list[bytes] | None:
        """What longer ways out are put together of (`ways`), sorted: short tokens in ASCII. None: all characters can be
        written by single bytes.
        """
        tree = self._tree
        if len(np.setdiff1d(_USED, self.single)) == 0:
            return None
        found: list[bytes] = []
        words, before = [b""], 0
        for first, last in tree.levels[:LETTER_BYTES]:
            steps = zip(tree.parent[first:last].tolist(), tree.byte[first:last].tolist(), strict=True)
            words, before = [words[parent - before] + bytes([byte]) for parent, byte in steps], first
            found += [
                word for word, exact in zip(words, tree.exact[first:last].tolist(), strict=True) if exact
            ]
        return sorted([*self.borders, *(word for word in found if is_letter(word))])

    def tokens_needed(self, text: bytes) -> int:
        """With how many tokens a text can be written at least; `NEVER`: it cannot be."""
        known = self._needed.get(text)
        if known is None:
            known = self._needed[text] = self._tokens_needed(text)
        return known

    def _tokens_needed(self, text: bytes) -> int:
        # Who asks of a text often asks of what is left of it, byte by byte.
        whole, fewest = self._last
        if not whole.endswith(text):
            whole, fewest = self._last = text, self._needed_from_each(text)
        return fewest[len(whole) - len(text)]

    def _needed_from_each(self, text: bytes) -> list[int]:
        """With how many tokens what is left of a text from each place on can be written at least."""
        tree = self._tree
        fewest = [NEVER] * len(text) + [0]
        for start in range(len(text) - 1, -1, -1):
            node, end = 0, start
            while end < len(text):
                first = int(tree.first_child[node])
                last = first + int(tree.child_count[node])
                node = first + int(np.searchsorted(tree.byte[first:last], text[end]))
                if node >= last or tree.byte[node] != text[end]:
                    break
                end += 1
                if tree.exact[node]:
                    fewest[start] = min(fewest[start], fewest[end] + 1)
        return fewest

    def ids_of(self, text: bytes) -> list[int]:
        """The tokens that are a text."""
        found: list[int] = self._tree.ids_of(text).tolist()
        return found

    def within(self, tokens: int) -> int:
        """The paths that take at most so many tokens, as bits."""
        return sum(1 << n for n, needed in enumerate(self.tokens.tolist()) if needed <= tokens)

    def open_from(self, automaton: Automaton, states: NDArray[np.int32]) -> Bits:
        """For each state, the paths that lead the automaton to an allowed end. Cost: a few array passes."""
        reached = states[:, None]
        bits: Bits = np.zeros(len(states), np.int64)
        for length, columns, numbers in self._ends:
            if length:
                above, symbols = self._levels[length - 1]
                before = reached[:, above]
                reached = np.full(before.shape, -1, np.int32)
                alive = before >= 0
                reached[alive] = automaton.step_many(
                    before[alive], np.broadcast_to(symbols, before.shape)[alive]
                )
            final = reached[:, columns]
            alive = final >= 0
            ends = np.zeros(final.shape, np.int64)
            ends[alive] = automaton.may_end_many(final[alive])
            bits |= ends @ (1 << np.array(numbers, np.int64))
        return bits


class OpenPaths:
    """`ShortWays.open_from` for one automaton, kept by state."""

    def __init__(self, paths: ShortWays, automaton: Automaton) -> None:
        self._paths = paths
        self._automaton = automaton
        self._known: dict[int, int] = {}

    def of(self, states: NDArray[np.int32]) -> Bits:
        """For each state, the paths that lead to an allowed end, as bits."""
        ways = np.full(len(states), self._paths.every, np.int64)
        near = np.flatnonzero(self._automaton.distances(states) <= self._paths.longest)
        if not len(near):
            return ways
        distinct, places = np.unique(states[near], return_inverse=True)
        known = self._known
        fresh = [state for state in distinct.tolist() if state not in known]
        if fresh:
            found = self._find(np.array(fresh, np.int32))
            known.update(zip(fresh, found.tolist(), strict=True))
        ways[near] = np.array([known[state] for state in distinct.tolist()], np.int64)[places.ravel()]
        return ways

    def _find(self, states: NDArray[np.int32]) -> Bits:
        return self._paths.open_from(self._automaton, states)

    @property
    def nbytes(self) -> int:
        """Bytes held (estimated)."""
        return 150 * len(self._known)
