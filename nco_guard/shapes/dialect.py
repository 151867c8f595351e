r"""Regular expressions as Python reads them, spelled so that the library reads the same.

The library's own reading is Rust's: its `\w`, `\s`, `(?i)`, nested classes and `&&` mean something else than Python's.
So a pattern is read by CPython's parser, and what is handed on holds nothing but characters by their numbers, groups,
alternatives and repetitions, which mean one thing everywhere.

A `pattern` of JSON Schema is read in two ways by those who validate: as Python's `re` has it, and as ECMA-262. What
is written satisfies both: each class of characters is what both let be (`\d` is ASCII's, `\D` is none of Unicode's
digits).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from nco_guard.automata import cpython
from nco_guard.automata.charsets import CharSet, both, charset_of, complement, union
from nco_guard.errors import ShapeError, parted, re_complaint

__all__ = ["searched_pattern", "whole_pattern"]

_Item = tuple[Any, Any, int]  # an opcode of CPython's parser, its argument, the flags there

# Levels of groups in groups; what works on them is recursive.
_DEEP = 100
# Characters of which a pattern has room, repetitions counted: beyond these the library takes seconds or gives up.
_LONGEST = 20_000
_SURROGATES: CharSet = ((0xD800, 0xDFFF),)
_SPACES: CharSet = union(*(((code, code),) for code in (
    *range(0x09, 0x0E), 0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF
)))  # fmt: skip
_LINES: CharSet = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_REFUSED = {
    "ASSERT": "a look-around ((?=...), (?<=...)); write the pattern without",
    "ASSERT_NOT": "a look-around ((?!...), (?<!...)); write the pattern without",
    "GROUPREF": "a backreference; write out what is repeated",
    "GROUPREF_IGNORE": "a backreference; write out what is repeated",
    "GROUPREF_EXISTS": "a conditional group; write the two cases as alternatives",
    "ATOMIC_GROUP": "an atomic group; use an ordinary group (?:...)",
    "POSSESSIVE_REPEAT": "a possessive quantifier; use the ordinary quantifier",
}
_BEGINS = ("AT_BEGINNING", "AT_BEGINNING_STRING")
_ENDS = ("AT_END", "AT_END_STRING")


def whole_pattern(pattern: str) -> str:
    """Texts that `re.fullmatch` takes, as a pattern of whole texts that means one thing to all who read it.

    Cost: once for a pattern. Errors: `ShapeError`, naming the construct.

    Examples:
        >>> whole_pattern("(?i)a+$")
        '(?:[Aa]){1,}'
    """
    return _spelled(pattern, searched=False)


def searched_pattern(pattern: str) -> str:
    """Texts in which `re.search` finds a match, and ECMA-262 does; else as `whole_pattern`."""
    return _spelled(pattern, searched=True)


@lru_cache(maxsize=512)
def _spelled(pattern: str, *, searched: bool) -> str:
    with parted():
        try:
            tree = _tree(pattern)
            ways = _without_anchors([(*item, tree.state.flags) for item in tree])
            return _Speller(searched=searched).ways(ways)
        except RecursionError:
            raise ShapeError("the regular expression has groups in groups too deep; flatten it") from None


def _tree(pattern: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
            return cpython.parsed(pattern, 0)
    except re.error as error:
        hint = "; Python writes (?P<name>...)" if "(?<" in pattern else ""
        raise ShapeError(
            f"the regular expression is none that Python reads: {re_complaint(error)}{hint}"
        ) from None
    except (OverflowError, RecursionError, ValueError):
        raise ShapeError(
            "the regular expression is too large or too deeply nested for Python; split it"
        ) from None


# -- anchors -----------------------------------------------------------------------------------------------------------

_Way = tuple[bool, list[_Item], bool]


def _without_anchors(items: list[_Item]) -> list[_Way]:
    """The texts of a pattern as alternatives without anchors: whether each is at the beginning, and at the end."""
    items, left, right = list(items), False, False
    while items and _at(items[0]) in _BEGINS:
        left, items = True, items[1:]
    while items and _at(items[-1]) in _ENDS:
        right, items = True, items[:-1]
    if not any(_holds_anchor(item) for item in items):
        return [(left, items, right)]
    for place, near_end in ((0, False), (-1, True)):
        if not _holds_anchor(items[place]):
            continue
        rest = items[:-1] if near_end else items[1:]
        found: list[_Way] = []
        for begins, body, ends in _alternatives(items[place]):
            # Only at the end that it stands at may an alternative be anchored.
            if rest and (begins if near_end else ends):
                raise _misplaced()
            joined = [*rest, *body] if near_end else [*body, *rest]
            inner = _without_anchors(joined) if any(map(_holds_anchor, joined)) else [(False, joined, False)]
            found += [(left or begins or one, way, right or ends or other) for one, way, other in inner]
        return found
    raise _misplaced()


def _alternatives(item: _Item) -> list[_Way]:
    op, argument, flags = item
    name = str(op)
    if name == "AT":
        raise _misplaced(_at(item), flags)
    if name == "SUBPATTERN":
        inner = cpython.scoped(flags, argument)
        return _without_anchors([(*each, inner) for each in argument[3]])
    if name == "BRANCH":
        return [
            way for option in argument[1] for way in _without_anchors([(*each, flags) for each in option])
        ]
    raise _misplaced()


def _at(item: _Item) -> str:
    """The anchor that an item is; nothing for others, and for those of lines."""
    if str(item[0]) != "AT":
        return ""
    name = str(item[1])
    lines = item[2] & re.MULTILINE and name in ("AT_BEGINNING", "AT_END")
    return "AT_LINE" if lines else name


def _holds_anchor(item: _Item) -> bool:
    op, argument, flags = item
    name = str(op)
    if name == "AT":
        return True
    if name == "BRANCH":
        return any(_holds_anchor((*each, flags)) for option in argument[1] for each in option)
    if name == "SUBPATTERN":
        return any(_holds_anchor((*each, cpython.scoped(flags, argument))) for each in argument[3])
    if name.endswith("REPEAT"):
        return any(_holds_anchor((*each, flags)) for each in argument[2])
    return False


def _misplaced(name: str = "", flags: int = 0) -> ShapeError:
    if "BOUNDARY" in name:
        what = r"a boundary (\b, \B); write out what stands beside it"
    elif name == "AT_LINE":
        what = "an anchor of lines (?m); write out the line breaks"
    else:
        what = "an anchor that is not at an end; write it without"
    return ShapeError(f"the regular expression has {what}")


# -- spelling ----------------------------------------------------------------------------------------------------------


class _Speller:
    """Writes a parsed pattern."""

    def __init__(self, *, searched: bool) -> None:
        self._searched = searched

    def ways(self, ways: Iterable[_Way]) -> str:
        """All of a text, of which a match is looked for, or is to be the whole."""
        anything = f"{_shown_set(_everything())}*" if self._searched else ""
        found: list[str] = []
        for begins, items, ends in ways:
            if _length(items) > _LONGEST:
                raise ShapeError(
                    f"the regular expression has room for more than {_LONGEST:,} characters, repetitions counted; "
                    "repeat less"
                )
            body = self._row(items, 0)
            found.append(("" if begins else anything) + body + ("" if ends else anything))
        return found[0] if len(found) == 1 else f"(?:{'|'.join(found)})"

    def _row(self, items: Iterable[_Item], depth: int) -> str:
        if depth > _DEEP:
            raise ShapeError(f"the regular expression has groups in groups deeper than {_DEEP}; flatten it")
        return "".join(self._item(item, depth) for item in items)

    def _item(self, item: _Item, depth: int) -> str:
        op, argument, flags = item
        name = str(op)
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            leaf = (op, tuple(argument) if isinstance(argument, list) else argument)
            return _shown_set(_characters_of(leaf, flags & _LEAF_FLAGS, self._searched))
        if name == "BRANCH":
            options = (self._row([(*each, flags) for each in option], depth + 1) for option in argument[1])
            return f"(?:{'|'.join(options)})"
        if name == "SUBPATTERN":
            inner = cpython.scoped(flags, argument)
            return f"(?:{self._row([(*each, inner) for each in argument[3]], depth + 1)})"
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, body = argument
            most = "" if high is cpython.MAXREPEAT else int(high)
            return f"(?:{self._row([(*each, flags) for each in body], depth + 1)}){{{int(low)},{most}}}"
        if name == "FAILURE":
            return _shown_set(())
        raise ShapeError(f"the regular expression cannot be enforced: it has {_REFUSED.get(name, name)}")


_LEAF_FLAGS = re.IGNORECASE | re.ASCII | re.DOTALL | re.UNICODE


def _length(items: Iterable[_Item]) -> int:
    """For how many characters there is room, endless repetitions counted as their least."""
    found = 0
    for op, argument, flags in items:
        name = str(op)
        if name == "BRANCH":
            found += sum(_length([(*each, flags) for each in option]) for option in argument[1])
        elif name == "SUBPATTERN":
            found += _length([(*each, flags) for each in argument[3]])
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, body = argument
            times = int(low) + 1 if high is cpython.MAXREPEAT else int(high)
            found += times * max(1, _length([(*each, flags) for each in body]))
        else:
            found += 1
    return found


@lru_cache(maxsize=1024)
def _characters_of(leaf: tuple[Any, Any], flags: int, searched: bool) -> CharSet:
    """The characters that a leaf matches; where it is searched for, those that it matches in both readings."""
    if not searched:
        found = charset_of(leaf, flags)
    else:
        found = _as_ecma(leaf, flags)
        # Where nothing is taken away, ASCII's letters and digits are among Unicode's.
        if flags & re.IGNORECASE or "NOT" in repr(leaf) or "NEGATE" in repr(leaf) or "SPACE" in repr(leaf):
            found = both(found, charset_of(leaf, flags))
    return both(found, complement(_SURROGATES))


def _as_ecma(leaf: tuple[Any, Any], flags: int) -> CharSet:
    op, argument = leaf
    flags = (flags & ~re.UNICODE) | re.ASCII
    if op is cpython.ANY:
        return charset_of(leaf, flags) if flags & re.DOTALL else complement(_LINES)
    if str(op) == "IN":
        argument = tuple(each for item in argument for each in _spaces_of(item))
    return charset_of((op, argument), flags)


def _spaces_of(item: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    name = str(item[1])
    if name not in ("CATEGORY_SPACE", "CATEGORY_NOT_SPACE"):
        return [item]
    return [(cpython.RANGE, each) for each in (_SPACES if name == "CATEGORY_SPACE" else complement(_SPACES))]


@lru_cache(maxsize=1)
def _everything() -> CharSet:
    return complement(_SURROGATES)


@lru_cache(maxsize=1024)
def _shown_set(ranges: CharSet) -> str:
    if not ranges:
        return f"[^{_shown_code(0)}-{_shown_code(0x10FFFF)}]"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _shown_code(ranges[0][0])
    parts = (
        _shown_code(low) if low == high else f"{_shown_code(low)}-{_shown_code(high)}" for low, high in ranges
    )
    return f"[{''.join(parts)}]"


def _shown_code(code: int) -> str:
    return chr(code) if code < 0x80 and chr(code).isalnum() else f"\\U{code:08x}"
