"""Objects that an LLM makes: verified once they are made; and what is required of a local model for them.

LlamaIndex asks a model that calls tools for a call, which is required here, and any other for JSON as its whole reply,
which is enforced here by the object's schema.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from llama_index.core.base.llms.types import ChatResponse, CompletionResponse
from llama_index.core.bridge.pydantic import BaseModel, Field
from llama_index.core.instrumentation.events.llm import (
    LLMStructuredPredictEndEvent,
    LLMStructuredPredictStartEvent,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import LLM
from llama_index.core.output_parsers.utils import extract_json_str
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.program.utils import create_flexible_model, get_program_for_llm
from llama_index.core.types import Model, PydanticProgramMode
from llama_index.llms.nco_guard.asked import advised, strict_in
from llama_index_instrumentation import get_dispatcher
from pydantic_core import from_json

from nco_guard import Shape
from nco_guard.errors import ArgumentError, GenerationError, RedactionError
from nco_guard.values import Cleaner
from nco_guard.values.clean_calls import CleanCalls

if TYPE_CHECKING:
    from llama_index.core.prompts import PromptTemplate

__all__ = ["MakesObjects", "WritesObjects"]

_OF_CALLS = ("tool_required", "tool_choice", "allow_parallel_tool_calls")


def asked_of_object(
    llm: WritesObjects, output_cls: type[BaseModel], given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Options of the calls by which an object is made; where the whole reply is its JSON, `shape` is its schema.

    given: `llm_kwargs` of the caller, a `shape` of whose own counts; with `strict=False` the schema is asked for in the
    prompt and not enforced. Errors: `ShapeError`, with the place in the schema, for one that cannot be enforced.
    """
    options = dict(given or {})
    if _by_call(llm) or not _by_text(llm):
        return options
    if strict_in(options, llm.strict) is not False and options.get("shape") is None:
        with advised():
            options["shape"] = Shape.json(output_cls)
    return options


def _by_call(llm: LLM) -> bool:
    mode = llm.pydantic_program_mode
    default = mode == PydanticProgramMode.DEFAULT and llm.metadata.is_function_calling_model
    return default or mode == PydanticProgramMode.FUNCTION


def _by_text(llm: LLM) -> bool:
    return llm.pydantic_program_mode in (PydanticProgramMode.DEFAULT, PydanticProgramMode.LLM)


class _Growing:
    """An object as its JSON grows: of its class once that is valid, else with the fields that are there."""

    def __init__(self, output_cls: type[BaseModel]) -> None:
        self._whole, self._partial = output_cls, create_flexible_model(output_cls)
        self._text = ""

    def feed(self, reply: ChatResponse | CompletionResponse) -> list[BaseModel]:
        """What there is so far; nothing where it has not begun, or is as it was."""
        text = reply.text if isinstance(reply, CompletionResponse) else reply.message.content or ""
        if text == self._text:
            return []
        self._text = text
        try:
            found = from_json(text, allow_partial="trailing-strings")
        except ValueError:
            return []
        for kind in (self._whole, self._partial):
            try:
                return [kind.model_validate(found)]
            except ValueError:
                continue
        return []

    def finish(self) -> list[BaseModel]:
        """All of it. Errors: `ValueError`, as the program that does not stream raises."""
        return [_parsed(self._whole, self._text)]


class _Last:
    """Objects as a program gives them. Errors: `GenerationError` where the last one is not of the class."""

    def __init__(self, output_cls: type[BaseModel]) -> None:
        self._kind = output_cls
        self._found: Any = None

    def feed(self, found: Any) -> list[Any]:
        """One of them."""
        self._found = found
        return [found]

    def finish(self) -> list[Any]:
        """There are no more."""
        _check(self._found, self._kind)
        return []


class _Request(NamedTuple):
    """How an object is asked for.

    ask: what is called for it; aask: that for an event loop. read: what makes it of the reply, when called.
    """

    ask: Callable[[], Any]
    aask: Callable[[], Awaitable[Any]]
    read: Callable[[Any], Callable[[], Any]]


