"""These tests need the extra `bench`; without it they are not collected."""

from __future__ import annotations

from importlib.util import find_spec

NEEDED = ("llguidance", "matplotlib", "psutil", "xgrammar")

collect_ignore_glob = ["test_*.py"] if any(find_spec(name) is None for name in NEEDED) else []
