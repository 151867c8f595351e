"""Every text that is written under a random schema and a random policy parses, validates and holds no match.

Written at random, without a model; judged by `judge`. Refusals are judged as well: of a schema and a policy that are
refused together no text may be found that both take.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from nco_guard.errors import ShapeError, ShapeLimitError
from nco_guard.policy import Policy
from nco_guard.shapes import Shape
from nco_guard.shapes.format_texts import FORMAT_TEXTS
from nco_guard.shapes.keywords import ENFORCED
from nco_guard.testing import toy_vocabulary
from nco_guard.tokens import Vocabulary
from tests.properties.harness import PROPERTIES, prop
from tests.shapes import strategies, suite, witness
from tests.shapes.driver import Taste, tempting, tokenizer, vocabulary, write
from tests.shapes.joint import NOTHING, Joint, bound_to
from tests.shapes.judge import faults
from tests.shapes.strategies import collisions, same_examples

TINY = "tiny"
FAMILIES: tuple[Any, ...] = ("byte-level", "byte-fallback", "unigram", TINY)  # what rewrites text is refused

counts: collections.Counter[str] = collections.Counter()
"""What was drawn, and what came of it."""
pairs = st.one_of(collisions(), collisions(), collisions(st.sampled_from(suite.SUPPORTED)))


def tokens_of(family: Any) -> Vocabulary:
    """The tokens of a tiny tokenizer, or bytes and a few more."""
    if family != TINY:
        return vocabulary(family)
    return toy_vocabulary(['{"', '":', '"}', '", "', "ab", "na", "me", "12", "é", "\\n", " ", "tr"])


def refusal_is_right(schema: Any, policy: Policy, known: Vocabulary, given: Any) -> None:
    """No text that is found by trying is taken by the shape alone and by the policy."""
    single = {data: token for token, data in reversed([*enumerate(known.tokens)])}
    alone = bound_to(given, NOTHING, known).session()
    for text in witness.texts(schema, policy):
        ids = [single.get(bytes([byte])) for byte in text.encode()]
        assert None in ids or not Joint(alone).takes([token for token in ids if token is not None]), text


def nothing_is_of(schema: Any) -> bool:
    """Whether the schema is refused as one of which there is no value, in a part of it at least; then that is so."""
    with pytest.raises(ShapeError) as raised:
        Shape.json(schema)
    error = raised.value
    said = error.message.startswith("Unsatisfiable")
    assert not said or witness.values(schema, place=error.place) == [], str(error)
    return said


@prop(
    40,
    pair=pairs,
    words=st.frozensets(st.sampled_from(suite.OLDER), max_size=1),
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 1 << 32),
    most=st.sampled_from([60, 30, 150, 12]),
)
def test_texts_of_a_schema_and_a_policy(
    pair: tuple[Any, Policy], words: frozenset[str], family: Any, seed: int, most: int
) -> None:
    schema, policy = pair
    given = suite.reworded(schema, words)
    known = tokens_of(family)
    counts["pairs"] += 1
    try:
        bound_to(given, NOTHING, known)
    except ShapeError:
        counts["schemas of which nothing is" if nothing_is_of(schema) else "schemas not enforced"] += 1
        return
    try:
        bound = bound_to(given, policy, known)
    except ShapeError as error:
        undecided = isinstance(error, ShapeLimitError)
        counts["pairs refused, undecided" if undecided else "pairs refused"] += 1
        refusal_is_right(schema, policy, known, given)
        return
    taste = Taste(random.Random(seed), known, tempting(schema, policy))
    session = bound.session()
    if session.mask(most - 1).all():
        counts["pairs with too few tokens"] += 1
        return
    written = write(Joint(session, most), known, taste, most=most)
    counts[f"texts: {written.end}"] += 1
    counts["undecided masks"] += bound.stats["undecided_masks"]
    counts["texts past undecided masks"] += bound.stats["undecided_masks"] > 0
    assert written.end == "ended", (written.end, written.text)
    text = written.text
    if family != TINY:
        assert text == tokenizer(family).decode(list(written.ids), skip_special_tokens=True)
    assert faults(schema, policy, text) == [], text


@pytest.mark.slow
@pytest.mark.parametrize("again", [1, 2])
def test_texts_at_length(again: int, record_property: Callable[[str, object], None]) -> None:
    counts.clear()
    try:
        PROPERTIES["texts_of_a_schema_and_a_policy"]()
    finally:
        record_property("counts", {"texts: corner": 0, **counts})
    # A pair of which nothing is written proves little.
    assert 2 * counts["texts: ended"] > counts["pairs"]


def test_each_keyword_that_is_enforced_is_drawn_in_newer_and_in_older_words() -> None:
    schemas = [*same_examples(strategies.schemas, 400), *suite.SUPPORTED]
    older = {word: [suite.reworded(schema, frozenset({word})) for schema in schemas] for word in suite.OLDER}
    found = frozenset[str]().union(*map(strategies.kinds, schemas), *map(strategies.kinds, older["items"]))
    assert found >= {*ENFORCED}
    assert found >= {f"format: {name}" for name in FORMAT_TEXTS}
    assert [word for word, made in older.items() if made == schemas] == []
