"""Where the match began that a token would complete, against every pair of places that `re` takes for a match."""

from __future__ import annotations

import random
import re

import pytest

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.compiler import compile_policy
from nco_guard.masking import JointTables
from nco_guard.rewinding import MatchStarts, Settled
from nco_guard.session import BoundGuard
from nco_guard.session.state import TextState
from nco_guard.testing import toy_vocabulary

PATTERNS = ["ab", "a{2,4}b", "ba*c", "[ab]{3}c", "é+a", "a.b.c|cc", "(?:ab){2}"]
MERGES = ["ab", "ba", "aa", "bc", "caa", "éa", b"a\xc3", b"\xa9b", ". "]
VOCABULARY = toy_vocabulary(MERGES)
USED = [*range(256, 256 + len(MERGES)), *b"abc. \xc3\xa9"]


def places(patterns: list[str], before: str, after: str) -> int | None:
    """Where the first match begins that ends in what was added."""
    wanted = [re.compile(pattern) for pattern in patterns]
    for start in range(len(after)):
        if any(
            one.fullmatch(after, start, end)
            for end in range(len(before) + 1, len(after) + 1)
            for one in wanted
        ):
            return start
    return None


@pytest.mark.parametrize("seed", range(40))
def test_places_are_those_that_re_finds(seed: int) -> None:
    chance = random.Random(seed)
    patterns = chance.sample(PATTERNS, 3)
    rules = [RegexRule(id=f"r{number}", regex=pattern) for number, pattern in enumerate(patterns)]
    bound = BoundGuard(compile_policy(Policy(name="p", rules=rules)), VOCABULARY)
    starts, looked = MatchStarts(bound), 0
    for _ in range(60):
        text = TextState(bound)
        settled = Settled(bound, "", sentences=None)
        while len(text.ids) < 12:
            token = chance.choice(USED)
            state = text.ask(lambda tables, state, token=token: tables.next(state, token))
            forbidden = text.ask(JointTables.forbidden, None)
            kept = settled.upto(text.ids)
            if token not in forbidden:
                text.advance(token)
                continue
            named = text.ask(JointTables.rules_at_fault, token)
            found = starts.begun(text, named, token)
            assert found is None or 0 <= found <= len(text.ids)
            before, after = VOCABULARY.text_of(text.ids), VOCABULARY.text_of([*text.ids, token])
            if not before.isascii() or not after.isascii() or state >= 0:
                break
            start = places([patterns[int(name[1:])] for name in named], before, after)
            assert start is not None
            assert found == sum(
                len(VOCABULARY.text_of(text.ids[: n + 1])) <= start for n in range(len(text.ids))
            )
            assert kept <= found
            looked += 1
            break
    assert looked > 3


def test_what_is_under_way_counts_where_nothing_is_completed() -> None:
    rules = [StringRule(id="strings", strings=["secret word"]), RegexRule(id="open", regex="<a>(?!.*</a>)")]
    bound = BoundGuard(compile_policy(Policy(name="p", rules=rules)), VOCABULARY)
    starts = MatchStarts(bound)
    text = TextState(bound)
    for byte in b"my secret wo":
        text.advance(byte)
    assert starts.begun(text, (), ord("x")) == 3
    assert starts.begun(text, ("strings",), ord("x")) == 3


def test_sentences_begin_after_their_ends() -> None:
    bound = BoundGuard(
        compile_policy(Policy(name="p", rules=[StringRule(id="s", strings=["z"])])), VOCABULARY
    )
    ids = [*b"One", VOCABULARY.tokens.index(b". "), *b"Two!\nThree"]
    starts = MatchStarts(bound)
    assert starts.sentence(ids, 2) == 0
    assert starts.sentence(ids, 4) == 4
    assert starts.sentence(ids, 6) == 4
    assert starts.sentence(ids, len(ids)) == 9


def test_what_is_settled_grows_and_is_cut_back() -> None:
    bound = BoundGuard(
        compile_policy(Policy(name="p", rules=[StringRule(id="s", strings=["forbidden"])])), VOCABULARY
    )
    settled = Settled(bound, "", sentences=None)
    text = list(b"a for")
    assert settled.upto(text) == 2
    assert settled.upto([*text, *b"t"]) == 6
    assert settled.upto([*b"a f"]) == 2
    assert settled.upto([*b"a \xc3"]) == 2
