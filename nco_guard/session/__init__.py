"""Texts under a guard: `BoundGuard`, one text (`Session`), and the rows of a batch (`RowTracker`)."""

from nco_guard.session.rows import RowTracker
from nco_guard.session.session import BoundGuard, Session

__all__ = ["BoundGuard", "RowTracker", "Session"]
