"""What a shape is: a form in which a value can hide what is forbidden."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pydantic

from tests.leaks.canaries import Secret

__all__ = ["Shape", "same", "shapes"]


_DRAWN = re.compile(
    r" at 0x[0-9a-f]+|\bcall_[a-z]{24}\b"
)  # addresses and ids of calls are others in each run


@dataclass(frozen=True)
class Shape:
    """Builds a value around a secret; around the clean twin it builds the same without anything to hide.

    Attributes:
        kind: which routes carry it.
        same: the clean twin must come back equal, class included.
        optional: it needs a package that is no dependency of the tests.
        opaque: nobody can look into it without using it up, so that a placeholder stands in its place always.
    """

    name: str
    kind: str
    build: Callable[[Secret], Any]
    same: bool = True
    opaque: bool = False
    optional: bool = False

    def __repr__(self) -> str:
        return self.name


def shapes(
    kind: str, builds: Mapping[str, Callable[[Secret], Any]], *, same: bool = True, opaque: bool = False
) -> list[Shape]:
    """One shape for each entry."""
    return [Shape(name, kind, build, same, opaque) for name, build in builds.items()]


def _same_mappings(one: Any, two: Any, depth: int) -> bool:
    # Where steps run side by side, the order of keys is a matter of chance.
    keys = [{(type(key), key) for key in each} for each in (one, two)]
    attributes = [getattr(each, "__dict__", {}) for each in (one, two)]
    return (
        keys[0] == keys[1]
        and all(same(one[key], two[key], depth + 1) for key in one)
        and same(*attributes, depth + 1)
    )


def same(one: Any, two: Any, depth: int = 0) -> bool:
    """Equal, and of equal classes at any depth, as far as that can be seen."""
    if type(one) is not type(two):
        return False
    if depth > 200 or one is two:
        return True
    if isinstance(one, np.ndarray):
        return (
            one.dtype == two.dtype and one.shape == two.shape and same(one.tolist(), two.tolist(), depth + 1)
        )
    if hasattr(one, "columns") and hasattr(one, "equals"):
        return bool(one.equals(two)) and one.attrs == two.attrs
    if hasattr(one, "equals"):
        return bool(one.equals(two)) and getattr(one, "name", None) == getattr(two, "name", None)
    if isinstance(one, str):
        return _DRAWN.sub("", one) == _DRAWN.sub("", two)
    if isinstance(one, datetime.datetime):
        return one == two and one.tzname() == two.tzname()
    if isinstance(one, float):
        return one == two or (math.isnan(one) and math.isnan(two))
    if isinstance(one, Mapping):
        return _same_mappings(one, two, depth)
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(two) and all(same(a, b, depth + 1) for a, b in zip(one, two, strict=True))
    if isinstance(one, (collections.abc.KeysView, collections.abc.ValuesView, collections.abc.ItemsView)):
        return same(list(one), list(two), depth + 1)
    if hasattr(one, "getvalue"):
        return bool(one.getvalue() == two.getvalue()) and getattr(one, "name", None) == getattr(
            two, "name", None
        )
    if isinstance(one, pydantic.BaseModel):
        names = type(one).model_fields
        private = one.__pydantic_private__ or {}, two.__pydantic_private__ or {}
        return (
            all(same(getattr(one, name), getattr(two, name), depth + 1) for name in names)
            and same(one.__pydantic_extra__, two.__pydantic_extra__, depth + 1)
            and all(same(private[0][name], private[1].get(name), depth + 1) for name in private[0])
        )
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return all(same(getattr(one, name), getattr(two, name), depth + 1) for name in names)
    if isinstance(one, BaseException):
        return same(one.args, two.args, depth + 1)
    if type(one).__eq__ is object.__eq__:
        if (str(one), repr(one)) != (str(two), repr(two)) and " at 0x" not in repr(one):
            return False
        held = [getattr(each, "__dict__", None) for each in (one, two)]
        if held[0] is not None:
            return same(held[0], held[1], depth + 1)
        slots = [name for kind in type(one).__mro__ for name in kind.__dict__.get("__slots__", ())]
        return all(
            callable(getattr(one, n)) or same(getattr(one, n), getattr(two, n), depth + 1) for n in slots
        )
    return bool(one == two)
