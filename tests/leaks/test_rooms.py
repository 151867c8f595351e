"""Every route of every room: no place shows what is forbidden.

Selected by room and name: `-k "agents and stream"`; each route is named `ROOM-NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.leaks.corpus import CORPUS, ROOMS, routes_of
from tests.leaks.routes import Route, carried, check, shows_something
from tests.leaks.shapes import Shape

every_route = pytest.mark.parametrize(
    ("room", "one"),
    [pytest.param(room, one, id=f"{room}-{one.name}") for room in ROOMS for one in routes_of(room)],
)


def one_shape(room: str, one: Route) -> Shape:
    """Another one for each route that carries the same: all together see many shapes."""
    shapes = carried(one, CORPUS)
    alike = [other for other in routes_of(room) if other.carries == one.carries]
    return shapes[alike.index(one) % len(shapes)]


def assert_holds(one: Route, shapes: Sequence[Shape]) -> None:
    found = {shape.name: check(one, shape) for shape in shapes}
    wrong = {name: what for name, (_, what) in found.items() if what}
    assert not wrong, f"{one.name}: {wrong}"
    assert any(looked for looked, _ in found.values())


@every_route
def test_no_place_shows_what_is_forbidden(room: str, one: Route) -> None:
    assert_holds(one, [one_shape(room, one)])


@pytest.mark.slow
@every_route
def test_no_place_shows_it_in_any_shape(room: str, one: Route) -> None:
    assert_holds(one, carried(one, CORPUS))


@pytest.mark.slow
@every_route
def test_without_a_policy_it_is_shown(room: str, one: Route) -> None:
    assert shows_something(one, carried(one, CORPUS))
