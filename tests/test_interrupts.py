"""An exception at any line of a step (Ctrl-C, no memory left) leaves a guard that others share as sound as before."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import nco_guard
from nco_guard.automata import Automaton, FoldedAhoCorasick
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.errors import RedactionError
from nco_guard.masking import JointTables
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.scan import StreamVerifier, Verifier, redact
from nco_guard.session import BoundGuard, RowTracker, TextState
from nco_guard.testing import toy_vocabulary
from nco_guard.tokens import Vocabulary

_HOME = Path(nco_guard.__file__).parent
ROOMS = [str(_HOME / room) for room in ("masking", "automata", "session", "compiler")]
SEARCHING = [str(_HOME / room) for room in ("scan", "automata", "compiler")]
MERGES = ("du", "ck", "duck", "ass", "ist", " ", "é", "1", "11", "-", "ab", "\\u0", "61", "hello", "\n", "b1")
LETTERS = [*MERGES, *"abckdu1-s é", "😀", "\\", "6"]
POLICIES: dict[str, tuple[Rule, ...]] = {
    "strings": (
        StringRule(id="exact", strings=("duck", "é1", "assist")),
        StringRule(id="folded", strings=("Ab1", "kk"), case="fold"),
        StringRule(id="words", strings=("ass", "duck b"), whole_word=True, case="fold"),
        StringRule(id="soft", strings=("us", "11"), penalty=2.0),
    ),
    "patterns": (
        RegexRule(id="word", regex=r"\bass\b"),
        RegexRule(id="longer", regex=r"ass[a-z]{2}1"),
        RegexRule(id="ahead", regex=r"ab(?!\w{0,3}c)|(?<=1-)b\w*k"),
        RegexRule(id="number", regex=r"\d{2}-\d{1,3}\b", penalty=1.0),
        RegexRule(id="wide", regex=r"é[^1]{1,4}1"),
    ),
    "folded": (
        RegexRule(id="escapes", regex=r"a1+b", json_escapes=True, normalize="nfkc", ignore=("-",)),
        RegexRule(id="luhn", regex=r"\b\d{2,4}\b", checksum="luhn"),
        StringRule(id="alike", strings=("duck",), confusables="letters", case="fold"),
    ),
}


class Interrupt(BaseException):
    """Raised from outside, at a line of somebody's choice."""


@contextmanager
def interrupted(where: Callable[[str, int], bool], rooms: Sequence[str] = ROOMS) -> Iterator[None]:
    """Raise `Interrupt` before the first line of the rooms for which `where(file, line)` is true, once."""
    done = False

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal done
        if done or not frame.f_code.co_filename.startswith(tuple(rooms)):
            return None
        if event == "line" and where(frame.f_code.co_filename, frame.f_lineno):
            done = True
            raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


class Oracle:
    """What masks should be, from a guard that nobody interrupts."""

    def __init__(self, compiled: CompiledPolicy, vocabulary: Vocabulary) -> None:
        self._bound = BoundGuard(compiled, vocabulary)
        self._known: dict[tuple[int, ...], tuple[Any, ...]] = {}

    def of(self, text: tuple[int, ...]) -> tuple[Any, ...]:
        if text not in self._known:
            self._known[text] = looked_up(self._bound.tables, text)
        return self._known[text]


def looked_up(tables: JointTables, text: tuple[int, ...]) -> tuple[Any, ...]:
    """Everything that tables say after a text."""
    state = tables.start
    for token in text:
        state = tables.next(state, token)
    if state < 0:
        return (state,)
    ids, amounts = tables.penalties(state)
    near = [tables.forbidden(state, left).tobytes() for left in (0, 2)]
    masks = tables.forbidden(state).tobytes(), *near
    return *masks, ids.tobytes(), amounts.tobytes(), tables.may_end(state)


def some_text(rng: random.Random, vocabulary: Vocabulary, longest: int = 6) -> tuple[int, ...]:
    tokens = vocabulary.tokens
    found: list[int] = []
    for _ in range(rng.randint(1, longest)):
        data = rng.choice(LETTERS).encode()
        found += [tokens.index(data)] if data in tokens else list(data)
    return tuple(found)


