"""The machines that search for what a rule says, of every kind."""

from __future__ import annotations

from nco_guard.automata.folding import FoldSpec
from nco_guard.automata.patterns.alternating import AlternatingMachine
from nco_guard.automata.patterns.folded_text import FoldedMachine
from nco_guard.automata.patterns.fsm import FsmMachine

__all__ = ["Machine", "Plain", "plain"]

Plain = AlternatingMachine | FsmMachine
"""One that reads a text as it is, or as it was folded before."""
Machine = Plain | FoldedMachine
"""One that reads a text as it is, and folds it where the rule wants that."""


def plain(machine: Machine) -> tuple[Plain, FoldSpec]:
    """The machine that reads folded text, and how that is folded."""
    if isinstance(machine, FoldedMachine):
        return machine.inner, machine.spec
    return machine, FoldSpec()
