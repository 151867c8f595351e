"""All tests: their random numbers, and what they counted."""

from tests.counted import pytest_terminal_summary
from tests.seeded import pytest_runtest_call, pytest_runtest_setup

__all__ = ["pytest_runtest_call", "pytest_runtest_setup", "pytest_terminal_summary"]
