"""Arguments in tags, as parts of a reply: a tag for each key, in the schema's order, with its value (`plain_values`).

Keys that the schema does not name are letters, digits, `_`, `.` and `-`; their values are text, as which they are read.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from nco_guard.automata.cpython import parsed
from nco_guard.errors import ShapeError
from nco_guard.shapes.branches import objects_of
from nco_guard.shapes.call_parts import CallPart
from nco_guard.shapes.library import in_lark
from nco_guard.shapes.part_leaves import KeyLeaf
from nco_guard.shapes.plain_values import ValueEnds, ValueGrammar, value_grammar

__all__ = [
    "ListedArguments",
    "ListedTag",
    "TagMarks",
    "literal_runs",
    "quoted_text",
    "tag_marks",
    "tagged_arguments",
]

_KEY = "[A-Za-z_][A-Za-z0-9_.-]{0,63}"
_NAMED = re.compile(r"\(\?P<\w+>")
_BEGINS = re.compile(r"\(\?:([^()|]+)\(\?P<value>")
_TYPES = {"integer": "number"}


@dataclass(frozen=True)
class TagMarks:
    """What stands around one argument. open, after_key, between: as of the entry. ends: of values. behind: what is
    written behind the mark by which readers see a value's end. pattern: by which they find tags."""

    open: str
    after_key: str
    between: str
    ends: ValueEnds
    behind: str
    pattern: str

    def opened(self, key: str, kind: str) -> str:
        """What stands before a value of a JSON type."""
        after = self.after_key.replace("{string}", "true" if kind == "string" else "false")
        return self.open + key + after.replace("{type}", _TYPES.get(kind, kind))

    def says(self, key: str) -> bool:
        """Whether a key is read as itself."""
        from regex import DOTALL, fullmatch

        text = self.opened(key, "string") + "x" + self.ends.head + self.ends.mark
        found = fullmatch(self.pattern, text, flags=DOTALL)
        return found is not None and found["key"] == key and self.after_key.partition("{")[0][:1] not in key


def tag_marks(argument: Any, field: Mapping[str, Any], closes: Sequence[str]) -> TagMarks:
    """What stands around arguments by an entry's marks, and how they are read. closes: patterns that end a call.

    Errors: `ShapeError` for a way of reading that does not say by what a value ends.
    """
    pattern = str((field.get("content_args") or {}).get("tag_pattern", ""))
    runs = {way[-1] for way in literal_runs(_NAMED.sub("(?:", pattern))}
    mark = min(runs, key=len)
    mark = mark if all(run.endswith(mark) for run in runs) else ""
    head, found, behind = argument.close.partition(mark) if mark else ("", "", "")
    if not found:
        raise ShapeError("the format does not say by what an argument ends")
    never = tuple(close.removeprefix(r"\s*") for close in closes)
    first = tuple(_BEGINS.findall(pattern))
    ends = ValueEnds(head, mark, never, first)
    return TagMarks(argument.open, argument.after_key, argument.between, ends, behind, pattern)


def literal_runs(pattern: str) -> list[list[str]]:
    """Of each way to match a pattern the literals in it, between what is none."""
    return ["".join(way).split("\0") for way in _ways_to_match(parsed(pattern, 0))]


def _ways_to_match(tree: Any) -> list[list[str]]:
    ways: list[list[str]] = [[]]
    for kind, value in tree:
        name = str(kind)
        if name == "LITERAL":
            inner = [[chr(value)]]
        elif name == "BRANCH":
            inner = [way for branch in value[1] for way in _ways_to_match(branch)]
        elif name in ("SUBPATTERN", "ASSERT"):
            inner = _ways_to_match(value[-1])
        else:
            inner = [["\0"]]
        ways = [way + more for way in ways for more in inner]
    return ways


def tagged_arguments(
    name: str, schema: Any, enforced: Any, types: Mapping[str, Sequence[str]], marks: TagMarks
) -> tuple[CallPart, list[str]]:
    """All arguments of a call, and the lines of the grammar for them. name: of the rules. enforced: the schema as the
    library takes it. types: as what the text of each argument is read.

    Errors: `ShapeError` where nothing can be written.
    """
    made = _TaggedArguments(name, schema, enforced, types, marks)
    return made.part(), made.lines


