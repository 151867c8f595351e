"""Sums of check digits, read from left to right: what characters a number needs, and how many states that takes.

A text passes or fails by the characters that count, in their order; all others are skipped. Decimal digits of any
script (`\\d`) count by their value, letters as `re.IGNORECASE` compares them.

* `Weighted`: a weight for each place, and what the sum leaves by a modulus: places times modulus states.
* `WholeNumber`: all digits are one number, of any length: as many states as the modulus, twice that with a check
  character.
* `Repeated` (Luhn, EAN): weights that are repeated from the right. Which one a digit has is only known at the end, so
  one sum is kept for each weight: modulus to the power of weights. Where a pattern fixes how many digits there are, it
  is modulus times weights.
* `Verhoeff`: products in the dihedral group of ten elements, by places from the right: 80 states for one number of
  digits; each further length that a pattern admits has ten times as many.
* `Mod1110` (ISO/IEC 7064 MOD 11,10): 10 states.
* `Mod97` (ISO 13616, ISO/IEC 7064 MOD 97-10): the first four letters and digits are moved to the end. Once they are
  known they fix what the rest has to leave as its remainder: at most 97 * 97 states after them, of which a text with
  given first four meets 97.
* `AllOf`: several of them, each of which has to pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Self

from nco_guard.automata.charsets import CharSet, both, complement, decimal_digits, same_letter, union
from nco_guard.automata.patterns.syntax import Alternation, Assertion, Chars, Lookaround, Node, Repeat
from nco_guard.automata.patterns.syntax import Sequence as Items

__all__ = [
    "CHECKSUMS",
    "AllOf",
    "Checksum",
    "Repeated",
    "Sum",
    "Weighted",
    "WholeNumber",
]

Sum = tuple[Any, ...]
_PASSED: Sum = ("passed",)
_FAILED: Sum = ("failed",)
_IMPOSSIBLE = _SETTLED = -1
#: What a letter is worth: a number, or the digits that stand for it.
_LetterValues = Mapping[str, int | str]
#: What a place makes of a character: a weight, values of its own, or None: the check character stands there.
_Place = int | Mapping[str, int] | None


class Checksum(ABC):
    """A checksum, read from left to right.

    `start` is its state before the first character; `symbols()` maps the characters that count to their symbols: a
    digit's is its value, a letter's that of `symbol_of`.
    """

    start: Sum = ()

    @abstractmethod
    def symbols(self) -> dict[int, CharSet]:
        """The characters that count, by symbol."""

    @abstractmethod
    def read(self, state: Sum, symbol: int) -> Sum:
        """The state after one more counting character."""

    @abstractmethod
    def valid(self, state: Sum) -> bool:
        """Whether what was read passes."""

    def narrowed(self, node: Node) -> Checksum:
        """The checksum as matches of a pattern need it: the answers for them are the same, states may be fewer."""
        return self


def symbol_of(character: str) -> int:
    """The symbol of an ASCII digit (its value) or of another character (the lowest that IGNORECASE takes for it)."""
    return int(character) if character in "0123456789" else same_letter(character)[0][0]


class _Valued(Checksum):
    """Digits and letters with values. `letters`: a letter that stands for digits is as many characters as it has."""

    def __init__(self, letters: _LetterValues, check: str = "") -> None:
        self._worth = {digit: digit for digit in range(10)}
        self._spelled: dict[int, tuple[int, ...]] = {digit: (digit,) for digit in range(10)}
        self._check = tuple(map(symbol_of, check))
        self._chars = {symbol_of(c): c for c in (*letters, *check) if c not in "0123456789"}
        for letter, value in letters.items():
            symbol = symbol_of(letter)
            if isinstance(value, str):
                self._spelled[symbol] = tuple(map(int, value))
            else:
                self._worth[symbol] = value
                self._spelled[symbol] = (symbol,)

    def symbols(self) -> dict[int, CharSet]:
        """Decimal digits, letters with a value, and check characters."""
        return {**decimal_digits(), **{symbol: same_letter(c) for symbol, c in self._chars.items()}}

    def _terms(self, place: int | Mapping[str, int], modulus: int, base: int | None) -> dict[int, int]:
        """What each symbol adds at a place; `base`: the digits of its product are added up, written in this base."""
        if not isinstance(place, int):
            return {symbol_of(c): value % modulus for c, value in place.items()}
        return {
            symbol: (place * value if base is None else _digit_sum(place * value, base)) % modulus
            for symbol, value in self._worth.items()
        }


def _digit_sum(number: int, base: int) -> int:
    total = 0
    while number:
        number, digit = divmod(number, base)
        total += digit
    return total


class Weighted(_Valued):
    """A sum over places: as many characters as there are places, and the remainder is accepted, or names the check
    character.

    A state: (how many characters so far, what their sum leaves, the check character if it came already), at the end
    whether it passes. `check`: by remainder; empty if there is none, and then a remainder of `accept` passes. Letters
    of `check` alone count only at the check character's place.
    """

    def __init__(
        self,
        places: Sequence[_Place],
        modulus: int,
        *,
        accept: Iterable[int] = (0,),
        check: str = "",
        letters: _LetterValues | None = None,
        digit_sums: int | None = None,
    ) -> None:
        super().__init__(letters or {}, check)
        self._modulus = modulus
        self._accept = frozenset(accept)
        self._places = [None if one is None else self._terms(one, modulus, digit_sums) for one in places]
        self._settled = max(
            place for place, terms in enumerate(self._places, 1) if terms is None or any(terms.values())
        )
        self.start = (0, 0, _IMPOSSIBLE)

    def read(self, state: Sum, symbol: int) -> Sum:
        """One more character; what does not fit into the places fails."""
        spelled = self._spelled.get(symbol)
        if len(state) == 1:
            return state if spelled is None else _FAILED
        place, total, given = state
        if self._places[place] is None:
            return self._reached(place + 1, total, symbol) if symbol in self._check else _FAILED
        if spelled is None:
            return state
        for one in spelled:
            terms = self._places[place] if place < len(self._places) else None
            if terms is None:
                return _FAILED
            if place < self._settled:
                total = (total + terms[one]) % self._modulus
            place += 1
        return self._reached(place, total, given)

    def _reached(self, place: int, total: int, given: int) -> Sum:
        if place < self._settled:
            return place, total, given
        if total != _SETTLED and not (self._check[total] == given if self._check else total in self._accept):
            return _FAILED
        # Of places whose weight is 0 only the number matters.
        return (place, _SETTLED, _IMPOSSIBLE) if place < len(self._places) else _PASSED

    def valid(self, state: Sum) -> bool:
        """Whether all places are taken and the sum passes."""
        return state == _PASSED


class WholeNumber(_Valued):
    """All characters together are one decimal number, and its remainder is accepted, or names the last character.

    A state: (the remainder, whether a text that ends here passes). Without a character before it, none passes.
    """

    def __init__(
        self,
        modulus: int,
        *,
        accept: Iterable[int] = (0,),
        check: str = "",
        letters: _LetterValues | None = None,
    ) -> None:
        super().__init__(letters or {}, check)
        self._modulus = modulus
        self._accept = frozenset(accept)

    def read(self, state: Sum, symbol: int) -> Sum:
        """One more character, which may be the last."""
        spelled = self._spelled.get(symbol)
        if not state and spelled is None:
            return state
        total = state[0] if state else 0
        passes = bool(state) and bool(self._check) and self._check[total] == symbol
        for one in spelled or ():
            total = (total * 10 + self._worth[one]) % self._modulus
        return total, passes if self._check else total in self._accept

    def valid(self, state: Sum) -> bool:
        """Whether what was read passes as it stands."""
        return bool(state) and bool(state[1])


class _FromRight(_Valued):
    """Characters count by their place from the right, in a cycle.

    A state: for each number of characters that may still come, by the length of the cycle, what those so far are then
    worth together; `_IMPOSSIBLE` where no match goes on so. Nothing that counts fails.
    """

    def __init__(self, cycle: int, letters: _LetterValues) -> None:
        super().__init__(letters)
        self._cycle = cycle
        self._first: Sum = (0,) * cycle

    @abstractmethod
    def _joined(self, before: int, index: int, symbol: int) -> int:
        """What characters are worth with one more behind them, which is the `index`-th from the right."""

    @abstractmethod
    def _passes(self, total: int) -> bool: ...

    def narrowed(self, node: Node) -> Self:
        """Only the numbers of characters that matches of the pattern have."""
        sizes = [(chars, len(self._spelled[symbol])) for symbol, chars in self.symbols().items()]
        least, most = _counted(node, sizes)
        fresh = copy(self)
        if most is not None and most - least + 1 < self._cycle:
            ahead = {count % self._cycle for count in range(least, most + 1)}
            fresh._first = tuple(0 if count in ahead else _IMPOSSIBLE for count in range(self._cycle))
        return fresh

    def read(self, state: Sum, symbol: int) -> Sum:
        """One more character, whatever its place will be."""
        state = state or self._first
        for one in self._spelled[symbol]:
            moved = (*state[1:], state[0])
            state = tuple(
                before if before == _IMPOSSIBLE else self._joined(before, index, one)
                for index, before in enumerate(moved)
            )
        return state

    def valid(self, state: Sum) -> bool:
        """Whether what was read passes if nothing comes."""
        return state != () and state[0] != _IMPOSSIBLE and self._passes(state[0])


def _counted(node: Node, sizes: Sequence[tuple[CharSet, int]]) -> tuple[int, int | None]:
    """How many places the characters of a match take, at least and at most; None: there is no bound.

    `sizes`: sets of characters and how many places one of them takes; all others take none.
    """
    if isinstance(node, Chars):
        found = {size for chars, size in sizes if both(chars, node.ranges)}
        if both(node.ranges, complement(union(*(chars for chars, _ in sizes)))):
            found.add(0)
        return min(found, default=0), max(found, default=0)
    if isinstance(node, Assertion | Lookaround):
        return 0, 0
    if isinstance(node, Repeat):
        least, most = _counted(node.body, sizes)
        return (
            least * node.low,
            0 if most == 0 else None if most is None or node.high is None else most * node.high,
        )
    parts = [_counted(part, sizes) for part in (node.items if isinstance(node, Items) else node.options)]
    highs = [most for _, most in parts if most is not None]
    bounded = len(highs) == len(parts)
    if isinstance(node, Alternation):
        return min((least for least, _ in parts), default=0), max(highs, default=0) if bounded else None
    return sum(least for least, _ in parts), sum(highs) if bounded else None


class Repeated(_FromRight):
    """Weights that are repeated from the right: the last one belongs to the last character."""

    def __init__(
        self,
        places: Sequence[int | Mapping[str, int]],
        modulus: int,
        *,
        accept: Iterable[int] = (0,),
        letters: _LetterValues | None = None,
        digit_sums: int | None = None,
    ) -> None:
        super().__init__(len(places), letters or {})
        self._modulus = modulus
        self._accept = frozenset(accept)
        self._places = [self._terms(one, modulus, digit_sums) for one in reversed(places)]

    def _joined(self, before: int, index: int, symbol: int) -> int:
        return (before + self._places[index][symbol]) % self._modulus

    def _passes(self, total: int) -> bool:
        return total in self._accept


class Verhoeff(_FromRight):
    """Verhoeff's formula over digits; without any digit it fails.

    Elements of the dihedral group of the pentagon: 0 to 4 are rotations, 5 to 9 reflections.
    """

    def __init__(self) -> None:
        super().__init__(8, {})
        powers: list[list[int]] = [list(range(10))]
        for _ in range(7):
            powers.append([(1, 5, 7, 6, 2, 8, 3, 0, 9, 4)[digit] for digit in powers[-1]])
        self._powers = powers

    def _joined(self, before: int, index: int, symbol: int) -> int:
        moved = self._powers[index][symbol]
        turned = (moved + before if moved < 5 else moved - before) % 5
        return turned + 5 if (moved < 5) != (before < 5) else turned

    def _passes(self, total: int) -> bool:
        return total == 0


class Mod1110(Checksum):
    """ISO/IEC 7064 MOD 11,10 over digits; without any digit it fails. A state: what the next digit is added to."""

    start: Sum = (10,)

    def symbols(self) -> dict[int, CharSet]:
        """The decimal digits."""
        return decimal_digits()

    def read(self, state: Sum, symbol: int) -> Sum:
        """One more digit."""
        return (((state[0] + symbol) % 10 or 10) * 2 % 11,)

    def valid(self, state: Sum) -> bool:
        """Whether the last digit left 1 by 10, which is 2 once it is doubled."""
        return state == (2,)


class Mod97(Checksum):
    """The remainder by 97, with the first four characters moved to the end, is 1; letters count 10 to 35.

    Fewer than five characters fail. A state: (how many of the first four, their remainder, how many decimal digits they
    are worth), then (the remainder that the rest has to leave, the one that it has so far).
    """

    def symbols(self) -> dict[int, CharSet]:
        """Decimal digits and Latin letters."""
        letters = {symbol_of(c): same_letter(c) for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
        return {**decimal_digits(), **letters}

    def read(self, state: Sum, symbol: int) -> Sum:
        """One more letter or digit."""
        value, width = (symbol, 1) if symbol < 10 else (symbol - ord("A") + 10, 2)
        if len(state) == 2:
            wanted, rest = state
            return wanted, (rest * 10**width + value) % 97
        count, first, places = state or (0, 0, 0)
        count, first, places = count + 1, (first * 10**width + value) % 97, places + width
        if count < 4:
            return count, first, places
        # rest * 10**places + first leaves 1, so rest leaves (1 - first) / 10**places; -97 is an empty rest.
        return (1 - first) * pow(10, -places, 97) % 97, -97

    def valid(self, state: Sum) -> bool:
        """Whether the rest leaves the remainder that the first four ask for."""
        return len(state) == 2 and state[0] == state[1]


class AllOf(Checksum):
    """Several checksums over the same text, all of which pass. A state: theirs, or that one of them failed for good."""

    def __init__(self, parts: Sequence[Checksum]) -> None:
        self._parts = [(part, frozenset(part.symbols())) for part in parts]
        self.start = tuple(part.start for part in parts)

    def symbols(self) -> dict[int, CharSet]:
        """Those of all parts."""
        return {symbol: chars for part, _ in self._parts for symbol, chars in part.symbols().items()}

    def read(self, state: Sum, symbol: int) -> Sum:
        """One more character; a part for which it does not count stays where it is."""
        if state == _FAILED:
            return state
        reached = tuple(
            part.read(inner, symbol) if symbol in known else inner
            for (part, known), inner in zip(self._parts, state, strict=True)
        )
        return _FAILED if _FAILED in reached else reached

    def valid(self, state: Sum) -> bool:
        """Whether all parts pass."""
        return state != _FAILED and all(
            part.valid(inner) for (part, _), inner in zip(self._parts, state, strict=True)
        )

    def narrowed(self, node: Node) -> AllOf:
        """Each part as the pattern needs it."""
        return AllOf([part.narrowed(node) for part, _ in self._parts])


CHECKSUMS: dict[str, Checksum] = {
    "luhn": Repeated((2, 1), 10, digit_sums=10),
    "mod97": Mod97(),
    "mod11_10": Mod1110(),
    "verhoeff": Verhoeff(),
}
