"""A method set up under a constraint, each part of it timed, and the text that all methods read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness.timing import timed
from benchmarks.inputs.constraints import ConstraintSet
from benchmarks.methods.baselines import (
    NCO,
    BadWords,
    Baseline,
    GuardTrie,
    Prepared,
    Processor,
    RejectionSampling,
)
from benchmarks.methods.peers import LLGuidance, PreparedPeer, XGrammar
from benchmarks.methods.world import METHODS, Method, World
from nco_guard.compiler import compile_policy
from nco_guard.engines.hf import GuardLogitsProcessor
from nco_guard.errors import NCOGuardError
from nco_guard.masking.idsets import holds
from nco_guard.session import BoundGuard

__all__ = ["Built", "Ids", "allowed_rows", "build", "random_scores", "seen_ids"]

_PROMPT = 4

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Built:
    """A method that is ready: `bound` if it is ours, else `prepared`. seconds: of the parts of its set-up."""

    method: Method
    seconds: dict[str, float]
    bound: BoundGuard | None = None
    prepared: Prepared | None = None

    @property
    def table_mib(self) -> float | None:
        """What the method says of its tables."""
        held = int(self.bound.stats["table_bytes"]) if self.bound else self.other().nbytes
        return None if held is None else held / 2**20

    def guard(self) -> BoundGuard:
        """Ours. Raises `TypeError` for another method."""
        if self.bound is None:
            raise TypeError(f"{self.method.key} is no guard")
        return self.bound

    def other(self) -> Prepared:
        """Another's. Raises `TypeError` for ours."""
        if self.prepared is None:
            raise TypeError("ours is no baseline")
        return self.prepared

    @property
    def width(self) -> int:
        """Columns of the scores."""
        return self.bound.vocabulary.width if self.bound else self.other().width

    def processor(self) -> Processor:
        """A logits processor for one generation; ours writes in place, as under `Guard.generate`."""
        return (
            GuardLogitsProcessor(self.bound, in_place=True) if self.bound else self.other().logits_processor()
        )

    def first_mask(self) -> NDArray[np.bool_]:
        """The mask of the empty text: bool [width]."""
        return self.bound.session().mask() if self.bound else self.other().forbidden([])


def _baseline(method: Method, world: World, patterns: Sequence[str]) -> Baseline:
    threads = world.threads
    makers: dict[str, Callable[[], Baseline]] = {
        "rejection": RejectionSampling,
        "guard-trie": lambda: GuardTrie(corpus=world.corpus() if patterns else ()),
        "paper-nco": NCO,
        "bad-words": BadWords,
        "llguidance": lambda: LLGuidance(view=world.view("llguidance"), threads=threads),
        "xgrammar": lambda: XGrammar(view=world.view("xgrammar"), threads=threads),
    }
    return makers[method.key]()


def build(
    method: Method,
    constraint: ConstraintSet,
    world: World,
    *,
    batch: int = 1,
    device: str | torch.device = "cpu",
) -> Built:
    """Set a method up, the vocabulary read beforehand. Parts for ours: compile, and bind without the prefix tree.

    batch: for how many rows matchers are made beforehand. device: where a baseline's tables lie. Raises what the method
    raises.
    """
    torch.set_num_threads(world.threads)
    if method.kind == "ours":
        policy = constraint.policy
        compiled, compiling = timed(lambda: compile_policy(policy))
        bound, binding = timed(lambda: BoundGuard(compiled, world.vocabulary))
        tree = float(bound.stats["tree_seconds"])
        parts = {"compile_s": compiling, "bind_s": binding - tree, "setup_s": compiling + binding - tree}
        return Built(method, parts, bound=bound)
    texts, patterns = constraint.plain
    baseline = _baseline(method, world, patterns)
    prepared, seconds = timed(
        lambda: baseline.setup(texts, patterns, world.tokenizer, vocabulary=world.vocabulary, device=device)
    )
    if isinstance(prepared, PreparedPeer):
        prepared.reserve(batch)
    return Built(method, {"setup_s": seconds}, prepared=prepared)


def allowed_rows(constraint: ConstraintSet, world: World, rows: int, steps: int) -> Ids:
    """int64 [rows, steps]: the text from different places, without the tokens that the constraint forbids there.

    The guard decides which those are; that it decides rightly is checked by `equality`.
    """
    bound = build(METHODS["ours"], constraint, world).guard()
    text = world.text(2 * steps + 64)
    stride = max(1, len(text) // rows)
    result = np.zeros((rows, steps), np.int64)
    for row in range(rows):
        session = bound.session()
        at, kept = row * stride, 0
        while kept < steps:
            token = text[at % len(text)]
            at += 1
            if holds(session.forbidden_ids(), token):
                if at > 50 * (steps + len(text)):
                    raise NCOGuardError(f"{constraint.name} forbids nearly all of the benchmark's text")
                continue
            session.advance(token)
            result[row, kept] = token
            kept += 1
    return result


def seen_ids(rows: Ids) -> Iterator[torch.Tensor]:
    """What a processor is given at each step of rows: int64 [rows, length], after a prompt that no text repeats.

    bad_words_ids looks into the prompt.
    """
    ids = torch.from_numpy(np.concatenate([np.zeros((len(rows), _PROMPT), np.int64), rows], axis=1))
    for length in range(_PROMPT, ids.shape[1]):
        yield ids[:, :length]


def random_scores(rows: int, width: int) -> torch.Tensor:
    """Scores that are the same each time, float32 [rows, width]."""
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(0))
