"""A policy and a shape enforced at once: what both let come, and from where both can be brought to an end.

The definition: a token is forbidden if the policy or the shape forbids it, or if no text of further tokens (at most
so many as may still follow) brings both to where they let the text end. How far away that is, the shape says; the
policy's own look-ahead ends after 16 tokens.

A state is a pair, of the policy's joint state and the shape's, interned when it is first met, with its mask and its
transitions kept. In a new one, nearly all tokens are proved at once: tokens that lead the shape to one place have one
way to its end, a text, and which tokens leave the policy barring that text is asked of its tables for all of them
together (`lookahead.HardConstraints.barring`). Where that way is barred, the same behind another letter is tried;
what is then left is searched one by one, up to a bound (`joint_ways`). What that does not decide is forbidden and
counted.

Cost: a pair met before, a look-up; a new one, an array pass for each way, and of the tokens that are left some
milliseconds each.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.masking import LIMITED, VIOLATED, JointTables
from nco_guard.masking.idsets import Ids, holds
from nco_guard.shapes.joint_ways import JointWays, WaySearch
from nco_guard.shapes.shape import SHAPE_RULE
from nco_guard.shapes.states import REFUSED, ShapeStates

__all__ = ["ShapedTables"]

#: In place of a shape's state: somebody forced a token that the shape does not let come, so it counts no more.
LOST = -2


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
        self.ways = JointWays(inner, states)
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
        self.ways.forget_limited()

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
        search = WaySearch(self.ways, policy, shape, remaining)
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
        entries = self._links + len(self.ways) + 3 * len(self._pairs)
        return self._array_bytes + self.states.nbytes + 120 * entries


def _rest(ids: Ids, width: int) -> bytes:
    others = np.ones(width, bool)
    others[ids] = False
    return np.flatnonzero(others).tobytes()
