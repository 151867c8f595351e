"""`Cleaner` on what objects print, whichever of their class's methods prints it."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import pathlib
import reprlib
import sys
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, RootModel

from nco_guard import Policy, RegexRule
from nco_guard.errors import UnsupportedError, ViolationError
from nco_guard.values import Cleaner, Role, register
from nco_guard.values.shown import own_words
from tests.values.examples import OUT, Data, Named, Plain, cleaner

FIRST, LAST = "can", "ary"


def of_model(way: str) -> Any:
    class Made(BaseModel):
        first: str
        last: str

    if way == "__repr_args__":
        setattr(Made, way, lambda self: [("whole", self.first + self.last)])
    else:
        setattr(Made, way, lambda self, *more: self.first + self.last)
    return Made


@dataclasses.dataclass
class Spoken:
    first: str
    last: str

    def __format__(self, spec: str) -> str:
        return self.first + self.last


@dataclasses.dataclass(repr=False)
class Repeated:
    first: str
    last: str

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        return self.first + self.last


def said(base: type, way: str, *given: Any) -> Callable[[str, str], Any]:
    """Of a class derived from another one, whose method prints what was told last."""

    def build(first: str, last: str) -> Any:
        kind = type("Saying", (base,), {way: lambda self, *spec: first + last})
        return kind(*given)

    return build


def color(way: str) -> Callable[[str, str], Any]:
    def build(first: str, last: str) -> Any:
        class Color(enum.Enum):
            RED = 1

        setattr(Color, way, lambda self, *spec: first + last)
        return Color.RED

    return build


class Lines(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return {"a": 1}[key]

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


class Ticket:
    def __init__(self, *parts: str) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return "".join(self.parts)


class Printed(Ticket):
    def __str__(self) -> str:
        return "".join(self.parts)


register(Ticket, {"parts": Role.KEEP})


def _factory(text: str) -> Any:
    return type("Factory", (), {"__repr__": lambda self: text, "__call__": lambda self: 1})()


WAYS = ("__str__", "__repr__", "__format__")
PRINTING: dict[str, Callable[[str, str], Any]] = {
    **{
        f"model's {way}": lambda a, b, way=way: of_model(way)(first=a, last=b)
        for way in (*WAYS, "__repr_str__", "__repr_name__", "__repr_args__")
    },
    "data class's format": Spoken,
    "data class's repr": Repeated,
    **{f"enum's {way}": color(way) for way in WAYS},
    **{
        f"{base.__name__}'s {way}": said(base, way, *given)
        for base, *given in (
            (decimal.Decimal, "1"),
            (datetime.date, 2026, 1, 1),
            (datetime.datetime, 2026, 1, 1),
            (pathlib.PurePosixPath, "a"),
            (uuid.UUID, "0" * 32),
            (collections.UserDict, {"a": 1}),
            (collections.OrderedDict, {"a": 1}),
            (Lines,),
            (Named, 1, 2),
            (Data, "fine"),
            (ValueError, "fine"),
        )
        for way in WAYS
    },
    "factory": lambda a, b: collections.defaultdict(_factory(a + b)),
    "type derived from a registered one": Printed,
}  # fmt: skip


@pytest.mark.parametrize("build", PRINTING.values(), ids=list(PRINTING))
def test_what_objects_print(build: Callable[[str, str], Any]) -> None:
    clean, value = build("fi", "ne"), build(FIRST, LAST)
    assert cleaner().value(clean) is clean
    assert cleaner(action="raise").value([clean])[0] is clean
    with pytest.raises(ViolationError):
        cleaner(action="raise").value(value)
    found = cleaner().value({"k": [value]})["k"][0]
    for show in (str, repr, format):
        assert "canary" not in show(found)
    error = ValueError(value)
    assert "canary" not in repr(cleaner().error(error, RuntimeError))


def test_escapes_in_what_objects_print() -> None:
    escaped = said(object, "__str__")(r"c\u0061n", "ary")
    assert cleaner().value(escaped) == OUT


def test_a_registered_type_is_vouched_for() -> None:
    ticket = Ticket(FIRST, LAST)
    assert cleaner().value(ticket) is ticket


@pytest.mark.parametrize("value", [
    Data("x"), Named(1, 2), typing.NamedTuple("Two", [("a", int)])(1), Plain("x"), enum.Enum("E", "A").A,  # type: ignore[attr-defined, misc]
    RootModel[int](1), {"a": 1}, collections.Counter("a"), np.zeros(3), np.float64(1), decimal.Decimal(1),
    datetime.datetime(2026, 1, 1), uuid.UUID(int=1), pathlib.PurePosixPath("a"), ValueError,
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_what_shows_its_parts_alone_is_not_printed(value: Any) -> None:
    from nco_guard.values.arrays import class_read_here

    assert own_words(value, class_read_here(type(value))) == () or isinstance(value, type)


def test_only_an_objects_own_address_is_nobodys_number() -> None:
    digits = Cleaner(Policy(name="hex", rules=(RegexRule(id="hex", regex="[0-9a-fA-F]{9}"),)))

    class Wallet:
        def __init__(self, *parts: str) -> None:
            self.parts = parts

        def __repr__(self) -> str:
            return f"<Wallet at 0x{''.join(self.parts)}>"

    assert digits.value(Wallet("12345", "6789a")) == OUT
    for value in (Plain("x"), Plain("x").__init__, print, Plain, lambda: 1, object()):  # type: ignore[misc]
        assert digits.value(value) is value


def test_what_cannot_be_printed_here_is_not_passed_on() -> None:
    class Deep:
        def __init__(self, depth: int) -> None:
            self.depth = depth

        def __str__(self) -> str:
            return self._down(self.depth)

        def _down(self, depth: int) -> str:
            return self._down(depth - 1) if depth else "canary"

    deep = Deep(sys.getrecursionlimit())
    assert cleaner().value(deep) == "[Deep withheld]"
    with pytest.raises(UnsupportedError):
        cleaner(action="raise").value(deep)
