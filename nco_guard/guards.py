"""Guards from what callers give as `guard=`, and from other guards."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

from nco_guard.audit import Sink
from nco_guard.errors import UnsupportedError
from nco_guard.guard import Guard
from nco_guard.policy import Policy
from nco_guard.policy.given import given_policy

__all__ = ["GuardSource", "as_guard", "derived", "guard_for_call"]

GuardSource = Guard | Policy | str | os.PathLike[str] | list[str] | tuple[str, ...]
"""What is given as `guard=`: a guard, a policy, a preset's name, several names, or the path of a policy file.

A str that ends in .yaml, .yml or .json, or holds a path separator, is a path; any other is the name of a preset.
"""

_KEPT = 16
_derived: WeakKeyDictionary[Guard, OrderedDict[Hashable, Guard]] = WeakKeyDictionary()
_lock = threading.Lock()


def as_guard(source: GuardSource, *, audit: Sink | None = None) -> Guard:
    """A guard that is given, or a new one of what is given, with `audit` as its sink.

    Errors: `ArgumentError` for what is none of these; `PolicyError` and its kin; `UnsupportedError` for a sink beside a
    guard, which brings its own.
    """
    if not isinstance(source, Guard):
        return Guard(given_policy(source), audit=audit)
    if audit is not None:
        raise UnsupportedError("audit: a Guard brings its own; give it Guard(policy, audit=...)")
    return source


def guard_for_call(guard: Guard, source: GuardSource | None) -> Guard:
    """The guard of one call: this one for None, another as it is, another policy with this one's sink and history."""
    if source is None:
        return guard
    if isinstance(source, Guard):
        return source
    policy = given_policy(source)
    return derived(guard, policy.digest, lambda: policy)


def derived(guard: Guard, key: Hashable, make: Callable[[], Policy]) -> Guard:
    """`guard.with_policy(make())`, or itself where that is its own; the last few of each guard are kept by `key`."""
    with _lock:
        kept = _derived.setdefault(guard, OrderedDict())
        found = kept.pop(key, None)
        if found is None:
            policy = make()
            # A guard that stood for itself here would never be forgotten.
            if policy.digest == guard.policy.digest:
                return guard
            found = guard.with_policy(policy)
        kept[key] = found
        while len(kept) > _KEPT:
            kept.popitem(last=False)
        return found
