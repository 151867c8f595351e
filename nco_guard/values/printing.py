"""How plain values look when they are shown as a whole: as JSON, and as Python prints them.

`segments` gives the text in pieces, each with the leaf that it shows, so that a match that goes across several of
them can be traced back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import Any, Literal

from nco_guard.values.parts import OWN, Bare, Branch, Leaf
from nco_guard.values.roles import Role
from nco_guard.values.trees import Node, Tree, shown_below

__all__ = ["FORMS", "printed_forms", "segments", "wholes"]

Form = Literal["json", "python"]
FORMS: tuple[Form, ...] = ("json", "python")
Segment = tuple[str, Node | None]
# A value whose parts occur in it over and over is printed with all of them only up to here.
_MOST = 200_000
_BRACKETS = {"dict": "{}", "list": "[]", "tuple": "()", "set": "{}", "fields": "()"}


def wholes(nodes: list[Node]) -> Iterator[Node]:
    """The largest plain containers in a tree, which a reader may be shown as a whole."""
    inside: set[int] = set()
    for node in reversed(nodes):
        if id(node) in inside:
            # What is parsed out of a text is not printed where the text is.
            if isinstance(node.shape, Branch):
                inside.update(id(child) for child in shown_below(node))
        elif node.plain and isinstance(node.shape, Branch):
            inside.update(id(child) for child in shown_below(node))
            if _has_several(node):
                yield node


def _has_several(node: Node) -> bool:
    shown = shown_below(node)
    return len(shown) > 1 or any(isinstance(child.shape, Branch) for child in shown)


def printed_forms(tree: Tree, meta: bool | None = None) -> Iterator[str]:
    """How the plain containers of a value look as a whole."""
    for node in wholes(tree.nodes):
        if meta is None or node.meta is meta:
            for form in FORMS:
                yield "".join(text for text, _ in segments(node, form))


def segments(node: Node, form: Form) -> list[Segment]:
    """The printed form of a plain container."""
    found: list[Segment] = []
    stack: list[tuple[str | None, Node | None]] = [(None, node)]
    around: set[int] = set()
    printed: set[int] = set()
    while stack:
        text, part = stack.pop()
        if text is not None:
            if part is not None and text == "":
                around.discard(id(part))
                continue
            found.append((text, part))
            continue
        assert part is not None
        if id(part) in around or (len(found) > _MOST and id(part) in printed):
            found.append(("...", None))
        elif isinstance(part.shape, Branch):
            around.add(id(part))
            printed.add(id(part))
            pieces = _branch(part, part.shape, form)
            stack.append(("", part))
            stack.extend(reversed(pieces))
        else:
            found += _leaf(part, form)
    return found


def _branch(node: Node, shape: Branch, form: Form) -> list[tuple[str | None, Node | None]]:
    style = shape.style
    if style == OWN:
        return [(None, child) for child in shown_below(node)]
    as_json = form == "json"
    brackets = ("{}" if style in ("dict", "fields") else "[]") if as_json else _BRACKETS[style]
    named = "" if as_json or style != "fields" else type(_value_of(node)).__name__
    pieces: list[tuple[str | None, Node | None]] = [(named + brackets[0], None)]
    first = True
    for child in shown_below(node):
        if child.role is Role.DROP:
            continue
        value_of_key = style == "dict" and not child.is_key
        if not value_of_key and not first:
            pieces.append((", ", None))
        first = False
        if style == "fields":
            pieces.append((f'"{child.name}": ' if as_json else f"{child.name}=", None))
        pieces.append((None, child))
        if child.is_key:
            pieces.append((": ", None))
    pieces.append((brackets[1], None))
    return pieces


def _leaf(node: Node, form: Form) -> list[Segment]:
    shape = node.shape
    if node.value is None:
        return [("null" if form == "json" else "None", node)]
    if not isinstance(shape, Leaf):
        # What is kept is not looked into here either.
        return [("null" if form == "json" else "None", None)]
    text = shape.texts[0] if shape.texts else ""
    if form == "python":
        quoted = _repr(text) if shape.is_text else text
    elif shape.is_text or node.is_key or not isinstance(_value_of(node), (int, float)):
        quoted = encode_basestring(text)
    else:
        quoted = text.lower() if isinstance(node.value, bool) else text
    if quoted[:1] in "\"'" and len(quoted) > 1:
        return [(quoted[0], None), (quoted[1:-1], node), (quoted[-1], None)]
    return [(quoted, node)]


def _value_of(node: Node) -> Any:
    return node.value.value if isinstance(node.value, Bare) else node.value


_repr: Callable[[str], str] = str.__repr__
