"""Rows keep the state of their own text, however an engine moves them about."""

import random
from typing import Any

import numpy as np
import pytest

from nco_guard.errors import GenerationError
from nco_guard.session import RowTracker

VIOLATED, ENDED = -1, -2
END = 99
#: Stands for a forbidden token in the texts of the tables below.
FORCED = -7


class Dictionary:
    """Tables whose states are the texts themselves: token 7 after token 5 is forbidden, 99 ends."""

    def __init__(self) -> None:
        self.texts: list[tuple[Any, ...]] = [()]
        self.numbers: dict[tuple[Any, ...], int] = {(): 0}
        self.start = 0
        self.steps = 0

    def _number(self, text: tuple[Any, ...]) -> int:
        if text not in self.numbers:
            self.numbers[text] = len(self.texts)
            self.texts.append(text)
        return self.numbers[text]

    def next(self, state: int, token: int) -> int:
        if state < 0:
            return state
        self.steps += 1
        if token == END:
            return ENDED
        text = self.texts[state]
        if token == 7 and text and text[-1] == 5:
            return VIOLATED
        return self._number((*text, token))

    def forced(self, states: list[int], tokens: list[int]) -> int:
        assert len(states) == len(tokens)
        for before, token, after in zip(states, tokens, states[1:], strict=False):
            assert self.next(before, token) in (VIOLATED, after), "they are those of this text"
        assert self.next(states[-1], tokens[-1]) == VIOLATED
        return self._number((*self.texts[states[-1]], FORCED))

    def start_after(self, context: bytes, begun: str = "") -> int:
        assert not begun
        return self._number((context,))


class Source:
    needs_context = False
    begun = ""

    def context_bytes(self, context: list[int]) -> bytes:
        return bytes(context)

    def __init__(self) -> None:
        self.answers = Dictionary()


def follow(tracker: RowTracker, ids: list[list[int]]) -> list[Any]:
    """The texts (or final states) of the rows, as the tracker sees them."""
    states = tracker.advance(np.array(ids, dtype=np.int64)).tolist()
    return [tracker.tables.texts[state] if state >= 0 else state for state in states]


def test_rows_that_stay_advance_by_one_step_each() -> None:
    source = Source()
    tracker = RowTracker(source)
    assert follow(tracker, [[1, 2], [3, 4]]) == [(), ()]
    assert follow(tracker, [[1, 2, 10], [3, 4, 11]]) == [(10,), (11,)]
    assert follow(tracker, [[1, 2, 10, 12], [3, 4, 11, 13]]) == [(10, 12), (11, 13)]
    assert source.answers.steps == 4
    assert tracker.prompt_lengths == [2, 2]


def test_permuted_duplicated_and_dropped_rows_keep_their_text() -> None:
    tracker = RowTracker(Source())
    follow(tracker, [[1], [2], [3]])
    follow(tracker, [[1, 10], [2, 20], [3, 30]])
    assert follow(tracker, [[3, 30, 31], [1, 10, 11], [3, 30, 32]]) == [(30, 31), (10, 11), (30, 32)]
    assert follow(tracker, [[3, 30, 32, 33]]) == [(30, 32, 33)]


def test_equal_prompts_side_by_side() -> None:
    tracker = RowTracker(Source())
    follow(tracker, [[1], [1]])
    assert follow(tracker, [[1, 5], [1, 6]]) == [(5,), (6,)]
    assert follow(tracker, [[1, 6, 7], [1, 5, 7]]) == [(6, 7), (5, FORCED)]


def test_lengths_may_go_back() -> None:
    """Assisted decoding: several positions are scored, some are rejected, decoding goes on from before."""
    tracker = RowTracker(Source())
    follow(tracker, [[1, 2]])
    for length in (3, 4, 5):
        follow(tracker, [[1, 2, 10, 11, 12][:length]])
    assert follow(tracker, [[1, 2, 10, 20]]) == [(10, 20)]
    assert follow(tracker, [[1, 2, 10]]) == [(10,)]
    assert follow(tracker, [[1, 2, 10, 20]]) == [(10, 20)]
    assert follow(tracker, [[1, 2, 10, 20, 21]]) == [(10, 20, 21)]


