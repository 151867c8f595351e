"""What is printed for people cannot act on a terminal, forge a line, hide, or be read as markup."""

from __future__ import annotations

import ast
import io
import sys
import unicodedata
from pathlib import Path

import pytest

import nco_guard.cli
from nco_guard.audit import JsonLinesSink, RunRecorder
from nco_guard.cli.output import console, marked, print_json, say, say_text, stacked, table
from nco_guard.visible import visible
from tests.commands import call

HOSTILE = [
    "\x1b[2J\x1b[H",
    "\r",
    "\n",
    "\x9b2J",
    "\x85",
    "\u2028",
    "\u2029",
    "\u202e",
    "\u2066",
    "\u200f",
    "\u061c",
    "\u200b",
    "\ufeff",
    "\x00",
    "\x07",
    "\x08",
    "\x0b",
    "\x7f",
    "\ud800",
    "\U000e0041",
    "\u3164",
    "\u115f",
    "\u2800",
    "\ufe0f",
    "\u00a0",
    "\u00ad",
    "\ue000",
]
FORGED = "x\r\x1b[2K\nlog.jsonl: as it was written (2 events, 1 chains, 1 files)"


def bare(text: str) -> bool:
    """Whether only characters that show, and line breaks, are in a text that was printed."""
    return all(one == "\n" or one.isprintable() for one in text)


@pytest.mark.parametrize("one", HOSTILE)
def test_what_does_not_show_is_escaped(one: str) -> None:
    shown = visible(f"a{one}b")
    assert shown.isascii()
    assert shown.isprintable()
    assert len(shown) > 3
    assert visible(f"a{one}b", lines=True) == (f"a{one}b" if one == "\n" else shown)


def test_every_character_is_decided_by_what_unicode_says_of_it() -> None:
    control = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
    for code in range(sys.maxunicode + 1):
        one = chr(code)
        shown = visible(one)
        if unicodedata.category(one) in control and one != " ":
            assert shown != one, hex(code)
        if shown != one:
            assert shown.startswith("\\"), hex(code)
            assert shown.isprintable(), hex(code)


def test_what_shows_is_left_alone() -> None:
    text = "Grüße, 数 \N{GRINNING FACE} C:\\logs\\x [bold]a[/]"
    assert visible(text) is text or visible(text) == text


@pytest.mark.parametrize("one", HOSTILE)
def test_nothing_that_is_printed_acts_on_a_terminal(one: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"a{one}[bold red]b[/]:smile:"
    say(name)
    say_text(name, exact=False)
    print_json({name: name})
    out = console()
    out.print(name)
    out.rule(name)
    out.print(marked(name, [(1, 2)], colours=True))
    rows = table(out, name)
    rows.add_row(name)
    rows.add_row(stacked([name, name]))
    rows.title = name
    out.print(rows)
    printed = capsys.readouterr().out
    assert bare(printed)
    assert printed.count("[bold red]b") >= 5  # no markup was taken for such
    assert ":smile:" in printed


def test_a_name_with_a_line_break_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(FORGED)
    console().print(FORGED, soft_wrap=True)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all(line.startswith("x\\r") for line in printed)


def test_a_console_on_a_terminal_keeps_its_colours_and_escapes_those_of_others() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setenv("TERM", "xterm-256color")
        patch.delenv("NO_COLOR", raising=False)
        console().print("a\x1b[32mb", style="red")
    assert "a\\x1b[32mb" in stream.getvalue()
    assert stream.getvalue().startswith("\x1b[31m")


def test_only_one_module_of_the_command_line_writes_to_a_stream() -> None:
    folder = Path(nco_guard.cli.__file__).parent
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            written = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id
            if path.name != "output.py":
                assert written not in ("typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write"), (
                    path
                )
                assert called not in ("print", "Text", "Console"), path


def test_a_log_cannot_forge_the_verdict_about_itself(tmp_path: Path) -> None:
    path = tmp_path / f"log{FORGED[:8]}.jsonl" if sys.platform != "win32" else tmp_path / "log.jsonl"
    with JsonLinesSink(path) as sink:
        RunRecorder(sink).verification(ok=True, length=1)
    text = path.read_text()
    chain = text.partition('"chain":"')[2].partition('"')[0]
    path.write_text(text.replace(chain, FORGED.encode("unicode_escape").decode().replace("\\x", "\\u00")))
    for arguments in (["audit", "verify"], ["audit", "report", "-o", str(tmp_path / "page.html")]):
        result = call(*arguments, path)
        assert result.exit_code == 1
        assert bare(result.output)
        assert not any(line.startswith("log.jsonl: as") for line in result.output.splitlines())


def test_an_option_that_does_not_exist_is_shown_as_it_is() -> None:
    for arguments in (["audit", "verify", "--\x1b[2Jx"], ["check", "a", "--\x1b[2J"], ["\x1b[2J"], ["check"]):
        result = call(*arguments)
        assert result.exit_code == 2
        assert "\x1b[2J" not in result.output
