"""Text from anywhere, made safe to show: nothing in it can act on a terminal, hide, or change what stands beside it.

Names in a log, fields of a file, paths and the texts of models are anybody's words. An escape sequence in one could
clear a screen and print a verdict of its own, a line break could begin a line of its own, a mark of direction could
turn the rest of the line around. Whatever is printed or drawn for people (the command line, the report's page) passes
through `visible`; nothing else decides which characters show.
"""

from __future__ import annotations

import re

__all__ = ["visible"]

# What `str.isprintable` takes for printable though it draws nothing, or only changes what stands before it: joiners,
# fillers of Hangul, inherent vowels of Khmer, variation selectors, the empty pattern of Braille.
_DRAWS_NOTHING = frozenset(
    map(
        chr,
        (
            0x034F,
            *(0x115F, 0x1160, 0x3164, 0xFFA0),
            *(0x17B4, 0x17B5),
            *range(0x180B, 0x1810),
            0x2800,
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
_PLAIN = re.compile(r"[ -~]*")


def visible(text: str, *, lines: bool = False) -> str:
    r"""`text` with every character that does not show, or does more than show, written as its escape.

    Escaped are control characters (C0 with tabs and line breaks, DEL, C1: so all of ANSI's sequences), line and
    paragraph separators, marks of direction and other format characters, spaces other than the plain one, halves of
    surrogate pairs, characters that are private or not assigned, and those that draw nothing. All others stay as they
    are, a backslash too: the result is for eyes, not to be read back.

    lines: line breaks (`\n`) stay, for a text of several lines; for names, leave them escaped.

    Example: `visible("a\x1b[2Jb\u202e")` is `a\x1b[2Jb\u202e`, in plain ASCII. Cost: nanoseconds a character of
    printable ASCII, some hundred for others.
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        one
        if (one.isprintable() and one not in _DRAWS_NOTHING) or (lines and one == "\n")
        else one.encode("unicode_escape").decode("ascii")
        for one in text
    )
