"""The one door to CPython's own regular expressions: its parser, its compiler and its tables of case.

What `re` matches is never worked out again here, it is asked of `re` itself; that takes modules of it that are private.
Whatever another version of Python changes about them is mended in this file.
"""

from __future__ import annotations

import _sre  # type: ignore[import-not-found]
import re
from re import _casefix, _compiler, _parser  # type: ignore[attr-defined]
from typing import Any

__all__ = [
    "ANY",
    "LITERAL",
    "MAXREPEAT",
    "NEGATE",
    "NOT_LITERAL",
    "RANGE",
    "ascii_lower",
    "extra_cases",
    "leaf_matcher",
    "parsed",
    "scoped",
    "unicode_lower",
]

# Opcodes of parsed patterns, and what the parser writes for "without limit".
ANY: Any = _parser.ANY
LITERAL: Any = _parser.LITERAL
MAXREPEAT: Any = _parser.MAXREPEAT
NEGATE: Any = _parser.NEGATE
NOT_LITERAL: Any = _parser.NOT_LITERAL
RANGE: Any = _parser.RANGE

_TYPE_FLAGS = re.ASCII | re.LOCALE | re.UNICODE


def parsed(pattern: str, flags: int) -> Any:
    """A pattern as CPython's parser reads it: items of (opcode, argument), its flags in `state.flags`.

    Errors: those of `re`.
    """
    return _parser.parse(pattern, flags)


def scoped(flags: int, subpattern: Any) -> int:
    """The flags inside a parsed group, given those outside: `(?i:...)` adds, `(?-i:...)` removes."""
    _, add, remove, _ = subpattern
    if add & _TYPE_FLAGS:
        flags &= ~_TYPE_FLAGS
    return int((flags | add) & ~remove)


def leaf_matcher(leaf: tuple[Any, Any], flags: int) -> re.Pattern[str]:
    """The compiled pattern that is one leaf of a parsed one: LITERAL, NOT_LITERAL, ANY or IN with its argument."""
    state = _parser.State()
    state.flags = flags
    state.str = ""
    made: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [leaf]), flags)
    return made


def unicode_lower(code: int) -> int:
    """The one character that `re` compares a character as, under IGNORECASE."""
    return int(_sre.unicode_tolower(code))


def ascii_lower(code: int) -> int:
    """As `unicode_lower`, under ASCII too: only A to Z have another case there."""
    return int(_sre.ascii_tolower(code))


def extra_cases() -> dict[int, tuple[int, ...]]:
    """The characters that are one letter to `re` although their lower case is not the same."""
    found: dict[int, tuple[int, ...]] = _casefix._EXTRA_CASES
    return found