def test_a_rejected_violation_leaves_no_trace() -> None:
    tracker = RowTracker(Source())
    follow(tracker, [[1]])
    follow(tracker, [[1, 5]])
    assert follow(tracker, [[1, 5, 7]]) == [(5, FORCED)]
    assert follow(tracker, [[1, 5, 7, 8]]) == [(5, FORCED, 8)]
    assert tracker.broken == [True]
    assert follow(tracker, [[1, 5, 8]]) == [(5, 8)]
    assert tracker.broken == [False]


def test_a_forced_token_is_named_once_and_known_for_good() -> None:
    source = Source()
    tracker = RowTracker(source)
    follow(tracker, [[1], [1]])
    follow(tracker, [[1, 5], [1, 6]])
    before = tracker.advance(np.array([[1, 5], [1, 6]])).tolist()
    assert follow(tracker, [[1, 5, 7], [1, 6, 7]]) == [(5, FORCED), (6, 7)]
    assert [tuple(v) for v in tracker.violations] == [(0, before[0], 7)]
    # The rows change places, and one of them breaks the policy once more.
    assert follow(tracker, [[1, 6, 7, 5], [1, 5, 7, 5]]) == [(6, 7, 5), (5, FORCED, 5)]
    assert not tracker.violations
    assert tracker.broken == [False, True]
    source.answers = Dictionary()
    assert follow(tracker, [[1, 6, 7, 5, 8], [1, 5, 7, 5, 7]]) == [(6, 7, 5, 8), (5, FORCED, 5, FORCED)]
    assert [violation.row for violation in tracker.violations] == [1]
    assert follow(tracker, [[1, 5, 7, 5, 7, END], [8, 8, 8, 8, 8, 8]]) == [ENDED, ()]
    assert tracker.broken == [True, False]


def test_ended_rows_stay_ended_under_pads() -> None:
    tracker = RowTracker(Source())
    follow(tracker, [[1], [2]])
    follow(tracker, [[1, END], [2, 20]])
    assert follow(tracker, [[1, END, 0], [2, 20, 21]]) == [ENDED, (20, 21)]
    assert follow(tracker, [[1, END, 0, 7], [2, 20, 21, 22]]) == [ENDED, (20, 21, 22)]


def test_the_same_object_serves_one_generation_after_another() -> None:
    tracker = RowTracker(Source())
    follow(tracker, [[1, 2]])
    follow(tracker, [[1, 2, 10]])
    assert follow(tracker, [[8, 9, 9]]) == [()]
    assert follow(tracker, [[8, 9, 9, 10]]) == [(10,)]
    assert follow(tracker, [[1, 2]]) == [()], "the same prompt again"
    follow(tracker, [[1, 2, 10]])
    assert follow(tracker, [[1, 2, 10, 50, 51, 52]]) == [()], (
        "a prompt that holds an earlier answer, and more"
    )


def test_known_and_unknown_rows_in_one_batch() -> None:
    tracker = RowTracker(Source())
    follow(tracker, [[1, 2]])
    assert follow(tracker, [[1, 2, 10], [4, 4, 4]]) == [(10,), ()]
    assert tracker.prompt_lengths == [2, 3]
    assert follow(tracker, [[4, 4, 4, 40], [1, 2, 10, 11]]) == [(40,), (10, 11)]


def test_a_prompt_that_is_an_earlier_text_is_taken_as_its_continuation() -> None:
    """The documented ambiguity, and the way out."""
    tracker = RowTracker(Source())
    for length in (1, 2, 3):
        follow(tracker, [[1, 10, 11][:length]])
    assert follow(tracker, [[1, 10, 11]]) == [(10, 11)]
    tracker.reset()
    assert follow(tracker, [[1, 10, 11]]) == [()]


