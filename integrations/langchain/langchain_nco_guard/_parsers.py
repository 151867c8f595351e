"""Parsers of objects that are never silent: where LangChain's own give None, or a stream without parts, these raise.

What they make is verified as it is once it is made: a class casts, validates and computes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial as partial_of
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import BaseMessage, BaseMessageChunk
from langchain_core.output_parsers import (
    BaseCumulativeTransformOutputParser,
    JsonOutputKeyToolsParser,
    JsonOutputParser,
    PydanticOutputParser,
    PydanticToolsParser,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import Field

from langchain_nco_guard._cleaning import RecordingCleaner
from nco_guard import Guard
from nco_guard.values.clean_calls import CleanCalls

__all__ = ["call_parser", "object_parser", "verified_object"]

Verified = Callable[[Any, Callable[[], Any]], Any] | None


class _ToTheEnd(BaseCumulativeTransformOutputParser[Any]):
    """Mix-in, comes first among the bases: a stream is parsed once, as a whole, and what is made of it verified.

    verified: calls what parses a message, and gives out what may be shown of the object, or of the error.
    """

    verified: Verified = Field(default=None, exclude=True, repr=False)

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        parse = partial_of(super().parse_result, result, partial=partial)
        return parse() if self.verified is None else self.verified(getattr(result[0], "message", None), parse)

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Any]:
        whole = _Whole()
        for chunk in input:
            whole.take(chunk)
        if whole.message is not None:
            yield self.parse_result([whole.generation()])

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Any]:
        whole = _Whole()
        async for chunk in input:
            whole.take(chunk)
        if whole.message is not None:
            yield self.parse_result([whole.generation()])


class _Whole:
    """What came of a stream, joined."""

    def __init__(self) -> None:
        self.message: Any = None

    def take(self, chunk: Any) -> None:
        self.message = chunk if self.message is None else self.message + chunk

    def generation(self) -> Generation:
        if isinstance(self.message, BaseMessageChunk):
            return ChatGenerationChunk(message=self.message)
        if isinstance(self.message, BaseMessage):
            return ChatGeneration(message=self.message)
        return Generation(text=self.message)


class _NeedsCall(BaseCumulativeTransformOutputParser[Any]):
    """Mix-in: an answer without a call that can be read is an error."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        found = super().parse_result(result, partial=partial)
        if found is None and not partial:
            raise OutputParserException("the answer holds no call that can be read, so there is no object")
        return found


class _Objects(_ToTheEnd, PydanticOutputParser[Any]):
    """Objects of a class, from text."""


class _Json(_ToTheEnd, JsonOutputParser):
    """JSON, from text."""


class _CalledObjects(_ToTheEnd, _NeedsCall, PydanticToolsParser):
    """Objects of a class, from the arguments of a call."""


class _CalledJson(_ToTheEnd, _NeedsCall, JsonOutputKeyToolsParser):
    """The arguments of a call."""


def object_parser(schema: Any, verified: Verified) -> BaseCumulativeTransformOutputParser[Any]:
    """What makes objects of a text that is JSON: of a pydantic class its instances, of other schemas plain values.

    verified: see `verified_object`.
    """
    if isinstance(schema, type) and is_basemodel_subclass(schema):
        return _Objects(pydantic_object=schema, verified=verified)
    return _Json(verified=verified)


def call_parser(schema: Any, name: str, verified: Verified) -> BaseCumulativeTransformOutputParser[Any]:
    """What makes objects of the arguments of the first call; name: the tool's. verified: see `verified_object`."""
    if isinstance(schema, type) and is_basemodel_subclass(schema):
        return _CalledObjects(tools=[schema], first_tool_only=True, verified=verified)
    return _CalledJson(key_name=name, first_tool_only=True, verified=verified)


def verified_object(guard_of: Callable[[Any], Guard], message: Any, parse: Callable[[], Any]) -> Any:
    """What is made of a message, verified by the guard of that message, as are errors of making it.

    A class may make of clean text what is forbidden: by casting, by validators, in computed fields and serializers.
    Errors: `ViolationError` for an object that holds a match.
    """
    cleaner = RecordingCleaner(guard_of(message), "raise", where="object made of the answer", again=True)
    calls = CleanCalls(lambda error: cleaner.error(error, OutputParserException))
    return cleaner.value(calls.call(parse))
