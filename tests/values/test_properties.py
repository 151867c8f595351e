"""Random values with something forbidden hidden in them in every form, and random cuts of streams."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import json
import operator
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.errors import ViolationError
from nco_guard.values import Cleaner, texts_of
from tests.values.examples import outcome, streamed_by

GUARD = Guard(
    Policy(
        name="properties",
        rules=(
            StringRule(id="word", strings=("canary",)),
            RegexRule(id="mail", regex=r"[a-z]{1,9}@[a-z]+\.com"),
            RegexRule(id="card", regex=r"(?<!\d)4\d{15}(?!\d)"),
            RegexRule(id="day", regex="2031-02-03"),
            RegexRule(id="ass", regex=r"\bass\b"),
            StringRule(id="price", strings=("12.5",), whole_word=True),
        ),
    )
)
CLEANER = Cleaner(GUARD)
streamed = partial(streamed_by, GUARD)
OUT = "[redacted]"
CARD = 4111111111111111


class Model(BaseModel):
    held: Any = None
    other: Any = 1


@dataclasses.dataclass
class Data:
    held: Any
    other: Any = 1


Pair = collections.namedtuple("Pair", "held other")


class Addable(dict):  # type: ignore[type-arg]
    """As LangChain's `AddableDict`, which steps of a chain stream."""

    def __add__(self, other: Any) -> Addable:
        joined = Addable(self)
        for key, part in other.items():
            if joined.get(key) is None:
                joined[key] = part
            elif part is not None:
                try:
                    joined[key] = joined[key] + part
                except TypeError:
                    joined[key] = part
        return joined


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


HIDDEN: list[Any] = [
    "canary", "a canary!", "x john@doe.com y", b"a canary", bytearray(b"canary"), CARD, float(CARD), Decimal(CARD),
    datetime.date(2031, 2, 3), datetime.datetime(2031, 2, 3), escaped("canary"), json.dumps(escaped("canary")),
    escaped("c") + "anar" + escaped("y"), np.str_("canary"), np.int64(CARD), np.datetime64("2031-02-03"), "ass",
    escaped(escaped("canary")),
]  # fmt: skip
HASHABLE = [value for value in HIDDEN if not isinstance(value, bytearray)]
fine = st.recursive(
    st.sampled_from(
        [None, True, 0, 7, 2.5, "", "fine", "assist", b"ok", Decimal("1.5"), datetime.date(2020, 1, 1)]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", 1]), inner, max_size=2),
        st.builds(Data, inner),
        st.tuples(inner),
    ),
    max_leaves=5,
)
WRAPS: list[Callable[[Any, Any], Any]] = [
    lambda held, other: [held, other],
    lambda held, other: (other, held),
    lambda held, other: {"k": held, "other": other},
    lambda held, other: Addable(k=held, other=other),
    lambda held, other: collections.OrderedDict(k=held, other=other),
    lambda held, other: Data(held, other),
    lambda held, other: Model.model_construct(held=held, other=other),
    lambda held, other: Pair(held, other),
    lambda held, other: collections.deque([held, other]),
    lambda held, other: {"type": "text", "text": "fine", "more": [held], "other": other},
    lambda held, other: [
        {"type": "tool_call", "name": "f", "args": {"q": held}},
        {"type": "x", "other": other},
    ],
]
KEYS: list[Callable[[Any], Any]] = [
    lambda held: {held: 1},
    lambda held: {held, "fine"},
    lambda held: {(1, held): 2},
    lambda held: frozenset([held]),
]


@st.composite
def hiding(draw: st.DrawFn) -> Any:
    """A value in which something is hidden."""
    if draw(st.booleans()):
        value = draw(st.sampled_from(KEYS))(draw(st.sampled_from(HASHABLE)))
    else:
        value = draw(st.sampled_from(HIDDEN))
    for wrap in draw(st.lists(st.sampled_from(WRAPS), max_size=4)):
        value = wrap(value, draw(fine))
    return value


def shown(value: Any) -> Iterator[str]:
    """What somebody who looks for it finds in a value: by other means than those of the code under test."""
    yield str(value)
    yield repr(value)
    if isinstance(value, BaseModel):
        yield from shown(dict(value))
    elif dataclasses.is_dataclass(value):
        yield from shown(vars(value))
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from shown(key)
            yield from shown(part)
    elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        for part in value:
            yield from shown(part)
    elif isinstance(value, (bytes, bytearray)):
        yield bytes(value).decode()
    elif isinstance(value, str):
        with contextlib.suppress(ValueError):
            read = json.loads(value if value[:1] in '{["' else f'"{value}"')
            if read != value:
                yield from shown(read)


