"""Streamers of transformers that never have to take back what they have shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

import torch
from transformers import StoppingCriteria, TextStreamer
from transformers.generation.streamers import BaseStreamer

from nco_guard.engines.streaming import HeldTokens
from nco_guard.errors import UnsupportedError
from nco_guard.session import BoundGuard
from nco_guard.tokens import TextPieces, Vocabulary

__all__ = ["HoldingStreamer", "TextStream", "check_streamer", "stopped_by"]


class ReaderLeft(StoppingCriteria):  # type: ignore[misc]
    """Stops a generation at its next step once its reader has gone: the event is set, by any thread."""

    def __init__(self, left: Event) -> None:
        self._left = left

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """int64 [rows, length] -> bool [rows]."""
        return torch.full((input_ids.shape[0],), self._left.is_set(), device=input_ids.device)


def stopped_by(left: Event, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a generation that also stops at its next step once its reader has gone."""
    criteria = options.get("stopping_criteria") or ()
    return {**options, "stopping_criteria": [*criteria, ReaderLeft(left)]}


class TextStream(BaseStreamer):  # type: ignore[misc]
    """A streamer that hands on text exactly as the guard sees it, first spaces and split characters included.

    Args:
        vocabulary: that of the bound guard.
        on_text: called with each new piece; the pieces joined are the text.

    For one sequence at a time. Cost: linear in the text, whatever its length.

    Examples:
        >>> guard = Guard.from_presets("pii")
        >>> pieces = []
        >>> streamer = TextStream(guard.bind(tokenizer).vocabulary, pieces.append)
        >>> result = guard.generate(model, tokenizer, "Write to", max_new_tokens=8, streamer=streamer)
        >>> "".join(pieces) == result.texts[0]
        True
    """

    def __init__(self, vocabulary: Vocabulary, on_text: Callable[[str], None]) -> None:
        self._vocabulary = vocabulary
        self._on_text = on_text
        self._pieces: TextPieces | None = None

    def put(self, value: torch.Tensor) -> None:
        """Token ids from `generate`; the first call brings the prompt."""
        if self._pieces is None:
            self._pieces = TextPieces(self._vocabulary)
            return
        self._show(self._pieces.feed(value.ravel().tolist()))

    def end(self) -> None:
        """The sequence is over; the next `put` brings another prompt."""
        if self._pieces is not None:
            self._show(self._pieces.finish())
        self._pieces = None

    def _show(self, piece: str) -> None:
        if piece:
            self._on_text(piece)


class HoldingStreamer(BaseStreamer):  # type: ignore[misc]
    """Passes ids on to another streamer, but only up to the last token after which the text may end.

    Cost: one step of the tables a token, however long the text is.
    """

    def __init__(self, inner: BaseStreamer, bound: BoundGuard, *, reads_prompt: bool = True) -> None:
        self._inner = inner
        self._bound = bound
        self._reads_prompt = reads_prompt
        self._held: HeldTokens | None = None  # after the prompt

    def put(self, value: torch.Tensor) -> None:
        """Token ids from `generate`: the prompt [1, length], then new tokens."""
        ids = value.ravel().tolist()
        if self._held is None:
            self._held = HeldTokens(self._bound, ids if self._reads_prompt else None)
            self._inner.put(value)
            return
        for token in ids:
            if shown := self._held.take(token):
                self._inner.put(torch.tensor(shown))

    def end(self) -> None:
        """The sequence is over; what is still held is no part of the text."""
        self._inner.end()


def check_streamer(streamer: BaseStreamer, vocabulary: Vocabulary) -> None:
    """Refuse transformers' own text streamers where their text is another than that of `decode`."""
    if not isinstance(streamer, TextStreamer):
        return
    if vocabulary.rewriting is not None:
        raise UnsupportedError(
            "streamer: this tokenizer's decode() rewrites what was joined (WordPiece, clean_up_tokenization_spaces), "
            "and transformers' text streamers show text before it is settled; use nco_guard.engines.hf.stream or "
            "TextStream"
        )
    if vocabulary.strips_first_space:
        raise UnsupportedError(
            "streamer: this tokenizer drops the first space of a text, and transformers' text streamers "
            "decode every line on its own, so they show another text than decode(); use "
            "nco_guard.engines.hf.stream or TextStream"
        )
    if vocabulary.borders:
        raise UnsupportedError(
            "streamer: transformers' text streamers do not tell borders from other tokens; use "
            "nco_guard.engines.hf.stream or TextStream"
        )
    if bool(streamer.decode_kwargs.get("skip_special_tokens", False)) != vocabulary.skip_special_tokens:
        raise UnsupportedError(
            f"streamer: create it with skip_special_tokens={vocabulary.skip_special_tokens}, as the guard's"
        )