class Lines:
    """Which line a step is broken off at: of those that were seen, one at which that happened least; or just the next
    but so many.
    """

    def __init__(self, rng: random.Random) -> None:
        self.met: Counter[tuple[str, int]] = Counter()
        self._tries: dict[tuple[str, int], float] = {}
        self._rng = rng
        self._target = ("", 0)
        self._skipped = self._ahead = 0

    def choose(self) -> None:
        """Choose one for the next step."""
        self._ahead = int(10 ** self._rng.uniform(0, 3.3)) if self._rng.random() < 0.5 else -1
        if self._tries:
            self._target = min(self._tries, key=lambda line: (self._tries[line], self._rng.random()))
            self._tries[self._target] += 0.5  # it may not come
        self._skipped = self._rng.choice([0, 0, 1, 3])

    def __call__(self, file: str, line: int) -> bool:
        self._tries.setdefault((file, line), 0.0)
        self._ahead -= 1
        if not self._ahead:
            self._target, self._skipped = (file, line), 0
        if (file, line) != self._target:
            return False
        self._skipped -= 1
        if self._skipped >= 0:
            return False
        self.met[self._target] += 1
        self._tries[self._target] += 0.5
        return True

    @property
    def last(self) -> str:
        """The line that was chosen."""
        return f"{Path(self._target[0]).name}:{self._target[1]}"


@pytest.mark.parametrize("name", POLICIES)
def test_a_step_that_breaks_off_at_any_line_leaves_a_shared_guard_sound(name: str) -> None:
    rng = random.Random(3)
    vocabulary, compiled = toy_vocabulary(MERGES), compile_policy(Policy(name="p", rules=POLICIES[name]))
    oracle, lines = Oracle(compiled, vocabulary), Lines(rng)
    wrong: list[Any] = []
    for _ in range(5):
        bound = BoundGuard(compiled, vocabulary)
        texts = [some_text(rng, vocabulary) for _ in range(40)]
        for text in texts:
            lines.choose()
            try:
                with interrupted(lines):
                    looked_up(bound.tables, text)
            except Interrupt:
                for other in (text, rng.choice(texts)):
                    wrong += differing(bound, oracle, other, lines.last)
    assert not wrong, wrong[:10]
    assert sum(lines.met.values()) > 60


def differing(
    bound: BoundGuard, oracle: Oracle, text: tuple[int, ...], where: str
) -> Iterator[tuple[str, str]]:
    try:
        if looked_up(bound.tables, text) != oracle.of(text):
            yield where, "another mask"
    except Exception as error:
        yield where, repr(error)


def test_rows_of_a_batch_are_told_right_after_any_call_that_broke_off() -> None:
    """The same call once more, or another: each row has the state of its text, as it is read from its beginning."""
    rng = random.Random(5)
    vocabulary = toy_vocabulary(MERGES)
    compiled = compile_policy(Policy(name="p", rules=POLICIES["strings"]))
    bound, lines = BoundGuard(compiled, vocabulary), Lines(rng)
    letters = [vocabulary.tokens.index(data.encode()) for data in ("du", "ck", "ass", " ", "é", "1", "ab")]
    tracker, broken = RowTracker(bound), 0
    for _ in range(60):
        rows = [[1, 2 + rng.randrange(3)] for _ in range(rng.randint(1, 3))]
        for _ in range(12):
            lines.choose()
            try:
                with interrupted(lines, ROOMS[2:3]):
                    tracker.follow(np.array(rows, np.int64))
            except Interrupt:
                broken += 1
                if rng.random() < 0.5 and len(rows[0]) > 2:
                    rows = [
                        [*row[:-1], rng.choice(letters)] for row in rng.choices(rows, k=rng.randint(1, 3))
                    ]
            states = tracker.follow(np.array(rows, np.int64))
            assert list(tracker.prompt_lengths) == [2] * len(rows), lines.last
            for row, state, forced in zip(rows, states, tracker.broken, strict=True):
                text = TextState(bound)
                assert state == text.rewrite(tracker.tables, row[2:]), lines.last
                assert forced is bool(text.forced)
            cut = max(2, len(rows[0]) - rng.choice([0, 0, 0, 1, 3]))
            parents = rows if rng.random() < 0.5 else rng.choices(rows, k=rng.randint(1, 3))
            rows = [[*row[:cut], rng.choice(letters)] for row in parents]
        tracker.reset()
    assert broken > 60


