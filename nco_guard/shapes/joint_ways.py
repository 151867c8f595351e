"""Ways that bring a policy and a shape to an end together: which tokens have one.

Nearly all tokens are proved at once, by the shape's own ways (`states`); what these leave is searched one by one: along
the shape's way as far as the policy lets it be written, then by others that leave it. Which place is left next is
chosen where fewest ways were left before, late before early; then, anew, the newest, or where the least was still to be
written. So is found what takes one change near the end, and what takes one at every other character.

Cost: an array pass for each way, and of the tokens that are left some milliseconds each, up to a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nco_guard.masking import JointTables
from nco_guard.masking.idsets import NO_IDS, Ids
from nco_guard.masking.lookahead import HardConstraints
from nco_guard.shapes.states import REFUSED, Exits, ShapeStates

__all__ = ["JointWays", "WaySearch"]

# Written before a way that is barred as it is.
_BEFORE = (b"e", b"a", b".", b" ", b"0", b"-")
# Vocabularies of at most so many tokens are searched by all of them; others by bytes.
_SMALL = 128
# Ways gone in one search, and in all of one mask; of small vocabularies places.
_ORDERS = (("fewest", 300), ("newest", 100), ("nearest", 100))
_NEAR_LIMIT = (("fewest", 100),)
_PLACES_OF_SMALL = 2000
# Bytes of a way that is searched, before the shape's own way to its end; of so many, one that is gone counts once more.
_FAR_ALONG = 64
_LONG = 2048
# Bytes of ways that are looked at for whether they will do elsewhere.
_PLAIN = 256
# Ways that are remembered for a place.
_OTHERS = 6
_OF_MASK = 1500
_OF_MASK_OF_SMALL = 60_000

_Row = tuple[int, ...]


class JointWays:
    """What was found of ways for one pair of tables and states, kept from mask to mask."""

    def __init__(self, inner: JointTables, states: ShapeStates) -> None:
        self.inner = inner
        self.states = states
        self.needed = inner.tokens_needed
        #: What searches came to, and the ways that were found.
        self.searched: dict[tuple[_Row, int, int | None], bool | None] = {}
        self.found: dict[tuple[_Row, int], bytes] = {}
        #: Ways that were found where the policy barred the shape's own, by place.
        self.others: dict[Hashable, dict[bytes, None]] = {}
        #: What ways that were found have in place of the shape's own.
        self.changes: dict[tuple[bytes, bytes], None] = {}
        #: Ways that were found last.
        self.recent: dict[bytes, None] = {}
        #: Bytes that lead on, one of each kind, by the constraints that tell kinds apart, and by the shape's state.
        self.letters: dict[int, dict[int, list[tuple[bytes, int]]]] = {}
        vocabulary = inner.vocabulary
        texts = {
            data for token, data in enumerate(vocabulary.tokens) if data and token not in states.silent_ids
        }
        self.small = len(texts) <= _SMALL
        self.bytewise = all(bytes([byte]) in texts for byte in range(0x80))

    def forget_limited(self) -> None:
        """Shorter ways are known: what was too long near a limit may be so no more."""
        self.searched = {key: way for key, way in self.searched.items() if key[2] is None}

    def __len__(self) -> int:
        return len(self.searched) + len(self.found)


class _Place(NamedTuple):
    """Where a search goes on: from there by the shape's way, or by letters beside it; `left`: how many ways were left
    before, `far`: bytes that the last of them had still to go.
    """

    row: _Row
    shape: int
    path: bytes
    beside: bool
    left: int
    far: int


class _Queue:
    """Places to be looked at, in one of three orders: "fewest" ways left, late before early; "nearest"; "newest"."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._heap: list[tuple[tuple[int, ...], _Place, int]] = []
        self._added = 0

    def add(self, place: _Place, since: int, number: int) -> None:
        """`since`, `number`: the order among those that left as many ways."""
        self._added += 1
        key: tuple[int, ...] = -self._added, 0
        if self._order == "fewest":
            key = place.left, since, number, self._added
        elif self._order == "nearest":
            key = place.far, -self._added
        heappush(self._heap, (key, place, since))

    def next(self) -> tuple[_Place, int] | None:
        """A place, and the `since` that it was added with; None where none is left."""
        return heappop(self._heap)[1:] if self._heap else None


