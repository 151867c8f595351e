"""What must not be said: rules, policies, policy files and presets.

A policy is plain, immutable data; it knows nothing of automata, tokens or models.
"""

from nco_guard.policy import presets
from nco_guard.policy.applies import AppliesTo
from nco_guard.policy.check_digits import CheckDigits
from nco_guard.policy.models import Policy
from nco_guard.policy.rewind import Rewind
from nco_guard.policy.rules import AutomatonRule, RegexRule, Rule, StringRule

__all__ = [
    "AppliesTo",
    "AutomatonRule",
    "CheckDigits",
    "Policy",
    "RegexRule",
    "Rewind",
    "Rule",
    "StringRule",
    "presets",
]
