"""Why no token is left: what is said of a dead end, so that who reads it relaxes the right thing.

Of all that takes tokens away the guard's own part is known, as masks: what the policy forbids, what it and the shape
forbid together, and what they forbid where only so many tokens may follow. Where these leave tokens and none is left
all the same, what runs before the guard took them.
"""

from __future__ import annotations

from nco_guard.errors import StateLimitError
from nco_guard.masking.answers import Tables
from nco_guard.session import BoundGuard

__all__ = ["no_token_left", "why_empty"]


def no_token_left(row: int, why: str, resolution: str) -> str:
    """What is said of a dead end that is an error; resolution: the policy's `on_dead_end`, and what came of it."""
    return f"row {row}: {why} (on_dead_end: {resolution})"


def why_empty(bound: BoundGuard, tables: Tables, state: int, remaining: int | None) -> str:
    """What left no token in a state, and how to mend it: the guard, its limit, or what runs before it.

    remaining: how many tokens may follow the one that is chosen; None: no limit is known. Cost: masks that were found.
    """
    width = bound.vocabulary.width
    left = {*range(width)}.difference(tables.forbidden(state, remaining).tolist())
    try:
        ever = width - len(tables.forbidden(state))
    except StateLimitError:  # what there would be without a limit is not known, so nothing is said of it
        ever = len(left) or width
    if not ever:
        return (
            f"no token is left: {_whose(bound)} let none come after this text; look at rules that read the "
            'prompt (context="prompt") and at tokens that were forced, or ask for something else'
        )
    if not left and remaining is not None:
        return _too_late(bound, remaining + 1)
    if left <= set(bound.vocabulary.eos_ids):
        said = (
            f"no token is left: under {_whose(bound)} the text can only end here, and what runs before the guard took "
            "its end away (min_new_tokens, min_length, suppress_tokens, a processor, ...); relax that"
        )
    else:
        taken = "the only token" if len(left) == 1 else f"all {len(left)} tokens"
        said = (
            f"no token is left: what runs before the guard took {taken} that {_whose(bound)} would let come here "
            "(a processor, suppress_tokens, bad_words_ids, min_new_tokens, ...); relax that"
        )
    return said if len(left) == ever else f"{said}, or allow more max_new_tokens: then {ever} might come"


def _whose(bound: BoundGuard) -> str:
    return "the policy" if bound.shape is None else "policy and shape"


def _too_late(bound: BoundGuard, left: int) -> str:
    """Of a state in which tokens are left, and none that ends in time."""
    end = (
        "a text to where the policy lets it end" if bound.shape is None else "a text of the shape to its end"
    )
    return (
        f"{left} more tokens are too few to bring {end} (as far as a way was found); allow more max_new_tokens, or ask "
        "for less"
    )
