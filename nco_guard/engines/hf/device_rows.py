"""Which row of a batch continues which text, told on the device; the twin of `session.RowTracker`.

Shapes are known to the host and values are not, so nothing here depends on a value but values. A row's state follows
from its generated ids alone: it is that of a row of the call before with the same ids, one step on.
"""

from __future__ import annotations

import random

import torch

from nco_guard.errors import GenerationError
from nco_guard.masking.device import DEVICE_LOST, DeviceTables

__all__ = ["DeviceRows"]

_INT64 = 1 << 64


def _signed(number: int) -> int:
    number %= _INT64
    return number - _INT64 if number >= _INT64 // 2 else number


class DeviceRows:
    """Follows the states of all rows of one generation.

    Guarantee: a row gets the state of its ids after the prompt, or `DEVICE_LOST`. Each row is looked up among those of
    the call before, which may have been permuted, repeated, dropped, cut back (assisted decoding) or lengthened by any
    number of tokens: by a hash of what both have in common, and then the ids themselves are compared. A row that
    continues none of them, which no decoding loop of transformers makes, is `DEVICE_LOST` for good: to replay it, the
    device would have to replay every row in every step, in case there is such a row. `replay` does that.

    tables: what the states belong to. prompt_length: how many columns are the prompts.
    Cost: reading the ids of all rows once, and one table step a new column.
    """

    def __init__(self, tables: DeviceTables, prompt_length: int) -> None:
        self._tables = tables
        self._prompt_length = prompt_length
        self._key = random.SystemRandom().getrandbits(64)
        self._weights = torch.zeros(0, dtype=torch.int64, device=tables.device)
        # Generated ids of the call before, [rows, n], and the states after 0, 1, ... n of them.
        self._ids = torch.zeros((0, 0), dtype=torch.int64, device=tables.device)
        self._states = torch.zeros((0, 1), dtype=torch.int64, device=tables.device)

    def replay(self, ids: torch.Tensor) -> torch.Tensor:
        """The states of all rows from their ids, however the rows came about; the definition of `advance`.

        Cost: one table step a column of the whole text.
        """
        self._ids = self._generated(ids).clone()
        self._states = self._tables.replay(self._tables.begin(len(ids)), self._ids)
        return self._states[:, -1]

    def advance(self, ids: torch.Tensor) -> torch.Tensor:
        """The states of all rows: int64 [rows, length], prompts included, -> int64 [rows].

        Errors: `GenerationError` for rows shorter than the prompt.
        """
        generated = self._generated(ids)
        common = min(generated.shape[1] - 1, self._ids.shape[1])
        if common <= 0 or not len(self._ids):
            return self.replay(ids)
        before, after = self._ids[:, :common], generated[:, :common]
        weights = self._weights_of(common)
        alike = (after * weights).sum(1)[:, None] == (before * weights).sum(1)[None, :]
        parents = alike.to(torch.int8).argmax(1)
        found = (before.index_select(0, parents) == after).all(1)
        states = self._states[:, : common + 1].index_select(0, parents)
        states = torch.where(found[:, None], states, DEVICE_LOST)
        fresh = self._tables.replay(states[:, -1], generated[:, common:])
        self._states = torch.cat([states, fresh[:, 1:]], 1)
        # The engine may write into its own tensor later.
        self._ids = generated.clone()
        return self._states[:, -1]

    def _generated(self, ids: torch.Tensor) -> torch.Tensor:
        if ids.shape[1] < self._prompt_length:
            raise GenerationError(
                f"rows of {ids.shape[1]} ids after a prompt of {self._prompt_length}: this object serves one "
                f"generation; make another for the next"
            )
        return ids[:, self._prompt_length :].to(torch.int64)

    def _weights_of(self, count: int) -> torch.Tensor:
        """A random odd number for each position, the same in every call; int64 arithmetic wraps around."""
        if len(self._weights) < count:
            mixed = torch.arange(1, 2 * count + 64, dtype=torch.int64, device=self._tables.device)
            mixed = mixed * _signed(0x9E3779B97F4A7C15) + _signed(self._key)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                mixed = (mixed ^ (mixed >> shift)) * _signed(factor)
            self._weights = (mixed ^ (mixed >> 31)) | 1
        return self._weights[:count]
