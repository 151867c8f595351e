"""Whole generations of one model, guarded and not, over the same prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.harness.building import build
from benchmarks.harness.plan import Samples
from benchmarks.harness.record import Status
from benchmarks.harness.timing import timed
from benchmarks.inputs.constraints import ConstraintSet
from benchmarks.inputs.models import Replay
from benchmarks.methods.baselines import Prepared
from benchmarks.methods.peers import PreparedPeer
from benchmarks.methods.world import METHODS, World
from nco_guard.guard import Guard

__all__ = ["Generator", "Ready", "Run", "prepared", "replayed", "synchronise"]

Ready = Guard | Prepared | None
"""A method that is set up; None is the model alone."""


@dataclass(frozen=True)
class Run:
    """What one method did: samples, or why there are none."""

    status: Status
    reason: str
    samples: Samples


@dataclass(frozen=True)
class Generator:
    """One model and one batch of prompts, int64 [rows, length], which each method goes on with.

    options: of `generate`, the same for all. new_tokens: that all of them write. replay: what the model writes.
    """

    model: Any
    tokenizer: Any
    inputs: Mapping[str, torch.Tensor]
    ready: Mapping[str, Ready]
    new_tokens: int
    options: Mapping[str, Any]
    replay: Replay | None = None

    @contextmanager
    def pushed(self) -> Iterator[None]:
        """The model writes what is to be replayed, inside of the block."""
        last = self.model.get_output_embeddings()
        hook = None if self.replay is None else last.register_forward_hook(self.replay)
        try:
            yield
        finally:
            if hook is not None:
                hook.remove()

    def speed(self, method: str, seed: int = 0) -> float:
        """Tokens a second of wall-clock time. What a peer's matchers cost, one for each row, is not counted."""
        made, rows = self.ready[method], len(self.inputs["input_ids"])
        if self.replay is not None:
            self.replay.restart()
        if isinstance(made, PreparedPeer):
            made.reserve(rows)
        torch.manual_seed(seed)
        synchronise(self.model.device)
        _, seconds = timed(lambda: self._generate(made))
        return rows * self.new_tokens / seconds

    def _generate(self, made: Ready) -> None:
        if made is None:
            self.model.generate(**self.inputs, **self.options)
        elif isinstance(made, Guard):
            made.generate(self.model, self.tokenizer, dict(self.inputs), **self.options)
        else:
            made.generate(self.model, **self.inputs, **self.options)
        synchronise(self.model.device)


def prepared(
    key: str, constraint: ConstraintSet, world: World, *, batch: int = 1, device: str = "cpu"
) -> Guard | Prepared:
    """A method that is set up for generations."""
    if key == "ours":
        return Guard(constraint.policy, cache=False)
    return build(METHODS[key], constraint, world, batch=batch, device=device).other()


def replayed(
    text: Sequence[int], batch: int, prompt: int, new_tokens: int, device: torch.device | None = None
) -> tuple[dict[str, torch.Tensor], Replay]:
    """Prompts from different places of a text, one for each row, and what follows them there, to be replayed."""
    length = prompt + new_tokens
    starts = [row * 37 % (len(text) - length) for row in range(batch)]
    rows = torch.tensor([text[start : start + length] for start in starts], device=device)
    given = rows[:, :prompt].clone()
    return {"input_ids": given, "attention_mask": torch.ones_like(given)}, Replay(rows[:, prompt:])


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
