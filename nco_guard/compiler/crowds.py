"""Many rules over few characters, run as one automaton."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from nco_guard.automata import (
    ProductMachine,
)
from nco_guard.compiler.compiled_rule import CompiledRule
from nco_guard.compiler.constraints import Constraint, kept_automaton
from nco_guard.policy import RegexRule
from nco_guard.storage.store import digest

__all__ = ["crowd_constraint", "crowds"]


# So many rules are run as one automaton if together they tell at most so many ASCII characters apart: with more letters
# a product would meet a new state at nearly every token. So many kinds of rules are tried to be told apart.
_CROWD = 32

_CROWD_LETTERS = 16

_CROWDS = 8

_EXPLORED_STATES = 64


def crowds(rules: Iterable[CompiledRule]) -> list[tuple[CompiledRule, ...]]:
    """Those of the rules that are many and tell few characters apart, in groups that can be run as one automaton."""
    fit = [
        compiled
        for compiled in rules
        if 0 < len(set(compiled.letters)) <= _CROWD_LETTERS and isinstance(compiled.rule, RegexRule)
    ]
    found: list[tuple[tuple[int, ...], list[CompiledRule]]] = []
    for compiled in fit if len(fit) >= _CROWD else ():
        for place, (letters, members) in enumerate(found):
            numbers: dict[tuple[int, int], int] = {}
            pairs = zip(letters, compiled.letters, strict=True)
            joint = tuple([numbers.setdefault(pair, len(numbers)) for pair in pairs])
            if len(numbers) <= _CROWD_LETTERS:
                members.append(compiled)
                found[place] = (joint, members)
                break
        else:
            if len(found) < _CROWDS:
                found.append((compiled.letters, [compiled]))
    return [tuple(members) for _, members in found if len(members) >= _CROWD]


def crowd_constraint(crowd: tuple[CompiledRule, ...]) -> Constraint:
    """The product of a crowd's machines, and which of its rules a step completes."""

    @cache
    def product() -> ProductMachine:
        made = ProductMachine([compiled.machine(every_end=False, stop=True) for compiled in crowd])
        made.explore(_EXPLORED_STATES)
        return made

    store = crowd[0].store
    key = digest("crowd", *(compiled.key for compiled in crowd)) if store is not None else ""
    automaton = kept_automaton(product, key, store, absorbing=True)
    ids = tuple(compiled.id for compiled in crowd)

    def named(state: int, which: Callable[[int], list[int]]) -> tuple[str, ...]:
        members = sorted({i for inner in automaton.machine_states(state) for i in which(inner)})
        return tuple([ids[i] for i in members])

    return Constraint(
        ids,
        automaton,
        rules_at=lambda state: named(state, product().completed_by),
        rules_at_end=lambda state: named(state, product().pending_in),
        key=key,
    )
