"""Things that are known by numbers: states by what they stand for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from nco_guard.errors import StateLimitError

__all__ = ["Numbered"]

T = TypeVar("T", bound=Hashable)


class Numbered(list[T]):
    """Things, each once, in the order in which they were met: the number of each is its place."""

    def __init__(self, things: Iterable[T] = ()) -> None:
        super().__init__(things)
        self._numbers = {thing: number for number, thing in enumerate(self)}

    def find(self, thing: T) -> int | None:
        """Its number; None if it has none yet."""
        return self._numbers.get(thing)

    def add(self, thing: T) -> int:
        """The number of what has none yet."""
        number = len(self)
        self.append(thing)  # first: a number that is known has a thing
        self._numbers[thing] = number
        return number

    def number(self, thing: T) -> int:
        """Its number, a new one where it has none yet."""
        known = self._numbers.get(thing)
        return self.add(thing) if known is None else known

    def state(self, thing: T, limit: int, whose: str, mend: str, rule_id: str | None = None) -> int:
        """As `number`, of what stands for a state; `StateLimitError` for a new one after `limit`."""
        known = self.find(thing)
        if known is not None:
            return known
        if len(self) >= limit:
            raise StateLimitError(f"{whose} passed its limit of {limit:,} states; {mend}", rule_id=rule_id)
        return self.add(thing)
