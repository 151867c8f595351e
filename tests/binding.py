"""Rules bound to a small vocabulary, for tests of what masks allow."""

from __future__ import annotations

from collections.abc import Iterable

from nco_guard.compiler import compile_policy
from nco_guard.policy import Policy, Rule
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary

__all__ = ["bind"]


def bind(*rules: Rule, merges: Iterable[str | bytes] = ()) -> BoundGuard:
    """The rules over all single bytes and `merges`."""
    return BoundGuard(compile_policy(Policy(name="test", rules=rules)), toy_vocabulary(merges))
