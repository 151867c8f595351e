"""LangChain's own standard tests on SmolLM2-135M-Instruct: nothing left out, and reported as they come.

A test fails by its form, which is an error here as anywhere, or by its wit: at an assertion on a value that somebody
has to find, or on a call that nobody requires. The summary has a line for each. The model is trained on none of it.
"""

from __future__ import annotations

from typing import Any

import pytest
from langchain_tests.integration_tests import ChatModelIntegrationTests

from langchain_nco_guard import ChatNCOGuard
from nco_guard import Guard, Policy

pytestmark = pytest.mark.slow

# Statements of the standard tests that only wit gets past.
WIT = (
    'assert tool_call["args"] == {"input": 3}',
    'assert content_tool_call["args"] == {"input": 3}',
    'assert any(block["type"] == "tool_call" for block in content_blocks)',
    "in customer_name",
)
# Arguments of calls that nobody required are asked for and not enforced.
_MISFIT = "the schema is asked for and not enforced"


def why_it_fails(item: pytest.Item, failed: pytest.ExceptionInfo[BaseException]) -> str:
    """A reason that is no fault; nothing where there is none."""
    inside = [entry for entry in failed.traceback if "langchain_tests" in str(entry.path)]
    statement = str(inside[-1].statement) if inside else ""
    if failed.errisinstance(AssertionError) and any(said in statement for said in WIT):
        called = inside[-1].locals.get("tool_call")
        fits = called is None or "magic" not in called["name"] or fits_magic(called["args"])
        return "wit" if fits else _MISFIT
    return ""


def fits_magic(arguments: Any) -> bool:
    """Whether arguments are of the form that the magic function of the standard tests asks for."""
    return set(arguments) == {"input"} and type(arguments["input"]) is int


class TestOnSmolLM2(ChatModelIntegrationTests):
    """All of them."""

    given: dict[str, Any] = {}

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _given(cls, smollm2: tuple[Any, Any], policy: Policy) -> None:
        cls.given |= {"model": smollm2[0], "tokenizer": smollm2[1], "guard": Guard(policy)}

    @property
    def chat_model_class(self) -> type[ChatNCOGuard]:
        return ChatNCOGuard

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**self.given, "max_tokens": 96, "temperature": 0}

    @property
    def supports_json_mode(self) -> bool:
        return True
