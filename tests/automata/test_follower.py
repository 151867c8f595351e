"""Longest matches from given places: the same as the machine's own search, and linear."""

from __future__ import annotations

import random

import pytest

from nco_guard.automata import AlternatingMachine, ChecksumMachine
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.spans.follower import PatternFollower, spans_at
from nco_guard.automata.spans.machines import PatternRuns, runs_of
from nco_guard.compiler.checksums import checksum_of
from nco_guard.errors import PatternError
from nco_guard.policy.check_digits import read_checksum
from tests.automata import patterns
from tests.automata.checksum_reference import CHECKS


def longest_by_definition(machine: AlternatingMachine, text: str) -> list[int | None]:
    """`AlternatingMachine.longest_from` at every place."""
    classes, state = machine.classes.of_text(text), machine.start
    found = [machine.longest_from(state, classes, 0)]
    for place, cls in enumerate(classes, start=1):
        state = machine.step(state, cls)
        state = ~state if state < 0 else state
        found.append(machine.longest_from(state, classes, place))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_longest_match_from_every_place_is_that_of_the_machine(seed: int) -> None:
    rng = random.Random(seed)
    done = 0
    while done < 150:
        pattern, flags = patterns.valid_pattern(rng, 4)
        try:
            node = parse(pattern, flags)
        except PatternError:
            continue
        machine = AlternatingMachine(node, every_end=True)
        runs = PatternRuns(machine)
        done += 1
        for _ in range(4):
            text = patterns.text(rng, 14)
            expected = longest_by_definition(machine, text)
            finder = PatternFollower(runs, text, 0, len(text))
            order = rng.sample(range(len(text) + 1), len(text) + 1)
            assert {place: finder.longest(place) for place in order} == {
                place: (end, False) for place, end in enumerate(expected)
            }, (pattern, flags, text)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_decided_before_the_rest_of_the_text_comes_stays_so(seed: int) -> None:
    rng = random.Random(seed)
    decided = 0
    for _ in range(300):
        pattern, flags = patterns.valid_pattern(rng, 3)
        try:
            runs = runs_of(AlternatingMachine(parse(pattern, flags), every_end=True))
        except PatternError:
            continue
        text = patterns.text(rng, 12)
        cut = rng.randint(0, len(text))
        low = rng.randint(0, cut)
        early = PatternFollower(runs, text, 0, cut, closes=False)
        middle = PatternFollower(runs, text, low, len(text), opens=False) if low > runs.reach else None
        whole = PatternFollower(runs, text, 0, len(text))
        for place in range(cut + 1):
            end, is_open = early.longest(place)
            if not is_open:
                decided += 1
                assert whole.longest(place) == (end, False), (pattern, flags, text, cut)
            if middle is not None and place >= low:
                assert middle.longest(place) == whole.longest(place), (pattern, flags, text, low)
    assert decided > 100


@pytest.mark.parametrize("seed", range(2))
def test_matches_begin_at_candidates_only(seed: int) -> None:
    rng = random.Random(seed)
    tried = left_out = 0
    for _ in range(300):
        pattern, flags = patterns.valid_pattern(rng, 3)
        try:
            runs = runs_of(AlternatingMachine(parse(pattern, flags), every_end=True))
        except PatternError:
            continue
        text = patterns.text(rng, 12)
        first, closes = rng.randint(0, len(text)), rng.random() < 0.5
        everywhere = range(first, len(text) + 1)
        some = list(PatternFollower(runs, text, 0, len(text), closes=closes).candidates(first))
        found = [
            list(spans_at(PatternFollower(runs, text, 0, len(text), closes=closes), places, first))
            for places in (some, everywhere)
        ]
        assert found[0] == found[1], (pattern, flags, text, first, closes)
        tried, left_out = tried + len(everywhere), left_out + len(everywhere) - len(set(some))
    assert left_out > tried / 10


@pytest.mark.parametrize("checksum", CHECKS)
def test_with_a_checksum_the_same(checksum: str) -> None:
    rng = random.Random(7)
    for pattern in (r"[\d -]+", r"\d{2,9}(?!\d)", r"[a-c\d]{3,}", r"(?<!1)\d(?: ?\d)*(?= )"):
        machine = ChecksumMachine(parse(pattern), checksum_of(read_checksum(CHECKS[checksum])))
        runs = PatternRuns(machine)
        for _ in range(30):
            text = "".join(rng.choice("0123456789ab ") for _ in range(30))
            finder = PatternFollower(runs, text, 0, len(text))
            assert [finder.longest(place)[0] for place in range(len(text) + 1)] == longest_by_definition(
                machine, text
            )


@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        (r"(a+)+$", "a"),
        (r"(?:a+)+b", "a"),
        (r"(x+x+)+y", "x"),
        (r"(?s)a.*b|a", "a"),
        (r"(?s)a(?=.*b)", "a"),
        (r"(?s)a(?!.*b)", "a"),
        (r"a{1,30}b", "a"),
        (r"(?:a|aa)+c|a", "a"),
        (r"[ab]*a[ab]{4}c", "ab"),
    ],
)
def test_the_work_of_all_places_together_is_linear(pattern: str, unit: str) -> None:
    """Counted in characters read, which grow as the text does: not a time, so no machine can fail it by chance."""

    def work(length: int) -> int:
        runs = PatternRuns(AlternatingMachine(parse(pattern), every_end=True))
        text = (unit * length)[:length] + "!"
        finder = PatternFollower(runs, text, 0, len(text))
        place = 0
        while place <= len(text):
            end, _ = finder.longest(place)
            place = max(place + 1, end or 0)
        return finder.steps

    assert work(4_000) < 2.2 * work(2_000) + 1_000
    assert work(4_000) < 100 * 4_000
