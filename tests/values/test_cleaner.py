"""`Cleaner`: every kind of value, by examples. Random ones are in `test_properties`."""

from __future__ import annotations

import array
import base64
import collections
import copy
import dataclasses
import datetime
import fractions
import functools
import http.cookies
import io
import ipaddress
import json
import pathlib
import pickle
import random
import types
import uuid
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, PrivateAttr, computed_field

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.errors import PolicyError, RedactionError, UnsupportedError, ViolationError
from nco_guard.values import Cleaner, Role, register, texts_of

POLICY = Policy(
    name="values",
    rules=(
        StringRule(id="word", strings=("canary",)),
        RegexRule(id="mail", regex=r"[a-z]+@[a-z]+\.com"),
        RegexRule(id="card", regex=r"(?<!\d)4\d{15}(?!\d)"),
        RegexRule(id="day", regex="2031-02-03"),
        RegexRule(id="ssn", regex=r"ssn.{0,10}\d{4}"),
    ),
)
GUARD = Guard(POLICY)
CARD = 4111111111111111
OUT = "[redacted]"


class Model(BaseModel):
    number: int = 1
    text: str = "fine"


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")


@dataclasses.dataclass(frozen=True)
class Data:
    text: str
    other: int = 1


@dataclasses.dataclass(slots=True)
class Slotted:
    text: str


Named = collections.namedtuple("Named", "first second")


class Kind(Enum):
    BIRD = "canary"
    FISH = "cod"


class Addable(dict):  # type: ignore[type-arg]
    def __add__(self, other: Any) -> Addable:
        return Addable({**self, **other})


class Plain:
    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and other.text == self.text

    __hash__ = None  # type: ignore[assignment]


class Talking:
    __slots__ = ()

    def __str__(self) -> str:
        return "a canary speaks"


def cleaner(**options: Any) -> Cleaner:
    return Cleaner(GUARD, **options)


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


def test_arrays_become_arrays_of_objects() -> None:
    found = cleaner().value(np.array([[CARD, 2], [3, 4]]))
    assert found.shape == (2, 2)
    assert found.dtype == object
    assert found.tolist() == [[OUT, 2], [3, 4]]
    words = cleaner().value(np.array(["canary", "b"]))
    assert words.tolist() == [OUT, "b"]
    assert words.dtype.kind == "U"


def test_tables() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(
        {"canary": [1, 2], "b": [CARD, 3], "c": ["x", "a canary"]}, index=["r", "canary"]
    )
    found = cleaner().value(table)
    assert list(found.columns) == [OUT, "b", "c"]
    assert list(found.index) == ["r", OUT]
    assert found["b"].tolist() == [OUT, 3]
    assert found["c"].tolist() == ["x", f"a {OUT}"]
    assert table["b"].tolist() == [CARD, 3]
    clean = pandas.DataFrame({"a": [1.5, None], "t": pandas.to_datetime(["2020-01-01", None])})
    assert cleaner().value(clean) is clean
    series = pandas.Series(["canary", "b"], name="n")
    assert cleaner().value(series).tolist() == [OUT, "b"]
    assert cleaner().value(pandas.Timestamp("2031-02-03")) == OUT
    for described in (pandas.DataFrame({"n": [1]}), pandas.Series([1])):
        described.attrs["source"] = "a canary"
        described.index.name = "canary"
        found = cleaner().value(described)
        assert (found.attrs, found.index.name) == ({"source": f"a {OUT}"}, OUT)
        assert (described.attrs, described.index.name) == ({"source": "a canary"}, "canary")
    assert cleaner().value(pandas.NaT) is pandas.NaT


def test_text_that_is_read_joined() -> None:
    blocks = [
        {"type": "text", "text": "write to john"},
        {"type": "image", "url": "u"},
        {"type": "text", "text": "@doe.com", "index": 3},
        "soon",
    ]
    assert cleaner().value(blocks) == [
        {"type": "text", "text": f"write to {OUT}"},
        {"type": "image", "url": "u"},
        {"type": "text", "text": "", "index": 3},
        "soon",
    ]
    thoughts = [{"type": "thinking", "thinking": "cana"}, {"type": "thinking", "thinking": "ry"}]
    assert cleaner().value(thoughts)[0]["thinking"] == OUT
    summaries = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": part}]} for part in ("can", "ary!")
    ]
    assert [block["summary"][0]["text"] for block in cleaner().value(summaries)] == [OUT, "!"]
    cited = [{"type": "text", "text": "", "citations": [{"cited_text": "can"}, {"cited_text": "ary"}]}]
    assert not cleaner().rules(cleaner().value(cited))
    assert "".join(part["cited_text"] for part in cleaner().value(cited)[0]["citations"]) == OUT
    assert cleaner().texts(["can", "ary", ""]) == [OUT, "", ""]
    # Rows of a table are not read joined, and neither are messages.
    rows = [{"word": "can"}, {"word": "ary"}]
    assert cleaner().value(rows) is rows


