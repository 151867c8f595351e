"""Consoles and the few things that every command prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = ["console", "fail", "marked", "print_json", "printable", "table", "warn"]

#: Where the width of a terminal is unknown, a table must still be readable in a log.
PLAIN_WIDTH = 100


def console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr; without a terminal: no colours, no control codes, 100 columns."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def fail(message: str) -> NoReturn:
    """Print one message on stderr and end with exit status 2."""
    warn(message)
    raise typer.Exit(2)


def warn(message: str) -> None:
    """Print one message on stderr."""
    typer.echo(f"nco-guard: {message}", err=True)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout; non-ASCII text escaped, so that any terminal or pipe takes it."""
    typer.echo(json.dumps(value, indent=2))


def marked(text: str, spans: Iterable[tuple[int, int]], *, colours: bool) -> Text:
    """`text` with the spans (code points, end exclusive) highlighted; without colours, between `[[` and `]]`.

    Overlapping spans are marked as one. Control characters other than line breaks become visible.
    """
    from rich.text import Text

    merged: list[list[int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    result, position = Text(), 0
    for start, end in merged:
        result.append(printable(text[position:start]))
        if colours:
            result.append(printable(text[start:end]), style="bold white on red")
        else:
            result.append(f"[[{printable(text[start:end])}]]")
        position = end
    result.append(printable(text[position:]))
    return result


def printable(text: str) -> str:
    """`text` with control characters escaped: a model can write them, a terminal must not obey."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def table(out: Console, *columns: str) -> Table:
    """A table for `out`, in ASCII where it may end up in a file; columns that begin with `>` align right."""
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD if out.is_terminal else box.ASCII2)
    for column in columns:
        result.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return result
