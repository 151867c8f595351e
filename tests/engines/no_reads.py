"""What a step on an accelerator must not do, noticed on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Operations that wait for the device: they read a value, or the shape of their result depends on values.
WAITING = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "equal",
    "is_nonzero",
    "bincount",
    "repeat_interleave.Tensor",
)


class NoReads(TorchDispatchMode):
    """Raises where an operation would make the host wait for an accelerator."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(func).removeprefix("aten.")
        if name in WAITING or name.split(".")[0] in WAITING:
            raise AssertionError(f"{func} waits for the device")
        if name.startswith(("index.", "index_put")):
            indices = [index for index in args[1] if index is not None]
            assert all(index.dtype != torch.bool for index in indices), f"{func} with a mask waits"
        return func(*args, **(kwargs or {}))
