"""Plots of a record as SVG, to be read on light and on dark pages: no background, and greys and colours between.

Lines are told apart by marker as well as by colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.harness.record import Measurement, Record, Summary, summary
from benchmarks.inputs.constraints import MEASURED
from benchmarks.methods.world import BASE, METHODS

__all__ = ["draw"]

_GREY = "#808080"
# Okabe and Ito's colours, the lightest and the darkest brought towards the middle.
_COLOURS = {
    "ours": "#d55e00",
    "paper-nco": "#2f86c4",
    "guard-trie": "#009e73",
    "bad-words": "#b8860b",
    "rejection": "#96705b",
    "llguidance": "#d6457f",
    "xgrammar": "#8c7ae6",
    "arg-max": _GREY,
}
_MARKERS = dict(zip(_COLOURS, "oshD^vPx", strict=True))
_STYLE = {
    "svg.hashsalt": "nco-guard",
    "font.size": 10,
    "text.color": _GREY,
    "axes.facecolor": "none",
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _GREY,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "grid.color": _GREY,
    "grid.alpha": 0.25,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.labelcolor": _GREY,
}


def draw(record: Record, folder: Path) -> list[Path]:
    """One file for each suite that has figures; what was written."""
    made: list[Path] = []
    for name, figure in figures(record).items():
        path = folder / f"{name}.svg"
        with matplotlib.rc_context(_STYLE):
            figure.savefig(path, transparent=True, metadata={"Date": None}, bbox_inches="tight")
        made.append(path)
    return made


def figures(record: Record) -> dict[str, Any]:
    """The matplotlib figures by name, of the suites that have any."""
    with matplotlib.rc_context(_STYLE):
        found = {
            "setup": _setup(record),
            "steps": _steps(record),
            "throughput": _throughput(record),
            "strings": _scaling(record, "strings", "strings of 16 bytes"),
            "regexes": _scaling(record, "regexes", "regular expressions"),
            "memory": _memory(record),
            "natural": _natural(record, "natural"),
            "smollm2": _natural(record, "smollm2"),
        }
    return {name: figure for name, figure in found.items() if figure is not None}


def _title(method: str) -> str:
    return METHODS[method].title if method in METHODS else "arg-max of the model"


def _stats(measurement: Measurement, name: str) -> Summary | None:
    return summary(measurement.samples.get(name, [])) if measurement.status == "ok" else None


def _panels(count: int, width: float = 4.4, height: float = 3.4) -> tuple[Any, list[Any]]:
    columns = min(count, 2)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def _seconds(value: float, _: object = None) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value / 1e-6:g} µs"


def _time_axis(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(_seconds))
    axis.set_minor_formatter(NullFormatter())


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    known: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            known.setdefault(label, handle)
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=min(4, len(known) or 1))


def _line(
    axis: Any, method: str, points: Iterable[tuple[float, Summary | None]], factor: float = 1.0
) -> None:
    """Medians, with the quartiles as a band of error bars."""
    found = [(x, s) for x, s in points if s is not None]
    if not found:
        return
    middle = [factor * s.median for _, s in found]
    axis.errorbar(
        [x for x, _ in found],
        middle,
        yerr=[
            [factor * (s.median - s.lower) for _, s in found],
            [factor * (s.upper - s.median) for _, s in found],
        ],
        label=_title(method),
        color=_COLOURS[method],
        marker=_MARKERS[method],
        linestyle="--" if method == "arg-max" else "-",
        linewidth=2.2 if method == "ours" else 1.4,
        markersize=5,
        capsize=2,
        zorder=3 if method == "ours" else 2,
    )


def _methods(found: Iterable[Measurement]) -> list[str]:
    present = {m.case.method for m in found}
    return [method for method in _COLOURS if method in present]


def _setup(record: Record) -> Any:
    found = [m for m in record.find("setup") if _stats(m, "setup_s") is not None]
    sets = [c.name for c in MEASURED if any(m.case.constraint == c.name for m in found)]
    if not sets:
        return None
    figure = Figure(figsize=(8.8, 4.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, name, label in zip(
        axes, ("setup_s", "peak_mib"), ("set-up time", "peak memory (MiB)"), strict=True
    ):
        place, ticks = 0.0, []
        for constraint in sets:
            these = [m for m in found if m.case.constraint == constraint]
            first = place
            for method in _methods(these):
                stats = _stats(next(m for m in these if m.case.method == method), name)
                if stats is not None:
                    value = max(stats.median, 1e-2 if name == "peak_mib" else 1e-5)
                    axis.barh(place, value, color=_COLOURS[method], label=_title(method), height=0.85)
                place += 1
            ticks.append(
                ((first + place - 1) / 2, constraint.replace(", ", ",\n").replace("the paper's ", ""))
            )
            place += 1
        axis.set_xscale("log")
        axis.set_yticks([at for at, _ in ticks], [text for _, text in ticks] if axis is axes[0] else [])
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.set_xlabel(f"{label}, log scale")
    _time_axis(axes[0].xaxis)
    _legend(figure, axes)
    return figure


def _steps(record: Record) -> Any:
    found = [m for m in record.find("steps") if m.status == "ok" and m.case.constraint]
    sets = list(dict.fromkeys(m.case.constraint for m in found))
    if not sets:
        return None
    figure, axes = _panels(len(sets))
    beside = [m for m in record.find("steps", method="arg-max") if m.status == "ok"]
    for axis, constraint in zip(axes, sets, strict=True):
        these = [m for m in found if m.case.constraint == constraint]
        for method in _methods(these):
            rows = sorted((m for m in these if m.case.method == method), key=lambda m: m.case.batch or 0)
            _line(axis, method, [(float(m.case.batch or 0), _stats(m, "first_s")) for m in rows])
        _line(axis, "arg-max", [(float(m.case.batch or 0), _stats(m, "step_s")) for m in beside])
        _batches(axis, [m.case.batch for m in these])
        axis.set_yscale("log")
        _time_axis(axis.yaxis)
        axis.set_title(constraint, fontsize=10)
        axis.set_ylabel("time of a step")
    _legend(figure, axes)
    return figure


def _batches(axis: Any, batches: Iterable[int | None]) -> None:
    shown = sorted({b for b in batches if b is not None})
    axis.set_xscale("log", base=2)
    axis.set_xticks(shown, [str(b) for b in shown])
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("batch size (sequences)")


def _throughput(record: Record) -> Any:
    found = [m for m in record.find("throughput") if m.status == "ok" and not m.case.method.startswith(BASE)]
    panels = list(dict.fromkeys((m.case.model, m.case.constraint) for m in found))
    if not panels:
        return None
    figure, axes = _panels(len(panels))
    for axis, (model, constraint) in zip(axes, panels, strict=True):
        these = [m for m in found if (m.case.model, m.case.constraint) == (model, constraint)]
        for method in _methods(these):
            rows = sorted((m for m in these if m.case.method == method), key=lambda m: m.case.batch or 0)
            points = [(float(m.case.batch or 0), _stats(m, "relative_ratio")) for m in rows]
            _line(axis, method, points, factor=100)
        axis.axhline(100, color=_GREY, linestyle="--", linewidth=1)
        _batches(axis, [m.case.batch for m in these])
        axis.set_ylim(bottom=0)
        axis.set_title(f"{model} model\n{constraint}", fontsize=10)
        axis.set_ylabel("throughput (% of unguarded)")
    _legend(figure, axes)
    return figure


def _scaling(record: Record, suite: str, what: str) -> Any:
    found = [m for m in record.find(suite) if m.status == "ok"]
    if not found:
        return None
    figure, axes = _panels(3, height=3.2)
    for axis, name, label in zip(
        axes,
        ("setup_s", "peak_mib", "step_s"),
        ("set-up time", "peak memory (MiB)", "time of a step, batch 1"),
        strict=True,
    ):
        for method in _methods(found):
            rows = sorted((m for m in found if m.case.method == method), key=lambda m: m.case.size or 0)
            _line(axis, method, [(float(m.case.size or 0), _stats(m, name)) for m in rows])
        axis.set_xscale("log")
        axis.set_yscale("log")
        if name.endswith("_s"):
            _time_axis(axis.yaxis)
        axis.set_xlabel(f"number of {what}")
        axis.set_ylabel(label)
    _legend(figure, axes)
    return figure


def _memory(record: Record) -> Any:
    found = [m for m in record.find("memory") if m.status == "ok" and m.samples.get("at_count")]
    if not found:
        return None
    figure, axes = _panels(len(found))
    for axis, m in zip(axes, found, strict=True):
        at = m.samples["at_count"]
        axis.plot(
            at, m.samples["resident_mib"], color=_COLOURS["ours"], label="resident memory of the process"
        )
        axis.plot(
            at, m.samples["tables_mib"], color=_COLOURS["paper-nco"], label="tables, by their own count"
        )
        axis.set_ylim(bottom=0)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.tick_params(axis="x", labelrotation=30)
        axis.set_title(m.case.constraint, fontsize=10)
        axis.set_xlabel("steps of random text")
        axis.set_ylabel("memory (MiB) above the start")
    _legend(figure, axes)
    return figure


def _natural(record: Record, suite: str) -> Any:
    """Brinks by what they cost, a panel for each policy and decoding; a line where clean unguarded texts stand."""
    found = [m for m in record.find(suite) if _stats(m, "with_brinks_ratio")]
    costed = [m for m in found if _stats(m, "passes_count")]
    if not costed:
        return None
    where = list(dict.fromkeys((m.case.constraint, m.case.model) for m in costed))
    methods = list(dict.fromkeys(m.case.method for m in costed))
    colours = list(_COLOURS.values())
    figure, axes = _panels(len(where), height=3.8)
    for axis, (policy, model) in zip(axes, where, strict=True):
        for m in found:
            if (m.case.constraint, m.case.model) != (policy, model):
                continue
            share = 100 * np.median(m.samples["with_brinks_ratio"])
            if m.case.method not in methods:
                axis.axhline(share, color=_GREY, linestyle="--", label=m.case.method)
                continue
            number = methods.index(m.case.method)
            axis.plot(
                np.median(m.samples["passes_count"]),
                share,
                color=colours[number % len(colours)],
                marker="oshD^vPX*<>"[number % 11],
                linestyle="none",
                markersize=8,
                label=m.case.method,
            )
        if axis.dataLim.x1 > 4:
            axis.set_xscale("log")
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_ylim(-4, 104)
        axis.set_title(f"{policy}, {model}", fontsize=10)
        axis.set_xlabel("passes of the model, a token that is kept")
        axis.set_ylabel("texts with a brink (%)")
    _legend(figure, axes)
    return figure
