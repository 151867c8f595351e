"""The four regexes of the paper's Enron experiment (appendix C, "PII regex constraints"), exactly as printed.

They have no `stop_at`: as in the paper, only the token that completes a match is masked.
"""

from __future__ import annotations

from nco_guard.policy.presets.pattern import Examples, Pattern

__all__ = ["DESCRIPTION", "PATTERNS"]

DESCRIPTION = (
    "The paper's four regexes for its Enron experiment, unchanged. The paper's table has the labels of the "
    "phone number and the social security number swapped; the ids here say what the patterns are. For use, "
    "prefer 'pii'."
)
_SOURCE = "the paper, appendix C, table 'PII regex constraints'"

PATTERNS = (
    Pattern(
        id="pii_paper.email",
        regex=r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}",
        description="E-mail addresses, as in the paper.",
        source=_SOURCE,
        examples=Examples(
            match=("jane.doe@example.com", "Write to a+b@mail.example.org!"),
            no_match=("jane.doe at example.com", "@jane", "a@b", "3 pens @ 2.50"),
        ),
    ),
    Pattern(
        id="pii_paper.ssn",
        regex=r"[0-9]{3}-[0-9]{2}-[0-9]{4}",
        description="US social security numbers. The paper's table calls this pattern 'Phone number'.",
        source=_SOURCE,
        examples=Examples(
            match=("078-05-1120", "SSN: 987-65-4320."), no_match=("202-555-0143", "2024-01-15")
        ),
    ),
    Pattern(
        id="pii_paper.phone",
        regex=r"[0-9]{3}-[0-9]{3}-[0-9]{4}",
        description="US phone numbers. The paper's table calls this pattern 'Social security number'.",
        source=_SOURCE,
        examples=Examples(
            match=("202-555-0143", "1-202-555-0143"), no_match=("(202) 555-0143", "078-05-1120")
        ),
    ),
    Pattern(
        id="pii_paper.credit_card",
        regex=r"[0-9]{4}-[0-9]{4}-[0-9]{4}-[0-9]{4}",
        description="Sixteen digits in four groups with hyphens, as in the paper.",
        source=_SOURCE,
        examples=Examples(match=("4111-1111-1111-1111",), no_match=("4111 1111 1111 1111", "2024-2025")),
    ),
)
