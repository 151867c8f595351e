"""What a streamer is shown: ids up to where the text may end, by the definition, at a cost that does not grow."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from transformers.generation.streamers import BaseStreamer

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.compiler import compile_policy
from nco_guard.engines.hf import TextStream
from nco_guard.engines.hf.streamers import HoldingStreamer
from nco_guard.errors import ForbiddenTokenError
from nco_guard.masking import ENDED, JointTables
from nco_guard.session import BoundGuard, RowTracker
from nco_guard.testing import toy_vocabulary

PIECES = ("ass", "du", "ck", "ling", " ", "99")
POLICIES = [
    compile_policy(Policy(name="p", rules=rules))
    for rules in (
        (RegexRule(id="w", regex=r"\bass\b"), StringRule(id="s", strings=("duck",))),
        (RegexRule(id="w", regex=r"\bduck(ling)?\b", context="prompt"), RegexRule(id="n", regex=r"\d{3}$")),
        (RegexRule(id="open", regex=r" (?!.*ass)", context="prompt"),),
    )
]


class Recorder(BaseStreamer):  # type: ignore[misc]
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.put_: list[list[int]] = []

    def put(self, value: torch.Tensor) -> None:
        self.put_.append(value.ravel().tolist())

    def end(self) -> None:
        pass


def definition(bound: BoundGuard, prompt: list[int], ids: list[int], reads_prompt: bool) -> list[list[int]]:
    """The state of each beginning of the row, read anew; what is shown is what lies before where it may end."""
    shown, passed = [prompt], len(prompt)
    tracker = RowTracker(bound, reads_prompt=reads_prompt)
    tracker.advance(np.array([prompt], np.int64))
    for length in range(len(prompt) + 1, len(prompt) + len(ids) + 1):
        row = [*prompt, *ids][:length]
        state = int(tracker.advance(np.array([row], np.int64))[0])
        if tracker.violations:
            break
        if state == ENDED or tracker.tables.may_end(state):
            shown.append(row[passed:])
            passed = length
        if state == ENDED:
            break
    return shown


def walk(rng: random.Random, bound: BoundGuard, prompt: list[int], reads_prompt: bool) -> list[int]:
    """Random ids that the masks allow; now and then one that they forbid, or the end."""
    session, ids = bound.session(prompt if reads_prompt else None), list[int]()
    wanted = [bound.vocabulary.tokens.index(piece.encode()) for piece in PIECES]
    while len(ids) < 25 and not session.ended:
        ids.append(rng.choice([*wanted, *wanted, ord("x"), bound.vocabulary.eos_ids[0]]))
        try:
            session.advance(ids[-1])
        except ForbiddenTokenError:
            if rng.random() < 0.1:
                break
            ids.pop()
    return [*ids, *rng.choices(wanted, k=2)]  # nothing that comes after counts


@pytest.mark.parametrize("memory_limit", [None, 1])
@pytest.mark.parametrize("reads_prompt", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_passed_on_is_what_the_states_of_all_beginnings_say(
    policy: Any, reads_prompt: bool, memory_limit: int | None
) -> None:
    rng = random.Random(7)
    bound = BoundGuard(policy, toy_vocabulary(PIECES))
    if memory_limit is not None:
        bound._memory_limit = bound.tables.memory_limit = memory_limit  # tables are replaced at every step
    for _ in range(60 if memory_limit is None else 4):
        prompt = [
            bound.vocabulary.tokens.index(rng.choice(PIECES).encode()) for _ in range(rng.randint(1, 4))
        ]
        ids = walk(rng, bound, prompt, reads_prompt)
        inner = Recorder()
        streamer = HoldingStreamer(inner, bound, reads_prompt=reads_prompt)
        streamer.put(torch.tensor([prompt]))
        for token in ids:
            streamer.put(torch.tensor([token]))
        assert inner.put_ == definition(bound, prompt, ids, reads_prompt)


def test_the_work_of_a_token_does_not_grow_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: one step of the tables a token, and no more memory taken after 20,000 tokens than after 200."""
    bound = BoundGuard(POLICIES[0], toy_vocabulary(PIECES))
    steps = 0
    step = JointTables.next

    def counted(tables: JointTables, state: int, token: int) -> int:
        nonlocal steps
        steps += 1
        return step(tables, state, token)

    shown: list[str] = []
    streamer = HoldingStreamer(TextStream(bound.vocabulary, shown.append), bound)
    streamer.put(torch.tensor([[ord("x")] * 50]))
    monkeypatch.setattr(JointTables, "next", counted)
    one = torch.tensor([ord("x")])

    def taken(until: int) -> int:
        """The least that one of the last tokens takes: a list that grows takes more from time to time."""
        while len(shown) < until - 10:
            streamer.put(one)
        least = []
        for _ in range(10):
            tracemalloc.start()
            streamer.put(one)
            least.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        return min(least)

    early = taken(200)
    assert taken(20_000) <= early + 200
    assert steps == len(shown) == 20_000
