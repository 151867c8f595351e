"""What a policy does and why: masks explained (`explain`), policies reviewed (`review`)."""

from nco_guard.analysis.explain import Explainer
from nco_guard.analysis.explanation import Code, Explanation, Reason, RuleExplanation, TokenExplanation
from nco_guard.analysis.remarks import Remark, RemarkCode
from nco_guard.analysis.review import review, review_bound

__all__ = [
    "Code",
    "Explainer",
    "Explanation",
    "Reason",
    "Remark",
    "RemarkCode",
    "RuleExplanation",
    "TokenExplanation",
    "review",
    "review_bound",
]
