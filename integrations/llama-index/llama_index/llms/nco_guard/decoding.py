"""One guarded call: as a whole or piece by piece, from a thread or from an event loop that goes on running.

Nothing here knows LlamaIndex. Generation runs in the calling thread (`run`) or in one of its own; an error of it is
raised where its reader waits, and a reader that leaves stops it at its next step.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from transformers import StoppingCriteria

from nco_guard import BoundGuard, Guard
from nco_guard.audit import correlated
from nco_guard.engines.hf import GenerationResult
from nco_guard.engines.hf.generation import generate_ids
from nco_guard.engines.hf.streamers import ReaderLeft
from nco_guard.engines.streaming import in_pieces
from nco_guard.errors import GenerationError
from nco_guard.values import Event, ReplyReader, Text, ToolCall

__all__ = ["Call", "Reply", "StopAtIds", "Usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What is there of a reply: the whole content so far, what the last piece added, and the finished tool calls.

    `outcome` (as in `nco_guard.engines.hf`) and `usage` are known with the last one only.
    """

    content: str
    delta: str
    calls: tuple[ToolCall, ...]
    outcome: str | None = None
    usage: Usage | None = None


@dataclass
class _Reading:
    """What is read of a reply: the text before the first call, and the calls; what a model writes after one is not
    the answer.
    """

    reader: ReplyReader
    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def feed(self, piece: str) -> str:
        """Take a further piece of text; what it adds to the content."""
        return self._taken(self.reader.feed(piece))

    def finish(self) -> str:
        """The reply is over."""
        return self._taken(self.reader.finish())

    def _taken(self, events: Iterable[Event]) -> str:
        before = len(self.content)
        for event in events:
            if isinstance(event, ToolCall):
                self.calls.append(event)
            elif isinstance(event, Text) and not self.calls:
                self.content += event.text
        return self.content[before:]


@dataclass(frozen=True)
class Call:
    """Everything that one call needs; guards, models and tokenizers are shared between calls.

    inputs: what the tokenizer returned for one prompt. options: further options of `model.generate`.
    stop, marks, begun, single_call: see `ReplyReader`. requires_call: a reply without a tool call is an error.
    parent_id: the caller's own id, for the audit log.
    """

    guard: Guard
    bound: BoundGuard
    model: Any
    tokenizer: Any
    inputs: Mapping[str, Any]
    options: Mapping[str, Any]
    stop: tuple[str, ...] = ()
    marks: tuple[str, str] | None = None
    begun: str = ""
    single_call: bool = False
    requires_call: bool = False
    parent_id: str | None = None

    def run(self) -> Reply:
        """The whole reply, in this thread."""
        return self._run(())

    def _run(self, criteria: Iterable[StoppingCriteria]) -> Reply:
        result = self._generate(None, criteria)
        read = self._reading()
        read.feed(result.texts[0])
        read.finish()
        return self._last(read, "", result)

    async def arun(self) -> Reply:
        """The whole reply; the event loop goes on meanwhile, and cancelling stops the generation."""
        left = threading.Event()
        run = partial(contextvars.copy_context().run, self._run, (ReaderLeft(left),))
        try:
            return await asyncio.get_running_loop().run_in_executor(None, run)
        finally:
            left.set()

    def stream(self) -> Iterator[Reply]:
        """The reply as it grows; the last one has an outcome."""
        results: list[GenerationResult] = []
        read = self._reading()

        def generate(write: Callable[[str], None], left: threading.Event) -> None:
            results.append(self._generate(write, (ReaderLeft(left),)))

        for piece in in_pieces(generate):
            yield from self._grown(read, piece)
        yield self._last(read, read.finish(), results[0])

    async def astream(self) -> AsyncIterator[Reply]:
        """`stream` for an event loop, which goes on meanwhile."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        left = threading.Event()
        read = self._reading()

        def hand_over(piece: str) -> None:
            if not left.is_set():
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        run = partial(contextvars.copy_context().run, self._generate, hand_over, (ReaderLeft(left),))
        generation = loop.run_in_executor(None, run)
        generation.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                for reply in self._grown(read, piece):
                    yield reply
            result = generation.result()
            yield self._last(read, read.finish(), result)
        finally:
            left.set()
            if not generation.done():
                # Nobody will ask for its result any more.
                generation.add_done_callback(lambda future: future.cancelled() or future.exception())

    def _reading(self) -> _Reading:
        context = ""
        if self.bound.needs_context:
            prompt = self.inputs["input_ids"][0].tolist()
            context = self.bound.vocabulary.continuation_of(prompt, [])[0]
        return _Reading(
            ReplyReader(
                self.guard,
                context=context,
                stop=self.stop,
                marks=self.marks,
                begun=self.begun,
                single_call=self.single_call,
                invalid_as_text=True,
                escapes=True,  # agents and programs parse it
            )
        )

    @staticmethod
    def _grown(read: _Reading, piece: str) -> Iterator[Reply]:
        before = len(read.calls)
        delta = read.feed(piece)
        if delta or len(read.calls) > before:
            yield Reply(read.content, delta, tuple(read.calls))

    def _last(self, read: _Reading, delta: str, result: GenerationResult) -> Reply:
        if self.requires_call and not read.calls:
            raise GenerationError(
                f"a tool call was required and the model wrote none that can be read (outcome: {result.outcomes[0]}); "
                f"allow more max_new_tokens, or let the model choose"
            )
        usage = Usage(self.inputs["input_ids"].shape[1], len(result.token_ids[0]))
        return Reply(read.content, delta, tuple(read.calls), result.outcomes[0], usage)

    def _generate(
        self, on_text: Callable[[str], None] | None, criteria: Iterable[StoppingCriteria]
    ) -> GenerationResult:
        options = {**self.options, **self.inputs}
        options["stopping_criteria"] = [*(options.get("stopping_criteria") or ()), *criteria]
        if self.stop:
            options["stop_strings"] = list(self.stop)
        with correlated(parent_id=self.parent_id):
            return generate_ids(self.guard, self.model, self.tokenizer, options, on_text=on_text)


class StopAtIds(StoppingCriteria):  # type: ignore[misc]
    """Stops after any of some tokens, which stay in the text: `stopping_ids` of LlamaIndex's `HuggingFaceLLM`."""

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids = sorted(set(ids))

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """int64 [rows, length] -> bool [rows]."""
        return torch.isin(input_ids[:, -1], torch.tensor(self._ids, device=input_ids.device))
