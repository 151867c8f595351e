"""The definition of a mask: feed every token's bytes to every automaton. Slow and obvious; the oracle.

A hard constraint forbids a token if a match completes with any of its bytes. A soft one subtracts its penalty once
for such a token. End-of-sequence is forbidden, or penalised, where the text may not end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.compiler import Constraint
from nco_guard.tokens import Vocabulary

__all__ = ["ends_well", "feed", "forbidden", "penalties"]


def feed(constraint: Constraint, state: int, data: bytes) -> tuple[int, bool]:
    """The state after the bytes, and whether a match completed with any of them."""
    matched = False
    for byte in data:
        state = constraint.automaton.step(state, byte)
        if state < 0:
            matched = True
            state = ~state
    return state, matched


def _completes(constraint: Constraint, state: int, vocabulary: Vocabulary, token: int) -> bool:
    reached, matched = feed(constraint, state, vocabulary.tokens[token])
    return matched or (token in vocabulary.eos_ids and not constraint.automaton.may_end(reached))


def forbidden(
    constraints: Sequence[Constraint], states: Sequence[int], vocabulary: Vocabulary
) -> NDArray[np.bool_]:
    """The mask in a joint state: bool [width], True = forbidden."""
    mask = np.zeros(vocabulary.width, bool)
    mask[list(vocabulary.unusable_ids)] = True
    for token in range(vocabulary.width):
        if not mask[token]:
            mask[token] = any(
                constraint.hard and _completes(constraint, state, vocabulary, token)
                for constraint, state in zip(constraints, states, strict=True)
            )
    return mask


def penalties(
    constraints: Sequence[Constraint], states: Sequence[int], vocabulary: Vocabulary
) -> NDArray[np.float32]:
    """What soft constraints subtract from each logit: float32 [width]."""
    amounts = np.zeros(vocabulary.width, np.float64)
    for constraint, state in zip(constraints, states, strict=True):
        if not constraint.hard and constraint.penalty:
            for token in range(vocabulary.width):
                if token not in vocabulary.unusable_ids and _completes(constraint, state, vocabulary, token):
                    amounts[token] += constraint.penalty
    return amounts.astype(np.float32)


def ends_well(
    constraints: Sequence[Constraint], states: Sequence[int], vocabulary: Vocabulary, tokens_left: int
) -> bool:
    """Whether some sequence of at most `tokens_left` allowed tokens reaches a state in which the text may end."""
    if all(not c.hard or c.automaton.may_end(s) for c, s in zip(constraints, states, strict=True)):
        return True
    if tokens_left == 0:
        return False
    mask = forbidden(constraints, states, vocabulary)
    for token in np.flatnonzero(~mask).tolist():
        if token in vocabulary.eos_ids or not vocabulary.tokens[token]:
            continue
        reached = [feed(c, s, vocabulary.tokens[token])[0] for c, s in zip(constraints, states, strict=True)]
        if ends_well(constraints, reached, vocabulary, tokens_left - 1):
            return True
    return False
