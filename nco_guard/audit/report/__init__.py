"""A log as a report: its numbers (`read_report`), and one page that shows them (`render_report`)."""

from __future__ import annotations

from nco_guard.audit.report.model import LogReport
from nco_guard.audit.report.reading import AuditReport, read_report
from nco_guard.audit.report.render import render_report
from nco_guard.audit.report.table import EventTable

__all__ = ["AuditReport", "EventTable", "LogReport", "read_report", "render_report"]
