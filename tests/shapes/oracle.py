"""What a policy and a shape together let come, by trying all that can follow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from nco_guard.shapes import Shape
from nco_guard.shapes.library import GrammarReader, tokenizer_of

__all__ = ["allowed", "fits"]


class Fits:
    """Whether a finished text is of a shape and holds no match of some patterns; asked again and again."""

    def __init__(self, shape: Shape, patterns: Sequence[str]) -> None:
        self._matcher = GrammarReader(shape.grammar, tokenizer_of(None))
        self._start = self._matcher.at(b"")
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._known: dict[bytes, bool] = {}

    def __call__(self, text: bytes) -> bool:
        if text not in self._known:
            self._known[text] = self._find(text)
        return self._known[text]

    def _find(self, text: bytes) -> bool:
        if not self._matcher.leads(self._start, text, ends=True):
            return False
        return not any(pattern.search(text.decode()) for pattern in self._patterns)


def fits(shape: Shape, patterns: Sequence[str]) -> Fits:
    """The definition of what may be finished."""
    return Fits(shape, patterns)


def allowed(fitting: Fits, text: bytes, tokens: Sequence[bytes], remaining: int) -> list[int]:
    """The tokens after which at most so many further ones bring the text to where it may end."""
    found = []
    for number, token in enumerate(tokens):
        lengths = range(remaining + 1)
        ways = (b"".join(way) for length in lengths for way in product(tokens, repeat=length))
        if any(fitting(text + token + way) for way in ways):
            found.append(number)
    return found
