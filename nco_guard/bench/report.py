"""A record as Markdown: tables of medians with their quartiles, ratios, and everything that could not be measured.

The same text serves as `results.md` and, under a heading of its own, as `docs/performance.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nco_guard.bench.constraints import MEASURED
from nco_guard.bench.methods import METHODS
from nco_guard.bench.options import SUITES
from nco_guard.bench.record import Case, Measurement, Record, summary
from nco_guard.bench.throughput import BASE

__all__ = ["page", "report", "targets_table"]

_SECTION = re.compile(r"<!-- bench: begin -->\n.*?<!-- bench: end -->\n", re.S)
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def report(record: Record) -> str:
    """The whole record."""
    machine = record.machine
    versions = ", ".join(f"{name} {number}" for name, number in record.versions.items())
    load = f"{machine.load_before} before, {machine.load_after} after"
    lines = [
        f"{machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.system}; accelerator: "
        f"{machine.accelerator}; Python {machine.python}; {versions}; commit {record.commit or 'unknown'}.",
        "",
        f"Begun {record.started}, {record.seconds:,.0f} s; load average {load}. `{record.command}`",
        "",
        "Medians, with quartiles in brackets, of wall-clock times; methods take turns. A case that a method cannot "
        "express, or that went over the bounds of the run, says so.",
        "",
        *(f"* {note}" for note in record.notes),
        "",
    ]
    parts = [
        _targets(record),
        _equality(record),
        _reading(record),
        _setup(record),
        _steps(record),
        _throughput(record),
        _scaling(record, "strings"),
        _scaling(record, "regexes"),
        _scaling(record, "vocabularies"),
        _revise(record),
        _memory(record),
    ]
    return "\n".join(lines) + "\n".join(part for part in parts if part)


def page(record: Record, text: str) -> str:
    """`text`, the page on performance, with what stands between its `bench` marks replaced by the record.

    Raises `ValueError` if the page has no marks.
    """
    body = f"<!-- bench: begin -->\n\n{report(record).strip()}\n\n<!-- bench: end -->\n"
    if not _SECTION.search(text):
        raise ValueError("the page has no line '<!-- bench: begin -->' and '<!-- bench: end -->'")
    return _SECTION.sub(lambda _: body, text)


def seconds(value: float) -> str:
    """In the unit that suits it."""
    factor, unit = next((pair for pair in _UNITS if value >= pair[0]), _UNITS[-1])
    return f"{value / factor:.3g} {unit}"


def _amount(name: str, value: float) -> str:
    if name.endswith("_per_s"):
        return f"{value:,.0f}"
    if name.endswith("_s"):
        return seconds(value)
    if name.endswith("_mib"):
        return f"{value:,.3g} MiB" if value < 1000 else f"{value:,.0f} MiB"
    return f"{100 * value:.1f} %" if name.endswith("_ratio") else f"{value:,.4g}"


def figure(measurement: Measurement | None, name: str, *, spread: bool = True, p99: bool = False) -> str:
    """A figure's median and spread, or why there is none."""
    if measurement is None:
        return "-"
    if measurement.status != "ok":
        return measurement.status
    stats = summary(measurement.samples.get(name, []))
    if stats is None:
        return "-"
    text = _amount(name, stats.median)
    if p99:
        return f"{text}, p99 {_amount(name, stats.p99)}"
    if spread and stats.count > 1:
        text += f" ({_amount(name, stats.lower)} - {_amount(name, stats.upper)})"
    return text


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def _title(method: str) -> str:
    return METHODS[method].title if method in METHODS else method


def _ratio(theirs: Measurement, ours: Measurement | None, name: str) -> str:
    """Theirs / ours; above one, ours needs less."""
    if ours is None or ours is theirs or theirs.status != "ok" or ours.status != "ok":
        return "-"
    above, below = summary(theirs.samples.get(name, [])), summary(ours.samples.get(name, []))
    return (
        "-" if above is None or below is None or not below.median else f"{above.median / below.median:,.3g}"
    )


def _reasons(found: Iterable[Measurement]) -> list[str]:
    """Why methods have no figures; those with one reason together."""
    told: dict[tuple[str, str, str], dict[str, None]] = {}
    for m in found:
        if m.status != "ok":
            size = f" of {m.case.size:,}" if m.case.suite == "memory" and m.case.size is not None else ""
            where = f"{m.case.constraint}{size}"
            told.setdefault((where, m.status, m.reason), {})[_title(m.case.method)] = None
    lines = [f"* {', '.join(who)}: {where}: {what}: {why}" for (where, what, why), who in told.items()]
    return [*(line.replace(": : ", ": ") for line in lines), ""] if lines else []


