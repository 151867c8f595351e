"""Texts that lead the automaton of a rule to ever new states: what searches them lets go of what it has found."""

from __future__ import annotations

import random
import re

import pytest
from interegular import parse_pattern

from nco_guard import Guard
from nco_guard.analysis.tracking import Tracker
from nco_guard.automata import (
    CHECKSUMS,
    AlternatingMachine,
    ChecksumMachine,
    FoldedMachine,
    FoldSpec,
    FsmMachine,
)
from nco_guard.automata.patterns.parsing import parse
from nco_guard.compiler import compile_policy
from nco_guard.policy import AutomatonRule, Policy, RegexRule, Rule
from nco_guard.scan import StreamVerifier, exposure, redact
from nco_guard.scan.definition import verify_by_definition
from nco_guard.values import Cleaner

GROWING = RegexRule(id="growing", regex=r"a.{18}b")
IBAN = RegexRule(id="iban", regex=r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]){4,10}", checksum="mod97")
PATTERNS = (
    r"a.{6}b",
    r"(?<=a.{5})b(?!c)",
    r"\ba(?=.{3}b).{2}c\b",
    r"a(?!.{4}b)c{2,}",
    r"(?:a|b.)*c(?<!aac)a",
    r"^a|bc$",
)


def policy_of(*rules: Rule) -> Policy:
    return Policy(name="long", rules=rules)


def written(letters: str, length: int, seed: int = 0) -> str:
    return "".join(random.Random(seed).choices(letters, k=length))


def machines() -> list[AlternatingMachine | FoldedMachine | FsmMachine]:
    plain = [AlternatingMachine(parse(pattern), every_end=True) for pattern in PATTERNS]
    folded = [
        FoldedMachine(AlternatingMachine(parse(pattern), every_end=True), FoldSpec("nfkc", "", True))
        for pattern in PATTERNS
    ]
    sums = [ChecksumMachine(parse(r"[ab]?\d{2,6}(?!c)"), CHECKSUMS["luhn"])]
    return [*plain, *folded, *sums, FsmMachine(parse_pattern("a.{5}b").to_fsm())]


@pytest.mark.parametrize("number", range(len(machines())))
def test_a_machine_that_was_carried_over_goes_on_as_the_one_it_came_from(number: int) -> None:
    machine, rng = machines()[number], random.Random(number)
    for _ in range(15):
        carried, states = machine, [machine.start] * 2
        for cls in machine.classes.of_text("".join(rng.choices("aabbc 12\\n", k=60))):
            if rng.random() < 0.2:
                carried, (_, states[1]) = carried.carried((carried.start, states[1]))
                assert carried.state_count <= 4
            answers = machine.step(states[0], cls), carried.step(states[1], cls)
            assert (answers[0] < 0) == (answers[1] < 0)
            states = [~state if state < 0 else state for state in answers]
            assert machine.may_end(states[0]) == carried.may_end(states[1])
            assert machine.doomed(states[0]) == carried.doomed(states[1])
            assert machine.distance(states[0]) == carried.distance(states[1])


def numbers_pass(text: str) -> bool:
    digits = "".join(str(int(c, 36)) for c in text[4:] + text[:4] if c != " ")
    return len(text.replace(" ", "")) > 4 and int(digits) % 97 == 1


def ibans(text: str) -> list[tuple[int, int]]:
    """By trying every end at every place."""
    shape, found, done = re.compile(IBAN.regex), list[tuple[int, int]](), 0
    for begin in re.finditer(r"(?=[A-Z]{2}\d{2})", text):
        start = begin.start()
        for end in range(min(len(text), start + 24), start, -1):
            if start >= done and shape.fullmatch(text, start, end) and numbers_pass(text[start:end]):
                found.append((start, end))
                done = end
    return found


@pytest.mark.parametrize("letters", ["a" * 50 + "c" * 25 + "b", "abcdefgh ."])
def test_a_long_text_of_new_states_is_verified_and_redacted(letters: str) -> None:
    text = written(letters, 200_000)
    guard = Guard(policy_of(GROWING))
    expected = [match.span() for match in re.finditer(GROWING.regex, text)]
    redaction = guard.redact(text, replacement="\n")
    assert [(f.start, f.end) for f in redaction.report.findings] == expected
    assert redaction.text == re.sub(GROWING.regex, "\n", text)
    # And the next one as if nothing had been.
    assert [(f.start, f.end) for f in guard.verify("a" * 19 + "b").findings] == [(0, 20)]


def test_a_long_text_of_new_sums_is_verified_and_redacted() -> None:
    text = written("ABCDE0123456789 ", 200_000)
    guard = Guard(policy_of(IBAN))
    expected = ibans(text)
    assert len(expected) > 100
    redaction = guard.redact(text)
    assert [(f.start, f.end) for f in redaction.report.findings] == expected
    assert guard.verify(redaction.text).ok


