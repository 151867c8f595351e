"""Objects by a local model: what LlamaIndex makes of it, and what is required of the model for it.

LlamaIndex asks a model that calls tools for a call, which is required here, and any other for JSON as its whole reply,
which is enforced here by the object's schema.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import ChatResponse, CompletionResponse
from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import LLM
from llama_index.core.output_parsers.pydantic import PydanticOutputParser
from llama_index.core.program.utils import create_flexible_model, get_program_for_llm
from llama_index.core.types import Model, PydanticProgramMode
from llama_index.llms.nco_guard.asked import advised, strict_in
from pydantic_core import from_json

from nco_guard import Shape
from nco_guard.errors import GenerationError

if TYPE_CHECKING:
    from llama_index.core.bridge.pydantic import BaseModel
    from llama_index.core.prompts import PromptTemplate

__all__ = ["WritesObjects"]


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

    def feed(self, reply: ChatResponse | CompletionResponse) -> BaseModel | None:
        """What there is so far; None where it has not begun, or is as it was."""
        text = reply.text if isinstance(reply, CompletionResponse) else reply.message.content or ""
        if text == self._text:
            return None
        self._text = text
        try:
            found = from_json(text, allow_partial="trailing-strings")
        except ValueError:
            return None
        for kind in (self._whole, self._partial):
            try:
                return kind.model_validate(found)
            except ValueError:
                continue
        return None

    def finish(self) -> BaseModel:
        """All of it. Errors: `ValueError`, as the program that does not stream raises."""
        whole: BaseModel = PydanticOutputParser(self._whole).parse(self._text)
        return whole


def stream_objects(
    llm: LLM,
    output_cls: type[BaseModel],
    prompt: PromptTemplate,
    options: dict[str, Any],
    prompt_args: Mapping[str, Any],
) -> Iterator[Any]:
    """An object as it grows; the last one is of its class. Errors: `GenerationError` where there is none."""
    if _by_call(llm) or not _by_text(llm):
        found = None
        for found in _program(llm, output_cls, prompt).stream_call(llm_kwargs=options, **prompt_args):
            yield found
        _check(found, output_cls)
        return
    asked = _program(llm, output_cls, prompt).prompt  # which says what to write
    growing = _Growing(output_cls)
    if llm.metadata.is_chat_model:
        replies: Any = llm.stream_chat(
            llm._extend_messages(asked.format_messages(llm=llm, **prompt_args)), **options
        )
    else:
        replies = llm.stream_complete(asked.format(llm=llm, **prompt_args), **options)
    for reply in replies:
        if (part := growing.feed(reply)) is not None:
            yield part
    yield growing.finish()


async def astream_objects(
    llm: LLM,
    output_cls: type[BaseModel],
    prompt: PromptTemplate,
    options: dict[str, Any],
    prompt_args: Mapping[str, Any],
) -> AsyncIterator[Any]:
    """`stream_objects` for an event loop."""
    if _by_call(llm) or not _by_text(llm):
        found = None
        program = _program(llm, output_cls, prompt)
        async for found in await program.astream_call(llm_kwargs=options, **prompt_args):
            yield found
        _check(found, output_cls)
        return
    asked = _program(llm, output_cls, prompt).prompt  # which says what to write
    growing = _Growing(output_cls)
    if llm.metadata.is_chat_model:
        replies: Any = await llm.astream_chat(
            llm._extend_messages(asked.format_messages(llm=llm, **prompt_args)), **options
        )
    else:
        replies = await llm.astream_complete(asked.format(llm=llm, **prompt_args), **options)
    async for reply in replies:
        if (part := growing.feed(reply)) is not None:
            yield part
    yield growing.finish()


def _program(llm: LLM, output_cls: type[BaseModel], prompt: PromptTemplate) -> Any:
    """It requires the call of the tool, as LlamaIndex does only where it does not stream."""
    choice = {"tool_choice": "required"} if _by_call(llm) else {}
    return get_program_for_llm(
        output_cls, prompt, llm, pydantic_program_mode=llm.pydantic_program_mode, **choice
    )


def _check(found: Any, output_cls: type[BaseModel]) -> None:
    if not isinstance(found, output_cls):
        raise GenerationError(
            f"what the model wrote is no {output_cls.__name__}: say all that the class checks in its schema, which is "
            f"enforced unless strict=False"
        )


class WritesObjects(FunctionCallingLLM):
    """An LLM with a local model: the schemas of objects are enforced, streamed or not."""

    strict: bool | None = Field(
        default=None,
        description="Whether schemas are enforced: always (true), never (false), or unless the model may as well talk.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # For type checkers, which would else make one of the fields.
        super().__init__(*args, **kwargs)

    def structured_predict(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """An object of a class, by a call of a tool or by a reply that is JSON (`pydantic_program_mode`).

        Its schema is enforced; `strict=False` among the `llm_kwargs` asks for it, and enforces nothing.

        Errors: `ShapeError` for a schema that cannot be enforced, with the place in it; `ContradictionError` where the
        policy forbids all that it asks for; `DeadEndError` where `max_new_tokens` has no room for it.
        """
        options = asked_of_object(self, output_cls, llm_kwargs)
        found: Model = super().structured_predict(output_cls, prompt, options, **prompt_args)
        return found

    async def astructured_predict(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """`structured_predict` for an event loop, which goes on meanwhile."""
        options = asked_of_object(self, output_cls, llm_kwargs)
        found: Model = await super().astructured_predict(output_cls, prompt, options, **prompt_args)
        return found

    def _structured_stream_call(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Any:
        options = asked_of_object(self, output_cls, llm_kwargs)
        return stream_objects(self, output_cls, prompt, options, prompt_args)

    async def _structured_astream_call(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Any:
        options = asked_of_object(self, output_cls, llm_kwargs)
        return astream_objects(self, output_cls, prompt, options, prompt_args)
