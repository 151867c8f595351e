"""What callers give as a policy: a `Policy`, or something that one is made of; for the rest, how to make one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from nco_guard.errors import ArgumentError, PolicyError, PresetError
from nco_guard.policy import presets
from nco_guard.policy._errors import named, placed
from nco_guard.policy.models import Policy
from nco_guard.policy.rules import AutomatonRule, RegexRule, StringRule

__all__ = ["checked_policy", "given_policy", "is_path", "no_policy"]

_WANTED = "a Guard, a Policy, the path of a policy file, a preset's name or a list of names"
_JOIN = "join policies by their rules: one.with_rules(*other.rules)"
_PATHS = (".yaml", ".yml", ".json")
_SEPARATORS = {"/", os.sep, os.altsep or os.sep}

_MENDS = (
    (
        (str, os.PathLike),
        "for a preset use from_presets(name) of Guard or Policy, for a file their from_file(path)",
    ),
    ((Mapping,), "make one of it: Policy(**data)"),
    ((StringRule, RegexRule, AutomatonRule), 'make one of it: Policy(name="mine", rules=[rule])'),
    ((list, tuple), 'make one of the rules: Policy(name="mine", rules=rules)'),
    ((type,), "give an object of it, not the class itself"),
)


def checked_policy(value: Any) -> Policy:
    """A policy; `ArgumentError`, which says how to come by one, for anything else."""
    if not isinstance(value, Policy):
        raise no_policy("policy must be a Policy", value)
    return value


def given_policy(source: Any, argument: str = "guard") -> Policy:
    """The policy that is given as `guard=` (or `argument`, which errors name): a `Policy`, a path, or names of presets.

    A path is an `os.PathLike`, or a str that ends in .yaml, .yml or .json or holds a path separator; any other str is
    the name of a preset, whatever files there are. A list or tuple holds names. Errors: `ArgumentError` for anything
    else, with how to come by a policy; `PresetError`; `PolicyError` for what the file says.
    """
    if isinstance(source, Policy):
        return source
    if isinstance(source, os.PathLike) or (isinstance(source, str) and is_path(source)):
        try:
            return Policy.from_file(source)
        except PolicyError as error:
            raise placed(error, field=argument) from error
    names = (source,) if isinstance(source, str) else source
    if not isinstance(names, list | tuple) or not any(isinstance(name, str) for name in names):
        raise no_policy(f"{argument}: {_WANTED} is needed", source)
    known = presets.available()
    for number, name in enumerate(names):
        where = argument if isinstance(source, str) else f"{argument}[{number}]"
        if not isinstance(name, str) or (name not in known and is_path(name)):
            given = "a path" if isinstance(name, str) else type(name).__name__
            raise ArgumentError(f"{where}: a list holds names of presets, not {given}; {_JOIN}")
        if name not in known:
            raise PresetError(
                f"there is no preset {named(name, known)}; there are: {', '.join(known)}; a path ends in "
                f"{', '.join(_PATHS)} or holds a separator",
                field=where,
            )
        if name in names[:number]:
            raise PresetError(f"the preset {name!r} is named twice; leave one out", field=where)
    return _of_presets(tuple(names))


def is_path(text: str) -> bool:
    """Whether a str is a path, rather than the name of a preset; whatever files there are."""
    return text.lower().endswith(_PATHS) or any(mark in text for mark in _SEPARATORS)


@lru_cache(16)
def _of_presets(names: tuple[str, ...]) -> Policy:
    return Policy.from_presets(*names)


def no_policy(wanted: str, value: Any) -> ArgumentError:
    """The error for what is no policy: what it is, never what it says, and how a policy is made of it."""
    mend = next((mend for kinds, mend in _MENDS if isinstance(value, kinds)), None)
    if mend is None and isinstance(getattr(value, "policy", None), Policy):
        mend = "give its .policy"
    mend = mend or "see Policy, Policy.from_presets and Policy.from_file"
    return ArgumentError(f"{wanted}, got {type(value).__name__}; {mend}")
