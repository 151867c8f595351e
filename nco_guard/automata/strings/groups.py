"""Lists of strings that share automata, and how the sharing changes when lists do.

All lists of one kind begin as one group with one automaton. When a list is added, or grows at its end, the new strings
become a group beside the others, so that nothing is built again; small groups are joined with the new one, so there are
never more than some log2(strings / 128) of a kind. A group that has lost a string is built again.

Cost: adding a few strings builds the automaton of at most `SMALL` strings, some milliseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from numpy.typing import NDArray

from nco_guard.automata.strings.exact import AhoCorasick
from nco_guard.automata.strings.folded import FoldedAhoCorasick
from nco_guard.errors import StateLimitError

__all__ = ["StringGroup", "StringKind", "StringList", "regrouped"]

# Groups of at most so many strings are joined with what is added.
SMALL = 128


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


class Piece(NamedTuple):
    """The strings `begin` to `end` of a list."""

    source: StringList
    begin: int
    end: int

    @property
    def strings(self) -> tuple[str, ...]:
        """The strings themselves."""
        return self.source.strings[self.begin : self.end]

    def within(self, other: StringList) -> bool:
        """Whether the other list has the same strings at the same places."""
        return self.source.kind == other.kind and (
            self.source.strings is other.strings or self.strings == other.strings[self.begin : self.end]
        )


class StringGroup:
    """Strings of one or several lists that share an automaton, which is built on first use and kept.

    `names_hits`: which list a whole word belongs to is kept too, see `FoldedAhoCorasick`.
    """

    def __init__(self, kind: StringKind, pieces: Sequence[Piece], *, names_hits: bool = True) -> None:
        self.kind = kind
        self.pieces = tuple(pieces)
        self.names_hits = names_hits
        # Strings are numbered through all pieces; each piece begins where the previous ones end.
        self._ends = list(accumulate(piece.end - piece.begin for piece in pieces))

    @classmethod
    def alone(cls, one: StringList) -> StringGroup:
        """All strings of one list, without the memory of which of them was found."""
        return cls(one.kind, [Piece(one, 0, len(one.strings))], names_hits=False)

    def __len__(self) -> int:
        """How many strings there are."""
        return self._ends[-1]

    @property
    def rule_ids(self) -> tuple[str, ...]:
        """The names of the lists, in order."""
        return tuple(dict.fromkeys(piece.source.name for piece in self.pieces))

    @cached_property
    def _built(self) -> AhoCorasick | FoldedAhoCorasick:
        strings = [string for piece in self.pieces for string in piece.strings]
        kind = self.kind
        try:
            if kind.caseless or kind.whole_word:
                return FoldedAhoCorasick(
                    strings, caseless=kind.caseless, whole_word=kind.whole_word, names_hits=self.names_hits
                )
            return AhoCorasick.of_texts(strings)
        except StateLimitError as error:
            raise StateLimitError(error.message, rule_id=", ".join(self.rule_ids[:3])) from None

    @property
    def built(self) -> bool:
        """Whether its automaton is there."""
        return "_built" in self.__dict__

    def take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Use the automaton of which these are the arrays (`to_arrays`). Errors: `ValueError`, see `from_arrays`."""
        folded = self.kind.caseless or self.kind.whole_word
        self._built = FoldedAhoCorasick.from_arrays(arrays) if folded else AhoCorasick.from_arrays(arrays)

    def automaton(self) -> AhoCorasick | FoldedAhoCorasick:
        """The automaton of all the strings: built once, and what is found lazily in it is the caller's own.

        Errors: `StateLimitError`, naming the rules.
        """
        built = self._built
        return built.fresh() if isinstance(built, FoldedAhoCorasick) else built

    def names(self, indices: Iterable[int]) -> tuple[str, ...]:
        """The names of the lists to which some strings belong, numbered as the automaton numbers them."""
        return tuple(dict.fromkeys(self.pieces[bisect_right(self._ends, i)].source.name for i in indices))


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
    fresh: dict[StringKind, list[Piece]] = {}
    for name, one in wanted.items():
        position = 0
        for begin, end in [*sorted(covered[name]), (len(one.strings), len(one.strings))]:
            if position < begin:
                fresh.setdefault(one.kind, []).append(Piece(one, position, begin))
            position = end
    made: list[StringGroup] = []
    for kind in dict.fromkeys([*kept, *fresh]):
        staying, pieces = kept.get(kind, []), fresh.get(kind, [])
        if pieces:
            staying, pieces = _joined(staying, pieces)
            staying = [*staying, StringGroup(kind, pieces)]
        made.extend(staying)
    return tuple(made)


def _joined(groups: list[StringGroup], pieces: list[Piece]) -> tuple[list[StringGroup], list[Piece]]:
    """The groups that stay as they are, and the new pieces with those of the groups that are not larger."""
    while True:
        size = max(SMALL, sum(piece.end - piece.begin for piece in pieces))
        small = [group for group in groups if len(group) <= size]
        if not small:
            return groups, pieces
        groups = [group for group in groups if len(group) > size]
        pieces = [*(piece for group in small for piece in group.pieces), *pieces]
