"""A policy for JSON that somebody parses: each rule twice, on the text as written and on what it reads then."""

from __future__ import annotations

from nco_guard.policy.models import Policy
from nco_guard.policy.rules import AutomatonRule

__all__ = ["JSON_SUFFIX", "with_json_twins"]

#: At the end of the id of a rule's second reading.
JSON_SUFFIX = ":json"


def with_json_twins(policy: Policy) -> Policy:
    """Each hard rule also with JSON escapes resolved, but for ready-made automata, which cannot be folded.

    A policy that has all of them is returned as it is.
    """
    known = {rule.id for rule in policy.rules}
    twins = [
        rule.model_copy(update={"id": rule.id + JSON_SUFFIX, "json_escapes": True})
        for rule in policy.rules
        if rule.mode == "hard"
        and not isinstance(rule, AutomatonRule)
        and not rule.json_escapes
        and rule.id + JSON_SUFFIX not in known
    ]
    return policy.with_rules(*twins) if twins else policy
