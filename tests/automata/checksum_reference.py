"""What a checksum rule means, slowly and obviously: Python's `re`, plain sums, all spans."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import Any

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


@cache
def symmetries() -> list[tuple[int, ...]]:
    """The ten ways to put a pentagon onto itself: five turns, then each of them after the pentagon was flipped."""
    corners = range(5)
    turns = [tuple((corner + by) % 5 for corner in corners) for by in corners]
    return turns + [tuple((by - corner) % 5 for corner in corners) for by in corners]


def verhoeff(text: str) -> bool:
    """Verhoeff, Error Detecting Decimal Codes (1969): digits from the right, moved and joined in the dihedral group."""
    ways = symmetries()
    total = ways[0]
    numbers = [unicodedata.decimal(c) for c in text if unicodedata.decimal(c, None) is not None]
    for place, digit in enumerate(reversed(numbers)):
        for _ in range(place % 8):
            digit = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)[digit]
        total = tuple(total[corner] for corner in ways[digit])
    return len(numbers) > 0 and total == ways[0]


def mod11_10(text: str) -> bool:
    """ISO/IEC 7064 MOD 11,10: digits are added modulo 10 (10 for 0), the sum doubled modulo 11; the last leaves 1."""
    numbers = [unicodedata.decimal(c) for c in text if unicodedata.decimal(c, None) is not None]
    if not numbers:
        return False
    carried = 10
    for digit in numbers[:-1]:
        carried = ((carried + digit) % 10 or 10) * 2 % 11
    return (carried + numbers[-1]) % 10 == 1


def spread(runs: Mapping[str, int | str]) -> dict[str, int | str]:
    """What each character is worth, of runs that count up."""
    found: dict[str, int | str] = {}
    for run, worth in runs.items():
        for index, c in enumerate(run):
            found[c] = str(int(worth) + index).zfill(len(worth)) if isinstance(worth, str) else worth + index
    return found


@cache
def named(c: str, names: tuple[str, ...]) -> str:
    """Which of these letters a character is, as IGNORECASE has it."""
    return next((name for name in names if re.fullmatch(re.escape(name), c, re.IGNORECASE)), "")


def declared(fields: Mapping[str, Any], text: str) -> bool:
    """A mapping of `CheckDigits`, as it stands in a policy file: plain sums over the characters that count."""
    letters, check = spread(fields.get("letters", {})), fields.get("check", "")
    weights, modulus = fields.get("weights"), fields["modulus"]
    names = tuple(dict.fromkeys([*letters, *(one.upper() for one in check if not one.isdigit())]))
    symbols = []
    for c in text:
        is_digit = unicodedata.decimal(c, None) is not None
        symbols.append(str(unicodedata.decimal(c)) if is_digit else named(c, names))
    symbols = [symbol for symbol in symbols if symbol]

    def has_value(symbol: str) -> bool:
        return symbol.isdigit() or symbol in letters

    def passes(total: int, given: str) -> bool:
        if check:
            return check[total % modulus].casefold() == given.casefold()
        return total % modulus in fields.get("accept", [0])

    def places(symbol: str) -> list[str]:
        worth = letters.get(symbol)
        return list(worth) if isinstance(worth, str) else [symbol]

    def term(weight: int | str, symbol: str) -> int:
        if isinstance(weight, str):
            table = {c.casefold(): int(worth) for c, worth in spread(fields["tables"][weight]).items()}
            return table[symbol.casefold()]
        product = weight * int(symbol if symbol.isdigit() else letters[symbol])
        if "digit_sums" not in fields:
            return product
        total = 0
        while product:
            total, product = total + product % fields["digit_sums"], product // fields["digit_sums"]
        return total

    if weights is None:
        last = symbols.pop() if check and symbols else ""
        numbers = [one for symbol in symbols if has_value(symbol) for one in places(symbol)]
        total = 0
        for one in numbers:
            total = total * 10 + term(1, one)
        return len(numbers) > 0 and passes(total, last)
    if fields.get("repeat") == "right":
        numbers = [one for symbol in symbols for one in places(symbol)]
        total = sum(term(weights[-1 - at % len(weights)], one) for at, one in enumerate(reversed(numbers)))
        return len(numbers) > 0 and passes(total, "")
    total, given, ahead = 0, "", list(weights)
    for symbol in symbols:
        if ahead[:1] == ["check"]:
            ahead.pop(0)
            given = symbol
            if given.casefold() not in check.casefold():
                return False
        elif has_value(symbol):
            for one in places(symbol):
                if not ahead or ahead[0] == "check":
                    return False
                total += term(ahead.pop(0), one)
    return not ahead and passes(total, given)


VALID = {"luhn": luhn, "mod97": mod97, "mod11_10": mod11_10, "verhoeff": verhoeff}
#: Declared ones, of all kinds, that short texts pass often: what a policy says after `checksum:`.
DECLARED: dict[str, Any] = {
    "weights": {"modulus": 3, "weights": [3, -2, 1], "accept": [0, 2]},
    "letters": {"modulus": 5, "weights": [2, 1, 4, 1], "letters": {"AB": 3, "K": "10"}},
    "check first": {"modulus": 4, "weights": ["check", 3, 1], "check": "0AB0"},
    "check": {"modulus": 3, "weights": [5, "check", 2], "check": "0K1", "letters": {"BA": 1}, "digit_sums": 10},
    "table": {"modulus": 4, "weights": ["t", 1, "t"], "tables": {"t": {"0123456789": 3, "A": 1}}, "letters": {"a": 2}},
    "number": {"modulus": 7, "letters": {"AB": "09"}, "accept": [1, 3]},
    "last letter": {"modulus": 4, "check": "AK0B", "letters": {"B": -1}},
    "from the right": {"modulus": 5, "weights": [2, 1, 4], "repeat": "right", "letters": {"A": 2, "K": "15"}},
    "both": ["luhn", {"modulus": 2, "weights": [1, 0]}],
}  # fmt: skip
CHECKS: dict[str, Any] = {**{name: name for name in VALID}, **DECLARED}


def passes_check(check: Any, text: str) -> bool:
    """Whether a text passes: a name, a mapping, or a list of which all have to pass."""
    if isinstance(check, list):
        return all(passes_check(part, text) for part in check)
    return VALID[check](text) if isinstance(check, str) else declared(check, text)


def valid_spans(pattern: str, flags: int, checksum: Any, text: str) -> set[tuple[int, int]]:
    """All spans that the pattern matches where they stand, whichever way, and whose characters pass."""
    found = set()
    for end in range(len(text) + 1):
        passing = [start for start in range(end + 1) if passes_check(checksum, text[start:end])]
        if passing:
            exact = re.compile(rf"(?:{pattern})(?=[\s\S]{{{len(text) - end}}}\Z)", flags)
            found |= {(start, end) for start in passing if exact.match(text, start)}
    return found
