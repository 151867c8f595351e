"""Errors as they may be shown: to models, callbacks and tracers, which show what led to them as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from nco_guard.errors import RedactionError, ViolationError
from nco_guard.values.finding import Finder
from nco_guard.values.raised import attributes_of, prints_of
from nco_guard.values.readings import readings
from nco_guard.values.texts import texts_of_tree
from nco_guard.values.trees import Tree

__all__ = ["clean_error", "texts_of_error"]

Clean = Callable[[str, tuple[str, ...]], str]
# What they mean to a program is their class: who cancels or ends something waits for it.
_SIGNALS = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, SystemExit)


def texts_of_error(error: BaseException) -> tuple[list[str], list[str]]:
    """What an error shows: (by itself, by what led to it).

    By itself: its text, its `repr`, its class's name, its notes, its arguments and attributes, with the errors among
    these and all that led to them, and of a group the same of all its members. What led to it, causes and contexts,
    tracebacks show as well, and some tracers whatever `raise ... from None` says.
    """
    own, causes = _trees(error)
    shown = (reading.text for text in prints_of(error) for reading in readings(text))
    return [*shown, *texts_of_tree(own)], [*texts_of_tree(causes)]


def _trees(error: BaseException) -> tuple[Tree, Tree]:
    held = list(attributes_of(error).items())
    return Tree([_text(error), error.args, held]), Tree([error.__cause__, error.__context__])


def clean_error(
    error: BaseException, finder: Finder, clean: Clean, kind: Callable[[str], Exception]
) -> BaseException:
    """An error without a match, the same one where that is possible.

    One that itself holds a match is replaced: by `kind` of its text after `clean`, which is told the rules, or by what
    that raised instead (`ViolationError`, `RedactionError`). Where only what led to it does, it is parted from that.
    What is no `Exception` stays none, see `_clean_signal`.
    """
    own, causes = texts_of_error(error)
    if rules := finder.rules(own):
        if not isinstance(error, Exception):
            return _clean_signal(error, finder, clean, kind, rules)
        try:
            return kind(clean(_text(error), rules))
        except (ViolationError, RedactionError) as refused:
            refused.__context__ = None
            return refused
    if finder.rules(causes):
        error.__cause__ = error.__context__ = None
    _forget_objects(error)
    return error


def _clean_signal(
    error: BaseException,
    finder: Finder,
    clean: Clean,
    kind: Callable[[str], Exception],
    rules: tuple[str, ...],
) -> BaseException:
    """What ends a program or cancels a task does so still, with a clean text; groups keep their clean members."""
    if isinstance(error, BaseExceptionGroup):
        members = [clean_error(member, finder, clean, kind) for member in error.exceptions]
        return BaseExceptionGroup(
            _refused_as("", clean, error.message, finder.rules([error.message])), members
        )
    new = next((signal for signal in _SIGNALS if isinstance(error, signal)), BaseException)
    args = error.args
    if finder.rules(texts_of_tree(Tree(args))):
        text = _refused_as("", clean, _text(error), rules)
        # A program that ends with an empty text would have ended well.
        args = (text,) if text else (1,) if new is SystemExit else ()
    return new(*args)


def _refused_as(instead: str, clean: Clean, text: str, rules: tuple[str, ...]) -> str:
    if not rules:
        return text
    try:
        return clean(text, rules)
    except (ViolationError, RedactionError):
        return instead


def _forget_objects(error: BaseException) -> None:
    """Part every `AttributeError` that it holds from the object that it was about, which nobody looked into."""
    held: Iterable[object] = (node.value for tree in _trees(error) for node in tree.nodes)
    for one in (error, *held):
        if isinstance(one, AttributeError) and one.obj is not None:
            one.obj = None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return type(error).__name__
