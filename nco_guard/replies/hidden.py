"""Texts that are left out of a reply wherever they stand: special tokens that are no marks, where they are decoded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["Beginnings", "HiddenTexts", "first_whole"]


def first_whole(texts: Iterable[str]) -> tuple[str, ...]:
    """Of texts that are taken out, those that can be whole first: not one in which another ends before it does.

    Taken out by these, the leftmost first, a text is read the same however it is cut. Shortest first.
    """
    some = {*texts} - {""}
    first = (one for one in some if not any(other in one[:-1] for other in some))
    return tuple(sorted(first, key=lambda one: (len(one), one)))


class Beginnings:
    """Of texts that are looked for in pieces: whether the end of what is there may be the beginning of one."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._beginnings = frozenset(text[:size] for text in texts for size in range(1, len(text)))
        self._longest = max(map(len, self._beginnings), default=0)

    def at_end(self, text: str) -> int:
        """How many characters at the end."""
        sizes = range(min(len(text), self._longest), 0, -1)
        return next((size for size in sizes if text[-size:] in self._beginnings), 0)


class HiddenTexts:
    """Takes some texts out of another one that comes in pieces; what stood around one is not joined to another.

    held: what may be the beginning of one.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        texts = first_whole(texts)
        self._pattern = re.compile("|".join(map(re.escape, texts)))
        self._beginnings = Beginnings(texts)
        self.held = ""

    def feed(self, text: str) -> str:
        """Take a further piece; what may be shown of it and what was held."""
        read, kept, at = self.held + text, list[str](), 0
        for found in self._pattern.finditer(read):
            kept.append(read[at : found.start()])
            at = found.end()
        cut = len(read) - self._beginnings.at_end(read[at:])
        self.held = read[cut:]
        return "".join(kept) + read[at:cut]

    def finish(self) -> str:
        """Nothing follows; what was held."""
        left, self.held = self.held, ""
        return left
