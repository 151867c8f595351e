"""Text that is shown while it is written, and never taken back.

A text that is stopped from outside (a stop string, a criterion, a time limit) is trimmed to where it may end, so tokens
are shown only once the text may end after them.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from nco_guard.errors import StateLimitError
from nco_guard.masking import ENDED, LIMITED, VIOLATED
from nco_guard.session import BoundGuard, TextState

__all__ = ["Generate", "HeldTokens", "aside", "in_pieces", "in_pieces_async"]

_T = TypeVar("_T")

Generate = Callable[[Callable[[str], None], Event], object]
"""A generation in a thread: hands each piece of text to its first argument, and stops at its next step once the second
is set.
"""


class HeldTokens:
    """Tokens as they are written, held back until the text may end after them.

    prompt: what the text continues, or None. Cost: one step of the tables a token, however long the text is.
    """

    def __init__(self, bound: BoundGuard, prompt: Sequence[int] | None) -> None:
        self._text = TextState(bound, prompt)
        self._held: list[int] = []
        self._over = False

    def take(self, token: int) -> list[int]:
        """The next token; those that may be shown now, in one piece: what lies between is not fit to be seen."""
        if self._over:
            return []
        try:
            _, _, after = self._text.advance(token)
            shown = after != VIOLATED and self._text.ask(lambda tables, state: tables.may_show(state))
        except StateLimitError:
            after = LIMITED
        if after in (VIOLATED, LIMITED):
            # The text will be cut back to before it, or nothing is known of it from here on.
            self._over = True
            return []
        self._held.append(token)
        self._over = after == ENDED
        if not shown:
            return []
        held, self._held = self._held, []
        return held


def in_pieces(generate: Generate) -> Iterator[str]:
    """What a generation writes, as it writes it; its errors are raised here, at once.

    It runs in a thread of its own, in a copy of the caller's context; closing the iterator early stops it. Its result,
    where that is wanted, it leaves where the caller finds it once the iterator is exhausted.
    """
    pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    left = Event()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="nco-guard-stream") as pool:
        generation = pool.submit(contextvars.copy_context().run, generate, pieces.put, left)
        generation.add_done_callback(lambda _: pieces.put(None))
        try:
            while (piece := pieces.get()) is not None:
                yield piece
        finally:
            left.set()
        generation.result()


async def in_pieces_async(generate: Generate) -> AsyncGenerator[str, None]:
    """`in_pieces` for an event loop, which goes on meanwhile; leaving it early does not wait for the generation."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    left = Event()

    def hand_over(piece: str) -> None:
        if not left.is_set():
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    generation = loop.run_in_executor(None, contextvars.copy_context().run, generate, hand_over, left)
    generation.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
        generation.result()
    finally:
        left.set()
        if not generation.done():
            # Nobody will ask for its result any more.
            generation.add_done_callback(lambda future: future.cancelled() or future.exception())


async def aside(run: Callable[[Event], _T]) -> _T:
    """What `run(left)` returns, from a thread, while the event loop goes on; cancelling sets `left`."""
    left = Event()
    try:
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(None, context.run, run, left)
    finally:
        left.set()
