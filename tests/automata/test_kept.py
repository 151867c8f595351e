"""Automata that were explored in part, kept, and gone on with are the automata that they were."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from nco_guard.automata import AhoCorasick, AlternatingMachine, Automaton, ClassAutomaton, FoldedAhoCorasick
from nco_guard.automata.characters import CharMachine
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.well_formed import Utf8Automaton
from nco_guard.errors import PatternError
from tests.automata import patterns


def verdicts(automaton: Automaton, start: int, text: str) -> list[tuple[bool, bool]]:
    """For each byte, whether a match completes with it, and whether the text may end after it."""
    state, found = start, []
    for byte in text.encode():
        state = automaton.step(state, byte)
        matched = state < 0
        state = ~state if matched else state
        found.append((matched, automaton.may_end(state)))
        if matched and getattr(automaton, "absorbing", False):
            break
    return found


def explore(automaton: Automaton, rng: random.Random, count: int) -> None:
    for _ in range(count):
        verdicts(automaton, rng.choice([automaton.start, automaton.spaceless_start]), patterns.text(rng, 12))
    states = np.arange(automaton.state_count, dtype=np.int32)
    automaton.may_end_many(states[:: rng.randint(1, 3)])


def made(rng: random.Random) -> tuple[Callable[[], CharMachine], bool]:
    while True:
        pattern, flags = patterns.valid_pattern(rng)
        absorbing = rng.random() < 0.5
        try:
            node = parse(pattern, flags)
        except PatternError:
            continue
        return partial(AlternatingMachine, node, every_end=not absorbing), absorbing


def check_kept(seed: int, count: int) -> tuple[int, int]:
    """How many automata were compared, and how many states all together had beyond those found by fresh ones."""
    rng = random.Random(seed)
    doubled = 0
    for _ in range(count):
        make, absorbing = made(rng)
        automaton = ClassAutomaton(make(), absorbing=absorbing)
        for _ in range(rng.randint(1, 3)):  # kept and gone on with several times
            explore(automaton, rng, rng.randint(0, 6))
            found = automaton.found()
            assert found is not None
            kept = {name: array.copy() for name, array in found.items()}
            automaton = ClassAutomaton(make, absorbing=absorbing, byte_classes=kept["classes"])
            assert automaton.recall(kept)
        fresh = ClassAutomaton(make(), absorbing=absorbing)
        for _ in range(12):
            text = patterns.text(rng, 12)
            for start in ("start", "spaceless_start"):
                expected = verdicts(fresh, getattr(fresh, start), text)
                assert verdicts(automaton, getattr(automaton, start), text) == expected
        explore(fresh, random.Random(seed), 40)
        explore(automaton, random.Random(seed), 40)
        doubled += len(set(automaton._keys)) < automaton.state_count - 1
    return count, doubled


@pytest.mark.parametrize("seed", range(4))
def test_an_automaton_gone_on_with_gives_the_verdicts_of_a_fresh_one(seed: int) -> None:
    """And no machine state has two numbers: witnesses lead to all of them before anything new is found."""
    assert check_kept(seed, 120) == (120, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_an_automaton_gone_on_with_gives_the_verdicts_of_a_fresh_one_at_length(seed: int) -> None:
    assert check_kept(seed, 2000) == (2000, 0)


def test_the_machine_is_not_made_for_what_is_known() -> None:
    def never() -> CharMachine:
        raise AssertionError("not needed")

    automaton = ClassAutomaton(AlternatingMachine(parse(r"\bas{1,3}\b")), absorbing=True)
    before = verdicts(automaton, automaton.start, "asss bas as")
    kept = automaton.found()
    assert kept is not None
    again = ClassAutomaton(never, absorbing=True, byte_classes=kept["classes"])
    assert again.recall(kept)
    assert verdicts(again, again.start, "asss bas as") == before
    with pytest.raises(AssertionError, match="not needed"):
        again.step(again.start, ord("1"))


def test_what_another_alphabet_has_found_is_refused() -> None:
    kept = ClassAutomaton(AlternatingMachine(parse("abc")), absorbing=True).found()
    assert kept is not None
    assert not ClassAutomaton(AlternatingMachine(parse("ab|d")), absorbing=True).recall(kept)


def test_only_an_automaton_without_steps_takes_up_what_another_found() -> None:
    automaton = ClassAutomaton(AlternatingMachine(parse("abc")), absorbing=True)
    kept = automaton.found()
    assert kept is not None
    automaton.step(automaton.start, ord("a"))
    assert not automaton.recall(kept)


@pytest.mark.parametrize("seed", range(3))
def test_lists_of_strings_keep_the_states_that_they_met(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        strings = sorted({patterns.text(rng, 5) or "a" for _ in range(rng.randint(1, 6))})
        caseless = rng.random() < 0.5

        def fresh(strings: list[str] = strings, caseless: bool = caseless) -> FoldedAhoCorasick:
            return FoldedAhoCorasick(strings, caseless=caseless, whole_word=True, names_hits=True)

        automaton = fresh()
        explore(automaton, rng, 5)
        kept, numbers = automaton.found(), automaton.state_count
        assert kept is not None
        again, expected = FoldedAhoCorasick.from_arrays(automaton.to_arrays()), fresh()
        assert again.recall(kept)
        assert again.state_count == numbers
        for _ in range(10):
            text = patterns.text(rng, 12)
            assert verdicts(again, again.start, text) == verdicts(expected, expected.start, text)
        assert not again.recall(kept) or again.state_count <= 3


def test_complete_automata_have_nothing_to_keep() -> None:
    for automaton in (AhoCorasick([b"ab"]), Utf8Automaton()):
        assert automaton.found() == {}
        assert automaton.recall({})
