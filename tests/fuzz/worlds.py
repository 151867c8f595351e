"""Random worlds for the fuzzer: a policy, a tokenizer of some family, real models that long for what is forbidden."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any

from nco_guard.automata.folding import FoldSpec, fold_text
from nco_guard.guard import Guard
from nco_guard.policy import AutomatonRule, Policy, RegexRule, Rule, StringRule
from nco_guard.testing import Family, biased_model, random_model, tiny_tokenizer
from tests.masking import random_policies

FAMILIES: tuple[Family, ...] = ("byte-level", "byte-fallback", "unigram")
_TEXTS = (
    "a ab aab abb bab kk Kab 1a b1 a-b _a é aé éé ß a1b ab1 bb k1 11 1-1 _b_ b_a",
    "aa bb ab ba aab abk kab bak 1ab é1 a\nb\n\nk - -- a_a Kk kK KK \u212a ſ ab ab",
    "what the ab said to ba, and café 日本 😀 of it; john@enron.com 555-12",
)
PROMPTS = ("a", "ab ab", "b1 a b", "kab a-b k", "a\nb", "é a")


@cache
def tokenizer(family: Family) -> Any:
    return tiny_tokenizer(family, texts=_TEXTS, vocab_size=330)


@cache
def models(family: Family) -> tuple[Any, Any]:
    """One that only has random logits, and one that longs for what random policies forbid."""
    wants = ("ab", "ba", "aab", " a", "1a", "é", "k", "a\nb", "b_", "-", "aaaa")
    reader = tokenizer(family)
    return random_model(reader, 1, hidden=8), biased_model(reader, wants, 2, hidden=8, bonus=6.0)


def rule(rng: random.Random, name: str) -> Rule:
    """A random rule that Python's own `re` can check."""
    while True:
        found = random_policies.rule(rng, name)
        if not isinstance(found, AutomatonRule):
            return found.model_copy(update={"context": "output"})


@dataclass(frozen=True)
class World:
    """One policy, one tokenizer, its models, and what `re` forbids."""

    guard: Guard
    tokenizer: Any
    models: tuple[Any, Any]
    oracles: tuple[tuple[FoldSpec, re.Pattern[str]], ...]
    soft: bool

    def violated(self, text: str) -> list[str]:
        """The patterns of hard rules that `re.search` finds."""
        with alarm(2.0):
            return [
                oracle.pattern for fold, oracle in self.oracles if oracle.search(fold_text(text, fold)[0])
            ]
        return []


def oracle(rule: Rule) -> tuple[FoldSpec, re.Pattern[str]]:
    """The rule's reference: Python's `re` on the folded text. Look-alikes only add to what a rule matches."""
    fold = FoldSpec()
    if not isinstance(rule, AutomatonRule):
        fold = FoldSpec(rule.normalize, rule.ignore, rule.json_escapes)
    if isinstance(rule, StringRule):
        # Its strings are what the folded text says, whatever they look like themselves.
        plain = FoldSpec(rule.normalize, rule.ignore)
        source = "|".join(re.escape(fold_text(string, plain)[0]) for string in rule.strings)
    elif isinstance(rule, RegexRule):
        source = rule.regex
    if rule.whole_word:
        source = rf"(?<!\w)(?:{source})(?!\w)"
    return fold, re.compile(source, re.IGNORECASE if rule.case == "fold" else 0)


def world(rng: random.Random, family: Family) -> World:
    rules = tuple(rule(rng, f"r{i}") for i in range(rng.randint(1, 3)))
    return World(
        Guard(Policy(name="fuzz", rules=rules)),
        tokenizer(family),
        models(family),
        tuple(oracle(r) for r in rules if r.mode == "hard"),
        any(r.mode == "soft" for r in rules),
    )


class _Late(Exception):
    pass


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Gives up on `re` where it backtracks for too long; the block is left early, without an error."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise _Late

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Late:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
