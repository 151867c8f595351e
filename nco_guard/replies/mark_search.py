"""Where a reply of a format stands: all that its cuts may still depend on, and nothing more, so such places are few.

Transformers' parser looks from a place on for the marks that may come there; the leftmost counts, then the longest.
What may be the beginning of one is not held back here: each way to read it is a *reading* of its own, which goes on
until it is certain that it is not the one. So nobody remembers what was written: of `<function=na` only that a name
has begun. The definition is the parser (`replies.parser.Regions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nco_guard.automata import Cut
from nco_guard.replies.marks import MATCH, Obligations, Program, Where

__all__ = ["CHARACTER", "Mark", "MarkSearch", "Marks", "Moved", "Reading", "numbered"]

#: In cuts, in place of the character that was read.
CHARACTER = b"\0"

#: A reading: which one it was before, and what has become of it since.
Reading = tuple[int, tuple[Cut, ...]]


class Mark(NamedTuple):
    """What opens or closes a region.

    name: of the template's field. within, behind: the fields that are shown of what is before it and behind it. to: the
    template's field behind it.
    """

    program: Program
    opens: bool
    name: str
    within: str
    behind: str
    to: str


class _Thread(NamedTuple):
    """A mark that may have begun at `start`; if `place` is `MATCH`, it ended at `end`, and `child` stands behind it."""

    start: int
    place: int
    owed: Obligations
    end: int = -1
    child: MarkSearch | None = None


class MarkSearch(NamedTuple):
    """Where the search stands from a mark on.

    name: the template's field. texts: a reading for each position that matters, of all up to there as text; the last
    of them is of all that there is if `alive`, that is if there may be no mark. marks: readings of what stands from
    each position on as marks, in which only the whole takes part. threads: for each mark that is looked for, in the
    order of preference.
    """

    name: str
    texts: tuple[tuple[int, Reading], ...]
    marks: tuple[tuple[int, Reading], ...]
    alive: bool
    threads: tuple[tuple[_Thread, ...], ...]


class Moved(NamedTuple):
    """A search with its readings and positions numbered anew."""

    search: MarkSearch
    now: int
    readings: tuple[Reading, ...]


class Marks:
    """The marks of a format: which may come in which field.

    fields: of each of the template's fields, the field that is shown. late: whether the whole is read as what each
    character is part of. free: the fields of which it is not.
    """

    def __init__(
        self,
        watched: Mapping[str, Sequence[Mark]],
        fields: Mapping[str, str],
        *,
        late: bool,
        free: frozenset[str],
    ) -> None:
        self._watched, self._fields, self._late, self._free = watched, fields, late, free

    def begun(self, name: str, reading: Reading, now: int, where: Where) -> MarkSearch:
        """A search that begins."""
        marks = ((now, reading),) if self._late else ()
        empty = MarkSearch(name, ((now, reading),), marks, True, tuple(() for _ in self._watched[name]))
        seen = [set[tuple[int, Obligations]]() for _ in empty.threads]
        return self._settled(self._started(empty, now, where, seen))

    def _started(
        self, search: MarkSearch, now: int, where: Where, seen: Sequence[set[tuple[int, Obligations]]]
    ) -> MarkSearch:
        """With the marks that may begin here."""
        found = []
        for mark, threads, known in zip(self._watched[search.name], search.threads, seen, strict=True):
            fresh = mark.program.threads(mark.program.start, (), where, known)
            found.append((*threads, *self._threads(search, mark, now, now, where, fresh)))
        return search._replace(threads=tuple(found))

    def _threads(
        self,
        search: MarkSearch,
        mark: Mark,
        start: int,
        now: int,
        where: Where,
        places: Sequence[tuple[int, Obligations]],
    ) -> Iterator[_Thread]:
        for place, owed in places:
            if place != MATCH:
                yield _Thread(start, place, owed)
                continue
            yield _Thread(start, MATCH, owed, now, self._behind(search, mark, start, now, where))
            if not owed:
                return

    def _behind(self, search: MarkSearch, mark: Mark, start: int, now: int, where: Where) -> MarkSearch:
        """The search behind a mark that ends here."""
        of = mark.behind if mark.opens else mark.within
        counts = self._late and of not in self._free
        old, cuts = dict(search.marks if counts else search.texts)[start]
        said = (Cut("mark", of),) if now > start else ()
        if mark.opens and mark.behind != mark.within:
            said = (Cut("end", mark.within), *said, Cut("begin", mark.behind))
        elif not mark.opens and mark.behind != mark.within:
            said = (*said, Cut("end", mark.within), Cut("begin", mark.behind))
        return self.begun(mark.to, (old, (*cuts, *said)), now, where)

    def stepped(self, search: MarkSearch, character: str, now: int, where: Where) -> MarkSearch:
        """Behind a further character; `now`: the position behind it."""
        texts: dict[int, Reading] = {at: (old, ()) for at, (old, _) in search.texts}
        read = Cut("text", self._fields[search.name], CHARACTER)
        if search.alive:
            texts[now] = texts[now - 1][0], (read,)
        passed = (Cut("mark", "", CHARACTER),)
        marks: dict[int, Reading] = {at: (old, passed) for at, (old, _) in search.marks}
        if self._late and search.alive:
            marks[now] = texts[now]
        following = search._replace(texts=tuple(texts.items()), marks=tuple(marks.items()))
        seen, found = list[set[tuple[int, Obligations]]](), []
        for mark, threads in zip(self._watched[search.name], search.threads, strict=True):
            known = set[tuple[int, Obligations]]()
            seen.append(known)
            found.append((*self._gone_on(following, mark, threads, character, now, where, known),))
        following = following._replace(threads=tuple(found))
        if search.alive and not any(map(_decided, found)):
            following = self._started(following, now, where, seen)
        return self._settled(following)

    def _gone_on(
        self,
        search: MarkSearch,
        mark: Mark,
        threads: Sequence[_Thread],
        character: str,
        now: int,
        where: Where,
        known: set[tuple[int, Obligations]],
    ) -> Iterator[_Thread]:
        program = mark.program
        for thread in threads:
            owed = program.owed(thread.owed, character, where)
            if owed is None:
                continue
            if thread.child is not None:
                yield thread._replace(owed=owed, child=self.stepped(thread.child, character, now, where))
                if not owed:
                    return
            elif program.takes(thread.place, character):
                places = program.threads(program.after(thread.place), owed, where, known)
                for each in self._threads(search, mark, thread.start, now, where, places):
                    yield each
                    if each.child is not None and not each.owed:
                        return

    def _settled(self, search: MarkSearch) -> MarkSearch:
        """Without what cannot be any more; the search behind a mark, if it is certain that it is one."""
        certain = [threads[-1] for threads in search.threads if _decided(threads)]
        if not certain:
            return search
        first = min(thread.start for thread in certain)
        kept = tuple(tuple(one for one in threads if one.start <= first) for threads in search.threads)
        search = search._replace(alive=False, threads=kept)
        won = self._first(search, [at for at, threads in enumerate(kept) if _decided(threads[:1])])
        if won is None:
            return search
        thread = kept[won][0]
        best = self._key(search, won, thread)
        for at, threads in enumerate(kept):
            for other in threads if at != won else ():
                unsure = other.child is None or bool(other.owed)
                before = other.start < thread.start or (
                    other.start == thread.start
                    and (other.child is None or self._key(search, at, other) < best)
                )
                if unsure and before:
                    return search
        assert thread.child is not None
        return thread.child

    def _first(self, search: MarkSearch, found: Sequence[int]) -> int | None:
        """Of marks that have ended, first among their threads, the one that counts."""
        return min(found, key=lambda at: self._key(search, at, search.threads[at][0]), default=None)

    def _key(self, search: MarkSearch, at: int, thread: _Thread) -> tuple[int, int, int, str]:
        mark = self._watched[search.name][at]
        return thread.start, thread.start - thread.end, int(not mark.opens), mark.name

    def present(self, search: MarkSearch) -> tuple[Reading, str]:
        """The reading that holds as soon as something follows that no mark goes on with, and its field."""
        while not search.alive:
            found = [
                (self._key(search, at, thread), thread)
                for at, threads in enumerate(search.threads)
                for thread in threads
                if thread.child is not None and not thread.owed
            ]
            child = min(found, key=lambda one: one[0])[1].child
            assert child is not None
            search = child
        return search.texts[-1][1], self._fields[search.name]

    def ended(self, search: MarkSearch, now: int, where: Where) -> tuple[Reading, str]:
        """The reading that holds if nothing follows, and the field that it is in. where: says that it is over."""
        while True:
            found = []
            for at, mark in enumerate(self._watched[search.name]):
                thread = self._last(search, at, mark, now, where)
                if thread is not None:
                    found.append((self._key(search, at, thread), thread))
            if not found:
                return search.texts[-1][1], self._fields[search.name]
            child = min(found, key=lambda one: one[0])[1].child
            assert child is not None
            search = child

    def _last(self, search: MarkSearch, at: int, mark: Mark, now: int, where: Where) -> _Thread | None:
        """The match that a search for a mark finds if nothing follows."""
        seen = set[tuple[int, Obligations]]()
        for thread in search.threads[at]:
            if thread.child is not None:
                if mark.program.kept(thread.owed, where):
                    return thread
                continue
            for place, owed in mark.program.threads(thread.place, thread.owed, where, seen):
                if place == MATCH and mark.program.kept(owed, where):
                    child = self._behind(search, mark, thread.start, now, where)
                    return _Thread(thread.start, MATCH, (), now, child)
        return None


def _decided(threads: Sequence[_Thread]) -> bool:
    return bool(threads) and threads[-1].child is not None and not threads[-1].owed


def numbered(search: MarkSearch, now: int) -> Moved:
    """A search as any other that goes on alike has it: readings and positions counted in the order they are met."""
    positions = {at: number for number, at in enumerate(sorted({now, *_positions(search)}))}
    readings: dict[Reading, int] = {}
    again = _numbered(search, positions, readings)
    return Moved(again, positions[now], (*readings,))


def _positions(search: MarkSearch) -> Iterator[int]:
    for threads in search.threads:
        for thread in threads:
            yield thread.start
            if thread.child is not None:
                yield thread.end
                yield from _positions(thread.child)


def _numbered(search: MarkSearch, positions: Mapping[int, int], readings: dict[Reading, int]) -> MarkSearch:
    starts = {thread.start for threads in search.threads for thread in threads}
    last = search.texts[-1][0] if search.alive else None

    def kept(all_: Sequence[tuple[int, Reading]]) -> tuple[tuple[int, Reading], ...]:
        wanted = [(at, reading) for at, reading in all_ if at in starts or at == last]
        return tuple((positions[at], (readings.setdefault(one, len(readings)), ())) for at, one in wanted)

    texts, marks = kept(search.texts), kept(search.marks)
    threads = tuple(
        tuple(
            thread._replace(
                start=positions[thread.start],
                end=positions.get(thread.end, -1),
                child=None if thread.child is None else _numbered(thread.child, positions, readings),
            )
            for thread in each
        )
        for each in search.threads
    )
    return MarkSearch(search.name, texts, marks, search.alive, threads)
