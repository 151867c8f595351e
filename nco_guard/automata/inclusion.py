"""Does every text that one pattern matches contain a match of another?

This is how `stop_at` is checked when a policy loads: blocking the earlier point is only as good as blocking the rule
if no match can be had without passing it.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from nco_guard.automata.alternating import AlternatingMachine
from nco_guard.errors import StateLimitError

__all__ = ["escaping_text"]

# A state of the pattern, one of the stop point, and whether the match that is followed has started.
_Place = tuple[int, int, bool]
_MATCHED = -1


def escaping_text(
    pattern: AlternatingMachine, stop: AlternatingMachine, *, limit: int = 50_000
) -> str | None:
    """A text that `pattern` matches and `stop` does not, or None if there is none.

    Only one match is followed at a time, from a position chosen freely: that keeps the pattern's side small however
    many matches could overlap. Cost: breadth-first over pairs of states, at most `limit`; beyond that
    `StateLimitError`.
    """
    starts = {*pattern.classes.starts.tolist(), *stop.classes.starts.tolist()}
    edges = np.array(sorted(starts), np.uint32)
    codes: dict[tuple[int, int], int] = {}
    for code, a, b in zip(
        edges.tolist(), pattern.classes.of(edges).tolist(), stop.classes.of(edges).tolist(), strict=True
    ):
        best = codes.get((a, b))
        if not 0xD800 <= code <= 0xDFFF and (best is None or (not 0x20 < best < 0x7F and 0x20 < code < 0x7F)):
            codes[(a, b)] = code
    start = (pattern.bare_start, stop.start, False)
    came_from: dict[_Place, tuple[_Place, int | None] | None] = {start: None}
    queue = deque([start])

    # The fewer matches of the stop point are under way, the easier it is to get past it. So of two places that differ
    # in nothing else, only the one with fewer needs following (an antichain).
    followed: dict[tuple[int, bool, object], list[frozenset[object]]] = {}

    def visit(place: _Place, source: _Place, code: int | None) -> None:
        if place in came_from:
            return
        first, second, planted = place
        under_way, surroundings = stop.under_way(second)
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
        if not planted:
            visit((pattern.planted(first), second, True), place, None)
        elif first != _MATCHED and pattern.is_bare(first):
            continue  # the match that was followed has failed
        for (a, b), code in codes.items():
            after = stop.step(second, b)
            if after >= 0:
                reached = first if first == _MATCHED else max(pattern.step(first, a, seed=False), _MATCHED)
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
