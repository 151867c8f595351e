"""The definition: every text that may be shown of a value. A value is clean if none of these holds a match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nco_guard.values.parts import Branch, Leaf
from nco_guard.values.printing import printed_forms
from nco_guard.values.readings import readings
from nco_guard.values.roles import Role
from nco_guard.values.trees import Group, Node, Tree, piecemeal

__all__ = ["SEPARATORS", "texts_of", "texts_of_tree"]

SEPARATORS = ("", "\n")
"""What frameworks put between texts that they show as one."""


def texts_of(value: Any, role: Role = Role.VALUE) -> Iterator[str]:
    """Every text that may be shown of a value: of each part, of parts that are read together, and of the whole.

    Texts come as they are written and with their JSON escapes read. Some come several times.

    Examples:
        >>> "jane.doe@example.com" in texts_of({"to": ["jane.doe@example.com"]})
        True
    """
    return texts_of_tree(Tree(value, role))


def texts_of_tree(tree: Tree, *, meta: bool | None = None) -> Iterator[str]:
    """`texts_of` a value that is taken apart. `meta`: only what is a provider's metadata, or only the rest."""
    for node in tree.nodes:
        if meta is None or node.meta is meta:
            yield from _texts_of_node(node)
    for group in tree.groups:
        if meta is None or group.nodes[0].meta is meta:
            yield from joined(group)
    yield from printed_forms(tree, meta)


def _texts_of_node(node: Node) -> Iterator[str]:
    shape = node.shape
    if isinstance(shape, Leaf):
        for text in shape.texts:
            for reading in readings(text):
                yield reading.text
    elif isinstance(shape, Branch):
        yield from shape.extra
        for _, text in piecemeal(node):
            yield text


def joined(group: Group) -> Iterator[str]:
    """What a reader sees of texts that are shown as one."""
    for separator in SEPARATORS:
        for reading in readings(separator.join(group.pieces)):
            yield reading.text
