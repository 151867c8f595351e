"""Guards from what callers give as `guard=`, and from other guards."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

from nco_guard.audit import Event, Sink, fan_out
from nco_guard.copies import Staying
from nco_guard.guard import Guard
from nco_guard.policy import Policy
from nco_guard.policy.given import given_policy
from nco_guard.policy.twins import with_json_twins
from nco_guard.scan import Replacement
from nco_guard.scan.replacing import Replacer

__all__ = ["GuardSource", "as_guard", "check_replacement", "derived", "guard_for_call", "seeing_through_json"]

GuardSource = Guard | Policy | str | os.PathLike[str] | list[str] | tuple[str, ...]
"""What is given as `guard=`: a guard, a policy, a preset's name, several names, or the path of a policy file.

A str that ends in .yaml, .yml or .json, or holds a path separator, is a path; any other is the name of a preset.
"""

_KEPT = 16
_derived: WeakKeyDictionary[Guard, OrderedDict[Hashable, Guard]] = WeakKeyDictionary()
_lock = threading.Lock()


def as_guard(source: GuardSource, *, audit: Sink | None = None, enforces: bool = True) -> Guard:
    """A guard that is given, or a new one of what is given; with `audit` as its sink, where there is one.

    enforces: see `Guard.with_audit`; False for what only observes, or looks at what others wrote.

    Errors: `ArgumentError` for what is none of these; `PolicyError` and its kin; `UnsupportedError` for a sink beside a
    guard that has one.
    """
    guard = source if isinstance(source, Guard) else Guard(given_policy(source))
    guard.log.refuse_second(audit)
    return guard if audit is None else guard.with_audit(audit, enforces=enforces)


def check_replacement(guard: Guard, replacement: Replacement) -> None:
    """Refuse what may not stand where a match was: when it is named, not in the middle of an answer.

    Errors: `PolicyError` for one that the guard's policy forbids itself; `ArgumentError` for what is no text.
    """
    Replacer(guard.verifier.compiled, replacement)


def guard_for_call(guard: Guard, source: GuardSource | None) -> Guard:
    """The guard of one call: this one for None, another as it is, another policy with this one's sink and history."""
    if source is None:
        return guard
    if isinstance(source, Guard):
        return source
    policy = given_policy(source)
    return derived(guard, policy.digest, lambda: policy)


class _Several(Staying):
    """A sink that hands each event to several."""

    def __init__(self, *sinks: Sink) -> None:
        self.sinks = sinks
        self._all = fan_out(*sinks)

    def __call__(self, event: Event) -> None:
        self._all(event)


def _sinks_of(guard: Guard) -> tuple[Sink, ...]:
    own = guard._audit
    return own.sinks if isinstance(own, _Several) else () if own is None else (own,)


def derived(guard: Guard, key: Hashable, make: Callable[[], Policy], *, beside: Guard | None = None) -> Guard:
    """`guard.with_policy(make())`, or itself where that is its own; the last few of each guard are kept by `key`.

    beside: a guard whose sink hears of everything, too.
    """
    known, sink = _sinks_of(guard), None
    further = [one for one in (() if beside is None else _sinks_of(beside)) if one not in known]
    if beside is not None and further:
        sink = _Several(*known, *map(beside.log.keyed, further))
    key = (key, *map(id, further))  # kept alive by what is kept
    with _lock:
        kept = _derived.setdefault(guard, OrderedDict())
        found = kept.pop(key, None)
        if found is None:
            policy = make()
            # A guard that stood for itself here would never be forgotten.
            if policy.digest == guard.policy.digest and sink is None:
                return guard
            found = guard if sink is None else guard.with_audit(sink, enforces=False)
            found = found.with_policy(policy)
        kept[key] = found
        while len(kept) > _KEPT:
            kept.popitem(last=False)
        return found


def seeing_through_json(guard: Guard) -> Guard:
    r"""A guard that enforces each hard rule on the raw text and on what it reads once JSON escapes are resolved.

    For replies that somebody parses: `\u0040` in a tool call is an @ to the tool. The second reading of a rule has its
    id and `:json`; the policy has a digest of its own. Ready-made automata cannot be folded, so they have none: of them
    what was parsed is verified, and nothing more.

    Cost: up to twice the automata. Another call for the same guard returns the same object.

    Examples:
        >>> guard = seeing_through_json(Guard.from_presets("pii"))
        >>> guard.verify('{"to": "jane\\u0040example.com"}').ok
        False
    """

    return derived(guard, "json", lambda: with_json_twins(guard.policy))
