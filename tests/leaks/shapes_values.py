"""Shapes of plain Python values: what a tool, a retriever or a step of a chain may hand on."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import importlib.util
import io
import pathlib
import types
import typing
import uuid
from typing import Any

import attrs
import numpy as np
import pydantic
import pydantic.dataclasses

from tests.leaks.canaries import Secret
from tests.leaks.shapes import Shape, shapes

__all__ = ["VALUES"]

HAS_PANDAS = importlib.util.find_spec("pandas") is not None


class Text(str):
    """A string of a class of its own."""


class Whole(int):
    """A number of a class of its own."""


@dataclasses.dataclass
class Person:
    mail: Any
    card: Any = 0


@dataclasses.dataclass(frozen=True)
class FrozenPerson:
    mail: Any


@dataclasses.dataclass(slots=True)
class SlottedPerson:
    mail: Any


@dataclasses.dataclass
class Hidden:
    shown: str
    mail: Any = dataclasses.field(repr=False, compare=False)


class Pair(typing.NamedTuple):
    first: Any
    second: Any


class Model(pydantic.BaseModel):
    mail: str
    card: int = 0


class StrictModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, strict=True)
    card: int


class DatedModel(pydantic.BaseModel):
    born: datetime.date
    key: uuid.UUID


class OpenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


class PrivateModel(pydantic.BaseModel):
    shown: str = "fine"
    _mail: Any = pydantic.PrivateAttr(default=None)


class ComputedModel(pydantic.BaseModel):
    local: str
    host: str

    @pydantic.computed_field
    def mail(self) -> str:
        return self.local + self.host


class AliasModel(pydantic.BaseModel):
    mail: str = pydantic.Field(alias="e-mail")


class Listed(pydantic.RootModel[list[str]]):
    pass


@pydantic.dataclasses.dataclass
class CheckedPerson:
    mail: str


@attrs.define
class AttrsPerson:
    mail: Any


class Plain:
    def __init__(self, mail: Any) -> None:
        self.mail = mail


class Slotted:
    __slots__ = ("mail",)

    def __init__(self, mail: Any) -> None:
        self.mail = mail


class Printed:
    """Shows what it holds when it is printed, and has no attributes."""

    __slots__ = ("_read",)

    def __init__(self, text: str) -> None:
        self._read = lambda: text

    def __str__(self) -> str:
        return self._read()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._read())})"


class Represented(Printed):
    def __str__(self) -> str:
        return "a thing"

    def __repr__(self) -> str:
        return f"<{self._read()}>"


class Broken:
    """Cannot even be printed."""

    def __init__(self, mail: str) -> None:
        self.mail = mail

    def __repr__(self) -> str:
        raise RuntimeError(self.mail)


class Mapped(collections.abc.Mapping[str, Any]):
    def __init__(self, inner: dict[str, Any]) -> None:
        self._inner = inner

    def __getitem__(self, key: str) -> Any:
        return self._inner[key]

    def __iter__(self) -> Any:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)


@functools.cache
def an_enum(secret: Secret, kind: Any = enum.Enum) -> Any:
    return kind("Contact", {"MAIL": secret.text}).MAIL  # type: ignore[misc]


@functools.cache
def a_card(secret: Secret) -> Any:
    return enum.IntEnum("Card", {"NUMBER": secret.number}).NUMBER  # type: ignore[attr-defined]


@dataclasses.dataclass
class Formatted:
    first: str
    last: str

    def __format__(self, spec: str) -> str:
        return self.first + self.last


def _noted(value: Any, name: str, text: str) -> Any:
    setattr(value, name, text)
    return value


def circular(secret: Secret) -> Any:
    inner: list[Any] = [secret.text]
    inner.append(inner)
    return inner


def deep(secret: Secret) -> Any:
    value: Any = secret.text
    for _ in range(30):
        value = {"in": [value]}
    return value


def shared(secret: Secret) -> Any:
    one = {"mail": secret.text}
    return [one, one, {"again": one}]


VALUES: list[Shape] = shapes(
    "value",
    {
        "text": lambda s: f"Write to {s.text} today.",
        "text alone": lambda s: s.text,
        "text of its own class": lambda s: Text(s.text),
        "numpy text": lambda s: np.str_(s.text),
        "UserString": lambda s: collections.UserString(s.text),
        "number": lambda s: s.number,
        "negative number": lambda s: -s.number,
        "number of its own class": lambda s: Whole(s.number),
        "float": lambda s: float(s.number),
        "complex": lambda s: complex(s.number, 1),
        "numpy int": lambda s: np.int64(s.number),
        "numpy float": lambda s: np.float64(s.number),
        "Decimal": lambda s: decimal.Decimal(s.number),
        "Fraction": lambda s: fractions.Fraction(s.number, 1),
        "bytes": lambda s: s.text.encode(),
        "bytearray": lambda s: bytearray(s.text.encode()),
        "memoryview": lambda s: memoryview(s.text.encode()),
        "bytes in UTF-16": lambda s: {"data": s.text.encode("utf-16")},
        "bytes in UTF-16 without a mark": lambda s: {"data": s.text.encode("utf-16-le")},
        "bytes in UTF-32": lambda s: {"data": s.text.encode("utf-32")},
        "date": lambda s: s.date,
        "datetime": lambda s: datetime.datetime.combine(s.date, datetime.time(1, 2)),
        "numpy date": lambda s: np.datetime64(s.date),
        "UUID": lambda s: s.uuid,
        "enum": an_enum,
        "StrEnum": lambda s: an_enum(s, enum.StrEnum),
        "IntEnum": a_card,
        "path": lambda s: pathlib.PurePosixPath("/home") / s.text,
        "exception": lambda s: ValueError(f"no {s.text}"),
        "dict value": lambda s: {"mail": s.text, "n": 1},
        "dict key": lambda s: {s.text: 1},
        "dict number key": lambda s: {s.number: "card"},
        "dict date key": lambda s: {s.date: 1},
        "dict tuple key": lambda s: {(s.text, 1): 1},
        "two keys that become equal": lambda s: {s.text: 1, s.text + " ": 2, "a" + s.text: 3},
        "number in dict": lambda s: {"card": s.number},
        "float in dict": lambda s: {"card": float(s.number)},
        "list": lambda s: ["a", s.text, 3],
        "list of numbers": lambda s: [1, s.number],
        "tuple": lambda s: (1, s.text),
        "set": lambda s: {s.text, "b"},
        "frozenset of numbers": lambda s: frozenset({s.number}),
        "deque": lambda s: collections.deque([s.text], maxlen=3),
        "defaultdict": lambda s: collections.defaultdict(list, {"mail": [s.text]}),
        "OrderedDict": lambda s: collections.OrderedDict(mail=s.text),
        "Counter": lambda s: collections.Counter({s.text: 2}),
        "ChainMap": lambda s: collections.ChainMap({"a": 1}, {"mail": s.text}),
        "UserDict": lambda s: collections.UserDict({"mail": s.text}),
        "UserList": lambda s: collections.UserList([s.text]),
        "mapping proxy": lambda s: types.MappingProxyType({"mail": s.text}),
        "mapping of its own class": lambda s: Mapped({"mail": s.text}),
        "dict values": lambda s: {"mail": s.text}.values(),
        "dict keys": lambda s: {s.text: 1}.keys(),
        "dataclass": lambda s: Person(s.text, s.number),
        "dataclass with a number": lambda s: Person("fine", s.number),
        "frozen dataclass": lambda s: FrozenPerson(s.text),
        "dataclass with slots": lambda s: SlottedPerson(s.text),
        "dataclass that does not print it": lambda s: Hidden("fine", s.text),
        "dataclass in a list": lambda s: [Person([s.text])],
        "named tuple": lambda s: Pair(1, s.text),
        "named tuple in a dict": lambda s: {"pair": Pair(s.number, 2)},
        "SimpleNamespace": lambda s: types.SimpleNamespace(mail=s.text),
        "pydantic model": lambda s: Model(mail=s.text),
        "pydantic model's number": lambda s: Model(mail="fine", card=s.number),
        "strict pydantic model": lambda s: StrictModel(card=s.number),
        "pydantic dates": lambda s: DatedModel(born=s.date, key=s.uuid),
        "pydantic extra": lambda s: OpenModel(mail=s.text),
        "pydantic extra key": lambda s: OpenModel(**{s.text: 1}),
        "pydantic private": lambda s: _private(s),
        "pydantic computed": lambda s: ComputedModel(local=s.pieces(2)[0], host=s.pieces(2)[1]),
        "pydantic alias": lambda s: AliasModel(**{"e-mail": s.text}),
        "pydantic root": lambda s: Listed([s.text]),
        "pydantic dataclass": lambda s: CheckedPerson(s.text),
        "pydantic in a list": lambda s: [Model(mail=s.text)],
        "attrs class": lambda s: AttrsPerson(s.text),
        "plain object": lambda s: Plain(s.text),
        "plain object's number": lambda s: Plain(s.number),
        "object with slots": lambda s: Slotted(s.text),
        "object that prints it": lambda s: Printed(s.text),
        "object that represents itself by it": lambda s: Represented(s.text),
        "object in a list": lambda s: [Plain([s.text])],
        "array of text": lambda s: np.array(["a", s.text]),
        "array of objects": lambda s: np.array([{"mail": s.text}, 1], dtype=object),
        "array of numbers": lambda s: np.array([1, s.number]),
        "array of floats": lambda s: np.array([[1.0, float(s.number)]]),
        "array of dates": lambda s: np.array([np.datetime64(s.date)]),
        "array with fields": lambda s: np.array([(s.text, 1)], dtype=[("mail", "U64"), ("n", "i4")]),
        "array without dimensions": lambda s: np.array(s.number),
        "array.array": lambda s: array.array("q", [1, s.number]),
        "name of a file": lambda s: _noted(io.BytesIO(b"fine"), "name", s.text),
        "attribute of a mapping": lambda s: _noted(Mapped({"a": 1}), "note", s.text),
        "secret": lambda s: pydantic.SecretStr(s.text),
        "argument of a partial": lambda s: functools.partial(str, s.text),
        "zone's name": lambda s: datetime.datetime(
            2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(0), s.text)
        ),
        "object that formats itself by it": lambda s: Formatted(*s.pieces(2)[:2]),
        "StringIO": lambda s: {"file": io.StringIO(s.text)},
        "circular": circular,
        "deep": deep,
        "shared": shared,
        "MCP result": lambda s: [{"type": "text", "text": piece} for piece in s.pieces()],
        "MCP result with ids": lambda s: [
            {"type": "text", "text": piece, "id": f"b{i}"} for i, piece in enumerate(s.pieces())
        ],
        "text blocks beside an image": lambda s: [
            {"type": "text", "text": f"Write to {s.text}"},
            {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"},
        ],
        "resource block": lambda s: [{"type": "resource", "resource": {"text": s.text, "uri": "file:///x"}}],
        "JSON text": lambda s: f'{{"mail": "{s.text}"}}',
        "lines of JSON": lambda s: f'{{"n": 1}}\n{{"mail": "{s.text}"}}\n{{"n": 2}}',
        "torn text with a newline": lambda s: f"a\n{s.text}\nb",
    },
)


def _tokens(secret: Secret) -> list[dict[str, Any]]:
    others = [{"token": "x", "logprob": -3.0}]
    return [{"token": piece, "logprob": -0.1, "top_logprobs": others} for piece in secret.pieces()]


def _private(secret: Secret) -> PrivateModel:
    model = PrivateModel()
    model._mail = secret.text
    return model


#: Which cannot be compared with their twin, or made anew.
_ONCE = {
    "generator": lambda s: (part for part in [s.text]),
    "iterator": lambda s: iter([s.text]),
    "map": lambda s: map(str, [s.text]),
}
VALUES += shapes("value", _ONCE, same=False, opaque=True)
#: Left out whatever the policy is, since they repeat the text in pieces.
VALUES += shapes(
    "value",
    {
        "log probabilities of a provider's answer": lambda s: {
            "choices": [{"text": "fine", "logprobs": {"content": _tokens(s)}}]
        },
        "log probabilities by token": lambda s: [
            {
                "text": "fine",
                "logprobs": {"top_logprobs": [{t["token"]: -0.1, "x": -3.0} for t in _tokens(s)]},
            }
        ],
    },
    same=False,
    opaque=True,
)
VALUES += shapes("value", {"object that cannot be printed": lambda s: Broken(s.text)}, same=False)

if HAS_PANDAS:
    import pandas as pd

    _TABLES = shapes(
        "value",
        {
            "DataFrame": lambda s: pd.DataFrame({"mail": [s.text, "b"], "n": [1, 2]}),
            "DataFrame of numbers": lambda s: pd.DataFrame({"card": [1, s.number]}),
            "DataFrame's column": lambda s: pd.DataFrame({s.text: [1]}),
            "DataFrame's index": lambda s: pd.DataFrame({"n": [1]}, index=[s.text]),
            "DataFrame of dates": lambda s: pd.DataFrame({"born": [pd.Timestamp(s.date)]}),
            "DataFrame of categories": lambda s: pd.DataFrame({"mail": pd.Categorical([s.text])}),
            "DataFrame's attrs": lambda s: _with_attrs(s),
            "Series": lambda s: pd.Series([s.text], name="mail"),
            "Series' name": lambda s: pd.Series([1], name=s.text),
            "Index": lambda s: pd.Index([s.text]),
            "Timestamp": lambda s: pd.Timestamp(s.date),
        },
    )

    VALUES += [dataclasses.replace(shape, optional=True) for shape in _TABLES]

    def _with_attrs(secret: Secret) -> Any:
        frame = pd.DataFrame({"n": [1]})
        frame.attrs["source"] = secret.text
        return frame
