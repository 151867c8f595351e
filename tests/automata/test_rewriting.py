"""Decoders that rewrite text: the transducer is `str.replace`, and automata behind it see what comes out."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import pytest

from nco_guard.automata import (
    AhoCorasick,
    AlternatingMachine,
    ClassAutomaton,
    Rewriting,
    Utf8Automaton,
)
from nco_guard.automata.combine.rewriting import RewrittenAutomaton
from nco_guard.automata.patterns.parsing import parse
from nco_guard.compiler import compile_policy
from nco_guard.policy import Policy, StringRule
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary
from nco_guard.tokens.families import CLEANUP
from tests.masking.random_policies import rules_completing

CLEAN = Rewriting(replacements=tuple((old.encode(), new.encode()) for old, new in CLEANUP))
PIECES = Rewriting(b"##", CLEAN.replacements)
OVERLAPPING = Rewriting(replacements=((b"aab", b"b"), (b"abab", b"a"), (b"bb", b""), (b"a", b"aa")))
PARTS = [*" .?!,'", "  ", " '", "n't", "n", "t", "m", "s", "ve", "re", "v", "r", "a", "é"]


def texts(rng: random.Random, count: int, parts: list[str] = PARTS) -> list[bytes]:
    return ["".join(rng.choice(parts) for _ in range(rng.randint(0, 8))).encode() for _ in range(count)]


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    "rewriting", [CLEAN, PIECES, OVERLAPPING], ids=["cleanup", "wordpiece", "overlapping"]
)
def test_the_transducer_is_the_cascade_of_replacements(rewriting: Rewriting, fresh: bool) -> None:
    rng = random.Random(1)
    rewriting = replace(rewriting, strips_first_space=fresh)
    parts = [*"aab"] if rewriting.replacements == OVERLAPPING.replacements else PARTS
    for raw in texts(rng, 6000, parts):
        if rewriting.prefix is not None:
            raw = b"\xff".join(raw.partition(b"a"))
        state, out = rewriting.begin(fresh=fresh), b""
        for byte in raw:
            state, part = rewriting.step(state, byte)
            out += part
        out += rewriting.flush(state)
        if fresh or rewriting.prefix is None:
            assert out == rewriting.apply(raw)
        else:
            assert out == CLEAN.apply(raw.replace(b"\xff", b""))


PATTERNS = [
    "a\\.",
    "a ",
    "\\ba\\b",
    "a$",
    "^a",
    "n't s",
    " 'm",
    "'",
    "a(?= )",
    "(?<=\\.)a",
    "é.",
    "[^a]\\Z",
    "a.a",
    "s \\.",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_match_is_a_match_in_the_rewritten_text(pattern: str) -> None:
    """A match completes with some byte, or the text may not end, exactly where `re` finds one in the cleaned text."""
    rng = random.Random(2)
    machine = AlternatingMachine(parse(pattern, 0), every_end=True)
    automaton = RewrittenAutomaton(ClassAutomaton(machine, absorbing=False), CLEAN, absorbing=False)
    for raw in texts(rng, 1500):
        state, matched = automaton.start, False
        for byte in raw:
            state = automaton.step(state, byte)
            matched |= state < 0
            state = ~state if state < 0 else state
        text = CLEAN.apply(raw).decode()
        assert (matched or not automaton.may_end(state)) == bool(re.search(pattern, text)), raw


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_hard_rule_blocks_exactly_where_no_way_on_is_left(pattern: str) -> None:
    """Nothing is blocked that could still end well, and nothing let through that could not."""
    rng = random.Random(3)
    machine = AlternatingMachine(parse(pattern, 0))
    automaton = RewrittenAutomaton(ClassAutomaton(machine, absorbing=True), CLEAN, absorbing=True)
    ways = ["".join(way) for n in range(3) for way in itertools.product(" .'ax-", repeat=n)]
    ways_on = [
        way.encode() for way in (*ways, "n't", " n't", "'m", "' m", "' 'm", "'re", "'ve", "'s", "t", "'t x")
    ]

    def escapes(raw: bytes) -> bool:
        return any(not re.search(pattern, CLEAN.apply(raw + way).decode()) for way in ways_on)

    for raw in texts(rng, 150):
        state, length = automaton.start, 0
        for byte in raw:
            state = automaton.step(state, byte)
            if state < 0:
                break
            length += 1
        before = raw[:length]
        if before.decode(errors="ignore").encode() != before:
            continue  # within a character
        assert escapes(before), raw
        if state < 0 and raw[length : length + 1].isascii():
            assert not escapes(raw[: length + 1]), raw


def test_strings_are_found_where_only_the_cleaned_text_has_them() -> None:
    automaton = RewrittenAutomaton(AhoCorasick([b"n.c", b"x ."]), CLEAN, absorbing=True)

    def reads(raw: bytes) -> bool:
        state = automaton.start
        for byte in raw:
            state = automaton.step(state, byte)
            if state < 0:
                return False
        return automaton.may_end(state)

    assert not reads(b"n .c")
    assert reads(b"n . c")
    assert reads(b"x .")
    assert not reads(b"x  .")


def test_rules_are_named_by_what_the_cleaned_text_completes() -> None:
    """One automaton serves many strings; a match may complete in the middle of a token, or at the end."""
    rules = (StringRule(id="dot", strings=("a.",)), StringRule(id="space", strings=("b ",)))
    tokens = [b"a", b"b", b" ", b".", b" .c", b"c", b""]
    vocabulary = Vocabulary.build(tokens, eos_ids=[6], special_ids=[6], rewriting=CLEAN)
    tables = BoundGuard(compile_policy(Policy(name="two", rules=rules)), vocabulary).tables
    a, b = tables.next(tables.start, 0), tables.next(tables.start, 1)
    space = tables.next(b, 2)
    assert rules_completing(tables, a, 4) == ("dot",)
    assert tables.forbidden(a).tolist() == [3, 4]
    assert rules_completing(tables, space, 6) == ("space",)
    assert rules_completing(tables, space, 5) == ("space",)
    assert tables.forbidden(space).tolist() == [0, 1, 2, 4, 5, 6]
    assert rules_completing(tables, space, 3) == ()
    # Two spaces are not yet a match: "b  ' m" reads "b'm". But no token here has an apostrophe.
    assert rules_completing(tables, space, 2) == ()


def test_a_dropped_beginning_is_dropped_once_and_only_there() -> None:
    """As `re.sub` drops it: Mistral's tokenizers in transformers take `lang:xx` off the start of a text."""
    letters = b"abcdefghijklmnopqrstuvwxyz"
    rewriting = Rewriting(drops=(*(bytes([byte]) for byte in b"lang:"), letters, letters), boundaries=True)
    rng = random.Random(4)
    for _ in range(4000):
        raw = b"".join(
            rng.choices([b"lang:", b"la", b"ng:", b"en", b"x", b"\xfe", b" "], k=rng.randint(0, 6))
        )
        state, out = rewriting.begin(fresh=True), b""
        for byte in raw:
            state, part = rewriting.step(state, byte)
            out += part
        out += rewriting.flush(state)
        assert out == rewriting.apply(raw)
        assert out == re.sub(rb"^lang:[a-z]{2}", b"", raw.replace(b"\xfe", b""))


def test_marks_stand_between_characters_only() -> None:
    automaton = Utf8Automaton(b"\xfe")
    between = automaton.start
    assert automaton.step(between, 0xFE) == between
    assert automaton.step(between, 0xFF) < 0
    assert automaton.step(automaton.step(between, 0xC3), 0xFE) < 0


def test_replacements_must_be_ascii() -> None:
    with pytest.raises(ValueError, match="ASCII"):
        Rewriting(replacements=(("é".encode(), b"e"),))
    with pytest.raises(ValueError, match="empty"):
        Rewriting(replacements=((b"", b"e"),))
