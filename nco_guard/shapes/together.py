"""A policy and a shape enforced at once: what both let come, and from where both can be brought to an end.

The definition: a token is forbidden if the policy or the shape forbids it, or if no text of further tokens (at most
so many as may still follow) brings both to where they let the text end. How far away that is, the shape says; the
policy's own look-ahead ends after 16 tokens.

A state is a pair, of the policy's joint state and the shape's, interned when it is first met, with its mask and its
transitions kept. In a new one, nearly all tokens are proved at once: tokens that lead the shape to one place have one
way to its end, a text, and which tokens leave the policy barring that text is asked of its tables for all of them
together (`lookahead.HardConstraints.barring`). Where that way is barred, the same behind another letter is tried;
what is then left is searched one by one, by what the library lets come, up to a bound. What that does not decide is
forbidden and counted.

Cost: a pair met before, a look-up; a new one, an array pass for each way, and of the tokens that are left some
milliseconds each.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from nco_guard.masking import LIMITED, VIOLATED, JointTables
from nco_guard.masking.idsets import NO_IDS, Ids, holds
from nco_guard.masking.lookahead import HardConstraints
from nco_guard.shapes.shape import SHAPE_RULE
from nco_guard.shapes.states import REFUSED, Exits, ShapeStates

__all__ = ["ShapedTables"]

#: In place of a shape's state: somebody forced a token that the shape does not let come, so it counts no more.
LOST = -2
# Written before a way that is barred as it is.
_BEFORE = (b"e", b"a", b".", b" ", b"0", b"-")
# Vocabularies of at most so many tokens are searched by all of them; others by bytes.
_SMALL = 128
# Ways gone in one search, and in all of one mask; of small vocabularies places.
_WAYS = 300
_PLACES_OF_SMALL = 2000
# Bytes of a way that is searched, before the shape's own way to its end.
_LONG = 96
# Ways that are remembered for a place.
_OTHERS = 6
_OF_MASK = 1500
_OF_MASK_OF_SMALL = 60_000

_Row = tuple[int, ...]


class ShapedTables:
    """`JointTables` of a policy, and the states of a shape; see `masking.answers.Tables` for what is asked of them.

    Safe to share between threads: look-ups take no lock, first visits do.
    """

    def __init__(self, inner: JointTables, states: ShapeStates) -> None:
        self.inner = inner
        self.states = states
        self.vocabulary = inner.vocabulary
        self._lock = threading.RLock()
        self._pairs: list[tuple[int, int]] = []
        self._ids: dict[tuple[int, int], int] = {}
        self._next: list[dict[int, int]] = []
        self._links = 0  # entries of all of these: asked for at each step
        self._masks: dict[tuple[int, int | None], Ids] = {}
        self._version = 0
        self._longest: dict[int, int] = {}
        self._undecided: dict[tuple[int, int | None], int] = {}
        self._arrays: dict[bytes, Ids] = {}
        self._array_bytes = 0
        self._searched: dict[tuple[_Row, int, int | None], bool | None] = {}
        self._found: dict[tuple[_Row, int], bytes] = {}
        #: Ways that were found where the policy barred the shape's own, by place.
        self.others: dict[Hashable, dict[bytes, None]] = {}
        #: What ways that were found have in place of the shape's own.
        self.changes: dict[tuple[bytes, bytes], None] = {}
        #: Ways that were found last.
        self.recent: dict[bytes, None] = {}
        #: Bytes that lead on, one of each kind, by the constraints that tell kinds apart, and by the shape's state.
        self.letters: dict[int, dict[int, list[tuple[bytes, int]]]] = {}
        self.needed = inner.tokens_needed
        texts = {
            data
            for token, data in enumerate(self.vocabulary.tokens)
            if data and token not in states.silent_ids
        }
        self.small = len(texts) <= _SMALL
        self.bytewise = all(bytes([byte]) in texts for byte in range(0x80))
        self.start = self._intern(inner.start, states.start)

    def _intern(self, policy: int, shape: int) -> int:
        key = policy, shape
        found = self._ids.get(key)
        if found is None:
            with self._lock:
                found = self._ids.get(key)
                if found is None:
                    found = len(self._pairs)
                    self._next[found:] = [{}]
                    self._pairs.append(key)
                    self._ids[key] = found
        return found

    def start_after(self, context: bytes, begun: str = "") -> int:
        """See `JointTables.start_after`."""
        return self._intern(self.inner.start_after(context, begun), self.states.start)

    # -- steps -------------------------------------------------------------------------------------------------

    def next(self, state: int, token: int) -> int:
        """See `JointTables.next`."""
        if state < 0:
            return state
        known = self._next[state].get(token)
        if known is None:
            known = self._find_next(state, token)
            self._next[state][token] = known
            self._links += 1
        return known

    def _find_next(self, state: int, token: int) -> int:
        policy, shape = self._pairs[state]
        if not 0 <= token < self.vocabulary.width or holds(self.forbidden(state), token):
            return VIOLATED
        reached = self.inner.next(policy, token)
        if reached < 0 or shape == LOST:
            return reached if reached < 0 else self._intern(reached, LOST)
        with self._lock:
            return self._intern(reached, self.states.after(shape, token))

    def forced(self, states: Sequence[int], tokens: Sequence[int]) -> int:
        """See `JointTables.forced`. A shape that such a token breaks does not count any more."""
        policies = [self._pairs[state][0] for state in states]
        policy, shape = self._pairs[states[-1]]
        reached = self.inner.next(policy, tokens[-1])
        if reached == VIOLATED:
            reached = self.inner.forced(policies, tokens)
        if reached < 0:
            return reached
        after = LOST
        if shape != LOST and tokens[-1] < self.vocabulary.width:
            with self._lock:
                after = self.states.after(shape, tokens[-1])
        if after != REFUSED and after != LOST:
            found = self._intern(reached, after)
            if len(self.forbidden(found)) < self.vocabulary.width:
                return found
        return self._intern(reached, LOST)

    def may_end(self, state: int) -> bool:
        """See `JointTables.may_end`: both let the text end."""
        if state < 0:
            return state != LIMITED
        policy, shape = self._pairs[state]
        if not self.inner.may_end(policy):
            return False
        with self._lock:
            return shape == LOST or self.states.may_end(shape)

    def may_show(self, state: int) -> bool:
        """Whether the policy would let the text end here: what is shown is never taken back for its sake."""
        return self.inner.may_end(self._pairs[state][0]) if state >= 0 else self.inner.may_end(state)

    # -- masks -------------------------------------------------------------------------------------------------

    def forbidden(self, state: int, remaining: int | None = None) -> NDArray[np.int64]:
        """See `JointTables.forbidden`; what may follow is not bounded by that look-ahead's tokens."""
        if state < 0:
            return self.inner.forbidden(state, remaining)
        policy, shape = self._pairs[state]
        if shape == LOST:
            return self.inner.forbidden(policy, remaining)
        longest = self._longest.get(state)
        if longest is not None and (remaining is None or remaining >= longest):
            return self._masks[state, None]
        known = self._masks.get((state, remaining))
        if known is None:
            with self._lock:
                known = self._find_forbidden(state, None)
                if remaining is not None and remaining < self._longest[state]:
                    known = self._find_forbidden(state, remaining)
        elif remaining is not None and self._version != self.states.version:
            with self._lock:
                self._forget_limited()
                known = self._find_forbidden(state, remaining)
        return known

    def _forget_limited(self) -> None:
        """Shorter ways are known: what was too long near a limit may be so no more."""
        self._version = self.states.version
        self._masks = {key: mask for key, mask in self._masks.items() if key[1] is None}
        self._searched = {key: way for key, way in self._searched.items() if key[2] is None}

    def _find_forbidden(self, state: int, remaining: int | None) -> Ids:
        key = state, remaining
        known = self._masks.get(key)
        if known is not None:
            return known
        policy, shape = self._pairs[state]
        exits = self.states.exits(shape)
        barred = np.zeros(self.vocabulary.width, bool)
        barred[self.inner.forbidden(policy)] = True
        may = np.flatnonzero(~barred[exits.ids])
        search = _Search(self, policy, shape, remaining)
        allowed = np.zeros(self.vocabulary.width, bool)
        allowed[search.proved(exits, may)] = True
        for token in self.vocabulary.eos_ids:
            allowed[token] = not barred[token] and self.states.stops(shape, token)
        found = self._shared(np.flatnonzero(~allowed))
        if search.undecided:
            self._undecided[key] = search.undecided
        self._masks[key] = found
        if remaining is None:
            self._longest[state] = search.longest
        return found

    def _shared(self, ids: Ids) -> Ids:
        """One array for all masks that are equal: between a few tokens, nearly all masks are."""
        key = (
            ids.tobytes()
            if len(ids) < self.vocabulary.width // 2
            else b"-" + _rest(ids, self.vocabulary.width)
        )
        known = self._arrays.get(key)
        if known is None:
            ids.flags.writeable = False
            known = self._arrays[key] = ids
            self._array_bytes += ids.nbytes
        return known

    def penalties(self, state: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """See `JointTables.penalties`."""
        return self.inner.penalties(self._pairs[state][0] if state >= 0 else state)

    def undecided(self, state: int, remaining: int | None = None) -> int:
        """See `JointTables.undecided`: of the policy's own look-ahead, and of ways that bring both to an end."""
        if state < 0:
            return 0
        policy, _ = self._pairs[state]
        longest = self._longest.get(state, 0)
        key = state, None if remaining is None or remaining >= longest else remaining
        return self._undecided.get(key, 0) + self.inner.undecided(policy, remaining)

    @property
    def undecided_masks(self) -> int:
        """How many masks forbid some token because it was not decided."""
        return len(self._undecided) + self.inner.undecided_masks

    def stuck(self, state: int, remaining: int | None = None) -> bool:
        """See `JointTables.stuck`."""
        if state < 0:
            return state == LIMITED
        policy, shape = self._pairs[state]
        if shape == LOST or self.inner.stuck(policy, remaining):
            return self.inner.stuck(policy, remaining)
        nothing = len(self.forbidden(state, remaining)) == self.vocabulary.width
        return nothing and self.undecided(state, remaining) > 0

    def rules_at_fault(self, state: int, token: int) -> tuple[str, ...]:
        """See `JointTables.rules_at_fault`; `SHAPE_RULE` where it is not the policy that forbids a token."""
        if state < 0:
            return ()
        policy, shape = self._pairs[state]
        if not 0 <= token < self.vocabulary.width or not holds(self.forbidden(state), token):
            return ()
        if holds(self.inner.forbidden(policy), token) or shape == LOST:
            return self.inner.rules_at_fault(policy, token)
        return (SHAPE_RULE,)

    @property
    def nbytes(self) -> int:
        """Bytes held beside the policy's tables (those of dictionaries estimated)."""
        entries = self._links + len(self._searched) + len(self._found) + 3 * len(self._pairs)
        return self._array_bytes + self.states.nbytes + 120 * entries


def _rest(ids: Ids, width: int) -> bytes:
    others = np.ones(width, bool)
    others[ids] = False
    return np.flatnonzero(others).tobytes()


class _Search:
    """The ways out of what the tokens of one mask lead to.

    longest: tokens of the longest way that was taken for a proof. undecided: what the bounds left open.
    """

    def __init__(self, tables: ShapedTables, policy: int, shape: int, remaining: int | None) -> None:
        self._tables = tables
        self._states = tables.states
        self._policy = policy
        self._shape = shape
        self._remaining = remaining
        self._left = _OF_MASK_OF_SMALL if tables.small else _OF_MASK
        self.longest = 0
        self.undecided = 0

    def proved(self, exits: Exits, may: NDArray[np.int64]) -> Ids:
        """Those of the tokens (places in `exits.ids`) after which both can be brought to an end."""
        if not len(may):
            return NO_IDS
        self._exits, self._ids, self._groups = exits, exits.ids[may], exits.groups[may]
        with self._tables.inner.hard(self._policy) as (together, row):
            self._proven = np.isin(self._ids, self._beginning(together, row))
            for letter in (b"", None, *_BEFORE):
                for way, numbers in self._by_way(self._doubtful(), letter).items():
                    self._try(together, row, way, numbers)
            for change in [*self._tables.changes]:
                self._try_changed(together, row, change)
            for way in [*reversed(self._tables.recent)]:
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
        known = self._tables.changes
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
            self.longest = max(self.longest, self._tables.needed(way))

    def _search_rest(self, together: HardConstraints, row: _Row) -> None:
        """Look for ways one by one; one that is found for a token is tried for all others of its group."""
        left = np.flatnonzero(~self._proven)
        if not self._tables.small:
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
                    self._tables.recent.pop(way, None)
                    self._tables.recent[way] = None
                    if len(self._tables.recent) > _OTHERS:
                        self._tables.recent.pop(next(iter(self._tables.recent)))
                    self._try_again(together, row, way)

    def _beginning(self, together: HardConstraints, row: _Row) -> list[int]:
        """The tokens that begin the way that is known from here, if the rest is in time.

        So a way that was taken for a proof stays one, however little time is left.
        """
        way = self._tables._found.get((row, self._shape), self._states.way(self._shape))
        after = together.read(row, way) if way else ()
        if not way or not after or not together.may_end(after):
            return []
        found: list[int] = []
        for end in range(1, len(way) + 1):
            begun = self._tables.inner.ids_of(way[:end])
            if begun and self._in_time(way[end:]):
                found += begun
                self.longest = max(self.longest, self._tables.needed(way[end:]))
        return found

    def _by_way(self, numbers: list[int], letter: bytes | None) -> dict[bytes, list[int]]:
        """Ways to the shape's end, and of which groups they are: the shape's own, behind a letter.

        For None those that were found before, at the same places, where the policy barred the shape's own.
        """
        found: dict[bytes, list[int]] = {}
        for number in numbers:
            place, member = self._exits.places[number], self._exits.members[number]
            if letter is None:
                for way in self._tables.others.get(place, ()):
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
        needed = self._tables.needed(way)
        return needed < 1 << 29 and (self._remaining is None or needed <= self._remaining)

    def _leads_out(self, together: HardConstraints, row: _Row, member: int) -> bytes | None:
        """A way out after a token of a group, if there is one; what is not decided is counted."""
        shape = self._states.after(self._shape, member)
        key = row, shape, self._remaining
        verdicts, found = self._tables._searched, self._tables._found
        if (row, shape) not in found or not self._in_time(found[row, shape]):
            if key not in verdicts:
                if self._left <= 0:
                    self._open()
                    return None
                verdicts[key] = self._find_way(together, row, shape)
            if not verdicts[key]:
                self._open(verdicts[key])
                return None
        self.longest = max(self.longest, self._tables.needed(found[row, shape]))
        return found[row, shape]

    def _open(self, found: object = None) -> None:
        """Count what was not decided; near a limit, what is not found in time is taken to be too late."""
        self.undecided += found is None and self._remaining is None

    def _keep(self, together: HardConstraints, row: _Row, shape: int, way: bytes) -> bool:
        """Remember a way for both, and what is left of it in each place that it leads through."""
        for begin in range(len(way) + 1):
            known = self._tables._found.get((row, shape))
            if known is None or self._tables.needed(way[begin:]) < self._tables.needed(known):
                self._tables._found[row, shape] = way[begin:]
            if self._states.plain(shape, way[begin:]):
                others = self._tables.others.setdefault(self._states.place(shape), {})
                others[way[begin:]] = None
                if len(others) > _OTHERS:
                    others.pop(next(iter(others)))
            byte = way[begin : begin + 1]
            row, shape = together.read(row, byte), self._states.read(shape, byte)
        return True

    def _find_way(self, together: HardConstraints, row: _Row, shape: int) -> bool | None:
        """Whether there is a way; None where the bounds did not let that be decided."""
        if self._tables.small and self._remaining is not None:
            return self._level_by_level(together, row, shape)
        return self._beside_ways(together, row, shape)

    def _beside_ways(self, together: HardConstraints, row: _Row, shape: int) -> bool | None:
        """Go the shape's way as far as the policy lets it be written, then others that leave it, late before early."""
        # Letters are looked at where no way that leaves the others later has led out: (.., whether they are to be).
        heap, order, first = [(0, 0, 0, row, shape, b"", False)], 0, (row, shape)
        seen, looked, everything = {first}, 0, True
        while heap:
            left, since, number, row, shape, path, beside = heappop(heap)
            if beside:
                for data, following in self._letters(together, shape):
                    after = together.read(row, data)
                    if after and (after, following) not in seen:
                        seen.add((after, following))
                        number += 1
                        heappush(heap, (left, since, number, after, following, path + data, False))
                continue
            way = self._states.way(shape)
            if way is None or len(path) > _LONG:
                everything = everything and self._states.leads_nowhere(self._states.place(shape))
                continue
            looked += 1
            self._left -= 1
            if looked > _WAYS:
                return None
            for begin in range(len(way) + 1):
                if self._states.may_end(shape) and together.may_end(row) and self._in_time(path):
                    return self._keep(together, *first, path)
                order -= 1
                heappush(heap, (left + 1, order, 0, row, shape, path, True))
                byte = way[begin : begin + 1]
                row, path = together.read(row, byte), path + byte
                if not row or not byte:
                    break
                shape = self._states.read(shape, byte)
                seen.add((row, shape))
        return False if everything and (self._tables.small or self._tables.bytewise) else None

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
        if self._tables.small:
            seen = set[bytes]()
            for token in self._states.tokens(shape).tolist():
                data = self._states.data(shape, token)
                if data not in seen:
                    seen.add(data)
                    yield data, self._states.after(shape, token)
            return
        known = self._tables.letters.setdefault(id(together), {})
        if shape not in known:
            kinds: dict[tuple[int, int], bytes] = {}
            for data, following in self._states.letters(shape):
                if self._tables.needed(data) == 1:
                    kinds.setdefault((int(together.kinds[data[0]]), following), data)
            known[shape] = [(data, following) for (_, following), data in kinds.items()]
        yield from known[shape]
