"""Text on its way to the reader: cut at stop strings, and nothing shown that might still be taken back."""

from __future__ import annotations

from collections.abc import Sequence

from nco_guard import Guard
from nco_guard.redaction import SafeEnds

__all__ = ["StopFilter", "cut_at_stop", "longest_overlap"]


def longest_overlap(text: str, marks: Sequence[str]) -> int:
    """How many characters at the end of the text could be the beginning of one of the marks."""
    longest = 0
    for mark in marks:
        for size in range(min(len(text), len(mark) - 1), longest, -1):
            if text.endswith(mark[:size]):
                longest = size
                break
    return longest


class StopFilter:
    """Text up to the first stop string, which is left out, cut back to where the text may end.

    `feed` and `finish` return what may be shown; `stopped` says whether a stop string was met.
    """

    def __init__(self, guard: Guard, stops: Sequence[str], *, context: str = "") -> None:
        self._stops = [stop for stop in stops if stop]
        self._ends = SafeEnds(guard.compiled, context=context)
        self._pending = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """Read on."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        self._pending += text
        places = [place for stop in self._stops if (place := self._pending.find(stop)) >= 0]
        if places:
            self.stopped = True
            return self._ends.feed(self._pending[: min(places)])
        keep = len(self._pending) - longest_overlap(self._pending, self._stops)
        ready, self._pending = self._pending[:keep], self._pending[keep:]
        return self._ends.feed(ready)

    def finish(self) -> str:
        """The text is over."""
        if self.stopped or not self._stops:
            return ""
        return self._ends.feed(self._pending)


def cut_at_stop(guard: Guard, text: str, stops: Sequence[str], *, context: str = "") -> tuple[str, bool]:
    """The same for a finished text, and whether a stop string was met."""
    cut = StopFilter(guard, stops, context=context)
    shown = cut.feed(text)
    return shown + cut.finish(), cut.stopped
