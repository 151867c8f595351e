"""How the harness looks: a slow walk through any object, and all the ways in which a reader may read what is there.

Written for these tests alone: it shares no code with `nco_guard.values`, and where it errs it errs by looking too long.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import pydantic

from tests.leaks.canaries import FOUND

__all__ = ["error_texts", "leaks_in", "texts"]

_DEPTH = 12
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\"\\/bfnrt]))")
_EXPONENT = re.compile(r"[0-9]+\.[0-9]+e[0-9]{1,2}\b")
_LITTLE = {"n": "\n", "t": "\t"}
#: What an object holds that is no part of what it says: models, guards, policies, code, locks.
_OPAQUE = (
    *(
        f"nco_guard.{room}"
        for room in ("guard", "policy", "compiler", "masking", "automata", "tokens", "scan", "engines")
    ),
    *(
        "nco_guard.session",
        "nco_guard.storage.store",
        "nco_guard.audit",
        "torch",
        "transformers",
        "tokenizers",
    ),
    "llama_index_instrumentation.dispatcher",
    *(
        "threading",
        "_thread",
        "asyncio",
        "logging",
        "opentelemetry",
        "langsmith.client",
        "contextvars",
        "concurrent",
    ),
    *(
        f"tests.leaks.{room}"
        for room in ("canaries", "places", "routes", "local", "hosts_llama_index", "hosts_langchain")
    ),
)
#: What each span of a workflow is given anew: all that has happened.
_STATE = "workflows."
Path = tuple[str, ...]


def leaks_in(
    value: Any, *, parsed: bool = False, printed: bool = True, known: dict[int, Any] | None = None
) -> list[str]:
    """Where the secret stands in a value, as the paths of the walk; an empty list if nowhere.

    `parsed`: texts are also read as JSON, whole and by their escapes, for places whose text something parses.
    `printed`: containers and models are not only walked but printed as well, as a whole.
    `known`: the state of a running workflow that other looks have walked, which is not walked again.
    """
    found: list[str] = []
    leaves = list(_walk(value, (), set(), 0, printed, {} if known is None else known))
    for path, text in leaves:
        if any(FOUND.search(form) for form in _forms(text, parsed)):
            found.append("/".join(path) or "itself")
    for path, text in _joined(leaves).items():
        if FOUND.search(text):
            found.append("joined " + "/".join(path))
    return found


def texts(value: Any) -> list[str]:
    """Every text of a value, in the order of the walk."""
    return [text for _, text in _walk(value, (), set(), 0, True, {})]


def error_texts(error: BaseException) -> list[str]:
    """All that an error shows: itself, rendered with its traceback, and whatever led to it, hidden or not."""
    shown: list[str] = []
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        shown += ["".join(traceback.format_exception(one)), _printed(repr, one), _printed(str, one)]
        shown += [text for part in one.args for text in texts(part)]
        shown += [_printed(str, note) for note in getattr(one, "__notes__", ())]
        shown += [text for part in vars(one).values() for text in texts(part)]
        left += [one.__cause__, one.__context__]
        left += list(getattr(one, "exceptions", ()))
    return shown


def _printed(form: Callable[[Any], str], value: Any) -> str:
    """What somebody reads who prints a value: else the error of that."""
    try:
        return form(value)
    except Exception as error:
        return str(error)


def _forms(text: str, parsed: bool) -> Iterator[str]:
    yield text
    if not parsed:
        return
    with contextlib.suppress(ValueError, RecursionError):
        yield from texts(json.loads(text))
    yield from _objects_in(text)
    # Of JSON that broke off, and of strings that a field takes for numbers.
    yield from (str(int(float(number))) for number in _EXPONENT.findall(text))
    for _ in range(6 if "\\" in text else 0):  # JSON within JSON within JSON
        text = _ESCAPE.sub(
            lambda found: chr(int(found[1], 16)) if found[1] else _LITTLE.get(found[2], found[2]), text
        )
        yield text


def _objects_in(text: str) -> Iterator[str]:
    """What agents and programs get that look for an object in a text."""
    place = 0
    for start in (found.start() for found in re.finditer(r"[{\[]", text[:10_000])):
        if start >= place:
            with contextlib.suppress(ValueError, RecursionError):
                value, place = json.JSONDecoder().raw_decode(text, start)
                yield from texts(value)


def _joined(leaves: Iterable[tuple[Path, str]]) -> dict[Path, str]:
    """Texts of one path, whatever their places in lists: what a reader of a list of blocks or chunks reads as one."""
    together: dict[Path, list[str]] = collections.defaultdict(list)
    for path, text in leaves:
        if path and path[-1].startswith("("):
            continue  # str and repr of something that is walked itself
        together[tuple("*" if part.startswith("[") else part for part in path)].append(text)
    return {path: "".join(parts) for path, parts in together.items() if len(parts) > 1}


def _walk(
    value: Any, path: Path, above: set[int], depth: int, printed: bool, known: dict[int, Any]
) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, str.__str__(value)
        return
    if (
        value is None
        or isinstance(value, (bool, type))
        or (callable(value) and not hasattr(value, "model_fields"))
    ):
        yield from _callables(value, path, above, depth, known)
        return
    if isinstance(value, (bytes, bytearray, memoryview)):
        yield path, bytes(value).decode("utf-8", "replace")
        if 0 in bytes(value):  # letters of two and four bytes
            yield (*path, "(wide)"), bytes(value).replace(b"\0", b"").decode("utf-8", "replace")
        return
    if isinstance(value, (int, float, complex)):
        yield path, str(value)
        if isinstance(value, float) and value.is_integer():
            yield (*path, "(int)"), str(int(value))
        return
    if id(value) in above or depth > _DEPTH or _opaque(type(value).__module__):
        return
    if type(value).__module__.startswith(_STATE) and depth <= _DEPTH // 2:
        if id(value) in known:
            return
        known[id(value)] = value
    above = above | {id(value)}
    # All of containers and models is walked; what else prints itself may print anything.
    if (depth == 0 and printed) or not isinstance(
        value, (dict, list, tuple, set, frozenset, pydantic.BaseModel)
    ):
        for form in (str, repr, format):
            with contextlib.suppress(Exception):
                yield (*path, f"({form.__name__})"), form(value)
    if isinstance(value, BaseException):
        yield from (((*path, "(error)"), text) for text in error_texts(value))
        return
    seen: set[tuple[str, int]] = set()
    for name, part in _parts(value):
        if (name, id(part)) not in seen:  # a field may stand in the object's dictionary as well
            seen.add((name, id(part)))
            yield from _walk(part, (*path, name), above, depth + 1, True, known)


@cache
def _opaque(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in _OPAQUE)


def _callables(
    value: Any, path: Path, above: set[int], depth: int, known: dict[int, Any]
) -> Iterator[tuple[Path, str]]:
    """Functions are code; what `partial` binds is data."""
    if hasattr(value, "func") and hasattr(value, "args") and hasattr(value, "keywords"):
        yield from _walk([value.args, value.keywords], path, above, depth + 1, True, known)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a container or an object, by whatever way it offers."""
    if isinstance(value, Mapping):
        for index, (key, part) in enumerate(list(value.items())):  # other threads may write
            yield f"key{index}", key
            yield str(key)[:40], part
    elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
        if isinstance(value, list) and value and all(type(one) is int and 0 <= one < 256 for one in value):
            yield "as bytes", bytes(value)
    elif hasattr(value, "to_dict") and hasattr(value, "columns"):  # a DataFrame
        yield from (
            ("columns", list(value.columns)),
            ("index", list(value.index)),
            ("data", value.to_dict("list")),
        )
    elif hasattr(value, "tolist"):  # arrays, scalars, Series
        yield "items", value.tolist()
    elif hasattr(value, "isoformat"):
        yield "iso", value.isoformat()
    elif hasattr(value, "__next__"):
        yield from ((f"[{index}]", part) for index, part in enumerate(itertools.islice(value, 1000)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    for name in ("__dict__", "__pydantic_extra__", "__pydantic_private__"):
        with contextlib.suppress(Exception):
            held = getattr(value, name, None)
            if isinstance(held, Mapping):
                yield from ((str(key), part) for key, part in dict(held).items())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__"):
                with contextlib.suppress(Exception):
                    yield name, getattr(value, name)
    for name in ("value", "name"):  # enums
        if hasattr(type(value), "__members__"):
            yield name, getattr(value, name)
    with contextlib.suppress(Exception):
        if not isinstance(value, type) and hasattr(value, "getvalue"):
            yield "getvalue", value.getvalue()
