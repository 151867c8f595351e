"""Patterns of JSON Schema, which match anywhere in a text, as expressions of whole texts.

ECMA-262 and Python differ in what some classes hold. What both match is meant: whoever validates by either agrees.
"""

from __future__ import annotations

import re

from nco_guard.automata.cpython import parsed
from nco_guard.errors import ShapeError

__all__ = ["whole_texts"]

_ANY = r"(?s:.*)"
_LINE = r"[^\n\r\u2028\u2029]"
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": r" \t\n\r\f\v"}
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_]\w*>)?(?!\?)")


def whole_texts(pattern: str) -> str:
    r"""An expression of the whole texts in which a pattern is found.

    Errors: `ShapeError` for what is no pattern, and for lookarounds, backreferences and anchors within it.

    Examples:
        >>> whole_texts(r"^\d+$")
        '(?:[0-9]+)'
    """
    try:
        parsed(pattern, 0)
        found = _without_anchors(_in_both(pattern))
        said = repr(list(parsed(found, 0)))
    except (re.error, RecursionError):
        raise ShapeError("pattern: it is none that can be enforced") from None
    if any(kind in said for kind in ("AT_", "(AT,", "ASSERT", "GROUPREF")):
        raise ShapeError("pattern: lookarounds, backreferences and anchors within it cannot be enforced")
    return found


def _without_anchors(pattern: str) -> str:
    """Of each branch: nothing before it where it begins with an anchor, nothing behind where it ends with one."""
    found = []
    for branch in _branches(pattern):
        begins = next((mark for mark in ("^", r"\A") if branch.startswith(mark)), "")
        rest = branch[len(begins) :]
        ends = next((mark for mark in ("$", r"\Z") if rest.endswith(mark) and _ends_so(rest, mark)), "")
        rest = rest[: len(rest) - len(ends)]
        if not begins and not ends and (inner := _inner(rest)) is not None:
            found.append(_without_anchors(inner))
            continue
        found.append(("" if begins else _ANY) + f"(?:{rest})" + ("" if ends else _ANY))
    return found[0] if len(found) == 1 else "(?:" + "|".join(found) + ")"


def _ends_so(pattern: str, mark: str) -> bool:
    """Whether the mark at the end is one, and not escaped."""
    head = pattern[: -len(mark)]
    return (len(head) - len(head.rstrip("\\"))) % 2 == 0


def _pieces(pattern: str) -> list[str]:
    """Escapes, classes and other characters, each by itself."""
    found, at = [], 0
    while at < len(pattern):
        end = at + 1
        if pattern[at] == "\\":
            end = at + 2
        elif pattern[at] == "[":
            end += pattern.startswith("^", end)
            end += pattern.startswith("]", end)
            while end < len(pattern) and pattern[end] != "]":
                end += 2 if pattern[end] == "\\" else 1
            end += 1
        found.append(pattern[at:end])
        at = end
    return found


def _branches(pattern: str) -> list[str]:
    found, depth = [""], 0
    for piece in _pieces(pattern):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            found.append("")
        else:
            found[-1] += piece
    return found


def _inner(branch: str) -> str | None:
    """What stands in a group that is all of a branch."""
    opened = _GROUP.match(branch)
    if opened is None or not branch.endswith(")"):
        return None
    depth = 0
    pieces = _pieces(branch)
    for number, piece in enumerate(pieces):
        depth += (piece == "(") - (piece == ")")
        if not depth:
            return branch[opened.end() : -1] if number == len(pieces) - 1 else None
    return None


def _in_both(pattern: str) -> str:
    """Classes as both readers have them: what one of them leaves out of a class is left out."""
    found = []
    for piece in _pieces(pattern):
        if piece == ".":
            found.append(_LINE)
        elif len(piece) == 2 and piece[0] == "\\" and piece[1] in _CLASSES:
            found.append(f"[{_CLASSES[piece[1]]}]")
        elif piece.startswith("[") and not piece.startswith("[^"):
            found.append(re.sub(r"\\(.)", lambda one: _CLASSES.get(one[1], one[0]), piece))
        else:
            found.append(piece)
    return "".join(found)
