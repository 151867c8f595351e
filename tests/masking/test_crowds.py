"""Many rules that tell few characters apart are run as one automaton, and mean what they mean one by one."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from nco_guard.automata import ClassAutomaton, ProductMachine
from nco_guard.compiler import CompiledPolicy, Constraint, compile_policy
from nco_guard.masking import bruteforce
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary
from tests.masking.random_policies import rules_completing

LETTERS = "wxyz"
AHEAD = ["(?!w)", "(?=x|$)", r"\b"]
TOKENS = ["w", "x", "y", "z", "wx", "xy", "zz", "yzw", "xx", "a", "ab", "é"]


def pattern(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.2:
        return rng.choice(LETTERS)
    if kind < 0.6:
        return pattern(rng, depth - 1) + pattern(rng, depth - 1)
    if kind < 0.75:
        return f"(?:{pattern(rng, depth - 1)}|{pattern(rng, depth - 1)})"
    if kind < 0.9:
        return f"(?:{pattern(rng, depth - 1)}){rng.choice('*?')}"
    return f"(?:{pattern(rng, depth - 1)}){rng.choice(AHEAD)}"


def crowd(rng: random.Random, count: int) -> list[RegexRule]:
    rules: list[RegexRule] = []
    while len(rules) < count:
        text = pattern(rng, rng.randint(3, 5))
        if re.compile(text) and re._parser.parse(text).getwidth()[0] >= 3:  # type: ignore[attr-defined]
            rules.append(RegexRule(id=f"r{len(rules)}", regex=text))
    return rules


def apart(compiled: CompiledPolicy) -> list[Constraint]:
    """Every rule as a constraint of its own: the definition."""
    single = [compile_policy(Policy(name="one", rules=[c.rule])) for c in compiled.rules]
    return [compiled.constraints()[0], *(policy.constraints()[1] for policy in single)]


@pytest.mark.parametrize("seed", range(3))
def test_a_crowd_masks_what_its_rules_mask_and_names_them(seed: int) -> None:
    rng = random.Random(seed)
    compiled = compile_policy(Policy(name="crowd", rules=crowd(rng, 40)))
    bound = BoundGuard(compiled, toy_vocabulary(TOKENS))
    tables, vocabulary = bound.tables, bound.vocabulary
    assert len(tables.constraints) == 2
    automaton = tables.constraints[1].automaton
    assert isinstance(automaton, ClassAutomaton)
    assert isinstance(automaton.machine, ProductMachine)
    single = apart(compiled)
    known: dict[tuple[tuple[int, ...], int], bool] = {}
    for _ in range(6):
        state, states = tables.start, tuple(c.automaton.start for c in single)
        for _ in range(8):
            expected = bruteforce.forbidden(single, states, vocabulary, known=known)
            assert tables.forbidden(state).tolist() == np.flatnonzero(expected).tolist()
            for token in range(vocabulary.width):
                completed = {
                    c.rule_ids[0]
                    for c, s in zip(single, states, strict=True)
                    if bruteforce.feed(c, s, vocabulary.tokens[token])[1]
                }
                if len(vocabulary.tokens[token]) == 1:  # of longer ones, only the first match counts
                    assert set(rules_completing(tables, state, token)) - {"utf-8"} >= completed - {"utf-8"}
            allowed = [t for t in np.flatnonzero(~expected).tolist() if t not in vocabulary.eos_ids]
            if not allowed:
                break
            token = rng.choice(allowed)
            data = vocabulary.tokens[token]
            state = tables.next(state, token)
            states = tuple(bruteforce.feed(c, s, data)[0] for c, s in zip(single, states, strict=True))


def test_few_rules_and_rules_with_many_letters_stay_apart() -> None:
    rng = random.Random(1)
    few = compile_policy(Policy(name="few", rules=crowd(rng, 31)))
    assert len(few.constraints()) == 32
    words = [RegexRule(id=f"w{i}", regex=f"abcdefghijklmnopqrs{i}[0-9]x") for i in range(40)]
    assert len(compile_policy(Policy(name="words", rules=words)).constraints()) == 41


def test_soft_rules_and_strings_are_no_part_of_a_crowd() -> None:
    rng = random.Random(2)
    rules = crowd(rng, 40)
    mixed = [*rules, RegexRule(id="soft", regex="wxw", penalty=2.0), StringRule(id="s", strings=("zyx",))]
    constraints = compile_policy(Policy(name="mixed", rules=mixed)).constraints()
    assert [len(c.rule_ids) for c in constraints] == [1, 1, 40, 1]
