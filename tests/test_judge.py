"""llguidance as an independent judge: its masks and ours agree, token for token, on what both can express."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from benchmarks.methods.peers import LLGuidance
from nco_guard.compiler import compile_policy
from nco_guard.policy import Policy, RegexRule, StringRule, presets
from nco_guard.session import BoundGuard
from nco_guard.testing import tiny_tokenizer
from nco_guard.tokens import read_vocabulary

STRINGS = ("ass", "fuck", "the end", "a.b", "x/y", "café", "日本", "é", "\n\n", "😀", " of ", "(a)", "class")
PATTERNS = (
    r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}",
    r"[0-9]{3}-[0-9]{2}-[0-9]{4}",
    r"[0-9]{3}-[0-9]{3}-[0-9]{4}",
    r"a.{0,6}b",
    r"(?:ab|ba)+c",
    r"[^a-z\n]{4}",
    r"t[a-z]*e",
    r"é|日.",
    r"q{2,4}",
    r"\n +x",
)


class Court:
    """One tokenizer, seen by both."""

    def __init__(self, tokenizer: Any) -> None:
        self.vocabulary = read_vocabulary(tokenizer)
        (self.eos,) = self.vocabulary.eos_ids
        self.judge = LLGuidance(view=LLGuidance.read(tokenizer, self.vocabulary.width))
        tokens = self.vocabulary.tokens
        # Its documented extra: what it calls special cannot be written at all.
        self.special = np.array([not token for token in tokens])
        self.special[[*self.vocabulary.special_ids, *self.vocabulary.unusable_ids]] = True
        self.special[self.eos] = False

    def agree(
        self, rng: random.Random, strings: tuple[str, ...], patterns: tuple[str, ...], steps: int
    ) -> int:
        """Compare all masks along a random text; returns how many entries were compared."""
        rules = [StringRule(id="s", strings=strings)] if strings else []
        rules += [RegexRule(id=f"p{i}", regex=pattern) for i, pattern in enumerate(patterns)]
        session = BoundGuard(
            compile_policy(Policy(name="judge", rules=tuple(rules))), self.vocabulary
        ).session()
        judge = self.judge.setup(strings, patterns, None, vocabulary=self.vocabulary).matcher()
        wanted = "".join(rng.choice([*strings, *SNIPPETS]) for _ in range(steps)).encode()
        width, compared = self.vocabulary.width, 0
        for _ in range(steps):
            ours, theirs = session.mask(), judge.forbidden()
            # Ours allows the skipped special tokens: they add nothing to the text.
            differing = np.flatnonzero((ours != theirs) & ~self.special)
            assert not len(differing), (strings, patterns, session.text, differing[:5])
            compared += width
            allowed = np.flatnonzero(~ours & ~self.special)
            allowed = allowed[allowed != self.eos]
            # Mostly on towards forbidden text, sometimes anywhere.
            fitting = [i for i in allowed.tolist() if wanted.startswith(self.vocabulary.tokens[i])]
            token = rng.choice(fitting if fitting and rng.random() < 0.9 else allowed.tolist())
            wanted = wanted[len(self.vocabulary.tokens[token]) or 1 :]
            session.advance(token)
            judge.advance(token)
        return compared


SNIPPETS = (
    "the ", "jo@enron.com", "078-05-112", "0", "555-123-4567", "axxb", "abbac", "tie", "qqq", "\n  x", "é", "日本",
    "HELLO", " of the", "a", "😀",
)  # fmt: skip


@pytest.fixture(scope="module")
def tiny() -> Court:
    return Court(tiny_tokenizer("byte-level"))


@pytest.mark.parametrize("seed", range(12))
def test_an_independent_engine_agrees_token_for_token(seed: int, tiny: Court) -> None:
    rng = random.Random(seed)
    strings = tuple(rng.sample(STRINGS, rng.randint(0, 4)))
    patterns = tuple(rng.sample(PATTERNS, rng.randint(0 if strings else 1, 3)))
    assert tiny.agree(rng, strings, patterns, steps=40) > 10_000


def real_tokenizers() -> list[Path]:
    folder = os.environ.get("NCO_GUARD_TOKENIZERS")
    return sorted(Path(folder).glob("*/tokenizer.json")) if folder else []


@pytest.mark.slow
@pytest.mark.skipif(not real_tokenizers(), reason="NCO_GUARD_TOKENIZERS names no folder with tokenizers")
def test_an_independent_engine_agrees_over_real_vocabularies() -> None:
    """The lexicon as substrings, the paper's patterns, and random mixtures."""
    rng, compared = random.Random(0), 0
    lexicon = presets.load("ldnoobw", languages=["en"], substring=True)
    words = tuple(s for rule in lexicon for s in rule.strings)
    assert len(words) > 400
    for path in real_tokenizers():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(path.parent)
        try:
            court = Court(tokenizer)
        except ValueError:
            continue  # no end of its own
        if court.vocabulary.strips_first_space:
            continue  # it does not know that decoders drop the first space
        compared += court.agree(rng, words, (), steps=60)
        compared += court.agree(rng, (), PATTERNS[:3], steps=60)
        for _ in range(4):
            compared += court.agree(
                rng, tuple(rng.sample(STRINGS, 3)), tuple(rng.sample(PATTERNS, 2)), steps=30
            )
    print(f"{compared:,} entries of masks compared")
    assert compared > 10_000_000
