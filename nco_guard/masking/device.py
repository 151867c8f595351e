"""Masks, penalties and transitions as tensors, for decoding loops that must not wait for the host.

Everything is looked up: `next = T[state, class[token]]`, and a mask is a row of a table. No operation reads a value
back (no `.item()`, no index by a mask, no shape that depends on data), so a step can be queued behind the model's,
captured in a CUDA graph or compiled with `fullgraph=True`. The same code runs on CPU tensors.

Importing this imports torch; nothing else in `masking` does. Cost: see `enumeration` for finding the tables; a step of
`rows` sequences is a gather of `rows` numbers and one of `rows` x `width` bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from nco_guard.errors import ArgumentError
from nco_guard.masking.enumeration import TokenTable
from nco_guard.masking.joint import ENDED, LIMITED, VIOLATED

__all__ = ["DEVICE_ENDED", "DEVICE_LOST", "DEVICE_VIOLATED", "DeviceTables", "usable_device"]

# What is added to a state: so the special ones, which are negative, are places of tables too.
_SHIFT = -LIMITED
#: Nothing is masked after the end of a text. After a token that the mask forbids was forced by something else, and in a
#: row whose text is unknown, everything is forbidden.
DEVICE_ENDED, DEVICE_VIOLATED, DEVICE_LOST = ENDED + _SHIFT, VIOLATED + _SHIFT, LIMITED + _SHIFT

_WIDE_BYTES = 1 << 27


def usable_device(device: torch.device | str) -> torch.device:
    """A device by its name. Errors: `ArgumentError` for what torch does not take for one."""
    try:
        return torch.device(device)
    except (RuntimeError, TypeError, ValueError, AttributeError):
        raise ArgumentError(
            f"device: {type(device).__name__} names none; give a torch.device, or a name as 'cuda:0'"
        ) from None


@dataclass(frozen=True)
class _Sizes:
    states: int
    classes: int
    masks: int
    levels: int


class DeviceTables:
    """A policy over a vocabulary on one device.

    Guarantee: for every state and every token the same masks, penalties and next states as `JointTables`; penalties of
    tokens that are forbidden anyway may be missing.

    States are int64 numbers; `start` is that of the empty text, `DEVICE_ENDED`, `DEVICE_VIOLATED` and `DEVICE_LOST` are
    special. They mean nothing to other tables. Immutable; may be shared between threads and sequences.

    table: what to put there, see `enumeration.token_table`. device: where.
    wide: whether masks are stored over tokens instead of over classes of tokens; by default where they take at most
    `wide_bytes` bytes. They are read faster then.
    """

    def __init__(
        self,
        table: TokenTable,
        device: torch.device | str = "cpu",
        *,
        wide: bool | None = None,
        wide_bytes: int = _WIDE_BYTES,
    ) -> None:
        self.device = usable_device(device)
        self.start = _SHIFT
        self.width = len(table.token_class) - 1
        states, classes = table.following.shape
        self._sizes = _Sizes(states, classes, len(table.masks) + 2, len(table.mask_of))

        dtype = np.int16 if states + _SHIFT < 2**15 else np.int32
        following = np.empty((states + _SHIFT, classes), dtype)
        following[:_SHIFT] = np.arange(_SHIFT)[:, None]
        following[_SHIFT:] = table.following + _SHIFT
        self._following = self._put(following).view(-1)
        self._class = self._put(table.token_class.astype(np.int64))

        # Two masks more: nothing forbidden, everything forbidden.
        mask_of = np.zeros((len(table.mask_of), states + _SHIFT), np.int64)
        mask_of[:, DEVICE_ENDED] = len(table.masks)
        mask_of[:, [DEVICE_VIOLATED, DEVICE_LOST]] = len(table.masks) + 1
        mask_of[:, _SHIFT:] = table.mask_of
        self._mask_of = self._put(mask_of).view(-1)
        masks = self._put(
            np.concatenate([table.masks, np.zeros((1, classes), bool), np.ones((1, classes), bool)])
        )
        self.wide = self._sizes.masks * self.width <= wide_bytes if wide is None else wide
        self._masks = masks.index_select(1, self._class[: self.width]) if self.wide else masks

        self.soft = len(table.penalties) > 0
        penalty_of = np.full(states + _SHIFT, len(table.penalties), np.int64)
        penalty_of[_SHIFT:] = table.penalty_of
        self._penalty_of = self._put(penalty_of)
        self._penalties = self._put(np.concatenate([table.penalties, np.zeros((1, classes), np.float32)]))
        self._may_end = self._put(np.concatenate([np.arange(_SHIFT) == DEVICE_ENDED, table.may_end]))

    def _put(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def __repr__(self) -> str:
        form = "tokens" if self.wide else "classes"
        return (
            f"DeviceTables(device={str(self.device)!r}, states={self.states}, classes={self.classes}, "
            f"masks={self._sizes.masks} over {form}, nbytes={self.nbytes})"
        )

    @property
    def states(self) -> int:
        """How many states of texts there are."""
        return self._sizes.states

    @property
    def classes(self) -> int:
        """How many classes of tokens there are."""
        return self._sizes.classes

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        held = (self._following, self._class, self._mask_of, self._masks)
        others = (self._penalty_of, self._penalties, self._may_end)
        return sum(tensor.numel() * tensor.element_size() for tensor in (*held, *others))

    def begin(self, rows: int) -> torch.Tensor:
        """The states of so many empty texts: int64 [rows]."""
        return torch.full((rows,), self.start, dtype=torch.int64, device=self.device)

    def next(self, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The states after one more token each; int64 [rows] all three. A number that is no token is a violation."""
        inside = (tokens >= 0) & (tokens < self.width)
        classes = self._class.index_select(0, torch.where(inside, tokens, self.width))
        return self._following.index_select(0, states * self._sizes.classes + classes).to(torch.int64)

    def replay(self, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The states after 0, 1, ... n tokens: int64 [rows] and [rows, n] -> [rows, n + 1]. Cost: n steps."""
        found = [states]
        for column in tokens.unbind(1):
            found.append(self.next(found[-1], column))
        return torch.stack(found, 1)

    def forbidden(self, states: torch.Tensor, remaining: int | torch.Tensor | None = None) -> torch.Tensor:
        """The masks: bool [rows, width], True = forbidden.

        remaining: how many more tokens may follow the one about to be chosen, where that is known; not negative. A
        number, or int64 [rows] or [1] on the device, which is not read back.
        """
        last = self._sizes.levels - 1
        level: int | torch.Tensor
        if remaining is None:
            level = last
        elif isinstance(remaining, int):
            level = min(remaining, last)
        else:
            level = remaining.clamp(max=last)
        rows = self._mask_of.index_select(0, level * (self._sizes.states + _SHIFT) + states)
        masks = self._masks.index_select(0, rows)
        return masks if self.wide else masks.index_select(1, self._class[: self.width])

    def penalties(self, states: torch.Tensor) -> torch.Tensor:
        """What soft rules subtract from the logits: float32 [rows, width]. See `soft`."""
        rows = self._penalties.index_select(0, self._penalty_of.index_select(0, states))
        return rows.index_select(1, self._class[: self.width])

    def may_end(self, states: torch.Tensor) -> torch.Tensor:
        """Whether the texts may end here: bool [rows]."""
        return self._may_end.index_select(0, states)
