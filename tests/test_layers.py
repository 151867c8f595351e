"""The house keeps its layers, and importing it stays light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.application.use_cases import SUCCESS
from importlinter.cli import lint_imports

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "transformers", "tokenizers", "langchain_core", "llama_index")


def test_layers_are_kept() -> None:
    found = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)
    assert found == int(not SUCCESS), "run lint-imports to see which import breaks which contract"


@pytest.mark.parametrize(
    "code",
    [
        "import nco_guard",
        "import nco_guard; nco_guard.Guard.from_presets('pii', 'secrets', 'ldnoobw')",
        "import nco_guard; nco_guard.verify(nco_guard.Policy.from_presets('pii'), 'nothing')",
        "from nco_guard import cli",
        "from nco_guard import audit, batch, compiler, masking, session, testing, tokens",
        "import typer.testing, nco_guard.cli as c; "
        "assert typer.testing.CliRunner().invoke(c.app, ['--help']).exit_code == 0",
    ],
)
def test_neither_torch_nor_transformers_is_imported(code: str) -> None:
    show = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_is_shown_by_the_command_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nco_guard.cli", "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Usage" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert not imported & set(HEAVY)
