r"""The borders of `whole_word` use Unicode's `\w`, whatever flags the pattern sets for itself."""

from __future__ import annotations

import itertools
import re

import pytest

from nco_guard import Guard, Policy, RegexRule
from nco_guard.scan.definition import verify_by_definition
from nco_guard.testing import tiny_tokenizer
from tests.slow import rest_slow

# Characters of words for Unicode only, for both, for neither; and what `(?i)` takes for a k or an s.
TOUCHING = ["", "é", "ж", "\u0663", "_", "a", "7", " ", "-", "\u212a", "ſ", "ß", "\u0301"]
INSIDE = ["abc", "ABC", "ab1", "Abé", "k", "\u212a", "K", "ß"]


@pytest.mark.parametrize(
    ("regex", "case", "scoped"),
    rest_slow(
        [
            (r"abc", "exact", r"(?:abc)"),
            (r"(?a)abc", "exact", r"(?a:abc)"),
            (r"(?a)\w+", "exact", r"(?a:\w+)"),
            (r"(?a:\w)+", "exact", r"(?a:\w)+"),
            (r"(?i)k|abc", "exact", r"(?i:k|abc)"),
            (r"(?ai)k|abc", "exact", r"(?ai:k|abc)"),
            (r"(?a)k|abc", "fold", r"(?ai:k|abc)"),
            (r"(?a)\babc\b", "exact", r"(?a:\babc\b)"),
        ],
        quick=3,
    ),
)
def test_borders_are_those_of_unicode(regex: str, case: str, scoped: str) -> None:
    policy = Policy(name="p", rules=(RegexRule(id="r", regex=regex, case=case, whole_word=True),))
    guard = Guard(policy)
    bound = guard.bind(tiny_tokenizer("byte-level"))
    expected = re.compile(rf"(?<!\w){scoped}(?!\w)")
    found = 0
    for before, word, after in itertools.product(TOUCHING, INSIDE, TOUCHING):
        text = before + word + after
        here = expected.search(text) is not None
        assert (
            bool(verify_by_definition(policy, text).findings) == here == bool(guard.verify(text).findings)
        ), text
        found += here
        if len(text) < 5:
            assert writable(bound, text) != here, text
    assert 0 < found < len(TOUCHING) ** 2 * len(INSIDE)


def writable(bound: object, text: str) -> bool:
    """Whether a session writes a text byte by byte and may end there."""
    session = bound.session()  # type: ignore[attr-defined]
    tokens = list(bound.vocabulary.tokens)  # type: ignore[attr-defined]
    for byte in text.encode():
        token = tokens.index(bytes([byte]))
        if session.mask()[token]:
            return False
        session.advance(token)
    return bool(session.may_end)
