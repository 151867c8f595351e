"""These tests need what `benchmarks/requirements.txt` brings; else they are not collected. xgrammar may be missing."""

from __future__ import annotations

from importlib.util import find_spec

NEEDED = ("llguidance", "matplotlib", "psutil")

collect_ignore_glob = ["test_*.py"] if any(find_spec(name) is None for name in NEEDED) else []
