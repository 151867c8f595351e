"""Distances are what they promise: with fewer bytes no match completes, and the text may end after all of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from interegular import parse_pattern

from nco_guard.automata import AhoCorasick, AlternatingMachine, Automaton, ClassAutomaton, FoldedAhoCorasick
from nco_guard.automata.automaton import SINK
from nco_guard.automata.characters import CharMachine
from nco_guard.automata.combine.product import ProductMachine
from nco_guard.automata.folding import FoldSpec
from nco_guard.automata.patterns.checksum import ChecksumMachine
from nco_guard.automata.patterns.folded_text import FoldedMachine
from nco_guard.automata.patterns.fsm import FsmMachine
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.patterns.sums import CHECKSUMS
from nco_guard.automata.well_formed import Utf8Automaton
from nco_guard.errors import PatternError, StateLimitError
from tests.automata import patterns

ALPHABET = sorted(set("abkK1_ \n-é\u212aß\\u06".encode()) | {0x80, 0xE2, 0xF0, 0x9F, 0x96, 0x95})
FOLDS = [
    FoldSpec(normalize="nfkc"),
    FoldSpec(json_escapes=True),
    FoldSpec(normalize="nfkc", json_escapes=True),
]


def check_distances(automaton: Automaton, rng: random.Random, walks: int = 6) -> int:
    """Follow random texts; from each state on the way, try all ways of fewer bytes than its distance."""
    tried = 0
    for start in (automaton.start, automaton.spaceless_start):
        for _ in range(walks):
            state = start
            for byte in rng.choices(ALPHABET, k=rng.randint(0, 6)):
                reached = automaton.step(state, byte)
                state = ~reached if reached < 0 else reached
            if state == SINK:
                continue
            distance = int(automaton.distances(np.array([state], np.int32))[0])
            if distance:
                assert automaton.may_end(state)
            level = {state}
            for _ in range(min(distance - 1, 4)):
                ahead: set[int] = set()
                for current in level:
                    for byte in ALPHABET:
                        reached = automaton.step(current, byte)
                        assert reached >= 0, "a match completed too early"
                        assert automaton.may_end(reached)
                        ahead.add(reached)
                tried += len(ahead)
                level = ahead - {SINK}
                if len(level) > 40:
                    level = set(rng.sample(sorted(level), 40))
    return tried


def machine(rng: random.Random, depth: int) -> CharMachine:
    """A random machine of one of the kinds that there are."""
    kind = rng.randrange(6)
    every_end = rng.random() < 0.3
    while True:
        try:
            pattern, flags = patterns.valid_pattern(rng, depth)
            # A beginning, so that matches are more than a byte away.
            node = parse(rng.choice(["", "ab", "a.k", "1[ab]{3}"]) + pattern, flags)
            if kind == 0:
                return ProductMachine([AlternatingMachine(node), AlternatingMachine(parse("k1a"))])
            if kind == 1:
                return ChecksumMachine(node, rng.choice(list(CHECKSUMS.values())))
            if kind == 2:
                return FoldedMachine(AlternatingMachine(node), rng.choice(FOLDS))
            return AlternatingMachine(node, every_end=every_end)
        except PatternError:
            continue


@pytest.mark.parametrize("seed", range(60))
def test_no_match_completes_nearer_than_the_distance_of_a_pattern(seed: int) -> None:
    rng = random.Random(seed)
    try:
        check_distances(ClassAutomaton(machine(rng, 3), absorbing=rng.random() < 0.7), rng)
    except StateLimitError:
        pytest.skip("too many states")


@pytest.mark.parametrize("pattern", ["abk[1k]", "(a|bk)*1kab", "k{3}", "ab|_1{4}"])
def test_no_match_completes_nearer_than_the_distance_of_an_fsm(pattern: str) -> None:
    fsm = parse_pattern(pattern).to_fsm()
    assert check_distances(ClassAutomaton(FsmMachine(fsm), absorbing=True), random.Random(0)) > 20


@pytest.mark.parametrize("seed", range(20))
def test_no_match_completes_nearer_than_the_distance_of_a_list(seed: int) -> None:
    rng = random.Random(seed)
    words = ["".join(rng.choices("abkK1_ -é🖕", k=rng.randint(1, 7))) for _ in range(rng.randint(1, 5))]
    check_distances(AhoCorasick([word.encode() for word in words]), rng)
    for caseless, whole_word in ((True, False), (True, True), (False, True)):
        automaton = FoldedAhoCorasick(
            words, caseless=caseless, whole_word=whole_word, names_hits=rng.random() < 0.3
        )
        check_distances(automaton, rng)


def test_nothing_happens_to_well_formed_text_within_its_distance() -> None:
    automaton = Utf8Automaton()
    within = automaton.step(automaton.start, 0xE2)
    assert automaton.distances(np.array([automaton.start, within], np.int32)).tolist() == [1, 0]
    assert not automaton.may_end(within)
    assert all(automaton.step(automaton.start, byte) == automaton.start for byte in range(0x80))


def test_distances_are_not_all_zero() -> None:
    """Else the tests above would say nothing."""
    automaton = ClassAutomaton(AlternatingMachine(parse(r"\bAKIA[0-9A-Z]{16}\b")), absorbing=True)
    after = automaton.step(automaton.start, ord("x"))
    assert automaton.distances(np.array([automaton.start, after], np.int32)).tolist() == [20, 20]
    words = FoldedAhoCorasick(["ass", "shit"], caseless=True, whole_word=True)
    within = words.step(words.start, ord("x"))
    assert words.distances(np.array([words.start, within], np.int32)).tolist() == [3, 4]