class _StreamRequest(NamedTuple):
    """How an object is asked for as it grows. reader: what shows it, of each part of the stream."""

    ask: Callable[[], Iterator[Any]]
    aask: Callable[[], Awaitable[AsyncIterator[Any]]]
    reader: _Growing | _Last


def _request(
    llm: FunctionCallingLLM,
    output_cls: type[BaseModel],
    prompt: PromptTemplate,
    options: Mapping[str, Any],
    args: Mapping[str, Any],
) -> _Request:
    if _by_call(llm):
        asked = _called_with(llm, output_cls, prompt, options, args)
        read = partial(_object_of_call, llm, output_cls)
        return _Request(partial(llm.chat_with_tools, **asked), partial(llm.achat_with_tools, **asked), read)
    if _by_text(llm):
        way, given = _text_asked(llm, output_cls, prompt, args)
        ask, aask = (llm.chat, llm.achat) if way == "chat" else (llm.complete, llm.acomplete)
        read = partial(_object_of_text, output_cls)
        return _Request(partial(ask, given, **options), partial(aask, given, **options), read)
    program = _program(llm, output_cls, prompt)
    kwargs = {"llm_kwargs": options, **args}
    return _Request(partial(program, **kwargs), partial(program.acall, **kwargs), lambda found: lambda: found)


def _stream_request(
    llm: LLM,
    output_cls: type[BaseModel],
    prompt: PromptTemplate,
    options: Mapping[str, Any],
    args: Mapping[str, Any],
) -> _StreamRequest:
    if _by_call(llm) or not _by_text(llm):
        program = _program(llm, output_cls, prompt)
        asked = {"llm_kwargs": options, **args}
        calls = partial(program.stream_call, **asked), partial(program.astream_call, **asked)
        return _StreamRequest(*calls, _Last(output_cls))
    way, given = _text_asked(llm, output_cls, prompt, args)
    names: Any = getattr(llm, f"stream_{way}"), getattr(llm, f"astream_{way}")
    ask, aask = (partial(each, given, **options) for each in names)
    return _StreamRequest(ask, aask, _Growing(output_cls))


def stream_objects(*asked: Any) -> Iterator[Any]:
    """An object as it grows, asked for by what `_stream_request` takes; the last one is of its class.

    Errors: `GenerationError` where there is none.
    """
    request = _stream_request(*asked)
    for part in request.ask():
        yield from request.reader.feed(part)
    yield from request.reader.finish()


async def astream_objects(*asked: Any) -> AsyncIterator[Any]:
    """`stream_objects` for an event loop."""
    request = _stream_request(*asked)
    async for part in await request.aask():
        for found in request.reader.feed(part):
            yield found
    for found in request.reader.finish():
        yield found


def _program(llm: LLM, output_cls: type[BaseModel], prompt: PromptTemplate) -> Any:
    """It requires the call of the tool, as LlamaIndex does only where it does not stream."""
    choice = {"tool_choice": "required"} if _by_call(llm) else {}
    return get_program_for_llm(
        output_cls, prompt, llm, pydantic_program_mode=llm.pydantic_program_mode, **choice
    )


def _called_with(
    llm: LLM,
    output_cls: type[BaseModel],
    prompt: PromptTemplate,
    options: Mapping[str, Any],
    args: Mapping[str, Any],
) -> dict[str, Any]:
    """What `chat_with_tools` is called with for an object; the call is required, whatever the options say."""
    rest = {name: given for name, given in options.items() if name not in _OF_CALLS}
    return {
        "tools": [get_function_tool(output_cls)],
        "chat_history": llm._extend_messages(prompt.format_messages(llm=llm, **args)),
        "allow_parallel_tool_calls": False,
        "tool_choice": None,
        "tool_required": True,
        **rest,
    }


