"""What an answer is to look like: `response_format` of a call, and schemas in the forms that LangChain takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from importlib.util import find_spec
from typing import Any

from langchain_core.utils.function_calling import convert_to_json_schema
from pydantic import BaseModel, TypeAdapter
from pydantic.v1 import BaseModel as BaseModelV1
from typing_extensions import is_typeddict

from nco_guard import arguments
from nco_guard.errors import ArgumentError, ShapeError, UnsupportedError
from nco_guard.shapes import Shape
from nco_guard.shapes.states import shapes_refusal
from nco_guard.tokens import Vocabulary

__all__ = [
    "ANY_OBJECT",
    "checked_strict",
    "enforces_shapes",
    "json_response_format",
    "json_schema_of",
    "response_shape",
    "unless_strict",
]

ANY_OBJECT: Mapping[str, Any] = {"type": "json_object"}
"""The `response_format` for any JSON object."""

_KINDS = "give a pydantic class, a TypedDict, a dataclass or a JSON Schema as a mapping"


def json_schema_of(schema: Any) -> dict[str, Any]:
    """The JSON Schema of what is given as `schema`: a class, or a mapping (also as OpenAI's APIs have it).

    Errors: `ArgumentError` for anything else, `UnsupportedError` for a class that no schema can be made of.
    """
    if isinstance(schema, Mapping):
        return _within(schema)
    try:
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            return schema.model_json_schema()
        if isinstance(schema, type) and issubclass(schema, BaseModelV1):
            return schema.schema()
        if is_typeddict(schema):
            return convert_to_json_schema(schema)
        if isinstance(schema, type) and is_dataclass(schema):
            return TypeAdapter(schema).json_schema()
    except Exception as error:
        raise UnsupportedError(
            f"schema: no JSON Schema can be made of {schema.__name__} ({type(error).__name__})"
        ) from error
    raise ArgumentError(f"schema: {_named(schema)} is none; {_KINDS}")


def _within(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without the name that OpenAI's APIs put around it."""
    for name in ("function", "json_schema"):
        if schema.get("type") == name and isinstance(schema.get(name), Mapping):
            return _within(schema[name])
    for name in ("parameters", "schema"):
        if isinstance(schema.get("name"), str) and isinstance(schema.get(name), Mapping):
            return dict(schema[name])
    return dict(schema)


def json_response_format(schema: Any, strict: bool | None) -> dict[str, Any]:
    """The `response_format` by which a call asks for JSON of a schema, as OpenAI's APIs have it."""
    made = json_schema_of(schema)
    named = {"name": str(made.get("title") or "answer"), "schema": made}
    return {"type": "json_schema", "json_schema": named if strict is None else {**named, "strict": strict}}


def response_shape(given: Any) -> Shape | None:
    """The shape that a `response_format` asks for; None for text.

    `{"type": "json_schema", "json_schema": {"schema": ...}}` is JSON of that schema, or any JSON object where `strict`
    is False beside the schema; `{"type": "json_object"}` any object; None and `{"type": "text"}` are text.

    Errors: `ShapeError` for a schema that cannot be enforced exactly; `UnsupportedError` for anything else.
    """
    kind = given.get("type") if isinstance(given, Mapping) else None
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return Shape.json({"type": "object"})
    named = given.get("json_schema") if kind == "json_schema" else None
    if not isinstance(named, Mapping) or not isinstance(named.get("schema"), Mapping | bool):
        raise UnsupportedError(
            "response_format: give {'type': 'json_schema', 'json_schema': {'name': ..., 'schema': ...}}, 'json_object' "
            "or 'text' as its type, or use with_structured_output"
        )
    if checked_strict(named.get("strict")) is False:
        return Shape.json({"type": "object"})
    with unless_strict("any JSON object may be written, and is checked by whoever parses it"):
        return Shape.json(named["schema"])


def enforces_shapes(vocabulary: Vocabulary) -> bool:
    """Whether shapes can be enforced: the extra is installed, and the tokenizer is none of those that are refused."""
    return find_spec("llguidance") is not None and shapes_refusal(vocabulary) is None


def checked_strict(strict: Any) -> bool | None:
    """`strict` as it was given. Errors: `ArgumentError`."""
    return None if strict is None else arguments.truth("strict", strict)


@contextmanager
def unless_strict(otherwise: str) -> Iterator[None]:
    """Errors of schemas that cannot be enforced say what `strict=False` would do."""
    try:
        yield
    except ShapeError as error:
        if type(error) is not ShapeError:
            raise
        raise ShapeError(
            f"{error.message}; say it by what can be enforced, or pass strict=False: then {otherwise}",
            place=error.place,
        ) from None


def _named(schema: Any) -> str:
    return f"the class {schema.__name__}" if isinstance(schema, type) else type(schema).__name__
