"""What callers give as a policy: a `Policy`, or something that one could be made of, which is refused with how."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from nco_guard.errors import ArgumentError
from nco_guard.policy.models import Policy
from nco_guard.policy.rules import AutomatonRule, RegexRule, StringRule

__all__ = ["checked_policy", "no_policy"]

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


def no_policy(wanted: str, value: Any) -> ArgumentError:
    """The error for what is no policy: what it is, never what it says, and how a policy is made of it."""
    mend = next((mend for kinds, mend in _MENDS if isinstance(value, kinds)), None)
    if mend is None and isinstance(getattr(value, "policy", None), Policy):
        mend = "give its .policy"
    mend = mend or "see Policy, Policy.from_presets and Policy.from_file"
    return ArgumentError(f"{wanted}, got {type(value).__name__}; {mend}")
