"""Scores that are tensors of torch, on any device.

`DenseScores` works by operations of torch on whole rows, on any device; it is the definition. `HostTensor` is
`scores.HostScores` over a tensor in the host's memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nco_guard.engines.scores import SAMPLED_COLUMNS, Complements, HostScores, Look, Looked, undefined_scores
from nco_guard.errors import GenerationError
from nco_guard.masking.idsets import holds
from nco_guard.session.rows import Ids

__all__ = ["DenseScores", "HostTensor", "scores_of"]

# How -inf is written, by type; NumPy has no bfloat16, so its bits are read as integers.
_NONE_LEFT: dict[torch.dtype, Any] = {
    torch.float32: np.float32(-math.inf),
    torch.float64: np.float64(-math.inf),
    torch.float16: np.float16(-math.inf),
    torch.bfloat16: np.int16(-128),
}


class HostTensor(HostScores):
    """A tensor in the host's memory, float [rows, width], written in place through a view of NumPy."""

    def __init__(self, scores: torch.Tensor, complements: Complements) -> None:
        """complements: as for `HostScores`."""
        if scores.requires_grad:
            scores = scores.detach()
        dtype = scores.dtype
        array = (scores.view(torch.int16) if dtype is torch.bfloat16 else scores).numpy()
        super().__init__(array, complements, none=_NONE_LEFT[dtype])
        self._scores = scores

    def subtract(self, row: int, ids: Ids, amounts: NDArray[np.float32]) -> None:
        """Lower the scores of some columns of a row."""
        if self._scores.dtype is torch.bfloat16:
            _subtract(self._scores, row, ids, amounts)
        else:
            super().subtract(row, ids, amounts)

    def _floats(self, row: int) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._array[row] if self._floating else self._scores[row].float().numpy()
        return found


class DenseScores:
    """Scores on any device, float [rows, width], written in place; operations on whole rows."""

    def __init__(self, scores: torch.Tensor) -> None:
        self._scores = scores

    def __len__(self) -> int:
        return len(self._scores)

    def forbid(self, columns: Mapping[int, Ids], probe: int) -> set[int]:
        """-inf at the given columns of the given rows; everything else stays as it is.

        Returns those of the rows in which no token is left. probe: a column that is seldom forbidden. Raises
        `GenerationError` for a row in which a score is no number; what was written then means nothing.
        """
        scores = self._scores
        undefined = scores.amax(dim=-1).isnan()
        self._write(columns)
        # A few columns tell that a row is alive; the whole row is read only where they do not.
        stride = max(1, scores.shape[1] // SAMPLED_COLUMNS)
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

    def subtract(self, row: int, ids: Ids, amounts: NDArray[np.float32]) -> None:
        """Lower the scores of some columns of a row."""
        _subtract(self._scores, row, ids, amounts)

    def allow(self, row: int, token: int) -> None:
        """A score of 0 for one token of a row."""
        self._scores[row, token] = 0.0

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


def _subtract(scores: torch.Tensor, row: int, ids: Ids, amounts: NDArray[np.float32]) -> None:
    at = torch.from_numpy(np.array(ids)).to(scores.device)
    scores[row, at] -= torch.from_numpy(np.array(amounts)).to(scores)


def scores_of(scores: torch.Tensor, complements: Complements) -> HostTensor | DenseScores:
    """The quickest way to work on a tensor of scores."""
    if scores.is_cpu and scores.layout is torch.strided and scores.dtype in _NONE_LEFT:
        return HostTensor(scores, complements)
    return DenseScores(scores)
