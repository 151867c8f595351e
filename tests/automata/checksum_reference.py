"""What a checksum rule means, slowly and obviously: Python's `re`, plain sums, all spans."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def luhn(text: str) -> bool:
    """ISO/IEC 7812-1 annex B, over the decimal digits of any script; other characters are skipped."""
    digits = [unicodedata.decimal(c) for c in text if unicodedata.decimal(c, None) is not None]
    total = 0
    for place, digit in enumerate(reversed(digits)):
        total += digit if place % 2 == 0 else sum(map(int, str(2 * digit)))
    return len(digits) > 0 and total % 10 == 0


@cache
def letter_values(c: str) -> list[int]:
    return [10 + i for i, letter in enumerate(LETTERS) if re.fullmatch(letter, c, re.IGNORECASE)]


def mod97(text: str) -> bool:
    """ISO 13616 and ISO/IEC 7064, over decimal digits of any script and letters A to Z as IGNORECASE has them."""
    symbols = []
    for c in text:
        if unicodedata.decimal(c, None) is not None:
            symbols.append(unicodedata.decimal(c))
        symbols.extend(letter_values(c))
    moved = symbols[4:] + symbols[:4]
    return len(symbols) > 4 and int("".join(map(str, moved))) % 97 == 1


VALID = {"luhn": luhn, "mod97": mod97}


def valid_spans(pattern: str, flags: int, checksum: str, text: str) -> set[tuple[int, int]]:
    """All spans that the pattern matches where they stand, whichever way, and whose characters pass."""
    found = set()
    for end in range(len(text) + 1):
        passing = [start for start in range(end + 1) if VALID[checksum](text[start:end])]
        if passing:
            exact = re.compile(rf"(?:{pattern})(?=[\s\S]{{{len(text) - end}}}\Z)", flags)
            found |= {(start, end) for start in passing if exact.match(text, start)}
    return found
