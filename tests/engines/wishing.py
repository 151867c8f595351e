"""A logits processor that leads a model to one text, whatever it would write."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LogitsProcessor

__all__ = ["Wishes"]


class Wishes(LogitsProcessor):  # type: ignore[misc]
    """Wants to write a text; wherever it may not, it goes on behind that with what is left."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self._ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        self._start = -1

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._start < 0:
            self._start = input_ids.shape[1]
        scores[:, self._ids[min(input_ids.shape[1] - self._start, len(self._ids) - 1)]] += 1e4
        return scores
