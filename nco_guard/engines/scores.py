"""Scores of a step: writing -inf into some columns, finding empty rows, and seeing what a mask takes from the model.

`HostScores` does it for scores in the host's memory, as arrays of NumPy, a row at a time and only where something is to
be done: a few microseconds a row where operations on whole rows take tens, since what is forbidden is some hundred
columns of a hundred thousand. `tensors.DenseScores` does the same by torch on whole rows; it is the definition.

Scores that are no numbers are refused by whoever masks a row. To know that there are none takes a pass over the row, a
fifth of a step at batch 1 and most of one at batch 64. It is the arg-max, which finds NaN where there is any and the
first choice otherwise, so whoever looks for that has it already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nco_guard.errors import GenerationError
from nco_guard.masking.idsets import holds
from nco_guard.session.rows import Ids

__all__ = ["SAMPLED_COLUMNS", "Complements", "HostScores", "Look", "Looked", "Scores", "undefined_scores"]

Complements = dict[int, tuple[Ids, Ids]]
"""What masks that leave little leave, by the identity of the mask; kept from step to step."""

# Of a row that may be empty, about so many columns are looked at before all are.
SAMPLED_COLUMNS = 256
# Rows of which less than one column in so many is left are filled, and what is left is put back.
_MOSTLY = 4
_KEPT_COMPLEMENTS = 64


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


class Scores(Protocol):
    """The scores of a step, float [rows, width], written in place."""

    def __len__(self) -> int:
        """How many rows there are."""

    def forbid(self, columns: Mapping[int, Ids], probe: int) -> set[int]:
        """-inf at the given columns of the given rows; everything else stays as it is.

        Returns those of the rows in which no token is left. probe: a column that is seldom forbidden. Raises
        `GenerationError` for a row in which a score is no number; what was written then means nothing.
        """

    def first_choices(self, rows: Sequence[int]) -> list[int]:
        """The column of the highest score in each of the rows, as they came."""

    def look(self, wanted: Sequence[Look]) -> list[Looked]:
        """What the mask will do, before it is written."""

    def subtract(self, row: int, ids: Ids, amounts: NDArray[np.float32]) -> None:
        """Lower the scores of some columns of a row."""

    def allow(self, row: int, token: int) -> None:
        """A score of 0 for one token of a row."""


class HostScores:
    """Scores in the host's memory, float16, float32 or float64 [rows, width], written in place."""

    def __init__(self, array: NDArray[Any], complements: Complements, *, none: Any = None) -> None:
        """complements: kept by the caller from step to step. none: -inf, where the array holds bits of other floats."""
        self._array = array
        self._none = array.dtype.type(-math.inf) if none is None else none
        self._floating = array.dtype.char == "f"
        self._complements = complements
        self._buffer: NDArray[np.float32] | None = None
        # Of the rows that were read: they hold numbers only.
        self._tops: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._array)

    def subtract(self, row: int, ids: Ids, amounts: NDArray[np.float32]) -> None:
        """Lower the scores of some columns of a row."""
        line = self._array[row]
        line[ids] -= amounts.astype(line.dtype)

    def allow(self, row: int, token: int) -> None:
        """A score of 0 for one token of a row."""
        self._array[row, token] = 0

    def forbid(self, columns: Mapping[int, Ids], probe: int) -> set[int]:
        """See `Scores`; the whole row is looked through only where the probe is forbidden.

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
        few = line[:: max(1, len(line) // SAMPLED_COLUMNS)]
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
        found: NDArray[np.float32] = (
            self._array[row] if self._floating else self._array[row].astype(np.float32)
        )
        return found

    def _space(self, like: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._buffer is None:
            self._buffer = np.empty(len(like), np.float32)
        return self._buffer


def undefined_scores(row: int) -> str:
    """What is said of a row whose scores are no numbers."""
    return (
        f"row {row}: the model's scores hold NaN, so no token can be chosen; look at the model's dtype (float16 "
        f"overflows in many models; bfloat16 or float32 do not), its weights, and processors that run before the guard"
    )
