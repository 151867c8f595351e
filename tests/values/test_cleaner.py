"""`Cleaner`: every kind of value, by examples. Random ones are in `test_properties`."""

from __future__ import annotations

import array
import collections
import datetime
import fractions
import io
import ipaddress
import json
import pathlib
import types
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.errors import PolicyError, RedactionError, UnsupportedError, ViolationError
from nco_guard.values import Cleaner, texts_of
from tests.values.examples import (
    CARD,
    OUT,
    Addable,
    Data,
    Kind,
    Loose,
    Model,
    Named,
    Plain,
    Slotted,
    Talking,
    cleaner,
)

CHANGED: list[tuple[Any, Any]] = [
    ("a canary!", f"a {OUT}!"),
    (b"a canary!", b"a [redacted]!"),
    (bytearray(b"canary"), bytearray(b"[redacted]")),
    (b"\xff\xfe canary", "ÿþ [redacted]".encode()),
    (CARD, OUT),
    (float(CARD), OUT),
    (Decimal("4.111111111111111e15"), OUT),
    (datetime.date(2031, 2, 3), OUT),
    (datetime.datetime(2031, 2, 3, 4, 5), OUT),
    (Kind.BIRD, OUT),
    (pathlib.PurePosixPath("/home/canary/x"), OUT),
    ({"canary": 1}, {OUT: 1}),
    ({CARD: 1}, {OUT: 1}),
    ({("canary", 1): 1}, {(OUT, 1): 1}),
    ({"a@b.com": 1, "c@d.com": 2, OUT: 3}, {f"{OUT} (2)": 1, f"{OUT} (3)": 2, OUT: 3}),
    ({"k": [1, {"x": "canary"}]}, {"k": [1, {"x": OUT}]}),
    ((1, "canary"), (1, OUT)),
    (Named("canary", 2), Named(OUT, 2)),
    ({"canary", "b"}, {OUT, "b"}),
    (frozenset(["a@b.com", "c@d.com"]), frozenset([OUT, f"{OUT} (2)"])),
    (collections.deque(["canary"], 4), collections.deque([OUT], 4)),
    (Model(number=CARD), Model.model_construct(number=OUT, text="fine")),
    (Loose(a="canary"), Loose(a=OUT)),
    (Loose(**{"a@b.com": 1, "b": CARD}), Loose(**{OUT: 1, "b": OUT})),
    (Data("canary"), Data(OUT)),
    (Slotted("canary"), Slotted(OUT)),
    (Plain("canary"), Plain(OUT)),
    (Addable(a="canary"), Addable(a=OUT)),
    (collections.OrderedDict(a="canary"), collections.OrderedDict(a=OUT)),
    (types.MappingProxyType({"a": "canary"}), types.MappingProxyType({"a": OUT})),
    (types.SimpleNamespace(a="canary"), types.SimpleNamespace(a=OUT)),
    (fractions.Fraction(CARD, 7), OUT),
    (Talking(), OUT),
    (np.float64(CARD), OUT),
    (np.str_("canary"), np.str_(OUT)),
    (np.datetime64("2031-02-03"), OUT),
]


@pytest.mark.parametrize(("value", "clean"), CHANGED, ids=lambda value: type(value).__name__)
def test_what_matches_is_replaced_and_the_class_kept(value: Any, clean: Any) -> None:
    assert cleaner().rules(value)
    found = cleaner().value(value)
    assert found == clean
    assert type(found) is type(clean)
    assert not cleaner().rules(found)
    with pytest.raises(ViolationError):
        cleaner(action="raise").value(value)
    assert cleaner(action="report").value(value) is value


@pytest.mark.parametrize(("value", "pattern"), [
    (True, "True"),
    (True, "true"),
    (False, "false"),
    (np.True_, "True"),
    (uuid.UUID(int=3), "00000000-0000-0000-0000-000000000003"),
    (datetime.time(7, 8), "07:08"),
    (datetime.timedelta(3), "3 days"),
    (datetime.datetime(2031, 2, 3, 4, 5), "2031-02-03T04:05"),
    (ipaddress.ip_address("10.1.2.3"), r"10\.1\.2\.3"),
    (complex(0, 4321), "4321"),
    (range(4321), "4321"),
    (-4321, "4321"),
    (1e300, "1e[+]300"),
    (4.321e3, "4321$"),
    (Decimal("4.321e3"), "4321$"),
], ids=repr)  # fmt: skip
def test_scalars_are_read_as_they_print(value: Any, pattern: str) -> None:
    one = Cleaner(Policy(name="one", rules=(RegexRule(id="r", regex=pattern),)))
    assert one.value(value) == OUT
    assert one.value({"a": [value]}) == {"a": [OUT]}
    assert one.value({value: 1}) == {OUT: 1}


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_bytes_of_wide_characters(coding: str) -> None:
    for held in (bytes, bytearray, io.BytesIO):
        clean, value = held("a word, fine".encode(coding)), held("a word, canary".encode(coding))
        assert cleaner().value(clean) is clean
        assert cleaner().rules(value) == ("word",)
        found = cleaner().value({"data": value})["data"]
        assert type(found) is held
        assert (found.getvalue() if isinstance(found, io.BytesIO) else found) == OUT.encode()
    # What is among them as other text is read too.
    for mixed in (b"canary" + "fine".encode(coding[:6] + "-le") * 9, b"canary" + b"\0" * 26):
        assert cleaner().rules(mixed) == ("word",)
        assert not cleaner().rules(cleaner().value(mixed))
    numbers = np.arange(50, dtype="i4").tobytes()
    assert cleaner().value(numbers) is numbers


