r"""Is there any value at one place of a JSON text that no hard rule of a policy matches?

A value is read in two ways, and one match in either forbids it:

* *alone*, as whoever parses the text gets it: a string as it is, a number as it prints, true, false and null as they
  are written and as Python prints them (`automata.LITERALS`);
* *in its place*, as it is written: between quotes, or between the signs that may stand beside a number. What stands
  around is not known, so a match counts only if it is there whatever precedes. Escapes hide nothing: rules are
  enforced on what they resolve to, too (`nco_guard.guards.seeing_through_json`). A ready-made automaton and a rule that
  resolves escapes itself are asked about strings alone, not in their place.

Strings with a pattern, a format or lengths are searched: best first, over the product of the automata of what is
required with those of the rules, so that a string is found if there is one, and none is proved if there is none. Within
bounds; what they leave open is no proof.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Any
from weakref import WeakKeyDictionary

from nco_guard.automata import LITERALS, Automaton
from nco_guard.automata.charsets import CharClasses, same_letter, word
from nco_guard.compiler import CompiledPolicy
from nco_guard.compiler.constraints import Constraint, group_constraint, own_constraint
from nco_guard.errors import PatternError, StateLimitError
from nco_guard.policy import AutomatonRule
from nco_guard.shapes.needed import FORMATS, NUMBERS, OUT_OF_REACH, NeededPattern, some_characters

__all__ = ["HardRules", "Verdict", "hard_rules"]

# Steps of automata in one search, before it is given up.
_STEPS = 400_000
# Steps of one rule by which it is found what may precede a value.
_AROUND = 10_000
_BEFORE = ":[,{ \t\n\r"
_BEHIND = ",]} \t\n\r"
# What stands before a string, and before any other value, mostly.
_QUOTED = ('"', ': "', ', "', '["', ':"', '\n  "')
_BESIDE = ("", ":", ": ", ", ", "[", "\n  ")


@dataclass(frozen=True)
class Verdict:
    """What was found of a place.

    rule_ids: rules that leave nothing; empty where something is left, or may be. text: what is left, for one; None
    where nothing is, or where it is not known. decided: False where a bound was met.
    """

    rule_ids: tuple[str, ...] = ()
    text: str | None = None
    decided: bool = True


_OPEN = Verdict(decided=False)


class _Watched:
    """One automaton of the policy's, and what is known of texts in JSON that it reads."""

    def __init__(self, constraint: Constraint, kinds: CharClasses, *, quoted: bool) -> None:
        self.automaton: Automaton = constraint.automaton
        self.kinds = kinds
        self.constraint = constraint
        self._known: dict[tuple[int, str], int] = {}
        self._quoted = quoted
        self.steps = 0

    def step(self, state: int, character: str) -> int:
        """The state after a character; negative if a match completes."""
        self.steps += 1
        key = state, character
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.automaton.read(state, character.encode())
        return found

    def steps_of(self, states: frozenset[int], character: str) -> frozenset[int]:
        """`step` for each of several states; those go in which a match completes."""
        return frozenset(after for state in states if (after := self.step(state, character)) >= 0)

    def ids(self, state: int | None) -> tuple[str, ...]:
        """The rules whose match completes in a step that came to `state`, or at the end of the text (None)."""
        named = self.constraint.rules_at
        if state is None or named is None:
            return self.constraint.rule_ids
        return named(~state) or self.constraint.rule_ids

    def begins(self, *, quoted: bool, wide: bool) -> frozenset[int] | None:
        """Where a value may begin in its place; None where this is not asked about, or leads to too many states.

        quoted: a string; else a number, true, false or null. wide: after any text; else after what stands there mostly,
        which is looked at first: a value that is free there is free.
        """
        if quoted and not self._quoted:
            return None
        found = (self._anywhere_quoted if quoted else self._anywhere_beside) if wide else None
        return found if wide else self._mostly(_QUOTED if quoted else _BESIDE)

    def _mostly(self, texts: Iterable[str]) -> frozenset[int]:
        ends = (self.automaton.read(self.automaton.start, text.encode()) for text in texts)
        return frozenset(end for end in ends if end >= 0)

    @cached_property
    def _anywhere(self) -> frozenset[int] | None:
        """The states that some text leads to; None for too many."""
        characters = some_characters([self.kinds])
        found, waiting = {self.automaton.start}, [self.automaton.start]
        steps = 0
        while waiting:
            state = waiting.pop()
            for character in characters:
                after = self.step(state, character)
                if after >= 0 and after not in found:
                    found.add(after)
                    waiting.append(after)
            steps += len(characters)
            if steps > _AROUND:
                return None
        return frozenset(found)

    @cached_property
    def _anywhere_quoted(self) -> frozenset[int] | None:
        return None if self._anywhere is None else self.steps_of(self._anywhere, '"')

    @cached_property
    def _anywhere_beside(self) -> frozenset[int] | None:
        if self._anywhere is None:
            return None
        behind = (self.steps_of(self._anywhere, sign) for sign in _BEFORE)
        return frozenset({self.automaton.start}).union(*behind)

    def may_follow(self, states: frozenset[int]) -> bool:
        """Whether a number may end in one of some states."""
        return any(
            self.automaton.may_end(state) or any(self.step(state, sign) >= 0 for sign in _BEHIND)
            for state in states
        )


