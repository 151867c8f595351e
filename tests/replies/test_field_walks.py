"""Masks over replies of a format: `bruteforce`, wherever a walk leads, whatever the format's marks hold."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nco_guard.compiler import compile_policy
from nco_guard.masking import bruteforce
from nco_guard.replies.fields import FormatFields
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.parser import REASONING
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary
from tests.masking import random_policies
from tests.replies.families import FORMATS
from tests.replies.test_fields import prompt, words


def bound(form: ReplyFormat, rng: random.Random) -> BoundGuard:
    """A random policy over a vocabulary of pieces of the format's own examples."""
    plain = random_policies.vocabulary(rng, small=True)
    pieces = {*rng.sample(plain.tokens[:-5], min(len(plain.tokens) - 5, 8))}
    for text in rng.choices(words(form), k=14):
        at = rng.randint(0, len(text))
        pieces |= {part.encode() for part in (text[:at], text[at : at + 12]) if part}
    tokens = [*sorted(pieces), b"", b"<end>"]
    vocabulary = Vocabulary.build(
        tokens, eos_ids=[len(tokens) - 2, len(tokens) - 1], skip_special_tokens=False
    )
    fields = FormatFields(form, free=rng.choice([(), (), (REASONING,)]), begun=prompt(form, rng))
    guard = BoundGuard(compile_policy(random_policies.policy(rng)), vocabulary.with_regions(fields))
    return guard.begun_by(fields.begun)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_mask_is_the_definition_wherever_a_walk_leads(form: ReplyFormat) -> None:
    rng = random.Random(form.name)
    for _ in range(3):
        guard = bound(form, rng)
        tables, vocabulary = guard.tables, guard.vocabulary
        state, known = guard.session()._text.ask(lambda _, state: state), {}
        for _ in range(8):
            expected = bruteforce.forbidden(
                tables.constraints, tables.components(state), vocabulary, known=known
            )
            assert tables.forbidden(state).tolist() == np.flatnonzero(expected).tolist()
            allowed = [t for t in np.flatnonzero(~expected).tolist() if t not in vocabulary.eos_ids]
            if not allowed:
                break
            state = tables.next(state, rng.choice(allowed))
