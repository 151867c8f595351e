"""The `nco-guard` command.

The commands import what they need when they run: `nco-guard --help` loads neither torch nor transformers.
"""

from __future__ import annotations

from nco_guard.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command with the process's arguments; ends the process with the command's exit status."""
    app(prog_name="nco-guard")
