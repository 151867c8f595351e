"""The law of texts that go back, through `generate` itself: every text of a tiny model is written down.

What a text's probability is without a guard is found by transformers' own processors, one prefix after another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.policy import Rewind, Rule
from nco_guard.testing import random_model, tiny_tokenizer
from nco_guard.tokens import Vocabulary
from tests.rewinding.test_law import FREE, chi_square

LENGTH, BATCH = 4, 200
STRINGS = ("ab", "bbc", "cc")
HARD = StringRule(id="strings", strings=STRINGS)
SOFT = StringRule(id="soft", strings=["b"], penalty=1.5)
# By name: further options, further rules, and what `re` is to find nowhere.
SETTINGS: dict[str, tuple[dict[str, Any], list[Rule], str]] = {
    "plain": ({}, [], "ab|bbc|cc"),
    "top-p and repetition": ({"top_p": 0.97, "repetition_penalty": 1.1}, [], "ab|bbc|cc"),
    "n-grams": ({"min_new_tokens": 3, "no_repeat_ngram_size": 2}, [], "ab|bbc|cc"),
    "min-p": ({"min_p": 0.05}, [], "ab|bbc|cc"),
    "end": ({}, [RegexRule(id="end", regex=r"[ac]\Z")], r"ab|bbc|cc|[ac]\Z"),
    "soft": ({"temperature": 2.5}, [SOFT], "ab|bbc|cc"),
}


class World:
    """A model of which only a few tokens have any probability: three letters, the two bytes of an é, and the end."""

    def __init__(self) -> None:
        self.tokenizer = tiny_tokenizer("byte-level")
        self.model = random_model(self.tokenizer, 3)
        self.vocabulary: Vocabulary = Guard(Policy(name="p", rules=[HARD])).bind(self.tokenizer).vocabulary
        tokens = self.vocabulary.tokens
        self.eos = self.tokenizer.eos_token_id
        self.kept = [*(tokens.index(one) for one in (b"a", b"b", b"c", b"\xc3", b"\xa9")), self.eos]
        self.prompt = self.tokenizer(["ab"], return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            first = self.model(self.prompt.input_ids).logits[0, -1]
        wanted = (0.6, 0.5, 0.2, -0.2, 0.3, -0.6)
        bias = {(t,): float(x - first[t]) for t, x in zip(self.kept, wanted, strict=True)}
        a, b, c = self.kept[:3]
        bias.update({(a, b): 1.0, (b, b): 1.0, (b, c): 1.0})
        self.options = {
            "max_new_tokens": LENGTH,
            "do_sample": True,
            "top_k": 0,
            "temperature": 1.3,
            "suppress_tokens": [token for token in range(len(self.tokenizer)) if token not in self.kept],
            "sequence_bias": bias,
        }

    def processors(self, options: dict[str, Any]) -> Any:
        """What transformers makes of the options."""
        found: list[Any] = []

        def grab(_: Any, ids: torch.Tensor, *, logits_processor: Any, **others: Any) -> torch.Tensor:
            found.append(logits_processor)
            return ids

        config = hf.GenerationConfig(
            **{**self.options, **options}, eos_token_id=self.eos, pad_token_id=self.tokenizer.pad_token_id
        )
        self.model.generate(**self.prompt, generation_config=config, custom_generate=grab)
        return found[0]

    def law(
        self, options: dict[str, Any], soft: bool, holds: Callable[[str], bool]
    ) -> dict[tuple[int, ...], float]:
        """p(text | it is well-formed and holds no match)."""
        processors = self.processors(options)
        at = next(i for i, one in enumerate(processors) if isinstance(one, hf.TemperatureLogitsWarper))
        found: dict[tuple[int, ...], float] = {}

        def follow(prefix: tuple[int, ...], mass: float) -> None:
            if len(prefix) == LENGTH or prefix[-1:] == (self.eos,):
                found[prefix] = mass
                return
            ids = torch.cat([self.prompt.input_ids, torch.tensor([prefix], dtype=torch.long)], dim=1)
            with torch.no_grad():
                scores = self.model(ids).logits[:, -1].float()
            for one in processors[:at]:
                scores = one(ids, scores)
            if soft:
                scores[0, self.kept[1]] -= SOFT.penalty
            for one in processors[at:]:
                scores = one(ids, scores)
            shares = torch.softmax(scores, -1)[0]
            for token in torch.nonzero(shares > 0).ravel().tolist():
                follow((*prefix, token), mass * float(shares[token]))

        follow((), 1.0)
        good = {ids: mass for ids, mass in found.items() if self.is_text(ids, holds)}
        whole = sum(good.values())
        assert 0.1 < whole < 0.95  # something is forbidden, and something is not
        return {ids: mass / whole for ids, mass in good.items()}

    def is_text(self, ids: tuple[int, ...], holds: Callable[[str], bool]) -> bool:
        try:
            return not holds(self.vocabulary.raw_bytes(ids).decode())
        except UnicodeDecodeError:
            return False


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def drawn(world: World, name: str, rewind: Rewind, number: int) -> tuple[np.ndarray, np.ndarray, int]:
    """How often each text came, how probable each is, and how many texts have a fallback."""
    options, rules, pattern = SETTINGS[name]
    law = world.law(options, SOFT in rules, lambda text: re.search(pattern, text) is not None)
    guard = Guard(Policy(name="p", rules=[HARD, *rules]))
    torch.manual_seed(1)
    counts: Counter[tuple[int, ...]] = Counter()
    fallen = 0
    for _ in range(number // BATCH):
        result = guard.generate(
            world.model, world.tokenizer, ["ab"] * BATCH, rewind=rewind, **{**world.options, **options}
        )
        counts.update(map(tuple, result.token_ids))
        fallen += sum(one.fallbacks > 0 for one in result.rewinds)
    assert set(counts) <= set(law)
    return np.array([counts[ids] for ids in law]), np.array(list(law.values())), fallen


@pytest.mark.parametrize("name", SETTINGS)
def test_texts_are_drawn_from_the_law(name: str, world: World) -> None:
    counts, law, fallen = drawn(world, name, FREE, 1_600)
    assert fallen == 0
    assert chi_square(counts, law) > 0.001


def test_what_goes_back_to_the_match_is_not(world: World) -> None:
    counts, law, _ = drawn(world, "plain", Rewind(per_match=1, per_text=1), 1_600)
    assert chi_square(counts, law) < 0.001