def _shown(found: Iterable[Measurement]) -> list[Measurement]:
    """Without what cannot be expressed, which stands below the table; ours first."""
    order = [*METHODS]
    able = [m for m in found if m.status not in ("cannot express", "not available")]
    return sorted(able, key=lambda m: order.index(m.case.method) if m.case.method in order else -1)


def targets_table(record: Record) -> str:
    """Targets: reached or missed, and by how much."""
    words = {True: "met", False: "**missed**", None: "not measured"}
    rows = [
        (t.name, t.target, t.measured or "-", words[t.met] + (f": {t.note}" if t.note else ""))
        for t in record.targets
    ]
    return "\n".join(_table(("what", "target", "measured", ""), rows))


def _targets(record: Record) -> str:
    tokenizer = record.options.get("tokenizer")
    return (
        f"## Targets\n\nSet for two cores and a vocabulary of 128,000; this run: {record.machine.cores} cores, "
        f"{tokenizer}.\n\n{targets_table(record)}"
    )


def _equality(record: Record) -> str:
    if not record.checks:
        return ""
    rows = [
        (c.constraint, c.tokenizer, _title(c.against), f"{c.compared:,}", f"{c.differences:,}", c.note)
        for c in record.checks
    ]
    header = ("constraint", "tokenizer", "compared with", "masks", "differences", "")
    lines = ["## Equality", "", *_table(header, rows), *_reasons(record.find("equality"))]
    return "\n".join(lines)


def _reading(record: Record) -> str:
    found = record.find("reading")
    rows = [
        (
            m.case.tokenizer,
            _title(m.case.method),
            figure(m, "read_s"),
            figure(m, "tree_s"),
            figure(m, "peak_mib"),
        )
        for m in _shown(found)
    ]
    header = ("tokenizer", "reader", "time", "of it the prefix tree", "peak memory")
    return (
        "\n".join(["## Reading the vocabulary", "", *_table(header, rows), *_reasons(found)]) if found else ""
    )


def _setup(record: Record) -> str:
    found = record.find("setup")
    if not found:
        return ""
    lines = [
        "## Set-up",
        "",
        "From the constraint and the vocabulary in memory to tables; then the first mask. Memory: what the process "
        "grew by at its peak, first mask included. Ratios are theirs / ours.",
        "",
    ]
    for constraint in MEASURED:
        these = [m for m in found if m.case.constraint == constraint.name]
        ours = next((m for m in these if m.case.method == "ours"), None)
        rows = [
            (
                _title(m.case.method),
                figure(m, "setup_s"),
                figure(m, "first_mask_s"),
                figure(m, "peak_mib"),
                figure(m, "tables_mib", spread=False),
                _ratio(m, ours, "setup_s"),
                _ratio(m, ours, "peak_mib"),
            )
            for m in _shown(these)
        ]
        header = ("method", "set-up", "first mask", "peak memory", "its tables", "x our time", "x our memory")
        lines += [f"### {constraint.name}", "", *_table(header, rows), *_reasons(these)]
    return "\n".join(lines)


def _steps(record: Record) -> str:
    found = record.find("steps")
    if not found:
        return ""
    lines = [
        "## A step",
        "",
        "Ours and the baselines: one call of the logits processor, float32 scores on the CPU, ours in place. Peers: "
        "reading the tokens and computing masks as bits, nothing written into scores, with all threads. The second "
        "pass over the same text meets known states only.",
        "",
    ]
    batches = sorted({m.case.batch for m in found if m.case.batch is not None})
    rows = [(str(b), figure(_first(found, method="arg-max", batch=b), "step_s", p99=True)) for b in batches]
    lines += [*_table(("batch", "arg-max of the model, median"), rows)]
    for constraint in dict.fromkeys(m.case.constraint for m in found if m.case.constraint):
        these = [m for m in found if m.case.constraint == constraint]
        rows2 = []
        for m in sorted(_shown(these), key=lambda m: m.case.batch or 0):
            first = summary(m.samples.get("first_s", []))
            ours = _first(found, method="ours", batch=m.case.batch, constraint=constraint)
            rows2.append(
                (
                    str(m.case.batch),
                    _title(m.case.method),
                    "-" if first is None else seconds(first.mean),
                    figure(m, "first_s", p99=True),
                    figure(m, "new_s", p99=True) if m.case.method == "ours" else "-",
                    figure(m, "known_s", p99=True),
                    _ratio(m, ours, "first_s"),
                )
            )
        header = ("batch", "method", "mean", "median", "new states", "second pass", "x our median")
        lines += [f"### {constraint}", "", *_table(header, rows2), *_reasons(these)]
    return "\n".join(lines)


