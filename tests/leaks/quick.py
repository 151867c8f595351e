"""How tests run routes: with a few shapes each, or with all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.leaks.routes import Route, carried, check
from tests.leaks.shapes import Shape

__all__ = ["assert_holds", "some_of"]


def some_of(one: Route, routes: Sequence[Route], corpus: Sequence[Shape], count: int = 1) -> list[Shape]:
    """A few shapes for a route, others for the next one: all routes together see the whole corpus."""
    shapes = carried(one, corpus)
    alike = [other for other in routes if other.carries == one.carries]
    first = alike.index(one) * count
    return [shapes[(first + step) % len(shapes)] for step in range(min(count, len(shapes)))]


def assert_holds(one: Route, shapes: Sequence[Shape]) -> Counter[str]:
    """Run a route with shapes; also under no policy, so that it is known to show something."""
    looked: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    for shape in shapes:
        places, found = check(one, shape)
        looked += places
        if found:
            wrong[shape.name] = found
    assert not wrong, f"{one.name}: {wrong}"
    assert looked
    return looked
