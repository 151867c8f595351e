"""Arrays and tables of NumPy and pandas, looked at where they are already imported by whoever made one."""

from __future__ import annotations

import sys
from typing import Any

from nco_guard.values.parts import Branch, Leaf, Part
from nco_guard.values.scalars import prints

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
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.void) and value.dtype.names is None:
        return None
    if isinstance(value, numpy.generic):
        plain = value.item()
        own = (str(value),) if not isinstance(plain, bytes) else ()
        own = (*own, *_field_names(value.dtype))
        return Leaf(tuple(dict.fromkeys((*own, *(prints(plain) or (str(plain),))))))
    if not isinstance(value, numpy.ndarray):
        return None
    masked = isinstance(value, numpy.ma.MaskedArray)
    # Rows of a record array are tuples. What a mask hides is there all the same.
    flat = numpy.asarray(value.data if masked else value).ravel().tolist()
    parts = [Part(index, part) for index, part in enumerate(flat)]
    parts.append(Part("names", _field_names(value.dtype)))
    parts.append(Part("fill_value", numpy.asarray(value.fill_value).tolist() if masked else None))

    def rebuild(new: list[Any]) -> Any:
        made = unmasked(new[:-2])
        return numpy.ma.array(made, mask=_any_mask(value)) if masked else made

    def unmasked(new: list[Any]) -> Any:
        kind = object
        if value.dtype.kind in "US" and all(isinstance(part, (str, bytes)) for part in new):
            return numpy.array(new).reshape(value.shape)
        made = numpy.empty(len(new), dtype=kind)
        for index, part in enumerate(new):
            made[index] = part
        return made.reshape(value.shape)

    return Branch(parts, rebuild, plain=False)


def _field_names(dtype: Any) -> list[str]:
    """Names and titles of the fields of a structured type, also within others."""
    found: list[str] = []
    left = [dtype]
    while left:
        now = left.pop()
        left += [now.base] if now.subdtype is not None else []
        for name, (inner, *_) in (now.fields or {}).items():
            found.append(name)
            left.append(inner)
    return list(dict.fromkeys(found))


def _any_mask(value: Any) -> Any:
    """Where a masked array hides an element, or a field of one."""
    numpy = sys.modules["numpy"]
    mask = numpy.ma.getmaskarray(value)
    return (
        mask
        if mask.dtype.names is None
        else numpy.array([any(row) for row in mask.ravel()]).reshape(mask.shape)
    )


def _unused(values: Any) -> list[Any]:
    """What a series or index holds beside its values: all categories of its type, all members of its levels."""
    pandas = sys.modules["pandas"]
    if isinstance(values, pandas.MultiIndex):
        return [[level.tolist(), _unused(level)] for level in values.levels]
    return values.dtype.categories.tolist() if isinstance(values.dtype, pandas.CategoricalDtype) else []


def _pandas(value: Any) -> Any:
    pandas = sys.modules["pandas"]
    if isinstance(value, pandas.DataFrame):
        columns = [value.iloc[:, index].tolist() for index in range(value.shape[1])]
        parts = [
            Part("columns", list(value.columns)),
            Part("index", list(value.index)),
            Part("attrs", dict(value.attrs)),
            Part("names", [list(value.columns.names), list(value.index.names)]),
            Part("unused", [_unused(value.columns), _unused(value.index)]),
            Part("categories", [_unused(value.iloc[:, index]) for index in range(value.shape[1])]),
            *(Part(f"column {index}", column) for index, column in enumerate(columns)),
        ]

        def table(new: list[Any]) -> Any:
            made = value.copy()
            for index, (old, column) in enumerate(zip(columns, new[6:], strict=True)):
                if column is not old or new[5][index] is not parts[5].value[index]:
                    made.isetitem(index, pandas.Series(column, index=value.index, dtype=object))
            if new[0] is not parts[0].value or new[4][0] is not parts[4].value[0]:
                made.columns = pandas.Index(new[0], dtype=object)
            if new[1] is not parts[1].value or new[4][1] is not parts[4].value[1]:
                made.index = pandas.Index(new[1], dtype=object)
            made.attrs = new[2]
            _name(made.columns, new[3][0])
            _name(made.index, new[3][1])
            return made

        return Branch(parts, table, plain=False)
    if isinstance(value, pandas.Series):
        parts = [Part("values", value.tolist()), Part("index", list(value.index)), Part("name", value.name)]
        parts += [Part("attrs", dict(value.attrs)), Part("names", list(value.index.names))]
        parts += [Part("unused", _unused(value.index)), Part("categories", _unused(value))]

        def series(new: list[Any]) -> Any:
            same = [now is part.value for now, part in zip(new, parts, strict=True)]
            index = value.index if same[1] and same[5] else pandas.Index(new[1], dtype=object)
            values = value.array if same[0] and same[6] else pandas.array(new[0], dtype=object)
            made = type(value)(values, index=index.copy(), name=new[2])
            made.attrs = new[3]
            _name(made.index, new[4])
            return made

        return Branch(parts, series, plain=False)
    if isinstance(value, pandas.Index):
        parts = [Part("values", value.tolist()), Part("name", value.name), Part("unused", _unused(value))]
        return Branch(parts, lambda new: pandas.Index(new[0], dtype=object, name=new[1]), plain=False)
    if value is pandas.NaT or value is pandas.NA:
        return None
    return Leaf((str(value),))


def _name(index: Any, names: list[Any]) -> None:
    """An index made anew has one level."""
    if index.nlevels == len(names):
        index.names = names
