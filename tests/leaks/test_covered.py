"""No public name without a route: what is added later must be looked at too."""

from __future__ import annotations

import importlib

import pytest

from nco_guard import Guard
from tests.leaks.corpus import CORPUS, ROOMS, routes_of
from tests.leaks.routes import carried
from tests.leaks.table import table, written_table

MODULES = ("nco_guard", "nco_guard.values", "langchain_nco_guard", "llama_index.llms.nco_guard")
#: What holds or describes a policy, and gives out nothing that was not put into it by its owner.
NO_WAY_OUT = {
    "nco_guard.AutomatonRule",
    "nco_guard.OnMatch",
    "nco_guard.Rewind",
    "nco_guard.StringRule",
    "nco_guard.presets",
    "nco_guard.values.Fields",
    "nco_guard.values.Role",
    "nco_guard.values.register",
    "nco_guard.Guard.from_file",
    "nco_guard.Guard.from_presets",
    "nco_guard.Guard.policy",
    "nco_guard.Guard.log",
}
ROUTES = [one for room in ROOMS for one in routes_of(room)]
COVERED = {name for one in ROUTES for name in one.covers}


def public_names() -> list[str]:
    """Everything that the packages give out, and every public method of a guard.

    But for classes of errors: what is raised is looked at on every route.
    """
    modules = [(module, importlib.import_module(module)) for module in MODULES]
    given = [(module, name, getattr(it, name)) for module, it in modules for name in it.__all__]
    names = [
        f"{module}.{name}"
        for module, name, it in given
        if not (isinstance(it, type) and issubclass(it, BaseException))
    ]
    return [*names, *(f"nco_guard.Guard.{name}" for name in vars(Guard) if not name.startswith("_"))]


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_is_gone_through_by_a_route(name: str) -> None:
    assert name in COVERED or name in NO_WAY_OUT


def test_what_is_left_out_exists() -> None:
    assert set(public_names()) >= NO_WAY_OUT
    assert not NO_WAY_OUT & COVERED


def test_routes_cover_what_exists() -> None:
    commands = {name for name in COVERED if name.startswith("nco_guard.cli.")}
    assert COVERED - commands <= set(public_names())


def test_every_shape_is_carried_by_a_route_and_every_route_carries_shapes() -> None:
    assert all(carried(one, CORPUS) for one in ROUTES)
    kinds = {kind for one in ROUTES for kind in one.carries}
    assert {shape.kind for shape in CORPUS} == kinds


def test_names_are_unique() -> None:
    assert len({one.name for one in ROUTES}) == len(ROUTES)
    assert len({(shape.kind, shape.name) for shape in CORPUS}) == len(CORPUS)


def test_the_table_of_the_documentation_is_the_current_one() -> None:
    assert written_table() == table()