@pytest.fixture
def small_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AlternatingMachine.__init__.__kwdefaults__, "state_limit", 1200)
    monkeypatch.setitem(AlternatingMachine.__init__.__kwdefaults__, "thread_limit", 12_000)
    monkeypatch.setitem(ChecksumMachine.__init__.__kwdefaults__, "state_limit", 1200)
    monkeypatch.setitem(FoldedMachine.__init__.__kwdefaults__, "state_limit", 1200)


SMALL = (
    RegexRule(id="plain", regex=r"a.{11}b"),
    RegexRule(id="one-run", regex=r"x[abc]*a[abc]{11}b"),
    RegexRule(id="behind", regex=r"(?<=a.{11})b"),
    RegexRule(id="folded", regex=r"a.{11}b", normalize="nfkc", json_escapes=True),
    AutomatonRule(id="ready", fsm=parse_pattern("a[abcx]{9}b").to_fsm()),
)


@pytest.mark.usefixtures("small_machines")
@pytest.mark.parametrize("rule", SMALL, ids=lambda rule: rule.id)
@pytest.mark.parametrize("letters", ["aac", "a" * 30 + "c" * 30 + "bx"])
def test_small_limits_change_no_finding(rule: Rule, letters: str) -> None:
    text = written(letters, 6_000)
    pattern = rule.regex if isinstance(rule, RegexRule) else "a[abcx]{9}b"
    compiled = compile_policy(policy_of(rule))
    expected = [match.span() for match in re.finditer(pattern, text)]
    if rule.id == "one-run":  # the longest: `re` is greedy, so it finds the same
        assert "x" not in letters or expected
    for _ in range(2):
        assert [(f.start, f.end) for f in Guard(policy_of(rule)).verify(text).findings] == expected
        assert [(f.start, f.end) for f in verify_by_definition(compiled, text).findings] == expected


def in_pieces(text: str, seed: int) -> list[str]:
    rng, pieces = random.Random(seed), list[str]()
    while text:
        size = rng.choice((1, 3, 40, 500))
        pieces.append(text[:size])
        text = text[size:]
    return pieces


@pytest.mark.usefixtures("small_machines")
@pytest.mark.parametrize("rule", [*SMALL, IBAN], ids=lambda rule: rule.id)
def test_a_stream_is_as_long_as_its_text(rule: Rule) -> None:
    letters = "ABCDE0123456789 " if rule is IBAN else "a" * 30 + "c" * 30 + "bx"
    compiled = compile_policy(policy_of(rule))
    for seed in range(2):
        text = written(letters, 5_000, seed)
        whole = redact(compiled, text, replacement="\n")
        stream = StreamVerifier(compiled, replacement="\n")
        shown = [stream.feed(piece) for piece in in_pieces(text, seed)]
        assert "".join((*shown, stream.finish())) == whole.text
        assert stream.report == whole.report


@pytest.mark.usefixtures("small_machines")
def test_values_that_stream_are_as_long_as_they_are() -> None:
    text = written("a" * 30 + "c" * 30 + "bx", 5_000)
    compiled = compile_policy(policy_of(SMALL[0]))
    stream = Cleaner(compiled, replacement="\n").stream()
    shown = [str(value) for piece in in_pieces(text, 0) for value in stream.feed(piece)]
    assert "".join((*shown, *map(str, stream.finish()))) == redact(compiled, text, replacement="\n").text


def test_a_stream_keeps_its_own_machine_where_the_rule_takes_another_one() -> None:
    compiled = compile_policy(policy_of(RegexRule(id="code", regex=r"(?<=code \d{3})\d")))
    text = "the code 12345, code 6789 and code 1" * 3
    for cut in range(len(text)):
        stream = StreamVerifier(compiled)
        shown = stream.feed(text[:cut])
        compiled.rules[0].forget()
        assert shown + stream.feed(text[cut:]) + stream.finish() == redact(compiled, text).text


def test_exposure_and_explanations_read_long_texts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [rule for rule in SMALL if isinstance(rule, RegexRule)]
    text = written("a" * 30 + "c" * 30 + "x", 3_000) + "a" * 8

    def found() -> list[object]:
        compiled = compile_policy(policy_of(*rules))
        trackers = [Tracker(rule, stop=False) for rule in compiled.rules]
        under_way = [one.under_way(text, prompt) for one in trackers for prompt in (0, 2_500)]
        # A lookbehind leads to a new state at each place, and those of all places are kept where starts are asked for.
        few = [one for one, rule in zip(trackers, compiled.rules, strict=True) if rule.id != "behind"]
        completed = [one.completed(text + "b", len(text)) for one in few]
        return [exposure(compiled, text), under_way, completed]

    free = found()
    monkeypatch.setitem(AlternatingMachine.__init__.__kwdefaults__, "state_limit", 100)
    monkeypatch.setitem(FoldedMachine.__init__.__kwdefaults__, "state_limit", 100)
    assert found() == free