# Where a search stands: what is required, how many characters, each rule alone, each rule in its place.
_Place = tuple[tuple[int, ...], int, tuple[int, ...], tuple[frozenset[int], ...]]


class HardRules:
    """The hard rules of a policy, asked about values in JSON. `lock` is to be held meanwhile: states are found lazily.

    Cost: the automata of the policy once more, filled lazily; a look at a given value takes microseconds once they are,
    a search some milliseconds where anything is left, and up to `_STEPS` steps of automata where nothing is.
    """

    def __init__(self, compiled: CompiledPolicy, *, steps: int = _STEPS) -> None:
        self.lock = threading.RLock()
        self._steps = steps
        self._watched = [*_watched(compiled)]
        self._order = compiled.order
        self._searched: dict[object, Verdict] = {}

    def in_order(self, rule_ids: Iterable[str]) -> tuple[str, ...]:
        """Ids of rules in the policy's order, each once."""
        return tuple(sorted(set(rule_ids), key=self._order.__getitem__))

    def of_string(self, text: str) -> tuple[str, ...]:
        """The rules that forbid a string: as a value or a key of JSON."""
        return self.in_order(self._of_text(text, text, quoted=True))

    def of_literal(self, written: str) -> tuple[str, ...]:
        """The rules that forbid a number, true, false or null: as it is written, in its place and as it prints."""
        forms = dict.fromkeys((written, LITERALS.get(written, written)))
        return self.in_order(rule for form in forms for rule in self._of_text(written, form, quoted=False))

    def of_value(self, value: Any) -> tuple[str, ...]:
        """The rules that forbid a value of any kind, each key and value in it."""
        found: list[str] = []
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                waiting += [*one.values(), *map(str, one)]
            elif isinstance(one, list | tuple):
                waiting += one
            else:
                found += self.of_string(one) if isinstance(one, str) else self.of_literal(json.dumps(one))
        return self.in_order(found)

    def _of_text(self, text: str, alone: str, *, quoted: bool) -> Iterator[str]:
        """The rules that forbid a value as it is written in its place, or as it is read alone."""
        for one in self._watched:
            state = one.automaton.start
            for character in alone:
                state = one.step(state, character)
                if state < 0:
                    break
            if state < 0 or not one.automaton.may_end(state):
                yield from one.ids(state if state < 0 else None)
                continue
            if all(self._in_place(one, text, quoted=quoted, wide=wide) for wide in (False, True)):
                yield from one.ids(None)

    def _in_place(self, one: _Watched, text: str, *, quoted: bool, wide: bool) -> bool:
        """Whether a match is in a value whatever precedes it."""
        states = one.begins(quoted=quoted, wide=wide)
        if states is None:
            return False
        for character in f'{text}"' if quoted else text:
            states = one.steps_of(states, character)
        return not states or not (quoted or one.may_follow(states))

    def of_strings(
        self, pattern: str | None = None, format: str | None = None, low: int = 0, high: int | None = None
    ) -> Verdict:
        """Whether a string of `low` to `high` characters is left that holds a match of `pattern` and is of `format`."""
        key = ("string", pattern, format, low, high)
        if key not in self._searched:
            try:
                needed = [] if pattern is None else [NeededPattern(pattern)]
            except PatternError:
                return _OPEN
            if format in FORMATS:
                needed.append(NeededPattern(FORMATS[format], whole=True))
            self._searched[key] = self._search(needed, low, high, quoted=True)
        return self._searched[key]

    def of_numbers(self, kind: str) -> Verdict:
        """Whether an "integer" or a "number" is left."""
        if kind not in self._searched:
            self._searched[kind] = self._search(
                [NeededPattern(NUMBERS[kind], whole=True)], 0, None, quoted=False
            )
        return self._searched[kind]

    def _search(self, needed: list[NeededPattern], low: int, high: int | None, *, quoted: bool) -> Verdict:
        def searched(watched: list[_Watched], *, wide: bool) -> tuple[Verdict, _Search]:
            search = _Search(watched, needed, low, high, quoted=quoted, wide=wide, steps=self._steps)
            return search.run(), search

        found, search = searched(self._watched, wide=False)
        wide = search.placed_met and _nothing(found)
        if wide:  # something else may precede
            found, search = searched(self._watched, wide=True)
        if not _nothing(found) or not search.met:
            return found
        if searched([], wide=wide)[0].text is None:
            return Verdict()  # the schema asks for what there is not, whatever the rules are
        for one in search.met:  # the rules that do it by themselves, if there are such
            alone, single = searched([one], wide=wide)
            if _nothing(alone):
                return Verdict(self.in_order(single.met[one]))
        return Verdict(self.in_order(each for ids in search.met.values() for each in ids))