def searched(compiled: CompiledPolicy, text: str) -> tuple[Any, ...]:
    """What is found in a text, and what is left of it, whole and in pieces."""
    stream = StreamVerifier(compiled)
    try:
        whole: Any = redact(compiled, text).text
        shown: Any = stream.feed(text[:5]) + stream.feed(text[5:]) + stream.finish()
    except RedactionError as error:
        whole, shown = str(error), None
    return Verifier.of(compiled).verify(text), whole, shown


@pytest.mark.parametrize("name", POLICIES)
def test_a_search_that_breaks_off_at_any_line_leaves_its_policy_sound(name: str) -> None:
    rng, lines = random.Random(6), Lines(random.Random(7))
    rules, wrong = POLICIES[name], list[Any]()
    for _ in range(3):
        shared = compile_policy(Policy(name="p", rules=rules))
        for _ in range(25):
            text, other = ("".join(rng.choices(LETTERS, k=20)) for _ in range(2))
            lines.choose()
            try:
                with interrupted(lines, SEARCHING):
                    searched(shared, text)
            except Interrupt:
                clean = compile_policy(Policy(name="p", rules=rules))
                wrong += [
                    (lines.last, one)
                    for one in (text, other)
                    if searched(shared, one) != searched(clean, one)
                ]
    assert not wrong, wrong[:10]
    assert sum(lines.met.values()) > 30


def read_to(automaton: Automaton, data: bytes) -> list[tuple[bool, bool, bool]]:
    """After each byte: whether a match completed, and whether the text may end."""
    state, found = automaton.start, []
    for byte in data:
        reached = automaton.step(state, byte)
        state = ~reached if reached < 0 else reached
        alike = automaton.step_many(np.array([state] * 6, np.int32), np.frombuffer(b"abk1-s", np.uint8))
        found.append((reached < 0, automaton.may_end(state), bool(alike.min() < 0)))
        assert automaton.distance(state) >= 0
    return found


@pytest.mark.parametrize("name", [*POLICIES, "crowd"])
def test_automata_that_break_off_while_they_find_states_are_sound(name: str) -> None:
    rng = random.Random(4)
    rules = POLICIES.get(name) or tuple(
        RegexRule(id=f"r{i}", regex=rf"[ab]{{{1 + i % 4}}}{'ab1'[i % 3]}1{{{1 + i % 5}}}b(?!a)")
        for i in range(33)
    )
    compiled = compile_policy(Policy(name="p", rules=rules))
    clean = compiled.constraints(None)
    lines = Lines(rng)
    wrong: list[Any] = []
    for _ in range(35):
        for place, constraint in enumerate(compiled.constraints(None)):
            automaton = constraint.automaton
            if isinstance(automaton, FoldedAhoCorasick):
                automaton = automaton.fresh()
            for _ in range(8):
                data = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 9))).encode()
                lines.choose()
                try:
                    with interrupted(lines):
                        read_to(automaton, data)
                    continue
                except Interrupt:
                    pass
                for text in (data, data[: len(data) // 2].decode("utf-8", "ignore").encode() + data):
                    try:
                        if read_to(automaton, text) != read_to(clean[place].automaton, text):
                            wrong.append((lines.last, "another verdict"))
                    except Exception as error:
                        wrong.append((lines.last, repr(error)))
    assert not wrong, wrong[:10]
    assert sum(lines.met.values()) > 200
