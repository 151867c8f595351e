"""One rule over many texts at once: from the places that its conditions leave to the spans of its matches.

The conditions only say where to look; what counts as a match, and where it ends, is found by the rule's own automaton
(`automata.spans.follower`) or, for strings, by looking pieces up (`automata.strings.substrings`), at each such place
from left to right. Rules without a useful condition are run over every character once; then places are tried from where
the last match that is complete can have begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import AlternatingMachine, SubstringSearcher
from nco_guard.automata.patterns.searching import plain
from nco_guard.automata.spans.follower import Follower, Searcher, Source, follow, source_of, spans_at
from nco_guard.automata.spans.machines import Runs, runs_of
from nco_guard.compiler import CompiledRule
from nco_guard.errors import StateLimitError
from nco_guard.policy import StringRule
from nco_guard.scan.conditions import Probe, fsm_probes, node_probes, string_probes
from nco_guard.scan.filter import MARGIN, Codes, Condition, mask_of

__all__ = ["OpenRow", "Row", "RuleScanner", "Stretch"]

Places = NDArray[np.int64]
_LONG_LIST = 2_000
# With more places than one in so many characters, reading all characters once is quicker.
_DENSE = 12


@dataclass(slots=True)
class Stretch:
    """A text, or a part of one, within a larger text: `[low, high)`.

    `opens`, `closes`: whether it begins at `low` and ends at `high`. Matches are looked for from `start` on, and those
    that end after `beyond` count. `left`: the first place at which what is still to come decides.
    """

    low: int
    high: int
    opens: bool = True
    closes: bool = True
    start: int = 0
    beyond: int = -1
    left: int | None = None


class Row:
    """Texts side by side in one, at least a character apart: text i is `text[lows[i]:highs[i]]`."""

    is_open = False

    def __init__(self, text: str, lows: Places, highs: Places, beyond: Sequence[int] | None = None) -> None:
        self.text = text
        self.length = len(text)
        self.lows = lows
        self._highs = highs
        self._beyond = beyond

    def stretch(self, index: int) -> Stretch:
        """Where one of the texts is, and what counts in it."""
        low = int(self.lows[index])
        beyond = -1 if self._beyond is None else low + self._beyond[index]
        return Stretch(low, int(self._highs[index]), start=low, beyond=beyond)


class OpenRow(Row):
    """A part of one text that goes on: each rule looks on from where it was left."""

    is_open = True

    def __init__(self, text: str, stretch: Stretch) -> None:
        super().__init__(text, np.zeros(1, np.int64), np.array([len(text)]))
        self._stretch = stretch

    def stretch(self, index: int) -> Stretch:
        """The part that is there."""
        return self._stretch


class RuleScanner:
    """Finds the spans of one rule. Its tables fill as texts are read; hold `rule.lock` while it works.

    `of` gives the one of a compiled rule, which policies that were revised from each other share.
    """

    # By the rule's identity, which its scanner keeps alive.
    _made: ClassVar[WeakValueDictionary[int, RuleScanner]] = WeakValueDictionary()

    @classmethod
    def of(cls, rule: CompiledRule) -> RuleScanner:
        """The scanner of a rule, made when it is first asked for."""
        with rule.lock:
            found = cls._made.get(id(rule))
            if found is None:
                found = cls._made[id(rule)] = cls(rule)
        return found

    def __init__(self, rule: CompiledRule) -> None:
        self.rule = rule
        self._take(rule.searcher)
        self.steps = 0

    def _take(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._source, _ = source_of(searcher)
        self._strings = searcher if isinstance(searcher, SubstringSearcher) else None
        self._machine = None if isinstance(searcher, SubstringSearcher) else plain(searcher)[0]
        self.reach = self._source.reach
        self.__dict__.pop("_tails", None)

    @property
    def _listed(self) -> tuple[str, ...]:
        return self.rule.rule.strings if isinstance(self.rule.rule, StringRule) else ()

    @property
    def is_long(self) -> bool:
        """Whether this is a list of so many strings that conditions for them pay for long texts only."""
        return self._strings is not None and len(self._listed) > _LONG_LIST

    @cached_property
    def probes(self) -> tuple[Probe, ...] | None:
        """What a match must look like; None: nothing that helps is known."""
        machine, strings = self._machine, self._strings
        if strings is not None:
            return string_probes(self._listed, caseless=strings.caseless, whole_word=strings.whole_word)
        if isinstance(machine, AlternatingMachine):
            return node_probes(machine.node)
        return fsm_probes(machine) if machine is not None else None

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """What a match must look like, ready to be asked for."""
        return tuple(map(Condition, self.probes or ()))

    @cached_property
    def _tables(self) -> list[bytes | None]:
        return [None if p.run is None else mask_of(p.run).tobytes() for p in self.probes or ()]

    @cached_property
    def _tails(self) -> list[Runs | None]:
        name = self.rule.id
        return [
            None if p.tail is None else runs_of(AlternatingMachine(p.tail, every_end=True, rule_id=name))
            for p in self.probes or ()
        ]

    def found(self, row: Row, codes: Codes, hits: Sequence[Places] | None) -> list[tuple[int, int, int]]:
        """All of `spans`. Where texts have led to too much, that is forgotten first.

        Errors: `StateLimitError` where these texts by themselves are too much.
        """
        if self._source.crowded:
            self.rule.forget()
        if (searcher := self.rule.searcher) is not self._searcher:
            self._take(searcher)
        try:
            return list(self.spans(row, codes, hits))
        except StateLimitError:
            self.rule.forget(roomy=True)
            self._take(self.rule.searcher)
        try:
            return list(self.spans(row, codes, hits))
        except StateLimitError as error:
            self.rule.forget()
            raise StateLimitError(error.message, rule_id=self.rule.id) from None

    def spans(self, row: Row, codes: Codes, hits: Sequence[Places] | None) -> Iterator[tuple[int, int, int]]:
        """(index of the text, start, end) of each match; `hits`: those of `probes`, in their order; None: unknown."""
        places = None if hits is None else self._places(row, codes, hits)
        if places is None or (self._machine is not None and len(places) * _DENSE > len(row.text)):
            for index in range(len(row.lows)):
                for start, end in self._within(row.text, row.stretch(index), None):
                    yield index, start, end
            return
        if not len(places):
            return
        owners = np.searchsorted(row.lows, places, side="right") - 1
        firsts = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
        for first, last in zip(firsts, [*firsts[1:], len(places)], strict=True):
            index = int(owners[first])
            for start, end in self._within(row.text, row.stretch(index), places[first:last].tolist()):
                yield index, start, end

    def _within(self, text: str, stretch: Stretch, places: Iterable[int] | None) -> Iterator[tuple[int, int]]:
        """The matches that start at some of these places, leftmost first, longest, not overlapping; None: anywhere."""
        follower = _follower(self._source, text, stretch)
        places = follower.candidates(stretch.start) if places is None else places
        for place, end in spans_at(follower, places, stretch.start):
            if end is None:
                stretch.left = place
            else:
                yield place, end
        self.steps += follower.steps

    # -- where to look -----------------------------------------------------------------------------------------

    def _places(self, row: Row, codes: Codes, hits: Sequence[Places]) -> Places | None:
        """The places that the conditions leave, ascending; None: there are no conditions."""
        if self.probes is None:
            return None
        found: list[Places] = []
        for probe, table, tail, places in zip(self.probes, self._tables, self._tails, hits, strict=True):
            if table is not None and tail is not None and len(places):
                places = self._tail_matches(tail, row, places)
                places = _back(probe, table, places, codes, row)
            if len(places):
                found.append(places)
        if len(found) < 2:
            return found[0] if found else np.empty(0, np.int64)
        return np.unique(np.concatenate(found))

    def _tail_matches(self, tail: Runs, row: Row, places: Places) -> Places:
        """Of places within matches those at which the rest of the pattern matches, or may once there is more text."""
        owners = np.searchsorted(row.lows, places, side="right") - 1
        kept: list[int] = []
        last, start = -1, 0
        follower: Follower | None = None
        for place, index in zip(places.tolist(), owners.tolist(), strict=True):
            if follower is None or index != last:
                stretch, last = row.stretch(index), index
                self.steps += 0 if follower is None else follower.steps
                start = stretch.start
                follower = _follower(tail, row.text, replace(stretch, beyond=-1))
            if place < start:
                continue
            end, is_open = follower.longest(place)
            if end is not None or is_open:
                kept.append(place)
        self.steps += 0 if follower is None else follower.steps
        return np.array(kept, np.int64)


def _follower(source: Source, text: str, s: Stretch) -> Follower:
    return follow(source, text, s.low, s.high, opens=s.opens, closes=s.closes, beyond=s.beyond)


def _back(probe: Probe, table: bytes, hits: Places, codes: Codes, row: Row) -> Places:
    """From places within matches to those at which they can start."""
    lows = row.lows[np.searchsorted(row.lows, hits, side="right") - 1]
    # Near the end of a text that goes on, the part that was looked for may be yet to come.
    near_end = row.length - MARGIN if row.is_open else row.length + 1
    view = codes.data
    found: list[Places] = []
    done = 0  # places before this one were given
    last_hit, last_low = -1, 0
    for hit, low in zip(hits.tolist(), lows.tolist(), strict=True):
        limit = low if probe.longest is None else max(low, hit - probe.longest)
        place = hit
        while place > limit and table[view[place - 1]]:
            place -= 1
            if place == last_hit:
                place = max(limit, last_low)
                break
        last_hit, last_low = hit, place
        end = hit + 1 - (0 if hit >= near_end else probe.shortest)
        if max(place, done) < end:
            found.append(np.arange(max(place, done), end))
            done = end
    return np.concatenate(found) if found else np.empty(0, np.int64)
