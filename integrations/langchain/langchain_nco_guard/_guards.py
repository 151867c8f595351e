"""Guards as the wrappers need them: joined, and seeing through JSON."""

from __future__ import annotations

from nco_guard import Guard, Policy
from nco_guard.guards import derived
from nco_guard.policy import AutomatonRule, Rule

__all__ = ["joined", "seeing_through_json"]

_JSON_SUFFIX = ":json"


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

    return derived(guard, ("joined", other.policy.digest), union)


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

    return derived(guard, "json", doubled)
