"""Going back: where a match would be completed, the text is taken back to where it began and drawn again."""

from nco_guard.rewinding.row import Blocked, RewindCounts, RewindingRow
from nco_guard.rewinding.starts import MatchStarts, Settled

__all__ = ["Blocked", "MatchStarts", "RewindCounts", "RewindingRow", "Settled"]
