"""Letters that look alike: a pattern that asks for one of them is content with another.

The text stays as it is, and so do its word borders; only what the pattern's letters accept grows. Every match of the
pattern as written remains a match.

Source: a selection by eye along the lines of Unicode Technical Standard 39 (confusables), restricted to look-alikes of
ASCII letters in Cyrillic, Greek, Armenian, Cherokee and Latin's small capitals. Full-width, mathematical and other
styled letters are the business of NFKC.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from nco_guard.automata.charsets import MAX_CODE_POINT, CharSet, complement, union
from nco_guard.automata.patterns.syntax import Alternation, Chars, Lookaround, Node, Repeat, Sequence

__all__ = ["LEET", "LETTERS", "accepted", "with_look_alikes"]

# ASCII letter -> letters that look like it. Each letter stands in one group only; within it all are alike.
LETTERS: dict[str, str] = {
    "A": "\u0410\u0391\u13aa",
    "B": "\u0412\u0392\u13f4",
    "C": "\u0421\u03f9\u13df",
    "D": "\u13a0",
    "E": "\u0415\u0395\u13ac",
    "F": "\u03dc",
    "G": "\u050c\u13c0",
    "H": "\u041d\u0397\u13bb",
    "I": "\u0406\u0399\u04c0",
    "J": "\u0408\u037f\u13ab",
    "K": "\u041a\u039a\u13e6",
    "L": "\u13de",
    "M": "\u041c\u039c\u03fa\u13b7",
    "N": "\u039d",
    "O": "\u041e\u039f\u0555",
    "P": "\u0420\u03a1\u13e2",
    "Q": "\u051a",
    "R": "\u13a1\u13d2",
    "S": "\u0405\u054f\u13da",
    "T": "\u0422\u03a4\u13a2",
    "U": "\u054d",
    "V": "\u0474\u13d9",
    "W": "\u051c\u13b3",
    "X": "\u0425\u03a7",
    "Y": "\u0423\u03a5\u04ae",
    "Z": "\u0396\u13c3",
    "a": "\u0430\u03b1\u0251\u1d00",
    "b": "\u042c\u0432\u0299",
    "c": "\u0441\u03f2\u1d04",
    "d": "\u0501\u1d05",
    "e": "\u0435\u04bd\u1d07",
    "f": "\ua730\u0192",
    "g": "\u0261\u0581\u0262",
    "h": "\u04bb\u0570\u043d\u029c",
    "i": "\u0456\u03b9\u0131\u0269\u026a",
    "j": "\u0458\u03f3\u1d0a",
    "k": "\u043a\u03ba\u1d0b",
    "l": "\u04cf\u029f",
    "m": "\u043c\u1d0d",
    "n": "\u043f\u0578\u03b7\u0274",
    "o": "\u043e\u03bf\u0585\u1d0f",
    "p": "\u0440\u03c1\u1d18",
    "q": "\u051b\u0566",
    "r": "\u0433\u0280",
    "s": "\u0455\ua731",
    "t": "\u0442\u03c4\u1d1b",
    "u": "\u03c5\u057d\u1d1c",
    "v": "\u03bd\u0475\u1d20",
    "w": "\u051d\u0461\u0561\u1d21",
    "x": "\u0445\u03c7",
    "y": "\u0443\u03b3\u04af\u028f",
    "z": "\u1d22",
}

# ASCII letter -> digits and signs that are written for it, in either case. One-way: a rule's 4 is not an a.
LEET: dict[str, str] = {
    "a": "4@",
    "b": "8",
    "e": "3",
    "g": "9",
    "i": "1!|",
    "l": "1|",
    "o": "0",
    "s": "5$",
    "t": "7+",
    "z": "2",
}

# A set with one of these is a broad class (any character, all word characters, a negated set): it names no letter.
_BROAD: CharSet = ((0x4E00, 0x4E00), (MAX_CODE_POINT, MAX_CODE_POINT))


def _set_of(characters: str) -> CharSet:
    return union(*(((ord(c), ord(c)),) for c in characters))


def _meet(first: CharSet, second: CharSet) -> bool:
    return union(complement(first), complement(second)) != ((0, MAX_CODE_POINT),)


@cache
def accepted(ranges: CharSet, leet: bool) -> CharSet:
    r"""The set with the look-alikes of its letters; a broad class (`.`, `\w`, `[^a]`) as it is."""
    if _meet(ranges, _BROAD):
        return ranges
    found = [ranges]
    for letter, others in LETTERS.items():
        group = _set_of(letter + others)
        if _meet(ranges, group):
            found.append(group)
    if leet:
        found.extend(_set_of(signs) for c, signs in LEET.items() if _meet(ranges, _set_of(c + c.upper())))
    return union(*found)


def with_look_alikes(node: Node, kind: Literal["letters", "leet"], *, negated: bool = False) -> Node:
    """The pattern with every named letter accepting its look-alikes; "leet": digits and signs too.

    What must *not* stand there (the inside of negative lookarounds) is left as written, so exceptions stay narrow.
    """
    if isinstance(node, Chars):
        return node if negated else Chars(accepted(node.ranges, kind == "leet"))
    if isinstance(node, Sequence):
        return Sequence(tuple(with_look_alikes(item, kind, negated=negated) for item in node.items))
    if isinstance(node, Alternation):
        return Alternation(tuple(with_look_alikes(option, kind, negated=negated) for option in node.options))
    if isinstance(node, Repeat):
        return Repeat(with_look_alikes(node.body, kind, negated=negated), node.low, node.high)
    if isinstance(node, Lookaround):
        body = with_look_alikes(node.body, kind, negated=negated != node.negative)
        return Lookaround(body, node.behind, node.negative)
    return node
