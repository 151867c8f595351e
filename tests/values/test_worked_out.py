"""What models show that they do not hold: computed fields, what they are dumped as; and None among values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, PlainSerializer, computed_field, field_serializer, model_serializer

from nco_guard import Policy, StringRule
from nco_guard.values import Cleaner
from nco_guard.values.texts import texts_of


def cleaner(*words: str) -> Cleaner:
    return Cleaner(Policy(name="p", rules=(StringRule(id="w", strings=words),)))


class Turned(BaseModel):
    word: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def back(self) -> str:
        return self.word[::-1]


class Dated(BaseModel):
    days: int

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def day(self) -> datetime.datetime:
        return datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(self.days)


class Written(BaseModel):
    word: str = Field(serialization_alias="hush")
    number: Annotated[int, PlainSerializer(lambda number: f"no {number}")] = 1

    @field_serializer("word")
    def _loud(self, word: str) -> str:
        return f"{word}!"


class Whole(BaseModel):
    word: str

    @model_serializer
    def _whole(self) -> dict[str, Any]:
        return {"said": f"it was {self.word}"}


class Endless(BaseModel):
    number: int

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def following(self) -> Endless:
        return Endless(number=self.number + 1)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Turned(word="bad"), ["dab"]),
        (Dated(days=1), ["2024-01-02 00:00:00", "2024-01-02T00:00:00+00:00", "2024-01-02T00:00:00Z"]),
        (Written(word="x"), ["hush", "x!", "no 1"]),
        (Whole(word="x"), ["said", "it was x"]),
    ],
)
def test_what_is_worked_out_is_read_and_the_model_replaced(value: BaseModel, words: list[str]) -> None:
    for word in words:
        assert any(word in text for text in texts_of(value))
        assert cleaner(word).value(value) == "[redacted]"
        assert cleaner(word).value({"a": [value, 1]}) == {"a": ["[redacted]", 1]}
    assert cleaner("nothing of it").value(value) is value


def test_what_is_worked_out_of_a_clean_field_is_clean() -> None:
    found = cleaner("bad").value(Turned(word="bad"))
    assert (found.word, found.back) == ("[redacted]", "]detcader[")


def test_models_that_compute_ever_new_ones_are_withheld() -> None:
    assert cleaner("x").value([Endless(number=1)]) == ["[Endless withheld]"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (datetime.timedelta(days=1), ["1 day, 0:00:00", "P1D", "datetime.timedelta(days=1)"]),
        (datetime.datetime(2024, 1, 2), ["2024-01-02 00:00:00", "datetime.datetime(2024, 1, 2, 0, 0)"]),
        (Decimal("1E+3"), ["1E+3", "1000", "Decimal('1E+3')"]),
        (1e16, ["1e+16", "10000000000000000"]),
        (True, ["True", "true"]),
        (None, ["None", "null"]),
    ],
)
def test_scalars_are_read_as_they_print_and_as_json(value: Any, shown: list[str]) -> None:
    assert set(shown) <= set(texts_of(value))
    for text in shown:
        assert cleaner(text).value([value, "x"]) == ["[redacted]", "x"]


def test_none_is_a_value_among_data_and_nothing_in_an_attribute() -> None:
    class Maybe(BaseModel):
        word: str | None = None

    assert cleaner("None").value({"a": None}) == {"a": "[redacted]"}
    maybe = Maybe()
    assert cleaner("null").value(maybe) is maybe
