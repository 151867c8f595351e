"""Guards as the wrappers need them: as fields of models, and joined."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from nco_guard import Guard, Policy
from nco_guard.guards import as_guard, derived
from nco_guard.policy import AppliesTo, Rule

__all__ = ["GuardField", "joined"]

GuardField = Annotated[Any, AfterValidator(as_guard)]
"""A guard, as a field of a model: given as `nco_guard.guards` has it."""


def _narrower(one: AppliesTo | None, other: AppliesTo | None) -> AppliesTo | None:
    """What applies where both of two policies are enforced."""
    if one is None or other is None:
        found = one or other
        return found if found is not None and found.reasoning == "hidden" else None
    return min(one, other, key=lambda each: ("hidden", "guarded", "free").index(each.reasoning))


def joined(guard: Guard, other: Guard) -> Guard:
    """A guard that enforces the rules of both; ids that occur in both get a number.

    Reasoning is hidden if either hides it, and guarded unless both leave it free.
    """
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
        policy = guard.policy.with_rules(*extra) if extra else guard.policy
        return policy.model_copy(update={"applies_to": _narrower(policy.applies_to, other.policy.applies_to)})

    return derived(guard, ("joined", other.policy.digest), union)
