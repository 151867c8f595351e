"""Arguments as they come from callers: what cannot be meant is refused by name, before anything is done with it.

Whole numbers of any library are taken; text is `str` and nothing else, since bytes and lists would be searched for
something that is not in them.
"""

from __future__ import annotations

import difflib
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from nco_guard.errors import ArgumentError, ArgumentValueError

__all__ = [
    "OnMatch",
    "as_whole",
    "choice",
    "file_path",
    "function",
    "meant",
    "names_arguments",
    "near",
    "one_by_one",
    "text",
    "texts",
    "token_ids",
    "truth",
    "whole",
    "whole_characters",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")

OnMatch = Literal["redact", "raise", "report", "drop", "retry"]
"""What to do about a match: replace it, raise `ViolationError`, report it and change nothing, leave out what holds it,
or ask whoever wrote it again.

Everything that acts on matches has an `action`, which is some of these words; the others are an `ArgumentValueError`
that lists them.
"""


def whole(name: str, value: Any, remedy: str, *, least: int | None = None) -> int:
    """A whole number, of Python, NumPy or a tensor of one; `ArgumentError` for anything else, truth values too.

    `least`: `ArgumentValueError` for what is smaller.
    """
    if _is_truth(value):
        raise ArgumentError(f"{name}: a truth value is no number; {remedy}")
    number = as_whole(value)
    if number is None:
        raise ArgumentError(f"{name}: a whole number is needed, not {type(value).__name__}; {remedy}")
    if least is not None and number < least:
        raise ArgumentValueError(f"{name} must be {least} or more, got {number}; {remedy}")
    return number


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or "bool" in str(getattr(value, "dtype", ""))


def as_whole(value: Any) -> int | None:
    """A whole number, of Python, NumPy or a tensor of one, as an int; None for anything else, truth values too."""
    try:
        return None if _is_truth(value) else operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """Several token ids, sorted and each once. Errors: as `whole`."""
    remedy = f"give a list of token ids, as {name}=[2]"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ArgumentError(f"{name}: {type(value).__name__} is no list; {remedy}")
    return tuple(sorted({whole(name, each, remedy) for each in value}))


def near(word: str, known: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str | None:
    """The known name that somebody meant who wrote `word`; None if it is like none of them."""
    names = sorted(known)
    synonym = (synonyms or {}).get(word)
    return synonym if synonym in names else next(iter(difflib.get_close_matches(word, names, n=1)), None)


def meant(name: str | None, otherwise: str = "") -> str:
    """The end of a message about a name that is not known: the one that was meant, or else what to do."""
    return otherwise if name is None else f", did you mean {name!r}?"


def names_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function that refuses keywords which it does not have by `ArgumentError`, with the name that was meant."""
    known = [name for name in signature(function).parameters if name != "self" and name != "cls"]

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if unknown := [name for name in kwargs if name not in known]:
            end = meant(near(unknown[0], known), f"; it takes {', '.join(known)}")
            raise ArgumentError(f"{unknown[0]}: {function.__qualname__} has no such argument{end}")
        return function(*args, **kwargs)

    return checked


def truth(name: str, value: Any) -> bool:
    """True or False; `ArgumentError` for anything else."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}: True or False is needed, not {type(value).__name__}")
    return value


def text(name: str, value: Any) -> str:
    """A text; `ArgumentError` for anything else."""
    if not isinstance(value, str):
        raise ArgumentError(f"{name}: a str is needed, not {_kind(value)}")
    return value


def texts(name: str, values: Any) -> Sequence[str]:
    """Several texts; `ArgumentError` for anything else, also a single text: its characters would be looked at alone."""
    if isinstance(values, str | bytes | Mapping | AbstractSet) or not hasattr(values, "__getitem__"):
        raise ArgumentError(f"{name}: a list of texts is needed, not {_kind(values)}")
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise ArgumentError(f"{name}[{number}]: a str is needed, not {_kind(value)}")
    return values  # type: ignore[no-any-return]


def _kind(value: Any) -> str:
    """What a value is; never what it says."""
    kind = type(value).__name__
    return f"{kind}: decode them first" if isinstance(value, bytes | bytearray) else kind


def whole_characters(name: str, value: Any) -> None:
    """`ArgumentValueError` for text, also in lists and mappings, that no tokenizer can read: half of a character."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, Mapping):
            stack += one.values()
        elif isinstance(one, list | tuple):
            stack += one
        elif isinstance(one, str) and not one.isascii():
            try:
                one.encode()
            except UnicodeEncodeError as error:
                at = error.start
                raise ArgumentValueError(
                    f"{name}: half of a character (a lone surrogate) at position {at} of a text; replace it, as by "
                    'text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")'
                ) from None


def one_by_one(name: str, values: Iterable[Any], kinds: tuple[type, ...], wanted: str, call: str) -> None:
    """Arguments that `call` takes as `*name`; `ArgumentError` for another kind, also for a list of the right ones."""
    for number, value in enumerate(values):
        if not isinstance(value, kinds):
            several = isinstance(value, list | tuple | AbstractSet)
            mend = f"; give them one by one: {call}(*{name})" if several else ""
            raise ArgumentError(f"{name}[{number}]: {wanted} is needed, not {_kind(value)}{mend}")


def choice(name: str, value: Any, known: Sequence[str]) -> str:
    """One of a few words; `ArgumentValueError` for any other, `ArgumentError` for what is no text."""
    among = f"one of {', '.join(map(repr, known))}"
    if not isinstance(value, str):
        raise ArgumentError(f"{name}: {among}, not {type(value).__name__}")
    if value not in known:
        raise ArgumentValueError(f"{name} {value!r}: {among}")
    return value


def function(name: str, value: Any, takes: str) -> Any:
    """Something that can be called; `ArgumentError` for anything else."""
    if not callable(value):
        raise ArgumentError(f"{name}: give {takes}, not {type(value).__name__}")
    return value


def file_path(name: str, value: Any) -> Path:
    """A path that the system can have; `ArgumentError` and `ArgumentValueError` for anything else."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise ArgumentError(f"{name}: a path is needed, as str or pathlib.Path, not {type(value).__name__}")
    try:
        usable = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise ArgumentValueError(f"{name}: no file can have this name: it holds a null or half a character")
    return Path(value)