class ListedTag(NamedTuple):
    """An argument: in the grammar as the first of a call, behind others, and as a part."""

    first: str
    behind: str
    part: CallPart


class _Between(Protocol):
    @property
    def between(self) -> str:
        """What stands between two arguments."""


Marks = TypeVar("Marks", bound=_Between)


class ListedArguments(ABC, Generic[Marks]):
    """Arguments in the schema's order, of a call that is written by some marks."""

    def __init__(
        self, name: str, schema: Any, enforced: Any, types: Mapping[str, Sequence[str]], marks: Marks
    ) -> None:
        self._name, self._schema, self._enforced = name, schema, enforced
        self._types, self._marks = types, marks
        self.lines: list[str] = []
        self._lacking = ""

    def part(self) -> CallPart:
        """All arguments. Errors: `ShapeError` where nothing can be written."""
        found = [part for part in self.parts() if part is not None]
        if not found:
            raise ShapeError(
                "arguments of this schema cannot be written in this format", place="#" + self._lacking
            )
        return CallPart.whole(found[0] if len(found) == 1 else CallPart.choice(*found))

    @abstractmethod
    def _tag(self, name: str, key: str, schema: Any, taken: Any) -> ListedTag | None:
        """A key with its value; None where there is none."""

    @abstractmethod
    def _further(
        self,
        name: str,
        keys: Sequence[str],
        nodes: Sequence[Mapping[str, Any]],
        taken: Sequence[Mapping[str, Any]],
    ) -> ListedTag | None:
        """Keys that are not named, if there may be any."""

    def _others(self, nodes: Sequence[Mapping[str, Any]]) -> Any:
        """The schema of keys that are not named; False: there are none."""
        return False if any("patternProperties" in node for node in nodes) else _of_key(nodes, None)

    def parts(self) -> Iterator[CallPart | None]:
        """The arguments by each way to be valid; None for those of which none can be written."""
        ways = zip(objects_of(self._schema), objects_of(self._enforced), strict=True)
        for number, ((_, required, nodes), (_, _, taken)) in enumerate(ways):
            yield self._arguments(f"{self._name}w{number}", required, nodes, taken)

    def _arguments(
        self,
        name: str,
        required: frozenset[str],
        nodes: Sequence[Mapping[str, Any]],
        taken: Sequence[Mapping[str, Any]],
    ) -> CallPart | None:
        keys = dict.fromkeys(key for node in nodes for key in node.get("properties") or {})
        keys.update(dict.fromkeys([*self._types, *sorted(required)]))
        tags: list[ListedTag] = []
        needed: list[bool] = []
        for number, key in enumerate(keys):
            tag = self._tag(f"{name}k{number}", key, _of_key(nodes, key), _of_key(taken, key))
            if tag is None and key in required:
                self._lacking = f"/properties/{key}"
                return None
            if tag is not None:
                tags.append(tag)
                needed.append(key in required)
        further = self._further(f"{name}f", list(keys), nodes, taken)
        self._counted(nodes, len(required), len(tags) if further is None else None)
        if further is not None:
            tags.append(further)
            needed.append(False)
        return self._listed(name, tags, needed)

    def _counted(self, nodes: Sequence[Mapping[str, Any]], least: int, most: int | None) -> None:
        """Refuse numbers of arguments that are not as many as there are anyway."""
        for node in nodes:
            if node.get("minProperties", 0) > least or (
                "maxProperties" in node and (most is None or node["maxProperties"] < most)
            ):
                raise ShapeError(
                    "the number of arguments in tags cannot be enforced; name those required", place="#"
                )

    def _listed(self, name: str, tags: Sequence[ListedTag], needed: Sequence[bool]) -> CallPart:
        """Rules `a`: of what may come first from a tag on, `b`: of what may follow others."""
        self.lines += [f'{name}a{len(tags)}: ""', f'{name}b{len(tags)}: ""']
        for number, (tag, must) in enumerate(zip(tags, needed, strict=True)):
            rest = f"{name}b{number + 1}"
            self.lines.append(
                f"{name}a{number}: {tag.first} {rest}" + ("" if must else f" | {name}a{number + 1}")
            )
            self.lines.append(f"{name}b{number}: {tag.behind} {rest}" + ("" if must else f" | {rest}"))
        return CallPart.listed(f"{name}a0", self._marks.between, [tag.part for tag in tags], needed)


