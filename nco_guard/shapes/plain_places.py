"""Where a text stands in its shape: two texts at one place can be continued by the same texts.

The library that enforces shapes does not say when two of its states are the same, and masks are worth keeping only if
texts come to where others were. So places are found beside it, by what is known of shapes of its kind (`shapes.places`
for JSON); where nothing is known, the whole text is its place, which is right and slow.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from nco_guard.automata import Automaton

__all__ = ["PatternPlaces", "Places", "TextPlaces"]


class Places(Protocol):
    """What knows where texts of a shape stand."""

    start: Any

    def feed(self, place: Any, data: bytes) -> Any:
        """The place after some bytes, which the library lets come; None where they must not come all the same."""

    def key(self, place: Any) -> Hashable:
        """Equal for places that can be continued by the same texts."""

    def kind(self, place: Any) -> Hashable:
        """Equal for places that can be brought to an end by the same ways, if they are `plain`."""

    def plain(self, place: Any, way: bytes) -> bool:
        """Whether what was written before does not matter for a way."""

    def may_end(self, place: Any) -> bool:
        """Whether a text that the library lets end may end."""

    @property
    def watches(self) -> bool:
        """Whether bytes besides those of keys may have to be refused."""

    def after_characters(self, place: Any, count: int) -> Any:
        """The place after so many plain characters, whichever they are; None where it depends on them."""

    def after_others(self, place: Any) -> tuple[Hashable, list[bytes]] | None:
        """The kind of the place after plain characters, and what they must not be a beginning of for that.

        None where it depends on more.
        """


class TextPlaces:
    """Of a shape of which nothing is known: each text is a place of its own."""

    start = b""
    watches = False

    def feed(self, place: bytes, data: bytes) -> bytes:
        """See `Places`."""
        return place + data

    def key(self, place: bytes) -> Hashable:
        """See `Places`."""
        return place

    kind = key

    def plain(self, place: bytes, way: bytes) -> bool:
        """See `Places`."""
        return True

    def may_end(self, place: bytes) -> bool:
        """See `Places`."""
        return True

    def after_characters(self, place: bytes, count: int) -> None:
        """See `Places`."""

    def after_others(self, place: bytes) -> None:
        """See `Places`."""


class PatternPlaces:
    """Of a regular expression: the states of an automaton that reads it."""

    watches = False

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self.start = automaton.start

    def feed(self, place: int, data: bytes) -> int:
        """See `Places`."""
        for byte in data:
            place = self._automaton.step(place, byte)
            place = ~place if place < 0 else place
        return place

    def key(self, place: int) -> Hashable:
        """See `Places`."""
        return place

    kind = key

    def plain(self, place: int, way: bytes) -> bool:
        """See `Places`."""
        return True

    def may_end(self, place: int) -> bool:
        """See `Places`."""
        return True

    def after_characters(self, place: int, count: int) -> None:
        """See `Places`."""

    def after_others(self, place: int) -> None:
        """See `Places`."""
