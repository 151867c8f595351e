"""A log as a report: its numbers (`read_report`), and a page that shows them (`render_report`)."""

from __future__ import annotations

from nco_guard.audit.report.reading import read_report
