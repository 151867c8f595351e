"""What a value is made of: a leaf with the texts that it shows, or parts and a way to put it together again.

Nothing here knows a policy. `shape_of` looks one level deep and never calls code that could change the value.
"""

from __future__ import annotations

import _thread
import array
import collections
import copy
import dataclasses
import io
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from pydantic import BaseModel

from nco_guard.values.arrays import array_shape
from nco_guard.values.blocks import role_of_key
from nco_guard.values.parts import OWN, Bare, Branch, Leaf, Opaque, Part, Shape
from nco_guard.values.raised import attributes_of, plain_error, prints_of
from nco_guard.values.readings import readings
from nco_guard.values.roles import Fields, Role, fields_of
from nco_guard.values.scalars import decoded, prints

__all__ = ["copied", "shape_of"]

_CODE = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.MethodWrapperType,
    types.GenericAlias,
)
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_EXTRA = "__pydantic_extra__"
_BUILT_IN = (
    str, bytes, bytearray, int, float, list, tuple, dict, set, frozenset, collections.deque, collections.UserDict,
    collections.UserList,
)  # fmt: skip
# How the values of these modules print is known, and is what their parts do.
_KNOWN_PRINTERS = ("builtins", "collections", "enum")
# They hold nothing that anybody could read.
_EMPTY = (type(None), type(...), type(NotImplemented), _thread.LockType, _thread.RLock)


def shape_of(value: Any, role: Role = Role.VALUE) -> Shape:
    """What a value is made of, one level deep. Cost: that of its parts' list.

    An object that fails when it is looked at, such as a mapping that cannot be read any more, is opaque.
    """
    try:
        return _shape_of(value, role)
    except Exception:
        return Opaque(type(value).__name__)


def _shape_of(value: Any, role: Role) -> Shape:
    kind = type(value)
    if kind in _EMPTY or role in (Role.KEEP, Role.MEDIA):
        return None
    if kind is str:
        return Leaf((value,), None, True)
    if kind is Bare:
        return _bare(value.value, role)
    registered = fields_of(kind)
    if registered is not None:
        return _object(value, registered)
    if kind not in _BUILT_IN and isinstance(value, _BUILT_IN) and not isinstance(value, Enum):
        attributes, shown = _apart_from_content(value), _own_words(value)
        if attributes or shown:
            return _derived(value, role, attributes, shown)
    return _bare(value, role)


def _bare(value: Any, role: Role) -> Shape:
    if (shown := prints(value)) is not None:
        return Leaf(shown, _same_text if isinstance(value, str) else None)
    for handles, make in _SHAPES:
        if isinstance(value, handles):
            return make(value, role)
    return array_shape(value) or _other(value)


# -- classes derived from built-in ones ------------------------------------------------------------------------


def _derived(value: Any, role: Role, attributes: dict[str, Any], shown: tuple[str, ...]) -> Branch:
    """The content, the attributes beside it, and what the value's own class prints."""
    content = Bare(value)
    parts = [Part("content", content, role), *([Part("attributes", attributes)] if attributes else [])]

    def rebuild(new: list[Any]) -> Any:
        made = copy.copy(value) if new[0] is content else new[0]
        if type(made) is not type(value) or not attributes:
            return made
        for name in attributes.keys() - new[1].keys():
            if hasattr(made, name):
                object.__delattr__(made, name)
        for name, part in new[1].items():
            object.__setattr__(made, name, part)
        return made

    return Branch(parts, rebuild, style=OWN, extra=shown)


def _apart_from_content(value: Any) -> dict[str, Any]:
    held = _held_attributes(value)
    if isinstance(value, (collections.UserDict, collections.UserList)):
        held.pop("data", None)
    return held


def _own_words(value: Any) -> tuple[str, ...]:
    """What a value prints as, where its class does not leave that to the built-in one."""
    return _printed(value, [name for name in _SHOWS if _prints_itself(type(value), name)])


def _prints_itself(kind: type, name: str) -> bool:
    for base in kind.__mro__:
        if name in base.__dict__:
            module = getattr(base.__dict__[name], "__module__", None) or base.__module__
            return module not in _KNOWN_PRINTERS
    return False


def _same_text(text: str) -> str:
    return text


# -- texts -----------------------------------------------------------------------------------------------------


def _string(value: str, role: Role) -> Shape:
    def put(text: str) -> Any:
        try:
            return type(value)(text)
        except Exception:
            return text

    return Leaf((str.__str__(value),), put, True)


def _bytes(value: bytes | bytearray | memoryview, role: Role) -> Shape:
    def put(text: str) -> Any:
        data = text.encode("utf-8", "surrogatepass")
        return bytearray(data) if isinstance(value, bytearray) else data

    text = decoded(bytes(value))
    return None if text is None else Leaf((text,), put, True)


def _array(value: array.array[Any], role: Role) -> Shape:
    if value.typecode not in ("u", "w"):
        return _items(value, role)
    return Leaf((value.tounicode(),), lambda text: array.array(value.typecode, text), True)


