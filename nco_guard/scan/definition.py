"""The slow search by definition, rule by rule, which tests compare the verifier with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from nco_guard.arguments import text as checked
from nco_guard.automata.patterns.searching import Machine
from nco_guard.automata.spans.definition import find_spans, find_strings
from nco_guard.compiler import CompiledPolicy, CompiledRule, compiled_of
from nco_guard.policy import Policy
from nco_guard.scan.findings import Finding, Report

__all__ = ["spans_by_definition", "verify_by_definition"]


def verify_by_definition(policy: Policy | CompiledPolicy, text: str, *, context: str = "") -> Report:
    """What `nco_guard.verify` says, found by running the whole pattern of each rule over all characters.

    Lists of strings are searched for by `re`, but those that text is folded for: these are patterns here. Cost: some
    tenths of a microsecond per rule and character, more around matches; per character a comparison with each string of
    a list. Safe to call from several threads.
    """
    compiled = compiled_of(policy)
    checked("text", text)
    checked("context", context)
    findings: list[Finding] = []
    for rule in compiled.rules:
        mode = rule.rule.mode
        before = len(context) if rule.rule.context == "prompt" else 0
        with rule.lock:
            spans = spans_by_definition(rule, context + text if before else text, before or -1)
            findings.extend(
                Finding(rule.id, max(0, start - before), end - before, mode) for start, end in spans
            )
    return Report.of(compiled.digest, len(text), findings)


def spans_by_definition(rule: CompiledRule, text: str, beyond: int = -1) -> Iterator[tuple[int, int]]:
    """The spans of one rule's matches; only those that end after so many characters. The rule's lock is to be held."""
    if (listed := rule.as_written) is not None:
        caseless = listed.case == "fold"
        return find_strings(
            listed.strings, text, caseless=caseless, whole_word=listed.whole_word, beyond=beyond
        )
    return find_spans(cast(Machine, rule.searcher), text, beyond=beyond)
