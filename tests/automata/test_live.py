"""Where matches under way began, and which text made certain, against a follower that is asked start by start."""

from __future__ import annotations

import random

import interegular
import pytest

from nco_guard import AutomatonRule, RegexRule, StringRule
from nco_guard.automata import SubstringSearcher
from nco_guard.automata.patterns.alternating import AlternatingMachine
from nco_guard.automata.spans.definition import longest_beginning
from nco_guard.automata.spans.folds import FoldedText
from nco_guard.automata.spans.follower import follow, source_of
from nco_guard.automata.spans.live import live_matches, longest_open
from nco_guard.automata.spans.machines import PatternRuns
from nco_guard.compiler import CompiledRule
from tests.automata import patterns
from tests.automata.test_span_stream import FOLDED, PIECES, random_rule


def by_starts(
    rule: CompiledRule, text: str, done: int, prompt: int, *, final: bool
) -> tuple[int | None, int | None]:
    """The first match under way at the end of a text, and the first that became certain from `done` on."""
    source, spec = source_of(rule.blocking_searcher)
    folded = FoldedText(spec)
    shown = folded.feed(text, final=final)
    beyond = folded.upto(prompt) if prompt >= 0 else -1
    read = len(FoldedText(spec).feed(text[:done]))
    first = completed = None
    for start in range(len(shown) + 1):
        ends, is_open = follow(source, shown, closes=final, beyond=beyond).ends(start)
        if first is None and is_open and start < len(shown):
            first = folded.place(start)
        if completed is None and any(place >= read for _, place in ends):
            completed = folded.place(start)
    return first, completed


def check(chance: random.Random, rule: CompiledRule, text: str, prompt: int) -> None:
    beyond = prompt or -1
    live = live_matches(rule.blocking_searcher, prompt=beyond)
    places, ways = [(0, live, live.first)], 12
    while (done := places[-1][0]) < len(text) and (ways := ways - 1):
        read = min(done + chance.choice([1, 1, 2, 3, 7]), len(text), *([prompt] if done < prompt else []))
        live, completed = places[-1][1].read(text[done:read])
        assert (live.first, completed) == by_starts(rule, text[:read], done, beyond, final=False)
        places.append((read, live, live.first))
        if chance.random() < 0.3:  # back to an earlier place, where nothing has changed
            del places[chance.randint(1, len(places)) :]
            done, live, first = places[-1]
            assert live.first == first
            if done >= prompt:
                _, completed = live.read(text[done:], final=True)
                assert completed == by_starts(rule, text, done, beyond, final=True)[1]


@pytest.mark.parametrize("seed", range(150))
def test_random_patterns(seed: int) -> None:
    chance = random.Random(seed)
    rule = random_rule(chance)
    if rule is None:
        return
    for _ in range(10):
        prompt = patterns.text(chance, 4) if chance.random() < 0.3 else ""
        check(chance, rule, prompt + patterns.text(chance, 14), len(prompt))


OTHERS = [
    *FOLDED,
    StringRule(id="s", strings=("ab", "abba", "b1", "kab"), whole_word=True, case="fold"),
    StringRule(id="s", strings=("ab", "abba", "b1", "kab", "bab1")),
    AutomatonRule(id="a", fsm=interegular.parse_pattern("ab+|b1|k").to_fsm()),
    RegexRule(id="r", regex=r"[abk]{2}1 ?[ab]+x", stop_at="[abk]1"),
    RegexRule(id="c", regex=r"\d{6}", checksum="luhn"),
]


@pytest.mark.parametrize("rule", OTHERS, ids=range(len(OTHERS)))
def test_rules_of_every_kind(rule: RegexRule | StringRule | AutomatonRule) -> None:
    chance, compiled = random.Random(3), CompiledRule(rule)
    pieces = [*"0123456789"] if rule.id == "c" else [*PIECES, "ab", "ba", "b1"]
    for _ in range(300):
        prompt = "".join(chance.choices(pieces, k=chance.randint(0, 4))) if chance.random() < 0.4 else ""
        text = "".join(chance.choices(pieces, k=chance.randint(0, 9)))
        check(chance, compiled, prompt + text, len(prompt))


def test_runs_that_are_crowded_are_gone_on_with_in_others(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(random.Random(2).choices("aabcx", k=3_000))
    pattern = RegexRule(id="r", regex="(?<=a.{7})b[abc]{1,3}x(?=.{0,3}c)")

    def found() -> list[tuple[int | None, int | None]]:
        live, answers = live_matches(CompiledRule(pattern).blocking_searcher), []
        for at in range(0, len(text), 7):
            live, completed = live.read(text[at : at + 7])
            answers.append((live.first, completed))
        return answers

    free = found()
    assert any(completed is not None for _, completed in free)
    carried = []
    original = AlternatingMachine.carried_with
    monkeypatch.setattr(
        AlternatingMachine,
        "carried_with",
        lambda self, states, ds: carried.append(1) or original(self, states, ds),
    )
    monkeypatch.setitem(AlternatingMachine.__init__.__kwdefaults__, "state_limit", 300)
    assert found() == free
    assert carried


def longest(rule: CompiledRule, text: str) -> tuple[int, int] | None:
    found = longest_open(rule.searcher, text)
    assert found == longest_beginning(rule.machine(every_end=True), text), (rule.rule, text)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_longest_open_stretch_of_random_patterns(seed: int) -> None:
    chance = random.Random(seed)
    rule = random_rule(chance)
    if rule is None:
        return
    for _ in range(10):
        longest(rule, patterns.text(chance, 14))


# Lists that are looked up are compared in `test_folded`.
SEARCHED = [rule for rule in OTHERS if not isinstance(CompiledRule(rule).searcher, SubstringSearcher)]


@pytest.mark.parametrize("rule", SEARCHED, ids=range(len(SEARCHED)))
def test_the_longest_open_stretch_of_rules_of_every_kind(
    rule: RegexRule | StringRule | AutomatonRule,
) -> None:
    chance, compiled = random.Random(5), CompiledRule(rule)
    pieces = [*"0123456789"] if rule.id == "c" else [*PIECES, "ab", "ba", "b1"]
    texts = ["".join(chance.choices(pieces, k=chance.randint(0, 9))) for _ in range(200)]
    found = [longest(compiled, text) for text in texts]
    assert any(found)


@pytest.mark.parametrize("pattern", ["(?s)a.*b$", "a[^b]*b", "a(?!.*c)b", "(?:a|aa)*b"])
def test_the_longest_open_stretch_is_found_in_linear_time(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    step, duty_after = PatternRuns.step, PatternRuns.duty_after

    def counted(self: PatternRuns, state: int, cls: int) -> object:
        nonlocal steps
        steps += 1
        return step(self, state, cls)

    def counted_duty(self: PatternRuns, duty: int, cls: int) -> int:
        nonlocal steps
        steps += 1
        return duty_after(self, duty, cls)

    monkeypatch.setattr(PatternRuns, "step", counted)
    monkeypatch.setattr(PatternRuns, "duty_after", counted_duty)
    rule = CompiledRule(RegexRule(id="r", regex=pattern))
    for unit in ("a", "ab", "aab"):
        taken = []
        for size in (400, 800):
            longest_open(rule.searcher, unit * 10)
            steps = 0
            longest_open(rule.searcher, unit * size)
            taken.append(steps)
        assert taken[1] <= 2.1 * taken[0] <= 2.1 * 8 * 400 * len(unit)
