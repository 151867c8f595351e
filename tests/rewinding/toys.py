"""Models small enough that all texts can be written down: three letters, texts of one length, a table of numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nco_guard import Policy, StringRule
from nco_guard.compiler import compile_policy
from nco_guard.policy import Rewind
from nco_guard.rewinding import MatchStarts, RewindingRow
from nco_guard.session import BoundGuard
from nco_guard.session.state import TextState
from nco_guard.tokens import Vocabulary

LETTERS = "abc"
BAD = ("aba", "abbc", "bbb", "baab", "aaa")
Text = tuple[int, ...]


@dataclass
class Toy:
    """p(next | prefix) for each prefix of letters, drawn at random, with a push towards what is forbidden."""

    seed: int
    length: int = 5
    peak: float = 1.3
    push: float = 1.5
    bad: Sequence[str] = BAD

    @cached_property
    def bound(self) -> BoundGuard:
        policy = Policy(name="toy", rules=[StringRule(id="bad", strings=self.bad)])
        vocabulary = Vocabulary.build(
            [*(letter.encode() for letter in LETTERS), b""], eos_ids=[3], special_ids=[3], family="toy"
        )
        return BoundGuard(compile_policy(policy), vocabulary)

    @cached_property
    def tables(self) -> dict[Text, np.ndarray]:
        random = np.random.default_rng(self.seed)
        found: dict[Text, np.ndarray] = {}
        for size in range(self.length):
            for prefix in itertools.product(range(3), repeat=size):
                logits = random.normal(size=3) * self.peak
                for token in range(3):
                    text = "".join(LETTERS[i] for i in (*prefix, token))
                    if any(text.endswith(bad[:size]) for bad in self.bad for size in range(2, len(bad) + 1)):
                        logits[token] += self.push
                weights = np.exp(logits - logits.max())
                found[prefix] = np.append(weights / weights.sum(), 0.0)
        return found

    @cached_property
    def texts(self) -> list[Text]:
        """All texts without a match."""
        every = itertools.product(range(3), repeat=self.length)
        return [text for text in every if not any(bad in self.read(text) for bad in self.bad)]

    def read(self, text: Sequence[int]) -> str:
        return "".join(LETTERS[token] for token in text)

    def probability(self, text: Text) -> float:
        """Of a text, from the model alone."""
        return math.prod(self.tables[text[:place]][token] for place, token in enumerate(text))

    @cached_property
    def law(self) -> np.ndarray:
        """p(text | no match), in the order of `texts`."""
        mass = np.array([self.probability(text) for text in self.texts])
        return mass / mass.sum()

    def row(
        self, rewind: Rewind, random: np.random.Generator, *, greedy: bool = False, **options: int
    ) -> RewindingRow:
        text = TextState(self.bound)
        return RewindingRow(
            text,
            MatchStarts(self.bound, text),
            rewind,
            limit=self.length,
            greedy=greedy,
            uniform=random.random,
            **options,
        )

    def write(self, row: RewindingRow) -> Text:
        """The row's text, the model's answers looked up."""
        while not row.is_over:
            row.visit(ToyLook(self, tuple(row.ids), row))
            row.go()
        return tuple(row.ids)


@dataclass
class ToyLook:
    toy: Toy
    prefix: Text
    row: RewindingRow

    @property
    def probabilities(self) -> np.ndarray:
        return self.toy.tables[self.prefix]

    def masked(self) -> np.ndarray:
        masked = self.probabilities.copy()
        masked[self.row.forbidden()] = 0.0
        return masked / masked.sum()
