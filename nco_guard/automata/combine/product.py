"""Many small machines run as one: the product, its states found as they are met.

Hundreds of rules over few letters cost a look-up each and step when they are run one by one. Here a state is a row of
member states; one gather over a stacked table of all members takes it a character further, and a row met before is one
look-up. The product is never built: texts visit few of its rows.

Meant for members that tell few characters apart: a walk over a vocabulary with many letters would meet a new row at
each node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import UNKNOWN
from nco_guard.automata.characters import CharMachine
from nco_guard.automata.charsets import CharClasses
from nco_guard.errors import StateLimitError

__all__ = ["ProductMachine"]

_STATE_LIMIT = 400_000


class _Rows:
    """An int32 matrix whose rows are added one by one."""

    def __init__(self, width: int) -> None:
        self.array: NDArray[np.int32] = np.full((16, width), UNKNOWN, np.int32)
        self.count = 0

    def room(self, at: int) -> None:
        """See to it that there is a row; whoever fills it counts it then."""
        if at == len(self.array):
            grown = np.full((2 * at, self.array.shape[1]), UNKNOWN, np.int32)
            grown[:at] = self.array
            self.array = grown


class ProductMachine:
    """Completes a match where any member does, and lets the text end where all members do; for hard rules.

    A `CharMachine` over the classes of characters that some member tells apart. `completed_by(state)`: the members
    whose match a step into `state` completed, or can no longer be avoided; `pending_in(state)`: those that do not let
    the text end there.

    Cost: a row of 4 bytes a member for each state; a new transition is one gather over all members. Errors:
    `StateLimitError` of a member or of the product.
    """

    def __init__(self, members: Sequence[CharMachine]) -> None:
        self._members = tuple(members)
        self.classes = CharClasses(s for member in self._members for s in member.classes.sets())
        some_character = np.array([ranges[0][0] for ranges in self.classes.sets()], np.uint32)
        self._letters = [member.classes.of(some_character) for member in self._members]

        # Member states, stacked: what each class leads to, whose they are and which. No text goes on after a match of a
        # hard rule, nor where none can be avoided any more.
        self._stack = _Rows(self.classes.count)
        self._owner: list[tuple[int, int]] = []
        self._place: dict[tuple[int, int], int] = {}
        self._ends: list[bool] = []
        self._doomed: list[bool] = []
        self._distances: list[int] = []
        # Product states: their rows, negative where a match has just completed.
        self._rows = _Rows(len(self._members))
        self._steps = _Rows(self.classes.count)
        self._ids: dict[bytes, int] = {}
        self._may_end: dict[int, bool] = {}
        starts = [self._member_state(i, m.start) for i, m in enumerate(self._members)]
        self.start = self._intern(np.array(starts, np.int32))

    def _member_state(self, member: int, state: int) -> int:
        key = (member, state)
        place = self._place.get(key)
        if place is None:
            machine, place = self._members[member], self._stack.count
            self._stack.room(place)
            # What a step that broke off has left of the same number is overwritten.
            self._ends[place:] = [machine.may_end(state)]
            self._doomed[place:] = [machine.doomed(state)]
            self._distances[place:] = [machine.distance(state)]
            self._owner[place:] = [key]
            self._stack.count = place + 1
            self._place[key] = place
        return place

    def _intern(self, row: NDArray[np.int32]) -> int:
        key = row.tobytes()
        state = self._ids.get(key)
        if state is None:
            if len(self._ids) >= _STATE_LIMIT:
                raise StateLimitError(
                    f"rules that run together passed their limit of {_STATE_LIMIT:,} joint states; use fewer of them"
                )
            state = self._rows.count
            self._rows.room(state)
            self._steps.room(state)
            self._rows.array[state] = row
            self._rows.count = state + 1
            self._ids[key] = state
        return state

    def _row(self, state: int) -> NDArray[np.int32]:
        row = self._rows.array[state]
        found: NDArray[np.int32] = np.where(row < 0, ~row, row)
        return found

    def step(self, state: int, cls: int) -> int:
        """The next state, or `~next` if a match completes or cannot be avoided any more."""
        reached = int(self._steps.array[state, cls])
        if reached == UNKNOWN:
            row = self._row(state)
            following = self._stack.array[row, cls]
            unknown = following == UNKNOWN
            if unknown.any():
                for place in row[unknown].tolist():
                    self._step_member(place, cls)
                following = self._stack.array[row, cls]
            reached = self._intern(following)
            if (following < 0).any():
                reached = ~reached
            self._steps.array[state, cls] = reached
        return reached

    def _step_member(self, place: int, cls: int) -> None:
        member, state = self._owner[place]
        machine, letters = self._members[member], self._letters[member]
        reached = machine.step(state, int(letters[cls]))
        following = self._member_state(member, ~reached if reached < 0 else reached)
        if reached < 0 or self._doomed[following]:
            following = ~following
        # All characters that the member takes for this one are settled at once.
        self._stack.array[place, letters == letters[cls]] = following

    def explore(self, states: int) -> None:
        """Find the members' transitions ahead of time, up to so many states of each member."""
        for index, member in enumerate(self._members):
            found = {self._member_state(index, member.start)}
            waiting = list(found)
            while waiting:
                place = waiting.pop()
                for cls in range(self.classes.count):
                    if self._stack.array[place, cls] == UNKNOWN:
                        self._step_member(place, cls)
                    reached = int(self._stack.array[place, cls])
                    if reached >= 0 and reached not in found and len(found) < states:
                        found.add(reached)
                        waiting.append(reached)

    def may_end(self, state: int) -> bool:
        """Whether every member lets the text end here."""
        known = self._may_end.get(state)
        if known is None:
            known = self._may_end[state] = all(self._ends[place] for place in self._row(state).tolist())
        return known

    def forgets(self, character: str) -> bool:
        """See `CharMachine`: whether all members do."""
        return all(member.forgets(character) for member in self._members)

    def distance(self, state: int) -> int:
        """The least of the members'."""
        nearest: int = min(self._distances[place] for place in self._row(state).tolist())
        return nearest

    def past_prompt(self, state: int) -> int:
        """The state, but without matches that end in what was read."""
        owners = [self._owner[place] for place in self._row(state).tolist()]
        past = [self._member_state(i, self._members[i].past_prompt(own)) for i, own in owners]
        return self._intern(np.array(past, np.int32))

    def doomed(self, state: int) -> bool:
        """Whether some member can avoid a match no more. Steps into such states count as matches already."""
        return any(self._doomed[place] for place in self._row(state).tolist())

    def completed_by(self, state: int) -> list[int]:
        """The members whose match a step into this state completed or made unavoidable."""
        return np.flatnonzero(self._rows.array[state] < 0).tolist()

    def pending_in(self, state: int) -> list[int]:
        """The members that do not let the text end in this state."""
        return [i for i, place in enumerate(self._row(state).tolist()) if not self._ends[place]]

    @property
    def nbytes(self) -> int:
        """Bytes held, the members' included (those of dictionaries estimated)."""
        members = sum(member.nbytes for member in self._members)
        rows = 2 * self._rows.array.nbytes + self._steps.array.nbytes + 150 * self._rows.count
        return members + rows + self._stack.array.nbytes + 220 * self._stack.count
