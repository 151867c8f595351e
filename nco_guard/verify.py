"""The independent verifier: searches finished text for what a policy forbids.

It compiles the rules' own patterns and runs them over characters; masks, tokenizers and sessions are never involved, so
a mistake there cannot hide itself here. What it looks for is the whole pattern of a rule, not its stop point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nco_guard.arguments import text as checked
from nco_guard.automata import FsmMachine
from nco_guard.automata.spans.search import find_spans, longest_beginning
from nco_guard.compiler import CompiledPolicy, compiled_of
from nco_guard.policy import Policy

__all__ = ["Exposure", "Finding", "Report", "exposure", "verify"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One match: `text[start:end]`, offsets in code points. `mode` is the rule's."""

    rule_id: str
    start: int
    end: int
    mode: Literal["hard", "soft", "monitor"] = "hard"


@dataclass(frozen=True, slots=True)
class Report:
    """What a policy has to say about a text. Holds offsets, never the text.

    `findings` are in order of their start. `ok`: no hard rule has a match; soft and monitor rules may.
    """

    policy_digest: str
    length: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no hard rule has a match."""
        return all(finding.mode != "hard" for finding in self.findings)

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The findings of hard rules."""
        return tuple(finding for finding in self.findings if finding.mode == "hard")


@dataclass(frozen=True, slots=True)
class Exposure:
    """`text[start:end]` could be the beginning of a match of the rule, or is one; none in the text is longer."""

    rule_id: str
    start: int
    end: int


def verify(policy: Policy | CompiledPolicy, text: str, *, context: str = "") -> Report:
    """All matches of all rules in a text.

    Matches of one rule do not overlap (leftmost, longest); those of different rules may. `context` is what the text
    continues: rules with `context="prompt"` find matches that begin there too, if they end in the text; only the part
    in the text is reported. This is the definition, for one text at a time; a policy is compiled anew each time unless
    it is given compiled. `nco_guard.Verifier` finds the same in many and long texts, some hundred times as fast. Cost:
    some tenths of a microsecond per rule and character, more around matches. Safe to call from several threads. Errors:
    `ArgumentError` for what is no text; those of compiling.
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
    findings.sort(key=lambda found: (found.start, found.end, found.rule_id))
    return Report(compiled.digest, len(text), tuple(findings))


def exposure(policy: Policy | CompiledPolicy, text: str) -> tuple[Exposure, ...]:
    """How far a text gets towards a match: for each rule the longest beginning of a would-be match that it shows.

    This is what a rule lets out before it blocks; `stop_at` makes it shorter. To be read with the rule in mind: any
    word is a beginning of some e-mail address. Rules without a pattern of their own (ready-made automata) are left out.
    """
    compiled = compiled_of(policy)
    checked("text", text)
    found: list[Exposure] = []
    for rule in compiled.rules:
        machine = rule.searcher
        with rule.lock:
            stretch = None if isinstance(machine, FsmMachine) else longest_beginning(machine, text)
        if stretch is not None:
            found.append(Exposure(rule.id, *stretch))
    return tuple(found)
