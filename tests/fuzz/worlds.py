"""Random worlds for the fuzzer: a policy, a tokenizer of some family, real models that long for what is forbidden."""

from __future__ import annotations

import copy
import random
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any

import torch
import transformers as hf

from nco_guard.automata.folding import FoldSpec, fold_text
from nco_guard.guard import Guard
from nco_guard.policy import AutomatonRule, Policy, RegexRule, Rule, StringRule
from nco_guard.testing import Family, biased_model, random_model, tiny_tokenizer
from tests.masking import random_policies

_TEXTS = (
    "a ab aab abb bab kk Kab 1a b1 a-b _a é aé éé ß a1b ab1 bb k1 11 1-1 _b_ b_a",
    "aa bb ab ba aab abk kab bak 1ab é1 a\nb\n\nk - -- a_a Kk kK KK \u212a ſ ab ab",
    "what the ab said to ba, and café 日本 😀 of it; john@enron.com 555-12",
)
PROMPTS = ("a", "ab ab", "b1 a b", "kab a-b k", "a\nb", "é a")


@cache
def tokenizer(family: Family) -> Any:
    return tiny_tokenizer(family, texts=_TEXTS, vocab_size=330)


# Matches that take several tokens: there is something to go back over.
_LONG = ("-1-k", "kab1-1", "é1é1", "b_1-_", "k-k-k", "_1_é_", "11kk11", "-é-k-")
_WANTS = ("ab", "ba", "aab", " a", "1a", "é", "k", "a\nb", "b_", "-", "aaaa", *_LONG)


@cache
def models(family: Family) -> tuple[Any, Any]:
    """One that only has random logits, and one that longs for what random policies forbid."""
    reader = tokenizer(family)
    return random_model(reader, 1, hidden=8), biased_model(reader, _WANTS, 2, hidden=8, bonus=6.0)


@cache
def other_model(family: Family, kind: str) -> Any:
    """A model of another kind, with the second one's longing: "sliding", "hybrid" or "encoder-decoder"."""
    reader = tokenizer(family)
    if kind == "encoder-decoder":
        return biased_model(reader, _WANTS, 2, hidden=8, bonus=6.0, seq2seq=True)
    like = models(family)[1]
    settings = like.config.to_dict()
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    names += (
        "max_position_embeddings",
        "eos_token_id",
        "pad_token_id",
        "bos_token_id",
        "tie_word_embeddings",
    )
    options = {name: settings[name] for name in names} | {"num_hidden_layers": 2, "sliding_window": 4}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        if kind == "sliding":
            model = hf.MistralForCausalLM(hf.MistralConfig(**options))
        else:
            kinds = ["sliding_attention", "full_attention"]
            model = hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**options, head_dim=4, layer_types=kinds))
        torch.nn.init.normal_(model.lm_head.weight)

    def long_for(_: Any, __: Any, inputs: dict[str, Any], output: Any) -> None:
        kept = output.logits.shape[1]
        output.logits = output.logits + like.bonus[inputs["input_ids"][:, -kept:]]

    model.register_forward_hook(long_for, with_kwargs=True)
    return model.eval()


@cache
def exact_models(family: Family) -> tuple[Any, Any]:
    """The same in double precision: padding a batch then changes no choice by rounding."""
    first, second = models(family)
    return copy.deepcopy(first).double(), copy.deepcopy(second).double()


def rule(rng: random.Random, name: str, *, prompts: bool) -> Rule:
    """A random rule that Python's own `re` can check; one that reads prompts only where `prompts` says so."""
    while True:
        found = random_policies.rule(rng, name)
        if not isinstance(found, AutomatonRule):
            context = "prompt" if prompts and rng.random() < 0.4 else "output"
            return found.model_copy(update={"context": context})


@dataclass(frozen=True)
class World:
    """One policy, one tokenizer, its models, and what `re` forbids."""

    guard: Guard
    family: Family
    tokenizer: Any
    models: tuple[Any, Any]
    exact_models: tuple[Any, Any]
    oracles: tuple[Oracle, ...]
    soft: bool

    def violated(self, text: str, context: str, continued: str) -> list[str]:
        """The patterns of hard rules that `re` finds in the text, or as ending in what continues the context."""
        with alarm(2.0):
            return [
                oracle.pattern.pattern
                for oracle in self.oracles
                if (oracle.crosses(context, continued) if oracle.reads_prompt else oracle.matches(text))
            ]
        return []


@dataclass(frozen=True)
class Oracle:
    """What `re` says of one hard rule."""

    fold: FoldSpec
    pattern: re.Pattern[str]
    reads_prompt: bool

    def matches(self, text: str) -> bool:
        return self.pattern.search(fold_text(text, self.fold)[0]) is not None

    def crosses(self, context: str, text: str) -> bool:
        """Whether some match ends in the text, whichever way it can be had."""
        folded, origin = fold_text(context + text, self.fold)
        if self.pattern.search(folded) is None:
            return False
        for end in range(len(folded), 0, -1):
            if origin[end - 1][1] <= len(context):
                return False
            ends = re.compile(
                rf"(?:{self.pattern.pattern})(?=[\s\S]{{{len(folded) - end}}}\Z)",
                self.pattern.flags & re.IGNORECASE,
            )
            if ends.search(folded):
                return True
        return False


def oracle(rule: Rule) -> Oracle:
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
    pattern = re.compile(source, re.IGNORECASE if rule.case == "fold" else 0)
    return Oracle(fold, pattern, rule.context == "prompt")


def world(rng: random.Random, family: Family) -> World:
    # Where a decoder rewrites what it reads, there is no one place where the output begins.
    prompts = family != "wordpiece" and rng.random() < 0.5
    rules = tuple(rule(rng, f"r{i}", prompts=prompts) for i in range(rng.randint(1, 3)))
    if rng.random() < 0.8:
        rules += (StringRule(id="long", strings=_LONG),)
    return World(
        Guard(Policy(name="fuzz", rules=rules)),
        family,
        tokenizer(family),
        models(family),
        exact_models(family),
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
