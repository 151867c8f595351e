"""Tables for accelerators: equal to those of the host in every state, and no step reads a value back."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch

from nco_guard.errors import StateLimitError
from nco_guard.masking import ENDED, VIOLATED, JointTables, bruteforce, device
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.masking.device import DeviceTables
from nco_guard.masking.enumeration import ByteAutomaton, byte_automaton, token_table
from nco_guard.session import BoundGuard
from tests.masking import random_policies

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def enumerated(bound: BoundGuard, **limits: int) -> tuple[ByteAutomaton, JointTables]:
    tables = bound.tables
    first = tables.components(tables.start)
    return byte_automaton(tables.constraints, first, **limits), tables


def device_tables(
    bound: BoundGuard, where: str = "cpu", **options: Any
) -> tuple[DeviceTables, ByteAutomaton]:
    automaton, _ = enumerated(bound, max_states=4000)
    return DeviceTables(token_table(automaton, bound.vocabulary, bound._tree), where, **options), automaton


def host_states(tables: JointTables, limit: int) -> list[int]:
    """Joint states that tokens lead to, breadth first."""
    seen = {tables.start: None}
    for state in itertools.islice(iter_growing(seen), limit):
        for token in range(tables.vocabulary.width):
            reached = tables.next(state, token)
            if reached >= 0 and len(seen) < limit:
                seen[reached] = None
    return list(seen)


def iter_growing(seen: dict[int, None]) -> Any:
    at = 0
    while at < len(seen):
        yield list(seen)[at]
        at += 1


def translated(automaton: ByteAutomaton, tables: JointTables, state: int) -> int:
    """The device's number of a joint state of the host."""
    if state == ENDED:
        return device.ENDED
    if state == VIOLATED:
        return device.VIOLATED
    own = tables.components(state)
    return automaton.state_of[tuple(own[i] for i in automaton.tracked)] + 3


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_equal_to_the_host_in_every_state_for_every_token(seed: int, wide: bool, where: str) -> None:
    rng = random.Random(1000 + seed)
    while True:
        bound = random_policies.bound(rng, small=rng.random() < 0.5)
        try:
            table, automaton = device_tables(bound, where, wide=wide)
        except StateLimitError:
            continue
        break
    tables, width = bound.tables, bound.vocabulary.width
    states = host_states(tables, 40)
    numbers = torch.tensor([translated(automaton, tables, s) for s in states], device=where)
    for remaining in (None, 0, 1, 2, 3, HORIZON - 1, HORIZON, 10**6):
        masks = table.forbidden(numbers, remaining).cpu().numpy()
        for mask, state in zip(masks, states, strict=True):
            assert np.array_equal(np.flatnonzero(mask), tables.forbidden(state, remaining))
        if remaining is not None:
            as_tensor = table.forbidden(numbers, torch.full_like(numbers, remaining))
            assert np.array_equal(as_tensor.cpu().numpy(), masks)
    penalties = table.penalties(numbers).cpu().numpy()
    for row, state in zip(penalties, states, strict=True):
        ids, amounts = tables.penalties(state)
        wanted = np.zeros(width, np.float32)
        wanted[ids] = amounts
        allowed = np.ones(width, bool)
        allowed[tables.forbidden(state)] = False
        # What a token costs that is forbidden anyway is nowhere kept.
        assert np.array_equal(row[allowed], wanted[allowed])
    assert table.may_end(numbers).tolist() == [tables.may_end(s) for s in states]
    tokens = torch.arange(-2, width + 2, device=where)
    for state, number in zip(states, numbers.tolist(), strict=True):
        reached = table.next(torch.full_like(tokens, number), tokens).tolist()
        # States of the host that no continuation tells apart are one here.
        assert reached == [translated(automaton, tables, tables.next(state, t)) for t in tokens.tolist()]


@pytest.mark.parametrize("seed", range(6))
def test_equal_to_the_definition(seed: int) -> None:
    rng = random.Random(seed)
    bound = random_policies.bound(rng, small=True)
    table, automaton = device_tables(bound)
    tables = bound.tables
    for state in host_states(tables, 6):
        own = tables.components(state)
        number = torch.tensor([translated(automaton, tables, state)])
        for remaining in (0, 1, HORIZON):
            wanted = bruteforce.forbidden(tables.constraints, own, bound.vocabulary, remaining)
            assert np.array_equal(table.forbidden(number, remaining)[0].numpy(), wanted)
        amounts = bruteforce.penalties(tables.constraints, own, bound.vocabulary)
        allowed = ~bruteforce.forbidden(tables.constraints, own, bound.vocabulary)
        assert np.array_equal(table.penalties(number)[0].numpy()[allowed], amounts[allowed])
