"""Masks in the fields of formats: the automata by `bruteforce`, and `re` on what is shown of every reply that may come.

Marks are tokens of their own, the beginnings and ends of tokens, or cut into several.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import pytest

from nco_guard import Policy, RegexRule
from nco_guard.compiler import compile_policy
from nco_guard.masking import bruteforce
from nco_guard.replies.fields import FormatFields
from nco_guard.replies.formats import ReplyFormat, shipped_formats
from nco_guard.replies.parser import REASONING
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary
from tests.replies.families import FORMATS

PATTERNS = ["^a$", r"a\Z", "^b", "ab", r"\bab\b", r"^\n", r"a\s*\Z", "a$", r"a\nb?\Z", r"b\Z"]
STEPS = 5
# How many more tokens are tried before a text counts as one that cannot be brought to an end.
FURTHER = 3


def marks(form: ReplyFormat) -> list[str]:
    """What cuts the replies of a format, and what stands beside it in its examples."""
    found = set(re.findall(r"<[^<>()?*+\\]{2,30}>", form.marks().replace("\\", "")))
    for example in form.examples:
        parts = re.split(r"(<[^<>]*>|\[[A-Z_/]+\]|\n+)", example.text)
        found |= {part for part in parts if len(part) < 40 and not part.strip().isalnum()}
    return sorted(found - {""})


def words(form: ReplyFormat, rng: random.Random) -> list[str]:
    """Few tokens: letters, and marks whole or in pieces, alone or with what stands beside them."""
    known, found = marks(form), {"a", "b", rng.choice(["\n", " "])}
    for mark in rng.sample(known, min(len(known), rng.randint(1, 3))):
        cut = rng.randint(0, len(mark)) if rng.random() < 0.4 else 0
        found |= {mark[:cut], mark[cut:]}
        found |= {word for word in ("a" + mark, mark + "\n", mark + "a") if rng.random() < 0.2}
    return rng.sample(sorted(found - {""}), len(found - {""}))


class World:
    """A policy in the fields of a format, over few tokens."""

    def __init__(
        self, form: ReplyFormat, tokens: list[str], patterns: list[str], fields: FormatFields
    ) -> None:
        self.tokens, self.end = tokens, len(tokens)
        written = [*(token.encode() for token in tokens), b"<end>"]
        vocabulary = Vocabulary.build(written, eos_ids=[self.end], skip_special_tokens=False)
        rules = [RegexRule(id=f"r{number}", regex=pattern) for number, pattern in enumerate(patterns)]
        policy = compile_policy(Policy(name="p", rules=rules))
        self.tables = BoundGuard(policy, vocabulary.with_regions(fields)).tables
        self.fields, self.patterns = fields, patterns
        self._known: dict[str, bool] = {}

    def keeps(self, text: str) -> bool:
        """The definition: whether a reply may end so."""
        found = self._known.get(text)
        if found is None:
            shown = ["".join(one.text for one in each) for each in self.fields.texts(text)]
            found = not any(re.search(pattern, one) for pattern in self.patterns for one in shown)
            self._known[text] = found
        return found

    def leads(self, text: str, further: int) -> bool:
        """Whether a reply that is written so far can be brought to an end by so many tokens."""
        if self.keeps(text):
            return True
        return further > 0 and any(self.leads(text + token, further - 1) for token in self.tokens)


def drawn(rng: random.Random) -> World:
    form = rng.choice(FORMATS)
    fields = FormatFields(form, calls=rng.random() < 0.8, free=rng.choice([(), (), (REASONING,)]))
    return World(form, words(form, rng), rng.sample(PATTERNS, rng.randint(1, 2)), fields)


def walked(world: World, rng: random.Random, look: Callable[[int, str], None]) -> None:
    """Go where masks lead."""
    state, text = world.tables.start, ""
    for _ in range(STEPS):
        look(state, text)
        free = np.setdiff1d(np.arange(world.end), world.tables.forbidden(state)).tolist()
        if not free:
            return
        token = rng.choice(free)
        state, text = world.tables.next(state, token), text + world.tokens[token]


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 80))]
)
def test_masks_are_the_definition_in_the_fields_of_any_format(seed: int) -> None:
    rng = random.Random(seed)
    world = drawn(rng)
    tables = world.tables

    def look(state: int, text: str) -> None:
        mask = np.zeros(world.end + 1, bool)
        mask[tables.forbidden(state)] = True
        slow = bruteforce.forbidden(tables.constraints, tables.components(state), tables.vocabulary)
        assert mask.tolist() == slow.tolist(), text
        assert mask[world.end] != world.keeps(text), text
        for token, word in enumerate(world.tokens):
            leads = world.leads(text + word, 1) or (not mask[token] and world.leads(text + word, FURTHER))
            assert mask[token] != leads, (text, word)

    walked(world, rng, look)


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 60))]
)
def test_so_are_masks_near_a_limit(seed: int) -> None:
    rng = random.Random(seed)
    world = drawn(rng)
    tables = world.tables

    def look(state: int, text: str) -> None:
        for left in range(3):
            mask = tables.forbidden(state, left)
            for token, word in enumerate(world.tokens):
                assert (token in mask) != world.leads(text + word, left), (text, word, left)

    walked(world, rng, look)


@pytest.mark.parametrize(
    ("name", "tokens", "patterns", "free", "text", "barred"),
    [
        # A mark that is whole and may grow: what stands before it is over.
        ("olmo-3", ["a", "<think>", "a<think>", "\n"], ["^a$"], (), "", {"a<think>"}),
        ("olmo-3", ["a", "<think>", "\n", "b"], ["^a$"], (), "a", {"<think>"}),
        # Blanks before a mark that is left out are certain to be text with what follows them alone.
        ("deepseek-v3.1", ["a", "<think>", " ", "\n"], [r"^\n"], (REASONING,), "\n", {"a"}),
    ],
)  # fmt: skip
def test_what_waits_for_more(
    name: str, tokens: list[str], patterns: list[str], free: tuple[str, ...], text: str, barred: set[str]
) -> None:
    form = shipped_formats()[name]
    world = World(form, tokens, patterns, FormatFields(form, free=free))
    state = world.tables.start
    for token in text:
        state = world.tables.next(state, tokens.index(token))
    mask = world.tables.forbidden(state).tolist()
    assert {token for number, token in enumerate(tokens) if number in mask} == barred
