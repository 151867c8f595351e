"""Does every text that one pattern matches contain a match of another?

This is how `stop_at` is checked when a policy loads: blocking the earlier point is only as good as blocking the rule
if no match can be had without passing it.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from nco_guard.automata.automaton import CharMachine
from nco_guard.errors import StateLimitError

__all__ = ["escaping_text"]


def escaping_text(pattern: CharMachine, stop: CharMachine, *, limit: int = 200_000) -> str | None:
    """A shortest text that `pattern` matches and `stop` does not, or None if there is none.

    Cost: breadth-first over pairs of states, at most `limit`; beyond that `StateLimitError`.
    """
    edges = np.union1d(pattern.classes.starts, stop.classes.starts).astype(np.uint32)
    pairs: dict[tuple[int, int], int] = {}
    for code, a, b in zip(
        edges.tolist(), pattern.classes.of(edges).tolist(), stop.classes.of(edges).tolist(), strict=True
    ):
        best = pairs.get((a, b))
        if best is None or (not 0x20 < best < 0x7F and 0x20 < code < 0x7F):
            pairs[(a, b)] = code
    # A machine state of -1: the pattern has matched already.
    start = (pattern.start, stop.start)
    came_from: dict[tuple[int, int], tuple[tuple[int, int], int] | None] = {start: None}
    queue = deque([start])
    while queue:
        pair = queue.popleft()
        first, second = pair
        if (first < 0 or not pattern.may_end(first)) and stop.may_end(second):
            return _spell(came_from, pair)
        for (a, b), code in pairs.items():
            after = stop.step(second, b)
            if after < 0 or 0xD800 <= code <= 0xDFFF:
                continue
            reached = first if first < 0 else max(pattern.step(first, a), -1)
            following = (reached, after)
            if following not in came_from:
                came_from[following] = (pair, code)
                queue.append(following)
        if len(came_from) > limit:
            raise StateLimitError(
                f"whether every match passes this point could not be settled within {limit:,} pairs of states; "
                "use a simpler pattern"
            )
    return None


def _spell(
    came_from: dict[tuple[int, int], tuple[tuple[int, int], int] | None], pair: tuple[int, int]
) -> str:
    codes: list[int] = []
    step = came_from[pair]
    while step is not None:
        pair, code = step
        codes.append(code)
        step = came_from[pair]
    return "".join(map(chr, reversed(codes)))
