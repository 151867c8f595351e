"""What to do about finished text that was not guarded while it was written: redact it, or refuse it.

When not to use it: where the model can be guarded itself. Redacting tells the reader that something was there, and it
costs a search of every text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from nco_guard.compiler import CompiledPolicy
from nco_guard.errors import ViolationError
from nco_guard.policy import Policy
from nco_guard.scan.findings import Report
from nco_guard.scan.replacing import Replacement, Replacer
from nco_guard.scan.verifier import Verifier

__all__ = ["Redaction", "redact", "require"]


@dataclass(frozen=True, slots=True)
class Redaction:
    """A text without what the policy forbids, and the report on the text that it was made from."""

    text: str
    report: Report


def redact(
    policy: Policy | CompiledPolicy,
    text: str,
    *,
    replacement: Replacement = None,
    context: str = "",
) -> Redaction:
    """Replace every match of a hard rule.

    Matches that overlap are replaced together, once, by the replacement of the one that begins first (of several, the
    longest; then in the policy's order). Guarantee: the verifier finds no match of a hard rule in the result.

    Without a `replacement` it is `default_replacement`. Cost: one search, as `verify`, and two where something was
    replaced. Errors: `PolicyError` for a given replacement that is itself forbidden; `RedactionError` where the
    replaced text forms a match with what surrounds it.

    Examples:
        >>> redact(Policy.from_presets("pii"), "Write to jane.doe@example.com.").text
        'Write to [redacted].'
    """
    verifier = Verifier.of(policy)
    replacer = Replacer(verifier.compiled, replacement)
    look = partial(verifier.verify, context=context)
    report = look(text)
    return Redaction(replacer.clean(text, report, look), report)


def require(policy: Policy | CompiledPolicy, text: str, *, context: str = "", where: str = "text") -> Report:
    """The report on a text without matches of hard rules; raises `ViolationError` for any other.

    Examples:
        >>> require(Policy.from_presets("pii"), "Nothing here.").ok
        True
    """
    verifier = Verifier.of(policy)
    report = verifier.verify(text, context=context)
    if not report.ok:
        raise ViolationError(verifier.broken(report.findings), where)
    return report
