"""Streams of somebody else's code, read part by part: what is shown, how they end, and that they are closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from nco_guard.values import Cleaner, Role
from nco_guard.values.clean_calls import CleanCalls

PARTS = ["Write to jane.", "doe@exam", "ple.com, ", "please."]
CLEAN = "Write to [redacted], please."


class Source:
    """A stream in both forms, which knows whether it was closed. `fails`: at its end."""

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.closed = fails, False

    def parts(self) -> Iterator[str]:
        try:
            yield from PARTS
            if self.fails:
                raise OSError("jane.doe@example.com is not there")
        finally:
            self.closed = True

    async def aparts(self) -> AsyncIterator[str]:
        try:
            for part in self.parts():
                yield part
        finally:
            self.closed = True


def reading() -> tuple[CleanCalls, Any]:
    cleaner = Cleaner("pii")
    return CleanCalls(lambda error: cleaner.error(error, RuntimeError)), cleaner.stream(Role.TEXT)


async def gathered(stream: AsyncIterator[str], shown: list[str]) -> None:
    async for part in stream:
        shown.append(part)  # noqa: PERF401  what came before an error stays


@pytest.mark.parametrize("form", ["sync", "async"])
def test_what_a_reader_shows_and_how_a_stream_ends(form: str) -> None:
    for source in (Source(), Source(fails=True)):
        calls, reader = reading()
        shown: list[str] = []
        error = None
        try:
            if form == "sync":
                shown.extend(calls.through(source.parts(), reader))
            else:
                asyncio.run(gathered(calls.athrough(source.aparts(), reader), shown))
        except RuntimeError as raised:
            error = raised
        assert source.closed
        if source.fails:
            assert CLEAN.startswith("".join(shown))
            assert str(error) == "[redacted] is not there"
            assert error is not None
            assert error.__context__ is None
        else:
            assert "".join(shown) == CLEAN
            assert error is None


def test_a_reader_that_leaves_closes_the_stream() -> None:
    calls, reader = reading()
    source = Source()
    shown = calls.through(source.parts(), reader, str.upper)
    assert next(shown).startswith("WRITE")
    assert not source.closed
    shown.close()
    assert source.closed

    async def left() -> None:
        calls, reader = reading()
        shown = calls.athrough(again.aparts(), reader)
        await anext(shown)
        assert not again.closed
        await shown.aclose()

    again = Source()
    asyncio.run(left())
    assert again.closed
