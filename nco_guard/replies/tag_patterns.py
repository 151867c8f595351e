"""What a `tag_pattern` says of arguments in tags: by what a tag is opened, its key ends, its value begins and ends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nco_guard.shapes.tagged import literal_runs

__all__ = [
    "CAST",
    "EITHER",
    "KEY",
    "VALUE",
    "TagPatterns",
    "TaggedValues",
    "beside",
    "kinds_of_keys",
    "pattern_of",
    "tag_patterns",
]

#: What stands in tags: a key, a value as it is written, one that is cast, and one that may be both.
KEY, VALUE, CAST, EITHER = "key", "value", "cast", "either"

_KEY = re.compile(r"\(\?P<key>(?:\[(?:\\.|[^\]\\])*\]|\\?[\w.])[*+]\??\)")
_VALUE = r"\(\?P<value>\.\*\?\)"
_ONE = re.compile(rf"(?P<behind_key>.*?){_VALUE}(?P<close>.*)", re.DOTALL)
# Values that may stand between marks of their own, as `<![CDATA[` and `]]>`.
_TWO = re.compile(
    rf"(?P<behind_key>.*?)\(\?:(?P<begins>[^()|]+){_VALUE}(?P<ends>[^()|]+)\|{_VALUE}\)(?P<close>.*)",
    re.DOTALL,
)
_CAST = frozenset({"array", "object", "integer", "number", "boolean", "null"})


class TagPatterns(NamedTuple):
    """Patterns. opens: of what precedes a key. ways: of what stands between a key and its value, and of what ends that.

    literal: `opens`, if it is a literal text.
    """

    opens: str
    ways: tuple[tuple[str, str], ...]
    literal: str | None


class TaggedValues(NamedTuple):
    """What is looked for in a call with tags. kinds: of keys whose values are not `VALUE`, what they are."""

    patterns: TagPatterns
    kinds: tuple[tuple[str, str], ...] = ()


def tag_patterns(pattern: str) -> TagPatterns | None:
    """The parts of a `tag_pattern`; None for one that does not consist of them.

    Examples:
        >>> tag_patterns(r"<p=(?P<key>[^>]+)>\\n?(?P<value>.*?)\\n?</p>").ways
        (('>\\\\n?', '\\\\n?</p>'),)
    """
    key = _KEY.search(pattern)
    if key is None:
        return None
    opens, rest = pattern[: key.start()], pattern[key.end() :]
    ways: tuple[tuple[str, str], ...]
    if (two := _TWO.fullmatch(rest)) is not None:
        marked = two["behind_key"] + two["begins"], two["ends"] + two["close"]
        ways = (marked, (two["behind_key"], two["close"]))
    elif (one := _ONE.fullmatch(rest)) is not None:
        ways = ((one["behind_key"], one["close"]),)
    else:
        return None
    runs = literal_runs(opens)
    return TagPatterns(opens, ways, runs[0][0] if len(runs) == len(runs[0]) == 1 and runs[0][0] else None)


def kinds_of_keys(types: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Of keys whose values are not text alone: `CAST` where they are cast, `EITHER` where they may be both.

    types: as what the value of each key is read.
    """
    cast = {key: {*kinds} for key, kinds in types.items() if _CAST & {*kinds}}
    return {key: EITHER if "string" in kinds else CAST for key, kinds in sorted(cast.items())}


def beside(patterns: TagPatterns) -> str:
    """Characters that may stand beside keys and values in tags: blanks, and where the literal text of a mark ends."""
    found = {*"\n\r\t "}
    for pattern in (patterns.opens, *(each for way in patterns.ways for each in way)):
        for way in literal_runs(pattern):
            said = "".join(way)
            found |= {*said[:1], *said[-1:]}
    return "".join(sorted(found))


def pattern_of(template: Mapping[str, Any]) -> str:
    """The `tag_pattern` of a response template; empty if there is none."""
    calls = template["fields"].get("tool_calls") or {}
    return str((calls.get("content_args") or {}).get("tag_pattern", ""))
