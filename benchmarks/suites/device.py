"""Suite `device`: what tables on a device cost: building them, their size, and a step at several batch sizes.

A step is the transition of every row by a token, its mask, and -inf written where tokens are forbidden. The same rows
go through the host's tables, ids read from the device and forbidden ids written back to it, and the masks of both ways
are compared. "processor" is the whole logits processor of either kind, which also finds out which row continues which.
Wall-clock time, the device waited for after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks.harness.building import Ids, build, seen_ids
from benchmarks.harness.plan import Plan, Samples, case_of, check_of
from benchmarks.harness.record import Check, Record
from benchmarks.harness.render import figure, section
from benchmarks.harness.timing import timed
from benchmarks.inputs.constraints import PAPER_PII, PII, SUBSTRINGS, ConstraintSet
from benchmarks.methods.baselines import Processor
from benchmarks.methods.world import METHODS, World
from nco_guard.engines.hf import GuardLogitsProcessor
from nco_guard.engines.hf.device import DeviceLogitsProcessor
from nco_guard.errors import StateLimitError, UnsupportedError
from nco_guard.masking.device import DeviceTables
from nco_guard.masking.enumeration import byte_automaton, first_states, token_table
from nco_guard.session import BoundGuard

__all__ = ["against_host", "measure", "show", "walk"]

WAYS = ("device", "host")


def measure(plan: Plan) -> None:
    """Three policies at all batch sizes; where the states do not fit, that is said."""
    options, world = plan.options, plan.world
    steps = 16 if options.quick else 64
    for constraint, batch in product((SUBSTRINGS, PAPER_PII, PII), options.batches):
        plan.say(f"device: {constraint.name}, batch {batch}")
        cases = {way: case_of("device", way, constraint, world, batch=batch) for way in WAYS}
        rows = plan.rows(cases["host"], constraint, batch, steps)
        if rows is None:
            continue
        given = (constraint, world, rows, options.device, options.narrow)
        plan.together(cases, plan.bounds(3.0), walk, *given)
        if plan.collector.status(cases["device"]) == "ok":
            check = case_of("device", "comparison", constraint, world, batch=batch)
            plan.check(check, against_host, *given)


def _tables(
    constraint: ConstraintSet, world: World, device: str | None, narrow: bool
) -> tuple[BoundGuard, DeviceTables]:
    """Raises `UnsupportedError` where the states do not fit."""
    try:
        where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise UnsupportedError(f"--device {device}: torch knows no such device") from error
    if where.type == "cpu":
        torch.set_num_threads(1)
    bound = build(METHODS["ours"], constraint, world).guard()
    try:
        tables = bound.device_tables(where)
    except StateLimitError as error:
        raise UnsupportedError(str(error)) from error
    if narrow:
        constraints = bound.tables.constraints
        automaton = byte_automaton(constraints, first_states(constraints, bound.vocabulary))
        tables = DeviceTables(token_table(automaton, bound.vocabulary, bound._tree), where, wide=False)
    return bound, tables


def walk(
    constraint: ConstraintSet, world: World, rows: Ids, device: str | None, narrow: bool
) -> dict[str, Samples]:
    """Seconds of each step over rows, int64 [batch, steps], and of each call of the processors."""
    bound, tables = _tables(constraint, world, device, narrow)
    found: dict[str, Samples] = {way: {"step_s": [], "processor_s": []} for way in WAYS}
    found["device"] |= {
        "build_s": [bound.stats["device_tables"][str(tables.device)]["seconds"]],
        "tables_mib": [tables.nbytes / 2**20],
        "states_count": [tables.states],
        "classes_count": [tables.classes],
    }
    for _, _, seconds in _steps(bound, tables, rows):
        for way, each in zip(WAYS, seconds, strict=True):
            found[way]["step_s"].append(each)
    options: dict[str, Any] = {"engine_ends": True, "in_place": True}  # as `guard.generate` sets them
    scores = torch.randn(len(rows), tables.width, device=tables.device)
    processors: tuple[Processor, ...] = (
        DeviceLogitsProcessor(bound, tables, **options),
        GuardLogitsProcessor(bound, **options),
    )
    for way, processor in zip(WAYS, processors, strict=True):
        for seen in seen_ids(rows):
            call = partial(processor, seen.to(tables.device), scores)
            found[way]["processor_s"].append(_waited(tables.device, call)[1])
    return found


def against_host(
    constraint: ConstraintSet, world: World, rows: Ids, device: str | None, narrow: bool
) -> Check:
    """The masks of both ways, in every step and row."""
    bound, tables = _tables(constraint, world, device, narrow)
    differences = 0
    for on_device, on_host, _ in _steps(bound, tables, rows):
        differences += int((on_device != on_host).any(1).sum())
    return check_of(constraint, world, "the host's tables", rows.size, differences, f"on {tables.device}")


def _steps(
    bound: BoundGuard, tables: DeviceTables, rows: Ids
) -> Iterator[tuple[torch.Tensor, torch.Tensor, tuple[float, float]]]:
    """Of each step the masked scores by the device and by the host, and the seconds of both."""
    device, host = tables.device, bound.tables
    scores = torch.randn(len(rows), tables.width, device=device)
    states, own = tables.begin(len(rows)), [host.start] * len(rows)

    def on_device(states: torch.Tensor, column: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        after = tables.next(states, column)
        return after, scores.masked_fill(tables.forbidden(after), -torch.inf)

    def on_host(own: list[int], column: torch.Tensor) -> tuple[list[int], torch.Tensor]:
        after = [host.next(s, t) for s, t in zip(own, column.tolist(), strict=True)]
        flat = np.concatenate([host.forbidden(s) + row * tables.width for row, s in enumerate(after)])
        masked = scores.clone()
        masked.view(-1).index_fill_(0, torch.from_numpy(flat).to(device), -torch.inf)
        return after, masked

    for column in torch.from_numpy(rows).to(device).unbind(1):
        (states, masked), one = _waited(device, partial(on_device, states, column))
        (own, same), other = _waited(device, partial(on_host, own, column))
        yield masked, same, (one, other)


def _waited(device: torch.device, call: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the seconds of the call and of the device's work for it."""

    def work() -> Any:
        result = call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return result

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return timed(work)


def show(record: Record) -> str:
    """A row for each policy, batch size and way."""
    found = record.find("device")
    rows = [
        (
            m.case.constraint,
            str(m.case.batch),
            m.case.method,
            *(figure(m, name) for name in ("states_count", "classes_count", "tables_mib", "build_s")),
            figure(m, "step_s"),
            figure(m, "processor_s"),
        )
        for m in found
        if m.status == "ok"
    ]
    header = ("constraint", "batch", "tables", "states", "classes", "size", "build", "a step", "processor")
    return section("## Tables on a device", "", header, rows, found)
