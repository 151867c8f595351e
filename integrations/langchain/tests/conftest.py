"""The model that ships with nco-guard, and the policies that it keeps breaking when left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import pipeline

from langchain_nco_guard import ChatNCOGuard
from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.demo import load


@pytest.fixture(scope="session")
def loaded() -> tuple[Any, Any]:
    torch.set_num_threads(1)
    return load()


@pytest.fixture(scope="session")
def pipe(loaded: tuple[Any, Any]) -> Any:
    model, tokenizer = loaded
    return pipeline("text-generation", model=model, tokenizer=tokenizer, max_new_tokens=24, do_sample=False)


@pytest.fixture(scope="session")
def policy() -> Policy:
    """What the shipped model writes most: addresses of mail, telephone numbers; and a word with borders."""
    return Policy(
        name="contacts",
        rules=(
            RegexRule(id="email", regex=r"[\w.]+@\w+\.[a-z]{2,}"),
            RegexRule(id="phone", regex=r"(?<!\d)\d{3}-\d{3}-\d{4}(?!\d)"),
            StringRule(id="word", strings=("reach",), whole_word=True, case="fold"),
        ),
    )


@pytest.fixture(scope="session")
def other_policy() -> Policy:
    return Policy(name="no-daniel", rules=(StringRule(id="daniel", strings=("Daniel",)),))


@pytest.fixture(scope="session")
def local(loaded: tuple[Any, Any]) -> Callable[..., ChatNCOGuard]:
    weak = Guard(Policy(name="weak", rules=(StringRule(id="w", strings=("zzz",)),)))

    def build(guard: Any = weak, **options: Any) -> ChatNCOGuard:
        given = {"max_tokens": 40, "temperature": 0, **options}
        return ChatNCOGuard(model=loaded[0], tokenizer=loaded[1], guard=guard, **given)

    return build


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out those standard tests that `test_standard.LEFT_OUT` names, with reasons."""
    left_out = [
        item
        for item in items
        if getattr(item.getparent(pytest.Class), "name", "") == "TestIntegration"
        and getattr(item, "originalname", "") in item.getparent(pytest.Module).obj.LEFT_OUT
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
