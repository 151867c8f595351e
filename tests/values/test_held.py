"""`Cleaner` on what objects hold where it is easily forgotten, and on objects that keep what nobody can read."""

from __future__ import annotations

import collections
import contextvars
import datetime
import decimal
import enum
import fractions
import functools
import gc
import io
import pathlib
import random
import re
import types
import uuid
import weakref
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from pydantic import AnyUrl, BaseModel, SecretStr

from nco_guard.errors import UnsupportedError, ViolationError
from nco_guard.values import held, shapes, texts_of
from nco_guard.values.held import is_whole
from tests.values.examples import OUT, Plain, cleaner


class Headers(Mapping[str, int]):
    def __init__(self) -> None:
        self.note: Any = None

    def __getitem__(self, key: str) -> int:
        return {"a": 1}[key]

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


class Amount(decimal.Decimal):
    note: Any


class Moment(datetime.datetime):
    note: Any


class Place(pathlib.PurePosixPath):
    note: Any


class Chain(collections.ChainMap):  # type: ignore[type-arg]
    note: Any


class Numbers(np.ndarray):  # type: ignore[type-arg]
    note: Any


class Zone(datetime.tzinfo):
    note: Any = None

    def utcoffset(self, when: Any) -> datetime.timedelta:
        return datetime.timedelta(0)

    def dst(self, when: Any) -> None:
        return None

    def tzname(self, when: Any) -> str:
        return "zone"


def noted(value: Any, text: str) -> Any:
    value.note = text
    return value


def named(file: Any, text: str) -> Any:
    file.name = text
    return file


def color(text: str) -> Any:
    class Color(enum.Enum):
        RED = 1

    Color.RED.note = text  # type: ignore[attr-defined]
    return Color.RED


def element(text: str, where: str) -> ET.Element:
    found = ET.fromstring("<a b='c'>one<d>two</d>three</a>")
    target = found[0] if where == "tail" else found
    if where == "attrib":
        target.attrib["b"] = text
    else:
        setattr(target, where, text)
    return found


KEPT: list[Plain] = []


def weak(text: str) -> Any:
    KEPT.append(Plain(text))
    return weakref.ref(KEPT[-1])


HOLDING: dict[str, Callable[[str], Any]] = {
    "mapping": lambda text: noted(Headers(), text),
    "Decimal": lambda text: noted(Amount("1"), text),
    "datetime": lambda text: noted(Moment(2026, 1, 1), text),
    "path": lambda text: noted(Place("a"), text),
    "ChainMap": lambda text: noted(Chain({"a": 1}), text),
    "array": lambda text: noted(np.array([1]).view(Numbers), text),
    "zone": lambda text: datetime.datetime(2026, 1, 1, tzinfo=noted(Zone(), text)),
    "zone's name": lambda t: datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(0), t)),
    "file of bytes": lambda text: named(io.BytesIO(b"abc"), text),
    "file of bytes that are no text": lambda text: named(io.BytesIO(b"\x80\x81\x82\x00"), text),
    "file of text": lambda text: named(io.StringIO("abc"), text),
    "enum": color,
    "value of an enum": lambda text: enum.Enum("Made", {"A": Plain(text)}).A,  # type: ignore[attr-defined]
    "pattern": lambda text: re.compile("x" * 250 + text),
    "secret": SecretStr,
    "argument of a partial": lambda text: functools.partial(print, Plain(text)),
    "keyword of a partial": lambda text: functools.partial(print, sep=Plain(text)),
    "object of a method": lambda text: Plain(text).__init__,  # type: ignore[misc]
    "object of a built-in method": lambda text: {"k": text}.get,
    "factory": lambda text: collections.defaultdict(functools.partial(str, text)),
    "weak reference": weak,
    "slice": lambda text: slice(Plain(text)),
    "keys of values": lambda text: {text: 1}.values(),
    "memory behind a view": lambda text: memoryview(b"fine " + text.encode())[:4],
    "metadata of a type": lambda text: np.dtype("i4", metadata={"x": text}),
    "metadata of an array's type": lambda text: np.zeros(1, dtype=np.dtype("i4", metadata={"x": text})),
    "metadata of a number's type": lambda text: np.dtype([("a", np.dtype("i4", metadata={"x": text}))]),
    "query of an address": lambda text: AnyUrl(f"https://a.org/?q={text}"),
    **{
        f"{where} of an element": functools.partial(element, where=where)
        for where in ("tag", "text", "tail", "attrib")
    },
    "element of a tree": lambda text: ET.ElementTree(element(text, "text")),
}  # fmt: skip


