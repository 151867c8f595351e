"""What every baseline has in common, so that a benchmark can run them side by side.

A `Baseline` is a method; `setup` builds its tables for strings, patterns and a tokenizer (a `Task`, which is what a
method's own `prepare` is given); the `Prepared` result makes logits processors for transformers' `generate`. A method
that follows the text token by token gives four functions over a batch of states, and gets the processor, the generation
and the step mask from here.

What a method forbids is what it forbids: no baseline is repaired. `not_enforced` says where it falls short.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from nco_guard.errors import TokenizerError, UnsupportedError
from nco_guard.tokens import Vocabulary, read_vocabulary

__all__ = ["Baseline", "Incremental", "Prepared", "Processor", "Stateful", "Task", "check_width", "fill"]

Processor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""A logits processor of transformers: (ids, scores) -> scores."""
S = TypeVar("S")


@dataclass(frozen=True)
class Task:
    """What a method is set up for: what may not appear, and where.

    given: the vocabulary, where the caller has read it. device: where tables, or scores, lie.
    """

    strings: Sequence[str]
    patterns: Sequence[str]
    tokenizer: Any
    given: Vocabulary | None
    device: torch.device

    def vocabulary(self, name: str) -> Vocabulary:
        """What each token adds to the text, for methods to which a text is its tokens' strings, joined.

        Raises `TokenizerError` where decoding rewrites them (WordPiece, cleaned-up spaces): the paper has BPE only.
        """
        vocabulary = read_vocabulary(self.tokenizer) if self.given is None else self.given
        if vocabulary.rewriting is not None:
            raise TokenizerError(
                f"{name} takes a text to be its tokens' strings, joined; a {vocabulary.family} tokenizer rewrites them"
            )
        return vocabulary


class Baseline(ABC):
    """A method of enforcement, before it has seen constraints or a tokenizer."""

    name: str
    not_enforced: ClassVar[tuple[str, ...]]

    def setup(
        self,
        strings: Sequence[str],
        patterns: Sequence[str],
        tokenizer: Any,
        *,
        vocabulary: Vocabulary | None = None,
        device: str | torch.device = "cpu",
    ) -> Prepared:
        """Build all tables: none of `strings` as a substring, nothing that a pattern of `patterns` matches.

        Args:
            strings: what may not appear.
            patterns: regular expressions of which no match may appear.
            tokenizer: a fast tokenizer of transformers.
            vocabulary: what `read_vocabulary` made of it, if that is to stay out of the set-up time, or if the logits
                are wider than the tokenizer.
            device: where tables lie, or scores where a method has no tables.

        Raises `UnsupportedError` for a kind of constraint that the method does not have, `ValueError` without any
        constraint or for an empty string, `PatternError` for patterns that its compiler refuses, `MissingExtraError`
        without the library that it needs.
        """
        if not strings and not patterns:
            raise ValueError("a baseline needs at least one string or pattern to forbid")
        if not all(strings):
            raise ValueError("the empty string is in every text; remove it")
        return self.prepare(Task(strings, patterns, tokenizer, vocabulary, torch.device(device)))

    @abstractmethod
    def prepare(self, task: Task) -> Prepared:
        """What `setup` returns; the task has a constraint, and no empty string. Raises what `setup` says."""


