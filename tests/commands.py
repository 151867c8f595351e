"""The command as tests call it, in this process."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from nco_guard.cli import app

__all__ = ["POLICY", "call", "fails_cleanly", "policy_file"]

POLICY = """\
name: test
rules:
  - {id: codename, strings: [Bluebird]}
  - {id: ssn, regex: '\\b\\d{3}-\\d{2}-\\d{4}\\b'}
"""


def call(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def fails_cleanly(result: Result, *words: str) -> None:
    """One line of error with these words, status 2 and nothing on standard output."""
    assert result.exit_code == 2, result.output
    assert not isinstance(result.exception, Exception), result.exception
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


def policy_file(folder: Path, text: str = POLICY) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    return path