def _first(found: Iterable[Measurement], **wanted: str | int | None) -> Measurement | None:
    def fits(case: Case) -> bool:
        return all(getattr(case, name) == value for name, value in wanted.items())

    return next((m for m in found if fits(m.case)), None)


def _throughput(record: Record) -> str:
    found = record.find("throughput")
    if not found:
        return ""
    lines = [
        "## Throughput",
        "",
        "Tokens per second of whole generations, relative to the unguarded model in the same round: median and "
        "quartiles.",
        "",
    ]
    batches = sorted({m.case.batch for m in found if m.case.batch is not None})
    header = ("method", *(f"batch {b}" for b in batches))
    for model in dict.fromkeys(m.case.model for m in found):
        for constraint in dict.fromkeys(m.case.constraint for m in found if m.case.model == model):
            these = [m for m in found if m.case.model == model and m.case.constraint == constraint]
            rows = []
            for method in dict.fromkeys(m.case.method for m in _shown(these)):
                name = "tokens_per_s" if method.startswith(BASE) else "relative_ratio"
                cells = [figure(_first(these, method=method, batch=b), name) for b in batches]
                label = f"{_title(method)}, tokens/s" if method.startswith(BASE) else _title(method)
                rows.append((label, *cells))
            lines += [f"### {model} model, {constraint}", "", *_table(header, rows), *_reasons(these)]
    return "\n".join(lines)


def _scaling(record: Record, suite: str) -> str:
    found = record.find(suite)
    if not found:
        return ""
    lines = [f"## {SUITES[suite].capitalize()}", ""]  # type: ignore[index]
    if suite != "vocabularies":
        lines += [
            "Steps as above, of one sequence, over prose with beginnings of what is forbidden strewn in.",
            "",
        ]
    rows = [
        (
            f"{m.case.size:,}",
            m.case.constraint,
            _title(m.case.method),
            figure(m, "setup_s"),
            figure(m, "first_mask_s", spread=False),
            figure(m, "peak_mib"),
            figure(m, "step_s", p99=True),
        )
        for m in sorted(
            _shown(found),
            key=lambda m: (m.case.constraint if suite == "vocabularies" else "", m.case.size or 0),
        )
    ]
    header = ("size", "constraint", "method", "set-up", "first mask", "peak memory", "a step, batch 1")
    return "\n".join([*lines, *_table(header, rows), *_reasons(found)])


def _revise(record: Record) -> str:
    found = record.find("revise")
    if not found:
        return ""
    rows = [(m.case.method, f"{m.case.size:,}", figure(m, "revise_s")) for m in _shown(found)]
    lines = ["## One string more", "", "From a guard in use to the first mask of the revised one.", ""]
    return "\n".join([*lines, *_table(("how", "strings before", "time"), rows), *_reasons(found)])


def _memory(record: Record) -> str:
    found = record.find("memory")
    if not found:
        return ""
    rows: list[tuple[str, ...]] = []
    for m in found:
        held, at = m.samples.get("resident_mib", []), m.samples.get("at_count", [])
        half = len(held) // 2
        if m.status != "ok" or half < 2:
            rows.append((m.case.constraint, "-", str(m.status), "-", "-"))
            continue
        rows.append(
            (
                m.case.constraint,
                f"{at[-1]:,.0f}",
                f"{max(held[1:half]):,.0f} MiB",
                f"{max(held[half:]):,.0f} MiB",
                f"{m.samples['replaced_count'][-1]:,.0f}",
            )
        )
    header = (
        "constraint",
        "steps of random text",
        "most, first half",
        "most, second half",
        "tables replaced",
    )
    return "\n".join(["## Memory", "", *_table(header, rows), *_reasons(found)])
