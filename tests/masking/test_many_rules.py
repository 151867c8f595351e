"""Many rules of their own, strings and patterns, mask what brute force over all of them masks."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nco_guard.compiler import compile_policy
from nco_guard.masking import bruteforce
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary

TOKENS = ["a", "b", "c", "d", "1", " ", "ab", "bc", "cab", "dd", "1a", " a", "b1", "é", "ca ", "aaaaaaaaaaaa"]


def _word(rng: random.Random) -> str:
    return "".join(rng.choices("abcd", k=rng.randint(3, 5)))


def _strings(rng: random.Random, count: int) -> list[Rule]:
    folded = rng.random() < 0.5
    case = "fold" if folded else "exact"
    return [StringRule(id=f"s{i}", strings=(_word(rng),), case=case, whole_word=folded) for i in range(count)]


def _patterns(rng: random.Random, count: int) -> list[Rule]:
    shapes = (r"{0}\d{{1,2}}", r"{0}[ 1]?{1}", r"\b{0}\s+{1}", r"(?:{0}|{1})1", r"{0}.{{0,2}}{1}")
    return [
        RegexRule(id=f"r{i}", regex=rng.choice(shapes).format(_word(rng)[:3], _word(rng)[:2]))
        for i in range(count)
    ]


@pytest.mark.parametrize(("strings", "patterns"), [(120, 0), (60, 8), (0, 25), (0, 60)])
def test_many_rules_mask_what_brute_force_says(strings: int, patterns: int) -> None:
    rng = random.Random(strings + patterns)
    compiled = compile_policy(Policy(name="many", rules=(*_strings(rng, strings), *_patterns(rng, patterns))))
    bound = BoundGuard(compiled, toy_vocabulary(TOKENS))
    tables = bound.tables
    fresh = compiled.constraints()
    known: dict[tuple[tuple[int, ...], int], bool] = {}
    masked = 0
    for _ in range(8):
        state, states = tables.start, tuple(c.automaton.start for c in fresh)
        for _ in range(8):
            expected = np.flatnonzero(bruteforce.forbidden(fresh, states, bound.vocabulary, known=known))
            assert tables.forbidden(state).tolist() == expected.tolist()
            masked += len(expected)
            allowed = [t for t in range(len(TOKENS)) if t not in set(expected.tolist())]
            token = rng.choice(allowed)
            state = tables.next(state, token)
            states = tuple(
                bruteforce.feed(c, s, bound.vocabulary.tokens[token])[0]
                for c, s in zip(fresh, states, strict=True)
            )
    assert masked > 100
