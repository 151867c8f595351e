"""Each kind of schema that the JSON Schema Test Suite has: enforced together with policies, or refused."""

from __future__ import annotations

import random

import pytest

from nco_guard.errors import ShapeError
from nco_guard.policy import Policy, RegexRule, StringRule
from tests.shapes.driver import Taste, tempting, vocabulary, write
from tests.shapes.joint import NOTHING, Joint, bound_to
from tests.shapes.judge import faults
from tests.shapes.suite import KINDS, REFUSED
from tests.slow import rest_slow

POLICIES = [
    Policy(name="ends", rules=(RegexRule(id="r", regex=r"^[av1]|\d\d$"), StringRule(id="s", strings=('"}', "11")))),
    Policy(name="numbers", rules=(RegexRule(id="r", regex=r"\.\d*5"), StringRule(id="s", strings=("foo", " ")))),
    Policy(name="signs", rules=(RegexRule(id="r", regex=r"\\n|(?<!\")[ab]$"), StringRule(id="s", strings=(":", "[]")))),
]  # fmt: skip
CASES = [(kind, policy) for policy in POLICIES for kind in KINDS if kind not in REFUSED]


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_what_is_not_enforced_is_refused(kind: str) -> None:
    with pytest.raises(ShapeError):
        bound_to(KINDS[kind], NOTHING, vocabulary("byte-level"))


@pytest.mark.parametrize(("kind", "policy"), rest_slow(CASES, 12), ids=str)
def test_texts_of_every_kind(kind: str, policy: Policy) -> None:
    schema, known = KINDS[kind], vocabulary("byte-level")
    bound_to(schema, NOTHING, known)
    try:
        bound = bound_to(schema, policy, known)
    except ShapeError:
        return
    for seed in range(4):
        session = bound.session()
        if session.mask(39).all():
            continue
        taste = Taste(random.Random(seed), known, tempting(schema, policy))
        written = write(Joint(session, 40), known, taste, most=40)
        assert written.end == "ended", (written.end, written.text)
        assert faults(schema, policy, written.text) == [], written.text
