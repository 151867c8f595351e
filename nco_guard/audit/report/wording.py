"""How values are written for people: numbers, rates, times, and names that are too long."""

from __future__ import annotations

from datetime import datetime

__all__ = ["amount", "moment", "percent", "plural", "probability", "shortened", "width_of"]

_UNITS = ((7 * 86400, "week"), (86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def shortened(text: str, limit: int = 64) -> str:
    """A name that is very long, cut, with its length said; others as they are."""
    return text if len(text) <= limit else f"{text[:limit]}\N{HORIZONTAL ELLIPSIS} ({len(text):,} characters)"


def amount(value: float) -> str:
    """A number with thousands apart; whole ones without decimals."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}"


def percent(value: float | None) -> str:
    """A percentage that says 0 and 100 only where it is just that."""
    if value is None:
        return "\N{EN DASH}"
    if 0 < value < 0.01:
        return "< 0.01 %"
    if 99.99 < value < 100:
        return "> 99.99 %"
    return f"{value:.2f}".rstrip("0").rstrip(".") + " %"


def probability(value: float | None) -> str:
    """A probability with three decimals that says 0 and 1 only where it is just that."""
    if value is None:
        return "\N{EN DASH}"
    if 0 < value < 0.0005:
        return "< 0.001"
    if 0.9995 <= value < 1:
        return "> 0.999"
    return f"{value:.3f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """The number and its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def moment(value: datetime) -> str:
    """A time in UTC, to the second."""
    return f"{value:%Y-%m-%d %H:%M:%S} UTC"


def width_of(seconds: int) -> str:
    """A stretch of time: "15 minutes"."""
    for size, name in _UNITS:
        if seconds % size == 0:
            return plural(seconds // size, name)
    raise ValueError("seconds must be a whole number")
