"""Where in a text the matches of one rule are: those under way, those that complete, those that the end completes.

Masks ask whether a match completes; whoever explains one asks where it is. Spans are offsets in code points of the
text that is given.

Cost: linear in the text, a look-up per character where no match begins; lists of strings, the length of the longest.
"""

from __future__ import annotations

from nco_guard.automata.spans.folds import FoldedText
from nco_guard.automata.spans.follower import Follower, Span, follow, source_of
from nco_guard.automata.spans.live import live_matches
from nco_guard.compiler import CompiledRule

__all__ = ["Span", "Tracker"]


class Tracker:
    """Follows the matches of what a rule blocks (`stop`: its stop point, where it has one) or of its whole pattern.

    `prompt`: so many characters of a text are a prompt. Matches that end there do not count; those that begin there do.
    """

    def __init__(self, rule: CompiledRule, *, stop: bool) -> None:
        with rule.lock:
            searcher = rule.searcher if rule.as_written else rule.machine(every_end=True, stop=stop)
        self._searcher = searcher
        _, self._spec = source_of(searcher)

    def under_way(self, text: str, prompt: int = 0) -> int | None:
        """Where the first match began that is under way at the end of the text and could still be completed."""
        live, _ = live_matches(self._searcher, prompt=prompt or -1).read(text)
        return live.first

    def completed(self, text: str, done: int, prompt: int = 0) -> Span | None:
        """The first match to become certain by reading the characters from `done` on, whatever follows the text."""
        folded, follower = self._follow(text, prompt, final=False)
        read = len(FoldedText(self._spec).feed(text[:done]))
        # By where they become certain, and then by their start.
        found = [
            (place, start, max(end for end, _ in ends if end <= place + 1))
            for start in follower.starts(follower.since(read))
            for ends in (follower.ends(start)[0],)
            for _, place in ends
            if place >= read
        ]
        return folded.original(min(found)[1:]) if found else None

    def at_end(self, text: str, prompt: int = 0) -> Span | None:
        """The first match that becomes certain when the text ends."""
        folded, follower = self._follow(text, prompt, final=True)
        for start in follower.starts(follower.since(follower.high)):
            ends, _ = follower.ends(start)
            if any(place == follower.high for _, place in ends):
                return folded.original((start, max(end for end, _ in ends)))
        return None

    def _follow(self, text: str, prompt: int, *, final: bool) -> tuple[FoldedText, Follower]:
        folded = FoldedText(self._spec)
        shown = folded.feed(text, final=final)
        beyond = folded.upto(prompt) if prompt else -1
        return folded, follow(source_of(self._searcher)[0], shown, closes=final, beyond=beyond)
