"""Arrays and tables of NumPy and pandas, looked at where they are already imported by whoever made one."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["array_shape"]


def array_shape(value: Any) -> Any:
    """The shape of an array, a series, an index or a table; None for anything else."""
    for base in type(value).__mro__:
        root = base.__module__.partition(".")[0]
        if root == "numpy":
            return _numpy(value)
        if root == "pandas":
            return _pandas(value)
    return None


def _numpy(value: Any) -> Any:
    from nco_guard.values.scalars import prints
    from nco_guard.values.shapes import Branch, Leaf, Part

    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.void) and value.dtype.names is None:
        return None
    if isinstance(value, numpy.generic):
        plain = value.item()
        own = (str(value),) if not isinstance(plain, bytes) else ()
        return Leaf(tuple(dict.fromkeys((*own, *(prints(plain) or (str(plain),))))))
    if not isinstance(value, numpy.ndarray):
        return None
    flat = value.ravel().tolist()  # rows of a record array are tuples
    parts = [Part(index, part) for index, part in enumerate(flat)]

    def rebuild(new: list[Any]) -> Any:
        kind = object
        if value.dtype.kind in "US" and all(isinstance(part, (str, bytes)) for part in new):
            return numpy.array(new).reshape(value.shape)
        made = numpy.empty(len(new), dtype=kind)
        for index, part in enumerate(new):
            made[index] = part
        return made.reshape(value.shape)

    return Branch(parts, rebuild, plain=False)


def _pandas(value: Any) -> Any:
    from nco_guard.values.shapes import Branch, Leaf, Part

    pandas = sys.modules["pandas"]
    if isinstance(value, pandas.DataFrame):
        columns = [value.iloc[:, index].tolist() for index in range(value.shape[1])]
        parts = [
            Part("columns", list(value.columns)),
            Part("index", list(value.index)),
            Part("attrs", dict(value.attrs)),
            Part("names", [list(value.columns.names), list(value.index.names)]),
            *(Part(f"column {index}", column) for index, column in enumerate(columns)),
        ]

        def table(new: list[Any]) -> Any:
            made = value.copy()
            for index, (old, column) in enumerate(zip(columns, new[4:], strict=True)):
                if column is not old:
                    made.isetitem(index, pandas.Series(column, index=value.index, dtype=object))
            if new[0] is not parts[0].value:
                made.columns = pandas.Index(new[0], dtype=object)
            if new[1] is not parts[1].value:
                made.index = pandas.Index(new[1], dtype=object)
            made.attrs = new[2]
            _name(made.columns, new[3][0])
            _name(made.index, new[3][1])
            return made

        return Branch(parts, table, plain=False)
    if isinstance(value, pandas.Series):
        parts = [Part("values", value.tolist()), Part("index", list(value.index)), Part("name", value.name)]
        parts += [Part("attrs", dict(value.attrs)), Part("names", list(value.index.names))]

        def series(new: list[Any]) -> Any:
            index = value.index if new[1] is parts[1].value else pandas.Index(new[1], dtype=object)
            values = value.array if new[0] is parts[0].value else pandas.array(new[0], dtype=object)
            made = type(value)(values, index=index.copy(), name=new[2])
            made.attrs = new[3]
            _name(made.index, new[4])
            return made

        return Branch(parts, series, plain=False)
    if isinstance(value, pandas.Index):
        parts = [Part("values", value.tolist()), Part("name", value.name)]
        return Branch(parts, lambda new: pandas.Index(new[0], dtype=object, name=new[1]), plain=False)
    if value is pandas.NaT or value is pandas.NA:
        return None
    return Leaf((str(value),))


def _name(index: Any, names: list[Any]) -> None:
    """An index made anew has one level."""
    if index.nlevels == len(names):
        index.names = names
