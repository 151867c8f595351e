"""Other libraries that search text for many strings: each made ready to search one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

__all__ = ["SEARCHES"]

Search = Callable[[], object]


def _either(strings: list[str]) -> str:
    return "|".join(map(re.escape, sorted(strings, key=len, reverse=True)))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _re(strings: list[str], text: str) -> Search:
    pattern = re.compile(_either(strings))
    return lambda: pattern.findall(text)


def _hyperscan(strings: list[str], text: str) -> Search:
    import hyperscan

    database = hyperscan.Database()
    database.compile(expressions=[re.escape(s).encode() for s in strings], ids=list(range(len(strings))))
    data = _encoded(text)
    return lambda: database.scan(data, match_event_handler=lambda *_: None)


def _ahocorasick_rs(strings: list[str], text: str) -> Search:
    import ahocorasick_rs

    automaton = ahocorasick_rs.AhoCorasick(strings)
    return lambda: automaton.find_matches_as_indexes(text, overlapping=True)


def _pyahocorasick(strings: list[str], text: str) -> Search:
    import ahocorasick

    automaton: Any = ahocorasick.Automaton()
    for string in strings:
        automaton.add_word(string, string)
    automaton.make_automaton()
    return lambda: list(automaton.iter(text))


def _re2(strings: list[str], text: str) -> Search:
    import re2

    pattern = re2.compile(_either(strings))
    data = _encoded(text)
    return lambda: sum(1 for _ in pattern.finditer(data))


def _regex(strings: list[str], text: str) -> Search:
    import regex

    pattern = regex.compile(_either(strings))
    return lambda: pattern.findall(text)


#: By name: the package, whether it is so slow that a part of the text must do, and how it is made ready.
SEARCHES: dict[str, tuple[str, bool, Callable[[list[str], str], Search]]] = {
    "re": ("python", True, _re),
    "hyperscan": ("hyperscan", False, _hyperscan),
    "ahocorasick_rs": ("ahocorasick_rs", False, _ahocorasick_rs),
    "pyahocorasick": ("pyahocorasick", False, _pyahocorasick),
    "google-re2": ("google-re2", False, _re2),
    "regex": ("regex", True, _regex),
}
