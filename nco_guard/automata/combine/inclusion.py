"""Does every text that one pattern matches contain a match of another?

This is how `stop_at` is checked when a policy loads: blocking the earlier point is only as good as blocking the rule
if no match can be had without passing it. A stop point is mostly written as the beginning of the pattern: then their
trees, side by side, are proof (`begins_with`), found a dozen times faster than by the search of `escaping_text`, which
decides. A rule of which another blocks every match already is redundant; a pattern that no text has a match of never
holds at all.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from nco_guard.automata.charsets import CharClasses, CharSet, both, complement
from nco_guard.automata.patterns.alternating import AlternatingMachine
from nco_guard.automata.patterns.folded_text import FoldedMachine
from nco_guard.automata.patterns.searching import Machine
from nco_guard.automata.patterns.syntax import (
    Alternation,
    Assertion,
    Chars,
    Lookaround,
    Node,
    Repeat,
    Sequence,
)
from nco_guard.errors import StateLimitError

__all__ = ["begins_with", "escaping_text", "matching_text"]

# A state of the pattern, one of the stop point, and whether the match that is followed has started.
_Place = tuple[int, int, bool]
_MATCHED = -1
_AFTER_SURROGATES = 0xE000
# So many pairs of parts are compared, nested so deep, before a proof is given up.
_COMPARISONS = 20_000
_DEPTH = 100

_Parts = tuple[Node, ...]


def begins_with(pattern: Node, stop: Node) -> bool:
    """Whether it can be read off the trees that each match of `pattern` begins with a match of `stop`.

    True is proof, False is none. Cost: a few microseconds for each pair of parts compared, at most some 40 ms.
    """
    return _Comparison().covers((pattern,), [(stop,)], exact=False, depth=0)


class _Comparison:
    """One pattern beside the ways of another, from one position of one text, where assertions see the same."""

    def __init__(self) -> None:
        self._left = _COMPARISONS

    def covers(self, run: _Parts, ways: list[_Parts], *, exact: bool, depth: int) -> bool:
        """Whether each text that `run` reads begins with one that one of the ways reads; with `exact`, is one."""
        while run and isinstance(run[0], Sequence):
            run = (*run[0].items, *run[1:])
        ways = self._told_apart(ways)
        if self._left < 0 or depth > _DEPTH or not ways:
            return False
        if () in ways and (not exact or all(isinstance(part, (Lookaround, Assertion)) for part in run)):
            return True
        if not run:
            return () in self._opened(ways)

        def on(run: _Parts, ways: list[_Parts]) -> bool:
            return self.covers(run, ways, exact=exact, depth=depth + 1)

        first, rest = run[0], run[1:]
        if isinstance(first, Alternation):
            return all(on((option, *rest), ways) for option in first.options)
        if isinstance(
            first, (Lookaround, Assertion)
        ):  # where a way has no such part, it only makes matches fewer
            return on(rest, [*ways, *(way[1:] for way in ways if way and way[0] == first)])
        if isinstance(first, Repeat):
            alike = [w for w in ways if w and isinstance(w[0], Repeat) and self._within(first, w[0], depth)]
            if not exact and any(len(way) == 1 for way in alike):
                return True  # so many of them are there
            if on(rest, [w[1:] for w in alike if _no_more(first, w[0])]):
                return True
            return first.low > 0 and on((first.body, _fewer(first), *rest), ways)
        ways = self._opened(ways)
        if not exact and () in ways:
            return True
        if not isinstance(first, Chars):
            return False
        return all(on(rest, following) for following in _after(first, ways))

    def _told_apart(self, ways: list[_Parts]) -> list[_Parts]:
        """The ways, alternatives written out."""
        found: list[_Parts] = []
        waiting = ways[::-1]
        while waiting:
            way = waiting.pop()
            self._left -= 1
            head = way[0] if way else None
            if isinstance(head, Sequence):
                waiting.append((*head.items, *way[1:]))
            elif isinstance(head, Alternation):
                waiting += [(option, *way[1:]) for option in reversed(head.options)]
            else:
                found.append(way)
        return found

    def _opened(self, ways: list[_Parts]) -> list[_Parts]:
        """The ways, repeats in front passed over or entered."""
        found: list[_Parts] = []
        waiting, seen = ways[::-1], set[_Parts]()
        while waiting and self._left >= 0:
            way = waiting.pop()
            self._left -= 1
            head = way[0] if way else None
            if not isinstance(head, Repeat):
                found.append(way)
            elif way not in seen:
                seen.add(way)
                entered = [(head.body, _fewer(head), *way[1:])] if head.high != 0 else []
                waiting += self._told_apart([*entered, *([way[1:]] if head.low == 0 else [])])
        return found

    def _within(self, first: Repeat, other: Repeat, depth: int) -> bool:
        """Whether as many copies of the other's body can be read as there are at least of the first's."""
        return other.low <= first.low and (
            first.body == other.body
            or self.covers((first.body,), [(other.body,)], exact=True, depth=depth + 1)
        )


def _after(chars: Chars, ways: list[_Parts]) -> list[list[_Parts]]:
    """What each character may leave of the ways: a list for each set of characters that they do not tell apart."""
    groups: list[tuple[CharSet, list[_Parts]]] = [(chars.ranges, [])]
    for way in ways:
        head = way[0] if way else None
        if isinstance(head, Chars):
            inside = [(both(some, head.ranges), [*after, way[1:]]) for some, after in groups]
            outside = [(both(some, complement(head.ranges)), after) for some, after in groups]
            groups = [group for group in (*inside, *outside) if group[0]]
    return [after for _, after in groups]


def _no_more(first: Repeat, other: Node) -> bool:
    """Whether there are at most as many copies of one body as of the other."""
    return isinstance(other, Repeat) and (
        other.high is None or (first.high is not None and first.high <= other.high)
    )


def _fewer(part: Repeat) -> Node:
    high = None if part.high is None else part.high - 1
    return Repeat(part.body, max(0, part.low - 1), high) if high != 0 else Sequence(())


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
    codes = _codes(pattern.classes, stop.classes)
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


def _codes(one: CharClasses, other: CharClasses) -> dict[tuple[int, int], int]:
    """For each pair of classes a character that is in both, one that can be seen where there is one."""
    # Surrogates are in no text, so characters that are alike up to beyond them are shown by the first after them.
    starts = {*one.starts.tolist(), *other.starts.tolist(), _AFTER_SURROGATES}
    edges = np.array(sorted(starts), np.uint32)
    codes: dict[tuple[int, int], int] = {}
    for code, a, b in zip(edges.tolist(), one.of(edges).tolist(), other.of(edges).tolist(), strict=True):
        best = codes.get((a, b))
        if not 0xD800 <= code <= 0xDFFF and (best is None or (not 0x20 < best < 0x7F and 0x20 < code < 0x7F)):
            codes[(a, b)] = code
    return codes


def _spell(came_from: dict[_Place, tuple[_Place, int | None] | None], place: _Place) -> str:
    codes: list[int] = []
    step = came_from[place]
    while step is not None:
        place, code = step
        if code is not None:
            codes.append(code)
        step = came_from[place]
    return "".join(map(chr, reversed(codes)))
