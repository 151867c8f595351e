"""Texts under a guard: `BoundGuard`, one text (`Session`), and the rows of a batch (`RowTracker`)."""

from nco_guard.session.bound import BoundGuard
from nco_guard.session.rows import RowTracker
from nco_guard.session.session import Session
from nco_guard.session.state import TextState

__all__ = ["BoundGuard", "RowTracker", "Session", "TextState"]
