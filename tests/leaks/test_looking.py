"""The looks themselves: a harness that cannot see would find nothing wrong."""

from __future__ import annotations

import json

import pytest

from tests.leaks.canaries import CLEAN, SECRET
from tests.leaks.looking import error_texts, leaks_in
from tests.leaks.shapes import Shape, same
from tests.leaks.shapes_errors import ERRORS
from tests.leaks.shapes_texts import CALLED, JSON, PARSED, TEXTS, WRITTEN
from tests.leaks.shapes_values import VALUES

CORPUS = [*TEXTS, *WRITTEN, *CALLED, *JSON, *PARSED, *VALUES, *ERRORS]


@pytest.mark.parametrize("shape", CORPUS, ids=repr)
def test_a_look_finds_the_secret_in_every_shape_and_nothing_in_its_twin(shape: Shape) -> None:
    assert leaks_in(shape.build(SECRET), parsed=True)
    assert not leaks_in(shape.build(CLEAN), parsed=True)


@pytest.mark.parametrize("shape", [shape for shape in CORPUS if shape.same], ids=repr)
def test_twins_are_equal_to_themselves_and_to_no_other(shape: Shape) -> None:
    assert same(shape.build(CLEAN), shape.build(CLEAN))
    assert not same(shape.build(CLEAN), shape.build(SECRET))


def test_classes_count() -> None:
    assert not same((1,), [1])
    assert not same({"a": 1}, {"a": 1.0})


def test_neighbours_are_read_together() -> None:
    pieces = SECRET.pieces()
    assert not any(leaks_in(piece) for piece in pieces)
    assert leaks_in([{"text": piece} for piece in pieces])
    assert not leaks_in({str(index): piece for index, piece in enumerate(pieces)})


def test_escapes_are_read_where_something_parses() -> None:
    text = json.dumps({"body": f'{{"m": "{SECRET.escaped}"}}'})
    assert leaks_in(text, parsed=True)
    assert not leaks_in(text)


def test_errors_are_read_with_all_that_led_to_them() -> None:
    for shape in ERRORS:
        assert leaks_in(error_texts(shape.build(SECRET))), shape
