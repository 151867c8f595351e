"""What is opened can be closed: ways out are found within a bound, and the definition finds the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nco_guard.compiler import compile_policy
from nco_guard.masking import bruteforce, lookahead, ways
from nco_guard.masking import tables as single
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary
from nco_guard.tokens import Vocabulary
from tests.masking import random_policies
from tests.slow import rest_slow

THINK = RegexRule(id="think", regex=r"(?s)<think>(?!.*</think>)")
FENCE = RegexRule(id="fence", regex=r"(?s)\A(?:(?!```).)*```(?:(?!```).)*\Z")
PAREN = RegexRule(id="paren", regex=r"\((?!.*\))")
LETTER = RegexRule(id="letter", regex=r"(?s)-----BEGIN LETTER-----(?!.*-----END LETTER-----)")
WORDS = ["<think>", "think", "</", "a", " (", "`" * 3, "-----", "BEGIN", " LETTER", "END", "x<", "é", "日本"]


def bound_to(*rules: Rule, words: list[str] = WORDS) -> BoundGuard:
    return BoundGuard(compile_policy(Policy(name="closed", rules=rules)), toy_vocabulary(words))


def write(bound: BoundGuard, text: bytes, left: int | None = None) -> None:
    """Byte by byte under the masks, each of which is the definition."""
    tables, known = bound.tables, {}
    state = tables.start
    for byte in text:
        states = tables.components(state)
        tokens = bruteforce.HORIZON if left is None else left
        expected = bruteforce.forbidden(tables.constraints, states, bound.vocabulary, tokens, known)
        assert np.flatnonzero(expected).tolist() == tables.forbidden(state, left).tolist()
        assert not expected[byte], bytes([byte])
        state = tables.next(state, byte)
    assert tables.may_end(state)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in vocabularies that are too large to be searched as a whole."""
    monkeypatch.setattr(bruteforce, "SMALL", 0)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ((THINK,), b"a <think> b </think> c"),
        ((THINK, StringRule(id="s", strings=("x</",))), b"<think>x </think>"),
        ((THINK, PAREN), b"(<think>a)</think>"),
        ((FENCE,), b"```a```"),
        ((LETTER, PAREN), b"-----BEGIN LETTER-----(a\xc3\xa9)-----END LETTER-----"),
        ((THINK, RegexRule(id="n", regex=r"\d{3}")), b"12<think>12</think>12"),
    ],
)
def test_what_is_opened_can_be_closed(rules: tuple[Rule, ...], text: bytes) -> None:
    bound = bound_to(*rules)
    write(bound, text)
    assert bound.tables.undecided_masks == 0


