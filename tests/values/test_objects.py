"""`Cleaner` on objects: attributes, slots, models, and what classes print in their own way."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import http.cookies
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, PrivateAttr, computed_field

from nco_guard import Policy, RegexRule
from nco_guard.errors import ViolationError
from nco_guard.values import Cleaner, Role, register
from tests.values.examples import (
    CARD,
    OUT,
    Data,
    Named,
    Plain,
    cleaner,
)


def test_objects_that_resist() -> None:
    class Broken(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise OSError("canary")

    class Single:
        def __init__(self) -> None:
            self.text = "canary"

        def __copy__(self) -> Any:
            raise TypeError("there is only one")

    class Silent:
        def __init__(self) -> None:
            self.fine = 1

        def __repr__(self) -> str:
            raise ValueError("canary")

    assert cleaner().value([Broken(a="canary"), Single()]) == ["[Broken withheld]", "[Single withheld]"]
    silent = Silent()
    assert cleaner().value(silent) is silent


def test_what_objects_print_beside_their_attributes() -> None:
    class Address(BaseModel):
        name: str
        host: str

        @computed_field  # type: ignore[prop-decorator]
        @property
        def whole(self) -> str:
            return f"{self.name}@{self.host}"

    @dataclasses.dataclass
    class Person:
        first: str
        last: str

        def __str__(self) -> str:
            return self.first + self.last

    for value in (Address(name="john", host="doe.com"), Person("can", "ary")):
        assert cleaner().rules(value)
        assert cleaner().value(value) == OUT
    linked: Any = None
    for _ in range(3_000):
        linked = Data("fine", linked)
    assert cleaner().value(linked) is linked


class Text(str):
    pass


class Data8(bytes):
    pass


class Items(list):  # type: ignore[type-arg]
    pass


class Entries(dict):  # type: ignore[type-arg]
    pass


class Members(set):  # type: ignore[type-arg]
    pass


class Tagged(Named):  # type: ignore[misc]
    pass


@pytest.mark.parametrize("bare", [
    Text("fine"), Data8(b"fine"), Items([1, "x"]), Entries(a=1), Members({1}), Tagged(1, 2),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_attributes_beside_what_a_built_in_class_holds(bare: Any) -> None:
    value, clean = copy.copy(bare), copy.copy(bare)
    value.note, value.itself, clean.note = ["a canary"], value, ["fine"]
    assert cleaner().value(clean) is clean
    assert cleaner().value({"k": clean})["k"] is clean
    with pytest.raises(ViolationError):
        cleaner(action="raise").value(value)
    found = cleaner().value([value])[0]
    assert (found, type(found), found.note) == (bare, type(bare), [f"a {OUT}"])
    assert value.note == ["a canary"]


def test_content_of_what_has_attributes_is_read_as_before() -> None:
    text, items = Text("19 1234"), Items([{"type": "text", "text": "can"}, {"type": "text", "text": "ary"}])
    text.note = items.note = "fine"
    assert cleaner().rules({"ssn": text}) == ("ssn",)
    assert cleaner().rules(items) == ("word",)
    assert not cleaner().rules(cleaner().value([items, {"ssn": text}]))
    named = Entries(a="canary")
    setattr(named, "the canary", 1)
    found = cleaner().value(named)
    assert (found, vars(found)) == ({"a": OUT}, {f"the {OUT}": 1})


def saying(base: type, *ways: str) -> type:
    """A class derived from a built-in one that prints what it was told."""
    kind = type("Saying", (base,), {"told": "fine"})
    for way in ways:
        setattr(kind, way, lambda self, *spec: type(self).told)
    return kind


@pytest.mark.parametrize("way", ["__str__", "__repr__", "__format__"])
@pytest.mark.parametrize(
    "base", [str, bytes, int, float, list, tuple, dict, set, object], ids=lambda b: b.__name__
)
def test_what_classes_print_in_their_own_way(base: type, way: str) -> None:
    kind = saying(base, way)
    value = kind()
    assert cleaner().value(value) is value
    kind.told = "a canary"  # type: ignore[attr-defined]
    assert cleaner().value({"k": [value]}) == {"k": [OUT]}
    with pytest.raises(ViolationError):
        cleaner(action="raise").value(value)


def test_cookies() -> None:
    clean, cookies = http.cookies.SimpleCookie({"a": "fine"}), http.cookies.SimpleCookie({"a": "canary"})
    assert cleaner().value(clean) is clean
    found = cleaner().value(cookies)
    assert "canary" not in str(found) + repr(found) + repr(
        vars(found["a"]) if isinstance(found, dict) else ""
    )


def test_slots_that_are_private_to_a_class() -> None:
    class _Safe:
        __slots__ = ("__held",)

        def __init__(self, held: str) -> None:
            self.__held = held

    class Derived(_Safe):
        __slots__ = ()

    for kind in (_Safe, Derived):
        clean = kind("fine")
        assert cleaner().value(clean) is clean
        assert cleaner().value(kind("canary"))._Safe__held == OUT


@pytest.mark.parametrize("extra", ["allow", "ignore"])
def test_what_models_keep_beside_their_fields(extra: Any) -> None:
    class Parted(BaseModel):
        model_config = ConfigDict(extra=extra)
        parts: list[str]

        @functools.cached_property
        def whole(self) -> str:
            return "".join(self.parts)

    clean, value = Parted(parts=["fi", "ne"]), Parted(parts=["can", "ary"])
    assert (clean.whole, value.whole) == ("fine", "canary")
    assert cleaner().value(clean) is clean
    found = cleaner().value(value)
    assert (found.whole, found.parts, found.model_extra or {}) == (OUT, ["can", "ary"], {})


def test_addresses_in_memory_are_nobodys_number() -> None:
    digits = Cleaner(Policy(name="hex", rules=(RegexRule(id="hex", regex="0x[0-9a-f]{6}"),)))
    for value in (lambda: 1, Plain("x"), [object(), print, Plain]):
        assert digits.value(value) is value


def test_registered_types() -> None:
    class Card:
        def __init__(self, **fields: Any) -> None:
            self.__dict__.update(fields)

    class Special(Card):
        pass

    register(
        Card,
        {
            "id": Role.IDENTIFIER,
            "tool": Role.NAME,
            "info": Role.METADATA,
            "raw": Role.DROP,
            "model": Role.KEEP,
            "body": Role.BLOCKS,
            "args": Role.JSON,
        },
    )
    made = Special(
        id="canary", tool="t", info={"logprobs": [1]}, raw={"x": 1}, model="canary", body=["can", "ary"],
        args='{"a": "\\u0063anary"}', free=CARD,
    )  # fmt: skip
    found = cleaner().value(made)
    assert type(found) is Special
    assert found.id == cleaner().identifier("canary")
    assert (found.info, found.raw, found.model, found.body) == ({}, {}, "canary", [OUT, ""])
    assert (found.args, found.free) == (f'{{"a": "{OUT}"}}', OUT)
    assert made.id == "canary"
    with pytest.raises(ViolationError):
        cleaner().value(Card(tool="canary"))
    with pytest.raises(TypeError, match="field 'id'"):
        register(Card, {"id": "identifier"})  # type: ignore[dict-item]


def test_what_is_hidden_behind_something_else() -> None:
    chain = collections.ChainMap({"a": 1}, {"a": "canary"})
    assert cleaner().value(chain).maps == [{"a": 1}, {"a": OUT}]

    class Keeping(BaseModel):
        _kept: str = PrivateAttr(default="canary")
        _lines: Any = PrivateAttr(default_factory=lambda: iter([1]))

    made = Keeping()
    found = cleaner().value(made)
    assert (found._kept, made._kept) == (OUT, "canary")
    assert found._lines is made._lines


def test_numbering_takes_work_in_step_with_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    from nco_guard.values import redacting

    tried: list[int] = []

    def counted(text: str, number: int) -> str:
        tried.append(number)
        return f"{text} ({number})"

    monkeypatch.setattr(redacting, "_NUMBERINGS", (counted,))
    many = {f"x{'a' * (number % 7)}canary{number}": number for number in range(300)}
    same = Cleaner(Policy(name="all", rules=(RegexRule(id="r", regex=r"x\w*"),)))
    assert len(same.value(many)) == 300
    assert len(tried) < 2 * 300
