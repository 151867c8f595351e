"""Streaming that never has to take back what it has shown.

A text that is stopped from outside (a stop string, a criterion, a time limit) is trimmed to where it may end,
so tokens are shown only once the text may end after them.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from transformers import StoppingCriteria, TextStreamer
from transformers.generation.streamers import BaseStreamer

from nco_guard.errors import StateLimitError, UnsupportedError
from nco_guard.masking import ENDED, LIMITED, VIOLATED, JointTables
from nco_guard.session import BoundGuard, TextState
from nco_guard.tokens import TextPieces, Vocabulary

__all__ = ["HoldingStreamer", "ReaderLeft", "TextStream", "check_streamer", "in_pieces"]


def in_pieces(generate: Callable[[Callable[[str], None], StoppingCriteria], object]) -> Iterator[str]:
    """What a generation writes, as it writes it; its errors are raised here, at once.

    `generate(write, left)` runs in a thread of its own, in a copy of the caller's context, hands each piece of text to
    `write` and must have `left` among its criteria: closing the iterator early stops the generation at its next step.
    Its result, where that is wanted, it leaves where the caller finds it once the iterator is exhausted.
    """
    pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    left = ReaderLeft()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="nco-guard-stream") as pool:
        generation = pool.submit(contextvars.copy_context().run, generate, pieces.put, left)
        generation.add_done_callback(lambda _: pieces.put(None))
        try:
            while (piece := pieces.get()) is not None:
                yield piece
        finally:
            left.set()
        generation.result()


class ReaderLeft(StoppingCriteria):  # type: ignore[misc]
    """Stops a generation at its next step once its reader has gone; `set` may be called from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Nobody reads any more."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether the reader has gone."""
        return self._event.is_set()

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """int64 [rows, length] -> bool [rows]."""
        return torch.full((input_ids.shape[0],), self.is_set(), device=input_ids.device)


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
        self._text: TextState | None = None  # after the prompt
        self._held: list[int] = []
        self._over = False

    def put(self, value: torch.Tensor) -> None:
        """Token ids from `generate`: the prompt [1, length], then new tokens."""
        ids = value.ravel().tolist()
        if self._text is None:
            self._text = TextState(self._bound, ids if self._reads_prompt else None)
            self._inner.put(value)
            return
        for token in ids:
            if not self._over:
                self._take(self._text, token)

    def _take(self, text: TextState, token: int) -> None:
        try:
            _, _, after = text.advance(token)
            shown = after != VIOLATED and text.ask(JointTables.may_end)
        except StateLimitError:
            after = LIMITED
        if after in (VIOLATED, LIMITED):
            self._over = (
                True  # the text will be cut back to before it, or nothing is known of it from here on
            )
            return
        self._held.append(token)
        self._over = after == ENDED
        if shown:
            # In one piece: what lies between is not fit to be seen.
            self._inner.put(torch.tensor(self._held))
            self._held = []

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
    if bool(streamer.decode_kwargs.get("skip_special_tokens", False)) != vocabulary.skip_special_tokens:
        raise UnsupportedError(
            f"streamer: create it with skip_special_tokens={vocabulary.skip_special_tokens}, as the guard's"
        )
