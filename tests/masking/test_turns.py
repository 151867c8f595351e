"""A long search holds nobody up: others find their masks meanwhile, and all find the same."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from nco_guard.masking import bruteforce
from nco_guard.masking.turns import Turns
from nco_guard.policy import RegexRule, StringRule
from nco_guard.session import BoundGuard
from tests.binding import bind

RULES = (
    RegexRule(id="think", regex=r"(?s)<think>(?!.*</think>)"),
    RegexRule(id="letter", regex=r"(?s)BEGIN LETTER(?!.*END LETTER)"),
    RegexRule(id="paren", regex=r"\((?!.*\))"),
    StringRule(id="s", strings=("x</", "a)")),
)
WORDS = ["<think>", "think", "</", "a", " (", "BEGIN", " LETTER", "END", "x<", "é", "日本"]
OPENED = b"<think> BEGIN LETTER (b"


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in vocabularies that are too large to be searched as a whole."""
    monkeypatch.setattr(bruteforce, "SMALL", 0)


bound = partial(bind, *RULES, merges=WORDS)


def masks(guard: BoundGuard, text: bytes) -> list[list[int]]:
    """Those before each byte of a text."""
    tables, found = guard.tables, []
    state = tables.start
    for byte in text:
        found += [tables.forbidden(state).tolist(), tables.forbidden(state, 3).tolist()]
        state = tables.next(state, byte)
        if state < 0:
            break
    return found


def test_another_thread_finds_its_masks_within_a_search() -> None:
    guard, text = bound(), b"some (other) text"
    expected = masks(bound(), text)
    searching, found, end = threading.Event(), threading.Event(), time.monotonic() + 60
    seen: list[list[list[int]]] = []

    def other() -> None:
        assert searching.wait(60)
        seen.append(masks(guard, text))
        found.set()

    def give_way() -> None:
        """The search goes on only when the other thread is done, which it never is while the lock is held."""
        if threading.current_thread() is thread:
            original()
            return
        searching.set()
        while not found.is_set() and time.monotonic() < end:
            original()

    together = guard.tables._together
    original, together.give_way = together.give_way, give_way
    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    own = masks(guard, OPENED)
    assert searching.is_set()
    thread.join(60)
    assert seen == [expected]
    assert own == masks(bound(), OPENED)


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_search_at_once_find_the_same(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [
        b"<think>",
        b"</think>",
        b"BEGIN LETTER",
        b"END LETTER",
        b"(",
        b")",
        b"x<",
        b"a",
        b" ",
        b"\xc3\xa9",
    ]
    texts = [b"".join(rng.choices(pieces, k=6)) for _ in range(8)]
    expected = [masks(bound(), text) for text in texts]
    shared = bound()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            order = rng.sample(range(8), 8)
            assert list(pool.map(lambda i: masks(shared, texts[i]), order)) == [expected[i] for i in order]


def test_turns_are_given_up_however_often_they_are_held() -> None:
    turns, entered, end = Turns(), threading.Event(), time.monotonic() + 60

    def other() -> None:
        with turns.taken():
            entered.set()

    thread = threading.Thread(target=other, daemon=True)
    with turns.taken(), turns.taken():
        turns.give_way()  # nobody waits
        thread.start()
        while not entered.is_set() and time.monotonic() < end:
            turns.give_way()
        assert entered.is_set()
    thread.join(60)


def test_what_is_raised_under_it_leaves_it_free() -> None:
    turns = Turns()
    with pytest.raises(RuntimeError), turns.taken():
        raise RuntimeError
    with ThreadPoolExecutor(1) as pool:

        def take() -> bool:
            with turns.taken():
                return True

        assert pool.submit(take).result(60)
