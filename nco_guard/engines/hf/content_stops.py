"""A generation ends where its text does: at a stop string in what is read of a reply, not in marks or reasoning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from transformers import StoppingCriteria

from nco_guard.replies.said import Said
from nco_guard.tokens import TextPieces, Vocabulary

__all__ = ["StopsInContent", "without_stop_strings"]


class StopsInContent(StoppingCriteria):  # type: ignore[misc]
    """Ends each row once a stop string has come in the text that is read of it.

    Args:
        reading: makes a fresh reading of a reply, with its stop strings.
        vocabulary: what ids are read by. prompt: how many ids a row begins with that are no part of the reply.

    For one generation. Cost: that of reading; a row that goes back, or changes its place, is read again.
    """

    def __init__(self, reading: Callable[[], Said], vocabulary: Vocabulary, prompt: int) -> None:
        self._reading, self._vocabulary, self._prompt = reading, vocabulary, prompt
        self._rows: dict[int, _Row] = {}

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """int64 [rows, length] -> bool [rows]."""
        stopped = [
            self._stops(number, ids) for number, ids in enumerate(input_ids[:, self._prompt :].tolist())
        ]
        return torch.tensor(stopped, device=input_ids.device)

    def _stops(self, number: int, ids: list[int]) -> bool:
        row = self._rows.get(number)
        if row is None or ids[: len(row.ids)] != row.ids:
            row = self._rows[number] = _Row(self._reading(), TextPieces(self._vocabulary))
        return row.takes(ids)


class _Row:
    """One reply so far."""

    def __init__(self, said: Said, pieces: TextPieces) -> None:
        self.ids: list[int] = []
        self._said, self._pieces = said, pieces

    def takes(self, ids: list[int]) -> bool:
        """Read on to these ids; whether a stop string has ended it."""
        new, self.ids = ids[len(self.ids) :], ids
        for _ in self._said.feed(self._pieces.feed(new)):
            pass
        return self._said.stopped


def without_stop_strings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a generation whose stop strings somebody else looks for."""
    left = {name: value for name, value in options.items() if name != "stop_strings"}
    config = left.get("generation_config")
    if config is not None and config.stop_strings is not None:
        left["generation_config"] = config = deepcopy(config)
        config.stop_strings = None
    return left
