"""Going back: where a match would be completed, the text is taken back to where it began and drawn again."""

from nco_guard.rewinding.row import RewindCounts, RewindingRow, Rewound
from nco_guard.rewinding.starts import MatchStarts

__all__ = ["MatchStarts", "RewindCounts", "RewindingRow", "Rewound"]
