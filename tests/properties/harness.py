"""How properties are run: a few examples, the same each time, in the quick run; many random ones in the long run."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
LONG = settings(
    max_examples=int(os.environ.get("NCO_GUARD_EXAMPLES", "1500")),
    deadline=None,
    suppress_health_check=_CHECKS,
)

PROPERTIES: dict[str, Callable[[], None]] = {}


class TooSlow(Exception):
    """`re` backtracks for too long; the example proves nothing and is not counted."""


@contextmanager
def limited(seconds: float = 2.0) -> Iterator[None]:
    """Raises `TooSlow` where the reference takes longer."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before: Any = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def prop(
    examples: int, **drawn: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A property of `drawn`: a quick test, and one of the long run (`test_at_length`)."""

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(body)
        def judged(**values: Any) -> None:
            try:
                body(**values)
            except TooSlow:
                hypothesis.reject()

        quick = settings(
            max_examples=examples,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=_CHECKS,
        )
        PROPERTIES[body.__name__.removeprefix("test_")] = LONG(given(**drawn)(judged))
        return quick(given(**drawn)(judged))

    return decorate
