"""From a report to one page of HTML that needs nothing else: no network, no fonts, and no script but its own.

Everything in a log is taken for hostile. The template escapes all it is given; the script builds its rows from text
nodes; events stand in the page as JSON without a `<`; and a content security policy lets nothing run, load or be sent
but the page's own script and style, by their hashes. Template, style and script lie in `assets`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from nco_guard.audit.report.charts import histogram_chart, timeline_chart
from nco_guard.audit.report.reading import AuditReport
from nco_guard.audit.report.table import EventTable
from nco_guard.audit.report.verdicts import answers
from nco_guard.audit.report.wording import (
    amount,
    moment,
    percent,
    plural,
    probability,
    shortened,
    width_of,
)
from nco_guard.errors import ArgumentError
from nco_guard.visible import visible

__all__ = ["render_report"]

ROWS: Final = 100
"""How many rows the page's tables of rules, models, corpora, ... have at most; the rest is in the numbers."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def render_report(report: AuditReport, *, title: str = "Audit report") -> str:
    """The page. Raises nothing for what a log may say; cost: some five megabytes for 100,000 events.

    Examples:
        >>> from nco_guard.audit import JsonLinesSink, RunRecorder
        >>> with JsonLinesSink("audit.jsonl") as log:
        ...     _ = RunRecorder(log).verification(ok=True, length=12)
        >>> render_report(read_report("audit.jsonl")).lower().startswith("<!doctype html>")
        True
    """
    if not isinstance(report, AuditReport):
        raise ArgumentError(f"report: what read_report gives is needed, not {type(report).__name__}")
    style, script = _asset("report.css"), _asset("report.js")
    return _template().render(
        title=title,
        report=report.numbers,
        table=report.table,
        answers=answers(report.numbers),
        timeline=timeline_chart(report.numbers.timeline),
        histogram=histogram_chart(report.numbers.removed_histogram),
        rows=ROWS,
        style=Markup(style),
        script=Markup(script),
        security="; ".join(
            [
                "default-src 'none'",
                f"script-src '{_source_hash(script)}'",
                f"style-src '{_source_hash(style)}'",
                "base-uri 'none'",
                "form-action 'none'",
                "require-trusted-types-for 'script'",
                "trusted-types 'none'",
            ]
        ),
        events=Markup(_embedded(report.table)),
    )


def _asset(name: str) -> str:
    return files("nco_guard.audit.report").joinpath("assets", name).read_text(encoding="utf-8")


def _source_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _embedded(table: EventTable) -> str:
    """The table as JSON that no HTML parser can take for the end of a script, or for anything else."""
    start = None if table.start is None else (table.start - _EPOCH) // timedelta(milliseconds=1)
    text = json.dumps(
        {
            "start": start,
            "kinds": table.kinds,
            "columns": table.columns,
            "runs": table.runs,
            "strings": table.strings,
            "rule_sets": table.rule_sets,
        },
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _identifier(text: str) -> Markup:
    """A name from the log: visible, not too long, escaped, and apart from the direction of the text around it."""
    return Markup('<bdi class="id">{}</bdi>').format(shortened(visible(text)))


@cache
def _template() -> Template:
    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        amount=amount,
        moment=moment,
        percent=percent,
        plural=plural,
        probability=probability,
        span=width_of,
        id=_identifier,
    )
    return environment.get_template("report.html")
