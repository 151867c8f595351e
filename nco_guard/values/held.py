"""What an object holds: its attributes, in slots and in its dictionary, and whether that is all of it.

Nothing here knows a policy. A class written in C keeps what it likes where nobody can read it. So objects are looked
into only where what they hold is known: attributes and slots alone, or the content of a class in a closed list.
"""

from __future__ import annotations

import _thread
import array
import collections
import dataclasses
import datetime
import decimal
import fractions
import functools
import io
import ipaddress
import pathlib
import re
import struct
import sys
import types
import typing
import uuid
import weakref
import zoneinfo
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, TypeVar

import pydantic_core
from pydantic import BaseModel

__all__ = [
    "BARE",
    "EMPTY",
    "EXTRA",
    "apart_from_content",
    "attributes",
    "cached",
    "cannot_be_read",
    "is_whole",
]

EXTRA = "__pydantic_extra__"
#: They hold nothing that anybody could read.
EMPTY = (
    type(None),
    type(...),
    type(NotImplemented),
    type(pydantic_core.PydanticUndefined),
    _thread.LockType,
    _thread.RLock,
    object,
)  # fmt: skip
_POINTER = struct.calcsize("P")
_OFFSET_ZONES = (datetime.timezone, zoneinfo.ZoneInfo, pydantic_core.TzInfo)

# What the classes written in C hold is read where they are taken apart (`shapes`, `scalars`, `arrays`).
_READ = frozenset(
    {
        *EMPTY, str, bytes, bytearray, memoryview, bool, int, float, complex,
        list, tuple, dict, set, frozenset, range, slice, type, re.Pattern, array.array,
        collections.deque, collections.defaultdict, collections.OrderedDict,
        type({}.keys()), type({}.values()), type({}.items()),
        type(collections.OrderedDict().keys()), type(collections.OrderedDict().values()),
        type(collections.OrderedDict().items()),
        decimal.Decimal, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.tzinfo,
        *_OFFSET_ZONES, io.StringIO, io.BytesIO,
        functools.partial, weakref.ref, types.MappingProxyType, types.MethodType, types.FunctionType,
        types.BuiltinFunctionType, types.ModuleType, types.MethodWrapperType, types.GenericAlias, types.UnionType,
        typing.TypeVar, pydantic_core.Url, pydantic_core.MultiHostUrl,
    }
)  # fmt: skip
# What objects of exactly these classes hold and print is their content and nothing beside it.
BARE = frozenset(
    {str, bytes, bytearray, bool, int, float, complex, list, tuple, dict, set, frozenset, collections.deque, range,
     decimal.Decimal, datetime.date, datetime.timedelta, uuid.UUID, fractions.Fraction,
     pathlib.PurePosixPath, pathlib.PosixPath, types.MappingProxyType}
)  # fmt: skip
# Python classes whose slots are their content.
_KNOWN_SLOTS = frozenset(
    base
    for kind in (
        uuid.UUID, fractions.Fraction, pathlib.PosixPath, pathlib.PureWindowsPath,
        ipaddress.IPv4Interface, ipaddress.IPv6Interface, ipaddress.IPv4Network, ipaddress.IPv6Network,
    )
    for base in kind.__mro__
)  # fmt: skip
# What the dictionaries of objects of known classes hold of their content.
_KNOWN_NAMES: tuple[tuple[type, frozenset[str]], ...] = (
    (collections.UserDict, frozenset({"data"})),
    (collections.UserList, frozenset({"data"})),
    (collections.ChainMap, frozenset({"maps"})),
    (Enum, frozenset({"_name_", "__objclass__", "_sort_order_", "_inverted_"})),
)
_INSIDE = {
    "numpy": frozenset(
        {"_mask", "_fill_value", "_hardmask", "_sharedmask", "_isfield", "_baseclass", "_basedict", "_mmap"}
    ),
    "pandas": frozenset(
        {"_mgr", "_attrs", "_flags", "_name", "_data", "_cache", "_id", "_references", "_range", "_levels",
         "_codes", "_names", "sortorder", "_freq", "_item_cache", "_ndarray", "_dtype", "_mask", "_pa_array"}
    ),
}  # fmt: skip
T = TypeVar("T")


def per_class(find: Callable[[type], T]) -> Callable[[type], T]:
    """A function of a class, which keeps what it found for as long as there is the class."""
    known: weakref.WeakKeyDictionary[type, T] = weakref.WeakKeyDictionary()

    @functools.wraps(find)
    def kept(kind: type) -> T:
        try:
            return known[kind]
        except KeyError:
            found = known[kind] = find(kind)
            return found

    return kept


@per_class
def is_whole(kind: type) -> bool:
    """Whether all that objects of a class hold can be read: attributes, slots, and the content of a known class."""
    while not (kind in _READ or _is_read_elsewhere(kind)):
        base = kind.__base__
        if base is None or kind.__basicsize__ > _size_of_attributes(kind, base):
            return False
        kind = base
    return True


def _size_of_attributes(kind: type, base: type) -> int:
    """How large objects of a class are that adds nothing but slots, a dictionary and weak references to its base."""
    slots = sum(isinstance(kind.__dict__.get(n), types.MemberDescriptorType) for n in _slots_of(kind))
    # Negative offsets: before the object, where Python itself manages them.
    fixed = [kind.__dictoffset__, kind.__weakrefoffset__]
    before = [base.__dictoffset__, base.__weakrefoffset__]
    var = kind.__itemsize__ != 0
    added = sum((now > 0 or (var and now < 0)) and not was for now, was in zip(fixed, before, strict=True))
    return base.__basicsize__ + _POINTER * (slots + added)