@pytest.mark.parametrize("small", [0, bruteforce.SMALL])
def test_a_vocabulary_in_which_no_token_opens_anything(monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    """Letters alone, and a rule that only two of them together leave pending: then every token is doubtful."""
    monkeypatch.setattr(bruteforce, "SMALL", small)
    letters = [bytes([byte]) for byte in range(ord("a"), ord("z") + 1)]
    vocabulary = Vocabulary.build([*letters, b""], eos_ids=[26], special_ids=[26], family="letters")
    rules = [RegexRule(id="open", regex="xx(?!.*y)"), StringRule(id="s", strings=("zy",))]
    bound = BoundGuard(compile_policy(Policy(name="letters", rules=rules)), vocabulary)
    tables, state = bound.tables, bound.tables.start
    for token in (letters.index(bytes([byte])) for byte in b"axxzay"):
        for left in (bruteforce.HORIZON, 0, 1):
            expected = bruteforce.forbidden(tables.constraints, tables.components(state), vocabulary, left)
            assert np.flatnonzero(expected).tolist() == tables.forbidden(state, left).tolist()
        state = tables.next(state, token)
    assert tables.may_end(state)


@pytest.mark.usefixtures("large")
def test_what_can_never_be_closed_is_never_opened() -> None:
    bound = bound_to(THINK, RegexRule(id="tags", regex=r"</\w+>"))
    tables = bound.tables
    state = tables.start
    for byte in b"<think":
        state = tables.next(state, byte)
    assert ord(">") in tables.forbidden(state)
    assert ord("a") not in tables.forbidden(state)
    # That is proved, not given up.
    assert tables.undecided(state) == 0
    assert bound.stats["undecided_masks"] == 0


@pytest.mark.usefixtures("large")
def test_near_the_limit_only_what_can_be_closed_in_time_is_opened() -> None:
    bound = bound_to(THINK)
    tables = bound.tables
    state = tables.start
    for byte in b"<think":
        state = tables.next(state, byte)
    # "</", "think", ">"
    assert ord(">") not in tables.forbidden(state, 3)
    assert ord(">") in tables.forbidden(state, 2)
    write(bound, b"<think></think>", left=12)


def bounds(monkeypatch: pytest.MonkeyPatch, **values: int) -> None:
    """The same bounds in the definition and in the form that remembers."""
    for name, value in values.items():
        found = [module for module in (bruteforce, lookahead, ways) if hasattr(module, name)]
        assert len(found) > 1, name
        for module in found:
            monkeypatch.setattr(module, name, value)


TIGHT = [
    {"STATES": 3},
    {"STATES": 30},
    {},
    {"ROWS": 1},
    {"ROWS": 2, "LEFT": 5},
    {"LEFT": 0},
    {"TOGETHER": 1, "STATES": 30},
    {"PURSUITS": 1, "ROWS": 3, "STATES": 50},
]


# Where small sets are handled one by one and large ones together: as if all were small, or all large.
SIZES = [
    {},
    {"MANY": 0, "_FEW": 0, "_AT_ONCE": 3, "_MOSTLY": 1 << 20, "_SMALL": 0},
    {"MANY": 0, "_FEW": 2, "_AT_ONCE": 1, "_MOSTLY": 1 << 20, "_SMALL": 10_000},
    {"MANY": 1 << 20, "_FEW": 1 << 20, "_MOSTLY": 0},
]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("sizes", rest_slow(SIZES, 2), ids=str)
@pytest.mark.parametrize("limits", TIGHT, ids=str)
@pytest.mark.parametrize("seed", range(1))
def test_the_bounds_are_those_of_the_definition(
    seed: int, limits: dict[str, int], sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, **limits)
    for name, value in sizes.items():
        for module in (lookahead, single):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    rng = random.Random(1000 * SIZES.index(sizes) + 100 * TIGHT.index(limits) + seed)
    for _ in range(5):
        bound = random_policies.bound(rng, small=rng.random() < 0.7)
        joint, vocabulary = bound.tables, bound.vocabulary
        state, known = joint.start, {}
        for _ in range(5):
            states = joint.components(state)
            for left in (None, rng.choice([0, 1, 2, 5])):
                tokens = bruteforce.HORIZON if left is None else left
                expected = bruteforce.forbidden(joint.constraints, states, vocabulary, tokens, known)
                assert np.flatnonzero(expected).tolist() == joint.forbidden(state, left).tolist()
            allowed = set(range(vocabulary.width)) - set(joint.forbidden(state).tolist())
            allowed -= set(vocabulary.eos_ids)
            if not allowed:
                break
            state = joint.next(state, rng.choice(sorted(allowed)))


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_all_tokens_are_searched_for_a_mask_within_one_bound(
    seed: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = (THINK, PAREN, StringRule(id="s", strings=("x</", "a)")), RegexRule(id="n", regex=r"\)[^x]"))
    size = toy_vocabulary(WORDS).width
    monkeypatch.setattr(bruteforce, "LOOKED", rows * size)
    bounds(monkeypatch, STATES=4)
    bound = bound_to(*rules)
    joint, known = bound.tables, dict[object, object]()
    state = joint.start
    for byte in (b"(<think>", b"a(b", b"<think>")[seed]:
        for left in (None, 2):
            tokens = bruteforce.HORIZON if left is None else left
            states = joint.components(state)
            expected = bruteforce.forbidden(joint.constraints, states, bound.vocabulary, tokens, known)
            assert np.flatnonzero(expected).tolist() == joint.forbidden(state, left).tolist()
        state = joint.next(state, byte)
        if state < 0:
            break
    assert joint._together._searched


@pytest.mark.parametrize("seed", range(20))
def test_what_bars_a_text_is_what_reading_it_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "_FEW", seed % 3)
    rng = random.Random(seed)
    bound = random_policies.bound(rng, small=seed % 2 == 0)
    joint = bound.tables
    together = joint._together
    texts = [token for token in bound.vocabulary.tokens if token]
    for index, table in enumerate(together.tables):
        automaton = table.automaton
        for _ in range(4):
            text = b"".join(rng.choices(texts, k=rng.randint(1, 3)))
            start = table.root
            for byte in rng.choice(texts):
                start = start if (reached := automaton.step(start, byte)) < 0 else reached
            barring = [
                token
                for token, added in enumerate(bound.vocabulary.tokens)
                if added
                and token not in {*bound.vocabulary.eos_ids, *bound.vocabulary.unusable_ids}
                and (after := automaton.read(start, added)) >= 0
                and ((end := automaton.read(after, text)) < 0 or not automaton.may_end(end))
            ]
            assert together._all_shut(index, start, text).tolist() == barring


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("limits", [{"STATES": 20}, {"STATES": 20, "ROWS": 2, "LEFT": 9}], ids=str)
def test_masks_do_not_depend_on_what_was_asked_before(
    limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, **limits)
    rules = (THINK, FENCE, PAREN, LETTER, RegexRule(id="tags", regex=r"</\w+>[a-m]{2}"))
    texts = [b"(<think>", b"```(a", b"-----BEGIN LETTER-----", b"<think>```", b"((<think></think>"]
    rng = random.Random(0)
    seen: dict[tuple[bytes, int | None], tuple[list[int], int]] = {}
    for _ in range(3):
        bound = bound_to(*rules)
        rng.shuffle(texts)
        for text in texts:
            state = bound.tables.start
            for length, byte in enumerate(text, start=1):
                state = bound.tables.next(state, byte)
                if state < 0:
                    break
                for left in rng.sample([None, 2, 6], 3):
                    mask = bound.tables.forbidden(state, left).tolist(), bound.tables.undecided(state, left)
                    assert seen.setdefault((text[:length], left), mask) == mask
    assert len(seen) > 20


@pytest.mark.usefixtures("large")
def test_what_is_not_decided_is_masked_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, STATES=5)
    bound = bound_to(THINK)
    state = bound.tables.start
    for byte in b"<think":
        state = bound.tables.next(state, byte)
    assert ord(">") in bound.tables.forbidden(state)
    assert bound.tables.undecided(state)
    assert bound.stats["undecided_masks"] == 1


