"""Time: one call, and calls that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

__all__ = ["in_turns", "timed", "turns"]

K = TypeVar("K")
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


def in_turns(
    calls: Mapping[K, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
    *,
    warm: int = 1,
) -> dict[K, list[float]]:
    """Seconds of each call, of processor time unless said otherwise; the first `warm` rounds do not count."""
    found: dict[K, list[float]] = {name: [] for name in calls}
    for number, name in turns(list(calls), warm + rounds):
        seconds = timed(calls[name], clock)[1]
        if number >= warm:
            found[name].append(seconds)
    return found
