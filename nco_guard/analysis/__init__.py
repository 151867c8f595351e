"""What a policy does and why: masks explained, policies reviewed, and what they forbid of texts that should pass."""

from nco_guard.analysis.corpus import (
    Advice,
    Overblocking,
    RuleBlocking,
    TokenBlocking,
    overblocking,
    refused_tokens,
)
from nco_guard.analysis.explanation import Code, Explanation, Reason, RuleExplanation, TokenExplanation
from nco_guard.analysis.policies import review, review_bound
from nco_guard.analysis.remarks import Remark, RemarkCode
from nco_guard.analysis.sentence_breaks import sentences

__all__ = [
    "Advice",
    "Code",
    "Explanation",
    "Overblocking",
    "Reason",
    "Remark",
    "RemarkCode",
    "RuleBlocking",
    "RuleExplanation",
    "TokenBlocking",
    "TokenExplanation",
    "overblocking",
    "refused_tokens",
    "review",
    "review_bound",
    "sentences",
]
