"""What an exception holds: its text and arguments, all its attributes, and what led to it. Knows no policy."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_core import ValidationError

__all__ = ["attributes_of", "plain_error", "prints_of"]

# Classes that say what an error means to a program, and can be made from a text.
_MODULES = ("builtins", "asyncio.exceptions")


def prints_of(error: BaseException) -> tuple[str, ...]:
    """What an error prints as, and what its class is called."""
    kind = type(error)
    found = [kind.__name__, kind.__qualname__]
    for show in (str, repr, format):
        try:
            found.append(show(error))
        except Exception:
            continue
    return tuple(dict.fromkeys(found))


def attributes_of(error: BaseException) -> dict[str, Any]:
    """Its attributes: those of the object, those in slots, and those that Python's own errors keep elsewhere.

    Not among them: arguments, causes, tracebacks, and the object that an `AttributeError` was about, which may be any
    object of a program, and which nobody shows.
    """
    found: dict[str, Any] = {}
    for base in type(error).__mro__:
        for name, way in vars(base).items():
            # Slots with a mangled name as well, so not by the name but by what Python reads it with.
            if not isinstance(way, (types.MemberDescriptorType, types.GetSetDescriptorType)) or name in found:
                continue
            if name == "args" or (name.startswith("__") and name.endswith("__")) or way is _ABOUT:
                continue
            try:
                found[name] = way.__get__(error, type(error))
            except Exception:
                continue
    if isinstance(error, ValidationError):
        found["errors"] = list(_inputs(error))
    return {**found, **vars(error)}


_ABOUT = vars(AttributeError)["obj"]


def _inputs(error: ValidationError) -> Iterator[Any]:
    """Its text shows long inputs in part only."""
    for one in error.errors(include_url=False):
        yield {name: part for name, part in one.items() if name != "ctx"}
        yield from (one.get("ctx") or {}).values()


def plain_error(error: BaseException, text: str, args: Sequence[Any]) -> BaseException:
    """One of the nearest of Python's own classes, without anything else that the error held."""
    kinds = [kind for kind in type(error).__mro__ if kind.__module__ in _MODULES and kind is not object]
    for kind in kinds:
        as_made = kind is type(error) or issubclass(kind, BaseExceptionGroup)
        for given in ((*args,), (text,)) if as_made else ((text,),):
            try:
                made = kind(*given)
            except Exception:
                continue
            assert isinstance(made, BaseException)
            return made
    return Exception(text)
