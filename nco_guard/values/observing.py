"""`Observer`: what is recorded of answers and results by handlers that are only told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nco_guard.audit import RunRecorder
from nco_guard.scan.findings import Report
from nco_guard.values.finding import Finder
from nco_guard.values.redacting import Searched
from nco_guard.values.trees import Tree

__all__ = ["Observer"]


class Observer:
    """Records what is found in one answer or result; changes nothing, and no text enters the record.

    guard: as of `Cleaner`. record: the run. sequence: which of the run's answers it is.

    Examples:
        >>> sink = MemorySink()
        >>> observer = Observer(Guard.from_presets("pii"), RunRecorder(sink))
        >>> observer.text(r"Write to jane.doe\\u0040example.com.")
        >>> [(found.start, found.end) for found in sink.events[0].findings]
        [(9, 34)]
    """

    def __init__(self, guard: Any, record: RunRecorder, sequence: int = 0) -> None:
        self._finder = Finder(guard, "")
        self._run, self._sequence = record, sequence
        self._found: set[str] = set()

    def text(self, text: str) -> None:
        """A text that a reader sees: a verification, its JSON escapes read as well, with where matches are."""
        report = self._finder.report(text)
        self._found.update(found.rule_id for found in report.violations)
        if text:
            self._run.report(report, sequence=self._sequence, text=text)

    def part(self, value: Any) -> None:
        """A value, such as a call's arguments: a verification that names rules, over the length of all its texts."""
        searched = Searched(Tree(value), self._finder)
        self._somewhere(searched.rules, searched.length)

    def rest(self, value: Any) -> None:
        """What else there is: recorded as `part` is, if rules match that were not found before, and these alone."""
        searched = Searched(Tree(value), self._finder)
        if others := [rule for rule in searched.rules if rule not in self._found]:
            self._somewhere(others, searched.length)

    def _somewhere(self, rules: Sequence[str], length: int) -> None:
        self._found.update(rules)
        if length:
            report = Report.somewhere(self._finder.compiled.digest, length, rules)
            self._run.report(report, sequence=self._sequence)