class _TaggedArguments(ListedArguments[TagMarks]):
    def _tag(self, name: str, key: str, schema: Any, taken: Any) -> ListedTag | None:
        """A key with its value; None where there is none."""
        if schema is False or not self._marks.says(key):
            return None
        types = self._types.get(key, ())
        found: list[tuple[str, CallPart]] = []
        for number, (opened, kinds) in enumerate(_by_opening(self._marks, key).items()):
            value = self._value(f"{name}o{number}", schema, taken, types, kinds.__contains__)
            if value is not None:
                found.append((opened, CallPart.row(self._leaf(value), CallPart.text(self._marks.behind))))
        if not found:
            return None
        # What is written before a value is one word of the grammar's, lest one be the beginning of another.
        first, behind = (
            "(" + " | ".join(f"{quoted_text(between + opened)} {rest.lark}" for opened, rest in found) + ")"
            for between in ("", self._marks.between)
        )
        part = CallPart.choice(*(CallPart.row(CallPart.text(opened), rest) for opened, rest in found))
        return ListedTag(first, behind, part)

    def _leaf(self, value: ValueGrammar) -> CallPart:
        self.lines += value.lines
        return CallPart.leaf(value.lark, value.leaf)

    def _value(
        self, name: str, schema: Any, taken: Any, types: Sequence[str], kinds: Callable[[str], bool]
    ) -> ValueGrammar | None:
        both = (schema, self._schema), (taken, self._enforced)
        return value_grammar(name, *both, types, self._marks.ends, kinds)

    def _further(
        self,
        name: str,
        keys: Sequence[str],
        nodes: Sequence[Mapping[str, Any]],
        taken: Sequence[Mapping[str, Any]],
    ) -> ListedTag | None:
        """Keys that are not named, if there may be any."""
        schema, marks = self._others(nodes), self._marks
        if schema is False:
            return None
        value = self._value(f"{name}v", schema, _of_key(taken, None), (), "string".__eq__)
        if value is None:
            return None
        after = marks.opened("", "string").removeprefix(marks.open)
        others = "|".join(map(re.escape, keys))
        for letter, before in (("A", ""), ("B", marks.between)):
            head, end = re.escape(before + marks.open), re.escape(after)
            key = f"/{in_lark(f'{head}{_KEY}{end}')}/"
            key += f" & ~/{in_lark(f'{head}(?:{others}){end}')}/" if others else ""
            self.lines.append(f"{name.upper()}{letter}: {key}")
        rest = CallPart.row(self._leaf(value), CallPart.text(marks.behind))
        tag = CallPart.row(CallPart.text(marks.open), CallPart.leaf("", KeyLeaf(after, keys)), rest)
        part = CallPart.more(tag, CallPart.row(CallPart.text(marks.between), tag))
        again = f"{name.upper()}B {rest.lark}"
        return ListedTag(f"{name.upper()}A {rest.lark} ({again})*", f"{again} ({again})*", part)


def quoted_text(text: str) -> str:
    """A literal of the grammar."""
    return json.dumps(text, ensure_ascii=False)


def _by_opening(marks: TagMarks, key: str) -> dict[str, list[str]]:
    """The kinds of values by what stands before them."""
    found: dict[str, list[str]] = {}
    for kind in ("string", "integer", "number", "boolean", "null", "array", "object"):
        found.setdefault(marks.opened(key, kind), []).append(kind)
    return found


def _of_key(nodes: Sequence[Mapping[str, Any]], key: str | None) -> Any:
    """What the value of a key is to be, by all schemas; None: of a key that none names."""
    found: list[Any] = []
    for node in nodes:
        properties = node.get("properties") or {}
        each = (
            properties[key]
            if key is not None and key in properties
            else node.get("additionalProperties", True)
        )
        if each is False:
            return False
        if each is not True and each != {}:
            found.append(each)
    return True if not found else found[0] if len(found) == 1 else {"allOf": found}
