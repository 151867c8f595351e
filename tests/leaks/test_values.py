"""The room for values: whatever shape a value has, what comes back holds nothing that is forbidden."""

from __future__ import annotations

import pytest

from tests.leaks.quick import assert_holds, some_of
from tests.leaks.routes import Route, carried, shows_something
from tests.leaks.routes_values import ROUTES
from tests.leaks.shapes_errors import ERRORS
from tests.leaks.shapes_texts import JSON, TEXTS
from tests.leaks.shapes_values import VALUES

CORPUS = [*TEXTS, *JSON, *VALUES, *ERRORS]


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
