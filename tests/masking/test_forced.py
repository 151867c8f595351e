"""Texts that hold a token which the masks forbid: they are guarded on, by the slow definition written here."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache

import pytest

from nco_guard.compiler import UTF8_RULE, Constraint
from nco_guard.masking import ENDED, VIOLATED, JointTables
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.masking.forced import well_formed
from nco_guard.policy import RegexRule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary
from tests.binding import bind
from tests.masking import random_policies

# For each constraint its state, and whether the match that it is in does not count.
States = tuple[tuple[int, bool], ...]


@dataclass(frozen=True, eq=False)
class Definition:
    """Everything byte by byte and token by token, nothing kept but verdicts."""

    constraints: tuple[Constraint, ...]
    vocabulary: Vocabulary

    @property
    def utf8(self) -> int:
        return next(i for i, c in enumerate(self.constraints) if UTF8_RULE in c.rule_ids)

    def between(self, states: States) -> bool:
        return self.constraints[self.utf8].automaton.may_end(states[self.utf8][0])

    def read(self, states: States, data: bytes) -> tuple[States, set[int]]:
        """The states after some bytes, and the hard constraints with which a match that counts completed."""
        broken: set[int] = set()
        for byte in data:
            following = []
            for i, (constraint, (state, lost)) in enumerate(zip(self.constraints, states, strict=True)):
                reached = constraint.automaton.step(state, byte)
                if reached < 0 and constraint.hard and not lost:
                    broken.add(i)
                following.append((~reached if reached < 0 else reached, lost))
            states = tuple(following)
            between = self.between(states)
            states = tuple(
                (state, lost and not (between and constraint.automaton.may_end(state)))
                for constraint, (state, lost) in zip(self.constraints, states, strict=True)
            )
        return states, broken

    def may_end(self, states: States) -> bool:
        return all(
            lost or not constraint.hard or constraint.automaton.may_end(state)
            for constraint, (state, lost) in zip(self.constraints, states, strict=True)
        )

    @cache  # noqa: B019
    def ends_within(self, states: States, tokens: int) -> bool:
        if self.may_end(states):
            return True
        vocabulary = self.vocabulary
        for token in range(vocabulary.width) if tokens else ():
            if (
                token in vocabulary.unusable_ids
                or token in vocabulary.eos_ids
                or not vocabulary.tokens[token]
            ):
                continue
            following, broken = self.read(states, vocabulary.tokens[token])
            if not broken and self.ends_within(following, tokens - 1):
                return True
        return False

    @cache  # noqa: B019
    def forbidden(self, states: States) -> tuple[int, ...]:
        vocabulary = self.vocabulary
        found = []
        for token in range(vocabulary.width):
            following, broken = self.read(states, vocabulary.tokens[token])
            ends = token in vocabulary.eos_ids
            well = self.may_end(following) if ends else self.ends_within(following, HORIZON)
            if token in vocabulary.unusable_ids or broken or not well:
                found.append(token)
        return tuple(found)

    def forced(self, states: list[States], tokens: list[int]) -> States | None:
        """The states of a text; `states` before each of its tokens, the last of which is forbidden. None: its end."""
        vocabulary = self.vocabulary
        if tokens[-1] in vocabulary.eos_ids:
            return None
        at = max(i for i, before in enumerate(states) if i == 0 or self.between(before))
        marks = vocabulary.rewriting.marks if vocabulary.rewriting is not None else b""
        data = well_formed(b"".join(vocabulary.tokens[t] for t in tokens[at:] if t < vocabulary.width), marks)
        reached, _ = self.read(states[at], data)
        for everything in (False, True):
            if len(self.forbidden(reached)) == vocabulary.width:
                reached = tuple(
                    (state, lost or (i != self.utf8 and self.waits(reached, i, everything)))
                    for i, (state, lost) in enumerate(reached)
                )
        return reached

    def waits(self, states: States, index: int, everything: bool) -> bool:
        """Whether a hard rule does not let the text end here; and, if that is not `everything`, no text at all."""
        constraint, (state, _) = self.constraints[index], states[index]
        if not constraint.hard or (self.between(states) and constraint.automaton.may_end(state)):
            return False
        utf8, place = self.constraints[self.utf8].automaton, states[self.utf8][0]
        ways = [byte for byte in range(256) if utf8.step(place, byte) >= 0]
        return everything or all(constraint.automaton.step(state, byte) < 0 for byte in ways)


def seen(tables: JointTables, state: int) -> States:
    lost = tables.lost(state)
    return tuple((own, i in lost) for i, own in enumerate(tables.components(state)))


def walk(rng: random.Random, bound: BoundGuard, steps: int) -> tuple[int, int]:
    """A text into which forbidden tokens are forced; how many were, and how often rules were lost by them."""
    tables, vocabulary = bound.tables, bound.vocabulary
    slow = Definition(tables.constraints, vocabulary)
    states, tokens = [tables.start], [0][:0]
    forced = lost = 0
    for _ in range(steps):
        here = states[-1]
        mine = seen(tables, here)
        masked = tables.forbidden(here).tolist()
        assert masked == list(slow.forbidden(mine)), (bound.policy.to_json(), tokens)
        assert tables.may_end(here) == slow.may_end(mine)
        allowed = sorted(set(range(vocabulary.width)).difference(masked, vocabulary.eos_ids))
        force = masked and (not allowed or rng.random() < 0.4)
        token = rng.choice(masked if force else allowed)
        tokens.append(token)
        following = tables.next(here, token)
        if force:
            assert following == VIOLATED
            following = tables.forced(states, tokens)
            forced += 1
            expected = slow.forced([seen(tables, state) for state in states], tokens)
            if expected is None:
                assert following == ENDED
                break
        else:
            expected, broken = slow.read(mine, vocabulary.tokens[token])
            assert not broken
        assert seen(tables, following) == expected, (bound.policy.to_json(), tokens)
        lost += bool(tables.lost(following))
        states.append(following)
    return forced, lost


@pytest.mark.parametrize("seed", range(4))
def test_a_text_goes_on_guarded_after_a_forbidden_token(seed: int) -> None:
    rng = random.Random(seed)
    counts = [walk(rng, random_policies.bound(rng, small=True), 8) for _ in range(12)]
    assert sum(forced for forced, _ in counts) > 15


def write(tables: JointTables, text: bytes) -> list[int]:
    """States before and after each byte, forced where it is forbidden."""
    states = [tables.start]
    for place, byte in enumerate(text):
        following = tables.next(states[-1], byte)
        states.append(tables.forced(states, list(text[: place + 1])) if following == VIOLATED else following)
    return states


def forbids(tables: JointTables, state: int, byte: str) -> bool:
    return ord(byte) in tables.forbidden(state).tolist()


def test_after_a_match_every_rule_masks_the_next_one() -> None:
    rules = (
        StringRule(id="word", strings=("duck",)),
        RegexRule(id="number", regex=r"\d{3}-\d{2}"),
        RegexRule(id="whole", regex=r"\bass\b"),
    )
    tables = bind(*rules).tables
    text = b"a duck, a duc"
    assert forbids(tables, write(tables, text)[-1], "k")
    assert forbids(tables, write(tables, b"duck 555-1")[-1], "2")
    assert forbids(tables, write(tables, b"555-12 555-1")[-1], "2")
    state = write(tables, b"ass ass")[-1]
    assert not tables.may_end(state)
    assert forbids(tables, state, " ")
    assert not forbids(tables, state, "k")


@pytest.mark.parametrize("seed", range(3))
def test_matches_that_begin_after_the_forced_one_are_those_of_re(seed: int) -> None:
    """A reader searches what follows a forced match: nothing in there was let through."""
    rng = random.Random(seed)
    pattern = r"ab+a|\bkk\b|b{3}1|a(?=k1)"
    tables = bind(RegexRule(id="r", regex=pattern)).tables
    for _ in range(60):
        states, text, broken = [tables.start], b"", 0
        for _ in range(30):
            masked = set(tables.forbidden(states[-1]).tolist())
            byte = ord(rng.choice("abk1 "))
            force = byte in masked
            if force and rng.random() < 0.7:
                continue
            text += bytes([byte])
            states.append(tables.forced(states, list(text)) if force else tables.next(states[-1], byte))
            broken = len(text) if force else broken
        if tables.may_end(states[-1]):
            found = [m.span() for m in re.finditer(pattern, text.decode())]
            assert all(start < broken for start, _ in found), (text, broken)
            found = [m.span() for m in re.finditer(pattern, text[broken:].decode()) if m.start() > 0]
            assert not found, (text, broken)


def test_a_rule_that_nothing_can_save_does_not_count_and_the_others_do() -> None:
    tables = bind(
        RegexRule(id="all", regex=r"(?s)^hello.*$"), StringRule(id="word", strings=("duck",))
    ).tables
    states = write(tables, b"hello")
    assert tables.lost(states[-1])
    assert not tables.lost(states[-2])
    for text in (b"hello wor", b"hello a duc"):
        state = write(tables, text)[-1]
        assert tables.may_end(state)
        assert forbids(tables, state, "k") is text.endswith(b"duc")
        assert not forbids(tables, state, "x")


def test_a_rule_counts_again_once_its_match_is_past() -> None:
    bound = bind(RegexRule(id="any", regex=r"\bhello\b|hello\w"), merges=("hello", " hello", "x hello"))
    tables, tokens = bound.tables, bound.vocabulary.tokens
    state = write(tables, b"hello")[-1]
    assert tables.lost(state)
    masked = tables.forbidden(state).tolist()
    assert ord("x") not in masked
    assert tokens.index(b"hello") not in masked, "its first letter is past the match, and the rest is no word"
    assert tokens.index(b"x hello") in masked, "the same token may begin another match"
    after = tables.next(state, ord(" "))
    assert not tables.lost(after)
    assert tokens.index(b"hello") in tables.forbidden(after).tolist()


def test_a_token_that_only_the_look_ahead_forbids_leads_to_the_plain_next_state() -> None:
    """After "ass" every letter is forbidden by one rule, and everything else by the other."""
    rules = (RegexRule(id="word", regex=r"\bass\b"), RegexRule(id="longer", regex=r"ass\w"))
    tables = bind(*rules).tables
    before = write(tables, b"as")
    assert forbids(tables, before[-2], "s") or forbids(tables, before[-1], "s")
    state = write(tables, b"ass")[-1]
    assert len(tables.forbidden(state)) < tables.vocabulary.width
    assert not forbids(tables, state, " ")
    past = write(tables, b"ass ")[-1]
    assert not tables.lost(past)
    assert forbids(tables, write(tables, b"ass as")[-1], "s")


def test_ids_without_text_change_nothing_and_ends_end() -> None:
    bound = bind(RegexRule(id="word", regex=r"\bass\b"))
    tables, vocabulary = bound.tables, bound.vocabulary
    states = write(tables, b"ass")
    for nothing in (-1, vocabulary.width, vocabulary.special_ids[0]):
        assert tables.forced(states, [*b"ass", nothing]) == states[-1]
    assert tables.next(states[-1], vocabulary.eos_ids[0]) == VIOLATED
    assert tables.forced(states, [*b"ass", vocabulary.eos_ids[0]]) == ENDED


@pytest.mark.parametrize("cut", [b"\xff", b"\xe2\x82", b"\xe2\x82\xff", b"\xc3(", b"\xed\xa0\x80"])
def test_ill_formed_bytes_read_as_replacement_characters_and_guarding_goes_on(cut: bytes) -> None:
    rules = (StringRule(id="word", strings=("duck",)), RegexRule(id="wide", regex=r"1[^2]{1,3}2"))
    tables = bind(*rules).tables
    state = write(tables, b"1" + cut + b" duc")[-1]
    assert forbids(tables, state, "k")
    read = (b"1" + cut + b"+").decode("utf-8", "replace")
    state = write(tables, b"1" + cut + b"+")[-1]
    assert forbids(tables, state, "2") == bool(re.search(rules[1].regex, read + "2"))
    assert tables.components(state) == tables.components(write(tables, read.encode())[-1])


def test_well_formed_is_what_decoding_makes_of_bytes() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        data = bytes(
            rng.choice(b"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff\xed\xa0") for _ in range(rng.randint(0, 7))
        )
        found = well_formed(data)
        assert found.decode("utf-8", "replace") == data.decode("utf-8", "replace")
        whole = found.decode("utf-8", "ignore").encode()
        assert found.startswith(whole)
        assert len(found) - len(whole) < 4
    assert well_formed(b"a\xfeb\xff\xe2", b"\xfe\xff") == b"a\xfeb\xff\xe2"
    assert well_formed(b"\xe2\xfe\x82", b"\xfe") == "\ufffd".encode() + b"\xfe" + "\ufffd".encode()
    assert well_formed(b"") == b""
