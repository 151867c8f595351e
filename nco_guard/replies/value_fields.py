"""Keys and values in the tags of calls, each a text of its own, as `ReplyReader` has them where a call can be read.

A call is cut where its `tag_pattern` would cut it: behind the mark that opens a tag stands a key, up to the mark that
follows keys, then a value, up to the mark that ends it. What is begun and not ended is one, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nco_guard.automata import Cutter, Cutting, Region, ValuesIn
from nco_guard.replies.cutter import FormatCutter, marks_of, shared_cutter
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.marks import UnfollowedPattern
from nco_guard.replies.parser import CALLS, CONTENT, REASONING
from nco_guard.replies.tag_patterns import (
    CAST,
    EITHER,
    KEY,
    VALUE,
    TaggedValues,
    beside,
    kinds_of_keys,
    pattern_of,
    tag_patterns,
)

__all__ = ["ValueFields", "values_in_tags"]


class ValueFields(Cutting):
    """What stands in the tags of calls.

    calls: the regions of calls. hidden: what is left out of a reply wherever it stands. names: of `KEY`, `VALUE`,
    `CAST`, `EITHER`, those that rules look at.
    """

    whole: bool = False
    reads_special = False
    together = ()
    names: tuple[str, ...] = ()

    def __init__(
        self,
        form: ReplyFormat,
        calls: Cutting,
        hidden: Sequence[str],
        tagged: TaggedValues,
        names: Sequence[str],
    ) -> None:
        self.form, self.calls, self.hidden, self.tagged = form, calls, tuple(hidden), tagged
        self.names = tuple(names)
        self.begun = calls.begun
        others = {CONTENT, REASONING, CALLS, "other", KEY, VALUE, CAST, EITHER} - {*names}
        self.free = tuple(sorted(others))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueFields) and self._every == other._every

    def __hash__(self) -> int:
        return hash(self._every)

    def __repr__(self) -> str:
        return f"ValueFields{self._every!r}"

    @property
    def _every(self) -> tuple[object, ...]:
        return self.calls, self.tagged, self.free

    def freed(self, *names: str) -> ValueFields:
        """See `Cutting.freed`."""
        kept = [name for name in self.names if name not in names]
        return ValueFields(self.form, self.calls, self.hidden, self.tagged, kept)

    def cutter(self) -> Cutter:
        """See `Cutting.cutter`; it reads replies that nothing was begun of."""
        made = (self.form.digest, self.hidden, self.tagged)
        return shared_cutter(
            made, lambda: FormatCutter(self.form, calls=True, hidden=self.hidden, values=self.tagged)
        )

    def texts(self, text: str) -> list[list[Region]]:
        """See `Cutting.texts`; of what a text is joined of it is told where the first piece stands."""
        found = list[list[Region]]()
        for pieces in self.calls.texts(text):
            if pieces[0].name != CALLS:
                continue
            body = "".join(piece.text for piece in pieces)
            places = [piece.start + at for piece in pieces for at in range(len(piece.text))]
            for name, said, start in self._said(body):
                if name in self.names:
                    at = places[start] if start < len(places) else len(text)
                    found.append([Region(name, said, at)])
        return found

    def _said(self, body: str) -> Iterator[tuple[str, str, int]]:
        """What stands in the tags of a call, and where."""
        patterns, at = self.tagged.patterns, 0
        while (opened := _first([patterns.opens], body, at)) is not None:
            key = _first([before for before, _ in patterns.ways], body, opened[2])
            if key is None:
                yield KEY, body[opened[2] :], opened[2]
                return
            number, end, begin = key
            yield KEY, body[opened[2] : end], opened[2]
            over = _first([patterns.ways[number][1]], body, begin)
            kind = next((kind for name, kind in self._kinds if body[:end].endswith(name)), VALUE)
            yield kind, body[begin : len(body) if over is None else over[1]], begin
            if over is None:
                return
            at = over[2]

    @property
    def _kinds(self) -> list[tuple[str, str]]:
        either_first = sorted(self.tagged.kinds, key=lambda one: one[1] != EITHER)
        return [(f"{self.tagged.patterns.literal}{name}", kind) for name, kind in either_first]


def _first(patterns: Sequence[str], text: str, at: int) -> tuple[int, int, int] | None:
    """Of some patterns the one that is found first in a text, then the longest; and where it stands."""
    from regex import DOTALL, compile

    found = [
        (match.start(), -match.end(), number)
        for number, pattern in enumerate(patterns)
        if (match := compile(pattern, DOTALL).search(text, at)) is not None
    ]
    if not found:
        return None
    start, end, number = min(found)
    return number, start, -end


def values_in_tags(
    form: ReplyFormat, calls: Cutting, hidden: Sequence[str], types: Mapping[str, Sequence[str]]
) -> tuple[ValuesIn, ...]:
    """Where values stand in the tags of a format's calls; nowhere, if its patterns are not followed.

    types: as what the value of each key is read.
    """
    patterns = tag_patterns(pattern_of(form.response_template))
    if patterns is None:
        return ()
    kinds = kinds_of_keys(types) if patterns.literal else {}
    tagged = TaggedValues(patterns, tuple(kinds.items()))
    try:
        marks_of(form, calls=True, values=tagged)
    except UnfollowedPattern:
        return ()
    signs = beside(patterns)
    found = [ValuesIn("text", ValueFields(form, calls, hidden, tagged, [KEY, VALUE, EITHER]), signs)]
    if kinds:
        found.append(ValuesIn("json", ValueFields(form, calls, hidden, tagged, [CAST, EITHER]), signs))
    return tuple(found)
