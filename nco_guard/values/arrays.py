"""Arrays and tables of NumPy, pandas and torch, and XML: looked at where whoever made one has imported them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from nco_guard.values.held import per_class
from nco_guard.values.parts import Branch, Leaf, Part
from nco_guard.values.scalars import prints

__all__ = ["array_shape", "class_read_here"]


def array_shape(value: Any) -> Any:
    """The shape of an array, a series, an index, a table or an element of XML; None for anything else."""
    look = _LOOKS.get(_root(class_read_here(type(value))))
    return None if look is None else look(value)


@per_class
def class_read_here(kind: type) -> type:
    """The nearest class of these packages, whose own way of printing shows elements; else `object`."""
    return next((base for base in kind.__mro__ if _root(base) in _LOOKS), object)


def _root(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _nothing(value: Any) -> Any:
    return Leaf(())


def _torch(value: Any) -> Any:
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor):
        return None
    if value.is_meta:
        return _nothing(value)
    flat = value.detach().cpu().to_dense().reshape(-1).tolist()
    parts = [Part(index, part) for index, part in enumerate(flat)]
    return Branch(parts, lambda new: _objects(new, tuple(value.shape)), plain=False)


def _xml(value: Any) -> Any:
    """An element of XML: what a reader sees of it is the text of all that is in it."""
    if type(value).__name__ != "Element" or not hasattr(value, "attrib"):
        return None
    names = ("tag", "text", "tail", "attrib")
    parts = [*(Part(name, getattr(value, name)) for name in names), Part("children", list(value))]

    def rebuild(new: list[Any]) -> Any:
        made = type(value)("")
        for name, part in zip(names, new, strict=False):
            setattr(made, name, part)
        made.extend(new[-1])
        return made

    return Branch(parts, rebuild, plain=False, extra=("".join(value.itertext()),))


def _numpy(value: Any) -> Any:
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.void) and value.dtype.names is None:
        return _nothing(value)
    if isinstance(value, numpy.dtype):
        parts = [
            Part("name", str(value)),
            Part("names", _field_names(value)),
            Part("metadata", _notes(value)),
        ]
        return Branch(parts, lambda new: new[0], plain=False)
    if isinstance(value, numpy.generic):
        plain = value.item()
        own = (str(value),) if not isinstance(plain, bytes) else ()
        own = (*own, *_field_names(value.dtype), *map(str, _notes(value.dtype)))
        return Leaf(tuple(dict.fromkeys((*own, *(prints(plain) or (str(plain),))))))
    if not isinstance(value, numpy.ndarray):
        return None
    masked = isinstance(value, numpy.ma.MaskedArray)
    # Rows of a record array are tuples. What a mask hides is there all the same.
    flat = numpy.asarray(value.data if masked else value).ravel().tolist()
    parts = [Part(index, part) for index, part in enumerate(flat)]
    parts.append(Part("names", _field_names(value.dtype)))
    parts.append(Part("metadata", _notes(value.dtype)))
    parts.append(Part("fill_value", numpy.asarray(value.fill_value).tolist() if masked else None))

    def rebuild(new: list[Any]) -> Any:
        made = unmasked(new[:-3])
        return numpy.ma.array(made, mask=_any_mask(value)) if masked else made

    def unmasked(new: list[Any]) -> Any:
        if value.dtype.kind in "US" and all(isinstance(part, (str, bytes)) for part in new):
            return numpy.array(new).reshape(value.shape)
        return _objects(new, value.shape)

    return Branch(parts, rebuild, plain=False)


def _objects(parts: list[Any], shape: tuple[int, ...]) -> Any:
    """An array of any objects."""
    import numpy

    made = numpy.empty(len(parts), dtype=object)
    for index, part in enumerate(parts):
        made[index] = part
    return made.reshape(shape)


def _field_names(dtype: Any) -> list[str]:
    """Names and titles of the fields of a structured type, also within others."""
    return list(dict.fromkeys(name for within in _types(dtype) for name in within.fields or ()))


def _notes(dtype: Any) -> list[Any]:
    """What was noted at a type or at those within it."""
    return [dict(within.metadata) for within in _types(dtype) if within.metadata]


def _types(dtype: Any) -> Iterator[Any]:
    left = [dtype]
    while left:
        now = left.pop()
        yield now
        left += [now.base] if now.subdtype is not None else []
        left += [inner for inner, *_ in (now.fields or {}).values()]


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
        return _nothing(value)
    if isinstance(value, pandas.api.extensions.ExtensionArray):
        parts = [Part("values", list(value)), Part("categories", _unused(value))]
        return Branch(parts, lambda new: pandas.array(new[0], dtype=object), plain=False)
    if isinstance(value, (pandas.Timedelta, pandas.Period, pandas.Interval)):
        return Leaf((str(value), repr(value)))
    return None


def _name(index: Any, names: list[Any]) -> None:
    """An index made anew has one level."""
    if index.nlevels == len(names):
        index.names = names


_LOOKS = {"numpy": _numpy, "pandas": _pandas, "torch": _torch, "xml": _xml}
