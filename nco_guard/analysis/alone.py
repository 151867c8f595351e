"""One rule by itself: its own automata.

Masks see rules joined, crowded and grouped. Whoever asks which rule is to blame runs each alone.
"""

from __future__ import annotations

from nco_guard.automata import Cutting, Rewriting
from nco_guard.compiler import CompiledPolicy, CompiledRule, Constraint

__all__ = ["constraints_alone"]


def constraints_alone(
    compiled: CompiledPolicy,
    rule: CompiledRule,
    rewriting: Rewriting | None = None,
    *,
    borders: bool = False,
    regions: Cutting | None = None,
) -> tuple[Constraint, ...]:
    """The constraints of one rule of a policy as if it were the only one, without that of UTF-8.

    Two for a hard rule with a stop point that reads the prompt (the stop point first), else one. Automata of a list of
    strings that shares with no other rule are the policy's own; all others are fresh.
    """
    policy = compiled.policy.model_copy(update={"rules": (rule.rule,)})
    groups = tuple(group for group in compiled.groups if group.rule_ids == (rule.id,))
    alone = CompiledPolicy(policy, (rule,), groups, compiled.store).revised(policy)
    return alone.constraints(rewriting, borders=borders, regions=regions)[1:]
