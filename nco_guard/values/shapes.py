"""What a value is made of: a leaf with the texts that it shows, or parts and a way to put it together again.

Nothing here knows a policy. `shape_of` looks one level deep and never calls code that could change the value.
"""

from __future__ import annotations

import array
import collections
import copy
import functools
import io
import types
import typing
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from nco_guard.values.arrays import array_shape, class_read_here
from nco_guard.values.blocks import role_of_key
from nco_guard.values.held import (
    BARE,
    EMPTY,
    EXTRA,
    apart_from_content,
    attributes,
    cached,
    cannot_be_read,
    is_whole,
)
from nco_guard.values.parts import OWN, Bare, Branch, Leaf, Opaque, Part, ValueShape
from nco_guard.values.raised import attributes_of, plain_error, prints_of
from nco_guard.values.readings import readings
from nco_guard.values.roles import Fields, Role, fields_of
from nco_guard.values.scalars import decoded, decoded_wide, prints
from nco_guard.values.shown import own_words
from nco_guard.values.worked_out import worked_out

__all__ = ["copied", "shape_of"]

_CODE = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    types.MethodWrapperType,
    types.GenericAlias,
    types.UnionType,
    typing.TypeVar,
)


def shape_of(value: Any, role: Role = Role.VALUE) -> ValueShape:
    """What a value is made of, one level deep. Cost: that of its parts' list.

    An object that fails when it is looked at, such as a mapping that cannot be read any more, is opaque.
    """
    try:
        return _shape_of(value, role)
    except Exception:
        return Opaque(type(value).__name__)


def _shape_of(value: Any, role: Role) -> ValueShape:
    kind = type(value)
    if role in (Role.KEEP, Role.MEDIA):
        return None
    if value is None:
        return _NONE
    if kind in EMPTY:
        return None
    if kind is str:
        return Leaf((value,), None, True)
    if kind is Bare:
        return _bare(value.value, role)
    registered = fields_of(kind)
    if registered is not None:
        return _object(value, registered)
    if kind in BARE:
        return _bare(value, role)
    if not is_whole(kind):
        return Opaque(kind.__name__)
    for handles, make in _OBJECTS:
        if isinstance(value, handles):
            return make(value, role)
    bare = _bare(value, role)
    if bare is _UNKNOWN:
        return Opaque(kind.__name__) if cannot_be_read(value) else _record(value, role)
    apart = apart_from_content(value)
    words = own_words(value, class_read_here(kind), apart.values())
    return _derived(value, role, apart, words) if apart or words else bare


def _bare(value: Any, role: Role) -> ValueShape:
    if (make := _MAKERS.get(type(value))) is not None:
        return make(value, role)
    if (shown := prints(value)) is not None:
        return Leaf(shown, _same_text if isinstance(value, str) else None)
    for handles, make in _SHAPES:
        if isinstance(value, handles):
            return make(value, role)
    shape: ValueShape = array_shape(value) or _UNKNOWN
    return shape


# -- classes derived from built-in ones ------------------------------------------------------------------------


def _derived(value: Any, role: Role, attributes: dict[str, Any], shown: tuple[str, ...]) -> Branch:
    """The content, the attributes beside it, and what the value's own class prints."""
    content = Bare(value)
    parts = [Part("content", content, role), *([Part("attributes", attributes)] if attributes else [])]

    def rebuild(new: list[Any]) -> Any:
        made = copy.copy(value) if new[0] is content else new[0]
        if type(made) is not type(value) or not attributes:
            return made
        _refuse_same(made, value)
        for name in attributes.keys() - new[1].keys():
            if hasattr(made, name):
                object.__delattr__(made, name)
        for name, part in new[1].items():
            callable_or_none = None if name == "default_factory" and not callable(part) else part
            object.__setattr__(made, name, callable_or_none)
        return made

    return Branch(parts, rebuild, style=OWN, extra=shown)


