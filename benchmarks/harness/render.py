"""Figures and tables as Markdown, for whatever was recorded: medians with quartiles, ratios, and why there are none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.harness.record import Case, Measurement, summary
from benchmarks.methods.world import METHODS

__all__ = ["figure", "first", "ratio", "reasons", "seconds", "section", "shown", "table", "title"]

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def seconds(value: float) -> str:
    """In the unit that suits it."""
    factor, unit = next((pair for pair in _UNITS if value >= pair[0]), _UNITS[-1])
    return f"{value / factor:.3g} {unit}"


def _amount(name: str, value: float) -> str:
    if name == "mb_per_s":
        return f"{value:,.3g}"
    if name.endswith("_per_s"):
        return f"{value:,.0f}"
    if name.endswith("_s"):
        return seconds(value)
    if name.endswith("_mib"):
        return f"{value:,.3g} MiB" if value < 1000 else f"{value:,.0f} MiB"
    return f"{100 * value:.1f} %" if name.endswith("_ratio") else f"{value:,.4g}"


def figure(
    measurement: Measurement | None,
    name: str,
    *,
    spread: bool = True,
    p99: bool = False,
    best: bool = False,
    worst: bool = False,
) -> str:
    """A figure's median and spread, or why there is none; or its best, the least but of what is counted per second."""
    if measurement is None:
        return "-"
    if measurement.status != "ok":
        return measurement.status
    stats = summary(measurement.samples.get(name, []))
    if stats is None:
        return "-"
    if best or worst:
        return _amount(name, stats.minimum if best != name.endswith("_per_s") else stats.maximum)
    text = _amount(name, stats.median)
    if p99:
        return f"{text}, p99 {_amount(name, stats.p99)}"
    if spread and stats.count > 1:
        text += f" ({_amount(name, stats.lower)} - {_amount(name, stats.upper)})"
    return text


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table, the empty one after it included."""
    return [
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def title(method: str) -> str:
    """A method as reports call it."""
    return METHODS[method].title if method in METHODS else method


def ratio(theirs: Measurement, ours: Measurement | None, name: str) -> str:
    """Theirs / ours; above one, ours needs less."""
    if ours is None or ours is theirs or theirs.status != "ok" or ours.status != "ok":
        return "-"
    above, below = summary(theirs.samples.get(name, [])), summary(ours.samples.get(name, []))
    return (
        "-" if above is None or below is None or not below.median else f"{above.median / below.median:,.3g}"
    )


def reasons(found: Iterable[Measurement]) -> list[str]:
    """Why methods have no figures; those with one reason together."""
    told: dict[tuple[str, str, str], dict[str, None]] = {}
    for m in found:
        if m.status != "ok":
            size = f" of {m.case.size:,}" if m.case.suite == "memory" and m.case.size is not None else ""
            where = f"{m.case.constraint}{size}"
            told.setdefault((where, m.status, m.reason), {})[title(m.case.method)] = None
    lines = [f"* {', '.join(who)}: {where}: {what}: {why}" for (where, what, why), who in told.items()]
    return [*(line.replace(": : ", ": ") for line in lines), ""] if lines else []


def shown(found: Iterable[Measurement]) -> list[Measurement]:
    """Without what cannot be expressed, which stands below the table; ours first."""
    order = [*METHODS]
    able = [m for m in found if m.status not in ("cannot express", "not available")]
    return sorted(able, key=lambda m: order.index(m.case.method) if m.case.method in order else -1)


def first(found: Iterable[Measurement], **wanted: str | int | None) -> Measurement | None:
    """The first whose case has these fields."""

    def fits(case: Case) -> bool:
        return all(getattr(case, name) == value for name, value in wanted.items())

    return next((m for m in found if fits(m.case)), None)


def section(
    heading: str,
    told: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    found: Iterable[Measurement],
) -> str:
    """A heading, some words, a table, and below it why figures are missing; nothing where there is neither."""
    listed, missing = list(rows), reasons(found)
    words = [told, ""] if told else []
    lines = [heading, "", *words, *table(header, listed), *missing] if listed or missing else []
    return "\n".join(lines)