def test_replaced_tables_are_fed_the_texts_again() -> None:
    source = Source()
    tracker = RowTracker(source)
    follow(tracker, [[1], [2]])
    follow(tracker, [[1, 10], [2, 20]])
    source.answers = Dictionary()
    source.answers.start_after(b"other numbers")
    assert follow(tracker, [[2, 20, 21], [1, 10, END]]) == [(20, 21), ENDED]
    source.answers = Dictionary()
    assert follow(tracker, [[2, 20, 21, 22], [1, 10, END, 0]]) == [(20, 21, 22), ENDED]


def test_the_prompt_is_shown_to_rules_that_ask_for_it() -> None:
    class Curious(Source):
        needs_context = True

    tracker = RowTracker(Curious())
    assert follow(tracker, [[1, 2], [3, 4]]) == [(b"\x01\x02",), (b"\x03\x04",)]
    assert follow(tracker, [[3, 4, 5]]) == [(b"\x03\x04", 5)]


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_moves_equals_replay(seed: int) -> None:
    """Random beams: rows are copied, dropped, extended and cut; states always equal those of the text."""
    source = random.Random(seed)
    tracker = RowTracker(Source())
    prompts = [[100 + number, 0] for number in range(3)]
    rows = [list(prompt) for prompt in prompts]
    follow(tracker, rows)
    for _ in range(60):
        cut = source.choice([0, 0, 0, 1, 3])
        length = max(2, len(rows[0]) - cut)
        rows = [
            [*row[:length], source.choice([5, 6, 7, 8])]
            for row in source.choices(rows, k=source.randint(1, 4))
        ]
        expected = []
        for row in rows:
            text = tuple(row[2:])
            expected.append(with_forced(text, 7))
        assert follow(tracker, rows) == expected


# -- a policy for each prompt ----------------------------------------------------------------------------------


class Tagged(Dictionary):
    """Tables of one policy: texts begin with its name, and its own token after 5 is forbidden."""

    def __init__(self, name: str, bad: int) -> None:
        super().__init__()
        self.texts, self.numbers = [(name,)], {(name,): 0}
        self.bad = bad

    def next(self, state: int, token: int) -> int:
        text = self.texts[state]
        if token == END:
            return ENDED
        return VIOLATED if token == self.bad and text[-1] == 5 else self._number((*text, token))


def with_forced(text: tuple[Any, ...], bad: int) -> tuple[Any, ...]:
    """A text, its forbidden tokens replaced by `FORCED`."""
    found: list[Any] = []
    for token in text:
        found.append(FORCED if token == bad and found and found[-1] == 5 else token)
    return tuple(found)


class TaggedSource(Source):
    def __init__(self, name: str, bad: int = 7) -> None:
        self.answers = Tagged(name, bad)


def follow_each(tracker: RowTracker, ids: list[list[int]]) -> list[Any]:
    states = tracker.advance(np.array(ids, dtype=np.int64)).tolist()
    return [
        tracker.all_tables[policy].texts[state] if state >= 0 else state
        for policy, state in zip(tracker.policies, states, strict=True)
    ]


def test_each_prompt_begins_in_its_own_policy_with_all_its_rows() -> None:
    a, b = TaggedSource("a"), TaggedSource("b")
    tracker = RowTracker([a, b, a])
    rows = [[1], [1], [2], [2], [3], [3]]
    assert follow_each(tracker, rows) == [("a",), ("a",), ("b",), ("b",), ("a",), ("a",)]
    assert list(tracker.policies) == [0, 0, 1, 1, 0, 0], "the same source is one policy"


def test_rows_of_equal_ids_keep_their_own_policies() -> None:
    tracker = RowTracker([TaggedSource("a", 6), TaggedSource("b", 7)])
    follow_each(tracker, [[1], [1]])
    assert follow_each(tracker, [[1, 5], [1, 5]]) == [("a", 5), ("b", 5)]
    assert follow_each(tracker, [[1, 5, 7], [1, 5, 7]]) == [("a", 5, 7), ("b", 5, FORCED)]
    assert follow_each(tracker, [[1, 5, 6], [1, 5, 6]]) == [("a", 5, FORCED), ("b", 5, 6)], "gone back"


