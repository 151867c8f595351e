"""llguidance as a peer: the same constraint in its grammar, and its masks as arrays.

Its regular expressions know no word boundaries and no lookaround, so only plain patterns and strings can be compared.
It masks two kinds of tokens besides: special tokens, and tokens that would make the text ill-formed UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import llguidance
import llguidance.numpy
import numpy as np
from numpy.typing import NDArray

__all__ = ["escaped", "exclusion", "forbidden"]

# Its default limits refuse a lexicon of some hundred strings.
_LIMITS = {"initial_lexer_fuel": 2 * 10**9, "step_lexer_fuel": 2 * 10**9, "max_lexer_states": 2 * 10**6}


def escaped(text: str) -> str:
    """A literal in its dialect, inside a `/.../` terminal."""
    return "".join(c if c.isalnum() or ord(c) > 127 else rf"\x{{{ord(c):02X}}}" for c in text)


def exclusion(tokenizer: llguidance.LLTokenizer, patterns: Iterable[str]) -> llguidance.LLMatcher:
    """A matcher for all texts in which none of the patterns is found.

    Raises `ValueError` with its own message if it refuses the grammar.
    """
    bodies = "|".join(f"({pattern.replace('/', chr(92) + '/')})" for pattern in patterns)
    grammar = f"start: TEXT\nTEXT: /(?s:.*)/ & ~/(?s:.*)({bodies})(?s:.*)/\n"
    matcher = llguidance.LLMatcher(tokenizer, grammar, limits=llguidance.LLParserLimits(**_LIMITS))
    if matcher.is_error():
        raise ValueError(matcher.get_error())
    return matcher


def forbidden(matcher: llguidance.LLMatcher, width: int, consumed: Sequence[int] = ()) -> NDArray[np.bool_]:
    """Its mask after some more tokens: bool [width], True = forbidden."""
    for token in consumed:
        if not matcher.consume_token(token):
            raise ValueError(matcher.get_error() or f"token {token} refused")
    bits = llguidance.numpy.allocate_token_bitmask(1, width)
    llguidance.numpy.fill_next_token_bitmask(matcher, bits, 0)
    allowed = np.unpackbits(bits.view(np.uint8), bitorder="little")[:width].astype(bool)
    return ~allowed
