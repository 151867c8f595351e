"""Machines over classes of characters, and the byte automaton that is made of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import SINK, UNASKED, UNKNOWN, Arrays, TableAutomaton
from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.utf8 import ILL_FORMED, byte_classes_of, utf8_table

__all__ = ["CharMachine", "ClassAutomaton"]

_KEPT_STATES = 20_000
_MANY = 4  # transitions of one state that are needed together, from which on all of them are found
_FUTURES = (
    4  # classes that the ends of a character may be of, for states within it to be named by what follows
)
_PAST_PROMPT = -2  # in place of a class: not a step but the end of the prompt


class CharMachine(Protocol):
    """A search automaton over character classes, as `AlternatingMachine` and `FsmMachine` are."""

    classes: CharClasses
    start: int

    def step(self, state: int, cls: int) -> int:
        """The next state, or `~next` if a match completes."""

    def may_end(self, state: int) -> bool:
        """Whether the text may end here."""

    def doomed(self, state: int) -> bool:
        """Whether no continuation, ending here included, avoids a match."""

    def distance(self, state: int) -> int:
        """A bound from below: with fewer bytes of text no match completes, and the text may end after all of them."""

    def past_prompt(self, state: int) -> int:
        """The state, but without matches that end in what was read."""

    def forgets(self, character: str) -> bool:
        """Whether it is known that a character leads where it leads from the start, completing nothing.

        From every state in which the text may end.
        """

    @property
    def nbytes(self) -> int:
        """Bytes held, estimated."""


class ClassAutomaton(TableAutomaton):
    """A `CharMachine` read byte by byte: a state is a machine state, or a place within a character.

    Within a character, what matters is what its possible ends lead to; states that agree in that are one.

    With `absorbing` (hard rules), reaching a doomed state counts as a match: what cannot be avoided any more is
    forbidden while it still can. `rule_id` names the rule in errors.

    `machine` may also be a function that makes it. With `byte_classes` and `kinds` known, that is called when the first
    transition is needed that was not recalled (`recall`).
    """

    def __init__(
        self,
        machine: CharMachine | Callable[[], CharMachine],
        *,
        absorbing: bool,
        rule_id: str | None = None,
        byte_classes: NDArray[np.uint8] | None = None,
        kinds: CharClasses | None = None,
    ) -> None:
        super().__init__(rule_id)
        self.absorbing = absorbing
        self._made = None if callable(machine) else machine
        self._make = machine if callable(machine) else None
        self._byte_classes = byte_classes
        self._kinds = kinds
        self._alike: dict[tuple[int, int], NDArray[np.intp]] = {}
        self._targets: dict[int, tuple[list[int], NDArray[np.intp]]] = {}
        self._within: dict[int, tuple[int, ...]] = {}
        # Machine states have numbers of their own here, in the order in which they were met, each with a witness: the
        # step that led to it first, or the end of a prompt. So states can be kept and the machine be led to them again.
        self._witnesses: list[tuple[int, int]] = [(-1, -1)]
        self._inner: list[int] = []  # the machine's own number of each; shorter until they were found again
        self._inner_numbers: dict[int, int] = {}
        # The key of a state: its machine state and 0; or the number (below -1) of what the ends of a character lead to
        # and the place within; or, where its ends are of too many classes, the machine state before it and the place.
        self._keys: list[tuple[int, int]] = [(-1, 0)]
        self._futures: list[tuple[int, ...]] = []
        self._future_ids: dict[tuple[int, ...], int] = {}
        self._ids: dict[tuple[int, int], int] = {}
        self._past_prompts: dict[int, int] = {}
        self._forgotten: dict[int, bool] = {}
        self._distances: NDArray[np.int16] = np.zeros(0, np.int16)
        self.start = self._state(0, 0)
        self.spaceless_start = self._taken(self._room())
        self._keys.append((0, 0))
        self._table[self.spaceless_start, 0x20] = self.start

    @property
    def machine(self) -> CharMachine:
        """The machine that is read, made and led to all known states where that has not been done yet."""
        machine = self._made
        if machine is None:
            if self._make is None:
                raise LookupError("there is no machine")
            machine = self._made = self._make()
        if len(self._inner) < len(self._witnesses):
            self._follow_witnesses(machine)
        return machine

    def _follow_witnesses(self, machine: CharMachine) -> None:
        for number in range(len(self._inner), len(self._witnesses)):
            before, cls = self._witnesses[number]
            if not number:
                reached = machine.start
            elif cls == _PAST_PROMPT:
                reached = machine.past_prompt(self._inner[before])
            else:
                reached = machine.step(self._inner[before], cls)
            self._inner.append(~reached if reached < 0 else reached)
            # Two witnesses may lead to one state, where an order of sets differs: the first will do.
            self._inner_numbers.setdefault(self._inner[number], number)

    @cached_property
    def _utf8(self) -> NDArray[np.int32]:
        return utf8_table(self.machine.classes)

    def _number(self, inner: int, before: int, cls: int) -> int:
        """The number of a machine state, new ones with the step that led there."""
        number = self._inner_numbers.get(inner)
        if number is None:
            number = len(self._witnesses)
            self._inner[number:] = [inner]
            self._witnesses.append((before, cls))
            self._inner_numbers[inner] = number
        return number

    def _state(self, number: int, node: int) -> int:
        key = (number, node)
        state = self._ids.get(key)
        if state is None:
            state = self._room()
            self._keys[state:] = [key]
            self._ids[key] = self._taken(state)
        return state

    def _find(self, state: int, byte: int) -> int:
        number, node = self._keys[state]
        target = int(self._utf8[node, byte])
        reached = self._follow(number, node, target)
        # All bytes that mean the same here are settled at once.
        alike = self._alike.get((node, target))
        if alike is None:
            alike = self._alike[node, target] = np.flatnonzero(self._utf8[node] == target)
        row = self._table[state]
        if state == self.spaceless_start:
            alike = alike[row[alike] == UNKNOWN]
        row[alike] = reached
        return reached

    def _find_some(self, state: int, wanted: list[int]) -> None:
        if len(wanted) < _MANY:
            super()._find_some(state, wanted)
            return
        number, node = self._keys[state]
        if node not in self._targets:
            distinct, of_byte = np.unique(self._utf8[node], return_inverse=True)
            self._targets[node] = (distinct.tolist(), of_byte.ravel())
        targets, of_byte = self._targets[node]
        row = np.array([self._follow(number, node, target) for target in targets], np.int32)[of_byte]
        if state == self.spaceless_start:
            row[0x20] = self.start
        self._table[state] = row
        self._finds += len(wanted)

    def _follow(self, number: int, node: int, target: int) -> int:
        if target == ILL_FORMED:
            return SINK
        if target >= 0:
            reached = self._after(number, node, target)
            return ~self._state(~reached, 0) if reached < 0 else self._state(reached, 0)
        place = -2 - target
        classes = self._classes_within(place)
        if len(classes) > _FUTURES:
            following = self._state(number, place)
            every = self.absorbing and all(self._after(number, node, cls) < 0 for cls in classes)
            return ~following if every else following
        futures = tuple([self._after(number, node, cls) for cls in classes])
        known = self._future_ids.get(futures)
        if known is None:
            known = len(self._futures)
            self._futures.append(futures)
            self._future_ids[futures] = known
        following = self._state(-2 - known, place)
        # What every end of the character completes, or makes unavoidable, is complete already.
        return ~following if self.absorbing and max(futures) < 0 else following

    def _after(self, number: int, node: int, cls: int) -> int:
        """The machine state after a character; `~` of it if that completes a match, or makes one unavoidable."""
        if number < -1:
            return self._futures[-2 - number][self._classes_within(node).index(cls)]
        machine = self.machine
        reached = machine.step(self._inner[number], cls)
        matched = reached < 0
        inner = ~reached if matched else reached
        found = self._number(inner, number, cls)
        return ~found if matched or (self.absorbing and machine.doomed(inner)) else found

    @property
    def byte_classes(self) -> NDArray[np.uint8]:
        """uint8 [256]: bytes of one class begin, continue and end characters that the machine cannot tell apart.

        The space, which `spaceless_start` tells from all others, has a class of its own.
        """
        if self._byte_classes is None:
            self._byte_classes = byte_classes_of(self._utf8)
        return self._byte_classes

    def forgets(self, byte: int) -> bool:
        """See `Automaton.forgets`. For ASCII; not for the space, which the second start tells from others."""
        known = self._forgotten.get(byte)
        if known is None:
            known = self._forgotten[byte] = byte < 0x80 and byte != 0x20 and self.machine.forgets(chr(byte))
        return known

    @property
    def kinds(self) -> CharClasses:
        """See `Automaton.kinds`."""
        if self._kinds is None:
            self._kinds = self.machine.classes
        return self._kinds

    def found(self) -> Arrays | None:
        """Transitions by byte class, states, witnesses and endings; None for more than 20,000 states."""
        if self._count > _KEPT_STATES:
            return None
        classes = self.byte_classes
        _, some_byte = np.unique(classes, return_index=True)
        endings = np.full(self._count, UNASKED, np.int8)
        known = min(len(self._endings), self._count)
        endings[:known] = self._endings[:known]
        return {
            "classes": classes,
            "table": self._table[: self._count, some_byte],
            "keys": np.array(self._keys, np.int32),
            "futures": np.array([[*f, *[UNKNOWN] * (_FUTURES - len(f))] for f in self._futures], np.int32),
            "witnesses": np.array(self._witnesses, np.int32),
            "endings": endings,
            "distances": self._known_distances()[: self._count],
            "past_prompts": np.array(list(self._past_prompts.items()), np.int32).reshape(-1, 2),
            "forgotten": np.array(list(self._forgotten.items()), np.int32).reshape(-1, 2),
        }

    def recall(self, arrays: Arrays) -> bool:
        """Take up what `found` gave. The machine is led to those states when it is needed, some 10 us each."""
        table, keys, witnesses = arrays["table"], arrays["keys"], arrays["witnesses"]
        if self._count > 3 or not np.array_equal(arrays["classes"], self.byte_classes):
            return False
        count = len(table)
        self._table = np.full((max(16, count), 256), UNKNOWN, np.int32)
        self._table[:count] = table[:, self.byte_classes]
        self._endings = arrays["endings"].copy()
        self._distances = arrays["distances"].copy()
        self._count = count
        self._keys = [(number, node) for number, node in keys.tolist()]
        self._ids = {key: state for state, key in enumerate(self._keys)}
        # Not the second start, which has the key of the first.
        self._ids[self._keys[self.start]] = self.start
        self._witnesses = [(before, cls) for before, cls in witnesses.tolist()]
        rows = arrays["futures"].reshape(-1, _FUTURES).tolist()
        self._futures = [tuple(n for n in row if n != UNKNOWN) for row in rows]
        self._future_ids = {futures: i for i, futures in enumerate(self._futures)}
        self._past_prompts = dict(arrays["past_prompts"].tolist())
        self._forgotten = {byte: bool(known) for byte, known in arrays["forgotten"].tolist()}
        self._finds = int(np.count_nonzero(table != UNKNOWN))
        return True

    @property
    def nbytes(self) -> int:
        """Bytes held by the transition table, by what names its states (estimated), and by the machine."""
        named = 300 * (len(self._keys) + len(self._witnesses) + len(self._futures))
        held = super().nbytes + self._distances.nbytes + named
        return held + (0 if self._made is None else self._made.nbytes)

    def _classes_within(self, node: int) -> tuple[int, ...]:
        """The classes of all characters that begin with the bytes that lead to a node."""
        known = self._within.get(node)
        if known is None:
            targets = set(self._utf8[node].tolist()) - {ILL_FORMED}
            found = {t for t in targets if t >= 0}
            found = found.union(*(self._classes_within(-2 - t) for t in targets if t < 0))
            known = self._within[node] = tuple(sorted(found))
        return known

    def _ahead(self, state: int) -> list[int]:
        """What the machine is in, if need be after the rest of a character; as `_after`."""
        number, node = self._keys[state]
        return [self._after(number, node, cls) for cls in self._classes_within(node)] if node else [number]

    def machine_states(self, state: int) -> list[int]:
        """What the machine is in; within a character, what its possible ends lead to."""
        _ = self.machine
        return [self._inner[~number if number < 0 else number] for number in self._ahead(state)]

    def _known_distances(self) -> NDArray[np.int16]:
        if len(self._distances) < self._count:
            grown = np.full(len(self._table), UNASKED, np.int16)
            grown[: len(self._distances)] = self._distances
            self._distances = grown
        return self._distances

    def distances(self, states: NDArray[np.int32]) -> NDArray[np.int16]:
        """See `Automaton.distances`. States never asked about before cost a Python call each."""
        known = self._known_distances()
        found = known[states]
        if len(found) and found.min() == UNASKED:
            for state in set(states[found == UNASKED].tolist()):
                known[state] = min(255, self._distance(state)) if state != SINK else 255
            found = known[states]
        return found

    def distance(self, state: int) -> int:
        """See `Automaton.distance`."""
        known = int(self._known_distances()[state])
        return known if known != UNASKED else super().distance(state)

    def _distance(self, state: int) -> int:
        machine, (number, node) = self.machine, self._keys[state]
        if not node:
            return machine.distance(self._inner[number])
        return 1 + min(0 if n < 0 else machine.distance(self._inner[n]) for n in self._ahead(state))

    def past_prompt(self, state: int) -> int:
        """The state after a prompt, which ends between characters."""
        if state == SINK:
            return SINK
        known = self._past_prompts.get(state)
        if known is None:
            number, node = self._keys[state]
            if node:
                raise ValueError("a prompt does not end within a character")
            past = self.machine.past_prompt(self._inner[number])
            known = self._past_prompts[state] = self._state(self._number(past, number, _PAST_PROMPT), 0)
        return known

    def may_end(self, state: int) -> bool:
        """Whether the text may end in this state. Within a character, well-formed UTF-8 is what forbids it."""
        if state == SINK or self._keys[state][1]:
            return True
        self._grow_endings()
        if self._endings[state] == UNASKED:
            machine = self.machine
            self._endings[state] = machine.may_end(self._inner[self._keys[state][0]])
        return bool(self._endings[state])
