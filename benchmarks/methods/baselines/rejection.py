"""Rejection sampling, token by token, as in the paper's section "Baseline Implementation Details".

The matching state of the text so far is kept. A candidate is drawn from the step's scores; if appending it would
complete a forbidden string or a match, it is rejected: the state is what it was, the candidate is masked, and another
is drawn from the same scores, without another pass through the model. The candidates of a batch are drawn together;
only rows that were rejected draw again.

The paper has no variant that rejects whole outputs, so there is none here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.methods.baselines.base import (
    Baseline,
    Incremental,
    Stateful,
    Task,
    check_width,
)
from benchmarks.methods.baselines.matching import Matcher, State
from nco_guard.errors import DeadEndError, UnsupportedError
from nco_guard.tokens import Vocabulary

__all__ = ["PreparedRejection", "RejectionSampling"]


class RejectionSampling(Baseline):
    """Draw, check, and draw again: no tables over the vocabulary, a cost that grows with what is rejected.

    It samples from the model's distribution restricted to what is allowed, as masks do.
    """

    name = "Rejection sampling"
    not_enforced: ClassVar[tuple[str, ...]] = (
        "patterns over text that is not ASCII: each byte above 127 is one unknown character",
        "anchors, word boundaries and lookaround in patterns: interegular refuses some and misreads others",
        "well-formed UTF-8, and ways out of dead ends",
        "a first space that decoding drops: it is read as part of the text",
    )

    def prepare(self, task: Task) -> PreparedRejection:
        """See `Baseline.setup`; there are no tables on the device."""
        return PreparedRejection(
            Matcher(task.strings, task.patterns), task.vocabulary(self.name), task.device
        )


class PreparedRejection(Stateful[list[State]]):
    """Rejection sampling for one set of constraints.

    `logits_processor` is for greedy decoding, where the highest score is the candidate. `generate` also samples.
    """

    def __init__(self, matcher: Matcher, vocabulary: Vocabulary, device: torch.device) -> None:
        self.name = RejectionSampling.name
        self.width = vocabulary.width
        self._matcher = matcher
        self._tokens = vocabulary.tokens
        self._eos = frozenset(vocabulary.eos_ids)
        self._device = device
        self._known: dict[tuple[State, int], tuple[State, bool]] = {}

    @property
    def device(self) -> torch.device:
        """Where scores lie."""
        return self._device

    @property
    def nbytes(self) -> int:
        """Bytes of the matcher's transition tables."""
        return self._matcher.nbytes

    def start(self, batch: int) -> list[State]:
        """See `Stateful.start`."""
        return [self._matcher.start] * batch

    def advance(self, states: list[State], tokens: torch.Tensor) -> list[State]:
        """See `Stateful.advance`."""
        return [self._read(state, token)[0] for state, token in zip(states, tokens.tolist(), strict=True)]

    def _read(self, state: State, token: int) -> tuple[State, bool]:
        # A candidate is read when it is drawn and again when it was chosen.
        known = self._known.get((state, token))
        if known is None:
            reached, matched = self._matcher.read(state, self._tokens[token])
            known = reached, matched and token not in self._eos
            if len(self._known) >= 100_000:
                self._known.clear()
            self._known[state, token] = known
        return known

    def apply(self, states: list[State], scores: torch.Tensor) -> torch.Tensor:
        """The scores with -inf at the candidates that were rejected, drawing the highest first."""
        return self.draw(states, scores, sampling=False)[1]

    def draw(
        self, states: list[State], scores: torch.Tensor, *, sampling: bool
    ) -> tuple[list[int], torch.Tensor]:
        """One accepted candidate for each row, and the scores with -inf at the rejected ones.

        sampling: candidates are drawn by the softmax of the scores; else the highest score is. Raises `DeadEndError`
        where every token of a row is rejected.
        """
        rest = scores.clone()
        chosen = [-1] * len(states)
        rows = list(range(len(states)))
        while rows:
            part = rest if len(rows) == len(states) else rest[rows]
            if sampling:
                drawn = torch.multinomial(part.softmax(-1), 1)[:, 0].tolist()
            else:
                best, where = part.max(-1)
                if torch.isneginf(best).any():
                    raise DeadEndError("rejection sampling: every token was rejected")
                drawn = where.tolist()
            rejected = []
            for row, token in zip(rows, drawn, strict=True):
                if self._read(states[row], token)[1]:
                    rejected.append((row, token))
                else:
                    chosen[row] = token
            if rejected:
                rest[[row for row, _ in rejected], [token for _, token in rejected]] = -math.inf
            rows = [row for row, _ in rejected]
            if sampling and rows and bool(torch.isneginf(rest[rows]).all(-1).any()):
                raise DeadEndError("rejection sampling: every token was rejected")
        return chosen, rest

    def reorder(self, states: list[State], rows: torch.Tensor) -> list[State]:
        """See `Stateful.reorder`."""
        return [states[row] for row in rows.tolist()]

    def logits_processor(self, *, beams: bool = False) -> Incremental[list[State]]:
        """For greedy decoding. Raises `UnsupportedError` for beams: a beam takes several candidates of a row."""
        if beams:
            raise UnsupportedError("rejection sampling draws one candidate a row; beam search takes several")
        return super().logits_processor()

    def forbidden(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        """See `Prepared.forbidden`: what would be rejected, found by offering every token."""
        state = self._matcher.start
        for token in ids:
            state = self._read(state, token)[0]
        return np.array([self._read(state, token)[1] for token in range(self.width)])

    def generate(self, model: Any, **options: Any) -> Any:
        """`model.generate(**options)`, greedy or sampling; the draw comes after all other processors.

        What `generate` itself draws from is the accepted candidate alone, so it draws once more than it would need.
        """
        selection = _Selection(self)

        def decode(
            model: Any,
            input_ids: torch.Tensor,
            logits_processor: Any,
            stopping_criteria: Any,
            generation_config: Any,
            **rest: Any,
        ) -> Any:
            if generation_config.num_beams > 1:
                raise UnsupportedError(
                    "rejection sampling draws one candidate a row; beam search takes several"
                )
            selection.sampling = bool(generation_config.do_sample)
            logits_processor.append(selection)
            return type(model)._sample(
                model,
                input_ids,
                logits_processor=logits_processor,
                stopping_criteria=stopping_criteria,
                generation_config=generation_config,
                **rest,
            )

        return model.generate(custom_generate=decode, **options)


class _Selection:
    """The draw as a logits processor; the last of its list."""

    def __init__(self, method: PreparedRejection) -> None:
        self._method = method
        self._states: list[State] | None = None
        self.sampling = False

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores from which the engine draws the accepted candidates."""
        check_width(scores, self._method.width)
        if self._states is None:
            self._states = self._method.start(len(input_ids))
        else:
            self._states = self._method.advance(self._states, input_ids[:, -1])
        chosen, rest = self._method.draw(self._states, scores, sampling=self.sampling)
        if not self.sampling:
            return rest
        only = torch.full_like(scores, -math.inf)
        return only.scatter_(1, torch.tensor(chosen, device=scores.device)[:, None], 0.0)
