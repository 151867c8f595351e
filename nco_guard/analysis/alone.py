"""One rule by itself: its own automata, run over many pieces of text at once.

Masks see rules joined, crowded and grouped. Whoever asks which rule is to blame runs each alone. Cost: a step of all
pieces is one gather, so a rule costs as many array operations as the longest piece has bytes, besides the transitions
that its automaton meets for the first time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import Automaton, Rewriting
from nco_guard.compiler import CompiledPolicy, CompiledRule, Constraint

__all__ = ["Pieces", "constraints_alone"]

_FEW = 8  # pieces that are cheaper to step one by one


def constraints_alone(
    compiled: CompiledPolicy, rule: CompiledRule, rewriting: Rewriting | None = None
) -> tuple[Constraint, ...]:
    """The constraints of one rule of a policy as if it were the only one, without that of UTF-8.

    Two for a hard rule with a stop point that reads the prompt (the stop point first), else one. Automata of a list of
    strings that shares with no other rule are the policy's own; all others are fresh.
    """
    policy = compiled.policy.model_copy(update={"rules": (rule.rule,)})
    groups = tuple(group for group in compiled.groups if group.rule_ids == (rule.id,))
    alone = CompiledPolicy(policy, (rule,), groups, compiled.store).revised(policy)
    return alone.constraints(rewriting)[1:]


class Pieces:
    """Byte strings, run through an automaton together. Memory: 24 bytes a piece on top of their own bytes."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        self._order: NDArray[np.int64] = np.argsort(-lengths, kind="stable")
        self._buffer: NDArray[np.uint8] = np.frombuffer(b"".join(pieces), np.uint8)
        self._starts: NDArray[np.int64] = (np.cumsum(lengths) - lengths)[self._order]
        self._lengths: NDArray[np.int64] = lengths[self._order]

    def __len__(self) -> int:
        return len(self._order)

    def run(self, automaton: Automaton, start: int) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """For each piece, whether a match completes with any of its bytes, and the state after it: bool, int32."""
        states = np.full(len(self), start, np.int32)
        matched = np.zeros(len(self), bool)
        longest = int(self._lengths[0]) if len(self) else 0
        active = len(self)
        for at in range(longest):
            if self._lengths[active - 1] <= at:
                active = int(np.searchsorted(-self._lengths, -at, side="left"))
            if active < _FEW:
                self._finish(automaton, states, matched, active, at)
                break
            symbols = self._buffer[self._starts[:active] + at]
            reached = automaton.step_many(states[:active], symbols)
            hits = reached < 0
            matched[:active] |= hits
            states[:active] = np.where(hits, ~reached, reached)
        found_matched, found_states = np.empty_like(matched), np.empty_like(states)
        found_matched[self._order], found_states[self._order] = matched, states
        return found_matched, found_states

    def _finish(
        self,
        automaton: Automaton,
        states: NDArray[np.int32],
        matched: NDArray[np.bool_],
        active: int,
        at: int,
    ) -> None:
        for i in range(active):
            begin, end = int(self._starts[i]) + at, int(self._starts[i] + self._lengths[i])
            state = int(states[i])
            for byte in self._buffer[begin:end].tolist():
                state = automaton.step(state, byte)
                if state < 0:
                    state, matched[i] = ~state, True
            states[i] = state