def _refuse_same(made: Any, value: Any) -> None:
    """There is only one of some objects, such as members of enums, and those are the program's."""
    if made is value:
        raise TypeError(f"a {type(value).__name__} cannot be copied")


def _same_text(text: str) -> str:
    return text


# -- texts -----------------------------------------------------------------------------------------------------


def _string(value: str, role: Role) -> ValueShape:
    def put(text: str) -> Any:
        try:
            return type(value)(text)
        except Exception:
            return text

    return Leaf((str.__str__(value),), put, True)


def _bytes(value: bytes | bytearray | memoryview, role: Role) -> ValueShape:
    def put(text: str) -> Any:
        data = text.encode("utf-8", "surrogatepass")
        return bytearray(data) if isinstance(value, bytearray) else data

    return _of_bytes(bytes(value), put)


def _of_bytes(data: bytes, put: Callable[[str], Any]) -> ValueShape:
    text, wide = decoded(data), decoded_wide(data)
    if wide is not None:
        # Read in both ways, and then no part of it can be replaced.
        return Leaf((wide,) if text is None else (text, wide), put)
    return None if text is None else Leaf((text,), put, True)


def _array(value: array.array[Any], role: Role) -> ValueShape:
    if value.typecode not in ("u", "w"):
        return _items(value, role)
    return Leaf((value.tounicode(),), lambda text: array.array(value.typecode, text), True)


def _string_file(value: io.StringIO, role: Role) -> ValueShape:
    return Leaf((value.getvalue(),), io.StringIO, True)


def _bytes_file(value: io.BytesIO, role: Role) -> ValueShape:
    return _of_bytes(value.getvalue(), lambda new: io.BytesIO(new.encode()))


def _code(value: Any, role: Role) -> ValueShape:
    own = getattr(value, "__self__", None)
    if own is None or isinstance(own, (type, types.ModuleType)):
        return Leaf(own_words(value))
    return _of_others(value, {"self": own})


def _bound(value: functools.partial[Any], role: Role) -> ValueShape:
    held = {"function": value.func, "arguments": value.args, "keywords": value.keywords}

    def rebuild(new: list[Any]) -> Any:
        return functools.partial(new[0], *new[1], **new[2])

    return _of_others(value, held, rebuild)


def _weak(value: weakref.ref[Any], role: Role) -> ValueShape:
    return _of_others(value, {"object": value()})


def _slice(value: slice, role: Role) -> ValueShape:
    return _of_others(
        value, {"start": value.start, "stop": value.stop, "step": value.step}, lambda new: slice(*new)
    )


def _of_others(
    value: Any, held: Mapping[str, Any], rebuild: Callable[[list[Any]], Any] | None = None
) -> Branch:
    """What refers to other objects, with its attributes; without `rebuild` it cannot be made anew."""
    parts = [Part(name, part) for name, part in held.items()]
    if attributes_beside := list(apart_from_content(value).items()):
        parts.append(Part("attributes", attributes_beside))

    def made(new: list[Any]) -> Any:
        if rebuild is None:
            raise TypeError(f"a {type(value).__name__} cannot be made anew")
        return rebuild(new)

    about = [part for one in held.values() for part in (one, getattr(one, "__self__", None))]
    return Branch(parts, made, plain=False, extra=own_words(value, parts=about))


# -- containers ------------------------------------------------------------------------------------------------


def _mapping(value: Mapping[Any, Any], role: Role) -> ValueShape:
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


def _items(value: Any, role: Role) -> ValueShape:
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


def _chain(value: collections.ChainMap[Any, Any], role: Role) -> ValueShape:
    """Each of its dictionaries, also what is hidden by another one."""
    parts = [Part(index, part, role) for index, part in enumerate(value.maps)]
    return Branch(parts, lambda new: type(value)(*new), style="list")


