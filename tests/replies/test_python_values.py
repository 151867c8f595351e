"""Values of calls in Python, each as a text of its own: what the reader's parser reads, searched by `re`."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from nco_guard import Policy, RegexRule
from nco_guard.automata import JsonValuesAutomaton, PythonValuesAutomaton
from nco_guard.compiler import compile_policy
from nco_guard.replies.parser import pythonic_calls

PATTERNS = [
    "^v",
    r"\d$",
    "^cat$",
    r"(?<!\")a",
    "b(?!\\s)",
    "^4$",
    "^[Tt]rue$",
    "^N",
    "e$",
    r"^\W+$",
    "^f$",
    r"\)\Z",
    "^=",
]
STRINGS = ["", "v", "a b", 'a"b', "(", "b)", "cat", "é,", "f=4", "\\", "true", "x="]


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randint(0, 5 if depth < 2 else 3)
    if kind < 2:
        return rng.choice(STRINGS)
    if kind == 2:
        return rng.choice([4, -4, 14, 0.5, True, False, None])
    if kind == 3:
        return rng.randint(0, 99)
    if kind == 4:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 2))]
    return {rng.choice(STRINGS): value(rng, depth + 1) for _ in range(rng.randint(0, 2))}


def written(one: Any) -> str:
    """As shapes have it: words of Python, what stands in lists and objects as JSON has it."""
    return repr(one) if one is None or isinstance(one, bool) else json.dumps(one, ensure_ascii=False)


def shown(one: Any) -> Iterator[str]:
    if isinstance(one, dict):
        yield from one
        one = [*one.values()]
    if isinstance(one, list):
        for inner in one:
            yield from shown(inner)
    else:
        yield str(one)
        yield one if isinstance(one, str) else json.dumps(one)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_value_is_read_as_a_text_of_its_own(pattern: str) -> None:
    rng, told = random.Random(pattern), 0
    compiled = compile_policy(Policy(name="p", rules=[RegexRule(id="r", regex=pattern)]))
    (constraint,) = compiled.value_constraints()
    assert isinstance(constraint.automaton, JsonValuesAutomaton)
    automaton = PythonValuesAutomaton(constraint.automaton)
    for _ in range(60):
        calls = [
            ("find", {key: value(rng) for key in rng.sample(["a", "cat", "v", "f"], rng.randint(0, 2))})
            for _ in range(rng.randint(1, 2))
        ]
        text = ", ".join(
            f"{name}({', '.join(f'{key}={written(one)}' for key, one in given.items())})"
            for name, given in calls
        )
        assert pythonic_calls(text) == calls
        texts = [one for _, given in calls for one in shown(given)]
        reached = automaton.read(automaton.start, f"[{text}]".encode())
        found = reached < 0 or not automaton.may_end(reached)
        assert found == any(re.search(pattern, one) for one in texts), text
        told += found
    assert told or pattern == "^="
