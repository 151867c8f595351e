"""Tiny models that long for what the guard forbids, and a guard whose texts `re` checks."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nco_guard.guard import Guard
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.testing import biased_model, tiny_tokenizer

WANTED = ("fuck", "ass ", "café", "jo@enron.com", " 555-12", "\nthe")
RULES = (
    StringRule(id="strings", strings=("fuck", "café")),
    StringRule(id="word", strings=("ass",), whole_word=True, case="fold"),
    RegexRule(id="mail", regex=r"[a-z]+@[a-z]+\.com"),
    RegexRule(id="number", regex=r"\b\d{3}-\d{2}(?!\d)"),
    RegexRule(id="line", regex=r"^the", context="output"),
)


class CheckedGuard(Guard):
    """A guard whose texts Python's own `re` can check too."""

    def __init__(self, *rules: Rule, memory_limit: int | None = None, **options: Any) -> None:
        super().__init__(Policy(rules=rules, name="tests"), **options)
        self._memory_limit = memory_limit

    def bind(self, *args: Any, **options: Any) -> BoundGuard:
        bound = super().bind(*args, **options)
        if self._memory_limit is not None:
            bound._memory_limit = bound.tables.memory_limit = self._memory_limit
        return bound

    def clean(self, text: str) -> bool:
        for rule in self.policy.rules:
            if isinstance(rule, StringRule):
                pattern = "|".join(map(re.escape, rule.strings))
                pattern = rf"(?<!\w)(?:{pattern})(?!\w)" if rule.whole_word else pattern
            elif isinstance(rule, RegexRule):
                pattern = rule.regex
            if rule.mode == "hard" and re.search(pattern, text, re.IGNORECASE if rule.case == "fold" else 0):
                return False
        return True


class DoubtingGuard(CheckedGuard):
    """A guard whose verifier reads " never" at the end of every text."""

    @property
    def verifier(self) -> Any:
        many = super().verifier.verify_many
        return SimpleNamespace(verify_many=lambda texts: many([text + " never" for text in texts]))


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
            # With its tokenizer: else another could get its id.
            made[key] = tokenizer, biased_model(tokenizer, WANTED, seed)
        return made[key][1]

    return model


@pytest.fixture(scope="session")
def guard_of() -> Callable[..., CheckedGuard]:
    return CheckedGuard


@pytest.fixture(scope="session")
def doubting_guard_of() -> Callable[..., DoubtingGuard]:
    return DoubtingGuard


@pytest.fixture(scope="session")
def guard() -> CheckedGuard:
    return CheckedGuard(*RULES)
