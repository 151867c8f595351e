"""Ways out: how a text is brought to an allowed end, looked for within a bound.

What a rule wants written before a text may end is mostly plain: a closing tag, a bracket, the end of a word. So a
rule's own shortest way out is found first, in its own automaton, and tried on all others. Where another rule bars it,
these two are searched together, then with a third, never all of a policy at once.

The bounds are numbers of states and tokens, never a clock: the same text has the same ways out on every machine,
whatever was asked before. `bruteforce` says the same in the plainest words; this is the form that remembers.

Cost: a search of one rule, or of few together, at most `STATES` states, remembered by state; then some reads of a way
by all automata, a few hundred microseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import Automaton

__all__ = [
    "LEFT",
    "PURSUITS",
    "ROWS",
    "SEPARATORS",
    "STATES",
    "TAILS",
    "TOGETHER",
    "Way",
    "Ways",
    "characters",
]

#: States (of one rule, or of several together) that one search may find.
STATES = 400
#: Rules that are searched together.
TOGETHER = 4
#: Rules whose ways out are written one after another.
PURSUITS = 8
#: Tokens of one mask, of those without a plain way out, that are looked at; and distinct rows of states after them.
LEFT = 4096
ROWS = 256
#: Texts that are written first where a way out is barred by what precedes it.
SEPARATORS = (b"\n", b" ", b".", b"\x00")

#: Ends of characters that are tried.
TAILS = tuple(
    bytes([first, *rest]) for rest in ((), (0x80,), (0x80, 0x80)) for first in (0x80, 0x90, 0xA0, 0xB0)
)

#: A way out; False: there is none; None: that was not decided.
Way = bytes | bool | None
States = tuple[int, ...]


def characters(automata: Sequence[Automaton]) -> tuple[list[bytes], bool]:
    """Of characters that none of some automata can tell apart, the first; and whether these are all there are.

    An automaton that does not say which characters it tells apart is shown all of ASCII.
    """
    kinds = [automaton.kinds for automaton in automata]
    known = [classes for classes in kinds if classes is not None]
    starts = {0, 0xE000}.union(*(classes.starts.tolist() for classes in known))
    if len(known) < len(kinds):
        starts.update(range(0x80))
    points = np.array([code for code in sorted(starts) if not 0xD800 <= code <= 0xDFFF], np.uint32)
    rows = list(zip(*(classes.of(points).tolist() for classes in known), strict=True)) or [()] * len(points)
    first: dict[object, int] = {}
    for code, row in zip(points.tolist(), rows, strict=True):
        first.setdefault((row, code if len(known) < len(kinds) and code < 0x80 else -1), code)
    return [chr(code).encode() for code in first.values()], len(known) == len(kinds)


class Ways:
    """The ways out of all states of some automata over one vocabulary, remembered as they are found.

    Not safe to share between threads by itself.
    """

    def __init__(
        self,
        automata: Sequence[Automaton],
        utf8: int,
        letters: Sequence[bytes] | None,
        borders: Sequence[bytes] = (),
    ) -> None:
        """`utf8`: which of the automata is well-formed UTF-8. `letters`: the texts that ways are put together of; None:
        any characters, and `borders`, see `short_ways.ShortWays`.
        """
        self._automata = tuple(automata)
        self._utf8 = utf8
        self._letters = letters
        self._borders = list(borders)
        self._alphabets: dict[tuple[int, ...], tuple[Sequence[bytes], bool]] = {}
        self._own: dict[tuple[int, int], Way] = {}
        self._joint: dict[tuple[tuple[int, ...], States], Way] = {}
        self._ways: dict[States, Way] = {}
        self._reads: dict[tuple[int, int, bytes], tuple[int, bool]] = {}

    def opens(self, index: int, state: int, text: bytes) -> bool:
        """Whether a text completes no match of an automaton from a state, and may end there."""
        return self._after(index, state, text)[1]

    def barred_at(self, index: int, states: NDArray[np.int32], text: bytes) -> NDArray[np.int16]:
        """For each state, with how many bytes of a text a match completes; all, if it may not end after them; 0: never.

        So 0 where `opens`.
        """
        automaton = self._automata[index]
        found = np.zeros(len(states), np.int16)
        left = np.flatnonzero(automaton.distances(states) <= len(text))
        reached = states[left]
        place = 0
        while place < len(text):
            if not len(left):
                return found
            byte, before = text[place], reached
            reached = automaton.step_many(reached, np.full(len(left), byte, np.uint8))
            place += 1
            if reached.min() < 0:
                found[left[reached < 0]] = place
                left, reached = left[reached >= 0], reached[reached >= 0]
            elif text[place : place + 1] == text[place - 1 : place] and np.array_equal(reached, before):
                # However often the same byte comes.
                place = len(text) - len(text[place:].lstrip(text[place - 1 : place]))
        found[left[~automaton.may_end_many(reached)]] = len(text)
        return found

    def _alphabet(self, members: tuple[int, ...]) -> tuple[Sequence[bytes], bool]:
        """What ways out of some automata are put together of, and whether that can write whatever tokens can."""
        known = self._alphabets.get(members)
        if known is None:
            if self._letters is None:
                letters, every = characters([self._automata[i] for i in members])
                known = [*self._borders, *letters], every
            else:
                known = self._letters, False
            self._alphabets[members] = known
        return known

    def own(self, index: int, state: int) -> Way:
        """The shortest text after which an automaton by itself lets the text end, the first of several."""
        known = self._own.get((index, state), True)
        if known is True:
            known, path = self._search((index,), (state,))
            self._own[index, state] = known
            # What is left of a shortest way is one too.
            self._own.update(((index, passed), rest) for (passed,), rest in path)
        return known

    def _search(self, members: tuple[int, ...], start: States) -> tuple[Way, list[tuple[States, bytes]]]:
        """Breadth first over some automata together: the way, and what is left of it in the states on it."""
        automata = [self._automata[i] for i in members]
        letters, every = self._alphabet(members)
        came: dict[States, tuple[States, bytes] | None] = {start: None}
        queue = deque([start])
        while queue:
            states = queue.popleft()
            for letter in letters:
                reached = tuple([a.read(s, letter) for a, s in zip(automata, states, strict=True)])
                if min(reached) < 0 or reached in came:
                    continue
                came[reached] = states, letter
                if all(a.may_end(s) for a, s in zip(automata, reached, strict=True)):
                    return _traced(came, reached)
                if len(came) >= STATES:
                    return None, []
                queue.append(reached)
        return False if every else None, []

    def _together(self, members: tuple[int, ...], states: States) -> Way:
        key = (members, states)
        if key not in self._joint:
            self._joint[key] = self._search(members, states)[0]
        return self._joint[key]

    def _pending(self, states: Iterable[int]) -> list[int]:
        return [i for i, (a, s) in enumerate(zip(self._automata, states, strict=True)) if not a.may_end(s)]

    def way(self, states: States) -> Way:
        """A text that brings all automata from these states, of which some may not end, to where the text may end."""
        known = self._ways.get(states, True)
        if known is True:
            inside = not self._automata[self._utf8].may_end(states[self._utf8])
            known = self._ways[states] = self._after_character(states) if inside else self._find(states)
        return known

    def _after_character(self, states: States) -> Way:
        """A way from within a character: some ends of it are tried."""
        for tail in TAILS:
            if not self.opens(self._utf8, states[self._utf8], tail):
                continue
            reached = tuple([a.read(s, tail) for a, s in zip(self._automata, states, strict=True)])
            if min(reached) >= 0:
                way = self.way(reached) if self._pending(reached) else b""
                if isinstance(way, bytes):
                    return tail + way
        return None

    def _find(self, states: States) -> Way:
        pending = self._pending(states)
        owns = [self.own(i, states[i]) for i in pending]
        if False in owns:
            return False
        found, barring = self._pursue(states, b"")
        if found is not None:
            return found
        members = {*pending, *barring}
        while len(members) <= TOGETHER:
            together = tuple(sorted(members))
            text = self._together(together, tuple([states[i] for i in together]))
            if text is False:
                return False
            if not isinstance(text, bytes):
                break
            barring = [
                i for i in range(len(states)) if i not in members and not self.opens(i, states[i], text)
            ]
            if not barring:
                return text
            members.add(barring[0])
        for separator in SEPARATORS:
            found, _ = self._pursue(states, separator)
            if found is not None:
                return found
        return None

    def _pursue(self, states: States, text: bytes) -> tuple[bytes | None, list[int]]:
        """Write a text, then the own way out of the first pending rule of which none is barred, and so on; else which
        automaton bars that of the first.
        """
        current, pending, barring = self._read(states, text)
        for _ in range(PURSUITS):
            if not pending:
                break
            refused = barring
            following, then = States(), list[int]()
            for i in pending:
                own, by = self.own(i, current[i]), [i]
                if isinstance(own, bytes):
                    following, then, by = self._read(current, own)
                refused = refused or by
                if following:
                    text += own  # type: ignore[operator]
                    break
            current, pending, barring = following, then, [] if following else refused
        return (text, []) if current and not pending else (None, barring)

    def _read(self, states: States, text: bytes) -> tuple[States, list[int], list[int]]:
        """The states after a text, and which automata do not let it end there; if it is barred, no states, and the
        first automaton that bars it.
        """
        reached, pending = list[int](), list[int]()
        for i, state in enumerate(states):
            after, ends = self._after(i, state, text)
            if after < 0:
                return (), [], [i]
            reached.append(after)
            if not ends:
                pending.append(i)
        return tuple(reached), pending, []

    def _after(self, index: int, state: int, text: bytes) -> tuple[int, bool]:
        """The state of an automaton after a text, negative where a match completes, and whether the text may end."""
        key = (index, state, text)
        known = self._reads.get(key)
        if known is None:
            automaton = self._automata[index]
            reached = automaton.read(state, text)
            known = self._reads[key] = reached, reached >= 0 and automaton.may_end(reached)
        return known

    @property
    def nbytes(self) -> int:
        """Bytes held (estimated)."""
        return 150 * (len(self._own) + len(self._reads)) + (200 + 8 * len(self._automata)) * (
            len(self._joint) + len(self._ways)
        )


def _traced(
    came: dict[States, tuple[States, bytes] | None], end: States
) -> tuple[bytes, list[tuple[States, bytes]]]:
    way, path = b"", list[tuple[States, bytes]]()
    while (step := came[end]) is not None:
        end, letter = step
        way = letter + way
        path.append((end, way))
    return way, path
