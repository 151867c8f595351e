"""A guard as a step of a chain: what passes through it is redacted, refused or reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.runnables import RunnableConfig, RunnableGenerator

from langchain_nco_guard._cleaning import RecordingCleaner
from nco_guard import Guard, OnMatch, arguments
from nco_guard.errors import ArgumentError
from nco_guard.guards import GuardSource, as_guard, check_replacement
from nco_guard.scan import Replacement
from nco_guard.values.clean_calls import Reader

__all__ = ["guard_runnable", "report_runnable"]


def guard_runnable(
    guard: GuardSource, action: OnMatch = "raise", *, replacement: Replacement = None
) -> GuardRunnable:
    """A guard as a step of a chain: `prompt | model | guard_runnable(guard)`. Any value in, the same out.

    Args:
        guard: a `Guard`, a `Policy`, a preset's name or several, or the path of a policy file (`nco_guard.guards`).
        action: "raise" (the default) passes on what is clean and raises `ViolationError` otherwise; "redact" puts
            `replacement` in the place of matches.
        replacement: what stands where a match was, a text or a function from a rule's id to one.

    Guarantee: no match of a hard rule in what it gives out (text, messages, documents, data, objects), at any moment of
    a stream. Text, message chunks, lists and the dictionaries of `RunnableParallel` and `RunnablePassthrough.assign`
    stream through, each text in them held back exactly as long as a match could still be completed; what they make
    joined is what `invoke` gives.

    Errors: `PolicyError` at once for a replacement that is itself forbidden; `ViolationError`; `UnsupportedError`
    ("raise") for what cannot be looked into, such as an iterator, in whose place "redact" puts its type's name. Where a
    model can be guarded itself, do that instead.

    Examples:
        >>> (hosted | guard_runnable("pii", action="redact")).invoke("Maria?").text
        'Write to [redacted].'
        >>> guard_runnable("pii", action="redact").invoke({"to": "jane.doe@example.com"})
        {'to': '[redacted]'}
    """
    arguments.choice("action", action, ("raise", "redact"))
    checked = as_guard(guard)
    check_replacement(checked, replacement)
    return GuardRunnable(checked, action, replacement)


def report_runnable(guard: GuardSource) -> ReportRunnable:
    """The verifier as a step of a chain: texts or messages in, whole or in pieces; its `Report` on them out.

    Errors: `ArgumentError` for what has no text.

    Examples:
        >>> (hosted | report_runnable("pii")).invoke("Maria?").violations[0].rule_id
        'pii.email'
    """
    return ReportRunnable(as_guard(guard), "report")


class _Step(RunnableGenerator[Any, Any]):
    """Reads what comes, piece by piece, and gives out what its reader shows."""

    def __init__(self, guard: Guard, action: OnMatch) -> None:
        self.guard = guard
        self.action = action
        super().__init__(self._pass, self._apass, name=f"{action}_{guard.policy.name}")

    def _reader(self) -> Reader[Any]:
        raise NotImplementedError

    def _pass(self, values: Iterator[Any]) -> Iterator[Any]:
        reader = self._reader()
        for value in values:
            yield from reader.feed(value)
        yield from reader.finish()

    async def _apass(self, values: AsyncIterator[Any]) -> AsyncIterator[Any]:
        reader = self._reader()
        async for value in values:
            for ready in reader.feed(value):
                yield ready
        for ready in reader.finish():
            yield ready


class GuardRunnable(_Step):
    """What `guard_runnable` gives."""

    def __init__(self, guard: Guard, action: OnMatch, replacement: Replacement) -> None:
        self._replacement = replacement
        super().__init__(guard, action)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """See `Runnable`. What nothing was found in is the same object."""
        return self._call_with_config(self._whole, input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """See `Runnable`."""

        async def whole(value: Any) -> Any:
            return self._whole(value)

        return await self._acall_with_config(whole, input, config, **kwargs)

    def _whole(self, value: Any) -> Any:
        return self._cleaner().value(value)

    def _cleaner(self) -> RecordingCleaner:
        return RecordingCleaner(self.guard, self.action, replacement=self._replacement)

    def _reader(self) -> Reader[Any]:
        return self._cleaner().stream()


class ReportRunnable(_Step):
    """What `report_runnable` gives."""

    def _reader(self) -> Reader[Any]:
        return _Reporting(self.guard)


class _Reporting:
    """Reads the texts of one stream, and has a report on them in the end."""

    def __init__(self, guard: Guard) -> None:
        self._texts = guard.stream_verifier(action="report")
        self._log = guard.log
        self._read: list[str] = []

    def feed(self, value: Any) -> list[Any]:
        text = value if isinstance(value, str) else getattr(value, "text", None)
        if not isinstance(text, str):
            raise ArgumentError(
                f"a {type(value).__name__} has no text to report on; use guard_runnable(guard)"
            )
        self._texts.feed(text)
        if self._log.sink is not None:
            self._read.append(text)
        return []

    def finish(self) -> list[Any]:
        self._texts.finish()
        if (recorder := self._log.own_recorder()) is not None:
            recorder.report(self._texts.report, text="".join(self._read))
        return [self._texts.report]
