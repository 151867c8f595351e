"""Tiny models that long for what the guard forbids."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from toy import ToyGuard

from nco_guard.testing import biased_model, tiny_tokenizer

WANTED = ("fuck", "ass ", "café")
STRINGS = ("fuck", "café")
WORDS = ("ass",)


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


@pytest.fixture
def guard() -> Any:
    return ToyGuard(list(STRINGS), list(WORDS))
