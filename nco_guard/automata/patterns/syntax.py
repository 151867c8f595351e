"""The small tree that a regular expression is read into, and how such trees are put together.

Only whether a match *exists* matters to a guard, so groups and laziness leave no trace in the tree. `parsing` makes it
of a pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nco_guard.automata.charsets import CharSet, same_letter, union

__all__ = [
    "Alternation",
    "Assertion",
    "Chars",
    "Lookaround",
    "Node",
    "Repeat",
    "Sequence",
    "alternation",
    "is_nullable",
    "literal",
    "repeat",
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
class Lookaround:
    """A lookahead, or a lookbehind (`behind`), positive or `negative`."""

    body: Node
    behind: bool
    negative: bool


Node = Chars | Sequence | Alternation | Repeat | Assertion | Lookaround

EMPTY = Sequence(())
NOTHING = Alternation(())


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
    if isinstance(node, Lookaround):
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
        elif isinstance(current, (Repeat, Lookaround)):
            stack.append(current.body)


def literal(text: str, *, fold: bool = False) -> Node:
    """The text itself; `fold`: as `re.IGNORECASE` compares it, character by character."""
    return sequence([Chars(same_letter(c) if fold else ((ord(c), ord(c)),)) for c in text])


def whole_word(node: Node) -> Node:
    r"""`(?<!\w)node(?!\w)`: not inside a longer word."""
    return sequence([Assertion("no_word_before"), node, Assertion("no_word_after")])
