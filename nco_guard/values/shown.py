"""What an object prints as, where its class does more than show what it holds. Knows no policy."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import types
import uuid
import weakref
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel, RootModel

from nco_guard.values.readings import readings

__all__ = ["own_words"]

_ADDRESS = re.compile(r" at 0x([0-9A-Fa-f]+)")
_SHOWS: dict[str, Callable[[Any], str]] = {"__str__": str, "__repr__": repr, "__format__": format}
# By what a model prints itself.
_OF_MODELS = ("__repr_str__", "__repr_name__", "__repr_args__", "__repr_recursion__")
# Their methods show what such an object holds, and no more. Only these functions do, not others of the same classes.
_CLASSES: tuple[type, ...] = (
    object, str, bytes, bytearray, int, bool, float, complex, list, tuple, dict, set, frozenset, range, memoryview,
    collections.deque, collections.defaultdict, collections.OrderedDict, collections.Counter, collections.ChainMap,
    collections.UserDict, collections.UserList, collections.UserString, types.SimpleNamespace,
    types.MappingProxyType, collections.abc.KeysView, collections.abc.ValuesView, collections.abc.ItemsView,
    decimal.Decimal, fractions.Fraction, uuid.UUID, datetime.date, datetime.datetime, datetime.time,
    datetime.timedelta, datetime.timezone, datetime.tzinfo, zoneinfo.ZoneInfo, re.Pattern,
    pathlib.PurePath, pathlib.PosixPath, ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network,
    ipaddress.IPv6Network, ipaddress.IPv4Interface, ipaddress.IPv6Interface,
    enum.Enum, enum.IntEnum, enum.StrEnum, enum.Flag, enum.IntFlag, enum.ReprEnum, BaseModel, RootModel,
)  # fmt: skip
_KNOWN = [getattr(kind, way) for kind in _CLASSES for way in (*_SHOWS, *_OF_MODELS) if hasattr(kind, way)]
_IDS = frozenset(map(id, _KNOWN))
_NAMED_TUPLE = collections.namedtuple("_NAMED_TUPLE", "a").__repr__.__code__
_made: weakref.WeakKeyDictionary[type, tuple[Any, bool]] = weakref.WeakKeyDictionary()


def own_words(value: Any, vouched: type = object, parts: Iterable[Any] = ()) -> tuple[str, ...]:
    """The texts that an object prints as, by `str`, `repr` and `format`, and with their JSON escapes read.

    Empty where these are methods that are known to show nothing but what such an object holds: those of `vouched`, and
    those in a closed list. `parts`: whose addresses in memory may stand there as well as its own.
    """
    kind = type(value)
    if _only_shows_parts(kind, vouched):
        return ()
    printed: dict[str, None] = {}
    for way in _SHOWS.values():
        try:
            text = way(value)
        except (RecursionError, MemoryError):
            raise  # somebody else may have room to print it
        except Exception:
            continue
        for reading in readings(without_addresses(text, value, *parts)):
            printed[reading.text] = None
    return tuple(printed)


def without_addresses(text: str, *objects: Any) -> str:
    """A text without the addresses in memory of some objects: those digits are nobody's number."""
    if " at 0x" not in text:
        return text
    known = {id(one) for one in objects}
    return _ADDRESS.sub(lambda found: "" if int(found[1], 16) in known else found[0], text)


def _only_shows_parts(kind: type, vouched: type) -> bool:
    model = issubclass(kind, BaseModel)
    for way in (*_SHOWS, *_OF_MODELS) if model else _SHOWS:
        method = getattr(kind, way)
        if (
            id(method) not in _IDS
            and method is not getattr(vouched, way, None)
            and not _is_made(kind, way, method)
        ):
            return False
    if not model:
        return True
    computed = getattr(kind, "model_computed_fields", {})
    return not computed or computed == getattr(vouched, "model_computed_fields", {})


def _is_made(kind: type, way: str, method: Any) -> bool:
    """Whether a method is one that Python makes for named tuples and data classes, and not one like it."""
    if way != "__repr__":
        return False
    if getattr(method, "__code__", None) is _NAMED_TUPLE:
        return True
    if not dataclasses.is_dataclass(kind) or not hasattr(method, "__wrapped__"):
        return False
    known = _made.get(kind)
    if known is None or known[0] is not method:
        known = _made[kind] = (method, _is_of_data_class(kind, method))
    return known[1]


def _is_of_data_class(kind: type, method: Any) -> bool:
    fields = [(f.name, Any, dataclasses.field(default=None, repr=f.repr)) for f in dataclasses.fields(kind)]
    made: Any = dataclasses.make_dataclass("Like", fields).__repr__
    return all(
        getattr(method, "__code__", None) is made.__code__
        and (now.co_code, now.co_names, now.co_consts) == (then.co_code, then.co_names, then.co_consts)
        for now, then in [(method.__wrapped__.__code__, made.__wrapped__.__code__)]
    )
