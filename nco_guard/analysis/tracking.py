"""Where in a text the matches of one rule begin: those under way, those that complete, those that the end completes.

Masks ask whether a match completes; whoever explains one asks where it began. Every place at which a match may have
begun is followed by a state of its own; places whose states meet are followed as one, the first of them. Spans are
offsets in code points of the text that is given.

Cost: a character one step for each distinct state under way; lists of strings, the length of the longest.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from nco_guard.automata import AlternatingMachine, FoldedMachine, FsmMachine, fold_text
from nco_guard.automata.folding import settle_escapes
from nco_guard.automata.strings.substrings import fold_case
from nco_guard.compiler import CompiledRule
from nco_guard.policy import StringRule

__all__ = ["Span", "Tracker", "tracker"]

Span = tuple[int, int]
_WORD = re.compile(r"\w")


class Tracker(Protocol):
    """Follows the matches of one pattern. `prompt`: so many characters of the text are a prompt, see below.

    Matches that end in the prompt do not count; those that begin there do.
    """

    def under_way(self, text: str, prompt: int = 0) -> int | None:
        """Where the first match began that is under way at the end of the text and could still be completed."""

    def completed(self, text: str, done: int, prompt: int = 0) -> Span | None:
        """The first match to become certain by reading the characters from `done` on, whatever follows the text."""

    def at_end(self, text: str, prompt: int = 0) -> Span | None:
        """The first match that becomes certain when the text ends."""


def tracker(rule: CompiledRule, *, stop: bool) -> Tracker:
    """A tracker of what the rule blocks (`stop`: its stop point, where it has one) or of its whole pattern."""
    if isinstance(rule.rule, StringRule) and rule.fold.trivial and rule.rule.confusables == "none":
        return _StringTracker(rule.rule)
    return _MachineTracker(rule.machine(every_end=True, stop=stop))


class _Run(NamedTuple):
    """How far a pattern got in a text."""

    classes: Sequence[int]
    origin: list[Span] | None  # folded characters in the original
    states: list[int]  # before each character, with no match under way
    live: dict[int, int]  # states under way at the end, and where they began
    hit: tuple[int, int] | None  # where the match began that completed first, and with which character


class _MachineTracker:
    def __init__(self, machine: AlternatingMachine | FoldedMachine | FsmMachine) -> None:
        self._fold = machine.spec if isinstance(machine, FoldedMachine) else None
        self._machine = machine.inner if isinstance(machine, FoldedMachine) else machine

    def _run(self, text: str, done: int | None, prompt: int, *, final: bool) -> _Run:
        """`done`: stop at the first match that completes with an original character from there on."""
        machine, origin = self._machine, None
        if self._fold is not None:
            if done is not None:
                done -= len(self._pending(text[:done]))
            if not final:
                text = text[: len(text) - len(self._pending(text))]
            text, origin = fold_text(text, self._fold)
            prompt = sum(end <= prompt for _, end in origin)
            done = None if done is None else sum(end <= done for _, end in origin)
        classes = machine.classes.of_text(text)
        state, states = machine.bare_start, list[int]()
        live: dict[int, int] = {}
        for at, cls in enumerate(classes):
            if prompt and at == prompt:
                live, state = self._past_prompt(live), machine.past_prompt(state)
            if machine.crowded:
                kept = list(live.items())
                machine, found = machine.carried((state, *states, *(each for each, _ in kept)))
                state, states = found[0], found[1 : 1 + at]
                live = {each: start for each, (_, start) in zip(found[1 + at :], kept, strict=True)}
                self._machine = machine
            states.append(state)
            live.setdefault(machine.planted(state), at)
            going_on: dict[int, int] = {}
            hit: int | None = None
            for each, start in live.items():
                reached = machine.step(each, cls, seed=False)
                if reached < 0:
                    reached = ~reached
                    hit = start if hit is None else min(hit, start)
                if not machine.is_bare(reached):
                    going_on[reached] = min(start, going_on.get(reached, start))
            live = going_on
            state = machine.step(state, cls, seed=False)
            state = ~state if state < 0 else state
            if hit is not None and done is not None and at >= max(done, prompt):
                return _Run(classes, origin, states, live, (hit, at))
        if prompt and prompt == len(classes):
            live, state = self._past_prompt(live), machine.past_prompt(state)
        states.append(state)
        return _Run(classes, origin, states, live, None)

    def _pending(self, text: str) -> str:
        return settle_escapes(text)[1] if self._fold is not None and self._fold.json_escapes else ""

    def _past_prompt(self, live: dict[int, int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for state, start in live.items():
            past = self._machine.past_prompt(state)
            if not self._machine.is_bare(past):
                found[past] = min(start, found.get(past, start))
        return found

    def _original(self, run: _Run, length: int, start: int, end: int) -> Span:
        if run.origin is None:
            return start, end
        first = run.origin[start][0] if start < len(run.origin) else length
        return first, run.origin[end - 1][1] if end > start else first

    def under_way(self, text: str, prompt: int = 0) -> int | None:
        run = self._run(text, None, prompt, final=False)
        if not run.live:
            return None
        return self._original(run, len(text), min(run.live.values()), len(run.classes))[0]

    def completed(self, text: str, done: int, prompt: int = 0) -> Span | None:
        run = self._run(text, done, prompt, final=False)
        if run.hit is None:
            return None
        start, last = run.hit
        machine = self._machine
        if isinstance(machine, FsmMachine):
            end = machine.longest_from(run.states[start], run.classes[: last + 1], start)
        else:
            # Only ends that are certain by now: the rest of the text may still be in doubt.
            end = machine.longest_from(run.states[start], run.classes, start, passes=lambda e: e <= last + 1)
        return self._original(run, len(text), start, last + 1 if end is None else end)

    def at_end(self, text: str, prompt: int = 0) -> Span | None:
        run, machine = self._run(text, None, prompt, final=True), self._machine
        live = dict(run.live)
        live.setdefault(machine.planted(run.states[-1]), len(run.classes))
        starts = [start for state, start in live.items() if not machine.may_end(state)]
        if not starts:
            return None
        start = min(starts)
        end = machine.longest_from(run.states[start], run.classes, start)
        return self._original(run, len(text), start, len(run.classes) if end is None else end)


class _StringTracker:
    """Tracks strings that are looked for as they are written: pieces of the text are looked up in the set of them."""

    def __init__(self, rule: StringRule) -> None:
        self._caseless, self._whole_word = rule.case == "fold", rule.whole_word
        strings = [fold_case(s) for s in rule.strings] if self._caseless else list(rule.strings)
        self._strings = frozenset(strings)
        self._sorted = sorted(self._strings)
        self._lengths = sorted({len(s) for s in strings}, reverse=True)

    def _folded(self, text: str) -> str:
        return fold_case(text) if self._caseless else text

    def _may_start(self, text: str, at: int) -> bool:
        return not self._whole_word or at == 0 or not _WORD.match(text, at - 1)

    def under_way(self, text: str, prompt: int = 0) -> int | None:
        folded = self._folded(text)
        for start in range(max(0, len(text) - self._lengths[0]), len(text)):
            if not self._may_start(text, start):
                continue
            piece = folded[start:]
            at = bisect_left(self._sorted, piece)
            # A whole string is under way only while the next character may show that it is no whole word.
            whole = at < len(self._sorted) and self._sorted[at] == piece
            at += whole and not (self._whole_word and len(text) > prompt)
            if at < len(self._sorted) and self._sorted[at].startswith(piece):
                return start
        return None

    def _ending(self, text: str, folded: str, end: int) -> Span | None:
        for length in self._lengths:
            start = end - length
            if start >= 0 and folded[start:end] in self._strings and self._may_start(text, start):
                return start, end
        return None

    def completed(self, text: str, done: int, prompt: int = 0) -> Span | None:
        folded = self._folded(text)
        for at in range(max(done, prompt), len(text)):
            end = at if self._whole_word else at + 1
            if end <= prompt or (self._whole_word and _WORD.match(text, at)):
                continue
            found = self._ending(text, folded, end)
            if found is not None:
                return found
        return None

    def at_end(self, text: str, prompt: int = 0) -> Span | None:
        if not self._whole_word or len(text) <= prompt:
            return None
        return self._ending(text, self._folded(text), len(text))
