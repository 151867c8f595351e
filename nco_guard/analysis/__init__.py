"""What a policy does and why: masks explained."""

from nco_guard.analysis.explain import Explainer
from nco_guard.analysis.explanation import Code, Explanation, Reason, RuleExplanation, TokenExplanation

__all__ = ["Code", "Explainer", "Explanation", "Reason", "RuleExplanation", "TokenExplanation"]