def test_what_several_values_make_together_is_replaced() -> None:
    assert cleaner().value({"ssn": 1234}) == {"ssn": OUT}
    assert cleaner().value({"ssn": "no 1234", "b": 5678}) == {"ssn": OUT, "b": 5678}
    assert cleaner().value(["ssn", 1234]) == [OUT, OUT]
    assert cleaner().rules({"ssn": 1234}) == ("ssn",)
    printed = Cleaner(Policy(name="printed", rules=(RegexRule(id="key", regex='"a": "b"'),)))
    assert printed.value({"a": "b", "c": "b"}) == {"a": OUT, "c": "b"}


def test_json_in_strings() -> None:
    assert cleaner().json_text('{"a": "john\\u0040doe.com"}') == f'{{"a": "{OUT}"}}'
    assert cleaner().json_text('{"a": 4.111111111111111e15}') == f'{{"a": "{OUT}"}}'
    assert cleaner().json_text('{"a": "x"}\n{"a": "\\u0063anary"}') == f'{{"a": "x"}}\n{{"a": "{OUT}"}}'
    assert cleaner().json_text('{"a": "\\u0063anar\\u0079') == f'{{"a": "{OUT}'
    twice = json.dumps(json.dumps({"a": "john\\u0040doe.com"}))
    assert not cleaner().rules(cleaner().json_text(twice))
    assert cleaner().text("Action Input: \\u0063anary") == f"Action Input: {OUT}"
    fine = '{"a":   "caf\\u00e9"}'
    assert cleaner().json_text(fine) == fine
    pair = Cleaner(Policy(name="bird", rules=(StringRule(id="bird", strings=("\U0001f426",)),)))
    assert pair.json_text('"\\ud83d\\udc26"') == f'"{OUT}"'


def test_tool_calls_as_providers_write_them() -> None:
    call = {"type": "tool_call", "name": "f", "args": {"q": "canary"}, "id": "canary-7"}
    first, second = cleaner().value(
        [call, {"type": "tool_result", "tool_use_id": "canary-7", "content": "canary"}]
    )
    assert first["args"] == {"q": OUT}
    assert first["id"] == second["tool_use_id"] == cleaner().identifier("canary-7")
    assert second["content"] == OUT
    function = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"q": "\\u0063anary"}'},
    }
    assert (
        cleaner().value({"tool_calls": [function]})["tool_calls"][0]["function"]["arguments"]
        == f'{{"q": "{OUT}"}}'
    )
    with pytest.raises(ViolationError):
        cleaner().value([{**call, "name": "canary"}])
    with pytest.raises(ViolationError):
        cleaner().name("canary")
    assert cleaner().name("fine") == "fine"


def test_identifiers_are_the_same_everywhere() -> None:
    new = cleaner().identifier("id canary")
    assert new == Cleaner(POLICY).identifier("id canary") != cleaner().identifier("canary id")
    assert cleaner().identifier("fine") == "fine"
    assert not cleaner().rules(new)
    picky = Cleaner(
        Policy(name="id", rules=(StringRule(id="id", strings=("id-", "canary")),)), replacement="x"
    )
    assert not picky.rules(picky.identifier("canary"))


def test_metadata_is_redacted_whatever_the_action() -> None:
    given = {
        "finish_reason": "canary",
        "logprobs": {"content": [{"token": "can"}]},
        "choices": [{"topLogprobs": [1], "text": "fine", "tokens": 3}],
        "logprobs_result": None,
        "usage": {"prompt_tokens": CARD},
        "created": CARD,
        "other": CARD,
    }
    expected = {
        "finish_reason": OUT,
        "choices": [{"text": "fine", "tokens": 3}],
        "logprobs_result": None,
        "usage": {"prompt_tokens": CARD},
        "created": CARD,
        "other": OUT,
    }
    for action in ("redact", "raise"):
        assert Cleaner(GUARD, action).metadata(given) == expected  # type: ignore[arg-type]


def test_a_text_in_pieces_under_another_name() -> None:
    assert cleaner().value({"logprobs": [{"token": "can"}, {"token": "ary"}], "a": 1}) == {
        "logprobs": OUT,
        "a": 1,
    }


@pytest.mark.parametrize(
    "given",
    [
        {"token_logprobs": [-1.0], "tokens": ["can", "ary"]},
        {"token_likelihoods": [{"token": "can"}, {"token": "ary"}]},
        {"details": {"tokens": [{"text": "can"}, {"text": "ary"}], "prefill": [{"text": "x"}]}},
        {"logprobsResult": {"chosenCandidates": [{"token": "can"}]}},
        {"pieces": [{"token": "can"}, {"token": "ary"}]},
        {"completion_probabilities": [{"content": "can"}]},
    ],
)
def test_log_probabilities_under_the_names_of_providers(given: dict[str, Any]) -> None:
    assert "can" not in repr(cleaner().metadata({"a": [{"tokens": 3, **given}]})["a"][0].values())
    assert cleaner().metadata({"total_tokens": 3, "tokens": 7}) == {"total_tokens": 3, "tokens": 7}


