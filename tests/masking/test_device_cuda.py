"""Tables on a CUDA device: no synchronisation in any step, and steps inside a CUDA graph. Skipped without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from nco_guard.compiler import compile_policy
from nco_guard.engines.hf.device import DeviceLogitsProcessor
from nco_guard.masking.device import DeviceTables
from nco_guard.masking.enumeration import byte_automaton, first_states, token_table
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

RULES = (
    StringRule(id="s", strings=("fuck", "café")),
    RegexRule(id="w", regex=r"\bass\b"),
    RegexRule(id="soft", regex="[0-9]{3}", penalty=2.5),
)
ROWS = 6


@pytest.fixture(scope="module")
def bound() -> BoundGuard:
    vocabulary = toy_vocabulary(["fu", "ck", "ass", " as", "12", "3", "the"], padding=3)
    return BoundGuard(compile_policy(Policy(name="p", rules=RULES)), vocabulary)


def tables_of(bound: BoundGuard, where: str, wide: bool) -> DeviceTables:
    constraints = bound.tables.constraints
    automaton = byte_automaton(constraints, first_states(constraints, bound.vocabulary))
    return DeviceTables(token_table(automaton, bound.vocabulary, bound._tree), where, wide=wide)


@pytest.fixture
def no_waiting() -> Iterator[Any]:
    """A switch: from then on, whatever makes the host wait for the device raises."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("wide", [True, False])
def test_no_step_waits_for_the_device(wide: bool, bound: BoundGuard, no_waiting: Any) -> None:
    tables = tables_of(bound, "cuda", wide)
    states = tables.begin(ROWS)
    scores = torch.randn(ROWS, tables.width, device="cuda")
    remaining = torch.full((1,), 3, device="cuda")
    no_waiting()
    for _ in range(5):
        scores.sub_(tables.penalties(states)).masked_fill_(tables.forbidden(states, remaining), -torch.inf)
        states = tables.next(states, scores.argmax(1))
        tables.forbidden(states, 2)
        tables.may_end(states)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("engine_ends", [True, False])
def test_no_call_of_the_processor_waits(
    engine_ends: bool, beams: int, bound: BoundGuard, no_waiting: Any
) -> None:
    """Beams that are permuted, rows that vanish, rollbacks, the last steps before the limit and beyond it."""
    tables = bound.device_tables("cuda")
    processor = DeviceLogitsProcessor(bound, tables, max_length=14, beams=beams, engine_ends=engine_ends)
    ids = torch.randint(0, 256, (ROWS, 3), device="cuda")
    order = torch.arange(ROWS, device="cuda").flip(0)
    scores = torch.randn(ROWS, tables.width, device="cuda")
    no_waiting()
    for n in range(13):
        chosen = processor(ids, scores[: len(ids)]).argmax(1, keepdim=True)
        ids = torch.cat([ids, chosen], 1).index_select(
            0, order[: len(ids)] if len(ids) == ROWS else order[3:] * 0
        )
        if n == 5:
            ids = ids[:3]
        if n == 7:
            ids = ids[:, :-2]
    torch.cuda.set_sync_debug_mode("default")
    processor.check()


@pytest.mark.parametrize("wide", [True, False])
def test_a_captured_step_can_be_replayed(wide: bool, bound: BoundGuard) -> None:
    """Decoding by a CUDA graph with static buffers, equal to the same steps on the CPU."""
    found, on_cpu = tables_of(bound, "cuda", wide), tables_of(bound, "cpu", wide)
    width = found.width
    bias = torch.randn(width, width, generator=torch.Generator().manual_seed(0))
    bias[:, ord("f")] += 3
    bias[ord("f"), ord("u")] += 20
    there = bias.cuda()
    states, tokens = found.begin(ROWS), torch.arange(97, 97 + ROWS, device="cuda")
    remaining = torch.full((1,), 40, device="cuda")

    def step(
        tables: DeviceTables, table: torch.Tensor, s: torch.Tensor, t: torch.Tensor, r: torch.Tensor
    ) -> Any:
        s = tables.next(s, t)
        scores = (table.index_select(0, t) - tables.penalties(s)).masked_fill(
            tables.forbidden(s, r), -torch.inf
        )
        return s, scores.argmax(1)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(found, there, states, tokens, remaining)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        after, chosen = step(found, there, states, tokens, remaining)
        states.copy_(after)
        tokens.copy_(chosen)
        remaining.sub_(1)

    states.fill_(found.start)
    tokens.copy_(torch.arange(97, 97 + ROWS))
    remaining.fill_(40)
    s, t = on_cpu.begin(ROWS), torch.arange(97, 97 + ROWS)
    for n in range(40):
        graph.replay()
        s, t = step(on_cpu, bias, s, t, torch.full((1,), 40 - n))
        assert tokens.tolist() == t.tolist()
        assert states.tolist() == s.tolist()
