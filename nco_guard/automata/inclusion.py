"""Does every text that one pattern matches contain a match of another?

This is how `stop_at` is checked when a policy loads: blocking the earlier point is only as good as blocking the rule
if no match can be had without passing it. A rule of which another blocks every match already is redundant; a pattern
that no text has a match of never holds at all.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from nco_guard.automata.alternating import AlternatingMachine
from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.folded import FoldedMachine
from nco_guard.automata.fsm import FsmMachine
from nco_guard.errors import StateLimitError

__all__ = ["escaping_text", "matching_text"]

Machine = AlternatingMachine | FoldedMachine | FsmMachine
# A state of the pattern, one of the stop point, and whether the match that is followed has started.
_Place = tuple[int, int, bool]
_MATCHED = -1
_AFTER_SURROGATES = 0xE000


class _Nothing:
    """A stop point that no text has."""

    classes = CharClasses(())
    start = 0

    def step(self, state: int, cls: int) -> int:
        return state

    def may_end(self, state: int) -> bool:
        return True


def matching_text(pattern: Machine, *, limit: int = 50_000) -> str | None:
    """A shortest text that `pattern` matches, or None if there is none. Cost and errors: as `escaping_text`."""
    return escaping_text(pattern, _Nothing(), limit=limit)


def escaping_text(pattern: Machine, stop: Machine | _Nothing, *, limit: int = 50_000) -> str | None:
    """A shortest text that `pattern` matches and `stop` does not, or None if there is none.

    Only one match is followed at a time, from a position chosen freely: that keeps the pattern's side small however
    many matches could overlap. (Matches of a folded pattern are followed all together.) Cost: breadth-first over pairs
    of states, at most `limit`; beyond that `StateLimitError`.
    """
    # Surrogates are in no text, so characters that are alike up to beyond them are shown by the first after them.
    starts = {*pattern.classes.starts.tolist(), *stop.classes.starts.tolist(), _AFTER_SURROGATES}
    edges = np.array(sorted(starts), np.uint32)
    codes: dict[tuple[int, int], int] = {}
    for code, a, b in zip(
        edges.tolist(), pattern.classes.of(edges).tolist(), stop.classes.of(edges).tolist(), strict=True
    ):
        best = codes.get((a, b))
        if not 0xD800 <= code <= 0xDFFF and (best is None or (not 0x20 < best < 0x7F and 0x20 < code < 0x7F)):
            codes[(a, b)] = code
    single = None if isinstance(pattern, FoldedMachine) else pattern
    start = (pattern.start if single is None else single.bare_start, stop.start, single is None)
    came_from: dict[_Place, tuple[_Place, int | None] | None] = {start: None}
    queue = deque([start])

    # The fewer matches of the stop point are under way, the easier it is to get past it. So of two places that differ
    # in nothing else, only the one with fewer needs following (an antichain).
    followed: dict[tuple[int, bool, object], list[frozenset[object]]] = {}

    def visit(place: _Place, source: _Place, code: int | None) -> None:
        if place in came_from:
            return
        first, second, planted = place
        known = stop.under_way(second) if isinstance(stop, AlternatingMachine) else (frozenset(), second)
        under_way: frozenset[object] = known[0]
        surroundings: object = known[1]
        others = followed.setdefault((first, planted, surroundings), [])
        if not any(other <= under_way for other in others):
            others.append(under_way)
            came_from[place] = (source, code)
            queue.append(place)

    while queue:
        place = queue.popleft()
        first, second, planted = place
        if (first == _MATCHED or not pattern.may_end(first)) and stop.may_end(second):
            return _spell(came_from, place)
        if single is not None:
            if not planted:
                visit((single.planted(first), second, True), place, None)
            elif first != _MATCHED and single.is_bare(first):
                continue  # the match that was followed has failed
        for (a, b), code in codes.items():
            after = stop.step(second, b)
            if after >= 0:
                reached = first
                if first != _MATCHED:
                    reached = pattern.step(first, a) if single is None else single.step(first, a, seed=False)
                    reached = max(reached, _MATCHED)
                visit((reached, after, planted), place, code)
        if len(came_from) > limit:
            raise StateLimitError(
                f"whether every match passes this point could not be settled within {limit:,} pairs of states; "
                "use a simpler pattern"
            )
    return None


def _spell(came_from: dict[_Place, tuple[_Place, int | None] | None], place: _Place) -> str:
    codes: list[int] = []
    step = came_from[place]
    while step is not None:
        place, code = step
        if code is not None:
            codes.append(code)
        step = came_from[place]
    return "".join(map(chr, reversed(codes)))
