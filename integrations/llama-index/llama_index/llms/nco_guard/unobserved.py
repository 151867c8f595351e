"""Calls that nobody observes: what runs in them has not been verified yet.

LlamaIndex tells everything to everybody: each LLM, tool and engine reports its own calls, with their texts, to handlers
of instrumentation, to callback managers and to a global handler. Those of an LLM inside a `VerifiedLLM` would be shown
what it wrote before anybody looked at it. LlamaIndex has no switch for one call, and handlers are shared by all
threads. So the two classes through which every report goes ask first whether the call at hand is to be reported. The
answer is a context variable, which follows a call into its tasks and into threads that are given a copy of the context;
calls outside of it are reported as ever.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from llama_index.core.callbacks import CallbackManager
from llama_index_instrumentation.dispatcher import Dispatcher

from nco_guard.values.clean_calls import CleanCalls

__all__ = ["REPORTS", "UnobservedCalls"]

T = TypeVar("T")
_unobserved: ContextVar[bool] = ContextVar("nco_guard_unobserved", default=False)

REPORTS: dict[type, tuple[str, ...]] = {
    Dispatcher: ("event", "aevent", "span_enter", "span_exit", "span_drop"),
    CallbackManager: ("on_event_start", "on_event_end", "start_trace", "end_trace"),
}
"""The methods by which LlamaIndex reports to handlers, all of them."""


@contextmanager
def _nobody() -> Iterator[None]:
    token = _unobserved.set(True)
    try:
        yield
    finally:
        _unobserved.reset(token)


class UnobservedCalls(CleanCalls):
    """Makes calls that nobody observes; their errors come out as they may be shown."""

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """What the function returns."""
        with _nobody():
            return super().call(function, *args, **kwargs)

    async def acall(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """What is awaited, for an event loop."""
        with _nobody():
            return await super().acall(function, *args, **kwargs)


def _asks_first(report: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(report)
    def reported(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _unobserved.get():
            return report(self, *args, **kwargs)
        return kwargs.get("event_id") or ""  # whoever began an event wants its id

    return reported


def _asks_first_async(report: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(report)
    async def reported(self: Any, *args: Any, **kwargs: Any) -> None:
        if not _unobserved.get():
            await report(self, *args, **kwargs)

    return reported


for _kind, _names in REPORTS.items():
    for _name in _names:
        _asking = _asks_first_async if _name == "aevent" else _asks_first
        setattr(_kind, _name, _asking(getattr(_kind, _name)))
