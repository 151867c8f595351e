"""Errors as they may be shown: to models, callbacks and tracers, which show what led to them as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from nco_guard.errors import RedactionError, ViolationError
from nco_guard.values.finding import Finder
from nco_guard.values.texts import texts_of_tree
from nco_guard.values.trees import Tree

__all__ = ["clean_error", "texts_of_error"]


def texts_of_error(error: BaseException) -> tuple[list[str], list[str]]:
    """What an error shows: (by itself, by what led to it).

    By itself: its text, its `repr`, its notes, its arguments and attributes, and of a group the same of all its
    members. What led to it, causes and contexts, tracebacks show as well, and some tracers whatever
    `raise ... from None` says.
    """
    causes = [text for cause in _chain(error) for text in _own_texts(cause)]
    return [*_own_texts(error)], causes


def clean_error(
    error: Exception,
    finder: Finder,
    clean: Callable[[str, tuple[str, ...]], str],
    kind: Callable[[str], Exception],
) -> Exception:
    """An error without a match, the same one where that is possible.

    One that itself holds a match is replaced: by `kind` of its text after `clean`, which is told the rules, or by what
    that raised instead (`ViolationError`, `RedactionError`). Where only what led to it does, it is parted from that.
    """
    own, causes = texts_of_error(error)
    if rules := finder.rules(own):
        try:
            return kind(clean(_text(error), rules))
        except (ViolationError, RedactionError) as refused:
            refused.__context__ = None
            return refused
    if finder.rules(causes):
        error.__cause__ = error.__context__ = None
    return error


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def _own_texts(error: BaseException) -> Iterator[str]:
    for show in (str, repr):
        try:
            yield show(error)
        except Exception:
            continue
    held: dict[str, Any] = {k: v for k, v in vars(error).items() if not isinstance(v, BaseException)}
    yield from texts_of_tree(Tree([list(error.args), held]))
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            for one in (member, *_chain(member)):
                yield from _own_texts(one)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen, left = {id(error)}, [error.__cause__, error.__context__]
    while left:
        cause = left.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            left += [cause.__cause__, cause.__context__]
            yield cause
