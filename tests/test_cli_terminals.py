"""The command on odd terminals: ASCII only, very narrow, or none; and how soon it says that a path is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.slow import rest_slow

SAYS_WHAT_IS_LOADED = """
import sys
from nco_guard.cli import app
try:
    app(sys.argv[1:])
except SystemExit as end:
    heavy = [name for name in ("torch", "transformers", "tokenizers") if name in sys.modules]
    print("loaded:", *heavy)
    raise
"""


def run(*arguments: object, program: str | None = None, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = ["-c", program] if program else ["-m", "nco_guard.cli"]
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, *command, *map(str, arguments)],
        stdin=subprocess.DEVNULL, env=environment, timeout=200, check=False, **{"capture_output": True, **options},
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "missing.yaml"),
        ("check", "pii_paper", "--tokenizer", "missing"),
        ("verify", "pii_paper", "missing.txt"),
        ("generate", "--model", "missing", "--policy", "pii_paper", "--prompt", "x"),
        ("explain", "pii_paper", "--tokenizer", "missing", "--text", "x"),
        ("audit", "verify", "missing.jsonl"),
    ],
)
def test_torch_is_not_loaded_to_say_that_a_path_is_wrong(arguments: tuple[str, ...]) -> None:
    found = run(*arguments, program=SAYS_WHAT_IS_LOADED)
    assert found.returncode == 2, found
    assert found.stdout.decode().splitlines()[-1:] == ["loaded:"], found
    assert b"missing" in found.stderr


@pytest.fixture
def odd(tmp_path: Path) -> tuple[Path, Path]:
    policy, text = tmp_path / "police-\u00e9.yaml", tmp_path / "caf\u00e9-\u8a9e.txt"
    policy.write_text(
        "name: caf\u00e9 \u8a9e\nrules: [{id: '\u00e9', strings: [secret]}]\n", encoding="utf-8"
    )
    text.write_text("a secret", encoding="utf-8")
    return policy, text


@pytest.mark.parametrize(
    "settings",
    rest_slow(
        [{"PYTHONIOENCODING": "ascii"}, {"LANG": "C", "LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"}], 1
    ),
)
def test_a_terminal_that_is_not_utf8(odd: tuple[Path, Path], settings: dict[str, str]) -> None:
    policy, text = odd
    for arguments, status in [
        (("check", policy), 0),
        (("verify", policy, text, "--show"), 1),
        (("check", text), 2),
    ]:
        found = run(*arguments, env=settings)
        assert found.returncode == status, found
        assert b"Traceback" not in found.stderr
    assert run("check", policy, env={"PYTHONIOENCODING": "ascii"}).stdout.isascii()


def test_no_terminal_at_all(odd: tuple[Path, Path]) -> None:
    policy, text = odd
    for arguments, status in [(("check", policy), 0), (("verify", policy, text), 1), (("presets",), 0)]:
        closed = (
            "import os, sys; os.close(1); os.close(2); "
            "os.execv(sys.executable, [sys.executable, '-m', 'nco_guard.cli', *sys.argv[1:]])"
        )
        assert run(*arguments, program=closed, capture_output=False).returncode == status


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_thirty_columns(odd: tuple[Path, Path]) -> None:
    import pty
    import struct

    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    policy, text = odd
    for arguments, status in [
        (("check", policy), 0),
        (("presets", "pii_paper"), 0),
        (("verify", policy, text), 1),
    ]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 30, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "30"}
        process = subprocess.Popen(
            [sys.executable, "-m", "nco_guard.cli", *map(str, arguments)],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
        )  # fmt: skip
        os.close(theirs)
        shown = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:
                break
            if not data:
                break
            shown += data
        os.close(ours)
        assert process.wait(300) == status, shown
        assert b"Traceback" not in shown
        assert shown
