"""Where matches are in finished text, by definition: spans, leftmost first, each as long as it can be.

Nothing here is made of what finds spans in texts of any length (`follower`, `folds.FoldedText`). Strings are searched
for by `re`. For a pattern, place by place, a machine, which has read what precedes, is asked for the longest match from
there: where alternatives differ in length, `re` takes the first that fits and this takes the longest. Text is folded by
`folding.fold_text`. Spans are offsets in code points, as `re` gives them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from nco_guard.automata.characters import CharMachine
from nco_guard.automata.folding import fold_text
from nco_guard.automata.patterns.folded_text import FoldedMachine
from nco_guard.automata.patterns.searching import Machine, Plain
from nco_guard.automata.spans.folds import joined
from nco_guard.automata.spans.machines import Cursor
from nco_guard.errors import StateLimitError

__all__ = ["find_spans", "find_strings", "longest_beginning", "matches"]

Span = tuple[int, int]


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


def find_strings(
    strings: Iterable[str], text: str, *, caseless: bool = False, whole_word: bool = False, beyond: int = -1
) -> Iterator[Span]:
    """Non-overlapping places of strings as (start, end), as `find_spans` gives them; by `re`, the longest string first.

    Cost: for each place a comparison with each string.
    """
    either = "|".join(map(re.escape, sorted(strings, key=len, reverse=True)))
    pattern = re.compile(
        rf"(?<!\w)(?:{either})(?!\w)" if whole_word else either, re.IGNORECASE if caseless else 0
    )
    found = pattern.search(text)
    while found is not None:
        start, end = found.span()
        if end > beyond:
            yield start, end
        found = pattern.search(text, end if end > beyond else start + 1)


def find_spans(machine: Machine, text: str, *, beyond: int = -1) -> Iterator[Span]:
    """Non-overlapping matches as (start, end), from left to right; only those that end after `beyond`.

    For a folded rule the text is folded first, and spans are those of the original characters that the matches come
    from. `machine` reports every end of a match (`every_end=True`). Cost: for each place the length that a match from
    there lives; one pass where there is no match at all.
    """
    if isinstance(machine, FoldedMachine):
        folded, origin = fold_text(text, machine.spec)
        before = sum(end <= beyond for _, end in origin) if beyond >= 0 else beyond
        found = find_spans(machine.inner, folded, beyond=before)
        yield from joined(_original(span, origin, len(text)) for span in found)
        return
    classes = machine.classes.of_text(text)
    try:
        some = _completes(machine, classes)
    except (
        StateLimitError
    ):  # matches that begin at one place lead to far fewer states than those of all together
        some = True
    if some:
        yield from _place_by_place(machine, classes, beyond)


def _original(span: Span, origin: Sequence[Span], length: int) -> Span:
    """A span of the folded text as one of the original, which has `length` characters."""
    start, end = span
    first = origin[start][0] if start < len(origin) else length
    return first, first if start == end else origin[end - 1][1]


def _place_by_place(machine: Plain, classes: Sequence[int], beyond: int) -> Iterator[Span]:
    machine, _ = machine.carried(())
    cursor, position = Cursor(machine, machine.bare_start), 0
    for place in range(len(classes) + 1):
        if place >= position:
            end = cursor.machine.longest_from(cursor.state, classes, place)
            if end is not None and end > beyond:
                yield place, end
                position = end
        if place < len(classes):
            cursor.follow(classes[place])


def longest_beginning(machine: Machine, text: str) -> Span | None:
    """The longest stretch of the text that could be the beginning of a match, or is one; the first if several.

    For a folded rule, the longest in the folded text, as a span of the original. Cost: linear in the text times the
    length that candidate matches live.
    """
    if isinstance(machine, FoldedMachine):
        folded, origin = fold_text(text, machine.spec)
        stretch = longest_beginning(machine.inner, folded)
        return None if stretch is None else _original(stretch, origin, len(text))
    classes = machine.classes.of_text(text)
    best: Span | None = None
    machine, _ = machine.carried(())
    cursor = Cursor[Plain](machine, machine.bare_start)
    for start, cls in enumerate(classes):
        cursor.make_room()
        alive = Cursor(cursor.machine, cursor.machine.planted(cursor.state))
        for end in range(start, len(classes)):
            completes = alive.follow(classes[end])
            goes_on = not alive.machine.is_bare(alive.state)
            if (completes or goes_on) and (best is None or end + 1 - start > best[1] - best[0]):
                best = (start, end + 1)
            if not goes_on:
                break
        cursor.follow(cls)
    return best
