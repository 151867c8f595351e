"""The notebooks run, and neither what they print nor what is stored in them breaks their policy or names a machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from nco_guard import Guard, Policy
from tests.slow import rest_slow

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
MACHINE_PATH = re.compile(r"/(?:home|root|tmp|usr|Users|var|opt|work|private)/|[A-Z]:\\")


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard(Policy.from_presets("pii"))


def printed(notebook: Any) -> str:
    """Everything that the code cells show on standard output or as a value."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = [output.text for output in outputs if output.output_type == "stream" and output.name == "stdout"]
    data = [output.get("data", {}) for output in outputs if output.output_type != "stream"]
    return "\n".join([*texts, *("".join(item.get("text/plain", "")) for item in data)])


@pytest.mark.parametrize("path", rest_slow(NOTEBOOKS, 1), ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_nothing_forbidden(
    path: Path, guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = nbformat.read(path, as_version=4)
    stored = printed(notebook)
    folders = [ROOT, *(package.parent for package in ROOT.glob("integrations/*/pyproject.toml"))]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute(cwd=str(tmp_path))
    fresh = printed(notebook)
    assert guard.verify(fresh).ok
    assert guard.verify(stored).ok
    # Written on another machine the words may differ; how much there is to see may not.
    assert len(fresh.splitlines()) == pytest.approx(len(stored.splitlines()), abs=10)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_its_outputs_and_without_the_machine_that_made_them(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any(cell.outputs for cell in code)
    for cell in code:
        assert not cell.metadata
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr"
            assert not MACHINE_PATH.search(str(output))
    assert path.stat().st_size < 20_000
