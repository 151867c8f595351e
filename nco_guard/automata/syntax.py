"""Regular expressions as a small tree, read by CPython's own parser.

The dialect is Python's `re`; using its parser means that no pattern can be read differently here. Only whether a
match *exists* matters to a guard, so groups and laziness leave no trace in the tree.

Backreferences are written out where that is finite (see `backreferences`). Refused, by a `PatternError` that names
construct, position and alternative: other backreferences, conditionals, atomic groups and possessive quantifiers (not
regular, or not decidable this way).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from nco_guard.automata.charsets import NEWLINE, CharSet, charset_of, union
from nco_guard.errors import PatternError, parted, re_complaint

__all__ = [
    "Alternation",
    "Assertion",
    "Chars",
    "Look",
    "Node",
    "Repeat",
    "Sequence",
    "alternation",
    "is_nullable",
    "literal",
    "parse",
    "repeat",
    "scoped",
    "sequence",
    "subnodes",
    "whole_word",
]


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: CharSet


@dataclass(frozen=True, slots=True)
class Sequence:
    """One thing after another; empty: the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """Any one of several; empty: nothing at all matches."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times the body; `high` None: without limit."""

    body: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Assertion:
    r"""A test of the neighbouring characters only.

    `kind`: "text_start" (`\A`), "text_end" (`\Z`), "line_start", "line_end" (`^ $` under MULTILINE), "boundary",
    "not_boundary" (`\b \B`), "no_word_before" (`(?<!\w)`), "no_word_after" (`(?!\w)`). `ascii_only`: whether `\w` is
    ASCII's.
    """

    kind: str
    ascii_only: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """A lookahead, or a lookbehind (`behind`), positive or `negative`."""

    body: Node
    behind: bool
    negative: bool


Node = Chars | Sequence | Alternation | Repeat | Assertion | Look

# Levels of the tree. What works on it is recursive, also in the middle of somebody else's call stack.
MAX_DEPTH = 150

EMPTY = Sequence(())
NOTHING = Alternation(())

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
            parsed = _parser.parse(pattern, flags)
        return _read(parsed, pattern)
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
    # Backreferences are made of this module's nodes, so they are imported late.
    from nco_guard.automata import backreferences

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
            elif isinstance(part, (Repeat, Look)):
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
        return _sequence_of(argument[3], scoped(flags, argument), pattern)
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, body = argument
        return repeat(
            _sequence_of(body, flags, pattern), int(low), None if high is _parser.MAXREPEAT else int(high)
        )
    if name == "AT":
        return _at(str(argument), flags)
    if name in ("ASSERT", "ASSERT_NOT"):
        direction, body = argument
        return Look(_sequence_of(body, flags, pattern), direction < 0, name == "ASSERT_NOT")
    if name == "FAILURE":
        return NOTHING
    construct, remedy = _REFUSED.get(name, (name, "leave it out"))
    raise PatternError(
        f"cannot be enforced exactly; {remedy}", construct=construct, position=_position(name, pattern)
    )


def scoped(flags: int, subpattern: Any) -> int:
    """The flags inside a parsed group, given those outside: `(?i:...)` adds, `(?-i:...)` removes."""
    _, add, remove, _ = subpattern
    if add & _TYPE_FLAGS:
        flags &= ~_TYPE_FLAGS
    return int((flags | add) & ~remove)


_LEAF_FLAGS = re.IGNORECASE | re.ASCII | re.DOTALL | re.UNICODE
_TYPE_FLAGS = re.ASCII | re.LOCALE | re.UNICODE

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
        return Look(sequence([repeat(Chars(NEWLINE), 0, 1), Assertion("text_end")]), False, False)
    return Assertion(_AT_KINDS[name], ascii_only and "BOUNDARY" in name)


def repeat(body: Node, low: int, high: int | None) -> Node:
    """`low` to `high` times the body, simplified."""
    if high == 0 or body == EMPTY:
        return EMPTY
    if low == high == 1:
        return body
    if is_nullable(body):
        low = 0  # the empty iterations that may be missing are always there
    return Repeat(body, low, high)


def sequence(items: Iterable[Node]) -> Node:
    """One after another, flattened."""
    flat: list[Node] = []
    for item in items:
        if item == NOTHING:
            return NOTHING
        flat.extend(item.items if isinstance(item, Sequence) else [item])
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def alternation(options: Iterable[Node]) -> Node:
    """Any of the options, with single characters joined and common first characters factored out.

    A list of a thousand words becomes a trie: an automaton that sits at the start of all of them then has as many
    ways on as there are first letters, not as many as there are words.
    """
    flat: dict[Node, None] = {}
    for option in options:
        for part in option.options if isinstance(option, Alternation) else (option,):
            flat[part] = None
    groups: dict[Node, list[tuple[Node, ...]]] = {}
    for option in flat:
        items = option.items if isinstance(option, Sequence) else (option,)
        head = items[0] if items else EMPTY
        groups.setdefault(head, []).append(items[1:])
    singles: list[CharSet] = []
    rest: list[Node] = []
    for head, tails in groups.items():
        if head == EMPTY:
            rest.append(EMPTY)
        elif isinstance(head, Chars) and tails == [()]:
            singles.append(head.ranges)
        elif len(tails) == 1:
            rest.append(sequence((head, *tails[0])))
        elif isinstance(head, Chars):
            rest.append(sequence((head, alternation([sequence(tail) for tail in tails]))))
        else:
            rest.extend(sequence((head, *tail)) for tail in tails)
    if singles:
        rest.insert(0, Chars(union(*singles)))
    return rest[0] if len(rest) == 1 else Alternation(tuple(rest))


def is_nullable(node: Node) -> bool:
    """Whether the node matches the empty text whatever stands around it."""
    if isinstance(node, Sequence):
        return all(map(is_nullable, node.items))
    if isinstance(node, Alternation):
        return any(map(is_nullable, node.options))
    if isinstance(node, Repeat):
        return node.low == 0 or is_nullable(node.body)
    if isinstance(node, Look):
        return not node.negative and is_nullable(node.body)
    return False


def subnodes(node: Node) -> Iterator[Node]:
    """The node and all nodes below it."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        if isinstance(current, Sequence):
            stack.extend(current.items)
        elif isinstance(current, Alternation):
            stack.extend(current.options)
        elif isinstance(current, (Repeat, Look)):
            stack.append(current.body)


def literal(text: str, *, fold: bool = False) -> Node:
    """The text itself; `fold`: as `re.IGNORECASE` compares it, character by character."""
    flags = re.IGNORECASE | re.UNICODE if fold else re.UNICODE
    return sequence([Chars(_charset((_parser.LITERAL, ord(c)), int(flags))) for c in text])


def whole_word(node: Node) -> Node:
    r"""`(?<!\w)node(?!\w)`: not inside a longer word."""
    return sequence([Assertion("no_word_before"), node, Assertion("no_word_after")])
