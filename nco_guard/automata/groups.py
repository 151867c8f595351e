"""Lists of strings that share automata, and how the sharing changes when lists do.

All lists of one kind begin as one group with one automaton. When a list is added, or grows at its end, the new strings
become a group beside the others, so that nothing is built again; small groups are joined with the new one, so there are
never more than some log2(strings / 1024) of a kind. A group that has lost a string is built again.

Cost: adding a few strings builds the automaton of at most `SMALL` strings, some milliseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from nco_guard.automata.folded_literals import FoldedAhoCorasick
from nco_guard.automata.literals import AhoCorasick
from nco_guard.errors import StateLimitError

__all__ = ["SMALL", "StringGroup", "StringKind", "StringList", "regrouped", "strings_automaton"]

# Groups of at most so many strings are joined with what is added.
SMALL = 1024


class StringKind(NamedTuple):
    """How strings are looked for; lists of one kind can share an automaton."""

    reads_prompt: bool
    caseless: bool
    whole_word: bool


class StringList(NamedTuple):
    """The strings of the rule `name`."""

    name: str
    kind: StringKind
    strings: tuple[str, ...]


class _Piece(NamedTuple):
    source: StringList
    begin: int
    end: int

    @property
    def strings(self) -> tuple[str, ...]:
        return self.source.strings[self.begin : self.end]

    def within(self, other: StringList) -> bool:
        """Whether the other list has the same strings at the same places."""
        return self.source.kind == other.kind and (
            self.source.strings is other.strings or self.strings == other.strings[self.begin : self.end]
        )


def strings_automaton(
    strings: Sequence[str], kind: StringKind, *, names_hits: bool = False
) -> AhoCorasick | FoldedAhoCorasick:
    """The automaton that finds the strings in the way of their kind. `names_hits`: see `FoldedAhoCorasick`."""
    if kind.caseless or kind.whole_word:
        return FoldedAhoCorasick(
            strings, caseless=kind.caseless, whole_word=kind.whole_word, names_hits=names_hits
        )
    return AhoCorasick([s.encode() for s in strings])


class StringGroup:
    """Strings of one or several lists that share an automaton, which is built on first use and never changes."""

    def __init__(self, kind: StringKind, pieces: Sequence[_Piece]) -> None:
        self.kind = kind
        self._pieces = tuple(pieces)
        # Strings are numbered through all pieces; each piece begins where the previous ones end.
        self._ends = list(accumulate(piece.end - piece.begin for piece in pieces))

    def __len__(self) -> int:
        """How many strings there are."""
        return self._ends[-1]

    @property
    def pieces(self) -> tuple[_Piece, ...]:
        """Which parts of which lists are in it."""
        return self._pieces

    @property
    def rule_ids(self) -> tuple[str, ...]:
        """The names of the lists, in order."""
        return tuple(dict.fromkeys(piece.source.name for piece in self._pieces))

    @cached_property
    def automaton(self) -> AhoCorasick | FoldedAhoCorasick:
        """The automaton of all its strings. Errors: `StateLimitError`, naming the rules."""
        strings: Sequence[str] = (
            self._pieces[0].strings
            if len(self._pieces) == 1
            else [string for piece in self._pieces for string in piece.strings]
        )
        try:
            return strings_automaton(strings, self.kind, names_hits=True)
        except StateLimitError as error:
            raise StateLimitError(error.message, rule_id=", ".join(self.rule_ids[:3])) from None

    def _owners(self, indices: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._pieces[bisect_right(self._ends, i)].source.name for i in indices))

    def rules_at(self, state: int) -> tuple[str, ...]:
        """The names of the lists of which a string completed with the step into a state."""
        return self._owners(self.automaton.patterns_ending(state))

    def rules_at_end(self, state: int) -> tuple[str, ...]:
        """The same for the end of the text in that state."""
        automaton = self.automaton
        if isinstance(automaton, FoldedAhoCorasick):
            return self._owners(automaton.patterns_ending_with_text(state))
        return ()


def regrouped(lists: Iterable[StringList], groups: Iterable[StringGroup]) -> tuple[StringGroup, ...]:
    """Groups that hold exactly the strings of the lists, using those of `groups` that still fit.

    Names are unique. Without `groups`, one for each kind.
    """
    wanted = {one.name: one for one in lists}
    covered: dict[str, list[tuple[int, int]]] = {name: [] for name in wanted}
    kept: dict[StringKind, list[StringGroup]] = {}
    for group in groups:
        if all(p.source.name in wanted and p.within(wanted[p.source.name]) for p in group.pieces):
            kept.setdefault(group.kind, []).append(group)
            for piece in group.pieces:
                covered[piece.source.name].append((piece.begin, piece.end))
    fresh: dict[StringKind, list[_Piece]] = {}
    for name, one in wanted.items():
        position = 0
        for begin, end in [*sorted(covered[name]), (len(one.strings), len(one.strings))]:
            if position < begin:
                fresh.setdefault(one.kind, []).append(_Piece(one, position, begin))
            position = end
    made: list[StringGroup] = []
    for kind in dict.fromkeys([*kept, *fresh]):
        staying, pieces = kept.get(kind, []), fresh.get(kind, [])
        if pieces:
            staying, pieces = _joined(staying, pieces)
            staying = [*staying, StringGroup(kind, pieces)]
        made.extend(staying)
    return tuple(made)


def _joined(groups: list[StringGroup], pieces: list[_Piece]) -> tuple[list[StringGroup], list[_Piece]]:
    """The groups that stay as they are, and the new pieces with those of the groups that are not larger."""
    while True:
        size = max(SMALL, sum(piece.end - piece.begin for piece in pieces))
        small = [group for group in groups if len(group) <= size]
        if not small:
            return groups, pieces
        groups = [group for group in groups if len(group) > size]
        pieces = [*(piece for group in small for piece in group.pieces), *pieces]
