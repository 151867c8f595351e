"""What a state of a list of strings adds to the next shorter one is what the definition says of its tokens."""

from __future__ import annotations

import random

import pytest

from nco_guard.automata import AhoCorasick
from nco_guard.compiler import compile_policy
from nco_guard.masking import JointTables, strings, tables
from nco_guard.masking.bruteforce import feed
from nco_guard.policy import Policy, StringRule
from nco_guard.testing import toy_vocabulary
from nco_guard.tokens import PrefixTree
from tests.automata.test_exact import _with_few_rows


def _table(rng: random.Random, alphabet: str, *, hard: bool, longest: int) -> tables.ConstraintTable:
    def texts(count: int, most: int) -> set[str]:
        return {"".join(rng.choices(alphabet, k=rng.randint(1, most))) for _ in range(count)}

    listed = tuple(sorted(texts(rng.randint(1, 30), longest)))
    rule = StringRule(id="s", strings=listed, penalty=float("inf") if hard else 1.5)
    vocabulary = toy_vocabulary(
        sorted(texts(rng.randint(1, 60), 6)), strips_first_space=rng.random() < 0.3, padding=1
    )
    constraint = compile_policy(Policy(name="p", rules=(rule,))).constraints()[1]
    assert isinstance(constraint.automaton, AhoCorasick)
    if rng.random() < 0.5:  # as in a list of a million strings, where few nodes have rows
        object.__setattr__(constraint, "automaton", _with_few_rows([s.encode() for s in listed], 3))
    joint = JointTables(
        [*compile_policy(Policy(name="p", rules=(rule,))).constraints()[:1], constraint],
        vocabulary,
        PrefixTree(vocabulary.tokens),
    )
    return joint.tables[1]


@pytest.mark.parametrize("few", [0, 3, 10**6])
@pytest.mark.parametrize("hard", [True, False])
def test_views_of_all_states_are_those_of_the_definition(
    few: int, hard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strings, "_FEW", few)
    rng = random.Random(few)
    added = 0
    for _ in range(25):
        table = _table(rng, rng.choice(["ab", "ae ", "xé€", "abcdefghij"]), hard=hard, longest=8)
        states = list(range(1, table.automaton.state_count))
        rng.shuffle(states)
        for state in states[:40]:
            added += _check(table, state)
    assert added > 100, "some tokens complete a string only after the text of the state"


def _check(table: tables.ConstraintTable, state: int) -> int:
    """How many more tokens complete a match than at the root."""
    view = table.view(state)
    expected = [
        token for token, data in enumerate(table._tokens) if data and feed(table.constraint, state, data)[1]
    ]
    assert view.completing.tolist() == expected
    assert view.may_end
    assert not len(view.pending)
    return len(expected) - len(table.view(table.root).completing)


def test_the_order_in_which_states_are_met_does_not_matter() -> None:
    rng = random.Random(5)
    for _ in range(10):
        seed = rng.random()
        views = []
        for backwards in (False, True):
            table = _table(random.Random(seed), "abe", hard=True, longest=9)
            states = sorted(range(1, table.automaton.state_count), reverse=backwards)
            views.append({state: table.view(state).completing.tolist() for state in states})
        assert views[0] == views[1]


def test_tokens_of_hundreds_of_bytes_complete_strings_as_long() -> None:
    rule = StringRule(id="s", strings=("x" + "a" * 254,))
    (_, constraint) = compile_policy(Policy(name="p", rules=(rule,))).constraints()
    vocabulary = toy_vocabulary(["a" * length for length in (249, 250, 251, 253, 254, 255, 300)])
    joint = JointTables(
        [*compile_policy(Policy(name="p", rules=(rule,))).constraints()[:1], constraint],
        vocabulary,
        PrefixTree(vocabulary.tokens),
    )
    state = constraint.automaton.step(constraint.automaton.start, ord("x"))
    for _ in range(5):
        _check(joint.tables[1], state)
        state = constraint.automaton.step(state, ord("a"))
