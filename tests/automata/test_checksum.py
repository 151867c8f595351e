"""Checksum rules match exactly the spans that Python's `re` matches and whose characters pass the sum."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from nco_guard.automata import CHECKSUMS, Checksum, ChecksumMachine, ClassAutomaton
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.spans.definition import find_spans, matches
from nco_guard.compiler.checksums import checksum_of
from nco_guard.policy.check_digits import read_checksum
from tests.automata import patterns
from tests.automata.checksum_reference import CHECKS, VALID, luhn, mod97, valid_spans

CARDS = [
    "4111 1111 1111 1111",
    "5555-5555-5555-4444",
    "378282246310005",
    "3782 822463 10005",
    "6011111111111117",
    "30569309025904",
    "3530111333300000",
    "2223003122003222",
    "4222222222222",
    "6205500000000000004",
]
IBANS = [
    "GB82 WEST 1234 5698 7654 32",
    "DE89370400440532013000",
    "fr76 3000 6000 0112 3456 7890 189",
    "NO93 8601 1117 947",
    "MT84MALT011000012345MTLCAST001S",
    "BE68-5390-0754-7034",
    "IT60X0542811101000000123456",
]
DIGITS = [
    "0",
    "1",
    "2",
    "5",
    "9",
    "[0-9]",
    r"\d",
    "[1-5]",
    "[0-9]{2}",
    r"(?:\d[ -]?){3}",
    r"\d{1,3}",
    ".",
    "-?",
]
LETTERED = ("mod97", "letters", "check first", "check", "table", "number", "last letter", "from the right")
FOR_DIGITS, FOR_LETTERS = "0123456789 -", "0123456789AKab -"
RARE_DIGITS, RARE_LETTERS = "٤५9", "٤५\u212aſıİ"


def sum_of(checksum: str) -> Checksum:
    return checksum_of(read_checksum(CHECKS[checksum]))


def sum_pattern(rng: random.Random, checksum: str) -> str:
    """Random sequences, alternatives and repeats of digits (and letters), some with assertions around them."""
    atoms = DIGITS + (
        ["[A-Z]", "(?i:[a-k])", r"\w", r"\w{5}", r"(?:-?\w){5,7}"] if checksum in LETTERED else []
    )

    def build(depth: int) -> str:
        r = rng.random()
        if depth == 0 or r < 0.3:
            return rng.choice(atoms)
        if r < 0.7:
            return build(depth - 1) + build(depth - 1)
        if r < 0.8:
            return f"(?:{build(depth - 1)}|{build(depth - 1)})"
        if r < 0.9:
            return f"(?:{build(depth - 1)}){rng.choice(['{2}', '{1,3}', '?', '{,2}', '*', '+'])}"
        return rng.choice([r"\b", r"(?<!\d)", r"(?!\d)", "(?=.*5)", r"(?!.*--)", r"(?<=\d)", "$", "^"])

    body = build(4)
    if rng.random() < 0.4:
        body += rng.choice([r"(?!\d)", r"\b", "(?=-)", "$", "(?!.*9)"])
    return body


def cases(seed: int, count: int, checksum: str, texts: int, longest: int = 10):
    rng = random.Random(seed)
    while count:
        if rng.random() < 0.25:
            pattern, flags = patterns.valid_pattern(rng)
        else:
            pattern, flags = sum_pattern(rng, checksum), 0
        try:
            re.compile(pattern, flags)
        except re.error:
            continue
        count -= 1
        lettered = checksum in LETTERED
        letters = (FOR_LETTERS if lettered else FOR_DIGITS) * 3 + (RARE_LETTERS if lettered else RARE_DIGITS)
        for _ in range(texts):
            text = "".join(rng.choice(letters) for _ in range(rng.randint(0, longest)))
            yield pattern, flags, repaired(rng, text) if checksum == "mod97" and rng.random() < 0.8 else text


def repaired(rng: random.Random, text: str) -> str:
    """The text with two neighbouring characters made such digits that some span passes MOD 97-10, if they can."""
    for _ in range(5):
        start = rng.randint(0, max(0, len(text) - 5))
        for digits in rng.sample(range(100), 100):
            candidate = f"{text[: start + 2]}{digits:02}{text[start + 4 :]}"
            if mod97(candidate[start:]):
                return candidate
    return text


@pytest.mark.parametrize("checksum", CHECKS)
@pytest.mark.parametrize("seed", range(2))
def test_a_match_exists_exactly_when_some_span_matches_and_passes(checksum: str, seed: int) -> None:
    check_against_reference(checksum, seed, 200)


@pytest.mark.slow
@pytest.mark.parametrize("checksum", CHECKS)
@pytest.mark.parametrize("seed", range(100, 105))
def test_a_match_exists_exactly_when_some_span_matches_and_passes_at_length(checksum: str, seed: int) -> None:
    check_against_reference(checksum, seed, 3000)


def check_against_reference(checksum: str, seed: int, count: int) -> None:
    machines: dict[tuple[str, int], ChecksumMachine] = {}
    hits = 0
    for pattern, flags, text in cases(seed, count, checksum, 8):
        machine = machines.get((pattern, flags))
        if machine is None:
            machine = machines[pattern, flags] = ChecksumMachine(parse(pattern, flags), sum_of(checksum))
        spans = valid_spans(pattern, flags, CHECKS[checksum], text)
        assert matches(machine, text) == bool(spans), (pattern, flags, text)
        expected, position = [], 0
        for start in range(len(text)):
            ends = [end for begin, end in spans if begin == start >= position]
            if ends:
                expected.append((start, max(ends)))
                position = max(ends)
        assert list(find_spans(machine, text)) == expected, (pattern, flags, text)
        hits += bool(spans)
    assert hits > (50 if checksum == "luhn" else 2)


@pytest.mark.parametrize("checksum", CHECKS)
def test_a_step_reports_every_end_of_a_match_that_passes(checksum: str) -> None:
    for pattern, flags, text in cases(7, 200, checksum, 4):
        if any(mark in pattern for mark in ("(?=", "(?!", "(?<", "\\b", "\\B", "$", "^", "\\A", "\\Z")):
            continue
        machine = ChecksumMachine(parse(pattern, flags), sum_of(checksum))
        state, found = machine.start, set()
        for end, cls in enumerate(machine.classes.of_text(text), start=1):
            state = machine.step(state, cls)
            if state < 0:
                found.add(end)
                state = ~state
        assert found == {end for _, end in valid_spans(pattern, flags, CHECKS[checksum], text)}, (
            pattern,
            flags,
            text,
        )


@pytest.mark.parametrize("checksum", CHECKS)
def test_bytes_and_characters_agree_and_what_is_doomed_cannot_end(checksum: str) -> None:
    known: tuple[tuple[str, int], ChecksumMachine, ClassAutomaton] | None = None
    for pattern, flags, text in cases(11, 60, checksum, 4, 7):
        if known is None or known[0] != (pattern, flags):
            machine = ChecksumMachine(parse(pattern, flags), sum_of(checksum))
            known = (pattern, flags), machine, ClassAutomaton(machine, absorbing=False)
        _, machine, automaton = known
        assert patterns.found_in_bytes(automaton, text) == matches(machine, text), (pattern, flags, text)
        state = machine.start
        for cls in machine.classes.of_text(text):
            state = machine.step(state, cls)
            if state < 0:
                break
        if state >= 0 and machine.doomed(state):
            for length in range(3):
                for more in itertools.product("05A-\n", repeat=length):
                    assert valid_spans(pattern, flags, CHECKS[checksum], text + "".join(more)), (
                        pattern,
                        text,
                        more,
                    )


@pytest.mark.parametrize("text", CARDS)
def test_luhn_knows_card_numbers_and_their_typos(text: str) -> None:
    machine = ChecksumMachine(parse(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)"), CHECKSUMS["luhn"])
    assert luhn(text)
    assert list(find_spans(machine, f"card {text}.")) == [(5, 5 + len(text))]
    for i in (i for i, c in enumerate(text) if c.isdigit()):
        typo = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        assert not luhn(typo)
        assert not matches(machine, f"card {typo}.")


@pytest.mark.parametrize("text", IBANS)
def test_mod97_knows_ibans_and_their_typos(text: str) -> None:
    machine = ChecksumMachine(
        parse(r"(?i)(?<![a-z0-9])[a-z]{2}[0-9]{2}(?:[ -]?[a-z0-9]){11,30}(?=\.)"), CHECKSUMS["mod97"]
    )
    assert mod97(text)
    assert list(find_spans(machine, f"to {text}.")) == [(3, 3 + len(text))]
    for i in (i for i, c in enumerate(text) if c.isdigit()):
        typo = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        assert not mod97(typo)
        assert not matches(machine, f"to {typo}.")


def test_digits_of_all_scripts_count_by_their_value() -> None:
    arabic = "4111111111111111".translate({ord(str(i)): 0x660 + i for i in range(10)})
    machine = ChecksumMachine(parse(r"\d{16}"), CHECKSUMS["luhn"])
    assert matches(machine, arabic)
    assert not matches(machine, arabic[:-1] + "٢")


def test_without_digits_no_sum_passes() -> None:
    assert not matches(ChecksumMachine(parse("[a-z]{3}|x*"), CHECKSUMS["luhn"]), "abcx")
    assert not matches(ChecksumMachine(parse("[0-9]{1,4}"), CHECKSUMS["mod97"]), "0001")
    assert matches(ChecksumMachine(parse("[0-9]{5}"), CHECKSUMS["mod97"]), "00010")


def test_the_reference_sums_agree_with_each_others_examples() -> None:
    assert [VALID["luhn"](text) for text in ("0", "18", "", "79927398713", "79927398710")] == [
        True,
        True,
        False,
        True,
        False,
    ]
