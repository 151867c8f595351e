"""Small trees are narrow everywhere; real ones are wide, with a thin end. Masks are tested over both."""

from __future__ import annotations

import pytest

from nco_guard.tokens import prefix_tree


@pytest.fixture(autouse=True)
def _some_levels_are_wide(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From test to test, all levels count as wide, or those with more than a few nodes."""
    monkeypatch.setattr(prefix_tree, "_NARROW", 4 * (sum(map(ord, request.node.name)) % 3))
