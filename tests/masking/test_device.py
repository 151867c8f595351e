"""Tables for accelerators: equal to those of the host in every state, and no step reads a value back."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from nco_guard.compiler import compile_policy
from nco_guard.errors import StateLimitError
from nco_guard.masking import ENDED, VIOLATED, JointTables, bruteforce, device
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.masking.device import DeviceTables
from nco_guard.masking.enumeration import ByteAutomaton, byte_automaton, token_table
from nco_guard.policy import Policy, RegexRule, StringRule, presets
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary
from nco_guard.tokens import read_vocabulary
from tests.masking import random_policies

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def enumerated(bound: BoundGuard, **limits: int) -> tuple[ByteAutomaton, JointTables]:
    tables = bound.tables
    first = tables.components(tables.start)
    return byte_automaton(tables.constraints, first, **limits), tables


def device_tables(
    bound: BoundGuard, where: str = "cpu", max_states: int = 2000, **options: Any
) -> tuple[DeviceTables, ByteAutomaton]:
    automaton, _ = enumerated(bound, max_states=max_states)
    return DeviceTables(token_table(automaton, bound.vocabulary, bound._tree), where, **options), automaton


def random_case(
    rng: random.Random, where: str = "cpu", *, small: bool, **options: Any
) -> tuple[BoundGuard, DeviceTables, ByteAutomaton]:
    """A random policy and vocabulary with few enough joint states."""
    while True:
        bound = random_policies.bound(rng, small=small)
        with contextlib.suppress(StateLimitError):
            return bound, *device_tables(bound, where, **options)


def host_states(tables: JointTables, limit: int) -> list[int]:
    """Joint states that tokens lead to, breadth first."""
    seen = {tables.start: None}
    for state in itertools.islice(iter_growing(seen), limit):
        for token in range(tables.vocabulary.width):
            reached = tables.next(state, token)
            if reached >= 0 and len(seen) < limit:
                seen[reached] = None
    return list(seen)


def iter_growing(seen: dict[int, None]) -> Iterator[int]:
    at = 0
    while at < len(seen):
        yield list(seen)[at]
        at += 1


def translated(automaton: ByteAutomaton, tables: JointTables, state: int) -> int:
    """The device's number of a joint state of the host."""
    if state == ENDED:
        return device.DEVICE_ENDED
    if state == VIOLATED:
        return device.DEVICE_VIOLATED
    own = tables.components(state)
    return automaton.state_of(own) + 3


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("seed", range(10))
def test_equal_to_the_host_in_every_state_for_every_token(seed: int, where: str) -> None:
    rng = random.Random(1000 + seed)
    bound, table, automaton = random_case(rng, where, small=rng.random() < 0.7, wide=seed % 2 == 0)
    tables, width = bound.tables, bound.vocabulary.width
    states = host_states(tables, 25)
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
    bound, table, automaton = random_case(random.Random(seed), small=True)
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


# -- nothing waits -----------------------------------------------------------------------------------------------