def _view(value: Any, role: Role) -> ValueShape:
    shape = _items(list(value), role)
    assert isinstance(shape, Branch)
    whole = getattr(value, "mapping", None)
    if whole is None:
        return shape
    # Of a dictionary it shows a part, and gives all of it.
    parts, rebuild = [*shape.parts, Part("mapping", whole)], shape.rebuild
    return Branch(parts, lambda new: rebuild(new[:-1]), plain=False, style="list")


# -- objects ---------------------------------------------------------------------------------------------------


def _object(value: Any, fields: Fields | None) -> ValueShape:
    """An object by its attributes, as they are registered."""
    own = attributes(value)
    roles = {} if fields is None else fields.roles
    names = [*own, *(name for name in roles if name not in own and hasattr(value, name))]
    held = ((name, own[name] if name in own else getattr(value, name)) for name in names)
    # None in an attribute says that nothing is there; in data it is a value.
    parts = [
        Part(name, part, Role.KEEP if part is None else roles.get(name, Role.VALUE)) for name, part in held
    ]
    rebuild = None if fields is None else fields.rebuild
    vouched = object if fields is None else fields.vouched
    beside = worked_out(value, vouched)

    def put(new: list[Any]) -> Any:
        changed = {
            part.name: now for part, now in zip(parts, new, strict=not beside) if now is not part.value
        }
        if rebuild is None:
            return copied(value, changed)
        extra = {EXTRA: changed.pop(EXTRA)} if EXTRA in changed else {}
        made = rebuild(value, changed) if changed else value
        return copied(made, extra) if extra else made

    kind = type(value)
    words = own_words(value, vouched, own.values())
    named = () if fields is not None else (kind.__qualname__,)
    shown = [*parts, Part("worked out", beside)] if beside else parts
    return Branch(shown, put, plain=fields is None, extra=(*named, *words), follows=bool(beside))


def copied(value: Any, changed: Mapping[str, Any]) -> Any:
    """A copy with other fields, not validated: a field may have to hold a text where it held a number."""
    if isinstance(value, BaseModel):
        private = value.__pydantic_private__ or {}
        beside = {name: changed[name] for name in cached(value) if name in changed}
        apart = (*private, EXTRA, *beside)
        model = value.model_copy(update={name: part for name, part in changed.items() if name not in apart})
        model.__dict__.update(beside)
        if EXTRA in changed:
            object.__setattr__(model, EXTRA, changed[EXTRA])
        if model.__pydantic_private__ is not None:
            model.__pydantic_private__.update({n: part for n, part in changed.items() if n in private})
        return model
    new = copy.copy(value)
    _refuse_same(new, value)
    for name, part in changed.items():
        object.__setattr__(new, name, part)
    return new


def _error(value: BaseException, role: Role) -> ValueShape:
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


def _record(value: Any, role: Role) -> ValueShape:
    return _object(value, None)


#: What is no content of a known class.
_UNKNOWN: Any = Opaque("")
_NONE = Leaf(("None", "null"))
_OBJECTS: tuple[tuple[Any, Callable[[Any, Role], ValueShape]], ...] = (
    (BaseException, _error),
    (BaseModel, _record),
    (_CODE, _code),
    (functools.partial, _bound),
    (weakref.ref, _weak),
    (slice, _slice),
)
_SHAPES: tuple[tuple[Any, Callable[[Any, Role], ValueShape]], ...] = (
    (str, _string),
    ((bytes, bytearray, memoryview), _bytes),
    (collections.ChainMap, _chain),
    ((Mapping, collections.UserDict), _mapping),
    (array.array, _array),
    ((list, tuple, set, frozenset, collections.deque), _items),
    ((collections.UserList,), _items),
    ((collections.abc.KeysView, collections.abc.ValuesView, collections.abc.ItemsView), _view),
    (io.StringIO, _string_file),
    (io.BytesIO, _bytes_file),
)
# Of the most frequent classes what the search through these comes to.
_MAKERS: dict[type, Callable[[Any, Role], ValueShape]] = {
    kind: next(make for handles, make in _SHAPES if issubclass(kind, handles))
    for kind in (dict, list, tuple, set, frozenset)
}