def _is_read_elsewhere(kind: type) -> bool:
    """Whether a class is one of those that `arrays` takes apart, or an error of Python's own."""
    if kind.__module__ in ("builtins", "asyncio.exceptions") and issubclass(kind, BaseException):
        return True
    root = kind.__module__.partition(".")[0]
    module: Any = sys.modules.get(root)
    if root == "numpy" and module is not None:
        return issubclass(kind, (module.ndarray, module.generic, module.dtype))
    if root == "pandas" and module is not None:
        scalars = (
            module.Timestamp,
            module.Timedelta,
            module.Period,
            module.Interval,
            type(module.NaT),
            type(module.NA),
        )
        return issubclass(kind, (*scalars, module.api.extensions.ExtensionArray))
    if root == "torch" and module is not None:
        return kind is module.Tensor
    if root == "xml" and "xml.etree.ElementTree" in sys.modules:
        return kind is sys.modules["xml.etree.ElementTree"].Element
    return issubclass(kind, pydantic_core.ValidationError)


# -- attributes ------------------------------------------------------------------------------------------------


def attributes(value: Any) -> dict[str, Any]:
    """What an object holds, in the order of its fields if it has any."""
    if isinstance(value, BaseModel):
        fields = {name: value.__dict__[name] for name in type(value).model_fields if name in value.__dict__}
        # Of fields that a model did not declare, the names came with the data.
        extra = {EXTRA: value.__pydantic_extra__} if value.__pydantic_extra__ else {}
        slots = dict(_in_slots(value, BaseModel.__mro__))
        return {**fields, **extra, **cached(value), **private(value), **slots}
    if dataclasses.is_dataclass(value):
        named = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
        return {**named, **{k: v for k, v in _held(value).items() if k not in named}}
    return _held(value)


def apart_from_content(value: Any) -> dict[str, Any]:
    """What an object of a class derived from a known one holds beside the content of that."""
    kind = type(value)
    if kind in BARE:
        return {}
    held = {**dict(_in_slots(value, _KNOWN_SLOTS)), **_dictionary(value)}
    inside = next((names for base, names in _KNOWN_NAMES if isinstance(value, base)), frozenset())
    for base in kind.__mro__:
        inside |= _INSIDE.get(base.__module__.partition(".")[0], frozenset())
    found = {name: part for name, part in held.items() if name not in inside}
    if isinstance(value, Enum):
        # Which of its members a flag holds is said by its number.
        found = {name: part for name, part in found.items() if name != "_value_" or not _is_plain(part)}
    if isinstance(value, collections.defaultdict) and value.default_factory is not None:
        found["default_factory"] = value.default_factory
    if isinstance(value, (datetime.datetime, datetime.time)) and type(value.tzinfo) not in (
        None,
        *_OFFSET_ZONES,
    ):
        found.update({} if value.tzinfo is None else {"tzinfo": value.tzinfo})
    if isinstance(value, memoryview) and value.nbytes != len(memoryview(value.obj).cast("B")):
        found["obj"] = value.obj
    return found


def _is_plain(value: Any) -> bool:
    return type(value) in (str, int, float, bool, bytes)


def _held(value: Any) -> dict[str, Any]:
    return {**dict(_in_slots(value)), **_dictionary(value)}


def _dictionary(value: Any) -> dict[str, Any]:
    held = getattr(value, "__dict__", None)
    return dict(held) if isinstance(held, dict) else {}


def _in_slots(value: Any, known: Any = ()) -> Iterator[tuple[str, Any]]:
    order = type(value).__mro__
    for place, names in _slots_in_order(type(value)):
        for name in names if order[place] not in known else ():
            if hasattr(value, name):
                yield name, getattr(value, name)


@per_class
def _slots_in_order(kind: type) -> list[tuple[int, list[str]]]:
    """The names of slots, by the places of those of a class's bases that have any."""
    found = [(place, _slots_of(base)) for place, base in enumerate(kind.__mro__)]
    return [(place, names) for place, names in found if names]


def cached(value: BaseModel) -> dict[str, Any]:
    """What a model keeps beside its fields, such as a cached property that was asked for."""
    fields = type(value).model_fields
    return {
        name: part for name, part in value.__dict__.items() if name not in fields and not cannot_be_read(part)
    }


def private(value: BaseModel) -> dict[str, Any]:
    """A model's private attributes that hold data; what a program keeps there to work with is its own."""
    held = value.__pydantic_private__ or {}
    return {name: part for name, part in held.items() if not cannot_be_read(part)}


def cannot_be_read(value: Any) -> bool:
    """Whether reading it would use it up or wait."""
    return isinstance(value, (Iterator, io.IOBase)) or hasattr(value, "__await__")


def _slots_of(base: type) -> list[str]:
    """The names of a class's slots as they are on the object: those that are private to it carry its name."""
    slots = base.__dict__.get("__slots__", ())
    prefix = f"_{base.__name__.lstrip('_')}"
    return [
        prefix + name if name.startswith("__") and not name.endswith("__") and prefix != "_" else name
        for name in ((slots,) if isinstance(slots, str) else slots)
        if name not in ("__dict__", "__weakref__")
    ]