class Prepared(ABC):
    """A method's tables for one set of constraints and one tokenizer; shared by any number of generations."""

    name: str
    width: int

    @property
    @abstractmethod
    def nbytes(self) -> int | None:
        """Bytes of the tables, on the host and the device together; None where a library does not tell."""

    @abstractmethod
    def logits_processor(self, *, beams: bool = False) -> Processor:
        """A fresh processor for one call of `generate`; what stands in `input_ids` at its first call is the prompt.

        Args:
            beams: rows may change places between two steps, as in beam search.
        """

    @abstractmethod
    def forbidden(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        """The step mask after the generated `ids` (without a prompt): bool [width], True = forbidden."""

    def generate(self, model: Any, **options: Any) -> Any:
        """`model.generate(**options)` under this method."""
        beams = _beams(model, options)
        return model.generate(logits_processor=[self.logits_processor(beams=beams)], **options)


def _beams(model: Any, options: dict[str, Any]) -> bool:
    for source in (options.get("generation_config"), model.generation_config):
        beams = options.get("num_beams") or getattr(source, "num_beams", None)
        if beams is not None:
            return bool(beams > 1)
    return False


class Stateful(Prepared, Generic[S]):
    """A method with one state per sequence: `S` holds those of a whole batch."""

    @abstractmethod
    def start(self, batch: int) -> S:
        """The states of `batch` empty texts."""

    @abstractmethod
    def advance(self, states: S, tokens: torch.Tensor) -> S:
        """The states after one more token in each row; tokens int64 [batch]."""

    @abstractmethod
    def apply(self, states: S, scores: torch.Tensor) -> torch.Tensor:
        """Scores with -inf at what is forbidden; scores float [batch, width], left as they are."""

    @abstractmethod
    def reorder(self, states: S, rows: torch.Tensor) -> S:
        """Row i becomes what row `rows[i]` was; rows int64 [batch]."""

    def logits_processor(self, *, beams: bool = False) -> Incremental[S]:
        """See `Prepared.logits_processor`."""
        return Incremental(self, beams=beams)

    def forbidden(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        """See `Prepared.forbidden`; feeds `ids` one by one."""
        states = self.start(1)
        for token in ids:
            states = self.advance(states, torch.tensor([token], device=self.device))
        scores = self.apply(states, torch.zeros(1, self.width, device=self.device))
        return np.asarray(torch.isneginf(scores[0]).cpu().numpy())

    @property
    def device(self) -> torch.device:
        """Where the states and tables lie."""
        return torch.device("cpu")


class Incremental(Generic[S]):
    """A logits processor that carries the states of a batch from step to step.

    Rows are taken to stay where they are, as in greedy decoding and sampling. With `beams` they are followed by
    comparing the token ids of all rows with those of the step before (batch x batch x length comparisons); the paper
    reorders states by the beam indices, which `generate` does not tell a processor.
    """

    def __init__(self, method: Stateful[S], *, beams: bool = False) -> None:
        self._method = method
        self._beams = beams
        self._states: S | None = None
        self._before: torch.Tensor | None = None
        self._length = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores with -inf at what is forbidden.

        Raises `UnsupportedError` where `input_ids` did not grow by one token (assisted and contrastive search), and
        where the scores have other columns than the vocabulary.
        """
        batch, length = input_ids.shape
        check_width(scores, self._method.width)
        if self._states is None:
            self._states = self._method.start(batch)
        elif length != self._length + 1:
            raise UnsupportedError("baselines follow a text by one token a step; this decoding mode does not")
        else:
            if self._before is not None:
                # Beams that grew from equal rows may take either: equal texts have equal states.
                same = (input_ids[:, None, :-1] == self._before[None]).all(-1)
                self._states = self._method.reorder(self._states, same.int().argmax(1))
            self._states = self._method.advance(self._states, input_ids[:, -1])
        self._length = length
        if self._beams:
            self._before = input_ids.clone()
        return self._method.apply(self._states, scores)


def fill(scores: torch.Tensor, rows: Iterable[Sequence[int] | NDArray[np.int64]]) -> torch.Tensor:
    """A copy of the scores with -inf at the given columns of each row, by one write."""
    width = scores.shape[1]
    parts = [np.asarray(columns, np.int64) + row * width for row, columns in enumerate(rows)]
    result = scores.clone(memory_format=torch.contiguous_format)
    flat = torch.from_numpy(np.concatenate(parts)).to(scores.device)
    result.view(-1).index_fill_(0, flat, -math.inf)
    return result


def check_width(scores: torch.Tensor, width: int) -> None:
    """Raises `UnsupportedError` where scores have other columns than the vocabulary that was read."""
    if scores.shape[1] != width:
        raise UnsupportedError(
            f"the scores have {scores.shape[1]} columns, the vocabulary {width}: set up with "
            f"vocabulary=read_vocabulary(tokenizer, Binding(vocab_width={scores.shape[1]}))"
        )
