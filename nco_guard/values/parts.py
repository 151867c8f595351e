"""The records that say what a value is made of; `shapes` makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nco_guard.values.roles import Role

__all__ = ["OWN", "Bare", "Branch", "Leaf", "Opaque", "Part", "ValueShape"]

OWN = "own"
"""The style of a value of a class derived from a built-in one: its content comes first, then its attributes."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a container. `name`: its place there; `is_key`: it is a key and stands for a place itself."""

    name: Any
    value: Any
    role: Role = Role.VALUE
    is_key: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Bare:
    """A value without the attributes of its own and without what its class makes of it: the content alone."""

    value: Any


@dataclass(frozen=True, slots=True)
class Leaf:
    """What is looked at as text. `put`: what stands there if a text takes its place; None: the text itself."""

    texts: tuple[str, ...]
    put: Callable[[str], Any] | None = None
    is_text: bool = False  # the text can be replaced in part


@dataclass(frozen=True, slots=True)
class Branch:
    """What has parts. `rebuild` takes as many new ones. `extra`: texts that the whole shows beside its parts.

    plain: a reader is shown it as a whole, such as a dictionary that is printed. style: how Python prints it. follows:
    the last part is worked out from the others, and cannot be replaced.
    """

    parts: Sequence[Part]
    rebuild: Callable[[list[Any]], Any]
    plain: bool = True
    style: str = "fields"
    extra: tuple[str, ...] = ()
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Opaque:
    """What cannot be looked into; `name` is its type's."""

    name: str


ValueShape = Leaf | Branch | Opaque | None
"""None: nothing that a text could stand in."""
