"""A value taken apart: every leaf, what stands around it, and the texts that a reader sees joined.

Built and read without recursion, so nesting has no limit, and each object once, so values may hold themselves.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from typing import Any

from nco_guard.values.blocks import JOINED, is_block, is_piecemeal, kind_of_block
from nco_guard.values.jsontext import json_parts
from nco_guard.values.parts import OWN, Branch, Leaf, Opaque, Part, ValueShape
from nco_guard.values.roles import Role
from nco_guard.values.shapes import shape_of

__all__ = [
    "Group",
    "Node",
    "Tree",
    "is_read_alone",
    "piecemeal",
    "read_with_others",
    "shown_below",
    "text_in",
]

_WAYS = 64  # to one container within a block by which its texts are read with others


class Node:
    """A part of a value and what it is made of. `new` is what takes its place, at first the value itself."""

    __slots__ = (
        "below",
        "inner",
        "is_key",
        "meta",
        "name",
        "new",
        "parsed",
        "plain",
        "role",
        "shape",
        "value",
    )

    def __init__(self, part: Part, above: Node | None) -> None:
        self.name = part.name
        self.value = self.new = part.value
        self.role = part.role
        self.is_key = part.is_key
        self.meta: bool = part.role is Role.METADATA or (above is not None and above.meta)
        self.parsed: bool = part.role is Role.JSON or (above is not None and above.parsed)
        self.shape: ValueShape = None
        self.below: list[Node] = []
        self.inner: list[tuple[int, int]] = []  # where the parsed values in `below` stand in a text
        self.plain = True

    @property
    def is_text(self) -> bool:
        """Whether this is text that can be replaced in part."""
        return isinstance(self.shape, Leaf) and self.shape.is_text


class Group:
    """Leaves that a reader sees as one text."""

    __slots__ = ("nodes", "role")

    def __init__(self, nodes: list[Node], role: Role) -> None:
        self.nodes = nodes
        self.role = role

    @property
    def pieces(self) -> list[str]:
        """The texts as they are now."""
        return [text_in(node) for node in self.nodes]


class Tree:
    """All of a value. `nodes` are in an order in which parts come before what they are parts of."""

    def __init__(self, value: Any, role: Role = Role.VALUE) -> None:
        self.nodes: list[Node] = []
        self.knots: set[int] = set()  # places at which a container holds itself, as (id of the node above)
        self._known: dict[tuple[int, Role, bool, bool], Node] = {}
        self.root = self._build(Part(None, value, role))
        self.groups = [*_groups(self.root, self.nodes)]

    def _build(self, part: Part) -> Node:
        root = self._made(part, None)
        open_nodes: set[int] = set()
        stack: list[tuple[Node, Iterator[Part]]] = [(root, self._parts(root))]
        open_nodes.add(id(root))
        while stack:
            node, parts = stack[-1]
            following = next(parts, None)
            if following is None:
                stack.pop()
                open_nodes.discard(id(node))
                node.plain = _is_plain(node)
                self.nodes.append(node)
                continue
            key = (id(following.value), following.role, node.meta, node.parsed)
            child = self._known.get(key)
            if child is None:
                child = self._made(following, node)
                node.below.append(child)
                if isinstance(child.shape, Branch) or child.parsed:
                    self._known[key] = child
                    open_nodes.add(id(child))
                    stack.append((child, self._parts(child)))
                else:
                    self.nodes.append(child)
                continue
            if id(child) in open_nodes:
                self.knots.add(id(node))
            node.below.append(child)
        return root

    def _made(self, part: Part, above: Node | None) -> Node:
        node = Node(part, above)
        node.shape = None if part.role is Role.DROP else shape_of(part.value, part.role)
        return node

    def _parts(self, node: Node) -> Iterator[Part]:
        shape = node.shape
        if isinstance(shape, Branch):
            return iter(shape.parts)
        if node.parsed and isinstance(shape, Leaf) and shape.is_text:
            # Within arguments a text may be JSON again, and is if there is an object or an array in it.
            found = json_parts(shape.texts[0], whole=node.role is Role.JSON)
            node.inner = [(start, end) for start, end, _ in found]
            return iter([Part(index, value) for index, (_, _, value) in enumerate(found)])
        return iter(())

    @property
    def has_meta(self) -> bool:
        """Whether any of it is what a provider says about an answer."""
        return any(node.meta for node in self.nodes)

    @property
    def dropped(self) -> list[Node]:
        """What is left out, where there is anything."""
        return [
            node
            for node in self.nodes
            if node.role is Role.DROP and not isinstance(node.value, bool) and node.value
        ]

    @property
    def opaque(self) -> list[Node]:
        """What cannot be looked into."""
        return [node for node in self.nodes if isinstance(node.shape, Opaque)]


def text_in(node: Node) -> str:
    """The text of a leaf as it is now."""
    if node.new is not node.value and isinstance(node.new, str):
        return node.new
    shape = node.shape
    return shape.texts[0] if isinstance(shape, Leaf) else ""


def shown_below(node: Node) -> list[Node]:
    """The parts that are printed where a node is: of a value with attributes beside its content, that alone."""
    shape = node.shape
    if not isinstance(shape, Branch):
        return node.below
    if shape.follows:
        return node.below[:-1]
    return node.below[:1] if shape.style == OWN else node.below


def _is_plain(node: Node) -> bool:
    shape = node.shape
    if isinstance(shape, Branch):
        return shape.plain and all(child.plain for child in shown_below(node))
    return not isinstance(shape, Opaque)


# -- what is read together -------------------------------------------------------------------------------------


def _groups(root: Node, nodes: list[Node]) -> Iterator[Group]:
    inside: set[int] = set()  # what is in a list of blocks already
    for node in reversed(nodes):
        if id(node) in inside or not _is_block_list(node):
            continue
        found: dict[tuple[Any, ...], list[Node]] = {}
        for child in node.below:
            for line, leaf in _lines(child, inside):
                found.setdefault(line, []).append(leaf)
        yield from (Group(leaves, node.role) for leaves in found.values() if len(leaves) > 1)


def _lines(block: Node, inside: set[int]) -> Iterator[tuple[tuple[Any, ...], Node]]:
    """The texts in a block that are read with those of others, and with which: texts of one line are read as one."""
    kind = kind_of_block(block.value)
    for path, leaf in _leaves(block, inside):
        call = _call_of(block, path) if leaf.role is Role.JSON else None
        yield (kind, path or ("text",), call), leaf


def read_with_others(element: Any, role: Role) -> list[tuple[tuple[Any, ...], str]]:
    """The texts in an element of a list that are read as one with those of others, if the list is one of blocks.

    With each its line: texts of one line are read as one. `role`: the list's.
    """
    block = Tree([element], role).root.below[0]
    own = f"block {id(block)}"  # arguments of a call that is whole
    return [(line, text_in(leaf)) for line, leaf in _lines(block, set()) if line[-1] != own]


def is_read_alone(element: Any, role: Role) -> bool:
    """Whether a list with this element is none of blocks, whatever else is in it: its texts are not read as one."""
    return role is not Role.BLOCKS and not _is_among_blocks(element)


def _is_among_blocks(element: Any) -> bool:
    return isinstance(element, str) or is_block(element) or _says_text(element)


def _call_of(block: Node, path: tuple[str, ...]) -> str:
    """The call that arguments belong to: those of one may come in pieces, those of several are not read together."""
    index = block.value.get("index") if is_block(block.value) else None
    # Pieces that nobody numbered: LangChain makes a call that breaks off of each.
    loose = is_block(block.value) and block.value["type"] in ("tool_call_chunk", "invalid_tool_call")
    if index is not None or loose or path[-1:] == ("partial_json",):
        return f"index {index!r}"
    return f"block {id(block)}"


def _is_block_list(node: Node) -> bool:
    shape = node.shape
    if not isinstance(shape, Branch) or shape.style not in ("list", "tuple") or not node.below:
        return False
    if node.role is Role.BLOCKS:
        return True
    return all(_is_among_blocks(child.value) for child in node.below) and any(
        not isinstance(child.value, str) for child in node.below
    )


def _says_text(value: Any) -> bool:
    """Whether a value is a block that does not say of what type it is, as annotations are."""
    return isinstance(value, Mapping) and isinstance(value.get("text"), str)


def _leaves(block: Node, inside: set[int]) -> Iterator[tuple[tuple[str, ...], Node]]:
    """The texts in a block that are read together with those of others, each with the names on the way to it.

    The containers that were looked through for them are added to `inside`. One that holds itself is not entered again
    within itself, and one that is reached in many ways not by all of them: there are more of these than objects.
    """
    stack: list[tuple[tuple[str, ...] | None, Node]] = [((), block)]
    around: set[int] = set()
    ways: collections.Counter[int] = collections.Counter()
    while stack:
        path, node = stack.pop()
        if path is None:
            around.discard(id(node))
            continue
        if node.is_text:
            if not node.is_key and (not path or path[-1] in JOINED):
                yield path, node
            continue
        if node.role in (Role.JSON, Role.DROP, Role.KEEP, Role.MEDIA) or not isinstance(node.shape, Branch):
            continue
        if id(node) in around or ways[id(node)] >= _WAYS:
            continue
        inside.add(id(node))
        around.add(id(node))
        ways[id(node)] += 1
        stack.append((None, node))
        for child in reversed(node.below):
            named = isinstance(child.name, str) and node.shape.style in ("dict", "fields")
            if not child.is_key and len(path) < 8:
                stack.append(((*path, child.name) if named else path, child))


def piecemeal(node: Node) -> Iterator[tuple[Node, str]]:
    """Entries of a dictionary that repeat a text token by token, and what they say together."""
    if isinstance(node.shape, Branch) and node.shape.style == "dict":
        for child in node.below:
            if not child.is_key and is_piecemeal(child.name, child.value) and child.role is not Role.DROP:
                yield child, "".join(_strings(child))


def _strings(node: Node) -> Iterator[str]:
    stack, seen = [node], {id(node)}
    while stack:
        now = stack.pop()
        if now.is_text and not now.is_key:
            yield text_in(now)
        for child in reversed(now.below):
            if id(child) not in seen:
                seen.add(id(child))
                stack.append(child)
