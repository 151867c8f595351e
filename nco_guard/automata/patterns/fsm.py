"""A ready-made finite automaton (`interegular.FSM`) as a constraint: the paper's Problem 2.

The text must not contain any word that the automaton accepts. The automaton reads characters; symbols outside its
alphabet are `interegular.fsm.anything_else` where it has that, else no transition.

The paper keeps the set of states reached from every start position (section 4.2); so does this, interned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import copy
from typing import Any, Self

from interegular import FSM
from interegular.fsm import anything_else

from nco_guard.automata.charsets import CharClasses, CharSet, complement, union
from nco_guard.automata.numbered import Numbered
from nco_guard.automata.patterns.alternating import Room

__all__ = ["FsmMachine"]

_MANY_MEMBERS = 1_000_000  # of all states together, after half of which a search goes on with a fresh machine


class FsmMachine:
    """Searches for any accepted word, a character class at a time. See `characters.CharMachine`."""

    def __init__(self, fsm: FSM, *, state_limit: int = 200_000) -> None:
        self.state_limit = state_limit
        by_key: dict[object, list[tuple[int, int]]] = {}
        for symbol, key in fsm.alphabet._symbol_mapping.items():
            if symbol is not anything_else:
                by_key.setdefault(key, []).append((ord(symbol), ord(symbol)))
        sets: dict[object, CharSet] = {key: union(*((r,) for r in ranges)) for key, ranges in by_key.items()}
        outside = complement(union(*sets.values()))
        if anything_else in fsm.alphabet:
            key = fsm.alphabet[anything_else]
            sets[key] = union(sets.get(key, ()), outside)
        self.classes = CharClasses(sets.values())
        self._keys: list[object] = [None] * self.classes.count
        for key, ranges in sets.items():
            mask = self.classes.mask(ranges)
            for cls in range(self.classes.count):
                if mask >> cls & 1:
                    self._keys[cls] = key
        self._map = fsm.map
        self._finals = frozenset(fsm.finals)
        self._initial = fsm.initial
        self._remaining = _remaining(fsm)
        self._states: Numbered[frozenset[object]] = Numbered()
        self._held = 0  # members of all states
        self.start = self._state(frozenset([self._initial]))
        self.bare_start = self._state(frozenset())
        self._room = Room()
        self.runs: Any = None  # see `spans.machines`
        self.accepts_empty = self._initial in self._finals

    def _state(self, members: frozenset[object]) -> int:
        known, whose = len(self._states), "the search for this automaton's words"
        state = self._states.state(members, self.state_limit, whose, "reduce or split the automaton")
        if len(self._states) > known:
            self._held += len(members)
        return state

    @property
    def state_count(self) -> int:
        """States found so far."""
        return len(self._states)

    @property
    def crowded(self) -> bool:
        """See `AlternatingMachine.crowded`."""
        return self._room.taken(len(self._states), self._held, self.state_limit, _MANY_MEMBERS)

    def carried(self, states: Sequence[int]) -> tuple[Self, list[int]]:
        """See `AlternatingMachine.carried`."""
        fresh = copy(self)
        fresh._states, fresh._held, fresh.runs = Numbered(), 0, None
        fresh.start, fresh.bare_start, *found = [
            fresh._state(self._states[state]) for state in (self.start, self.bare_start, *states)
        ]
        fresh._room = Room(len(fresh._states), fresh._held)
        return fresh, found

    @property
    def nbytes(self) -> int:
        """Bytes held, estimated."""
        return 400 * len(self._states) + 40 * self._held

    def step(self, state: int, cls: int, *, seed: bool = True) -> int:
        """The next state, or `~next` if an accepted word ends with this character.

        `seed=False`: no new word may start after it.
        """
        key = self._keys[cls]
        members: set[object] = {self._initial} if seed else set()
        matched = False
        for member in self._states[state]:
            reached = self._map.get(member, {}).get(key)
            if reached is not None:
                members.add(reached)
                matched = matched or reached in self._finals
        following = self._state(frozenset(members))
        return ~following if matched else following

    def planted(self, state: int) -> int:
        """The state with one word started at this very position and none elsewhere."""
        return self.start

    def is_bare(self, state: int) -> bool:
        """Whether no word is under way in this state."""
        return self._remaining.keys().isdisjoint(self._states[state])

    def may_end(self, state: int) -> bool:
        """Always: a word is complete with its last character."""
        return True

    def doomed(self, state: int) -> bool:
        """Never: the text may always end."""
        return False

    def forgets(self, character: str) -> bool:
        """See `characters.CharMachine`: not known."""
        return False

    def distance(self, state: int) -> int:
        """How many more characters a word needs at least, one that begins here included."""
        ahead = [self._remaining[m] for m in (self._initial, *self._states[state]) if m in self._remaining]
        return max(1, min(ahead, default=255))

    def past_prompt(self, state: int) -> int:
        """The state itself: a word is complete with its last character, and waits for nothing."""
        return state

    def beginnings(self, longest: int) -> list[CharSet]:
        """What each of the first characters of an accepted word can be, as far as all words reach, at most so far."""
        sets = self.classes.sets()
        members, found = {self._initial}, list[CharSet]()
        while len(found) < longest and members.isdisjoint(self._finals):
            moves = [self._map.get(member, {}) for member in members]
            alive = [[key for key, reached in move.items() if reached in self._remaining] for move in moves]
            keys = {key for options in alive for key in options}
            found.append(union(*(s for s, key in zip(sets, self._keys, strict=True) if key in keys)))
            members = {move[key] for move, options in zip(moves, alive, strict=True) for key in options}
        return found

    def longest_from(self, state: int, classes: Sequence[int], position: int) -> int | None:
        """The end of the longest accepted word that starts at `position`; None: there is none."""
        member: object = self._initial
        best: int | None = None
        while position < len(classes):
            member = self._map.get(member, {}).get(self._keys[classes[position]])
            if member is None:
                break
            position += 1
            if member in self._finals:
                best = position
        return best


def _remaining(fsm: FSM) -> dict[object, int]:
    """How many symbols a word needs yet at least, for the states from which one can still be completed."""
    sources: dict[object, set[object]] = {}
    for state, moves in fsm.map.items():
        for reached in moves.values():
            sources.setdefault(reached, set()).add(state)
    found = dict.fromkeys(fsm.finals, 0)
    waiting = deque[object](found)
    while waiting:
        current = waiting.popleft()
        for source in sources.get(current, ()):
            if source not in found:
                found[source] = found[current] + 1
                waiting.append(source)
    return found
