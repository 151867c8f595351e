"""Where a text stands in its shape: two texts at one place can be continued by the same texts.

The library that enforces shapes does not say when two of its states are the same, and masks are worth keeping only if
texts come to where others were. So places are found beside it, by what is known of shapes of its kind (`shapes.places`
for JSON); where nothing is known, the whole text is its place, which is right and slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol

from nco_guard.automata import Automaton
from nco_guard.shapes.needed import some_characters
from nco_guard.shapes.rests import letters_first, texts_of

__all__ = ["PatternPlaces", "Places", "TextPlaces"]

# Regular expressions and literals as they stand in grammars.
_REGEXES = re.compile(r"/((?:\\.|[^/\\\n])+)/")
_LITERALS = re.compile(r'"((?:\\.|[^"\\\n])+)"')
_MOST = 50
# Bytes before a place in which a text is looked for that is proposed there.
_NEAR = 64
# States that are looked at for a shortest rest.
_LOOKED = 20_000


class Places(Protocol):
    """What knows where texts of a shape stand."""

    start: Any

    def feed(self, place: Any, data: bytes) -> Any:
        """The place after some bytes, which the library lets come; None where they must not come all the same."""

    def key(self, place: Any) -> Hashable:
        """Equal for places that can be continued by the same texts."""

    def kind(self, place: Any) -> Hashable:
        """Equal for places that can be brought to an end by the same ways, if they are `plain`."""

    def akin(self, place: Any) -> Hashable:
        """Equal for places of which a way of one is most likely as good a way of another; the library is asked."""

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

    def alike(self, place: Any) -> Hashable:
        """As `kind`, but equal also for places of which it is likely only; by this no place is left out for good."""

    def toward(self, place: Any) -> Iterable[bytes]:
        """Proposals of texts that bring what is being written to its end; the library is to be asked of them."""


class TextPlaces:
    """Of a grammar, of which nothing is known but the texts of its terminals: each text is a place of its own."""

    start = b""
    watches = False

    def __init__(self, grammar: str) -> None:
        found = [text for pattern in _REGEXES.findall(grammar) for text in texts_of(pattern)]
        found += [text for text in _LITERALS.findall(grammar) if "\\" not in text]
        self._texts = [text.encode("utf-8", "surrogatepass") for text in dict.fromkeys(found) if text][:_MOST]

    def feed(self, place: bytes, data: bytes) -> bytes:
        """See `Places`."""
        return place + data

    def key(self, place: bytes) -> Hashable:
        """See `Places`."""
        return place

    kind = alike = akin = key

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

    def toward(self, place: bytes) -> Iterable[bytes]:
        """See `Places`: what terminals say, unless it stands right before."""
        return [text for text in self._texts if text not in place[-_NEAR - len(text) :]]


class PatternPlaces:
    """Of a regular expression: the states of an automaton that reads it."""

    watches = False

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._rests: dict[int, bytes | None] = {}
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

    kind = alike = akin = key

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

    def toward(self, place: int) -> Iterable[bytes]:
        """See `Places`."""
        first = place
        if place not in self._rests:
            rest = _shortest_rest(self._automaton, place, lambda one: not self._automaton.may_end(one))
            self._rests[place] = rest
            while rest:
                # What is left of a shortest rest is one too.
                place, rest = self.feed(place, rest[:1]), rest[1:]
                self._rests.setdefault(place, rest)
        known = self._rests[first]
        return () if known is None else (known,)


def _shortest_rest(automaton: Automaton, place: int, ended: Callable[[int], bool]) -> bytes | None:
    """A shortest text that leads an automaton to where a text may have `ended`; None where none was found."""
    kinds = automaton.kinds
    letters = [chr(code) for code in range(0x20, 0x7F)] if kinds is None else some_characters([kinds])
    texts = [letter.encode() for letter in letters_first(letters)]
    came: dict[int, bytes] = {place: b""}
    level = [place]
    while level and len(came) <= _LOOKED:
        ahead: list[int] = []
        for one in level:
            if ended(one):
                return came[one]
            for text in texts:
                after = one
                for byte in text:
                    after = automaton.step(after, byte)
                    after = ~after if after < 0 else after
                if after not in came:
                    came[after] = came[one] + text
                    ahead.append(after)
        level = ahead
    return None
