"""Parsers of objects that are never silent: where LangChain's own give None, or a stream without parts, these raise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
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

__all__ = ["call_parser", "object_parser"]


class _ToTheEnd(BaseCumulativeTransformOutputParser[Any]):
    """Mix-in, comes first among the bases: a stream of which nothing could be parsed is parsed once more as a whole."""

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Any]:
        whole, found = _Whole(), False
        for parsed in super()._transform(map(whole.taking, input)):
            found = True
            yield parsed
        if not found and whole.message is not None:
            self.parse_result([whole.generation()])

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Any]:
        whole, found = _Whole(), False

        async def taken() -> AsyncIterator[str | BaseMessage]:
            async for chunk in input:
                yield whole.taking(chunk)

        async for parsed in super()._atransform(taken()):
            found = True
            yield parsed
        if not found and whole.message is not None:
            self.parse_result([whole.generation()])


class _Whole:
    """What came of a stream, joined."""

    def __init__(self) -> None:
        self.message: Any = None

    def taking(self, chunk: Any) -> Any:
        self.message = chunk if self.message is None else self.message + chunk
        return chunk

    def generation(self) -> Generation:
        if isinstance(self.message, BaseMessageChunk):
            return ChatGenerationChunk(message=self.message)
        if isinstance(self.message, BaseMessage):
            return ChatGeneration(message=self.message)
        return Generation(text=self.message)


class _NeedsCall(_ToTheEnd):
    """An answer without a call that can be read is an error."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        found = super().parse_result(result, partial=partial)
        if found is None and not partial:
            raise OutputParserException("the answer holds no call that can be read, so there is no object")
        return found


class _Objects(_ToTheEnd, PydanticOutputParser[Any]):
    """Objects of a class, from text."""


class _Json(_ToTheEnd, JsonOutputParser):
    """JSON, from text."""


class _CalledObjects(_NeedsCall, PydanticToolsParser):
    """Objects of a class, from the arguments of a call."""


class _CalledJson(_NeedsCall, JsonOutputKeyToolsParser):
    """The arguments of a call."""


def object_parser(schema: Any) -> BaseCumulativeTransformOutputParser[Any]:
    """What makes objects of a text that is JSON: of a pydantic class its instances, of other schemas plain values."""
    if isinstance(schema, type) and is_basemodel_subclass(schema):
        return _Objects(pydantic_object=schema)
    return _Json()


def call_parser(schema: Any, name: str) -> BaseCumulativeTransformOutputParser[Any]:
    """What makes objects of the arguments of the first call; name: the tool's."""
    if isinstance(schema, type) and is_basemodel_subclass(schema):
        return _CalledObjects(tools=[schema], first_tool_only=True)
    return _CalledJson(key_name=name, first_tool_only=True)
