"""The definition of a mask: feed every token's bytes to every automaton. Slow and obvious; the oracle.

A token is forbidden if a match of a hard constraint completes with any of its bytes, or if the text could not be
brought to an allowed end within `HORIZON` more tokens (or as many as are left). A soft constraint subtracts its
penalty once for a token with which a match completes. End-of-sequence is forbidden, or penalised, where the text may
not end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_guard.compiler import Constraint
from nco_guard.tokens import Vocabulary

__all__ = ["HORIZON", "ends_well", "feed", "forbidden", "penalties"]

# How many tokens a text may still need before it can end. Rules met in practice need one or two.
HORIZON = 16

States = tuple[int, ...]


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


def _violates(constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary, token: int) -> bool:
    return token in vocabulary.unusable_ids or any(
        constraint.hard and _completes(constraint, state, vocabulary, token)
        for constraint, state in zip(constraints, states, strict=True)
    )


def _after(constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary, token: int) -> States:
    return tuple(feed(c, s, vocabulary.tokens[token])[0] for c, s in zip(constraints, states, strict=True))


def ends_well(
    constraints: Sequence[Constraint],
    states: States,
    vocabulary: Vocabulary,
    tokens_left: int,
    known: dict[tuple[States, int], bool] | None = None,
) -> bool:
    """Whether at most `tokens_left` allowed tokens lead to a state in which the text may end.

    `known`: verdicts from earlier calls with the same constraints and vocabulary; filled.
    """
    known = {} if known is None else known
    if all(not c.hard or c.automaton.may_end(s) for c, s in zip(constraints, states, strict=True)):
        return True
    if tokens_left == 0:
        return False
    key = (states, tokens_left)
    if key not in known:
        known[key] = any(
            ends_well(
                constraints,
                _after(constraints, states, vocabulary, token),
                vocabulary,
                tokens_left - 1,
                known,
            )
            for token in range(vocabulary.width)
            if token not in vocabulary.eos_ids
            and vocabulary.tokens[token]
            and not _violates(constraints, states, vocabulary, token)
        )
    return known[key]


def forbidden(
    constraints: Sequence[Constraint],
    states: States,
    vocabulary: Vocabulary,
    tokens_left: int = HORIZON,
    known: dict[tuple[States, int], bool] | None = None,
) -> NDArray[np.bool_]:
    """The mask in a joint state where `tokens_left` tokens may follow: bool [width], True = forbidden."""
    known = {} if known is None else known
    mask = np.ones(vocabulary.width, bool)
    for token in range(vocabulary.width):
        if not _violates(constraints, states, vocabulary, token):
            mask[token] = token not in vocabulary.eos_ids and not ends_well(
                constraints, _after(constraints, states, vocabulary, token), vocabulary, tokens_left, known
            )
    return mask


def penalties(
    constraints: Sequence[Constraint], states: States, vocabulary: Vocabulary
) -> NDArray[np.float32]:
    """What soft constraints subtract from each logit: float32 [width]."""
    amounts = np.zeros(vocabulary.width, np.float64)
    for constraint, state in zip(constraints, states, strict=True):
        if not constraint.hard and constraint.penalty:
            for token in range(vocabulary.width):
                if token not in vocabulary.unusable_ids and _completes(constraint, state, vocabulary, token):
                    amounts[token] += constraint.penalty
    return amounts.astype(np.float32)
