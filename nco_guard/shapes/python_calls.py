"""Arguments as Python has them, `key=value` each, as parts of a reply.

Strings, numbers, lists and objects are written as JSON has them, which Python reads as the same values: strings between
double quotes, escapes only where they are needed. `True`, `False` and `None` are Python's own; within lists and objects
they are JSON's, which `replies` reads, too.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nco_guard.errors import ShapeError
from nco_guard.shapes.branches import branches_of
from nco_guard.shapes.call_parts import CallPart
from nco_guard.shapes.exact_numbers import says_wide, wide_said
from nco_guard.shapes.library import in_lark
from nco_guard.shapes.part_leaves import KeyLeaf, ValueLeaf
from nco_guard.shapes.plain_values import named_values, schema_of_kinds, spread_kinds
from nco_guard.shapes.tagged import ListedArguments, ListedTag, quoted_text

__all__ = ["python_arguments"]

_KEY = "[A-Za-z_][A-Za-z0-9_]{0,63}"
_TYPES = ("integer", "number", "boolean", "null", "array", "object")
_OPTIONS = {"whitespace_pattern": "[ ]?"}


class _Between(NamedTuple):
    between: str = ", "


def python_arguments(
    name: str, tool: str, schema: Any, enforced: Any, keys: Sequence[str]
) -> tuple[CallPart, list[str]]:
    """All arguments of a call of a tool, and the lines of the grammar for them; as `tagged_arguments`.

    keys: further ones that are known. Errors: `ShapeError` for a name that is none of Python's, and where nothing can
    be written.
    """
    if not _reads(f"{tool}()", f"{tool}()"):
        raise ShapeError("calls in Python cannot write its name")
    made = _PythonArguments(name, schema, enforced, dict.fromkeys(keys, ()), _Between())
    return made.part(), made.lines


def _reads(text: str, wanted: str) -> bool:
    """Whether Python reads a call as it is written."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return isinstance(tree, ast.Call) and ast.unparse(tree) == wanted


class _PythonArguments(ListedArguments[_Between]):
    def _tag(self, name: str, key: str, schema: Any, taken: Any) -> ListedTag | None:
        if schema is False or not _reads(f"f({key}=1)", f"f({key}=1)"):
            return None
        value = self._python_value(name, schema, taken)
        if value is None:
            return None
        first, behind = (f"{quoted_text(before + key + '=')} {value.lark}" for before in ("", ", "))
        return ListedTag(first, behind, CallPart.row(CallPart.text(f"{key}="), value))

    def _further(
        self,
        name: str,
        keys: Sequence[str],
        nodes: Sequence[Mapping[str, Any]],
        taken: Sequence[Mapping[str, Any]],
    ) -> ListedTag | None:
        schema = self._others(nodes)
        value = None if schema is False else self._python_value(f"{name}v", schema, self._others(taken))
        if value is None:
            return None
        unsaid = [*keys, *keyword.kwlist]
        others = "|".join(map(re.escape, unsaid))
        for letter, before in (("A", ""), ("B", ", ")):
            some = f"/{in_lark(f'{before}{_KEY}=')}/ & ~/{in_lark(f'{before}(?:{others})=')}/"
            self.lines.append(f"{name.upper()}{letter}: {some}")
        tag = CallPart.row(CallPart.leaf("", KeyLeaf("=", unsaid)), value)
        part = CallPart.more(tag, CallPart.row(CallPart.text(", "), tag))
        again = f"{name.upper()}B {value.lark}"
        return ListedTag(f"{name.upper()}A {value.lark} ({again})*", f"{again} ({again})*", part)

    def _python_value(self, name: str, schema: Any, taken: Any) -> CallPart | None:
        """A value; None where there is none."""
        found = spread_kinds(branches_of(schema, self._schema), _TYPES)
        parts = []
        for one in found:
            several = len(one.nodes) > 1
            if one.kind in ("integer", "number") and any(
                says_wide(node, several=several) for node in one.nodes
            ):
                raise ShapeError(f"{wide_said()} cannot be enforced in Python; say less")
        given = schema_of_kinds([one for one in found if one.kind not in ("boolean", "null")], self._schema)
        if given is not None:
            wanted = spread_kinds(branches_of(taken, self._enforced), _TYPES)
            wanted = [one for one in wanted if one.kind not in ("boolean", "null")]
            said = {**(schema_of_kinds(wanted, self._enforced) or {}), "x-guidance": _OPTIONS}
            self.lines.append(f"{name}j: %json {json.dumps(said)}")
            parts.append(CallPart.leaf(f"{name}j", ValueLeaf(given)))
        words = [
            word for one in found if one.kind in ("boolean", "null") for word in _words(one.kind, one.nodes)
        ]
        parts += [CallPart.text(word) for word in dict.fromkeys(words)]
        return CallPart.choice(*parts) if parts else None


def _words(kind: str, nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    some = named_values(nodes)
    values: list[Any] = [True, False] if kind == "boolean" else [None]
    return [repr(one) for one in values if some is None or any(one is each for each in some)]
