"""Guards as the wrappers need them: as fields of models, and joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from weakref import WeakValueDictionary

from pydantic import AfterValidator

from langchain_nco_guard._wrappers import mapped
from nco_guard import Guard, Policy
from nco_guard.errors import PolicyError, UnsupportedError
from nco_guard.guards import as_guard, derived, seeing_through_json
from nco_guard.policy import AppliesTo, Rewind, Rule
from nco_guard.replies.reader import refuse_shown_reasoning

__all__ = ["GuardField", "guard_of_answer", "joined", "refuse_reasoning_of_others", "remember_guard"]

GuardField = Annotated[Any, AfterValidator(as_guard)]
"""A guard, as a field of a model: given as `nco_guard.guards` has it."""

# Those of calls, by model and digest: what is made of an answer later is verified by the one that it was written under.
_guards: WeakValueDictionary[tuple[int, str], Guard] = WeakValueDictionary()


def remember_guard(model: Any, guard: Guard) -> None:
    """Answers of a model name this guard's policy from now on, as long as somebody has the guard."""
    _guards[id(model), guard.log.digest] = guard


def guard_of_answer(model: Any, own: Guard, message: Any) -> Guard:
    """The guard under which a model wrote a message: that of the call, where it had its own.

    own: the model's. Errors: `UnsupportedError` where the message names a policy of which nothing is known here.
    """
    digest = str(getattr(message, "response_metadata", {}).get("policy_digest"))
    if (found := _guards.get((id(model), digest))) is not None:
        return found
    named = len(digest) == len(own.log.digest)  # whoever redacts metadata leaves something else there
    if named and digest not in (own.log.digest, seeing_through_json(own).log.digest):
        raise UnsupportedError(
            "policy_digest: the answer was written under another policy, and what is made of it cannot be verified by "
            "that here; ask with guard=... again"
        )
    return own


def _narrower(one: AppliesTo | None, other: AppliesTo | None) -> AppliesTo | None:
    """What applies where both of two policies are enforced."""
    if one is None or other is None:
        found = one or other
        return found if found is not None and found.reasoning == "hidden" else None
    return min(one, other, key=lambda each: ("hidden", "guarded", "free").index(each.reasoning))


def _settings(one: Policy, other: Policy) -> dict[str, Any]:
    """What applies where both of two policies are enforced, their rules aside.

    What protects is as the stricter says. How a text is written where nothing is left, or where it would match, is as
    the one says that does not leave it at its default. Errors: `PolicyError` where both do, and differ.
    """
    audit = "raise" if "raise" in (one.on_audit_failure, other.on_audit_failure) else "warn"
    return {
        "applies_to": _narrower(one.applies_to, other.applies_to),
        "on_audit_failure": audit,
        **_one_of(one, other, "on_dead_end", lambda each: (each.on_dead_end, each.fallback), "fallback"),
        **_one_of(one, other, "when_blocked", _blocked, "rewind"),
    }


def _blocked(policy: Policy) -> tuple[str, Any]:
    rewinds = policy.when_blocked == "rewind"
    return policy.when_blocked, (policy.rewind or Rewind()) if rewinds else None


def _one_of(
    one: Policy, other: Policy, field: str, said: Callable[[Policy], tuple[str, Any]], beside: str
) -> dict[str, Any]:
    """A setting of two policies, and what goes with it."""
    first, second = said(one), said(other)
    default = Policy.model_fields[field].default
    if first != second and default not in (first[0], second[0]):
        differs, values = (field, (first[0], second[0])) if first[0] != second[0] else (beside, (None, None))
        both = f" ({values[0]} and {values[1]})" if values[0] else ""
        raise PolicyError(
            f"the policies {one.name!r} and {other.name!r} are enforced together and say otherwise{both}; say the same "
            "in both, or leave it out of one",
            field=differs,
        )
    chosen = other if first[0] == default else one
    return {field: getattr(chosen, field), beside: getattr(chosen, beside)}


def joined(guard: Guard, other: Guard) -> Guard:
    """A guard that enforces the rules of both; ids that occur in both get a number.

    Reasoning is hidden if either hides it, and guarded unless both leave it free. Events that cannot be recorded are
    errors unless both let them be lost. Of `on_dead_end` and `fallback`, and of `when_blocked` and `rewind`, what one
    leaves at its default the other decides. The sinks of both hear of everything. Errors: `PolicyError` where both say
    something else, with the names of both.
    """
    if guard is other:
        return guard

    def union() -> Policy:
        if guard.policy.digest == other.policy.digest:
            return guard.policy
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
        return policy.model_copy(update=_settings(guard.policy, other.policy))

    return derived(guard, ("joined", other.policy.digest), union, beside=other)


def refuse_reasoning_of_others(inner: Any, policy: Policy) -> None:
    """Refuse a policy that hides reasoning over a model that may show some.

    A `ChatNCOGuard` whose own policies hide it does not. Errors: `UnsupportedError`.
    """

    def look(model: Any) -> Any:
        own = getattr(model, "_joined_policy", None)
        applied = own.applies_to if isinstance(own, Policy) else None
        if applied is None or applied.reasoning != "hidden":
            refuse_shown_reasoning(
                policy, None, "others write reasoning in ways of their own; use ChatNCOGuard"
            )
        return model

    mapped(inner, look)
