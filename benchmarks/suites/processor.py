"""What a step of the logits processor costs on the host, states known, and what of that is what.

    python benchmarks/step.py --tokenizer FOLDER [--steps 40]

LDNOOBW English as substrings, which forbids some 1,400 columns of Llama-3 in each row; rows of a batch read a text
from different places. Scores are copied anew before each measurement, as a model leaves them, and all that is measured
takes turns in every step. Processor time of one thread in microseconds: the least, and the median.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

from benchmarks.inputs.constraints import SUBSTRINGS
from nco_guard import Guard
from nco_guard.engines.hf import GuardLogitsProcessor
from nco_guard.session import BoundGuard

BATCHES = (1, 8, 64)
TEXT = (
    "The assembly met again in the old town hall, and the secretary read the minutes of the last meeting. Questions "
    "about the budget were sent to mary.jones(at)example, not to the office; her number is 555-01, she said. At 10:45 "
    "the chair closed the session, and those who had come by boat went home along the river.\n"
)
PROMPT = 4
Step = Callable[[torch.Tensor, torch.Tensor], object]


def nothing(report: Any) -> None:
    """A sink that keeps nothing."""


def numbers_only(ids: torch.Tensor, scores: torch.Tensor) -> None:
    """The pass that finds scores that are no numbers."""
    for line in scores.numpy():
        line[line.argmax()]


def measured(bound: BoundGuard) -> dict[str, Step]:
    """What is called in every step, by name: on ids, int64 [rows, length], and scores, float [rows, width]."""
    every = GuardLogitsProcessor(bound, in_place=True, sink=nothing)
    changes = GuardLogitsProcessor(bound, in_place=True, sink=nothing, changes_only=True)
    return {
        "a step": GuardLogitsProcessor(bound, in_place=True),
        "of that, finding that all scores are numbers": numbers_only,
        "a step on a copy of the scores": GuardLogitsProcessor(bound),
        "with a sink for every row": every,
        "with a sink for changes, as the audit log is": changes,
        "torch's arg-max of the scores, which comes after": lambda ids, scores: scores.argmax(-1),
    }


def allowed(bound: BoundGuard, tokens: list[int], count: int) -> list[int]:
    """The first tokens of a text, without those that are forbidden where they would stand."""
    tables, state, found = bound.tables, bound.tables.start, list[int]()
    for token in itertools.cycle(tokens):
        if len(found) == count:
            return found
        if token not in tables.forbidden(state):
            state = tables.next(state, token)
            found.append(token)
    return found


def times(bound: BoundGuard, tokens: list[int], batch: int, steps: int) -> dict[str, list[float]]:
    """Microseconds of each step of the second of two passes over the text."""
    rows = [allowed(bound, tokens[7 * row % len(tokens) :] + tokens, steps) for row in range(batch)]
    ids = torch.from_numpy(np.concatenate([np.zeros((batch, PROMPT), np.int64), np.array(rows)], axis=1))
    clean = torch.randn(batch, bound.vocabulary.width, generator=torch.Generator().manual_seed(0))
    scores = torch.empty_like(clean)
    found: dict[str, list[float]] = {}
    for _ in range(2):
        calls = measured(bound)
        found = {name: [] for name in calls}
        for length in range(PROMPT, PROMPT + steps):
            for name, call in calls.items():
                scores.copy_(clean)
                seen = ids[:, :length]
                begun = time.process_time_ns()
                call(seen, scores)
                found[name].append((time.process_time_ns() - begun) / 1000)
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="a folder with tokenizer.json")
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(given.tokenizer)
    bound = Guard(SUBSTRINGS.policy).bind(tokenizer)
    tokens = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    found = [times(bound, tokens, batch, given.steps) for batch in BATCHES]
    print("| |", " | ".join(f"batch {batch}" for batch in BATCHES), "|")
    print("|---" * (len(BATCHES) + 1) + "|")
    for name in found[0]:
        cells = [f"{min(each[name]):.0f}, {statistics.median(each[name]):.0f}" for each in found]
        print(f"| {name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