_kept: WeakKeyDictionary[CompiledPolicy, HardRules] = WeakKeyDictionary()
_lock = threading.Lock()


def hard_rules(compiled: CompiledPolicy) -> HardRules:
    """The hard rules of a compiled policy, with all that was found of them: the same object for the same policy."""
    with _lock:
        found = _kept.get(compiled)
        if found is None:
            found = _kept[compiled] = HardRules(compiled)
        return found


def _nothing(verdict: Verdict) -> bool:
    return verdict.decided and verdict.text is None


def _watched(compiled: CompiledPolicy) -> Iterator[_Watched]:
    """The automata of hard rules, as the masks have them: a rule with a stop point forbids from there."""
    for rule in compiled.rules:
        if rule.rule.mode == "hard" and rule.listed is None:
            own = own_constraint(rule, True)
            kinds = own.automaton.kinds
            if kinds is not None:
                quoted = not (isinstance(rule.rule, AutomatonRule) or rule.fold.json_escapes)
                yield _Watched(own, kinds, quoted=quoted)
    for group in compiled.groups:
        letters = sorted({letter for piece in group.pieces for text in piece.strings for letter in text})
        sets = [same_letter(letter) if group.kind.caseless else ((ord(letter),) * 2,) for letter in letters]
        yield _Watched(group_constraint(group, None), CharClasses([*sets, word()]), quoted=True)


