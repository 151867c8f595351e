"""Counts over time in a bounded number of buckets, whatever the span of time turns out to be.

Buckets begin one second wide and are merged into wider ones when they become too many, so one pass is enough and
nothing is kept but a few thousand buckets. Widths divide one another, so merging loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from nco_guard.audit.report.model import Bucket, Timeline

__all__ = ["TimelineCounter"]

_WIDTHS: Final = (1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 86400, 7 * 86400, 28 * 86400, 364 * 86400)
# A Monday, so that weeks begin on one.
_ORIGIN: Final = datetime(1969, 12, 29, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_HELD: Final = 2048
_SHOWN: Final = 60


@dataclass(slots=True)
class Counts:
    """What happened in one bucket: becomes a `Bucket`."""

    interventions: int = 0
    removed_probability: float = 0.0
    dead_ends: int = 0
    violations: int = 0
    errors: int = 0
    runs: int = 0

    def add(self, other: Counts) -> None:
        """Count the other's too."""
        for name, more in asdict(other).items():
            setattr(self, name, getattr(self, name) + more)


def _wider(width: int) -> Iterator[int]:
    yield from (one for one in _WIDTHS if one > width)
    width = max(width, _WIDTHS[-1])
    while True:
        width *= 10
        yield width


@dataclass(slots=True)
class TimelineCounter:
    """Collects counts by time; not thread-safe."""

    width: int = 1
    _buckets: dict[int, Counts] = field(default_factory=dict)

    def at(self, time: datetime) -> Counts:
        """The counts of the bucket that a moment is in, to be added to."""
        seconds = (time - _ORIGIN) // timedelta(seconds=1)
        place = seconds // self.width
        counts = self._buckets.get(place)
        if counts is None:
            counts = self._buckets[place] = Counts()
            if len(self._buckets) > _HELD:
                self._widen()
                return self._buckets[seconds // self.width]
        return counts

    def _widen(self) -> None:
        width = next(_wider(self.width))
        merged: dict[int, Counts] = {}
        for place, counts in self._buckets.items():
            merged.setdefault(place // (width // self.width), Counts()).add(counts)
        self._buckets, self.width = merged, width

    def result(self) -> Timeline:
        """All buckets from the first to the last, merged until there are few enough to be looked at."""
        if not self._buckets:
            return Timeline(seconds=self.width, buckets=())
        while max(self._buckets) - min(self._buckets) >= _SHOWN:
            self._widen()
        first, last = min(self._buckets), max(self._buckets)
        nothing = Counts()
        return Timeline(
            seconds=self.width,
            buckets=tuple(
                _bucket(place * self.width, self._buckets.get(place, nothing))
                for place in range(first, last + 1)
            ),
        )


def _bucket(seconds: int, counts: Counts) -> Bucket:
    earliest = (_FIRST - _ORIGIN) // timedelta(seconds=1)
    return Bucket(start=_ORIGIN + timedelta(seconds=max(seconds, earliest)), **asdict(counts))
