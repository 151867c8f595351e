"""Where matches are in finished text, by definition: spans, leftmost first, each as long as it can be.

Nothing here is made of what finds spans in texts of any length (`follower`): place by place a machine, which has read
what precedes, is asked for the longest match from there. Spans are offsets in code points, as `re` gives them. Where
alternatives differ in length, `re` takes the first that fits and this takes the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nco_guard.automata.characters import CharMachine
from nco_guard.automata.patterns.folded_text import FoldedMachine
from nco_guard.automata.patterns.searching import Plain
from nco_guard.automata.spans.folds import FoldedText, joined
from nco_guard.automata.spans.follower import Searcher, Span, StringFollower, spans_at
from nco_guard.automata.spans.machines import Cursor
from nco_guard.automata.strings.substrings import SubstringSearcher
from nco_guard.errors import StateLimitError

__all__ = ["find_spans", "longest_beginning", "matches"]


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


def find_spans(machine: Searcher, text: str, *, beyond: int = -1) -> Iterator[Span]:
    """Non-overlapping matches as (start, end), from left to right; only those that end after `beyond`.

    For a folded rule the text is folded first, and spans are those of the original characters that the matches come
    from. `machine` reports every end of a match (`every_end=True`). Cost: for each place the length that a match from
    there lives; one pass where there is no match at all.
    """
    if isinstance(machine, SubstringSearcher):
        found = spans_at(StringFollower(machine, text, len(text), beyond=beyond), range(len(text)))
        yield from ((start, end) for start, end in found if end is not None)
        return
    if isinstance(machine, FoldedMachine):
        folded = FoldedText(machine.spec)
        shown = folded.feed(text, final=True)
        before = folded.upto(beyond) if beyond >= 0 else beyond
        yield from joined(folded.original(span) for span in find_spans(machine.inner, shown, beyond=before))
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


def longest_beginning(machine: Searcher, text: str) -> Span | None:
    """The longest stretch of the text that could be the beginning of a match, or is one; the first if several.

    For a folded rule, the longest in the folded text, as a span of the original. Cost: linear in the text times the
    length that candidate matches live.
    """
    if isinstance(machine, SubstringSearcher):
        return machine.beginning(text)
    if isinstance(machine, FoldedMachine):
        folded = FoldedText(machine.spec)
        stretch = longest_beginning(machine.inner, folded.feed(text, final=True))
        return None if stretch is None else folded.original(stretch)
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
