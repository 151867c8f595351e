"""A schema and a policy enforced together by the library, for the driver and for the search."""

from __future__ import annotations

from typing import Any

import numpy as np

from nco_guard.compiler import compile_policy
from nco_guard.guard import Guard
from nco_guard.guards import seeing_through_json
from nco_guard.policy import Policy, StringRule
from nco_guard.session import BoundGuard, Session
from nco_guard.shapes import Shape
from nco_guard.tokens import Vocabulary
from tests.shapes.libraries import Allowed
from tests.shapes.strategies import Schema

NOTHING = Policy(name="nothing", rules=(StringRule(id="never", strings=("\U0010fffd",), monitor=True),))
"""A policy that forbids nothing."""


def bound_to(schema: Schema, policy: Policy, vocabulary: Vocabulary, **options: Any) -> BoundGuard:
    """Errors: `ShapeError`, where the schema cannot be enforced, or not under this policy."""
    seeing = seeing_through_json(Guard(policy)).policy
    return BoundGuard(compile_policy(seeing), vocabulary, shape=Shape.json(schema, **options))


class Joint:
    """A session, for `driver.write` and `corners.Search`; `budget`: how many tokens there are in all."""

    def __init__(self, session: Session, budget: int | None = None) -> None:
        self.session, self._budget = session, budget

    def allowed(self) -> Allowed:
        remaining = None if self._budget is None else max(0, self._budget - 1 - len(self.session.token_ids))
        return ~self.session.mask(remaining)

    def advance(self, token: int) -> bool:
        if self.session.mask()[token]:
            return False
        self.session.advance(token)
        return True

    def fork(self) -> Joint:
        return Joint(self.session.fork(), self._budget)

    def takes(self, tokens: np.ndarray[Any, Any] | list[int]) -> bool:
        """Whether the session takes all of these, and may end there."""
        copy = self.fork()
        return all(copy.advance(int(token)) for token in tokens) and copy.session.may_end
