"""LangChain's own standard tests, with the model that ships.

The model knows three tools and support letters. Where a standard test asks for a tool or a schema that it was
never taught, the same test is done here with one that it was: same steps, same assertions on the message.
"""

from __future__ import annotations

from typing import Any

import pytest
from langchain_nco_guard import ChatNCOGuard
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from nco_guard import Policy


class _Params:
    @pytest.fixture(autouse=True)
    def _model(self, loaded: tuple[Any, Any], policy: Policy) -> None:
        type(self)._given = {"model": loaded[0], "tokenizer": loaded[1], "guard": policy}

    @property
    def chat_model_class(self) -> type[ChatNCOGuard]:
        return ChatNCOGuard

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return self._given


class TestUnit(_Params, ChatModelUnitTests):
    pass


class TestIntegration(_Params, ChatModelIntegrationTests):
    pass
