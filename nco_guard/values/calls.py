"""Calls of what somebody else wrote, the errors of which may hold what is not to be shown."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any, TypeVar

__all__ = ["CleanCalls"]

T = TypeVar("T")
_END: Any = object()


class CleanCalls:
    """Makes calls; their errors come out as `shown` gives them, such as `Cleaner.error`.

    An error that is not the same any more is raised outside of the `except` block: it does not carry the other one as
    its context.
    """

    def __init__(self, shown: Callable[[BaseException], BaseException]) -> None:
        self._shown = shown

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """What a function returns."""
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            if (shown := self._shown(error)) is error:
                raise
        raise shown

    async def acall(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """What an awaitable that a function makes comes to."""
        try:
            return await function(*args, **kwargs)
        except BaseException as error:
            if (shown := self._shown(error)) is error:
                raise
        raise shown

    def each(self, stream: Iterator[T]) -> Generator[T, None, None]:
        """The parts of a stream, which is closed when its reader leaves."""
        try:
            while (part := self.call(next, stream, _END)) is not _END:
                yield part
        finally:
            if (close := getattr(stream, "close", None)) is not None:
                self.call(close)

    async def aeach(self, stream: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """The parts of an asynchronous stream, which is closed when its reader leaves."""

        async def following() -> T:
            return await anext(stream, _END)

        try:
            while (part := await self.acall(following)) is not _END:
                yield part
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await self.acall(close)
