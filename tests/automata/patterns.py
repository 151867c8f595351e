"""Random regular expressions and texts, small enough that Python's `re` cannot backtrack for long."""

from __future__ import annotations

import random
import re

from nco_guard.automata import ClassAutomaton

ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\s", "\n", "é", "k", "1", "_", "[a-k1]"]
ANCHORS = [r"\b", r"\B", "^", "$", r"\A", r"\Z"]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,3}", "{,2}", "*?", "{2,}"]
SCOPES = ["(?i:", "(?m:", "(?s:", "(?-i:", "(?i-s:"]
LETTERS = "aabbkKé1_ \n-\u212aß"
FLAGS = [0, 0, re.IGNORECASE, re.MULTILINE, re.DOTALL, re.ASCII, re.IGNORECASE | re.ASCII]


def pattern(rng: random.Random, depth: int) -> str:
    """A random pattern; not always one that `re` accepts (lookbehinds can have no fixed width)."""
    r = rng.random()
    if depth == 0 or r < 0.25:
        return rng.choice(ATOMS)
    inner = pattern(rng, depth - 1)
    if r < 0.5:
        return inner + pattern(rng, depth - 1)
    if r < 0.6:
        return f"(?:{inner}|{pattern(rng, depth - 1)})"
    if r < 0.72:
        return f"(?:{inner}){rng.choice(QUANTIFIERS)}"
    if r < 0.8:
        return rng.choice(ANCHORS)
    if r < 0.87:
        return f"{rng.choice(['(?=', '(?!'])}{inner})"
    if r < 0.94:
        return f"{rng.choice(['(?<=', '(?<!'])}{inner})"
    return f"{rng.choice(SCOPES)}{inner})"


def valid_pattern(rng: random.Random, depth: int = 4) -> tuple[str, int]:
    """A random pattern that `re` accepts, with flags."""
    while True:
        candidate, flags = pattern(rng, depth), rng.choice(FLAGS)
        try:
            re.compile(candidate, flags)
        except re.error:
            continue
        return candidate, flags


def text(rng: random.Random, longest: int = 8) -> str:
    """A random text over letters that the patterns care about."""
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(0, longest)))


def found_in_bytes(automaton: ClassAutomaton, text: str) -> bool:
    """Whether an automaton that reads bytes finds a match in the whole text."""
    state = automaton.start
    for byte in text.encode():
        state = automaton.step(state, byte)
        if state < 0:
            return True
    return not automaton.may_end(state)