def _string_file(value: io.StringIO, role: Role) -> Shape:
    return Leaf((value.getvalue(),), io.StringIO, True)


def _bytes_file(value: io.BytesIO, role: Role) -> Shape:
    text = decoded(value.getvalue())
    return None if text is None else Leaf((text,), lambda new: io.BytesIO(new.encode()), True)


def _code(value: Any, role: Role) -> Shape:
    return Leaf((_without_addresses(repr(value)),))


def _without_addresses(text: str) -> str:
    """What an object prints as, without where it is in memory: those digits are nobody's number."""
    return _ADDRESS.sub("", text)


# -- containers ------------------------------------------------------------------------------------------------


def _mapping(value: Mapping[Any, Any], role: Role) -> Shape:
    parts: list[Part] = []
    for key, part in value.items():
        parts.append(Part(key, key, Role.VALUE, True))
        parts.append(Part(key, part, role_of_key(value, key, role)))

    def rebuild(new: list[Any]) -> Any:
        entries = zip(new[::2], new[1::2], parts[1::2], strict=True)
        # Entries that are left out go with their keys.
        pairs = {key: now for key, now, part in entries if part.role is not Role.DROP or now is part.value}
        if type(value) is dict:
            return pairs
        if isinstance(value, types.MappingProxyType):
            return types.MappingProxyType(pairs)
        return _refilled(value, pairs)

    return Branch(parts, rebuild, style="dict")


def _refilled(value: Any, pairs: dict[Any, Any]) -> Any:
    """A mapping of the same class, with what else it holds: a default factory, an order."""
    try:
        new = copy.copy(value)
        new.clear()
        new.update(pairs)
    except Exception:
        try:
            return type(value)(pairs)
        except Exception:
            return pairs
    return new


def _items(value: Any, role: Role) -> Shape:
    kind = type(value)
    inner = role if role in (Role.METADATA, Role.BLOCKS) else Role.VALUE
    parts = [Part(index, part, inner) for index, part in enumerate(value)]

    def rebuild(new: list[Any]) -> Any:
        if kind in (list, tuple, set, frozenset):
            return kind(new)
        if isinstance(value, collections.deque):
            return _filled(value, lambda: kind(new, value.maxlen), new)
        if isinstance(value, tuple) and hasattr(kind, "_make"):
            return kind._make(new)
        return _filled(value, lambda: kind(new), new)

    style = "tuple" if isinstance(value, tuple) else "list"
    if isinstance(value, (set, frozenset)):
        style = "set"
    if hasattr(kind, "_fields") and isinstance(value, tuple):
        parts = [Part(name, part) for name, part in zip(kind._fields, value, strict=False)]
        style = "fields"
    return Branch(parts, rebuild, style=style)


def _filled(value: Any, make: Callable[[], Any], new: list[Any]) -> Any:
    try:
        return make()
    except Exception:
        return tuple(new) if isinstance(value, tuple) else new


def _chain(value: collections.ChainMap[Any, Any], role: Role) -> Shape:
    """Each of its dictionaries, also what is hidden by another one."""
    parts = [Part(index, part, role) for index, part in enumerate(value.maps)]
    return Branch(parts, lambda new: type(value)(*new), style="list")


def _view(value: Any, role: Role) -> Shape:
    return _items(list(value), role)


# -- objects ---------------------------------------------------------------------------------------------------


def _object(value: Any, fields: Fields | None) -> Shape:
    """An object by its attributes, as they are registered."""
    own = _attributes(value)
    roles = {} if fields is None else fields.roles
    names = [*own, *(name for name in roles if name not in own and hasattr(value, name))]
    parts = [
        Part(name, own[name] if name in own else getattr(value, name), roles.get(name, Role.VALUE))
        for name in names
    ]
    rebuild = None if fields is None else fields.rebuild

    def put(new: list[Any]) -> Any:
        changed = {part.name: now for part, now in zip(parts, new, strict=True) if now is not part.value}
        if rebuild is None:
            return copied(value, changed)
        extra = {_EXTRA: changed.pop(_EXTRA)} if _EXTRA in changed else {}
        made = rebuild(value, changed) if changed else value
        return copied(made, extra) if extra else made

    return Branch(parts, put, plain=fields is None)


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        fields = {name: value.__dict__[name] for name in type(value).model_fields if name in value.__dict__}
        # Of fields that a model did not declare, the names came with the data.
        extra = {_EXTRA: value.__pydantic_extra__} if value.__pydantic_extra__ else {}
        return {**fields, **extra, **_cached(value), **_private(value)}
    if dataclasses.is_dataclass(value):
        named = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
        return {**named, **{k: v for k, v in _held_attributes(value).items() if k not in named}}
    return _held_attributes(value)


def _held_attributes(value: Any) -> dict[str, Any]:
    """What an object holds in slots and in its dictionary."""
    slots = [name for base in type(value).__mro__ for name in _slots_of(base) if hasattr(value, name)]
    return {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}