class WaySearch:
    """The ways out of what the tokens of one mask lead to.

    longest: tokens of the longest way that was taken for a proof. undecided: what the bounds left open.
    """

    def __init__(self, ways: JointWays, policy: int, shape: int, remaining: int | None) -> None:
        self._ways = ways
        self._states = ways.states
        self._policy = policy
        self._shape = shape
        self._remaining = remaining
        self._left = _OF_MASK_OF_SMALL if ways.small else _OF_MASK
        self.longest = 0
        self.undecided = 0

    def proved(self, exits: Exits, may: NDArray[np.int64]) -> Ids:
        """Those of the tokens (places in `exits.ids`) after which both can be brought to an end."""
        if not len(may):
            return NO_IDS
        self._exits, self._ids, self._groups = exits, exits.ids[may], exits.groups[may]
        with self._ways.inner.hard(self._policy) as (together, row):
            self._proven = np.isin(self._ids, self._beginning(together, row))
            for letter in (b"", None, *_BEFORE):
                for way, numbers in self._by_way(self._doubtful(), letter).items():
                    self._try(together, row, way, numbers)
            for change in [*self._ways.changes]:
                self._try_changed(together, row, change)
            for way in [*reversed(self._ways.recent)]:
                self._try_again(together, row, way)
            self._search_rest(together, row)
        return self._ids[self._proven]

    def _doubtful(self) -> list[int]:
        """The groups of tokens that are not proved yet."""
        return list(map(int, np.unique(self._groups[~self._proven])))

    def _try_changed(self, together: HardConstraints, row: _Row, change: tuple[bytes, bytes]) -> None:
        """Try the shape's own ways with a change that led past the policy elsewhere, as `" }` in place of `"}`."""
        self._try_fitting(together, row, lambda own: own.replace(*change) if change[0] in own else own)

    def _try_fitting(self, together: HardConstraints, row: _Row, other: Callable[[bytes], bytes]) -> None:
        """Try other ways in place of the shape's own, where the shape lets them be gone."""
        found: dict[bytes, list[int]] = {}
        for number in self._doubtful():
            own = self._states.way_from(self._exits.places[number])
            way = None if own is None else other(own)
            if (
                way is not None
                and way != own
                and self._in_time(way)
                and self._fits(self._exits.members[number], way)
            ):
                found.setdefault(way, []).append(number)
        for way, numbers in found.items():
            self._try(together, row, way, numbers)

    def _try_again(self, together: HardConstraints, row: _Row, way: bytes) -> None:
        """Try a way that was found once for all that is left."""
        self._try_fitting(together, row, lambda own: way)

    def _changed(self, number: int, way: bytes) -> tuple[bytes, bytes] | None:
        """What a way that was found has in place of the shape's own, if that is new."""
        own = self._states.way_from(self._exits.places[number]) or b""
        begin = next(
            (at for at, (one, other) in enumerate(zip(own, way, strict=False)) if one != other), None
        )
        if not begin:
            return None
        end = 0
        while end < min(len(own), len(way)) - begin and own[-1 - end] == way[-1 - end]:
            end += 1
        change = own[begin - 1 : len(own) - end + 1], way[begin - 1 : len(way) - end + 1]
        known = self._ways.changes
        if change in known or not change[0]:
            return None
        known[change] = None
        if len(known) > _OTHERS:
            known.pop(next(iter(known)))
        return change

    def _try(self, together: HardConstraints, row: _Row, way: bytes, numbers: Iterable[int]) -> None:
        """Take those tokens of some groups for proved after which the policy leaves a way open, if it is in time."""
        if not self._in_time(way):
            return
        wanted = np.zeros(len(self._exits.places), bool)
        wanted[list(numbers)] = True
        at = np.flatnonzero(wanted[self._groups] & ~self._proven)
        open_ = at[~together.barring(row, self._ids[at], way)]
        self._proven[open_] = True
        if len(open_):
            self.longest = max(self.longest, self._ways.needed(way))

    def _search_rest(self, together: HardConstraints, row: _Row) -> None:
        """Look for ways one by one; one that is found for a token is tried for all others of its group."""
        left = np.flatnonzero(~self._proven)
        if not self._ways.small:
            # Where the shape alone takes too long, or no way to its end was found, nothing is searched.
            doubtful = {*self._groups[left].tolist()}
            known = {number: self._states.way_from(self._exits.places[number]) for number in doubtful}
            for number, way in known.items():
                if not self._states.leads_nowhere(self._exits.places[number]):
                    self._open(way)
            soon = {number for number, way in known.items() if way is not None and self._in_time(way)}
            left = left[[number in soon for number in self._groups[left].tolist()]]
        if not len(left):
            return
        reached = together.after(row, self._ids[left])
        for place, after, number in zip(left.tolist(), reached, self._groups[left].tolist(), strict=True):
            if not self._proven[place]:
                way = self._leads_out(together, after, self._exits.members[number])
                self._proven[place] = way is not None
                if way:
                    self._try(together, row, way, [number])
                    change = self._changed(number, way)
                    if change is not None:
                        self._try_changed(together, row, change)
                    self._ways.recent.pop(way, None)
                    self._ways.recent[way] = None
                    if len(self._ways.recent) > _OTHERS:
                        self._ways.recent.pop(next(iter(self._ways.recent)))
                    self._try_again(together, row, way)

    def _beginning(self, together: HardConstraints, row: _Row) -> list[int]:
        """The tokens that begin the way that is known from here, if the rest is in time.

        So a way that was taken for a proof stays one, however little time is left.
        """
        way = self._ways.found.get((row, self._shape), self._states.way(self._shape))
        after = together.read(row, way) if way else ()
        if not way or not after or not together.may_end(after):
            return []
        found: list[int] = []
        for end in range(1, len(way) + 1):
            begun = self._ways.inner.ids_of(way[:end])
            if begun and self._in_time(way[end:]):
                found += begun
                self.longest = max(self.longest, self._ways.needed(way[end:]))
        return found

    def _by_way(self, numbers: list[int], letter: bytes | None) -> dict[bytes, list[int]]:
        """Ways to the shape's end, and of which groups they are: the shape's own, behind a letter.

        For None those that were found before, at the same places, where the policy barred the shape's own.
        """
        found: dict[bytes, list[int]] = {}
        for number in numbers:
            place, member = self._exits.places[number], self._exits.members[number]
            if letter is None:
                for way in self._ways.others.get(place, ()):
                    found.setdefault(way, []).append(number)
                continue
            own = self._states.way_from(place)
            if (
                own is not None
                and self._in_time(letter + own)
                and (not letter or self._fits(member, letter + own))
            ):
                found.setdefault(letter + own, []).append(number)
        return found

    def _fits(self, member: int, text: bytes) -> bool:
        after = self._states.after(self._shape, member)
        if after == REFUSED or not self._states.ends_with(after, text):
            return False
        if self._remaining is not None:
            self._states.note(after, text)
        return True

    def _in_time(self, way: bytes) -> bool:
        needed = self._ways.needed(way)
        return needed < 1 << 29 and (self._remaining is None or needed <= self._remaining)

    def _leads_out(self, together: HardConstraints, row: _Row, member: int) -> bytes | None:
        """A way out after a token of a group, if there is one; what is not decided is counted."""
        shape = self._states.after(self._shape, member)
        key = row, shape, self._remaining
        verdicts, found = self._ways.searched, self._ways.found
        if (row, shape) not in found or not self._in_time(found[row, shape]):
            if key not in verdicts:
                if self._left <= 0:
                    self._open()
                    return None
                verdicts[key] = self._find_way(together, row, shape)
            if not verdicts[key]:
                self._open(verdicts[key])
                return None
        self.longest = max(self.longest, self._ways.needed(found[row, shape]))
        return found[row, shape]

    def _open(self, found: object = None) -> None:
        """Count what was not decided; near a limit, what is not found in time is taken to be too late."""
        self.undecided += found is None and self._remaining is None

    def _keep(self, together: HardConstraints, row: _Row, shape: int, way: bytes) -> bool:
        """Remember a way for both, and what is left of it in each place that it leads through."""
        # Of a long one the rest is found again where it is gone.
        for begin in range(len(way) + 1 if len(way) <= _PLAIN else 1):
            known = self._ways.found.get((row, shape))
            if known is None or self._ways.needed(way[begin:]) < self._ways.needed(known):
                self._ways.found[row, shape] = way[begin:]
            if len(way) <= _PLAIN and self._states.plain(shape, way[begin:]):
                others = self._ways.others.setdefault(self._states.place(shape), {})
                others[way[begin:]] = None
                if len(others) > _OTHERS:
                    others.pop(next(iter(others)))
            byte = way[begin : begin + 1]
            row, shape = together.read(row, byte), self._states.read(shape, byte)
        return True

    def _find_way(self, together: HardConstraints, row: _Row, shape: int) -> bool | None:
        """Whether there is a way; None where the bounds did not let that be decided."""
        if self._ways.small and self._remaining is not None:
            return self._level_by_level(together, row, shape)
        return self._beside_ways(together, row, shape)

    def _beside_ways(self, together: HardConstraints, row: _Row, shape: int) -> bool | None:
        """Go the shape's way as far as the policy lets it be written, then others that leave it."""
        first = row, shape
        for other in self._states.other_ways(shape):
            after = together.read(row, other)
            if after and together.may_end(after) and self._in_time(other):
                return self._keep(together, *first, other)
        for order, bound in _ORDERS if self._remaining is None else _NEAR_LIMIT:
            found = self._in_order(together, row, shape, order, bound)
            if found is not None:
                return found is not False and self._keep(together, *first, found)
        return None

    def _in_order(
        self, together: HardConstraints, row: _Row, shape: int, order: str, bound: int
    ) -> bytes | Literal[False] | None:
        """A way; False where there is none; None where the bound did not let that be decided."""
        queue, seen = _Queue(order), {(row, self._states.alike(shape))}
        queue.add(_Place(row, shape, b"", False, 0, 0), 0, 0)
        self._order, looked, asides, everything = 0, 0, 0, True
        while (given := queue.next()) is not None:
            place, since = given
            if place.beside:
                asides += 1
                self._left -= 1
                if asides > bound:
                    return None
                self._turn_aside(together, place, since, queue, seen)
                continue
            way, path = self._states.way(place.shape), place.path
            if way is None or len(path) > _LONG:
                everything = everything and self._states.leads_nowhere(self._states.place(place.shape))
                continue
            everything = everything and self._states.one_of_its_kind(place.shape)
            cost = 1 + len(way) // _FAR_ALONG
            looked += cost
            self._left -= cost
            if looked > bound:
                return None
            found = self._go(together, place, way, queue, seen)
            if found is not None:
                return found
        return False if everything and (self._ways.small or self._ways.bytewise) else None

    def _turn_aside(
        self,
        together: HardConstraints,
        place: _Place,
        since: int,
        queue: _Queue,
        seen: set[tuple[_Row, Hashable]],
    ) -> None:
        """Leave a way: go on by each other letter."""
        for number, (data, following) in enumerate(self._letters(together, place.shape)):
            after = together.read(place.row, data)
            kind = self._states.alike(following)
            late = self._remaining is not None and not self._in_time(place.path + data)
            if after and not late and (after, kind) not in seen:
                seen.add((after, kind))
                there = _Place(after, following, place.path + data, False, place.left, place.far)
                queue.add(there, since, number + 1)

    def _go(
        self,
        together: HardConstraints,
        place: _Place,
        way: bytes,
        queue: _Queue,
        seen: set[tuple[_Row, Hashable]],
    ) -> bytes | None:
        """Go a way, as far as the policy lets it be written; the text of it where both let it end, in time."""
        row, shape, path = place.row, place.shape, place.path
        for begin in range(len(way) + 1):
            if self._states.may_end(shape) and together.may_end(row) and self._in_time(path):
                return path
            self._order -= 1
            there = _Place(row, shape, path, True, place.left + 1, len(way) - begin)
            queue.add(there, self._order, 0)
            byte = way[begin : begin + 1]
            row, path = together.read(row, byte), path + byte
            if not row or not byte:
                break
            shape = self._states.read(shape, byte)
            seen.add((row, self._states.alike(shape)))
        return None

    def _level_by_level(self, together: HardConstraints, row: _Row, shape: int) -> bool | None:
        """All tokens, level by level: where time is short, by as few as there are."""
        first = row, shape
        queue: deque[tuple[_Row, int, bytes, int]] = deque([(row, shape, b"", 0)])
        seen, looked = {first}, 0
        while queue:
            row, shape, path, tokens = queue.popleft()
            looked += 1
            self._left -= 1
            if looked > _PLACES_OF_SMALL:
                return None
            for rest in (b"", self._states.way(shape)):
                if rest is None or (not rest and not self._states.may_end(shape)):
                    continue
                after = together.read(row, rest) if rest else row
                if after and together.may_end(after) and self._in_time(path + rest):
                    return self._keep(together, *first, path + rest)
            if tokens >= (self._remaining or 0):
                continue
            for data, following in self._letters(together, shape):
                after = together.read(row, data)
                if after and (after, following) not in seen:
                    seen.add((after, following))
                    queue.append((after, following, path + data, tokens + 1))
        return False

    def _letters(self, together: HardConstraints, shape: int) -> Iterator[tuple[bytes, int]]:
        """The texts that ways are put together of, and where they lead the shape, one of each kind."""
        if self._ways.small:
            seen = set[bytes]()
            for token in self._states.tokens(shape).tolist():
                data = self._states.data(shape, token)
                if data not in seen:
                    seen.add(data)
                    yield data, self._states.after(shape, token)
            return
        known = self._ways.letters.setdefault(id(together), {})
        if shape not in known:
            kinds: dict[tuple[int, Hashable], tuple[bytes, int]] = {}
            for data, following in self._states.letters(shape):
                if self._ways.needed(data) == 1:
                    kind = int(together.kinds[data[0]]), self._states.alike(following)
                    kinds.setdefault(kind, (data, following))
            known[shape] = [*kinds.values()]
        yield from known[shape]
