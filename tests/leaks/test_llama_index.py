"""LlamaIndex: what hosted LLMs say, tools return, retrievers find, and local models insist on"""

from __future__ import annotations

import pytest

from tests.leaks.corpus import CORPUS
from tests.leaks.quick import assert_holds, some_of
from tests.leaks.routes import Route, carried, shows_something
from tests.leaks.routes_llama_index import ROUTES


@pytest.mark.parametrize("one", ROUTES, ids=repr)
def test_no_place_shows_what_is_forbidden(one: Route) -> None:
    assert_holds(one, some_of(one, ROUTES, CORPUS))


@pytest.mark.slow
@pytest.mark.parametrize("one", ROUTES, ids=repr)
def test_no_place_shows_it_in_any_shape(one: Route) -> None:
    assert_holds(one, carried(one, CORPUS))


@pytest.mark.slow
@pytest.mark.parametrize("one", ROUTES, ids=repr)
def test_without_a_policy_it_is_shown(one: Route) -> None:
    assert shows_something(one, carried(one, CORPUS))
