"""Calls of what somebody else wrote, the errors of which may hold what is not to be shown."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from typing import Any, Protocol, TypeVar

__all__ = ["CleanCalls"]

T = TypeVar("T")
Shown = TypeVar("Shown", covariant=True)
_END: Any = object()


class Reader(Protocol[Shown]):
    """What reads a stream part by part, and shows of it what may be shown, such as a `ValueStream`."""

    def feed(self, part: Any, /) -> Iterable[Shown]:
        """Read one part."""

    def finish(self) -> Iterable[Shown]:
        """The stream is over."""


def _same(part: Any) -> Any:
    return part


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

    def through(
        self, stream: Iterator[Any], reader: Reader[T], given: Callable[[Any], Any] = _same
    ) -> Generator[T, None, None]:
        """What a reader shows of a stream, which is closed when nobody reads on.

        `given`: what the reader is given for a part of the stream.
        """
        try:
            while (part := self.call(next, stream, _END)) is not _END:
                yield from reader.feed(given(part))
        finally:
            if (close := getattr(stream, "close", None)) is not None:
                self.call(close)
        yield from reader.finish()

    async def athrough(
        self, stream: AsyncIterator[Any], reader: Reader[T], given: Callable[[Any], Any] = _same
    ) -> AsyncGenerator[T, None]:
        """What a reader shows of an asynchronous stream, as `through` does."""

        async def following() -> Any:
            return await anext(stream, _END)

        try:
            while (part := await self.acall(following)) is not _END:
                for shown in reader.feed(given(part)):
                    yield shown
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await self.acall(close)
        for shown in reader.finish():
            yield shown
