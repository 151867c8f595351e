"""Classes that make of clean text what is forbidden: by casting, by validators, by what they compute and print."""

from __future__ import annotations

import datetime
import enum
from decimal import Decimal
from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, Field, PlainSerializer, computed_field, field_serializer, model_validator

from tests.leaks.canaries import Secret
from tests.leaks.shapes import Shape, shapes

__all__ = ["CASTS", "SAID"]

SAID = {"word": "fine", "number": 7}
"""What a model writes of any of them."""


def _made(name: str, **fields: Any) -> Any:
    """A class of a word and a number, with one more field."""
    return pydantic.create_model(name, word=(str, ...), number=(int, ...), **fields)


def _validated(secret: Secret) -> Any:
    return pydantic.create_model(
        "Found", word=(Annotated[str, AfterValidator(lambda _: secret.text)], ...), number=(int, ...)
    )


def _date(secret: Secret) -> Any:
    moment = datetime.datetime.combine(secret.date, datetime.time())
    moved = AfterValidator(lambda _: moment)
    return pydantic.create_model("Found", word=(str, ...), number=(Annotated[int, moved], ...))


def _cast(secret: Secret) -> Any:
    """Seven, counted from another day."""
    offset = (secret.date - datetime.date(1970, 1, 1)).days - 7
    day = pydantic.BeforeValidator(lambda days: datetime.date(1970, 1, 1) + datetime.timedelta(days + offset))
    date = Annotated[datetime.date, day, pydantic.WithJsonSchema({"type": "integer"})]
    return pydantic.create_model("Found", word=(str, ...), number=(date, ...))


def _decimal(secret: Secret) -> Any:
    grown = AfterValidator(lambda number: Decimal(secret.number - 7 + number))
    return pydantic.create_model("Found", word=(str, ...), number=(Annotated[int, grown], ...))


def _float(secret: Secret) -> Any:
    grown = AfterValidator(lambda number: float(secret.number - 7 + number))
    return pydantic.create_model("Found", word=(str, ...), number=(Annotated[int, grown], ...))


def _enum_value(secret: Secret) -> Any:
    kind = enum.Enum("Kind", {"FINE": secret.text})
    chosen = AfterValidator(lambda _: kind.FINE)
    return pydantic.create_model("Found", word=(Annotated[str, chosen], ...), number=(int, ...))


def _enum_name(secret: Secret) -> Any:
    kind: Any = enum.Enum("Kind", {secret.text: "fine"})
    return pydantic.create_model("Found", word=(kind, ...), number=(int, ...))


def _default(secret: Secret) -> Any:
    return _made(
        "Found", more=(str | None, Field(default=secret.text, exclude=False, json_schema_extra=_untold))
    )


def _untold(schema: dict[str, Any]) -> None:
    """What a schema says of a default, nobody writes; a model is told of it all the same."""
    schema.pop("default", None)


def _hidden(secret: Secret) -> Any:
    return _made(
        "Found",
        more=(
            pydantic.SecretStr | None,
            Field(default=pydantic.SecretStr(secret.text), json_schema_extra=_untold),
        ),
    )


def _computed(secret: Secret) -> Any:
    class Found(pydantic.BaseModel):
        word: str
        number: int

        @computed_field  # type: ignore[prop-decorator]
        @property
        def mail(self) -> str:
            return secret.text

    return Found


def _computed_in_silence(secret: Secret) -> Any:
    class Found(pydantic.BaseModel):
        word: str
        number: int

        @computed_field(repr=False)  # type: ignore[prop-decorator]
        @property
        def day(self) -> datetime.date:
            return secret.date

    return Found


def _serialized(secret: Secret) -> Any:
    class Found(pydantic.BaseModel):
        word: str
        number: int

        @field_serializer("word")
        def _written(self, word: str) -> str:
            return f"{word}: {secret.text}"

    return Found


def _annotated(secret: Secret) -> Any:
    written = PlainSerializer(lambda _: secret.text)
    return pydantic.create_model("Found", word=(Annotated[str, written], ...), number=(int, ...))


def _alias(secret: Secret) -> Any:
    return pydantic.create_model(
        "Found", word=(str, Field(serialization_alias=secret.text)), number=(int, ...)
    )


def _within(secret: Secret) -> Any:
    inner = _computed_in_silence(secret)

    class Found(pydantic.BaseModel):
        word: str
        number: int
        more: list[Any] = Field(default_factory=list, json_schema_extra=_untold)

        @model_validator(mode="after")
        def _filled(self) -> Any:
            self.more.append(inner(word=self.word, number=self.number))
            return self

    return Found


def _private(secret: Secret) -> Any:
    class Found(pydantic.BaseModel):
        word: str
        number: int
        _kept: str = pydantic.PrivateAttr(default=secret.text)

    return Found


def _refused(secret: Secret) -> Any:
    """The error quotes what was cast."""

    def refuse(word: str) -> str:
        raise ValueError(f"{word} is {secret.text}")

    return pydantic.create_model(
        "Found", word=(Annotated[str, AfterValidator(refuse)], ...), number=(int, ...)
    )


#: What comes back for a clean twin is of another class each time.
CASTS: list[Shape] = shapes(
    "cast",
    {
        "validator that changes the text": _validated,
        "moment": _date,
        "number cast to a date": _cast,
        "decimal": _decimal,
        "float": _float,
        "value of an enum": _enum_value,
        "name of an enum's member": _enum_name,
        "default that nobody wrote": _default,
        "secret": _hidden,
        "computed field": _computed,
        "computed field that is not printed": _computed_in_silence,
        "serializer of a field": _serialized,
        "serializer of a type": _annotated,
        "alias": _alias,
        "object within": _within,
        "private attribute": _private,
        "error of a validator": _refused,
    },
    same=False,
)
