"""A guard as a step of a chain: what passes through it is verified, redacted or refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.runnables import RunnableConfig, RunnableGenerator

from langchain_nco_guard._cleaning import Cleaner
from nco_guard import Guard, OnMatch, arguments
from nco_guard.guards import GuardSource, as_guard
from nco_guard.scan import Replacement, StreamVerifier
from nco_guard.values import ValueStream

__all__ = ["GuardRunnable", "guard_runnable"]


def guard_runnable(
    guard: GuardSource, action: OnMatch = "raise", *, replacement: Replacement = None
) -> GuardRunnable:
    """A guard as a runnable: `prompt | model | guard_runnable(guard)`. See `GuardRunnable`.

    Examples:
        >>> (hosted | guard_runnable("pii", action="redact")).invoke("Maria?").text
        'Write to [redacted].'
    """
    return GuardRunnable(guard, action, replacement=replacement)


class GuardRunnable(RunnableGenerator[Any, Any]):
    """Any value in (text, messages, documents, data, objects); the same out, or a report.

    Args:
        action: "raise" (the default) passes on what is clean and raises `ViolationError` otherwise; "redact" puts
            `replacement` in the place of matches; "report" gives the verifier's `Report` on the text instead of it.

    Guarantee ("raise", "redact"): no match of a hard rule in what it gives out, at any moment of a stream. Text,
    message chunks, lists and the dictionaries of `RunnableParallel` and `RunnablePassthrough.assign` stream through,
    each text in them held back exactly as long as a match could still be completed; what they make joined is what
    `invoke` gives.

    Errors: `ViolationError`; `UnsupportedError` ("raise") for what cannot be looked into, such as an iterator, in whose
    place "redact" puts its type's name. Where a model can be guarded itself, do that instead.

    Examples:
        >>> GuardRunnable("pii", action="redact").invoke({"to": "jane.doe@example.com"})
        {'to': '[redacted]'}
    """

    def __init__(
        self, guard: GuardSource, action: OnMatch = "raise", *, replacement: Replacement = None
    ) -> None:
        arguments.choice("action", action, ("raise", "redact", "report"))
        self.guard: Guard = as_guard(guard)
        self.action: OnMatch = action
        self._replacement = replacement
        self.guard.stream_verifier(replacement=replacement)
        super().__init__(self._pass, self._apass, name=f"{action}_{self.guard.policy.name}")

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """See `Runnable`. What nothing was found in is the same object."""
        return self._call_with_config(self._whole, input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """See `Runnable`."""

        async def whole(value: Any) -> Any:
            return self._whole(value)

        return await self._acall_with_config(whole, input, config, **kwargs)

    def _whole(self, value: Any) -> Any:
        if self.action != "report":
            return Cleaner(self.guard, self.action, replacement=self._replacement).value(value)
        flow = _Flow(self)
        return [*flow.feed(value), *flow.finish()][-1]

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
    """One stream through a `GuardRunnable`: of pieces of a value, or of whole values."""

    def __init__(self, runnable: GuardRunnable) -> None:
        self._report: StreamVerifier | None = None
        self._values: ValueStream | None = None
        if runnable.action == "report":
            self._report = runnable.guard.stream_verifier(action="report")
        else:
            cleaner = Cleaner(runnable.guard, runnable.action, replacement=runnable._replacement)
            self._values = cleaner.stream()

    def feed(self, value: Any) -> list[Any]:
        if self._values is not None:
            return self._values.feed(value)
        assert self._report is not None
        text = value if isinstance(value, str) else getattr(value, "text", None)
        if not isinstance(text, str):
            raise TypeError(f"a {type(value).__name__} has no text to report on; use 'raise' or 'redact'")
        self._report.feed(text)
        return []

    def finish(self) -> list[Any]:
        if self._values is not None:
            return self._values.finish()
        assert self._report is not None
        self._report.finish()
        return [self._report.report]
