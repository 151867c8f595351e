"""A guard as a step of a chain: what passes through it is verified, redacted or refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableGenerator

from langchain_nco_guard._chunks import ChunkFilter
from langchain_nco_guard._cleaning import Cleaner
from langchain_nco_guard._guards import GuardSource, as_guard
from nco_guard import Guard, Report
from nco_guard.redaction import REDACTED, Replacement, StreamVerifier

__all__ = ["GuardRunnable", "to_runnable"]

Action = Literal["raise", "redact", "verify"]


def to_runnable(guard: GuardSource, **options: Any) -> GuardRunnable:
    """A guard as a runnable: `prompt | model | to_runnable(guard)`. See `GuardRunnable`."""
    return GuardRunnable(guard, **options)


class GuardRunnable(RunnableGenerator[Any, Any]):
    """Text, messages, documents or JSON in; the same out, or a report.

    Args:
        action: "raise" (the default) passes on what is clean and raises `ViolationError` otherwise; "redact" puts
            `replacement` in the place of matches; "verify" gives the verifier's `Report` on the text instead of it.

    Guarantee ("raise", "redact"): no match of a hard rule in what it gives out, at any moment of a stream. Text
    and message chunks stream through, held back exactly as long as a match could still be completed.

    Errors: `TypeError` for values that cannot be looked into. Where a model can be guarded itself, do that instead.
    """

    def __init__(
        self, guard: GuardSource, action: Action = "raise", *, replacement: Replacement = REDACTED
    ) -> None:
        if action not in ("raise", "redact", "verify"):
            raise ValueError(f"action {action!r}: one of 'raise', 'redact', 'verify'")
        self.guard: Guard = as_guard(guard)
        self.action = action
        self._replacement = replacement
        self.guard.stream_verifier(replacement=replacement)
        super().__init__(self._pass, self._apass, name=f"{action}_{self.guard.policy.name}")

    def _pass(self, values: Iterator[Any]) -> Iterator[Any]:
        flow = _Flow(self)
        for value in values:
            yield from flow.feed(value)
        yield from flow.finish()

    async def _apass(self, values: AsyncIterator[Any]) -> AsyncIterator[Any]:
        flow = _Flow(self)
        async for value in values:
            for ready in flow.feed(value):
                yield ready
        for ready in flow.finish():
            yield ready


class _Flow:
    """One stream through a `GuardRunnable`: of text, of message chunks, or of whole values."""

    def __init__(self, runnable: GuardRunnable) -> None:
        self._runnable = runnable
        action: Literal["redact", "raise"] = "raise" if runnable.action == "raise" else "redact"
        self._cleaner = Cleaner(runnable.guard, action, replacement=runnable._replacement)
        self._text: StreamVerifier | None = None
        self._chunks: ChunkFilter | None = None

    def feed(self, value: Any) -> list[Any]:
        if self._runnable.action == "verify":
            text = value if isinstance(value, str) else getattr(value, "text", None)
            if not isinstance(text, str):
                raise TypeError(f"a {type(value).__name__} has no text to report on; use 'raise' or 'redact'")
            self._stream().feed(text)
            return []
        if isinstance(value, str):
            shown = self._stream().feed(value)
            return [shown] if shown else []
        if isinstance(value, AIMessageChunk):
            self._chunks = self._chunks or ChunkFilter(self._cleaner)
            chunk = self._chunks.feed(ChatGenerationChunk(message=value))
            return [] if chunk is None else [chunk.message]
        return [self._cleaner.value(value)]

    def finish(self) -> list[Any]:
        last: list[Any] = []
        if self._text is not None:
            shown = self._text.finish()
            self._cleaner.record(self._text.report)
            # Even nothing is an answer.
            last = [self._report()] if self._runnable.action == "verify" else [shown]
        if self._chunks is not None:
            last += [chunk.message for chunk in self._chunks.finish()]
        return last

    def _report(self) -> Report:
        return self._stream().report

    def _stream(self) -> StreamVerifier:
        if self._text is None:
            verifying = self._runnable.action == "verify"
            self._text = self._runnable.guard.stream_verifier(
                action="report" if verifying else self._cleaner.action,
                replacement=self._runnable._replacement,
            )
        return self._text
