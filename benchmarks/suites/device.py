"""What tables on a device cost: building them, their size, and a step at several batch sizes.

    python benchmarks/device.py                        the shipped demonstration tokenizer, on the CPU or CUDA
    python benchmarks/device.py --tokenizer FOLDER     a folder with tokenizer.json
    python benchmarks/device.py --device cpu --json results.json

A step is the transition of every row by a token, its mask, and -inf written where tokens are forbidden. The same rows
go through the host's tables for comparison, ids read from the device and forbidden ids written back to it. The masks of
both ways are compared in every step. "processor" is the whole logits processor of either kind, which also finds out
which row continues which. Times are the wall clock's, medians over steps, the device waited for after each one.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nco_guard.compiler import compile_policy
from nco_guard.engines.hf import GuardLogitsProcessor
from nco_guard.engines.hf.device import DeviceLogitsProcessor
from nco_guard.errors import StateLimitError
from nco_guard.masking.device import DeviceTables
from nco_guard.policy import Policy, presets
from nco_guard.session import BoundGuard
from nco_guard.tokens import read_vocabulary

TEXT = (
    "The assembly met again in the old town hall, and the secretary read the minutes of the last meeting. Questions "
    "about the budget were sent to mary.jones(at)example, not to the office; her number is 555-01, she said. «C'est la "
    "vie», said one, 「本当に?」 another. At 10:45 the chair closed the session.\n"
)


@dataclass(frozen=True)
class Row:
    """One policy at one batch size; times in microseconds unless the name says otherwise."""

    policy: str
    states: int
    classes: int
    wide: bool
    mib: float
    build_ms: float
    batch: int
    device_step: float
    host_step: float
    device_processor: float
    host_processor: float


def waited(device: torch.device, call: Callable[[], Any]) -> tuple[float, Any]:
    """Microseconds of a call and of the device's work for it; its result."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    result = call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1e6 * (time.perf_counter() - started), result


def steps(bound: BoundGuard, tables: DeviceTables, ids: torch.Tensor) -> tuple[list[float], list[float]]:
    """Times of the device's steps and of the host's, over the columns of the ids."""
    device, host = tables.device, bound.tables
    rows = len(ids)
    scores = torch.randn(rows, tables.width, device=device)
    states, own = tables.begin(rows), [host.start] * rows
    times: tuple[list[float], list[float]] = ([], [])

    for column in ids.unbind(1):

        def on_device(states: torch.Tensor = states, column: torch.Tensor = column) -> Any:
            after = tables.next(states, column)
            return after, scores.masked_fill(tables.forbidden(after), -torch.inf)

        def on_host(own: list[int] = own, column: torch.Tensor = column) -> Any:
            after = [host.next(s, t) for s, t in zip(own, column.tolist(), strict=True)]
            flat = np.concatenate([host.forbidden(s) + row * tables.width for row, s in enumerate(after)])
            masked = scores.clone()
            masked.view(-1).index_fill_(0, torch.from_numpy(flat).to(device), -torch.inf)
            return after, masked

        spent, (states, masked) = waited(device, on_device)
        times[0].append(spent)
        spent, (own, same) = waited(device, on_host)
        times[1].append(spent)
        if not torch.equal(masked, same):
            raise SystemExit("the masks differ")
    return times


def processors(bound: BoundGuard, tables: DeviceTables, ids: torch.Tensor) -> tuple[float, float]:
    """Median times of a call of the device's processor and of the host's."""
    scores = torch.randn(len(ids), tables.width, device=tables.device)
    medians = []
    options: dict[str, Any] = {"engine_ends": True, "in_place": True}  # as `guard.generate` sets them
    for processor in (
        DeviceLogitsProcessor(bound, tables, **options),
        GuardLogitsProcessor(bound, **options),
    ):
        spent = [
            waited(tables.device, lambda p=processor, n=n: p(ids[:, :n], scores))[0]
            for n in range(1, ids.shape[1] + 1)
        ]
        medians.append(statistics.median(spent))
    return medians[0], medians[1]


def allowed(bound: BoundGuard, text: list[int], start: int, count: int) -> list[int]:
    """So many tokens of the text, over and over, without those that the policy forbids where they come."""
    tables = bound.tables
    state, found = tables.start, []
    while len(found) < count:
        token = text[start % len(text)]
        after = tables.next(state, token)
        if after >= 0:
            state = after
            found.append(token)
        start += 1
    return found


def measure(name: str, policy: Policy, tokenizer: Any, device: torch.device, options: Any) -> list[Row]:
    """One policy at all batch sizes; nothing where its states do not fit."""
    bound = BoundGuard(compile_policy(policy), read_vocabulary(tokenizer))
    started = time.perf_counter()
    try:
        tables = bound.device_tables(device)
    except StateLimitError as error:
        print(f"{name}: {time.perf_counter() - started:.1f} s, then: {error}\n")
        return []
    if options.narrow:
        constraints = bound.tables.constraints
        from nco_guard.masking.enumeration import byte_automaton, first_states, token_table

        automaton = byte_automaton(constraints, first_states(constraints, bound.vocabulary))
        tables = DeviceTables(token_table(automaton, bound.vocabulary, bound._tree), device, wide=False)
    build = 1000 * bound.stats["device_tables"][str(device)]["seconds"]
    text = tokenizer(TEXT, add_special_tokens=False).input_ids
    rows = []
    for batch in options.batches:
        ids = torch.tensor([allowed(bound, text, 7 * row, options.steps) for row in range(batch)]).to(device)
        on_device, on_host = steps(bound, tables, ids)
        whole = processors(bound, tables, ids)
        rows.append(
            Row(
                name,
                tables.states,
                tables.classes,
                tables.wide,
                tables.nbytes / 2**20,
                build,
                len(ids),
                statistics.median(on_device),
                statistics.median(on_host),
                *whole,
            )
        )
    return rows


def table(rows: list[Row]) -> str:
    """Markdown."""
    lines = [
        "| policy | states x classes | MiB | build | batch | step: device, host | processor: device, host |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.policy} | {r.states:,} x {r.classes:,} | {r.mib:.1f} | {r.build_ms:.0f} ms | {r.batch} | "
        f"{r.device_step:.0f}, {r.host_step:.0f} us | {r.device_processor:.0f}, {r.host_processor:.0f} us |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", help="a folder with tokenizer.json (default: the shipped one)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--steps", type=int, default=64, help="tokens of text in each row (default 64)")
    parser.add_argument("--narrow", action="store_true", help="masks over classes of tokens, not over tokens")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()

    from transformers import AutoTokenizer

    shipped = Path(__file__).resolve().parent.parent / "nco_guard" / "demo" / "model"
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer or str(shipped))
    device = torch.device(options.device)
    substrings = presets.load("ldnoobw", languages=["en"], substring=True)
    policies = {
        "LDNOOBW-en substrings": Policy(name="substrings", rules=tuple(substrings)),
        "the paper's PII regexes": Policy.from_presets("pii_paper"),
        "pii": Policy.from_presets("pii"),
    }
    if device.type == "cpu":
        torch.set_num_threads(1)
    rows: list[Row] = []
    for name, policy in policies.items():
        rows += measure(name, policy, tokenizer, device, options)
    print(table(rows))
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "CPU"
    print(f"\n{where}, torch {torch.__version__}, width {len(tokenizer):,}")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
