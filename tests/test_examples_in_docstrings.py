"""Public names say how they are used by an example that runs.

In an example the names of the package and of the object's own room are imported; `model`, `tokenizer` and `pipe` are a
loaded model of transformers, its tokenizer and a pipeline of both, and `hosted` stands for a model that somebody else
runs. What these are here is shipped; they are made only where an example names them.
"""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, is_typeddict

import pytest

import nco_guard
from nco_guard import Guard

PUBLIC = (
    "nco_guard",
    "nco_guard.analysis",
    "nco_guard.audit",
    "nco_guard.audit.report",
    "nco_guard.engines.hf",
    "nco_guard.engines.hf.continuous",
    "nco_guard.policy.presets",
    "nco_guard.replies",
    "nco_guard.scan",
    "nco_guard.testing",
    "nco_guard.values",
    "langchain_nco_guard",
    "llama_index.llms.nco_guard",
)
#: What people are given and do not make: shown by the examples of what gives it.
GIVEN = {
    *("Exposure", "Finding", "Report", "Redaction"),
    *("Advice", "Explanation", "Overblocking", "Reason", "Remark", "RuleBlocking", "RuleExplanation"),
    *("TokenBlocking", "TokenExplanation"),
    *(
        "Anchor",
        "ChainSummary",
        "Event",
        "EventLog",
        "Head",
        "IntegrityReport",
        "LoadedRule",
        "Problem",
        "RunSummary",
        "Span",
    ),
    *(
        "DeadEnd",
        "DecodeView",
        "GuaranteeConfigured",
        "Intervention",
        "PolicyLoaded",
        "RunFinished",
        "RunStarted",
    ),
    *("Verification", "AuditReport", "EventTable", "LogReport"),
    *("GenerationResult", "RequestResult", "StepReport", "WrappedPipeline"),
    *("Early", "Examples", "Pattern", "PresetInfo"),
    *("Fields", "InvalidCall", "Reasoning", "Text", "ToolCall"),
    #: Members of an enumeration, and what an engine needs of a guard.
    *("Role", "GuardLike"),
}
#: Attributes that say what a guard was made of.
SIMPLE = {"policy"}


def public() -> Iterator[tuple[str, str]]:
    for module in PUBLIC:
        try:
            names = importlib.import_module(module).__all__
        except ImportError:  # an integration that is not installed
            continue
        for name in names:
            yield module, name


def wants_example(value: object, name: str) -> bool:
    """Aliases of types, constants, errors and dictionaries for type checkers are no calls."""
    if isinstance(value, ModuleType) or not (inspect.isclass(value) or inspect.isroutine(value)):
        return False
    if inspect.isclass(value) and (issubclass(value, BaseException) or is_typeddict(value)):
        return False
    return name not in GIVEN


def documented() -> list[Any]:
    found = []
    for module, name in public():
        value = getattr(importlib.import_module(module), name)
        if wants_example(value, name):
            found.append(pytest.param(value, module, id=f"{module}.{name}"))
    for name, value in vars(Guard).items():
        if not name.startswith("_") and name not in SIMPLE:
            found.append(pytest.param(value, "nco_guard", id=f"nco_guard.Guard.{name}"))
    return found


@functools.cache
def loaded() -> tuple[Any, Any]:
    from nco_guard.demo import load

    return load()


def _pipe() -> Any:
    from transformers import pipeline

    return pipeline("text-generation", model=loaded()[0], tokenizer=loaded()[1])


def _hosted(module: str) -> Any:
    text = "Write to jane.doe@example.com."
    if module.startswith("llama_index"):
        from llama_index.llms.nco_guard.testing import ScriptedLLM

        return ScriptedLLM(script=[text])
    from langchain_core.messages import AIMessage

    from langchain_nco_guard.testing import ScriptedChatModel

    return ScriptedChatModel(script=[AIMessage(text)])


def names_for(module: str, text: str) -> dict[str, Any]:
    """What an example can name."""
    rooms = (nco_guard, importlib.import_module(module))
    names = {name: getattr(room, name) for room in rooms for name in room.__all__}
    given: dict[str, Callable[[], Any]] = {
        "model": lambda: loaded()[0],
        "tokenizer": lambda: loaded()[1],
        "pipe": _pipe,
        "hosted": lambda: _hosted(module),
    }
    return {**names, **{name: make() for name, make in given.items() if name in text}}


@pytest.mark.parametrize(("value", "module"), documented())
def test_every_public_name_has_an_example_that_runs(
    value: Any, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = inspect.getdoc(value) or ""
    assert ">>> " in text
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(text, names_for(module, text), module, None, None)
    shown: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=shown.append)
    assert result.attempted
    assert not result.failed, "".join(shown)


def test_what_is_left_out_exists() -> None:
    names = {name for _, name in public()}
    assert names | {"InvalidCall", "Role"} >= GIVEN
    assert set(vars(Guard)) >= SIMPLE
