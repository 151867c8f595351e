"""What a test draws does not depend on the tests that its process ran before, nor on the run.

torch begins each process with another seed. Long tests (`slow`) keep that: they look at something new each time.
Hypothesis also draws literals of those modules of this project that are loaded, so that even under a fixed seed a test
drew by what ran before it; under one (`make test`) it draws none of them. The `conftest.py` of each folder of tests
takes the two hooks from here.
"""

from __future__ import annotations

import sys

import pytest
from hypothesis.internal.conjecture import providers

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
    if item.config.getoption("hypothesis_seed", None) is not None:
        providers._get_local_constants = providers.Constants  # it has no public switch