@pytest.mark.usefixtures("large")
def test_tokens_beyond_those_that_are_looked_at_are_masked_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mask() -> tuple[set[int], int]:
        tables = bound_to(THINK, LETTER).tables
        state = tables.start
        for byte in b"<think>-----BEGIN LETTER----":
            state = tables.next(state, byte)
        return set(tables.forbidden(state).tolist()), tables.undecided(state)

    free, undecided = mask()
    assert undecided == 0
    bounds(monkeypatch, LEFT=0)
    some, undecided = mask()
    assert free < some
    assert undecided == len(some - free)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("limits", [{}, {"ROWS": 0}, {"LEFT": 0}], ids=str)
def test_what_begins_the_way_out_is_allowed_whatever_is_looked_at(
    limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, **limits)
    bound = bound_to(THINK, LETTER)
    tables = bound.tables
    state = tables.start
    for byte in b"<think>-----BEGIN LETTER-----":
        state = tables.next(state, byte)
    # As many tokens as the way out takes are left: nothing else can be written until all is closed.
    written, left = b"", 20
    while not tables.may_end(state):
        while left and len(tables.forbidden(state, left - 1)) < bound.vocabulary.width:
            left -= 1
        allowed = sorted(set(range(bound.vocabulary.width)) - set(tables.forbidden(state, left).tolist()))
        assert allowed, written
        written += bound.vocabulary.tokens[allowed[-1]]
        state, left = tables.next(state, allowed[-1]), max(left - 1, 0)
    assert b"</think>" in written
