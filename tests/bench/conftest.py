"""These tests need what the extra `bench` brings; without it they are not collected. xgrammar may be missing."""

from __future__ import annotations

from importlib.util import find_spec

NEEDED = ("llguidance", "matplotlib", "psutil")

collect_ignore_glob = ["test_*.py"] if any(find_spec(name) is None for name in NEEDED) else []
