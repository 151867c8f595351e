"""A compiled policy that was revised forbids what the same policy compiled from scratch forbids, and builds less."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from nco_guard.automata import AhoCorasick
from nco_guard.automata.strings import groups
from nco_guard.compiler import CompiledPolicy, Constraint, compile_policy
from nco_guard.errors import PolicyError
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.scan.definition import verify_by_definition


def _random_rule(rng: random.Random, name: str) -> Rule:
    if rng.random() < 0.2:
        return RegexRule(id=name, regex=rng.choice(["ab+c", r"\bca\b", "(?i)k{2}"]), context="prompt")
    strings = tuple("".join(rng.choices("abcK ", k=rng.randint(1, 4))) for _ in range(rng.randint(1, 5)))
    return StringRule(
        id=name,
        strings=strings,
        case=rng.choice(["exact", "fold"]),
        whole_word=rng.random() < 0.4,
        penalty=2.0 if rng.random() < 0.2 else float("inf"),
        context=rng.choice(["output", "prompt"]),
        ignore=("-",) if rng.random() < 0.1 else (),
    )


def _events(constraints: tuple[Constraint, ...], text: str) -> list[set[tuple[str, float]]]:
    """For each byte and for the end of the text: the rules that complete with it, and what that costs."""
    states = [c.automaton.start for c in constraints]
    found: list[set[tuple[str, float]]] = []
    for byte in text.encode():
        here: set[tuple[str, float]] = set()
        for i, c in enumerate(constraints):
            state = c.automaton.step(states[i], byte)
            if state < 0:
                state = ~state
                names = c.rules_at(state) if c.rules_at else c.rule_ids
                here.update((name, c.penalty) for name in names)
            states[i] = state
        found.append(here)
    at_end = [
        (name, c.penalty)
        for c, state in zip(constraints, states, strict=True)
        if not c.automaton.may_end(state)
        for name in (c.rules_at_end(state) if c.rules_at_end else c.rule_ids)
    ]
    return [*found, set(at_end)]


def _check(revised: CompiledPolicy, rng: random.Random) -> None:
    scratch = compile_policy(revised.policy)
    assert [c.id for c in revised.rules] == [c.id for c in scratch.rules]
    assert revised.digest == scratch.digest
    mine, theirs = revised.constraints(), scratch.constraints()
    for _ in range(15):
        text = "".join(rng.choices("abcKk- ", k=12))
        assert _events(mine, text) == _events(theirs, text), text
        assert verify_by_definition(revised, text) == verify_by_definition(scratch, text)


@pytest.mark.parametrize("seed", range(8))
def test_any_sequence_of_changes_leads_to_the_policy_compiled_from_scratch(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "SMALL", random.Random(seed).choice([1, 3, 8]))
    rng = random.Random(seed)
    compiled = compile_policy(Policy(name="p", rules=tuple(_random_rule(rng, f"r{i}") for i in range(3))))
    for change in range(12):
        rules = compiled.policy.rules
        kind = rng.choice(["add", "add", "remove", "grow", "shrink", "replace"])
        chosen = rng.choice(rules)
        if kind == "remove" and len(rules) > 1:
            compiled = compiled.without(chosen.id)
        elif kind in ("grow", "shrink") and isinstance(chosen, StringRule):
            new = (*chosen.strings, "bc", "K") if kind == "grow" else (chosen.strings[1:] or ("q",))
            changed = [r.model_copy(update={"strings": new}) if r is chosen else r for r in rules]
            compiled = compiled.revised(compiled.policy.model_copy(update={"rules": tuple(changed)}))
        elif kind == "replace":
            changed = [_random_rule(rng, r.id) if r is chosen else r for r in rules]
            compiled = compiled.revised(compiled.policy.model_copy(update={"rules": tuple(changed)}))
        else:
            compiled = compiled.with_rules(_random_rule(rng, f"new{change}"))
        _check(compiled, rng)


def _policy(count: int) -> Policy:
    strings = tuple(f"string number {i}" for i in range(count))
    return Policy(name="p", rules=(StringRule(id="many", strings=strings), RegexRule(id="r", regex="x+y")))


def test_constraints_that_are_still_wanted_are_the_same_objects() -> None:
    before = compile_policy(_policy(5000))
    old = before.constraints()
    after = before.with_rules(StringRule(id="one", strings=("another",)))
    new = after.constraints(reuse=old)
    assert [c for c in new if not any(c is o for o in old)] == [new[-1]]
    assert new[-1].rule_ids == ("one",)
    assert all(any(c is o for o in after.without("one").constraints(reuse=new)) for c in old)
    # Without `reuse` what is found lazily is fresh; the automaton of the strings is complete, and shared.
    again = before.constraints()
    assert [a.automaton is o.automaton for a, o in zip(again, old, strict=True)] == [False, False, True]


def test_strings_at_the_end_of_a_list_come_beside_the_automaton_of_the_others() -> None:
    before = compile_policy(_policy(5000))
    rule = before.policy.rules[0]
    assert isinstance(rule, StringRule)
    longer = rule.model_copy(update={"strings": (*rule.strings, "another")})
    after = before.revised(before.policy.model_copy(update={"rules": (longer, before.policy.rules[1])}))
    assert [len(group) for group in after.groups] == [5000, 1]
    assert after.groups[0] is before.groups[0]
    assert [group.rule_ids for group in after.groups] == [("many",), ("many",)]


def test_groups_stay_few_however_often_strings_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SMALL", 4)
    compiled = compile_policy(_policy(100))
    for i in range(60):
        compiled = compiled.with_rules(StringRule(id=f"s{i}", strings=(f"added {i}",)))
        assert len(compiled.groups) <= 7
        assert sum(map(len, compiled.groups)) == 101 + i
    assert any(len(group) > 4 for group in compiled.groups[1:])


def test_adding_one_string_to_ten_thousand_builds_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[str, ...]] = []
    of_texts = AhoCorasick.of_texts

    def counted(strings: Sequence[str]) -> AhoCorasick:
        built.append(tuple(strings))
        return of_texts(strings)

    monkeypatch.setattr(AhoCorasick, "of_texts", counted)
    compiled = compile_policy(_policy(10_000))
    old = compiled.constraints()
    assert [len(strings) for strings in built] == [10_000]
    for i in range(5):
        policy = compiled.policy.with_rules(StringRule(id=f"n{i}", strings=("another",)))
        compiled.revised(policy).constraints(reuse=old)
    assert built[1:] == [("another",)] * 5


def test_unknown_and_known_ids_are_refused_as_the_policy_refuses_them() -> None:
    compiled = compile_policy(_policy(1))
    with pytest.raises(PolicyError, match="no rule"):
        compiled.without("nothing")
    with pytest.raises(PolicyError, match="same id"):
        compiled.with_rules(StringRule(id="r", strings=("a",)))


def test_lists_of_a_hundred_thousand_strings_are_compiled_and_verified_without_a_pattern() -> None:
    strings = tuple(f"{i:06d} entry" for i in range(100_000))
    for options in ({}, {"case": "fold"}, {"whole_word": True}):
        compiled = compile_policy(
            Policy(name="p", rules=(StringRule(id="many", strings=strings, **options),))
        )
        report = verify_by_definition(compiled, "no, 000123 entry and 99999 entries")
        assert [(f.start, f.end) for f in report.findings] == [(4, 16)]
        (constraint,) = compiled.constraints()[1:]
        state = constraint.automaton.start
        completed = []
        for position, byte in enumerate(b"no, 000123 entry and 99999 entries"):
            state = constraint.automaton.step(state, byte)
            if state < 0:
                state = ~state
                completed.append(position)
        assert completed == [16 if "whole_word" in options else 15]
        assert isinstance(constraint.automaton, AhoCorasick) == (not options)
