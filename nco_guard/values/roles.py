"""How the fields of types are read: frameworks register theirs, and nothing of them is imported here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

from nco_guard.arguments import function
from nco_guard.errors import ArgumentError

__all__ = ["Fields", "Role", "fields_of", "register"]

Rebuild = Callable[[Any, Mapping[str, Any]], Any]
"""(the object, its fields that changed) -> one of the same class with the new fields."""


class Role(Enum):
    """How a field is read."""

    TEXT = "text"  # a text that somebody reads; streamed in pieces
    BLOCKS = "blocks"  # a text, or a list of texts and blocks that are read together; streamed in pieces
    VALUE = "value"  # any value
    JSON = "json"  # text that somebody will parse as JSON, or what was parsed
    IDENTIFIER = "identifier"  # an id: mapped alike everywhere
    NAME = "name"  # the name of a tool: refused if it matches
    METADATA = (
        "metadata"  # what a provider says about an answer: log probabilities dropped, its own counts kept
    )
    DROP = "drop"  # left out
    KEEP = "keep"  # not looked into: holds no text that is shown
    MEDIA = "media"  # the same for images, sound, video, files


@dataclass(frozen=True, slots=True)
class Fields:
    """How objects of one type are read.

    roles: of the fields that have one; others are VALUE. rebuild: makes the object anew (None: a copy, not validated).
    chunk: makes a piece like another one that has some fields alone. With it, objects of this type are pieces of one,
    which `+` joins: their TEXT and BLOCKS fields stream, all else is kept until the stream is over. vouched: the class
    that was registered, whose own `str` and `repr` show fields alone.
    """

    kind: type
    roles: Mapping[str, Role] = field(default_factory=dict)
    rebuild: Rebuild | None = None
    chunk: Rebuild | None = None
    vouched: type = object


_registered: dict[type, Fields] = {}
_found: WeakKeyDictionary[type, Fields | None] = WeakKeyDictionary()
_lock = threading.Lock()


def register(
    kind: type, fields: Mapping[str, Role], *, rebuild: Rebuild | None = None, chunk: Rebuild | None = None
) -> None:
    """Say how objects of a type, and of types derived from it, are read.

    `fields`: attribute -> role, added to what is registered for the types that it derives from; attributes not named
    are read as VALUE. `rebuild`, `chunk`: see `Fields`. The last registration of a type counts. What objects print by
    methods that the type itself has is taken to be its fields; what a derived type prints in another way is searched.

    Examples:
        >>> class Ticket:
        ...     def __init__(self, number, body):
        ...         self.number, self.body = number, body
        >>> register(Ticket, {"number": Role.IDENTIFIER, "body": Role.TEXT})
        >>> Cleaner("pii").value(Ticket("T-1", "from jane.doe@example.com")).body
        'from [redacted]'
    """
    if not isinstance(kind, type) or not isinstance(fields, Mapping):
        raise ArgumentError(
            "register: a class and a mapping from names of its attributes to roles are needed"
        )
    for name, role in fields.items():
        if not isinstance(name, str) or not isinstance(role, Role):
            raise ArgumentError(
                f"field {name!r} of {kind.__name__}: a Role is needed, got {type(role).__name__}"
            )
    for name, way in (("rebuild", rebuild), ("chunk", chunk)):
        if way is not None:
            function(name, way, "a function of an object and its new fields, or None")
    with _lock:
        _registered[kind] = Fields(kind, dict(fields), rebuild, chunk)
        _found.clear()


def fields_of(kind: type) -> Fields | None:
    """What is registered for a type or those that it derives from, the nearest first; None if nothing is."""
    try:
        return _found[kind]
    except KeyError:
        pass
    with _lock:
        known = [_registered[base] for base in kind.__mro__ if base in _registered]
        found: Fields | None = None
        if known:
            roles: dict[str, Role] = {}
            for part in reversed(known):
                roles.update(part.roles)
            rebuild = next((part.rebuild for part in known if part.rebuild is not None), None)
            chunk = next((part.chunk for part in known if part.chunk is not None), None)
            found = Fields(kind, roles, rebuild, chunk, known[0].kind)
        _found[kind] = found
    return found
