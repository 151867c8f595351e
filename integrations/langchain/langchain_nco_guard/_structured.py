"""Structured output of a verified model: the inner model's own way of asking, the parser's objects verified as well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import is_dataclass
from operator import itemgetter
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableMap,
    RunnablePassthrough,
    RunnableSequence,
)
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable
from pydantic import BaseModel
from pydantic.v1 import BaseModel as BaseModelV1

from langchain_nco_guard._cleaning import RecordingCleaner
from langchain_nco_guard._unobserved import UnobservedCalls
from langchain_nco_guard._wrappers import mapped
from nco_guard.errors import RedactionError, UnsupportedError

__all__ = ["parsed_output", "shown_object", "verified_structured_output"]


def verified_structured_output(
    model: Any,
    schema: Any,
    *,
    include_raw: bool,
    options: dict[str, Any],
    around: Callable[..., Any],
    own: Callable[..., Runnable[Any, Any]],
    cleaner: Callable[[], RecordingCleaner],
) -> Runnable[Any, Any]:
    """What a verified model answers with in `with_structured_output`.

    model: the inner one. around: puts the verified model around a runnable that was made from that. own: the verified
    model's own way to answer with objects, for inner runnables that are no models. cleaner: makes what verifies the
    objects of a call.

    Errors: `UnsupportedError` where model and parser cannot be taken apart.
    """
    parsers: list[Runnable[Any, Any]] = []
    opaque: list[Any] = []

    def ask(inner: Any) -> Any:
        if not isinstance(inner, BaseChatModel):
            opaque.append(inner)
            return inner
        asked, parser = _parted(inner.with_structured_output(schema, **options), inner)
        parsers.append(parser)
        return asked

    asking = mapped(model, ask)
    if opaque:
        if options.pop("method", None) not in (None, "function_calling"):
            raise UnsupportedError(
                f"method: of a {type(opaque[0]).__name__} only 'function_calling' is verified here"
            )
        calling, parser = _parted(own(schema, **options), opaque[0])
        return parsed_output(calling, _VerifiedParser(parser, cleaner), include_raw=include_raw)
    if len({type(parser) for parser in parsers}) > 1:
        raise UnsupportedError(
            "with_structured_output: the models behind with_fallbacks answer in different ways; call it on a verified "
            "model for each of them, and with_fallbacks on what that gives"
        )
    verified: Runnable[Any, Any] = around(asking, parsed=not _calls_tools(asking))
    return parsed_output(verified, _VerifiedParser(parsers[0], cleaner), include_raw=include_raw)


def _parted(made: Any, inner: Any) -> tuple[Any, Any]:
    """What answers, and what parses the answer. Errors: `UnsupportedError` where that is not what was made."""
    if not isinstance(made, RunnableSequence) or len(made.steps) != 2:
        raise UnsupportedError(
            f"{type(inner).__name__}.with_structured_output is no model and a parser; verify what it gives with "
            "guard_runnable(guard)"
        )
    return made.first, made.last


def shown_object(cleaner: RecordingCleaner, found: Any) -> Any:
    """An object made of an answer as it may be shown, of the same class. Errors: `RedactionError` where no field of it
    could be replaced, since only what it computes matches.
    """
    shown = cleaner.value(found)
    classed = isinstance(found, BaseModel | BaseModelV1) or is_dataclass(found)
    if classed and not isinstance(shown, type(found)):
        raise RedactionError(cleaner.rules(found))
    return shown


class _VerifiedParser(Runnable[Any, Any]):
    """Somebody else's parser, which nobody observes: its objects, and its errors, are shown once they are verified."""

    def __init__(self, parser: Runnable[Any, Any], cleaner: Callable[[], RecordingCleaner]) -> None:
        self._parser, self._cleaner = parser, cleaner

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """See `Runnable`."""
        return self._call_with_config(self._whole, input, config, run_type="parser", **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """See `Runnable`."""
        return await self._acall_with_config(self._awhole, input, config, run_type="parser", **kwargs)

    def transform(
        self, input: Iterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """See `Runnable`."""
        yield from self._transform_stream_with_config(input, self._parts, config, run_type="parser", **kwargs)

    async def atransform(
        self, input: AsyncIterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """See `Runnable`."""
        parts = self._atransform_stream_with_config(input, self._aparts, config, run_type="parser", **kwargs)
        async for part in parts:
            yield part

    def _whole(self, message: Any) -> Any:
        read = _Objects(self._cleaner())
        return shown_object(read.cleaner, read.inside.call(self._parser.invoke, message, read.inside.config))

    async def _awhole(self, message: Any) -> Any:
        read = _Objects(self._cleaner())
        found = await read.inside.acall(self._parser.ainvoke, message, read.inside.config)
        return shown_object(read.cleaner, found)

    def _parts(self, messages: Iterator[Any]) -> Iterator[Any]:
        # A message that is parsed comes whole, and whoever writes it is observed.
        read, whole = _Objects(self._cleaner()), iter([*messages])
        yield from read.inside.through(self._parser.transform(whole, read.inside.config), read)

    async def _aparts(self, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        read, pieces = _Objects(self._cleaner()), [piece async for piece in messages]

        async def whole() -> AsyncIterator[Any]:
            for piece in pieces:
                yield piece

        parsed = self._parser.atransform(whole(), read.inside.config)
        async for part in read.inside.athrough(parsed, read):
            yield part


class _Objects:
    """Reads the objects of one call, one by one."""

    def __init__(self, cleaner: RecordingCleaner) -> None:
        self.cleaner = cleaner
        self.inside = UnobservedCalls({}, lambda error: cleaner.error(error, OutputParserException))

    def feed(self, found: Any) -> list[Any]:
        return [shown_object(self.cleaner, found)]

    def finish(self) -> list[Any]:
        return []


def parsed_output(
    model: Runnable[Any, Any], parser: Runnable[Any, Any], *, include_raw: bool
) -> Runnable[Any, Any]:
    """A model and a parser, as LangChain's own models put them together."""
    if not include_raw:
        made: Runnable[Any, Any] = model | parser
        return made
    parse = RunnablePassthrough.assign(
        parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
    ).with_fallbacks([RunnablePassthrough.assign(parsed=lambda _: None)], exception_key="parsing_error")
    # Options of a call are given to the first of several runnables; a map would drop them, a guard among them.
    return model | RunnableMap(raw=RunnablePassthrough()) | parse


def _calls_tools(asking: Any) -> bool:
    """Whether the answer is the arguments of a tool; otherwise its text is parsed."""
    while isinstance(asking, (RunnableBindingBase, DynamicRunnable)):
        if isinstance(asking, RunnableBindingBase):
            if asking.kwargs.get("tools"):
                return True
            asking = asking.bound
        else:
            asking = asking.default
    return False
