"""Guards as the wrappers need them: made from what the caller gave, bound to a model, joined, seeing through JSON."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from nco_guard import Guard, Policy
from nco_guard.errors import PolicyError
from nco_guard.policy import AutomatonRule, Rule, presets
from nco_guard.session import BoundGuard

__all__ = ["GuardSource", "as_guard", "bind_to_model", "joined", "seeing_through_json", "with_policy"]

#: What is accepted wherever a guard is asked for: a guard, a policy, or the path of a policy file.
GuardSource = Guard | Policy | str | os.PathLike[str]

_JSON_SUFFIX = ":json"
_derived: weakref.WeakKeyDictionary[Guard, dict[tuple[str, str], Guard]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def as_guard(source: GuardSource) -> Guard:
    """A guard; a policy is compiled and checked here. Errors: `TypeError`, `PolicyError` and its kin."""
    if isinstance(source, Guard):
        return source
    if isinstance(source, Policy):
        return Guard(source)
    if isinstance(source, str) and source in presets.available():
        raise PolicyError(
            f"{source!r} is a preset, and text names the path of a policy file; pass Guard.from_presets({source!r})",
            field="guard",
        )
    if isinstance(source, (str, os.PathLike)):
        return Guard.from_file(source)
    raise TypeError(f"a Guard, a Policy or the path of a policy file is needed, got {type(source).__name__}")


def with_policy(guard: Guard, source: GuardSource) -> Guard:
    """The guard for one call: another guard as it is, another policy with this guard's audit sink."""
    if isinstance(source, Guard):
        return source
    policy = source if isinstance(source, Policy) else as_guard(source).policy
    if policy.digest == guard.policy.digest:
        return guard
    return _derive(guard, "policy", policy.digest, lambda: policy)


def joined(guard: Guard, other: Guard) -> Guard:
    """A guard that enforces the rules of both; ids that occur in both get a number."""
    if guard.policy.digest == other.policy.digest:
        return guard

    def union() -> Policy:
        taken = {rule.id for rule in guard.policy.rules}
        known = set(guard.policy.rules)
        extra: list[Rule] = []
        for rule in other.policy.rules:
            if rule in known:
                continue
            name, number = rule.id, 2
            while name in taken:
                name, number = f"{rule.id}-{number}", number + 1
            taken.add(name)
            extra.append(rule.model_copy(update={"id": name}))
        return guard.policy.with_rules(*extra) if extra else guard.policy

    return _derive(guard, "joined", other.policy.digest, union)


def seeing_through_json(guard: Guard) -> Guard:
    r"""A guard that enforces each hard rule on the raw text and on what it reads once JSON escapes are resolved.

    A tool call is written as JSON: `\u0040` in it is an @ to the tool. Ready-made automata cannot be folded; for
    them the parsed arguments are verified and nothing more.
    """

    def doubled() -> Policy:
        known = {rule.id for rule in guard.policy.rules}
        twins = [
            rule.model_copy(update={"id": rule.id + _JSON_SUFFIX, "json_escapes": True})
            for rule in guard.policy.rules
            if rule.mode == "hard"
            and not isinstance(rule, AutomatonRule)
            and not rule.json_escapes
            and rule.id + _JSON_SUFFIX not in known
        ]
        return guard.policy.with_rules(*twins) if twins else guard.policy

    return _derive(guard, "json", "", doubled)


def _derive(guard: Guard, kind: str, digest: str, make: Callable[[], Policy]) -> Guard:
    with _lock:
        kept = _derived.setdefault(guard, {})
        found = kept.get((kind, digest))
        if found is None:
            policy = make()
            # A guard that stood for itself here would never be forgotten.
            if policy.digest == guard.policy.digest:
                return guard
            found = kept[kind, digest] = guard.with_policy(policy)
        return found


def bind_to_model(guard: Guard, model: Any, tokenizer: Any) -> BoundGuard:
    """The guard bound as generation will bind it; raises `TokenizerError` for a tokenizer that does not fit."""
    from nco_guard.engines.hf.inputs import logits_width  # needs torch, which whoever only verifies has not

    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if ends is not None and not hasattr(ends, "__iter__"):
        ends = [ends]
    return guard.bind(tokenizer, vocab_width=logits_width(model), eos_token_ids=sorted(ends or ()))
