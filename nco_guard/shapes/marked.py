"""Text that is looked through for marks, all tokens at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from nco_guard.compiler import compile_policy
from nco_guard.errors import PolicyError, ShapeError
from nco_guard.policy import Policy, RegexRule

__all__ = ["MarkedText", "TokenBytes", "marked_text", "plain_lengths"]

_STATES = 4096
_LONGEST = 32


class TokenBytes:
    """The bytes of tokens as one array. lengths: of each token; -1 for those that are too long, or hold nothing."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._tokens = tokens
        self.lengths = np.array([len(data) if 0 < len(data) <= _LONGEST else -1 for data in tokens])
        self.columns = np.zeros((_LONGEST, len(tokens)), np.uint8)
        for token, data in enumerate(tokens):
            if self.lengths[token] > 0:
                self.columns[: len(data), token] = np.frombuffer(data, np.uint8)
        self.first = self.columns[0]

    @cached_property
    def characters(self) -> list[int]:
        """How many characters begin in each token."""
        return [sum(byte & 0xC0 != 0x80 for byte in data) for data in self._tokens]

    @cached_property
    def plain(self) -> list[int]:
        """See `plain_lengths`."""
        return plain_lengths(self._tokens)


def plain_lengths(tokens: Sequence[bytes]) -> list[int]:
    """Of each token how many characters it is, if in a string of JSON they stand for themselves; else -1."""
    found: list[int] = []
    for data in tokens:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = ""
        plain = text and '"' not in text and "\\" not in text and min(text) >= " "
        found.append(len(text) if plain else -1)
    return found


class MarkedText:
    """The states of text in which patterns are searched. `table[state, byte]` is the next, or `~n` where n completes.

    Errors: `ShapeError` for patterns that are none, or have too many states.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        try:
            automata = [
                compile_policy(
                    Policy(name="mark", rules=[RegexRule(id="mark", regex=pattern, context="output")])
                )
                .constraints()[1]
                .automaton
                for pattern in patterns
            ]
        except PolicyError as error:
            raise ShapeError(f"a mark of the format cannot be searched for: {error}") from None
        numbers = {tuple(each.start for each in automata): 0}
        rows: list[NDArray[np.int32]] = []
        waiting = list(numbers)
        kinds = np.stack([each.byte_classes for each in automata])
        _, some, back = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
        for states in waiting:
            if len(numbers) > _STATES:
                raise ShapeError("the marks of the format have too many states")
            found = np.zeros(len(some), np.int32)
            for place, byte in enumerate(some.tolist()):
                after = [each.step(state, byte) for each, state in zip(automata, states, strict=True)]
                done = next((number for number, state in enumerate(after) if state < 0), None)
                if done is None:
                    key = tuple(after)
                    if key not in numbers:
                        numbers[key] = len(numbers)
                        waiting.append(key)
                    found[place] = numbers[key]
                else:
                    found[place] = ~done
            rows.append(found[back.reshape(-1)])
        self.table = np.stack(rows)
        self._rows = self.table.tolist()

    def step(self, state: int, byte: int) -> int:
        """The next state; `~n` where pattern n completes."""
        return int(self._rows[state][byte])

    def after_tokens(self, state: int, tokens: TokenBytes) -> NDArray[np.int32]:
        """The states after all tokens: negative where a pattern completes, or where the token is too long to tell."""
        known = self._after.get((state, id(tokens)))
        if known is None:
            reached = np.full(len(tokens.lengths), state, np.int32)
            for place, column in enumerate(tokens.columns):
                on = (tokens.lengths > place) & (reached >= 0)
                if not on.any():
                    break
                reached[on] = self.table[reached[on], column[on]]
            reached[tokens.lengths < 0] = -1
            known = self._after[state, id(tokens)] = reached
        return known

    @cached_property
    def _ways(self) -> dict[int, list[bytes]]:
        return {}

    @cached_property
    def _after(self) -> dict[tuple[int, int], NDArray[np.int32]]:
        return {}

    @property
    def ways(self) -> list[bytes]:
        """The shortest bytes after which pattern 0 completes, by state."""
        return self.ways_to(0)

    def ways_to(self, number: int) -> list[bytes]:
        """The shortest bytes after which a pattern completes, by state; none where others come before it."""
        if number not in self._ways:
            self._ways[number] = self._find_ways(number)
        return self._ways[number]

    def _find_ways(self, number: int) -> list[bytes]:
        found: list[bytes | None] = [None] * len(self.table)
        while None in found:
            before = list(found)
            for state, row in enumerate(self._rows):
                if before[state] is not None:
                    continue
                for byte, after in enumerate(row):
                    rest = b"" if after == ~number else before[after] if after >= 0 else None
                    if rest is not None and (
                        found[state] is None or len(rest) + 1 < len(found[state] or b"")
                    ):
                        found[state] = bytes([byte]) + rest
            if found == before:
                break
        return [way or b"" for way in found]


@lru_cache(maxsize=256)
def marked_text(*patterns: str) -> MarkedText:
    """`MarkedText`, kept."""
    return MarkedText(patterns)
