"""Regular expressions read into a small tree (see `syntax`) by CPython's own parser.

The dialect is Python's `re`; using its parser means that no pattern can be read differently here. Only whether a
match *exists* matters to a guard, so groups and laziness leave no trace in the tree.

Backreferences are written out where that is finite (see `backreferences`). Refused, by a `PatternError` that names
construct, position and alternative: other backreferences, conditionals, atomic groups and possessive quantifiers (not
regular, or not decidable this way).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

from nco_guard.automata import cpython
from nco_guard.automata.charsets import NEWLINE, CharSet, charset_of
from nco_guard.automata.patterns import backreferences
from nco_guard.automata.patterns.syntax import (
    NOTHING,
    Alternation,
    Assertion,
    Chars,
    Lookaround,
    Node,
    Repeat,
    Sequence,
    alternation,
    repeat,
    sequence,
)
from nco_guard.errors import PatternError, parted, re_complaint

__all__ = ["parse"]

# Levels of the tree. What works on it is recursive, also in the middle of somebody else's call stack.
MAX_DEPTH = 150

_AT_KINDS = {
    "AT_BEGINNING_STRING": "text_start",
    "AT_END_STRING": "text_end",
    "AT_BOUNDARY": "boundary",
    "AT_NON_BOUNDARY": "not_boundary",
}

_REFUSED = {
    "GROUPREF_EXISTS": ("a conditional group", "write the two cases as alternatives"),
    "ATOMIC_GROUP": ("an atomic group", "use an ordinary group (?:...)"),
    "POSSESSIVE_REPEAT": ("a possessive quantifier", "use the ordinary quantifier"),
}


def parse(pattern: str, flags: int = 0) -> Node:
    """The tree of a pattern.

    Errors: `PatternError` with the construct and its position, for what `re` itself does not accept and for what
    is not regular.
    """
    with parted():
        node = _parsed(pattern, flags)
    if _deeper_than(node, MAX_DEPTH):
        raise PatternError(
            f"more than {MAX_DEPTH} levels; flatten it or split the rule", construct="too deep a nesting"
        )
    return node


def _parsed(pattern: str, flags: int) -> Node:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern, flags)  # some rules (the width of lookbehinds) are checked only here
            read = cpython.parsed(pattern, flags)
        return _read(read, pattern)
    except re.error as error:
        raise PatternError(
            f"{re_complaint(error)}; correct the pattern", construct="not a valid pattern", position=error.pos
        ) from None
    except (OverflowError, RecursionError) as error:
        raise PatternError(
            "too large or too deeply nested for `re`; split the rule",
            construct=f"not a valid pattern ({type(error).__name__})",
        ) from None


def _read(parsed: Any, pattern: str) -> Node:
    flags = parsed.state.flags
    if backreferences.has_references(parsed):
        return backreferences.expand(
            parsed,
            flags,
            pattern,
            parsed.state.groupdict,
            lambda op, argument, inner: _node(op, argument, inner, pattern),
        )
    return _sequence_of(parsed, flags, pattern)


def _deeper_than(node: Node, limit: int) -> bool:
    level = [node]
    for _ in range(limit):
        below: list[Node] = []
        for part in level:
            if isinstance(part, Sequence):
                below.extend(part.items)
            elif isinstance(part, Alternation):
                below.extend(part.options)
            elif isinstance(part, (Repeat, Lookaround)):
                below.append(part.body)
        level = below
    return bool(level)


def _sequence_of(parsed: Iterable[tuple[Any, Any]], flags: int, pattern: str) -> Node:
    return sequence(_node(op, argument, flags, pattern) for op, argument in parsed)


def _node(op: Any, argument: Any, flags: int, pattern: str) -> Node:
    name = str(op)
    if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
        return Chars(_charset((op, _hashable(argument)), flags & _LEAF_FLAGS))
    if name == "BRANCH":
        return alternation([_sequence_of(option, flags, pattern) for option in argument[1]])
    if name == "SUBPATTERN":
        return _sequence_of(argument[3], cpython.scoped(flags, argument), pattern)
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, body = argument
        return repeat(
            _sequence_of(body, flags, pattern), int(low), None if high is cpython.MAXREPEAT else int(high)
        )
    if name == "AT":
        return _at(str(argument), flags)
    if name in ("ASSERT", "ASSERT_NOT"):
        direction, body = argument
        return Lookaround(_sequence_of(body, flags, pattern), direction < 0, name == "ASSERT_NOT")
    if name == "FAILURE":
        return NOTHING
    construct, remedy = _REFUSED.get(name, (name, "leave it out"))
    raise PatternError(
        f"cannot be enforced exactly; {remedy}", construct=construct, position=_position(name, pattern)
    )


_LEAF_FLAGS = re.IGNORECASE | re.ASCII | re.DOTALL | re.UNICODE

# Where a refused construct stands. The parser keeps no offsets, so this looks for its spelling; escapes and
# character classes are stepped over.
_SPELLINGS = {
    "GROUPREF_EXISTS": re.compile(r"\(\?\((?!\?)"),
    "ATOMIC_GROUP": re.compile(r"\(\?>"),
    "POSSESSIVE_REPEAT": re.compile(r"[*+?}]\+"),
}
_SKIP = re.compile(r"\\[^1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def _position(name: str, pattern: str) -> int | None:
    spelling = _SPELLINGS.get(name)
    i = 0
    while spelling and i < len(pattern):
        if found := spelling.match(pattern, i):
            return found.start()
        skipped = _SKIP.match(pattern, i)
        i = skipped.end() if skipped else i + 1
    return None


def _hashable(argument: Any) -> Any:
    return tuple(argument) if isinstance(argument, list) else argument


@cache
def _charset(leaf: tuple[Any, Any], flags: int) -> CharSet:
    return charset_of(leaf, flags)


def _at(name: str, flags: int) -> Node:
    ascii_only = not flags & re.UNICODE
    if name == "AT_BEGINNING":
        return Assertion("line_start" if flags & re.MULTILINE else "text_start")
    if name == "AT_END":
        if flags & re.MULTILINE:
            return Assertion("line_end")
        # `$` also holds before one final newline.
        return Lookaround(sequence([repeat(Chars(NEWLINE), 0, 1), Assertion("text_end")]), False, False)
    return Assertion(_AT_KINDS[name], ascii_only and "BOUNDARY" in name)
