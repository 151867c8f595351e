"""What to do about finished text that was not guarded while it was written: redact it, or refuse it.

When not to use it: where the model can be guarded itself. Redacting tells the reader that something was there, and it
costs a search of every text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from nco_guard import arguments
from nco_guard.compiler import CompiledPolicy, compiled_of
from nco_guard.errors import RedactionError, ViolationError
from nco_guard.policy import Policy
from nco_guard.scan.definition import verify_by_definition
from nco_guard.scan.findings import Report
from nco_guard.scan.replacing import Replacement, Replacer

__all__ = ["Redaction", "Search", "redact", "require"]


@dataclass(frozen=True, slots=True)
class Redaction:
    """A text without what the policy forbids, and the report on the text that it was made from."""

    text: str
    report: Report


class Search(Protocol):
    """What finds matches in a text: `verify` of a policy, or what finds the same."""

    def __call__(self, text: str, *, context: str = "") -> Report:
        """The report on a text that continues `context`."""
        ...


def redact(
    policy: Policy | CompiledPolicy,
    text: str,
    *,
    replacement: Replacement = None,
    context: str = "",
    search: Search | None = None,
) -> Redaction:
    """Replace every match of a hard rule.

    Matches that overlap are replaced together, once, by the replacement of the one that begins first (of several, the
    longest; then in the policy's order). Guarantee: the verifier finds no match of a hard rule in the result.

    `search` finds the matches: `verify`, the definition, unless another one is given that finds the same, such as
    `nco_guard.Verifier(policy).verify`, which `Guard.redact` uses. Without a `replacement` it is `default_replacement`.
    Cost: one search, two where something was replaced. Errors: `PolicyError` for a given replacement that is itself
    forbidden; `RedactionError` where the replaced text forms a match with what surrounds it.
    """
    compiled = compiled_of(policy)
    replacer = Replacer(compiled, replacement)
    arguments.text("text", text)
    arguments.text("context", context)
    find: Search = search if search is not None else partial(verify_by_definition, compiled)
    report = find(text, context=context)
    if report.ok:
        return Redaction(text, report)
    result = replacer.whole(text, report.violations)
    left = find(result, context=context)
    if not left.ok:
        raise RedactionError(compiled.in_order(finding.rule_id for finding in left.violations))
    return Redaction(result, report)


def require(policy: Policy | CompiledPolicy, text: str, *, context: str = "", where: str = "text") -> Report:
    """The report on a text without matches of hard rules; raises `ViolationError` for any other."""
    compiled = compiled_of(policy)
    report = verify_by_definition(compiled, text, context=context)
    if not report.ok:
        raise ViolationError(compiled.in_order(f.rule_id for f in report.violations), where)
    return report
