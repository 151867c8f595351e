"""Scores of a step: writing -inf into some columns, finding empty rows, and seeing what a mask takes from the model.

`DenseScores` does it with operations of torch on whole rows, on any device; it is the definition. `HostScores` does the
same for tensors in the host's memory through a view of NumPy, a row at a time and only where something is to be done: a
few microseconds a row where torch takes tens, since what is forbidden is some hundred columns of a hundred thousand.

Scores that are no numbers are refused by whoever masks a row. To know that there are none takes a pass over the row, a
fifth of a step at batch 1 and most of one at batch 64. It is the arg-max, which finds NaN where there is any and the
first choice otherwise, so sinks that look for that have it already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nco_guard.errors import GenerationError, TokenizerError, UnsupportedError
from nco_guard.masking.idsets import holds
from nco_guard.session.rows import Ids

__all__ = [
    "DenseScores",
    "HostScores",
    "Look",
    "Looked",
    "check_step",
    "scores_of",
    "undefined_scores",
]

# How -inf is written, by type; NumPy has no bfloat16, so its bits are read as integers.
_NONE_LEFT: dict[torch.dtype, Any] = {
    torch.float32: np.float32(-math.inf),
    torch.float64: np.float64(-math.inf),
    torch.float16: np.float16(-math.inf),
    torch.bfloat16: np.int16(-128),
}
_SAMPLED_COLUMNS = 256
# Rows of which less than one column in so many is left are filled, and what is left is put back.
_MOSTLY = 4
_KEPT_COMPLEMENTS = 64


def check_step(input_ids: Any, scores: Any, width: int) -> None:
    """Whether ids and scores are what a processor of whole sequences is shown: [rows, length], float [rows, width].

    Another processor may have made something else of them. Errors: `UnsupportedError`, `TokenizerError` for the width.
    """
    if (
        isinstance(scores, torch.Tensor)
        and isinstance(input_ids, torch.Tensor)
        and input_ids.ndim == 2
        and scores.shape == (input_ids.shape[0], width)
        and scores.is_floating_point()
    ):
        return
    if not isinstance(input_ids, torch.Tensor) or input_ids.ndim != 2:
        # Continuous batching would show the last token of each request, and nothing of which text it continues.
        raise UnsupportedError(
            "logits_processor: this one needs whole sequences, ids [rows, length]; for continuous batching use "
            "generate_batch or ContinuousBatch of nco_guard.engines.hf.continuous"
        )
    if not isinstance(scores, torch.Tensor) or not scores.is_floating_point():
        given = scores.dtype if isinstance(scores, torch.Tensor) else type(scores).__name__
        raise UnsupportedError(
            f"logits_processor: float scores [rows, {width}] are needed, not {given}; look at what the processor "
            f"before the guard returns"
        )
    if scores.shape[:-1] != input_ids.shape[:1]:
        raise UnsupportedError(
            f"logits_processor: {tuple(scores.shape)} scores for {tuple(input_ids.shape)} ids; give a row of "
            f"scores for each row of ids"
        )
    raise TokenizerError(
        f"the model's logits have {scores.shape[-1]} columns but the guard is bound to {width}; bind it with "
        f"vocab_width={scores.shape[-1]}, or mend the processor before it that changed their number"
    )


class Look(NamedTuple):
    """A row to be looked at before it is masked."""

    row: int
    #: What is about to be forbidden, sorted.
    forbidden: Ids
    #: What soft rules penalise, sorted.
    penalised: Ids
    #: A token that will be allowed after all if no other is; None: there is no such.
    pad: int | None


class Looked(NamedTuple):
    """What the model would have chosen in a row, from its scores as they came.

    top: its first choice. rank: of the best allowed token in its own ranking. penalised: whether the first choice is.
    removed: probability of the forbidden tokens.
    """

    top: int
    rank: int
    penalised: bool
    removed: float


class HostScores:
    """Scores in the host's memory, float [rows, width], written in place."""

    def __init__(self, scores: torch.Tensor, complements: dict[int, tuple[Ids, Ids]]) -> None:
        """complements: kept by the caller from step to step, for masks that leave little."""
        if scores.requires_grad:
            scores = scores.detach()
        dtype = scores.dtype
        self._scores = scores
        self._none = _NONE_LEFT[dtype]
        self._array: NDArray[Any] = (scores.view(torch.int16) if dtype is torch.bfloat16 else scores).numpy()
        self._floating = dtype is torch.float32
        self._complements = complements
        self._buffer: NDArray[np.float32] | None = None
        # Of the rows that were read: they hold numbers only.
        self._tops: dict[int, int] = {}

    def forbid(self, columns: Mapping[int, Ids], probe: int) -> set[int]:
        """-inf at the given columns of the given rows; everything else stays as it is.

        Returns those of the rows in which no token is left. probe: a column that is seldom forbidden; the whole row is
        looked through only where that one is.

        Raises `GenerationError` for a row in which a score is no number; rows before it are written then. Cost: a pass
        over each row that `first_choices` has not seen. It is made here, row by row, since a row that was just read is
        near.
        """
        array, none = self._array, self._none
        width = array.shape[1]
        empty: set[int] = set()
        for row, forbidden in columns.items():
            self._first_choice(row)
            line = array[row]
            if len(forbidden) * _MOSTLY <= width * (_MOSTLY - 1):
                line[forbidden] = none
            else:
                left = self._left(forbidden, width)
                kept = line[left]
                line.fill(none)
                line[left] = kept
            if line[probe] == none and self._all_gone(line):
                empty.add(row)
        return empty

    def _all_gone(self, line: NDArray[Any]) -> bool:
        few = line[:: max(1, len(line) // _SAMPLED_COLUMNS)]
        return not (few != self._none).any() and not (line != self._none).any()

    def _left(self, forbidden: Ids, width: int) -> Ids:
        # Held together with its complement, so that its id is nobody else's.
        known = self._complements.get(id(forbidden))
        if known is None:
            allowed = np.ones(width, bool)
            allowed[forbidden] = False
            if len(self._complements) >= _KEPT_COMPLEMENTS:
                self._complements.clear()
            known = self._complements[id(forbidden)] = (forbidden, np.flatnonzero(allowed))
        return known[1]

    def first_choices(self, rows: Sequence[int]) -> list[int]:
        """The column of the highest score in each of the rows, as they came. Raises `GenerationError` as `forbid` does.

        Cost: a pass over the rows, some ten microseconds for 128,000 columns of float32; other types are converted.
        """
        return [self._first_choice(row) for row in rows]

    def _first_choice(self, row: int) -> int:
        top = self._tops.get(row)
        if top is None:
            line = self._floats(row)
            top = int(line.argmax())
            if math.isnan(line[top]):  # it wins
                raise GenerationError(undefined_scores(row))
            self._tops[row] = top
        return top

    def look(self, wanted: Sequence[Look]) -> list[Looked]:
        """What the mask will do, before it is written.

        Cost: a pass over each row for its first choice, and one of exponentials, ten times as much.
        """
        return [self._look(look) for look in wanted]

    def _look(self, look: Look) -> Looked:
        scores, forbidden, rank = self._floats(look.row), look.forbidden, 0
        top = self._first_choice(look.row)
        if holds(forbidden, top):
            buffer = self._space(scores)
            np.copyto(buffer, scores)
            buffer[forbidden] = -math.inf
            best = buffer.max()
            if best == -math.inf and look.pad is not None:
                forbidden, best = forbidden[forbidden != look.pad], scores[look.pad]
            rank = int(np.count_nonzero(scores > best))
        return Looked(top, rank, holds(look.penalised, top), self._share(scores, forbidden, scores[top]))

    def _share(self, scores: NDArray[np.float32], forbidden: Ids, peak: np.float32) -> float:
        """The probability of the forbidden tokens."""
        if not np.isfinite(peak):
            return 1.0
        buffer = self._space(scores)
        np.subtract(scores, peak, out=buffer)
        np.exp(buffer, out=buffer)
        return min(1.0, float(buffer[forbidden].sum()) / float(buffer.sum()))

    def _floats(self, row: int) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._array[row] if self._floating else self._scores[row].float().numpy()
        return found

    def _space(self, like: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._buffer is None:
            self._buffer = np.empty(len(like), np.float32)
        return self._buffer


class DenseScores:
    """Scores on any device, float [rows, width], written in place; operations on whole rows."""

    def __init__(self, scores: torch.Tensor) -> None:
        self._scores = scores

    def forbid(self, columns: Mapping[int, Ids], probe: int) -> set[int]:
        """-inf at the given columns of the given rows; everything else stays as it is.

        Returns those of the rows in which no token is left. probe: a column that is seldom forbidden. Raises
        `GenerationError` for a row in which a score is no number; what was written then means nothing.
        """
        scores = self._scores
        undefined = scores.amax(dim=-1).isnan()
        self._write(columns)
        # A few columns tell that a row is alive; the whole row is read only where they do not.
        stride = max(1, scores.shape[1] // _SAMPLED_COLUMNS)
        few = torch.maximum(scores[:, ::stride].amax(dim=-1), scores[:, probe])
        suspects = (undefined | (few == -math.inf)).nonzero().ravel().tolist()
        suspects = [row for row in suspects if row in columns]
        for row in suspects:
            if bool(undefined[row].item()):
                raise GenerationError(undefined_scores(row))
        return {row for row in suspects if bool((scores[row].amax() == -math.inf).item())}

    def _write(self, columns: Mapping[int, Ids]) -> None:
        scores = self._scores
        if not columns:
            return
        if scores.is_contiguous():
            scores.view(-1).index_fill_(0, self._flat(columns), -math.inf)
            return
        for row, forbidden in columns.items():
            scores[row, torch.from_numpy(np.array(forbidden)).to(scores.device)] = -math.inf

    def _flat(self, columns: Mapping[int, Ids]) -> torch.Tensor:
        width = self._scores.shape[-1]
        flat = np.concatenate([forbidden + row * width for row, forbidden in columns.items()])
        return torch.from_numpy(flat).to(self._scores.device)

    def first_choices(self, rows: Sequence[int]) -> list[int]:
        """The column of the highest score in each of the rows."""
        found = self._scores.argmax(-1).tolist()
        return [found[row] for row in rows]

    def look(self, wanted: Sequence[Look]) -> list[Looked]:
        """What the mask will do, before it is written."""
        scores = self._scores[[look.row for look in wanted]].float()
        blocked = DenseScores(torch.zeros_like(scores))
        blocked._write({at: look.forbidden for at, look in enumerate(wanted)})
        mask = blocked._scores == -math.inf
        best = scores.masked_fill(mask, -math.inf).amax(-1)
        for at in (best == -math.inf).nonzero().ravel().tolist():
            pad = wanted[at].pad
            if pad is not None:
                mask[at, pad] = False
                best[at] = scores[at, pad]
        ranks = (scores > best[:, None]).sum(-1).tolist()
        shares = scores.masked_fill(~mask, -math.inf).logsumexp(-1) - scores.logsumexp(-1)
        return [
            # Of infinite scores nothing can be said; min takes them for certain.
            Looked(top, rank, holds(look.penalised, top), min(1.0, share))
            for look, top, rank, share in zip(
                wanted, scores.argmax(-1).tolist(), ranks, shares.exp().tolist(), strict=True
            )
        ]


def undefined_scores(row: int) -> str:
    """What is said of a row whose scores are no numbers."""
    return (
        f"row {row}: the model's scores hold NaN, so no token can be chosen; look at the model's dtype (float16 "
        f"overflows in many models; bfloat16 or float32 do not), its weights, and processors that run before the guard"
    )


def scores_of(scores: torch.Tensor, complements: dict[int, tuple[Ids, Ids]]) -> HostScores | DenseScores:
    """The quickest way to work on a tensor of scores."""
    if scores.is_cpu and scores.layout is torch.strided and scores.dtype in _NONE_LEFT:
        return HostScores(scores, complements)
    return DenseScores(scores)
