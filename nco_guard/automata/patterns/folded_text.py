"""A pattern searched for in the folded text while the original is read: `folding`, followed step by step.

Characters that fold alike are one class, and a step by a class feeds the machine for the pattern what the class folds
to. Where JSON escapes count, a state also holds the escape that is under way: a short piece of text that is not settled
yet. It is read literally where it breaks off, at the end of the text too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.charsets import MAX_CODE_POINT, CharClasses, CharSet
from nco_guard.automata.folding import FoldSpec, break_off, denotable, read_escapes, settle_escapes
from nco_guard.automata.numbered import Numbered
from nco_guard.automata.patterns.alternating import LIVENESS_LIMIT, AlternatingMachine, Room

__all__ = ["FoldedMachine"]

# Every character that can be part of an escape; each is a class of its own where escapes count.
_ESCAPE_CHARACTERS = '\\u"/bfnrt' + "0123456789acdeABCDEF"


class FoldedMachine:
    """Searches the folded text for one pattern, a class of original characters at a time.

    See `characters.CharMachine`. A match completes with the original character that settles the last folded one it
    needs. Cost: building the classes takes some milliseconds; a step never taken before costs one of the inner machine
    per folded character.
    """

    def __init__(self, inner: AlternatingMachine, spec: FoldSpec, *, state_limit: int = 200_000) -> None:
        self.inner = inner
        self.spec = spec
        self.state_limit = state_limit
        self._spelled: dict[str, tuple[int, ...]] = {}
        self.classes, self._images, self._characters = self._partition()
        # The inner state, an escape that is under way, and how much of that one is a prompt's (see `past_prompt`).
        self._states: Numbered[tuple[int, str, int]] = Numbered()
        self._steps: dict[int, int] = {}
        self._alive: dict[int, bool] = {}  # of the inner machine's states
        self._doomed: dict[int, bool] = {}
        self._may_end: dict[int, bool] = {}
        # The most that a byte of the text can come to, as folded characters over bytes.
        growth = [(len(image), len(c.encode("utf-8", "surrogatepass"))) for c, image in spec.images.items()]
        self._growth = max(((1, 1), *growth), key=lambda pair: pair[0] / pair[1])
        self.start = self._state(inner.start, "")
        self._room = Room()

    # -- the alphabet ------------------------------------------------------------------------------------------

    def _partition(self) -> tuple[CharClasses, list[tuple[int, ...]], list[str]]:
        """Classes of characters, what each folds to as inner classes, and its character if escapes may hold it."""
        known = self.inner.classes
        lengths = np.diff(np.append(known.starts, MAX_CODE_POINT + 1))
        owner: NDArray[np.int64] = np.repeat(known.range_classes, lengths)
        # Groups below `known.count` are the inner classes: most characters fold to themselves.
        groups: dict[tuple[tuple[int, ...], str], int] = {((c,), ""): c for c in range(known.count)}
        for character, image in self.spec.images.items():
            owner[ord(character)] = groups.setdefault((self._inner_classes(image), ""), len(groups))
        if self.spec.json_escapes:
            for character in _ESCAPE_CHARACTERS:
                image = self.spec.images.get(character, character)
                owner[ord(character)] = groups.setdefault(
                    (self._inner_classes(image), character), len(groups)
                )
        edges = np.flatnonzero(np.diff(owner, prepend=-1)).tolist()
        ranges: dict[int, list[tuple[int, int]]] = {}
        for low, high in zip(edges, [*edges[1:], MAX_CODE_POINT + 1], strict=True):
            ranges.setdefault(int(owner[low]), []).append((low, high - 1))
        sets: dict[int, CharSet] = {group: tuple(members) for group, members in ranges.items()}
        classes = CharClasses(sets.values())
        images: list[tuple[int, ...]] = [()] * classes.count
        characters = [""] * classes.count
        by_group = {group: key for key, group in groups.items()}
        for group, members in sets.items():
            cls = int(classes.of(np.array([members[0][0]], np.uint32))[0])
            images[cls], characters[cls] = by_group[group]
        return classes, images, characters

    def _inner_classes(self, folded: str) -> tuple[int, ...]:
        found = self._spelled.get(folded)
        if found is None:
            points = np.array([ord(c) for c in folded], np.uint32)
            found = self._spelled[folded] = tuple(self.inner.classes.of(points).tolist())
        return found

    # -- states ------------------------------------------------------------------------------------------------

    def _state(self, inner: int, pending: str, prompted: int = 0) -> int:
        key = (inner, pending, prompted)
        return self._states.state(
            key, self.state_limit, "the automaton of this folded rule", "split the rule"
        )

    @property
    def state_count(self) -> int:
        """States found so far."""
        return len(self._states)

    @property
    def crowded(self) -> bool:
        """See `AlternatingMachine.crowded`."""
        return self._room.taken(len(self._states), 0, self.state_limit, 1) or self.inner.crowded

    def carried(self, states: Sequence[int]) -> tuple[Self, list[int]]:
        """See `AlternatingMachine.carried`."""
        fresh = copy(self)
        keys = [self._states[state] for state in (self.start, *states)]
        fresh.inner, inner = self.inner.carried([key[0] for key in keys])
        fresh._states = Numbered()
        fresh._steps, fresh._alive, fresh._doomed, fresh._may_end = {}, {}, {}, {}
        fresh.start, *found = [
            fresh._state(reached, pending, prompted)
            for reached, (_, pending, prompted) in zip(inner, keys, strict=True)
        ]
        fresh._room = Room(len(fresh._states))
        return fresh, found

    @property
    def nbytes(self) -> int:
        """Bytes held, estimated; the inner machine's included."""
        asked = len(self._steps) + len(self._may_end) + len(self._doomed) + len(self._alive)
        return 350 * len(self._states) + 110 * asked + self.inner.nbytes

    def step(self, state: int, cls: int) -> int:
        """The next state, or `~next` if a match completes."""
        key = state * self.classes.count + cls
        reached = self._steps.get(key)
        if reached is None:
            reached = self._steps[key] = self._find_step(state, cls)
        return reached

    def _find_step(self, state: int, cls: int) -> int:
        inner, pending, prompted = self._states[state]
        character = self._characters[cls]
        if character:
            spelled = pending + character
            _, pending = settle_escapes(spelled)
            inner, matched, prompted = self._feed_spelled(
                inner, spelled[: len(spelled) - len(pending)], prompted
            )
        else:
            # No escape holds this character, so one that is under way has broken off.
            inner, broke, _ = self._feed_spelled(inner, pending, prompted)
            inner, matched = self._feed(inner, self._images[cls])
            matched, pending, prompted = matched or broke, "", 0
        reached = self._state(inner, pending, prompted)
        return ~reached if matched else reached

    def _feed_spelled(self, inner: int, spelled: str, prompted: int) -> tuple[int, bool, int]:
        """What a spelling denotes, fed; matches within its first `prompted` characters do not count.

        The third result is how many characters of the prompt are still to come.
        """
        matched = False
        for character, _, end in read_escapes(spelled):
            if 0 < prompted < end:
                inner, prompted = self.inner.past_prompt(inner), 0
            inner, hit = self._feed_text(inner, character)
            matched = matched or (hit and not prompted)
        if prompted and prompted == len(spelled):
            return self.inner.past_prompt(inner), matched, 0
        return inner, matched, max(0, prompted - len(spelled))

    def past_prompt(self, state: int) -> int:
        """The state after a prompt; see `AlternatingMachine.past_prompt`. An escape may go on beyond it."""
        inner, pending, _ = self._states[state]
        return (
            self._state(inner, pending, len(pending))
            if pending
            else self._state(self.inner.past_prompt(inner), "")
        )

    def _feed_text(self, inner: int, text: str) -> tuple[int, bool]:
        return self._feed(inner, self._inner_classes(self.spec.fold(text))) if text else (inner, False)

    def _feed(self, inner: int, classes: tuple[int, ...]) -> tuple[int, bool]:
        matched = False
        for cls in classes:
            inner = self.inner.step(inner, cls)
            if inner < 0:
                inner, matched = ~inner, True
        return inner, matched

    def may_end(self, state: int) -> bool:
        """Whether the text may end here; an escape that is under way is then read literally."""
        known = self._may_end.get(state)
        if known is None:
            inner, matched, _ = self._feed_spelled(*self._states[state])
            known = self._may_end[state] = not matched and self.inner.may_end(inner)
        return known

    def forgets(self, character: str) -> bool:
        """See `characters.CharMachine`: a character that folds to itself and is no part of an escape."""
        same = self.spec.images.get(character, character) == character
        return same and not self.spec.json_escapes and self.inner.forgets(character)

    def distance(self, state: int) -> int:
        """See `characters.CharMachine`. An escape under way has been paid for already."""
        inner, pending, _ = self._states[state]
        folded, written = self._growth
        return max(0, -(-self.inner.distance(inner) * written // folded) - len(pending))

    # -- ways out ----------------------------------------------------------------------------------------------

    def doomed(self, state: int) -> bool:
        """Whether no continuation, ending here included, avoids a match.

        The inner machine cannot tell: what would save it may be a character that occurs in no folded text.
        """
        if self.may_end(state):
            return False
        known = self._doomed.get(state)
        if known is None:
            known = self._doomed[state] = not self._lives_pending(*self._states[state])
        return known

    def _lives_pending(self, inner: int, pending: str, prompted: int) -> bool:
        """Whether there is a way on from a state that may not end.

        What an escape under way can come to denote is a range of characters. Or it breaks off: anything can follow
        what it reads as literally, since anything can be written as an escape, which begins with a backslash. (Only a
        lone backslash does not break off so, but then it reads as the denoted backslash.)
        """
        if not pending:
            return self._lives(inner)
        going_on = self.inner.past_prompt(inner) if prompted else inner
        for low, high in denotable(pending):
            first, last = np.searchsorted(self.classes.starts, [low, high], side="right") - 1
            for cls in sorted(set(self.classes.range_classes[first : last + 1].tolist())):
                reached, matched = self._feed(going_on, self._images[cls])
                if not matched and self._lives(reached):
                    return True
        _, rest = break_off(pending)
        reached, matched, prompted = self._feed_spelled(inner, pending[: len(pending) - len(rest)], prompted)
        if matched or pending == "\\":
            return False
        return self._lives_pending(reached, rest, prompted)

    def _lives(self, inner: int) -> bool:
        """Whether some folded text leads from a state of the inner machine to one in which the text may end.

        Breadth-first, at most `LIVENESS_LIMIT` states; beyond that the answer is yes: then a dead end may come later,
        never a match.
        """
        if inner in self._alive:
            return self._alive[inner]
        images = dict.fromkeys(image for image in self._images if image)
        seen = {inner}
        queue = deque([inner])
        while queue:
            current = queue.popleft()
            if self._alive.get(current) or self.inner.may_end(current):
                self._alive[inner] = True
                return True
            if self._alive.get(current) is False:
                continue
            for image in images:
                reached, matched = self._feed(current, image)
                if not matched and reached not in seen:
                    if self.inner.may_end(reached):
                        self._alive[inner] = True
                        return True
                    seen.add(reached)
                    queue.append(reached)
            if len(seen) > LIVENESS_LIMIT:
                self._alive[inner] = True
                return True
        for dead in seen:
            self._alive[dead] = False
        return False