@pytest.mark.parametrize("build", HOLDING.values(), ids=list(HOLDING))
def test_what_objects_hold(build: Callable[[str], Any]) -> None:
    clean, value = build("fine"), build("canary")
    assert cleaner().value(clean) is clean
    assert cleaner(action="raise").value(clean) is clean
    assert cleaner().value([clean])[0] is clean
    with pytest.raises(ViolationError):
        cleaner(action="raise").value(value)
    found = cleaner().value(value)
    assert not cleaner().rules(found)
    assert found is not value
    again = build("canary")
    assert cleaner().rules(value) == cleaner().rules(again) == ("word",)  # what was given is as it was


@pytest.mark.parametrize(
    "value", [random.Random(), contextvars.copy_context(), iter([1]), np.random.default_rng()],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_only_code_in_c_can_read_is_not_passed_on(value: Any) -> None:
    with pytest.raises(UnsupportedError, match=type(value).__name__):
        cleaner(action="raise").value({"k": [value]})
    assert cleaner().value({"k": [value]}) == {"k": [f"[{type(value).__name__} withheld]"]}

    class Derived(Plain):
        pass

    with pytest.raises(UnsupportedError):
        cleaner(action="raise").value(Derived(value))


def test_classes_whose_objects_are_read_whole() -> None:
    class Slotted:
        __slots__ = ("__b", "a")

    class Both(Slotted):
        __slots__ = ("__dict__", "__weakref__", "c")

    class Model(BaseModel):
        a: int = 1

    class Lost:
        __slots__ = ("a",)

    for kind in (Plain, Slotted, Both, Model, Headers, Amount, Numbers, types.SimpleNamespace, ValueError):
        assert is_whole(kind)
    hidden = type("Hidden", (Lost,), {"__slots__": iter(("b",))})  # its names are used up
    for other in (hidden, random.Random, type("Derived", (random.Random,), {})):
        assert not is_whole(other)


#: One of each of the classes of which nothing is asked but their content.
BARE_VALUES: list[Any] = [
    "canary",
    b"canary",
    bytearray(b"canary"),
    True,
    7,
    1e16,
    1j,
    ["canary", 2.0],
    ("canary",),
    {"canary": [1, {"a": "b"}]},
    {"canary"},
    frozenset({"canary"}),
    collections.deque(["canary"]),
    range(3),
    decimal.Decimal("4.10"),
    datetime.date(2026, 1, 2),
    datetime.timedelta(3),
    uuid.UUID(int=3),
    fractions.Fraction(3, 7),
    pathlib.PurePosixPath("canary/a"),
    pathlib.PosixPath("canary/b"),
    types.MappingProxyType({"canary": 3}),
]


def test_classes_of_nothing_but_content_are_read_as_all_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {type(value) for value in BARE_VALUES} == held.BARE
    value = [*BARE_VALUES[:-2], {"all": BARE_VALUES, 3: ("x", "canary")}]
    short = [*texts_of(value)], cleaner().value(value[:3]), cleaner().rules(value)
    monkeypatch.setattr(shapes, "BARE", frozenset())
    monkeypatch.setattr(shapes, "_MAKERS", {})
    assert ([*texts_of(value)], cleaner().value(value[:3]), cleaner().rules(value)) == short


def test_what_is_known_of_a_class_goes_with_it() -> None:
    class Passing:
        __slots__ = ("__weakref__", "a")

    value = Passing()
    value.a = "a canary"  # type: ignore[attr-defined]
    assert cleaner().rules([value, value]) == ("word",)
    gone = weakref.ref(Passing)
    del Passing, value
    gc.collect()
    assert gone() is None


def test_elements_are_read_as_a_reader_sees_them() -> None:
    torn = ET.fromstring("<p>can<b>ary</b></p>")
    assert cleaner().rules(torn) == ("word",)
    found = cleaner().value(ET.fromstring("<p>a <b>canary</b> here</p>"))
    assert ET.tostring(found, "unicode") == f"<p>a <b>{OUT}</b> here</p>"