def _object_of_call(
    llm: FunctionCallingLLM, output_cls: type[Model], reply: ChatResponse
) -> Callable[[], Model]:
    call, *_ = llm.get_tool_calls_from_response(reply, error_on_no_tool_call=True)
    return partial(output_cls.model_validate, call.tool_kwargs)


def _text_asked(
    llm: LLM, output_cls: type[BaseModel], prompt: PromptTemplate, args: Mapping[str, Any]
) -> tuple[str, Any]:
    """By which method an object is asked for as text, and with what: what to write stands in the prompt."""
    asked = _program(llm, output_cls, prompt).prompt
    if llm.metadata.is_chat_model:
        return "chat", llm._extend_messages(asked.format_messages(llm=llm, **args))
    return "complete", asked.format(llm=llm, **args)


def _object_of_text(output_cls: type[Model], reply: ChatResponse | CompletionResponse) -> Callable[[], Model]:
    text = reply.text if isinstance(reply, CompletionResponse) else reply.message.content or ""
    return partial(_parsed, output_cls, text)


def _parsed(output_cls: type[Model], text: str) -> Model:
    """The object in a text, as LlamaIndex's parser finds it; that one tells observers before anything is verified."""
    return output_cls.model_validate_json(extract_json_str(text))


def _report(kind: Any, **said: Any) -> None:
    get_dispatcher("llama_index.core.llms.llm").event(kind(**said))


def _told(found: Any) -> Any:
    """An object, of which observers are told."""
    _report(LLMStructuredPredictEndEvent, output=found)
    return found


class VerifiedObjects:
    """Verifies objects as they are once they are made, and errors of making them.

    Errors: `ViolationError`; `RedactionError` for an object of which no part could be replaced.
    """

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner
        self.calls = CleanCalls(lambda error: cleaner.error(error, GenerationError))

    def made(self, make: Callable[[], Any]) -> Any:
        """What a function makes, verified."""
        return self._shown(self.calls.call(make))

    def feed(self, found: Any) -> list[Any]:
        """One object of a stream, verified."""
        return [self._shown(found)]

    def finish(self) -> list[Any]:
        """The stream is over."""
        return []

    def _shown(self, found: Any) -> Any:
        shown = self._cleaner.value(found)
        if isinstance(found, BaseModel) and not isinstance(shown, BaseModel):
            raise RedactionError(self._cleaner.rules(found))
        return shown


def _checked(output_cls: Any) -> Any:
    """A class of which objects can be made. Errors: `ArgumentError`."""
    if isinstance(output_cls, type) and issubclass(output_cls, BaseModel):
        return output_cls
    given = output_cls.__name__ if isinstance(output_cls, type) else type(output_cls).__name__
    raise ArgumentError(f"output_cls: give a class of pydantic's BaseModel, not {given}")


def _check(found: Any, output_cls: type[BaseModel]) -> None:
    if not isinstance(found, output_cls):
        raise GenerationError(
            f"what the model wrote is no {output_cls.__name__}: say all that the class checks in its schema, which is "
            f"enforced unless strict=False"
        )


