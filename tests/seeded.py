"""What a test draws does not depend on the tests that its process ran before, nor on the run.

torch begins each process with another seed. Long tests (`slow`) keep that: they look at something new each time. The
`conftest.py` of each folder of tests takes the two hooks from here.
"""

from __future__ import annotations

import sys

import pytest

__all__ = ["pytest_runtest_call", "pytest_runtest_setup"]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fixtures draw too, those of a module with its first test."""
    _begin(item)


def pytest_runtest_call(item: pytest.Item) -> None:
    """The test."""
    _begin(item)


def _begin(item: pytest.Item) -> None:
    if "torch" in sys.modules and item.get_closest_marker("slow") is None:
        sys.modules["torch"].manual_seed(0)