def is_clean(value: Any) -> bool:
    return all(GUARD.verify(text).ok for text in shown(value))


@given(value=hiding())
@settings(max_examples=150, deadline=None)
def test_nothing_hidden_stays_and_nothing_else_changes(value: Any) -> None:
    assert CLEANER.rules(value)
    found = CLEANER.value(value)
    assert is_clean(found)
    assert not CLEANER.rules(found)
    assert not any(CLEANER.rules(text) for text in texts_of(found))
    assert CLEANER.value(found) is found
    if not isinstance(value, (int, float, Decimal, datetime.date, np.generic)):
        assert type(found) is type(value)
    with pytest.raises(ViolationError):
        Cleaner(GUARD, "raise").value(value)


@given(value=fine)
@settings(max_examples=100, deadline=None)
def test_what_holds_nothing_stays_the_object_that_it_is(value: Any) -> None:
    assert is_clean(value)
    assert CLEANER.value(value) is value
    assert Cleaner(GUARD, "raise").value(value) is value


@given(value=hiding(), other=fine)
@settings(max_examples=50, deadline=None)
def test_clean_parts_of_a_dirty_value_are_the_same_objects(value: Any, other: Any) -> None:
    kept = Data("kept", other)
    assert CLEANER.value([value, kept])[1] is kept
    assert CLEANER.value({"a": kept, "b": value})["a"] is kept


# -- streams ---------------------------------------------------------------------------------------------------

PIECES = [
    "canary", "john@doe.com", "john@doe.company", "ass", "ist", " ", "x", "can", "ary", "@", "4111", "111111111111",
    "2031-02-0", "3", "\\", "\\u0063", "anary", "u0040", "\\u0061", "ss", '"', "\n", "é", escaped("canary"), "{}",
    "[", "4.111111111111111e15", ".0", "e1", "5", "-", "12.50",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def cut(draw: st.DrawFn, text: str) -> list[str]:
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(texts)
    return text, cut(draw, text)


@given(given=cut_texts())
@example(given=("\\u0063anary", ["\\u00", "63anary"]))
@settings(max_examples=250, deadline=None)
def test_texts_in_pieces(given: tuple[str, list[str]]) -> None:
    text, pieces = given
    whole = outcome(lambda: CLEANER.value(text))
    assert outcome(lambda: "".join(streamed(pieces))) == whole
    refused = outcome(lambda: Cleaner(GUARD, "raise").value(text))
    assert outcome(lambda: "".join(streamed(pieces, action="raise"))) == refused
    assert "".join(streamed(pieces, action="report")) == text
    if isinstance(whole, str):
        so_far = ""
        for piece in streamed(pieces):
            so_far += piece
            assert GUARD.verify(so_far).ok


@st.composite
def cut_dictionaries(draw: st.DrawFn) -> tuple[dict[str, str], list[Addable]]:
    value = {key: draw(texts) for key in draw(st.sets(st.sampled_from(["a", "b", "x canary", "canary x"])))}
    pieces = [Addable({key: piece}) for key, text in value.items() for piece in cut(draw, text)]
    order = draw(st.permutations(range(len(pieces))))
    # Pieces of one key stay in their order.
    by_key = {key: [piece for piece in pieces if key in piece] for key in value}
    return value, [by_key[next(iter(pieces[index]))].pop(0) for index in order]


@given(given=cut_dictionaries())
@settings(max_examples=100, deadline=None)
def test_dictionaries_in_pieces(given: tuple[dict[str, str], list[Addable]]) -> None:
    _, pieces = given
    whole = reduce(operator.add, pieces, Addable())
    found = outcome(lambda: reduce(operator.add, streamed(pieces), Addable()))
    expected = outcome(lambda: CLEANER.value(whole))
    if isinstance(found, Addable) and isinstance(expected, dict):
        assert found == expected
        assert is_clean(found)


@given(given=cut_texts())
@settings(max_examples=100, deadline=None)
def test_blocks_in_pieces(given: tuple[str, list[str]]) -> None:
    _, pieces = given
    values = [*([{"type": "text", "text": piece}] for piece in pieces), [{"type": "image", "url": "u"}]]
    found = outcome(lambda: reduce(operator.add, streamed(values), []))
    expected = outcome(lambda: CLEANER.value(reduce(operator.add, values)))
    if isinstance(found, list) and isinstance(expected, list):
        assert is_clean(found)
        assert is_clean("".join(part.get("text", "") for part in found))
        assert [part["type"] for part in found] == [part["type"] for part in expected]
        # Pieces are read with a line break between them too once all are there.
        if GUARD.verify("\n".join(pieces)).ok and all(GUARD.verify(piece).ok for piece in pieces):
            assert found == expected
