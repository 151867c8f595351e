"""What a policy says about texts, and what stands where a match was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nco_guard.compiler import CompiledPolicy, compiled_of
from nco_guard.policy.given import given_policy
from nco_guard.scan import Verifier
from nco_guard.scan.findings import Finding, Report
from nco_guard.scan.replacing import Replacement, Replacer
from nco_guard.values.readings import readings

__all__ = ["Finder"]


class Finder:
    """Finds matches of hard rules in texts as they are written and as they are read, and replaces them.

    Errors when made: `PolicyError` for a given replacement that is itself forbidden.
    """

    def __init__(self, source: Any, replacement: Replacement) -> None:
        is_guard = isinstance(getattr(source, "verifier", None), Verifier)
        ready = is_guard or isinstance(source, CompiledPolicy)
        self.compiled = compiled_of(source if ready else given_policy(source))
        self.verifier = Verifier.of(self.compiled)
        self.replacement = replacement
        self.replacer = Replacer(self.compiled, replacement)

    def dirty(self, texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Those of the texts that hold a match as they are, and the ids of the hard rules that match."""
        several = list(dict.fromkeys(text for text in texts if text))
        found: dict[str, tuple[str, ...]] = {}
        for index, findings in self.verifier.find_many(several):
            if rules := [finding.rule_id for finding in findings if finding.mode == "hard"]:
                found[several[index]] = tuple(rules)
        return found

    def rules(self, texts: Iterable[str]) -> tuple[str, ...]:
        """The ids of the hard rules that match in any of the texts as they are, in the policy's order."""
        return self.compiled.in_order(rule for rules in self.dirty(texts).values() for rule in rules)

    def report(self, text: str) -> Report:
        """All findings in a text, as it is written and as it is read; spans are those of what is written."""
        found: dict[Finding, None] = {}
        read = list(readings(text))
        for index, findings in self.verifier.find_many([reading.text for reading in read]):
            for one in findings:
                start, end = read[index].original(one.start, one.end)
                found[Finding(one.rule_id, start, end, one.mode)] = None
        return Report.of(self.compiled.digest, len(text), found)

    def without(self, text: str, report: Report) -> str:
        """A text with every match of its report replaced. Errors: `RedactionError` where what is left forms a match."""
        return self.replacer.clean(text, report, self.report)

    def instead(self, rules: Sequence[str] = ()) -> str:
        """What stands for a whole value that matches."""
        return self.replacer.instead(rules[0] if rules else None)
