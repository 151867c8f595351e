"""Tiny models that long for what the guard forbids, and a guard whose texts `re` checks."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from nco_guard.compiler import compile_policy
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.testing import biased_model, tiny_tokenizer
from nco_guard.tokens import read_vocabulary

WANTED = ("fuck", "ass ", "café", "jo@enron.com", " 555-12", "\nthe")
RULES = (
    StringRule(id="strings", strings=("fuck", "café")),
    StringRule(id="word", strings=("ass",), whole_word=True, case="fold"),
    RegexRule(id="mail", regex=r"[a-z]+@[a-z]+\.com"),
    RegexRule(id="number", regex=r"\b\d{3}-\d{2}(?!\d)"),
    RegexRule(id="line", regex=r"^the", context="output"),
)


class PolicyGuard:
    """Binds a policy; texts are checked by Python's own `re`."""

    def __init__(self, *rules: Rule, memory_limit: int = 512 << 20) -> None:
        self.policy = Policy(rules=rules, name="tests")
        self.memory_limit = memory_limit
        self.bound: dict[Any, BoundGuard] = {}

    def bind(
        self,
        tokenizer: Any,
        vocab_width: int | None = None,
        skip_special_tokens: bool = True,
        eos_token_ids: Iterable[int] | None = None,
    ) -> BoundGuard:
        vocabulary = read_vocabulary(
            tokenizer,
            vocab_width=vocab_width,
            skip_special_tokens=skip_special_tokens,
            eos_token_ids=eos_token_ids,
        )
        if vocabulary not in self.bound:
            self.bound[vocabulary] = BoundGuard(
                compile_policy(self.policy), vocabulary, memory_limit=self.memory_limit
            )
        return self.bound[vocabulary]

    def verify(self, text: str) -> bool:
        for rule in self.policy.rules:
            if isinstance(rule, StringRule):
                pattern = "|".join(map(re.escape, rule.strings))
                pattern = rf"(?<!\w)(?:{pattern})(?!\w)" if rule.whole_word else pattern
            elif isinstance(rule, RegexRule):
                pattern = rule.regex
            if rule.mode == "hard" and re.search(pattern, text, re.IGNORECASE if rule.case == "fold" else 0):
                return False
        return True


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=["byte-level", "byte-fallback"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return tiny_tokenizer(request.param)


@pytest.fixture(scope="session")
def byte_level() -> Any:
    return tiny_tokenizer("byte-level")


@pytest.fixture(scope="session")
def model_of() -> Callable[..., Any]:
    """The model of a tokenizer; made once."""
    made: dict[Any, Any] = {}

    def model(tokenizer: Any, seed: int = 1) -> Any:
        key = (id(tokenizer), seed)
        if key not in made:
            made[key] = biased_model(tokenizer, WANTED, seed)
        return made[key]

    return model


@pytest.fixture(scope="session")
def guard_of() -> Callable[..., PolicyGuard]:
    return PolicyGuard


@pytest.fixture(scope="session")
def guard() -> PolicyGuard:
    return PolicyGuard(*RULES)
