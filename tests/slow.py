"""Which cases of a test run always, and which with the long ones (`make test-slow`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["rest_slow"]


def rest_slow(cases: Iterable[Any], quick: int) -> list[Any]:
    """The cases of a parametrized test: the first `quick` as they are, the others marked slow."""
    cases = list(cases)
    return [*cases[:quick], *(_slow(case) for case in cases[quick:])]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
