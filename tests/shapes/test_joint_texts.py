"""Every text that is written under a random schema and a random policy parses, validates and holds no match.

Written at random, without a model; judged by `judge`. Refusals are judged as well: of a schema and a policy that are
refused together no text may be found that both take.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import strategies as st

from nco_guard.errors import ShapeError
from nco_guard.policy import Policy
from nco_guard.testing import toy_vocabulary
from nco_guard.tokens import Vocabulary
from tests.properties.harness import PROPERTIES, prop
from tests.shapes import strategies, witness
from tests.shapes.driver import Taste, tempting, tokenizer, vocabulary, write
from tests.shapes.joint import NOTHING, Joint, bound_to
from tests.shapes.judge import faults

TINY = "tiny"
FAMILIES: tuple[Any, ...] = ("byte-level", "byte-fallback", "unigram", TINY)  # what rewrites text is refused


def tokens_of(family: Any) -> Vocabulary:
    """The tokens of a tiny tokenizer, or bytes and a few more."""
    if family != TINY:
        return vocabulary(family)
    return toy_vocabulary(['{"', '":', '"}', '", "', "ab", "na", "me", "12", "é", "\\n", " ", "tr"])


def refusal_is_right(schema: Any, policy: Policy, known: Vocabulary) -> None:
    """No text that is found by trying is taken by the shape alone and by the policy."""
    single = {data: token for token, data in reversed([*enumerate(known.tokens)])}
    alone = bound_to(schema, NOTHING, known).session()
    for text in witness.texts(schema, policy):
        ids = [single.get(bytes([byte])) for byte in text.encode()]
        assert None in ids or not Joint(alone).takes([token for token in ids if token is not None]), text


@prop(
    40,
    pair=strategies.collisions(),
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 1 << 32),
    most=st.sampled_from([60, 30, 150]),
)
def test_texts_of_a_schema_and_a_policy(pair: tuple[Any, Policy], family: Any, seed: int, most: int) -> None:
    schema, policy = pair
    known = tokens_of(family)
    try:
        bound_to(schema, NOTHING, known)
    except ShapeError:
        return
    try:
        bound = bound_to(schema, policy, known)
    except ShapeError:
        refusal_is_right(schema, policy, known)
        return
    taste = Taste(random.Random(seed), known, tempting(schema, policy))
    session = bound.session()
    if session.mask(most - 1).all():
        return  # no text is that short
    written = write(Joint(session, most), known, taste, most=most)
    assert written.end == "ended", (written.end, written.text)
    text = written.text
    if family != TINY:
        assert text == tokenizer(family).decode(list(written.ids), skip_special_tokens=True)
    assert faults(schema, policy, text) == [], text


@pytest.mark.slow
@pytest.mark.parametrize("again", [1, 2])
def test_texts_at_length(again: int) -> None:
    PROPERTIES["texts_of_a_schema_and_a_policy"]()
