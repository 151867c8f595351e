r"""Backreferences to groups that match finitely many strings, by writing the cases out.

`([-: ])x\1` is `-x-|:x:| x `. A reference is resolved where, on every way to it, its group has matched one known
string since, or has not taken part (then the reference fails, as in `re`). That is followed from left to right:
an *environment* holds what the groups that are still referred to have matched; a *way* is a node and the environment
behind it. Ways with equal environments are joined, so nothing is written out beyond the last reference.

Refused with the reason: groups that match more than `LIMIT` strings (all groups in use at one place together), groups
inside a repeat that are referred to from outside it or from a later iteration, and groups inside a lookaround that are
referred to from outside it. There, which of several values counts depends on the order in which `re` tries things.

Cost: what stands between a group and the last reference to it is copied once for each string, at most `LIMIT` times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Generic, TypeVar

from nco_guard.automata.charsets import CharSet, same_lower
from nco_guard.automata.cpython import MAXREPEAT, scoped
from nco_guard.automata.patterns.syntax import (
    EMPTY,
    Chars,
    Lookaround,
    Node,
    Sequence,
    alternation,
    repeat,
    sequence,
)
from nco_guard.errors import PatternError

__all__ = ["LIMIT", "expand", "has_references"]

# Strings that the groups in use at one place may match together.
LIMIT = 256
# Pieces written out in all, over nested groups too.
TOTAL_LIMIT = 20_000

Item = tuple[Any, Any]
Leaf = Callable[[Any, Any, int], Node]


class _Unclear(Enum):
    """Why a group has no single known value."""

    REPEATED = (
        "its group stands inside a repeat, and which iteration's text counts is left to the order of search"
    )
    LOOKED_AT = "its group stands inside a lookaround and the reference outside it"


Value = str | _Unclear
Environment = frozenset[tuple[int, Value]]
_Key = TypeVar("_Key")


class _Ways(Generic[_Key]):
    """Nodes by what they lead to."""

    def __init__(self) -> None:
        self.nodes: dict[_Key, list[Node]] = {}

    def add(self, key: _Key, node: Node) -> None:
        self.nodes.setdefault(key, []).append(node)

    def joined(self) -> list[tuple[_Key, Node]]:
        return [(key, _either(nodes)) for key, nodes in self.nodes.items()]


def _either(nodes: list[Node]) -> Node:
    """Any of the nodes, with what all of them begin with said once: else it would multiply from group to group."""
    if len(nodes) == 1:
        return nodes[0]
    listed = [node.items if isinstance(node, Sequence) else (node,) for node in nodes]
    shared = 0
    while all(len(items) > shared and items[shared] is listed[0][shared] for items in listed):
        shared += 1
    rests = alternation([sequence(items[shared:]) for items in listed])
    return sequence((*listed[0][:shared], rests))


def has_references(items: Iterable[Item]) -> bool:
    """Whether a parsed pattern holds a backreference that could be resolved."""
    return any(_references(item) for item in items)


def expand(items: Iterable[Item], flags: int, pattern: str, names: dict[str, int], leaf: Leaf) -> Node:
    """The tree of a parsed pattern with its backreferences written out.

    `names`: the numbers of named groups. `leaf(op, argument, flags)` converts what has nothing to do with them.

    Errors: `PatternError` for a reference that cannot be resolved, with its position, the reason and a remedy.
    """
    ways = _Expansion(pattern, names, leaf).sequence(list(items), flags, frozenset(), frozenset())
    return alternation([node for _, node in ways])


def _children(item: Item) -> list[list[Item]]:
    op, argument = str(item[0]), item[1]
    if op == "BRANCH":
        return [list(option) for option in argument[1]]
    if op == "SUBPATTERN":
        return [list(argument[3])]
    if op in ("MAX_REPEAT", "MIN_REPEAT"):
        return [list(argument[2])]
    if op in ("ASSERT", "ASSERT_NOT"):
        return [list(argument[1])]
    return []  # conditionals, atomic groups and possessive repeats are refused as a whole


def _references(item: Item) -> frozenset[int]:
    own = frozenset([item[1]]) if str(item[0]) == "GROUPREF" else frozenset[int]()
    return own.union(*(_references(below) for child in _children(item) for below in child))


def _groups(item: Item) -> frozenset[int]:
    own = frozenset([item[1][0]]) if str(item[0]) == "SUBPATTERN" and item[1][0] else frozenset[int]()
    return own.union(*(_groups(below) for child in _children(item) for below in child))


def _with(environment: Environment, groups: Iterable[int], value: Value) -> Environment:
    changed = frozenset(groups)
    kept = frozenset((group, old) for group, old in environment if group not in changed)
    return kept | {(group, value) for group in changed}


def _only(environment: Environment, groups: frozenset[int]) -> Environment:
    return frozenset((group, value) for group, value in environment if group in groups)


class _Expansion:
    """One pattern. `live` is throughout the set of groups that something further on refers to."""

    def __init__(self, pattern: str, names: dict[str, int], leaf: Leaf) -> None:
        self._pattern = pattern
        self._names = {number: name for name, number in names.items()}
        self._leaf = leaf
        self._written = 0

    # -- nodes and what they lead to -----------------------------------------------------------------------------

    def sequence(
        self, items: list[Item], flags: int, environment: Environment, live: frozenset[int]
    ) -> list[tuple[Environment, Node]]:
        ways: list[tuple[Environment, Node]] = [(environment, EMPTY)]
        for index, item in enumerate(items):
            later = live.union(*map(_references, items[index + 1 :]))
            found: _Ways[Environment] = _Ways()
            for before, node in ways:
                for after, more in self._item(item, flags, before, later):
                    found.add(_only(after, later), sequence((node, more)))
            ways = found.joined()
            self._bound(len(ways), later)
        return ways

    def _item(
        self, item: Item, flags: int, environment: Environment, live: frozenset[int]
    ) -> list[tuple[Environment, Node]]:
        op, argument = str(item[0]), item[1]
        inside = _references(item)
        captured = _groups(item) & (live | inside)
        if not inside and not captured:
            return [(environment, self._leaf(*item, flags))]
        if op == "GROUPREF":
            parts = self._referred(argument, flags, environment)
            return [] if parts is None else [(environment, sequence(map(Chars, parts)))]
        if op == "BRANCH":
            return [
                way for option in _children(item) for way in self.sequence(option, flags, environment, live)
            ]
        if op == "SUBPATTERN":
            flags = scoped(flags, argument)
            (body,) = _children(item)
            if argument[0] not in live:
                return self.sequence(body, flags, environment, live)
            return [
                (_with(after, (argument[0],), text), node)
                for (text, after), node in self._strings(argument[0], body, flags, environment, live)
            ]
        (body,) = _children(item)
        if op in ("ASSERT", "ASSERT_NOT"):
            ways = self.sequence(body, flags, environment, live - captured)
            node: Node = Lookaround(
                alternation([way for _, way in ways]), argument[0] < 0, op == "ASSERT_NOT"
            )
            return [(_with(environment, captured & live, _Unclear.LOOKED_AT), node)]
        low, high = int(argument[0]), None if argument[1] is MAXREPEAT else int(argument[1])
        if high == 0:
            return [(environment, EMPTY)]
        if high == 1:
            ways = self.sequence(body, flags, environment, live)
            return ways if low else [(environment, EMPTY), *ways]
        ways = self.sequence(body, flags, _with(environment, captured, _Unclear.REPEATED), live - captured)
        after = _with(environment, captured & live, _Unclear.REPEATED)
        return [(after, repeat(alternation([way for _, way in ways]), low, high))]

    def _referred(self, group: int, flags: int, environment: Environment) -> list[CharSet] | None:
        """What a reference matches, character by character; None: its group has not taken part."""
        value = dict(environment).get(group)
        if isinstance(value, _Unclear):
            raise self._refused(group, value.value)
        if value is None:
            return None
        if not flags & re.IGNORECASE:
            return [((ord(c), ord(c)),) for c in value]
        return [same_lower(ord(c), ascii_only=not flags & re.UNICODE) for c in value]

    # -- all strings of a group ----------------------------------------------------------------------------------

    def _strings(
        self, group: int, items: list[Item], flags: int, environment: Environment, live: frozenset[int]
    ) -> list[tuple[tuple[str, Environment], Node]]:
        """The strings that a group can match, each with the environment behind it and a node that matches it."""
        ways: list[tuple[tuple[str, Environment], Node]] = [(("", environment), EMPTY)]
        for index, item in enumerate(items):
            later = live.union(*map(_references, items[index + 1 :]))
            found: _Ways[tuple[str, Environment]] = _Ways()
            for (text, before), node in ways:
                for (more, after), step in self._item_strings(group, item, flags, before, later):
                    found.add((text + more, _only(after, later)), sequence((node, step)))
                self._bound(len(found.nodes), {group})
            ways = found.joined()
        return ways

    def _item_strings(
        self, group: int, item: Item, flags: int, environment: Environment, live: frozenset[int]
    ) -> list[tuple[tuple[str, Environment], Node]]:
        op, argument = str(item[0]), item[1]
        if op in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "GROUPREF"):
            if op == "GROUPREF":
                parts = self._referred(argument, flags, environment)
            else:
                leaf = self._leaf(*item, flags)
                parts = [leaf.ranges] if isinstance(leaf, Chars) else None
            return [] if parts is None else self._spelled(group, parts, environment)
        if op == "BRANCH":
            return [
                way
                for option in _children(item)
                for way in self._strings(group, option, flags, environment, live)
            ]
        if op == "SUBPATTERN":
            (body,) = _children(item)
            ways = self._strings(group, body, scoped(flags, argument), environment, live)
            if argument[0] not in live:
                return ways
            return [((text, _with(after, (argument[0],), text)), node) for (text, after), node in ways]
        if op in ("MAX_REPEAT", "MIN_REPEAT"):
            return self._repeated(group, item, flags, environment, live)
        return [(("", after), node) for after, node in self._item(item, flags, environment, live)]

    def _spelled(
        self, group: int, parts: list[CharSet], environment: Environment
    ) -> list[tuple[tuple[str, Environment], Node]]:
        texts = [""]
        for ranges in parts:
            self._bound(len(texts) * sum(high - low + 1 for low, high in ranges), {group})
            texts = [text + chr(c) for text in texts for low, high in ranges for c in range(low, high + 1)]
        return [((text, environment), sequence(Chars(((ord(c), ord(c)),)) for c in text)) for text in texts]

    def _repeated(
        self, group: int, item: Item, flags: int, environment: Environment, live: frozenset[int]
    ) -> list[tuple[tuple[str, Environment], Node]]:
        low, high = item[1][0], item[1][1]
        if high is MAXREPEAT:
            raise self._refused(group, "its group repeats something without limit")
        (body,) = _children(item)
        captured = _groups(item) & (live | _references(item)) if high > 1 else frozenset[int]()
        found: _Ways[tuple[str, Environment]] = _Ways()
        ways: list[tuple[tuple[str, Environment], Node]] = [(("", environment), EMPTY)]
        for count in range(int(high) + 1):
            if count >= low:
                for key, node in ways:
                    found.add(key, node)
                self._bound(len(found.nodes), {group})
            longer: _Ways[tuple[str, Environment]] = _Ways()
            for (text, before), node in ways if count < high else []:
                unclear = _with(before, captured, _Unclear.REPEATED)
                for (more, after), step in self._strings(group, body, flags, unclear, live):
                    changed = _with(after, captured & live, _Unclear.REPEATED)
                    longer.add((text + more, changed), sequence((node, step)))
                self._bound(len(longer.nodes), {group})
            ways = longer.joined()
        return found.joined()

    # -- refusals ------------------------------------------------------------------------------------------------

    def _bound(self, count: int, groups: Iterable[int]) -> None:
        if count > 1:
            self._written += count
        if count > LIMIT or self._written > TOTAL_LIMIT:
            raise self._refused(
                min(groups),
                f"its group, or several groups together, match more than {LIMIT} different strings",
            )

    def _refused(self, group: int, reason: str) -> PatternError:
        return PatternError(
            f"cannot be enforced exactly: {reason}; write the alternatives out, e.g. (?:a-a|b-b) for ([ab])-\\1, or "
            "let the group match fewer strings, e.g. [0-9] for \\d",
            construct="a backreference",
            position=self._position(group),
        )

    def _position(self, group: int) -> int | None:
        """Where the first reference to a group stands. The parser keeps no offsets, so this looks for its spelling."""
        spelling = rf"\\{group}(?![0-9])"
        if group in self._names:
            spelling += rf"|\(\?P={self._names[group]}\)"
        found = re.finditer(
            rf"(?P<reference>{spelling})|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", self._pattern, re.DOTALL
        )
        return next((match.start() for match in found if match["reference"]), None)
