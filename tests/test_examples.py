"""Every example runs, offline, and what it prints keeps its policy."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from nco_guard import Policy, verify

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs_and_prints_nothing_forbidden(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.strip()
    policy = Policy.from_presets("ldnoobw" if "pipeline" in script.stem else "pii")
    assert verify(policy, printed).ok
