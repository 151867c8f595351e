r"""What ends a sentence: the one place that says it.

A *break* is a stretch between two sentences. It begins behind a mark that ends sentences and what closes with it
(quotes, brackets), and goes over the white space that follows. After ``.``, ``!``, ``?`` and most others there has to
be white space, so "3.14" holds no break; the marks of Chinese and Japanese end a sentence at once, since no space
follows them. White space with a line end in it is a break whatever precedes. Abbreviations are not known: there is one
in "Dr. Who".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["sentence_breaks", "sentences", "settled_breaks"]

# Source: Unicode 15, property Sentence_Terminal; and the ellipsis.
_SPACED = (
    "!.?\u0589\u061d\u061e\u061f\u06d4\u0700\u0701\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b\u1362"
    "\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8\u1aa9\u1aaa\u1aab\u1b5a\u1b5b\u1b5e\u1b5f"
    "\u1b7d\u1b7e\u1c3b\u1c3c\u1c7e\u1c7f\u2024\u203c\u203d\u2047\u2048\u2049\u2e2e\u2e3c\u2e53\u2e54\ua4ff\ua60e\ua60f"
    "\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d\uaa5e\uaa5f\uaaf0\uaaf1\uabeb\ufe52\ufe56\ufe57\uff0e"
    "\u2026"
)
# Of these: the ideographic full stop, full-width ! and ?, and their half-width and vertical forms.
_AT_ONCE = "\u3002\uff01\uff1f\uff61\ufe12\ufe15\ufe16"
_CLOSING = "\"')]}\u00bb\u2019\u201d\u203a\u3009\u300b\u300d\u300f\u3011\u3015\u3017\uff09\uff3d\uff5d\uff63"
_SIGNS = f"[{re.escape(_SPACED + _AT_ONCE + _CLOSING)}]"
_STRETCH = re.compile(rf"({_SIGNS}++)(\s*+)|(\s++)")
_SPACE = "".join(filter(str.isspace, map(chr, range(0x3001))))  # all that `re` takes for white space


def sentence_breaks(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """The breaks of a text, (start, end) each, in order; `start`: those of the text from there on.

    A break at the end of the text may be longer, or none, in a text that goes on. Linear in the text.

    Examples:
        >>> list(sentence_breaks("It is 3.14. Good"))
        [(11, 12)]
    """
    for found in _STRETCH.finditer(text, start):
        signs, after, alone = found.groups("")
        mark, space = signs.rstrip(_CLOSING)[-1:], after or alone
        if "\n" in space or (mark and (mark in _AT_ONCE or space)):
            yield found.end() - len(space), found.end()


def settled_breaks(text: str) -> int:
    """How much of a text there is before the signs and white space at its end: its breaks up to there are certain."""
    return len(text.rstrip(_SPACED + _AT_ONCE + _CLOSING + _SPACE))


def sentences(text: str) -> list[str]:
    """The sentences of a text, without the white space between them (see this module for what ends one).

    Rough, and good enough for shares. Linear in the text.

    Examples:
        >>> sentences("It rained. We left.")
        ['It rained.', 'We left.']
    """
    found, done = [], 0
    for start, end in (*sentence_breaks(text), (len(text), len(text))):
        found.append(text[done:start])
        done = end
    return [piece for piece in found if piece.strip()]