class _Search:
    """One search for a string, or a number, that is allowed."""

    def __init__(
        self,
        watched: list[_Watched],
        needed: list[NeededPattern],
        low: int,
        high: int | None,
        *,
        quoted: bool,
        wide: bool,
        steps: int,
    ) -> None:
        self._needed, self._low, self._high = needed, low, high
        self._alone = watched if quoted else []
        begins = [(one, one.begins(quoted=quoted, wide=wide)) for one in watched]
        self._placed = [one for one, states in begins if states is not None]
        self._begin = tuple(states for _, states in begins if states is not None)
        self._quoted, self._steps = quoted, steps
        # Counting stops where it makes no difference any more.
        self._count = low if high is None else high
        #: Whether any of them was met where a value was read in its place.
        self.placed_met = False
        #: The rules that were met, by what watches for them.
        self.met: dict[_Watched, dict[str, None]] = {}

    def run(self) -> Verdict:
        """A string that is allowed, the rules that leave none, or neither."""
        try:
            return self._run()
        except StateLimitError:
            return _OPEN

    def _run(self) -> Verdict:
        kinds = [one.kinds for one in self._alone or self._placed]
        characters = some_characters([*kinds, *(one.automaton.kinds for one in self._needed)])
        start: _Place = (
            tuple(one.automaton.start for one in self._needed),
            0,
            tuple(one.automaton.start for one in self._alone),
            self._begin,
        )
        came: dict[_Place, tuple[_Place, str] | None] = {start: None}
        waiting = [(self._left(start), 0, start)]
        before = sum(one.steps for one in self._alone or self._placed)
        while waiting:
            _, _, place = heappop(waiting)
            if self._ends(place):
                return Verdict(text=_spelled(came, place))
            for character in characters:
                after = self._after(place, character)
                if after is not None and after not in came:
                    came[after] = place, character
                    heappush(waiting, (self._left(after), len(came), after))
            spent = sum(one.steps for one in self._alone or self._placed) - before
            if spent + len(came) > self._steps:
                return _OPEN
        # Nothing is left: because of the rules, or because the schema asks for what there is not.
        return Verdict(tuple(each for ids in self.met.values() for each in ids))

    def _left(self, place: _Place) -> int:
        return max(
            [self._low - place[1], 0, *(n.left(s) for n, s in zip(self._needed, place[0], strict=True))]
        )

    def _after(self, place: _Place, character: str) -> _Place | None:
        needs, length, alone, placed = place
        if self._high is not None and length >= self._high:
            return None
        text = character.encode()
        needs = tuple([one.step(state, text) for one, state in zip(self._needed, needs, strict=True)])
        if any(one.left(state) == OUT_OF_REACH for one, state in zip(self._needed, needs, strict=True)):
            return None
        states: list[int] = []
        for one, state in zip(self._alone, alone, strict=True):
            reached = one.step(state, character)
            if reached < 0:
                self._meet(one, reached)
                return None
            states.append(reached)
        sets: list[frozenset[int]] = []
        for one, several in zip(self._placed, placed, strict=True):
            following = one.steps_of(several, character)
            if not following:
                self.placed_met = True
                self._meet(one, None)
                return None
            sets.append(following)
        return needs, min(length + 1, self._count), tuple(states), tuple(sets)

    def _ends(self, place: _Place) -> bool:
        needs, length, alone, placed = place
        if length < self._low or not all(n.met(state) for n, state in zip(self._needed, needs, strict=True)):
            return False
        for one, state in zip(self._alone, alone, strict=True):
            if not one.automaton.may_end(state):
                self._meet(one, None)
                return False
        for one, states in zip(self._placed, placed, strict=True):
            if not (one.steps_of(states, '"') if self._quoted else one.may_follow(states)):
                self.placed_met = True
                self._meet(one, None)
                return False
        return True

    def _meet(self, one: _Watched, state: int | None) -> None:
        self.met.setdefault(one, {}).update(dict.fromkeys(one.ids(state)))


def _spelled(came: dict[_Place, tuple[_Place, str] | None], place: _Place) -> str:
    found: list[str] = []
    step = came[place]
    while step is not None:
        place, character = step
        found.append(character)
        step = came[place]
    return "".join(reversed(found))
