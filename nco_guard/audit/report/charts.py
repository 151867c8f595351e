"""Where the bars of the report's charts stand; the template draws them.

Charts stretch with the page, so text stands beside them in HTML and coordinates are in units of one column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nco_guard.audit.report.model import Timeline
from nco_guard.audit.report.wording import amount, moment, plural

__all__ = ["histogram_chart", "timeline_chart"]

_FEWEST: Final = 12
_FILL: Final = 0.8


@dataclass(frozen=True)
class Bar:
    """One column; `y` and `height` in percent of the chart's height, `kind` what it is about, `title` what it says."""

    x: float
    width: float
    y: float
    height: float
    kind: str
    title: str


@dataclass(frozen=True)
class Chart:
    """Columns side by side: `width` of them fill the chart; `top` is what the highest stands for, and `base` where they
    stand, in percent of the height; marks are below.
    """

    width: int
    bars: tuple[Bar, ...]
    top: str
    base: float = 100.0


def _columns(values: Sequence[int], titles: Sequence[str], kind: str, room: float) -> tuple[Bar, ...]:
    highest = max(values, default=0) or 1
    return tuple(
        # One event in a column beside one with a million must still be seen.
        Bar(place + (1 - _FILL) / 2, _FILL, room - height, height, kind, title)
        for place, (value, title) in enumerate(zip(values, titles, strict=True))
        if value
        for height in [round(max(1.0, room * value / highest), 3)]
    )


def timeline_chart(timeline: Timeline) -> Chart:
    """Interventions as columns; below, where there are any, marks for violations, dead ends and errors."""
    buckets = timeline.buckets
    marks = [
        ("violation", [bucket.violations for bucket in buckets]),
        ("dead-end", [bucket.dead_ends for bucket in buckets]),
        ("error", [bucket.errors for bucket in buckets]),
    ]
    shown = [(kind, counts) for kind, counts in marks if any(counts)]
    room = 100.0 - 9.0 * len(shown)
    titles = [f"{moment(one.start)}: {plural(one.interventions, 'intervention')}" for one in buckets]
    bars = _columns([one.interventions for one in buckets], titles, "intervention", room)
    for row, (kind, counts) in enumerate(shown):
        bars += tuple(
            Bar(
                place + (1 - _FILL) / 2,
                _FILL,
                room + 9.0 * row + 3.0,
                6.0,
                kind,
                f"{moment(bucket.start)}: {plural(count, kind.replace('-', ' '))}",
            )
            for place, (bucket, count) in enumerate(zip(buckets, counts, strict=True))
            if count
        )
    top = amount(max((one.interventions for one in buckets), default=0))
    return Chart(max(len(buckets), _FEWEST), bars, top, room)


def histogram_chart(counts: Sequence[int]) -> Chart:
    """Interventions by the probability removed, in classes of equal width from 0 to 1."""
    size = 1 / len(counts)
    titles = [
        f"{place * size:.1f} to {(place + 1) * size:.1f}: {plural(count, 'intervention')}"
        for place, count in enumerate(counts)
    ]
    return Chart(len(counts), _columns(counts, titles, "intervention", 100.0), amount(max(counts, default=0)))