def test_rows_of_equal_ids_that_move_within_their_prompts() -> None:
    tracker = RowTracker([TaggedSource("a", 6), TaggedSource("b", 7)])
    follow_each(tracker, [[1], [1], [1], [1]])
    follow_each(tracker, [[1, 5], [1, 8], [1, 8], [1, 5]])
    moved = [[1, 8, 9], [1, 5, 6], [1, 5, 6], [1, 5, 7]]
    assert follow_each(tracker, moved) == [
        ("a", 8, 9),
        ("a", 5, FORCED),
        ("b", 5, 6),
        ("b", 5, FORCED),
    ]


def test_rows_that_leave_their_place_take_their_policy_along() -> None:
    tracker = RowTracker([TaggedSource("a"), TaggedSource("b"), TaggedSource("c")])
    follow_each(tracker, [[1], [2], [3]])
    assert follow_each(tracker, [[3, 30], [2, 20]]) == [("c", 30), ("b", 20)]
    assert follow_each(tracker, [[2, 20, 21]]) == [("b", 20, 21)]


def test_what_cannot_be_told_apart_is_an_error_and_no_guess() -> None:
    tracker = RowTracker([TaggedSource("a"), TaggedSource("b")])
    follow_each(tracker, [[1], [1]])
    with pytest.raises(GenerationError, match=r"row 0.*several guards"):
        follow_each(tracker, [[1, 5]])
    with pytest.raises(GenerationError, match=r"3 rows .* 2 prompts"):
        follow_each(RowTracker([TaggedSource("a"), TaggedSource("b")]), [[1], [2], [3]])


def test_only_the_policy_whose_tables_were_replaced_is_replayed() -> None:
    a, b = TaggedSource("a"), TaggedSource("b")
    tracker = RowTracker([a, b])
    follow_each(tracker, [[1], [1]])
    follow_each(tracker, [[1, 5], [1, 5]])
    b.answers = Tagged("new b", 6)
    steps = a.answers.numbers.copy()
    assert follow_each(tracker, [[1, 5, 6], [1, 5, 6]]) == [("a", 5, 6), ("new b", 5, FORCED)]
    assert set(a.answers.numbers) - set(steps) == {("a", 5, 6)}


@pytest.mark.parametrize("seed", range(20))
def test_any_moves_of_beams_under_several_policies_equal_replay(seed: int) -> None:
    """Prompts, some of them equal, with beams of their own that are permuted, copied and cut."""
    source = random.Random(seed)
    bad = [6, 7, 8]
    sources = [TaggedSource(name, token) for name, token in zip("abc", bad, strict=True)]
    of_prompt = [source.randrange(3) for _ in range(4)]
    tracker = RowTracker([sources[policy] for policy in of_prompt])
    beams = source.randint(1, 4)
    rows = [[100 + source.randrange(2), 0] for _ in range(4) for _ in range(beams)]
    for prompt in range(4):
        rows[prompt * beams : (prompt + 1) * beams] = [rows[prompt * beams]] * beams
    follow_each(tracker, rows)
    for _ in range(60):
        length = max(2, len(rows[0]) - source.choice([0, 0, 0, 1, 3]))
        rows = [
            [*parent[:length], source.choice([5, 6, 7, 8])]
            for prompt in range(4)
            for parent in source.choices(rows[prompt * beams : (prompt + 1) * beams], k=beams)
        ]
        expected: list[Any] = []
        for number, row in enumerate(rows):
            policy, text = of_prompt[number // beams], tuple(row[2:])
            expected.append(("abc"[policy], *with_forced(text, bad[policy])))
        assert follow_each(tracker, rows) == expected
