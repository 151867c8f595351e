"""The slow search by definition, rule by rule, which tests compare the verifier with."""

from __future__ import annotations

from nco_guard.arguments import text as checked
from nco_guard.automata.spans.definition import find_spans
from nco_guard.compiler import CompiledPolicy, compiled_of
from nco_guard.policy import Policy
from nco_guard.scan.findings import Finding, Report

__all__ = ["verify_by_definition"]


def verify_by_definition(policy: Policy | CompiledPolicy, text: str, *, context: str = "") -> Report:
    """What `nco_guard.verify` says, found by running the whole pattern of each rule over all characters.

    Cost: some tenths of a microsecond per rule and character, more around matches. Safe to call from several threads.
    """
    compiled = compiled_of(policy)
    checked("text", text)
    checked("context", context)
    findings: list[Finding] = []
    for rule in compiled.rules:
        machine = rule.searcher
        mode = rule.rule.mode
        before = len(context) if rule.rule.context == "prompt" else 0
        with rule.lock:
            spans = (
                find_spans(machine, context + text, beyond=before) if before else find_spans(machine, text)
            )
            findings.extend(
                Finding(rule.id, max(0, start - before), end - before, mode) for start, end in spans
            )
    return Report.of(compiled.digest, len(text), findings)