def step(
    table: DeviceTables,
    states: torch.Tensor,
    tokens: torch.Tensor,
    scores: torch.Tensor,
    remaining: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of a decoding loop."""
    states = table.next(states, tokens)
    scores = scores - table.penalties(states)
    return states, scores.masked_fill(table.forbidden(states, remaining), -torch.inf)


@pytest.fixture(scope="module")
def toy() -> tuple[BoundGuard, DeviceTables]:
    rules = (
        StringRule(id="s", strings=("fuck", "café")),
        RegexRule(id="w", regex=r"\bass\b"),
        RegexRule(id="soft", regex="[0-9]{3}", penalty=2.5),
    )
    vocabulary = toy_vocabulary(["fu", "ck", "ass", " as", "12", "3", "the"], padding=3)
    bound = BoundGuard(compile_policy(Policy(name="p", rules=rules)), vocabulary)
    return bound, bound.device_tables("cpu")


@pytest.mark.parametrize("wide", [True, False])
def test_a_step_compiles_as_one_graph(wide: bool, toy: tuple[BoundGuard, DeviceTables]) -> None:
    """A step that read a value, or whose shapes depended on one, would break the graph."""
    table, _ = device_tables(toy[0], wide=wide)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    generator = torch.Generator().manual_seed(0)
    states, same = table.begin(4), table.begin(4)
    for n in range(30):
        tokens = torch.randint(0, table.width, (4,), generator=generator)
        scores = torch.randn(4, table.width, generator=generator)
        remaining = torch.full((1,), max(0, 20 - n))
        states, wanted = step(table, states, tokens, scores, remaining)
        same, found = compiled(table, same, tokens, scores, remaining)
        assert torch.equal(states, same)
        assert torch.equal(found, wanted)


def test_a_whole_loop_is_traced_without_values(toy: tuple[BoundGuard, DeviceTables]) -> None:
    """Greedy decoding with the tables inside, traced once with fake tensors and run with real ones."""
    bound, table = toy
    bias = torch.randn(table.width, table.width, generator=torch.Generator().manual_seed(1))
    for word in (b"fuck", b" ass ", b"1234"):
        for first, second in itertools.pairwise(word):
            bias[first, second] += 20
    bias[:, ord("f")] += 4

    def loop(states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        chosen = []
        for n in range(8):
            states, scores = step(
                table, states, tokens, bias.index_select(0, tokens), torch.full((1,), 7 - n)
            )
            tokens = scores.argmax(1)
            chosen.append(tokens)
        return torch.stack(chosen, 1)

    first = torch.tensor([ord("f"), ord(" "), ord("1"), ord("x")])
    traced = make_fx(loop, tracing_mode="fake", _allow_non_fake_inputs=True)(table.begin(4), first)
    found = traced(table.begin(4), first)
    assert torch.equal(found, loop(table.begin(4), first))
    for start, row in zip(first.tolist(), found.tolist(), strict=True):
        session = bound.session()
        for token in (start, *row):
            if session.ended:
                break
            session.advance(token)
        assert session.ended or session.may_end


def test_what_must_not_happen_would_be_noticed() -> None:
    from tests.engines.no_reads import NoReads

    row = torch.tensor([1, 0, 2])
    for reads in (
        lambda: row.nonzero(),
        lambda: row[row > 0],
        lambda: bool(row.any()),
        lambda: row.sum().item(),
        lambda: torch.equal(row, row),
    ):
        with NoReads(), pytest.raises(AssertionError):
            reads()


# -- real sizes --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif("NCO_GUARD_TOKENIZERS" not in os.environ, reason="needs real tokenizers")
@pytest.mark.parametrize("name", ["gpt2", "llama3"])
@pytest.mark.parametrize("policy", ["ldnoobw", "pii_paper"])
def test_equal_to_the_host_over_a_real_vocabulary(name: str, policy: str) -> None:
    """Every state of the host that texts of random and of forbidden words lead to; every token."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(Path(os.environ["NCO_GUARD_TOKENIZERS"]) / name))
    rules = (
        presets.load(policy, languages=["en"], substring=True)
        if policy == "ldnoobw"
        else presets.load(policy)
    )
    bound = BoundGuard(compile_policy(Policy(name="p", rules=tuple(rules))), read_vocabulary(tokenizer))
    table, automaton = device_tables(bound, max_states=65_536)
    tables, width = bound.tables, bound.vocabulary.width
    rng = random.Random(0)
    words = [s for rule in rules for s in getattr(rule, "strings", ())] or [
        "a@b.co",
        "ssn 123-45-6789",
        "4111 1111",
    ]
    states = {tables.start: None}
    for _ in range(300):
        state = tables.start
        text = rng.choice(words)[: rng.randint(1, 9)] + rng.choice(["", " ", "é", "😀"])
        for token in [*tokenizer(text, add_special_tokens=False).input_ids, rng.randrange(width)]:
            reached = tables.next(state, token)
            if reached >= 0:
                state = reached
                states[state] = None
    for state in states:
        number = torch.tensor([translated(automaton, tables, state)])
        for remaining in (None, 0, 1):
            mask = np.flatnonzero(table.forbidden(number, remaining)[0].numpy())
            assert np.array_equal(mask, tables.forbidden(state, remaining))
    every = torch.arange(width)
    for state in rng.sample(sorted(states), min(12, len(states))):
        number = translated(automaton, tables, state)
        wanted = [translated(automaton, tables, tables.next(state, token)) for token in range(width)]
        assert table.next(torch.full((width,), number), every).tolist() == wanted