class MakesObjects(FunctionCallingLLM):
    """An LLM the objects of which are verified as they are once they are made, before anybody is told of them.

    A class may make of clean text what is forbidden: by casting, by validators, in computed fields and serializers.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # For type checkers, which would else make one of the fields.
        super().__init__(*args, **kwargs)

    def _asked_of_object(
        self, output_cls: type[BaseModel], given: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Options of the calls by which an object is made."""
        return dict(given or {})

    def _object_cleaner(self, options: Mapping[str, Any]) -> Cleaner:
        """What verifies the objects of a call with these options."""
        raise NotImplementedError

    def structured_predict(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """An object of a class, by a call of a tool or by a reply that is JSON (`pydantic_program_mode`), verified.

        Errors: those of the calls; `ViolationError` for an object that holds a match, where it is not redacted;
        `ValueError` for a reply of which no object can be made.
        """
        verified, request = self._requested(output_cls, prompt, llm_kwargs, prompt_args)
        found: Model = _told(verified.made(request.read(verified.calls.call(request.ask))))
        return found

    async def astructured_predict(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """`structured_predict` for an event loop, which goes on meanwhile."""
        verified, request = self._requested(output_cls, prompt, llm_kwargs, prompt_args)
        found: Model = _told(verified.made(request.read(await verified.calls.acall(request.aask))))
        return found

    def _begun(
        self, output_cls: Any, given: Mapping[str, Any] | None
    ) -> tuple[dict[str, Any], VerifiedObjects]:
        """Options of the calls by which an object is made, and what verifies it."""
        options = self._asked_of_object(_checked(output_cls), given)
        return options, VerifiedObjects(self._object_cleaner(options))

    def _requested(
        self,
        output_cls: type[BaseModel],
        prompt: PromptTemplate,
        given: Mapping[str, Any] | None,
        args: Mapping[str, Any],
    ) -> tuple[VerifiedObjects, _Request]:
        """How an object is asked for and verified, of which observers are told that it begins."""
        options, verified = self._begun(output_cls, given)
        _report(LLMStructuredPredictStartEvent, output_cls=output_cls, template=prompt, template_args=args)
        return verified, _request(self, output_cls, prompt, options, args)

    def _structured_stream_call(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Any:
        options, verified = self._begun(output_cls, llm_kwargs)
        return verified.calls.through(self._objects(output_cls, prompt, options, prompt_args), verified)

    async def _structured_astream_call(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Any:
        options, verified = self._begun(output_cls, llm_kwargs)
        objects = await self._aobjects(output_cls, prompt, options, prompt_args)
        return verified.calls.athrough(objects, verified)

    def _objects(
        self,
        output_cls: type[BaseModel],
        prompt: PromptTemplate,
        options: dict[str, Any],
        prompt_args: Mapping[str, Any],
    ) -> Iterator[Any]:
        """An object as it grows, not verified yet."""
        stream: Iterator[Any] = super()._structured_stream_call(output_cls, prompt, options, **prompt_args)
        return stream

    async def _aobjects(
        self,
        output_cls: type[BaseModel],
        prompt: PromptTemplate,
        options: dict[str, Any],
        prompt_args: Mapping[str, Any],
    ) -> AsyncIterator[Any]:
        """`_objects` for an event loop."""
        stream: AsyncIterator[Any] = await super()._structured_astream_call(
            output_cls, prompt, options, **prompt_args
        )
        return stream


class WritesObjects(MakesObjects):
    """An LLM with a local model: the schemas of objects are enforced, streamed or not.

    By `structured_predict` and its twins; `strict=False` among the `llm_kwargs` asks for a schema, and enforces none.
    Errors: `ShapeError` for a schema that cannot be enforced, with the place in it; `ContradictionError` where the
    policy forbids all that it asks for; `DeadEndError` where `max_new_tokens` has no room for it; `ViolationError` for
    an object that holds a match once it is made.
    """

    strict: bool | None = Field(
        default=None,
        description="Whether schemas are enforced: always (true), never (false), or unless the model may as well talk.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # For type checkers, which would else make one of the fields.
        super().__init__(*args, **kwargs)

    def _asked_of_object(
        self, output_cls: type[BaseModel], given: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        return asked_of_object(self, output_cls, given)

    def _objects(
        self,
        output_cls: type[BaseModel],
        prompt: PromptTemplate,
        options: dict[str, Any],
        prompt_args: Mapping[str, Any],
    ) -> Iterator[Any]:
        return stream_objects(self, output_cls, prompt, options, prompt_args)

    async def _aobjects(
        self,
        output_cls: type[BaseModel],
        prompt: PromptTemplate,
        options: dict[str, Any],
        prompt_args: Mapping[str, Any],
    ) -> AsyncIterator[Any]:
        return astream_objects(self, output_cls, prompt, options, prompt_args)