def test_blocks_within_arguments_are_read_together() -> None:
    blocks = [{"type": "text", "text": "can"}, {"type": "text", "text": "ary"}]
    call = {"type": "tool_call", "name": "f", "args": {"content": blocks}, "id": "1"}
    for value in (call, [call], [call, call], {"x": {"content": blocks}}):
        assert cleaner().rules(value)
        assert "canary" not in "".join(texts_of(cleaner().value(value)))
        assert not cleaner().rules(cleaner().value(value))
    text = json.dumps({"content": blocks})
    assert json.loads(cleaner().json_text(text))["content"][0]["text"] == OUT
    # Pieces of one call that nobody numbered, each a call that breaks off.
    for kind in ("invalid_tool_call", "tool_call_chunk"):
        loose = [{"type": kind, "args": part, "id": None} for part in ('{"m": "can', 'ary"}')]
        assert "canary" not in "".join(call["args"] for call in cleaner().value(loose))
    # Arguments of several calls are not one text.
    calls = [{"type": "tool_call", "name": "f", "args": {"text": part}, "id": "1"} for part in ("can", "ary")]
    assert cleaner().value(calls) is calls


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


def test_images_are_not_text() -> None:
    short = Cleaner(Policy(name="short", rules=(RegexRule(id="word", regex="(?i)ab"),)))
    picture = b"\x89PNG\r\n\x1a\n" + random.Random(3).randbytes(60_000)
    encoded = base64.b64encode(picture).decode()
    assert short.rules([encoded]) == ("word",)
    for value in (
        picture,
        {"type": "image", "source": {"type": "base64", "media_type": "x", "data": encoded}},
        [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}],
        {"type": "input_audio", "data": encoded.replace("+", "-").replace("/", "_")},
    ):
        assert short.value(value) is value
    # Where text is given out as an image, it is read as it is written.
    for value in (
        {"type": "image", "data": "a canary"},
        {"type": "image", "data": "canary" * 40},
        {"type": "image", "data": encoded, "title": "canary"},
        {"url": f"data:image/png;base64,{encoded} canary"},
        b"\xff" * 20 + b"a canary among readable text, with some bytes of another encoding",
    ):
        assert cleaner().rules(cleaner().value(value)) == () != cleaner().rules(value)


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


def test_arrays_of_letters() -> None:
    clean = array.array("u", "fine")
    assert cleaner().value(clean) is clean
    assert cleaner().value(array.array("u", "a canary")) == array.array("u", f"a {OUT}")


def test_what_arrays_hold_beside_their_elements() -> None:
    fields: list[Any] = [[("canary", "i4")], [(("canary", "t"), "i4")], [("a", [("canary", "i4")], 2)]]
    for dtype in fields:
        found = cleaner().value(np.zeros(2, dtype))
        assert "canary" not in repr(found)
        assert found.shape == (2,)
        assert cleaner().value(np.zeros(2, dtype)[0]) == OUT
    for clean in (np.ma.array(["x", "y"], mask=[0, 1]), np.ma.zeros(2, [("a", "i4")])):
        assert cleaner().value(clean) is clean
    hidden = cleaner().value(np.ma.array(["x", "canary"], mask=[0, 1]))
    assert hidden.data.tolist() == ["x", OUT]
    assert hidden.mask.tolist() == [False, True]
    filled = np.ma.array(["x", "y"], mask=[0, 1], dtype="U9", fill_value="canary")
    assert "canary" not in repr(cleaner().value(filled))


def test_categories_that_no_row_has() -> None:
    pandas = pytest.importorskip("pandas")

    def made(category: str) -> list[Any]:
        values = pandas.Categorical(["a", "a"], categories=["a", category])
        levels = pandas.MultiIndex.from_tuples([(1, category), (2, "b"), (3, "b")])[1:]
        return [
            pandas.Series(values),
            pandas.DataFrame({"m": values, "n": [1, 2]}),
            pandas.CategoricalIndex(values),
            pandas.Series([1, 2], index=values),
            pandas.DataFrame({"n": [1, 2]}, index=values),
            pandas.DataFrame([[1, 2]], columns=pandas.CategoricalIndex(values)),
            levels,
            pandas.Series([1, 2], index=levels),
        ]

    for clean in made("fine"):
        assert cleaner().value(clean) is clean
    for value, clean in zip(made("canary"), made("fine"), strict=True):
        found = cleaner().value(value)
        assert b"canary" in pickle.dumps(value)
        assert b"canary" not in pickle.dumps(found)
        assert type(found) in (type(clean), pandas.Index, pandas.MultiIndex)
        assert [*found] == [*clean]


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


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="action 'drop'"):
        cleaner(action="drop")
    with pytest.raises(TypeError, match="a Guard, a Policy"):
        Cleaner("policy.yaml")
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
