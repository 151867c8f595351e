"""One lock for all that is found lazily, which a long search gives up in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Turns"]

# Seconds for which the lock is free, at least, when it is given up for others.
_MOMENT = 1e-4


class Turns:
    """A re-entrant lock. Whoever holds it for long lets those who wait for it in, wherever nothing is half done.

        turns = Turns()
        with turns.taken():
            for step in steps:
                turns.give_way()
                ...

    Cost: a microsecond; of `give_way`, a fraction of that where nobody waits, and some 100 where somebody does.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._free = threading.Condition(self._lock)
        # Threads, rather than how many: what an interrupted thread has left here is gone with its next turn.
        self._waiting: dict[int, None] = {}

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the lock."""
        thread = threading.get_ident()
        self._waiting[thread] = None
        with self._lock:
            self._waiting.pop(thread, None)
            yield

    def give_way(self) -> None:
        """Where others wait for the lock, which this thread holds, let them have it first.

        However often it is held: all that is under it must be fit for others to see.
        """
        if self._waiting:
            thread = threading.get_ident()
            self._waiting[thread] = None
            self._free.wait(_MOMENT)
            self._waiting.pop(thread, None)
