"""What long tests counted, told when a run is over: the properties that they record, beside what passed and failed."""

from __future__ import annotations

from typing import Any

__all__ = ["pytest_terminal_summary"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line for each property that a test recorded (`record_property`)."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties if report.when == "call" else ():
                terminalreporter.write_line(f"{report.nodeid}: {name}: {value}")
