"""Where matches are in finished text: spans, leftmost first, each as long as it can be.

The search runs the same machines as the masks, over characters, but shares no code with them; lists of strings are
searched for without any (`strings.substrings`). One pass decides whether
there is a match at all; only where there is one, start and end are looked for. Spans are offsets in code points, as
`re` gives them. Where alternatives differ in length, `re` takes the first that fits and this takes the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nco_guard.automata.characters import CharMachine
from nco_guard.automata.folding import fold_text
from nco_guard.automata.patterns.alternating import AlternatingMachine
from nco_guard.automata.patterns.folded_text import FoldedMachine
from nco_guard.automata.patterns.fsm import FsmMachine
from nco_guard.automata.strings.substrings import SubstringSearcher
from nco_guard.errors import StateLimitError

__all__ = ["Searcher", "find_spans", "longest_beginning", "matches"]

Searcher = AlternatingMachine | FoldedMachine | FsmMachine | SubstringSearcher


def matches(machine: CharMachine, text: str) -> bool:
    """Whether there is a match anywhere. One pass, no memory; stops at the first completed match."""
    return _completes(machine, machine.classes.of_text(text))


def _completes(machine: CharMachine, classes: Sequence[int]) -> bool:
    state, step = machine.start, machine.step
    for cls in classes:
        state = step(state, cls)
        if state < 0:
            return True
    return not machine.may_end(state)


def find_spans(machine: Searcher, text: str, *, beyond: int = -1) -> Iterator[tuple[int, int]]:
    """Non-overlapping matches as (start, end), from left to right; only those that end after `beyond`.

    For a folded rule the text is folded first, by its definition, and spans are those of the original characters that
    the matches come from.

    `machine` reports every end of a match (`every_end=True`). Cost: linear in the text; around each match, linear in
    its distance from the previous one times the length that candidate matches live.
    """
    if isinstance(machine, SubstringSearcher):
        yield from machine.spans(text, beyond=beyond)
        return
    if isinstance(machine, FoldedMachine):
        yield from _find_folded(machine, text, beyond)
        return
    classes = machine.classes.of_text(text)
    try:
        spans = list(_spans_before(machine, classes, beyond))
    except StateLimitError:
        # Matches that begin at one place lead to far fewer states than those of all places together.
        spans = list(_spans_from_each(machine, classes, beyond))
    yield from spans


def _spans_from_each(
    machine: AlternatingMachine | FsmMachine, classes: Sequence[int], beyond: int
) -> Iterator[tuple[int, int]]:
    """The spans, found from one place after another. Cost: for each place the length that a match from there lives."""
    machine, _ = machine.carried(())
    state, position = machine.bare_start, 0
    while position <= len(classes):
        end = machine.longest_from(state, classes, position)
        following = position + 1
        if end is not None and end > beyond:
            yield position, end
            following = max(end, following)
        for cls in classes[position:following]:
            if machine.crowded:
                machine, (state,) = machine.carried((state,))
            reached = machine.step(state, cls, seed=False)
            state = ~reached if reached < 0 else reached
        position = following


def _spans_before(
    machine: AlternatingMachine | FsmMachine, classes: Sequence[int], beyond: int
) -> Iterator[tuple[int, int]]:
    """The spans, found backwards from where matches are known to be complete."""
    if not _completes(machine, classes):
        return
    states = [machine.start]
    completed: list[bool] = [False]
    for cls in classes:
        state = machine.step(states[-1], cls)
        completed.append(state < 0)
        states.append(~state if state < 0 else state)
    at_end = not machine.may_end(states[-1])
    marks = [i for i, done in enumerate(completed) if done]
    position = 0
    for mark in [*marks, len(classes) + 1] if at_end else marks:
        # Some match is known to be complete by `mark`; find all starts up to there.
        while position < mark:
            end = machine.longest_from(states[position], classes, position)
            if end is None or end <= beyond:
                position += 1
            else:
                yield position, end
                position = max(end, position + 1)


def _find_folded(machine: FoldedMachine, text: str, beyond: int) -> Iterator[tuple[int, int]]:
    folded, origin = fold_text(text, machine.spec)
    before = sum(end <= beyond for _, end in origin) if beyond >= 0 else beyond
    waiting: tuple[int, int] | None = None
    for first, last in find_spans(machine.inner, folded, beyond=before):
        start, end = _original(origin, len(text), first, last)
        # Two matches can meet in one original character, which folds to several.
        if waiting is not None and start < waiting[1]:
            waiting = waiting[0], max(waiting[1], end)
            continue
        if waiting is not None:
            yield waiting
        waiting = start, end
    if waiting is not None:
        yield waiting


def _original(origin: Sequence[tuple[int, int]], length: int, first: int, last: int) -> tuple[int, int]:
    """A span of folded text as one of the original, which is `length` long."""
    start = origin[first][0] if first < len(origin) else length
    return start, origin[last - 1][1] if last > first else start


def longest_beginning(
    machine: AlternatingMachine | FoldedMachine | SubstringSearcher, text: str
) -> tuple[int, int] | None:
    """The longest stretch of the text that could be the beginning of a match, or is one; the first if several.

    For a folded rule, the longest in the folded text, as a span of the original. Cost: linear in the text times the
    length that candidate matches live.
    """
    if isinstance(machine, SubstringSearcher):
        return machine.beginning(text)
    if isinstance(machine, FoldedMachine):
        folded, origin = fold_text(text, machine.spec)
        stretch = longest_beginning(machine.inner, folded)
        return None if stretch is None else _original(origin, len(text), *stretch)
    classes = machine.classes.of_text(text)
    best: tuple[int, int] | None = None
    machine, _ = machine.carried(())
    state = machine.bare_start
    for start, cls in enumerate(classes):
        alive, end = machine.planted(state), start
        while end < len(classes):
            if machine.crowded:
                machine, (state, alive) = machine.carried((state, alive))
            reached = machine.step(alive, classes[end], seed=False)
            alive = ~reached if reached < 0 else reached
            if reached >= 0 and machine.is_bare(alive):
                break
            end += 1
            if machine.is_bare(alive):
                break  # a match is complete, and none goes on
        if end > start and (best is None or end - start > best[1] - best[0]):
            best = (start, end)
        reached = machine.step(state, cls, seed=False)
        state = ~reached if reached < 0 else reached
    return best
