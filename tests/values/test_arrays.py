"""`Cleaner` on arrays and tables: elements, names, and what is held beside the elements."""

from __future__ import annotations

import array
import pickle
from typing import Any

import numpy as np
import pytest

from tests.values.examples import (
    CARD,
    OUT,
    cleaner,
)


def test_arrays_become_arrays_of_objects() -> None:
    found = cleaner().value(np.array([[CARD, 2], [3, 4]]))
    assert found.shape == (2, 2)
    assert found.dtype == object
    assert found.tolist() == [[OUT, 2], [3, 4]]
    words = cleaner().value(np.array(["canary", "b"]))
    assert words.tolist() == [OUT, "b"]
    assert words.dtype.kind == "U"


def test_tensors_become_arrays_of_objects() -> None:
    torch = pytest.importorskip("torch")
    found = cleaner().value(torch.tensor([[CARD, 2], [3, 4]]))
    assert (type(found), found.dtype) == (np.ndarray, object)
    assert found.tolist() == [[OUT, 2], [3, 4]]
    assert cleaner().value(torch.tensor(float(CARD), dtype=torch.float64)).tolist() == OUT
    for clean in (torch.zeros(2, 3), torch.zeros(2, device="meta"), torch.eye(2).to_sparse()):
        assert cleaner().value(clean) is clean


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