def _cached(value: BaseModel) -> dict[str, Any]:
    """What a model keeps beside its fields, such as a cached property that was asked for."""
    fields = type(value).model_fields
    return {
        name: part
        for name, part in value.__dict__.items()
        if name not in fields and not _cannot_be_read(part)
    }


def _private(value: BaseModel) -> dict[str, Any]:
    """A model's private attributes that hold data; what a program keeps there to work with is its own."""
    held = value.__pydantic_private__ or {}
    return {name: part for name, part in held.items() if not _cannot_be_read(part)}


def _cannot_be_read(value: Any) -> bool:
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


def copied(value: Any, changed: Mapping[str, Any]) -> Any:
    """A copy with other fields, not validated: a field may have to hold a text where it held a number."""
    if isinstance(value, BaseModel):
        private = value.__pydantic_private__ or {}
        beside = {name: changed[name] for name in _cached(value) if name in changed}
        apart = (*private, _EXTRA, *beside)
        model = value.model_copy(update={name: part for name, part in changed.items() if name not in apart})
        model.__dict__.update(beside)
        if _EXTRA in changed:
            object.__setattr__(model, _EXTRA, changed[_EXTRA])
        if model.__pydantic_private__ is not None:
            model.__pydantic_private__.update({n: part for n, part in changed.items() if n in private})
        return model
    new = copy.copy(value)
    for name, part in changed.items():
        object.__setattr__(new, name, part)
    return new


def _error(value: BaseException, role: Role) -> Shape:
    """An exception: all that it holds, and what led to it, which tracebacks and tracers show."""
    try:
        text = str(value)
    except Exception:
        text = ""
    parts = [
        Part("text", text),
        Part("args", value.args),
        # Pairs, not a dictionary: it is no message, whatever its keys are.
        Part("attributes", list(attributes_of(value).items())),
        Part("__cause__", value.__cause__),
        Part("__context__", None if value.__context__ is value.__cause__ else value.__context__),
    ]
    if isinstance(value, AttributeError) and value.obj is not None:
        parts.append(Part("obj", (value.obj,), Role.DROP))
    extra = tuple(reading.text for shown in prints_of(value) for reading in readings(shown))
    return Branch(parts, lambda new: plain_error(value, str(new[0]), new[1]), extra=extra)


def _record(value: Any, role: Role) -> Shape:
    shape = _object(value, None)
    assert isinstance(shape, Branch)
    return dataclasses.replace(shape, extra=_shown(value)) if _tells_more(type(value)) else shape


def _tells_more(kind: type) -> bool:
    """Whether objects of a class may print as more than their attributes."""
    if issubclass(kind, BaseModel):
        own = (kind.__repr__, kind.__str__, kind.__repr_args__)
        common = (BaseModel.__repr__, BaseModel.__str__, BaseModel.__repr_args__)
        return own != common or bool(kind.model_computed_fields)
    made = dataclasses.is_dataclass(kind) and hasattr(kind.__repr__, "__wrapped__")
    return not (made and not _defines(kind, "__str__"))


def _shown(value: Any) -> tuple[str, ...]:
    """What an object prints as, where that is its own class's doing."""
    kind = type(value)
    said = _defines(kind, "__repr__")
    return _printed(
        value, [name for name in _SHOWS if (said and name != "__format__") or _defines(kind, name)]
    )


_SHOWS: dict[str, Callable[[Any], str]] = {"__str__": str, "__repr__": repr, "__format__": format}


def _printed(value: Any, ways: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for way in ways:
        try:
            found.append(_without_addresses(_SHOWS[way](value)))
        except Exception:
            continue
    return tuple(dict.fromkeys(found))


def _defines(kind: type, name: str) -> bool:
    return any(name in base.__dict__ for base in kind.__mro__[:-1])


def _other(value: Any) -> Shape:
    """Objects of classes that nobody told us about: their attributes, and what they print as."""
    kind = type(value)
    if kind is object:
        return None
    if _cannot_be_read(value):
        return Opaque(kind.__name__)
    speaks = any(_defines(kind, name) for name in _SHOWS)
    if speaks or hasattr(value, "__dict__") or any(_slots_of(base) for base in kind.__mro__):
        return _record(value, Role.VALUE)
    return Opaque(kind.__name__)


_SHAPES: tuple[tuple[Any, Callable[[Any, Role], Shape]], ...] = (
    (BaseException, _error),
    (str, _string),
    ((bytes, bytearray, memoryview), _bytes),
    (BaseModel, _record),
    (collections.ChainMap, _chain),
    ((Mapping, collections.UserDict), _mapping),
    (array.array, _array),
    ((list, tuple, set, frozenset, collections.deque), _items),
    ((collections.UserList,), _items),
    ((collections.abc.KeysView, collections.abc.ValuesView, collections.abc.ItemsView), _view),
    (io.StringIO, _string_file),
    (io.BytesIO, _bytes_file),
    (_CODE, _code),
)
