"""How far a text gets towards a match."""

from __future__ import annotations

from nco_guard.arguments import text as checked
from nco_guard.automata import FsmMachine
from nco_guard.automata.spans.live import longest_open
from nco_guard.compiler import CompiledPolicy, compiled_of
from nco_guard.policy import Policy
from nco_guard.scan.findings import Exposure

__all__ = ["exposure"]


def exposure(policy: Policy | CompiledPolicy, text: str) -> tuple[Exposure, ...]:
    """How far a text gets towards a match: for each rule the longest beginning of a would-be match that it shows.

    This is what a rule lets out before it blocks; `stop_at` makes it shorter. To be read with the rule in mind: any
    word is a beginning of some e-mail address. Rules without a pattern of their own (ready-made automata) are left out.

    Cost: each rule reads the whole text once, as no condition passes over what is no match; linear in its length, times
    the states that the matches under way at one place have come to.

    Examples:
        >>> policy = Policy(name="p", rules=[StringRule(id="code", strings=["Bluebird"])])
        >>> [(one.rule_id, one.start, one.end) for one in exposure(policy, "Project Blueb")]
        [('code', 8, 13)]
    """
    compiled = compiled_of(policy)
    checked("text", text)
    found: list[Exposure] = []
    for rule in compiled.rules:
        machine = rule.searcher
        with rule.lock:
            stretch = None if isinstance(machine, FsmMachine) else longest_open(machine, text)
        if stretch is not None:
            found.append(Exposure(rule.id, *stretch))
    return tuple(found)