SAME: list[Any] = [
    None,
    True,
    7,
    7.5,
    float("nan"),
    float("inf"),
    10**5000,
    1e300,
    "fine",
    b"fine",
    b"\xff",
    "",
    [],
    {},
    (),
    set(),
    Decimal("NaN"),
    uuid.UUID(int=3),
    datetime.timedelta(3),
    range(3),
    ...,
    NotImplemented,
    Kind.FISH,
    Model(),
    Data("x"),
    Slotted("x"),
    Plain("x"),
    {"a": [1, (2, {3})]},
    collections.Counter("ab"),
    collections.deque("ab"),
    collections.ChainMap({"a": 1}),
    array.array("i", [1]),
    ipaddress.ip_address("::1"),
    complex(1, 2),
    json.loads,
    lambda: 1,
    json,
    Model,
    object(),
    np.arange(4),
    np.array([["a", "b"]]),
    np.zeros(2, [("a", "i4"), ("b", "U3")]),
    np.array(["2020-01-01"], "datetime64[D]"),
    io.StringIO("x"),
    slice(1, 2),
    [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    "C:\\users\\new",
]


@pytest.mark.parametrize("value", SAME, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("action", ["redact", "raise", "report"])
def test_what_holds_nothing_is_the_same_object(value: Any, action: Any) -> None:
    assert cleaner(action=action).value(value) is value
    assert cleaner(action=action).metadata(value) is value


def test_values_that_hold_themselves_and_deep_ones() -> None:
    clean: list[Any] = [1]
    clean.append(clean)
    assert cleaner().value(clean) is clean
    dirty: dict[str, Any] = {"a": "canary"}
    dirty["self"] = dirty
    assert not cleaner().rules(cleaner().value(dirty))
    deep: Any = ["canary"]
    for _ in range(20_000):
        deep = [deep]
    found = cleaner().value(deep)
    for _ in range(20_000):
        found = found[0]
    assert found == [OUT]
    wide: Any = ["canary"]
    for _ in range(40):
        wide = [wide, wide]  # 2**40 ways to the same word
    assert cleaner().value({"a": wide, "b": 1})["a"] is not wide


def test_what_cannot_be_looked_into() -> None:
    assert cleaner().value([iter([1])]) == ["[list_iterator withheld]"]
    with pytest.raises(UnsupportedError, match="list_iterator"):
        cleaner(action="raise").value([iter([1])])


def test_errors() -> None:
    fine = ValueError("fine")
    assert cleaner().error(fine, RuntimeError) is fine
    for broken in (
        ValueError("canary"),
        KeyError({"a": ["canary"]}),
        ExceptionGroup("fine", [ValueError("canary")]),
    ):
        found = cleaner().error(broken, RuntimeError)
        assert type(found) is RuntimeError
        assert not cleaner().rules([str(found), repr(found)])
        assert isinstance(cleaner(action="raise").error(broken, RuntimeError), ViolationError)
    held = ValueError("fine")
    held.body = {"failed_generation": "a canary"}  # type: ignore[attr-defined]
    assert type(cleaner().error(held, RuntimeError)) is RuntimeError
    noted = ValueError("fine")
    noted.add_note("canary")
    assert type(cleaner().error(noted, RuntimeError)) is RuntimeError
    led = ValueError("fine")
    led.__cause__ = KeyError("canary")
    assert cleaner().error(led, RuntimeError) is led
    assert led.__cause__ is None


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="action 'drop'"):
        cleaner(action="drop")
    with pytest.raises(TypeError, match="a Guard, a Policy"):
        Cleaner(b"pii")
    with pytest.raises(PolicyError, match="replacement"):
        cleaner(replacement="canary")


def test_a_match_of_what_stands_around_values_is_refused() -> None:
    brackets = Cleaner(Policy(name="b", rules=(StringRule(id="brackets", strings=("[[",)),)), replacement="x")
    with pytest.raises(RedactionError):
        brackets.value([[1, 2], 3])


def test_the_definition_names_every_text() -> None:
    found = set(texts_of({"a": [1.0, b"x"], "b": "\\u0041"}))
    assert {"a", "1.0", "1", "x", "b", "\\u0041", "A"} <= found
    assert any("1.0" in text and "x" in text for text in found)


def test_a_policy_may_forbid_what_stands_in_the_place_of_matches() -> None:
    words = Policy(
        name="p", rules=(StringRule(id="it", strings=("redacted", "removed", "withheld", "canary")),)
    )
    raising = Cleaner(words, "raise")
    assert raising.value({"a": "fine"}) == {"a": "fine"}
    assert raising.metadata({"id": "fine", "said": "a canary", "n": 3}) == {
        "id": "fine",
        "said": "a ***",
        "n": 3,
    }
    with pytest.raises(ViolationError):
        raising.value("canary")
    assert Cleaner(words).value({"a": "canary", "b": iter(())}) == {"a": "***", "b": "***"}
    everything = Policy(name="p", rules=(RegexRule(id="it", regex="(?s)."),))
    assert Cleaner(everything).value("canary") == ""
    with pytest.raises(PolicyError, match="replacement itself"):
        Cleaner(words, "raise", replacement="[redacted]")


def test_line_breaks_between_pieces_may_be_what_matches() -> None:
    ten = Cleaner(Policy(name="ten", rules=(RegexRule(id="r", regex=r"(?s).{10}"),)))
    with pytest.raises(RedactionError):
        ten.texts(["abcdefghijkl", "x", "", "y", "z", "", "q", "", "", ""])
    assert len(ten.texts(["abcdefghijkl"])[0]) < 10
