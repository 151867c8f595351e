"""Arguments that are numbers: whole ones of any library are taken, everything else is refused by name."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from nco_guard.errors import ArgumentError

__all__ = ["token_ids", "whole"]


def whole(name: str, value: Any, remedy: str) -> int:
    """A whole number, of Python, NumPy or a tensor of one; `ArgumentError` for anything else, truth values too."""
    if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
        raise ArgumentError(f"{name}: a truth value is no number; {remedy}")
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        kind = type(value).__name__
        raise ArgumentError(f"{name}: a whole number is needed, not {kind}; {remedy}") from None


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """Several token ids, sorted and each once. Errors: as `whole`."""
    remedy = f"give a list of token ids, as {name}=[2]"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ArgumentError(f"{name}: {type(value).__name__} is no list; {remedy}")
    return tuple(sorted({whole(name, each, remedy) for each in value}))
