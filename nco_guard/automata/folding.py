"""What a text folds to: the reference for rules that look past spelling tricks.

A folded rule is about the folded text. Four steps, in this order, and each looks at one character (or one escape
sequence) at a time, so that an automaton can follow them:

1. JSON escapes read as the characters that they denote (`read_escapes`).
2. NFKC: each character is replaced by its own normal form.
3. Accents: a precomposed letter loses the marks that are ignored ("combining").
4. Ignored characters are dropped. One that is ignored before step 2 is dropped at once.

What is not promised: step 2 never joins a letter and a following mark into one character, since no finite automaton
can reorder marks without limit. Strings of rules are therefore looked for in every canonically equivalent spelling
(`spellings`); a regular expression is taken at its word.

Cost: a table of images for each combination of settings, some tenths of a second and then kept; folding is linear.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, permutations
from typing import Literal

from nco_guard.automata.charsets import CharSet, union

__all__ = [
    "IGNORABLE_SETS",
    "FoldSpec",
    "break_off",
    "denotable",
    "escapes",
    "fold_text",
    "read_escapes",
    "settle_escapes",
    "settled_length",
    "spellings",
]

# Characters that show as nothing. Source: Unicode 15, property Default_Ignorable_Code_Point.
_ZERO_WIDTH: CharSet = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
# Marks that belong to no script: those of Thai or Hindi spell words and are left alone. Source: Unicode 15, blocks
# Combining Diacritical Marks, Extended, Supplement, for Symbols, and Combining Half Marks.
_COMBINING: CharSet = (
    (0x0300, 0x036F),
    (0x1AB0, 0x1AFF),
    (0x1DC0, 0x1DFF),
    (0x20D0, 0x20FF),
    (0xFE20, 0xFE2F),
)
# Beyond these lie only ideographs, private use and what is unassigned: nothing that normalisation changes.
_SCANNED = (range(0x32400), range(0xE0000, 0xE1000))


@cache
def _punctuation() -> CharSet:
    return union(
        *(((c, c),) for c in chain(*_SCANNED) if unicodedata.category(chr(c)).startswith("P")),
    )


_NAMED: dict[str, Callable[[], CharSet]] = {
    "zero-width": lambda: _ZERO_WIDTH,
    "combining": lambda: _COMBINING,
    "punctuation": _punctuation,
}
IGNORABLE_SETS = tuple(_NAMED)


@dataclass(frozen=True)
class FoldSpec:
    """What counts as the same text.

    `ignore`: single characters, and names out of `IGNORABLE_SETS`: "zero-width" (what shows as nothing: zero-width
    spaces and joiners, soft hyphens, variation selectors), "combining" (accents that belong to no script, also where
    they are part of a letter: é counts as e), "punctuation" (Unicode categories P).
    """

    normalize: Literal["none", "nfkc"] = "none"
    ignore: tuple[str, ...] = ()
    json_escapes: bool = False

    @property
    def trivial(self) -> bool:
        """Whether every text folds to itself."""
        return self.normalize == "none" and not self.ignore and not self.json_escapes

    @property
    def images(self) -> dict[str, str]:
        """The characters that do not fold to themselves, and what they fold to: nothing, one or several."""
        return _images(self.normalize, _sorted(self.ignore))

    @property
    def vanished(self) -> CharSet:
        """The characters that occur in no folded text; a pattern that asks for one waits in vain."""
        return _vanished(self.normalize, _sorted(self.ignore))

    def fold(self, text: str) -> str:
        """Steps 2 to 4 alone: for text that no JSON parser will read, such as the strings of rules."""
        images = self.images
        return "".join([images.get(c, c) for c in text])


def _sorted(ignore: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(ignore)))


@cache
def _vanished(normalize: str, ignore: tuple[str, ...]) -> CharSet:
    images = _images(normalize, ignore)
    occurring = set("".join(images.values()))
    return union(*(((ord(c), ord(c)),) for c in images if c not in occurring))


@cache
def _images(normalize: str, ignore: tuple[str, ...]) -> dict[str, str]:
    ignored: set[str] = {c for c in ignore if len(c) == 1}
    for name in ignore:
        if len(name) > 1:
            ignored.update(chr(c) for low, high in _NAMED[name]() for c in range(low, high + 1))
    found: dict[str, str] = dict.fromkeys(ignored, "")
    nfkc, accents = normalize == "nfkc", "combining" in ignore
    if not nfkc and not accents:
        return found
    for c in map(chr, chain(*_SCANNED)):
        if c in ignored or unicodedata.is_normalized("NFKD", c):
            continue
        image = unicodedata.normalize("NFKC", c) if nfkc else c
        if accents:
            image = "".join(map(_without_accents, image))
        image = "".join(d for d in image if d not in ignored)
        if image != c:
            found[c] = image
    return found


@cache
def _accents() -> frozenset[str]:
    return frozenset(chr(c) for low, high in _COMBINING for c in range(low, high + 1))


def _without_accents(character: str) -> str:
    if unicodedata.is_normalized("NFD", character):
        return character
    parts = unicodedata.normalize("NFD", character)
    kept = "".join(c for c in parts if c not in _accents())
    return character if kept == parts else unicodedata.normalize("NFC", kept)


# -- JSON escapes ----------------------------------------------------------------------------------------------

_HEX = "[0-9a-fA-F]"
_HIGH = rf"\\u[dD][89abAB]{_HEX}{{2}}"
_COMPLETE = rf"""
    (?P<pair>{_HIGH}\\u[dD][c-fC-F]{_HEX}{{2}}) | \\u(?P<unit>{_HEX}{{4}}) | \\(?P<short>["\\/bfnrt])"""
_ESCAPE = re.compile(_COMPLETE, re.VERBOSE)
# What a further character could still make into another escape, before what is one.
_UNDECIDED = rf"""
    (?: \\ (?: u {_HEX}{{0,3}} )? | {_HIGH} (?: \\ (?: u (?: [dD] (?: [c-fC-F] {_HEX}? )? )? )? )? ) \Z"""
_SETTLING = re.compile(rf"(?P<undecided>{_UNDECIDED}) | {_COMPLETE}", re.VERBOSE)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _denoted(escape: re.Match[str]) -> str:
    _, unit, short = escape.groups()
    if short:
        return _SHORT.get(short, short)
    if unit:
        return chr(int(unit, 16))
    high, low = int(escape["pair"][2:6], 16), int(escape["pair"][8:12], 16)
    return chr(0x10000 + (high - 0xD800 << 10) + low - 0xDC00)


def escapes(text: str) -> Iterator[tuple[str, int, int]]:
    """What each escape in a text denotes, and its start and end."""
    return ((_denoted(escape), *escape.span()) for escape in _ESCAPE.finditer(text))


def read_escapes(text: str) -> Iterator[tuple[str, int, int]]:
    r"""The characters that a text denotes where JSON escapes count, each with start and end of its spelling.

    From left to right: `\uXXXX` (two of them for a surrogate pair), `\n \t \r \b \f \" \\ \/`. Whatever else follows a
    backslash, or an escape that breaks off, denotes itself, as does half of a pair: a lone surrogate, as in Python's
    `json`.
    """
    position = 0
    for character, start, end in chain(escapes(text), [("", len(text), len(text))]):
        for place in range(position, start):
            yield text[place], place, place + 1
        if character:
            yield character, start, end
        position = end


def settled_length(text: str) -> int:
    """How much of a text is read alike whatever follows."""
    if "\\" not in text:
        return len(text)
    found = _SETTLING.finditer(text)
    return next((one.start() for one in found if one["undecided"] is not None), len(text))


def settle_escapes(text: str) -> tuple[str, str]:
    """The characters that are settled whatever follows, and the rest of the spelling, which is not."""
    length = settled_length(text)
    return "".join(character for character, _, _ in read_escapes(text[:length])), text[length:]


def break_off(pending: str) -> tuple[str, str]:
    """An unsettled escape where it breaks off: what reads literally at once, and what may go on as an escape."""
    if re.match(_HIGH, pending):
        return chr(int(pending[2:6], 16)), pending[6:]
    return pending, ""


def denotable(pending: str) -> list[tuple[int, int]]:
    """The code points, as inclusive ranges, that an unsettled escape can come to denote if it is gone on with."""
    if pending == "\\":
        return [(0, 0x10FFFF)]
    if re.match(_HIGH, pending):
        first, last = _digit_range(pending[8:])
        base = 0x10000 + (int(pending[2:6], 16) - 0xD800 << 10)
        return [(base + max(first, 0xDC00) - 0xDC00, base + min(last, 0xDFFF) - 0xDC00)]
    first, last = _digit_range(pending[2:])
    found = [(first, last)]
    high, highest = max(first, 0xD800), min(last, 0xDBFF)
    if high <= highest:
        found.append((0x10000 + (high - 0xD800 << 10), 0x10000 + (highest - 0xD800 << 10) + 0x3FF))
    return found


def _digit_range(digits: str) -> tuple[int, int]:
    """The least and the greatest value of four hexadecimal digits that begin with these."""
    return int(digits.ljust(4, "0"), 16), int(digits.ljust(4, "F"), 16)


# -- the fold --------------------------------------------------------------------------------------------------


def fold_text(text: str, spec: FoldSpec) -> tuple[str, list[tuple[int, int]]]:
    """The folded text, and for each of its characters the (start, end) in the original that it comes from."""
    images = spec.images
    folded: list[str] = []
    origin: list[tuple[int, int]] = []
    plain = ((c, i, i + 1) for i, c in enumerate(text))
    for character, start, end in read_escapes(text) if spec.json_escapes else plain:
        image = images.get(character, character)
        folded.append(image)
        origin.extend([(start, end)] * len(image))
    return "".join(folded), origin


# -- strings of rules ------------------------------------------------------------------------------------------

_PERMUTED_MARKS = 4  # letters with more marks than this are looked for in the given order only


def spellings(text: str, spec: FoldSpec) -> list[tuple[str, ...]]:
    """How a rule's string may stand in folded text: piece by piece, the spellings of each.

    Without NFKC there is one spelling. With it, letters with marks have one for each canonically equivalent sequence.
    Pieces that fold to nothing are left out. JSON escapes are not read here: a rule's string is what is meant.
    """
    if spec.normalize == "none":
        folded = spec.fold(text)
        return [(folded,)] if folded else []
    pieces: list[tuple[str, ...]] = []
    for cluster in _clusters(unicodedata.normalize("NFKC", spec.fold(text))):
        options = dict.fromkeys(spec.fold(option) for option in _equivalents(cluster))
        if "" not in options:
            pieces.append(tuple(options))
    return pieces


def _clusters(text: str) -> Iterator[str]:
    start = 0
    for i, character in enumerate(text):
        if i > start and not unicodedata.combining(character):
            yield text[start:i]
            start = i
    if text:
        yield text[start:]


def _equivalents(cluster: str) -> list[str]:
    """All sequences that are canonically equivalent to a letter with its marks, each composed as far as it goes."""
    parts = unicodedata.normalize("NFD", cluster)
    head, tail = parts[0], parts[1:]
    orders = permutations(tail) if len(tail) <= _PERMUTED_MARKS else iter([tuple(tail)])
    found = dict.fromkeys([cluster])
    for order in orders:
        sequence = head + "".join(order)
        if unicodedata.normalize("NFD", sequence) != parts:
            continue
        for length in range(1, len(sequence) + 1):
            composed = unicodedata.normalize("NFC", sequence[:length])
            if len(composed) == 1:
                found[composed + sequence[length:]] = None
    return list(found)
