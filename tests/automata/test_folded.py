r"""Folded strings and whole words against Python's `re`, and against the automaton of their regular expression."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from nco_guard.automata import AlternatingMachine, ClassAutomaton
from nco_guard.automata.automaton import SINK
from nco_guard.automata.patterns.syntax import alternation, literal, whole_word
from nco_guard.automata.spans.definition import find_spans, find_strings
from nco_guard.automata.spans.follower import follow, spans_at
from nco_guard.automata.strings import folded
from nco_guard.automata.strings.folded import FoldedAhoCorasick, folds_evenly
from nco_guard.automata.strings.substrings import SubstringSearcher
from nco_guard.errors import StateLimitError

ALPHABETS = ["aAb ", "kK\u212asS\u017f", "ß\u1e9eéÉe-", "жЖя_.", "日本語a\u203f", "𝒳𐐀𐐨 x"]
MODES = [(True, False), (False, True), (True, True)]


def _strings(rng: random.Random, alphabet: str) -> list[str]:
    return ["".join(rng.choices(alphabet, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 12))]


def _node(strings: list[str], caseless: bool, whole: bool) -> object:
    node = alternation([literal(s, fold=caseless) for s in strings])
    return whole_word(node) if whole else node


def _pattern(string: str, whole: bool) -> str:
    return rf"(?<!\w){re.escape(string)}(?!\w)" if whole else re.escape(string)


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize(("caseless", "whole"), MODES)
def test_matches_complete_where_re_finds_them(alphabet: str, caseless: bool, whole: bool) -> None:
    rng = random.Random(1)
    flags = re.IGNORECASE if caseless else 0
    for _ in range(60):
        strings = _strings(rng, alphabet)
        automaton = FoldedAhoCorasick(strings, caseless=caseless, whole_word=whole, names_hits=True)
        text = "".join(rng.choices(alphabet + "x ", k=12))
        patterns = [re.compile(_pattern(s, whole), flags) for s in strings]
        state = automaton.start
        for end, character in enumerate(text, start=1):
            # A whole word is complete once the character after it is read.
            last = end - 1 if whole else end
            expected = {
                i
                for i, p in enumerate(patterns)
                for begin in range(last)
                if (m := p.match(text, begin)) and m.end() == last
            }
            named: set[int] = set()
            for byte in character.encode():
                state = automaton.step(state, byte)
                if state < 0:
                    state = ~state
                    named.update(automaton.patterns_ending(state))
            assert named == expected, (strings, text[:end])
            at_end = {
                i
                for i, p in enumerate(patterns)
                for begin in range(end)
                if whole and (m := p.match(text[:end], begin)) and m.end() == end
            }
            assert automaton.may_end(state) == (not at_end)
            assert set(automaton.patterns_ending_with_text(state)) == at_end


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize(("caseless", "whole"), MODES)
def test_every_byte_has_the_verdict_of_the_regular_expression(
    alphabet: str, caseless: bool, whole: bool
) -> None:
    rng = random.Random(2)
    for _ in range(30):
        strings = _strings(rng, alphabet)
        fast = FoldedAhoCorasick(strings, caseless=caseless, whole_word=whole)
        slow = ClassAutomaton(AlternatingMachine(_node(strings, caseless, whole)), absorbing=True)  # type: ignore[arg-type]
        for _ in range(20):
            text = " " * rng.randint(0, 2) + "".join(rng.choices(alphabet + "é–x ", k=8))
            begin = rng.choice(["start", "spaceless_start"])
            a, b = getattr(fast, begin), getattr(slow, begin)
            for byte in text.encode():
                a, b = fast.step(a, byte), slow.step(b, byte)
                assert (a < 0) == (b < 0), (strings, text)
                if a < 0:
                    break
                assert fast.may_end(a) == slow.may_end(b)


@pytest.mark.parametrize(("caseless", "whole"), MODES)
@pytest.mark.parametrize("names", [False, True])
def test_many_steps_at_once_are_the_single_steps(caseless: bool, whole: bool, names: bool) -> None:
    rng = random.Random(3)
    for alphabet in ALPHABETS:
        strings = _strings(rng, alphabet) + _strings(rng, alphabet)
        automaton = FoldedAhoCorasick(strings, caseless=caseless, whole_word=whole, names_hits=names)
        states = [automaton.start, automaton.spaceless_start, 0]
        for _ in range(4):
            symbols = [rng.choice(list((alphabet + " x–").encode())) for _ in states * 10]
            reached = automaton.step_many(np.array(states * 10, np.int32), np.array(symbols, np.uint8))
            singles = [automaton.step(s, b) for s, b in zip(states * 10, symbols, strict=True)]
            assert reached.dtype == np.int32
            assert reached.tolist() == singles
            states = sorted({r if r >= 0 else ~r for r in singles} | {automaton.spaceless_start})
            assert max(states) < automaton.state_count
            ends = automaton.may_end_many(np.array(states, np.int32))
            assert ends.tolist() == [automaton.may_end(s) for s in states]


@pytest.mark.parametrize("alphabet", [*ALPHABETS, "ιͅΙᾳΑα "])
@pytest.mark.parametrize(("caseless", "whole"), [(False, False), *MODES])
def test_spans_are_those_of_the_regular_expression(alphabet: str, caseless: bool, whole: bool) -> None:
    rng = random.Random(4)
    for _ in range(40):
        strings = _strings(rng, alphabet)
        searcher = SubstringSearcher(strings, caseless=caseless, whole_word=whole)
        machine = AlternatingMachine(_node(strings, caseless, whole), every_end=True)  # type: ignore[arg-type]
        text = "".join(rng.choices(alphabet + "x ", k=25))
        for beyond in (-1, 0, 5, 12):
            follower = follow(searcher, text, beyond=beyond)
            by_re = list(find_strings(strings, text, caseless=caseless, whole_word=whole, beyond=beyond))
            by_machine = list(find_spans(machine, text, beyond=beyond))
            for places in (follower.candidates(0), range(len(text))):
                assert list(spans_at(follower, places)) == by_re == by_machine, (strings, text, beyond)


@pytest.mark.parametrize(("caseless", "whole"), [(False, False), *MODES])
def test_the_longest_beginning_is_what_comparing_all_beginnings_gives(caseless: bool, whole: bool) -> None:
    rng = random.Random(6)
    flags = re.IGNORECASE if caseless else 0
    for alphabet in ALPHABETS:
        strings = _strings(rng, alphabet)
        text = "".join(rng.choices(alphabet + "x ", k=15))
        best = None
        for start in range(len(text)):
            for length in range(4, 0, -1):
                piece = text[start : start + length]
                before = r"(?<!\w)" if whole else ""
                shown = len(piece) == length and any(
                    re.compile(before + re.escape(s[:length]), flags).match(text, start)
                    for s in strings
                    if len(s) >= length
                )
                if shown and (best is None or length > best[1] - best[0]):
                    best = (start, start + length)
        found = SubstringSearcher(strings, caseless=caseless, whole_word=whole).beginning(text)
        assert found == best, (strings, text)


@pytest.mark.parametrize(("caseless", "whole"), MODES)
def test_bytes_of_one_class_lead_to_the_same_states(caseless: bool, whole: bool) -> None:
    rng = random.Random(8)
    for alphabet in ALPHABETS:
        automaton = FoldedAhoCorasick(_strings(rng, alphabet), caseless=caseless, whole_word=whole)
        classes = automaton.byte_classes.tolist()
        assert len(set(classes)) < 200
        states = {automaton.start, automaton.spaceless_start}
        for _ in range(3):
            for state in sorted(states):
                led: dict[int, set[int]] = {}
                for byte in range(256):
                    led.setdefault(classes[byte], set()).add(automaton.step(state, byte))
                assert all(len(reached) == 1 for reached in led.values())
                states.update(r ^ (r >> 31) for reached in led.values() for r in reached)


def test_a_fresh_automaton_has_met_no_states_and_steps_alike() -> None:
    automaton = FoldedAhoCorasick(["ab"], caseless=True, whole_word=True)
    states = [automaton.start]
    for byte in b"ab AB a":
        reached = automaton.step(states[-1], byte)
        states.append(reached ^ (reached >> 31))
    again = automaton.fresh()
    assert again.state_count == 3 < automaton.state_count
    current, found = again.start, []
    for byte in b"ab AB a":
        reached = again.step(current, byte)
        current = reached ^ (reached >> 31)
        found.append(reached < 0)
    assert found == [False, False, True, False, False, True, False]


@pytest.mark.parametrize(("caseless", "whole"), MODES)
def test_arrays_restore_the_automaton(caseless: bool, whole: bool) -> None:
    rng = random.Random(7)
    for alphabet in ALPHABETS:
        automaton = FoldedAhoCorasick(
            _strings(rng, alphabet), caseless=caseless, whole_word=whole, names_hits=True
        )
        arrays = automaton.to_arrays()
        restored = FoldedAhoCorasick.from_arrays({k: v.copy() for k, v in arrays.items()})
        state = other = automaton.start
        for byte in "".join(rng.choices(alphabet + " ", k=60)).encode():
            state, other = automaton.step(state, byte), restored.step(other, byte)
            assert (state < 0) == (other < 0)
            state, other = state ^ (state >> 31), other ^ (other >> 31)
            assert automaton.patterns_ending(state) == restored.patterns_ending(other)
            assert automaton.may_end(state) == restored.may_end(other)
        for name, spoiled in [
            ("utf8", arrays["utf8"] - np.int32(100)),
            ("utf8", arrays["utf8"] + np.int32(100)),
            ("utf8", arrays["utf8"][:-1]),
            ("between", arrays["between"][:-1]),
            ("breaks", arrays["breaks"].astype(np.int8)),
            ("flags", arrays["flags"][:1]),
            ("fail", arrays["fail"] + np.int32(9)),
        ]:
            with pytest.raises(ValueError, match="array"):
                FoldedAhoCorasick.from_arrays({**arrays, name: spoiled})


def test_a_letter_that_is_sometimes_no_part_of_a_word_is_left_to_regular_expressions() -> None:
    mixed = [c for c in map(chr, range(0x20000)) if not folds_evenly([c], caseless=True, whole_word=True)]
    assert mixed == ["\u0345", "Ι", "ι", "\u1fbe"]
    assert folds_evenly(mixed, caseless=True, whole_word=False)
    assert folds_evenly(mixed, caseless=False, whole_word=True)
    with pytest.raises(ValueError, match="sometimes"):
        FoldedAhoCorasick(["ι"], caseless=True, whole_word=True)


def test_the_whole_of_unicode_is_sorted_into_disjoint_sets_by_ignorecase() -> None:
    cased = [chr(c) for c in range(0x20000) if chr(c).lower() != chr(c) or chr(c).upper() != chr(c)]
    rng = random.Random(5)
    for character in rng.sample(cased, 300):
        alike = [c for c in cased if re.fullmatch(re.escape(character), c, re.IGNORECASE)]
        for other in alike:
            searcher = SubstringSearcher([other], caseless=True)
            assert all(list(searcher.occurrences(c)) for c in alike), (character, other)


@pytest.mark.parametrize("named", [1 << 16, 0])
@pytest.mark.parametrize(("caseless", "whole"), MODES)
def test_states_come_apart_by_the_bytes_that_are_named_alone(
    caseless: bool, whole: bool, named: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all others they lead to one state; or, of very large tries, to two of which the same follows."""
    monkeypatch.setattr(folded, "_NAMED", named)
    rng = random.Random(3)
    related = 0
    for round_ in range(36):
        alphabet = ALPHABETS[round_ % len(ALPHABETS)]
        strings = _strings(rng, alphabet)
        automaton = FoldedAhoCorasick(strings, caseless=caseless, whole_word=whole)
        data = [c.encode() for c in alphabet + "xé"]
        states = [automaton.start, automaton.idle or automaton.start]
        for _ in range(40):
            state = rng.choice(states)
            for byte in rng.choice(data)[: rng.randint(1, 4)]:
                state = max(automaton.step(state, byte), 0)
            states.append(state)
        for _ in range(60):
            state, other = rng.choice(states), rng.choice([*states, -2])
            letters = automaton.apart(state, other)
            if letters is None:
                continue
            if other < 0:
                if state not in _between_characters(automaton, states):
                    continue
                other = automaton.idle or automaton.start
            related += state != other
            for byte in set(range(256)).difference(letters):
                one, two = automaton.step(state, byte), automaton.step(other, byte)
                if named:
                    assert one == two, (strings, state, other, byte)
                assert (one < 0) == (two < 0)
                for _ in range(3 if one != two and one >= 0 else 0):
                    text = b"".join(rng.choices(data, k=4))
                    text = text if automaton.may_end(one) else bytes([0x80]) + text
                    assert _verdicts(automaton, one, text) == _verdicts(automaton, two, text)
    assert related > 20, related


def _between_characters(automaton: FoldedAhoCorasick, states: list[int]) -> set[int]:
    """Those from which an ASCII letter may follow."""
    return {state for state in states if state and automaton.step(state, ord("x")) != SINK}


def _verdicts(automaton: FoldedAhoCorasick, state: int, text: bytes) -> list[tuple[bool, bool]]:
    found = []
    for byte in text:
        state = automaton.step(state, byte)
        found.append((state < 0, automaton.may_end(max(state, 0))))
        if state < 0:
            break
    return found


def test_no_strings_an_empty_one_and_too_many_states_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for strings in ([], ["a", ""]):
        with pytest.raises(ValueError, match="non-empty"):
            FoldedAhoCorasick(strings, caseless=True, whole_word=False)
        with pytest.raises(ValueError, match="non-empty"):
            SubstringSearcher(strings)
    monkeypatch.setattr("nco_guard.automata.strings.folded._KEY_LIMIT", 20)
    with pytest.raises(StateLimitError):
        FoldedAhoCorasick(["abcdefgh"], caseless=True, whole_word=False)
