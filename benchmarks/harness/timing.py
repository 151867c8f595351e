"""Time: one call, and calls that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["timed", "turns"]

T = TypeVar("T")


def timed(work: Callable[[], T], clock: Callable[[], float] = time.perf_counter) -> tuple[T, float]:
    """The result, and seconds of wall-clock time, or of another clock."""
    started = clock()
    result = work()
    return result, clock() - started


def turns(methods: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """A B C, B C A, ...: each method once a round, another one first each time."""
    for number in range(rounds):
        first = number % max(1, len(methods))
        for method in (*methods[first:], *methods[:first]):
            yield number, method
