"""All that the commands print goes through here, and so through `nco_guard.visible`.

Names in a log, paths, texts of models and words of policies are anybody's; none of them may act on a terminal, begin a
line of its own or be read as markup. Nothing else in `nco_guard.cli` writes to a stream.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from nco_guard.visible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "console",
    "fail",
    "marked",
    "print_json",
    "say",
    "say_text",
    "stacked",
    "table",
    "take_any_text",
    "warn",
]

#: Where the width of a terminal is unknown, a table must still be readable in a log.
PLAIN_WIDTH = 100


def console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr; without a terminal: no colours, no control codes, 100 columns.

    Strings that it is given, in cells of tables too, are one line of plain text each: no markup, and what does not show
    is escaped. Texts with line breaks or styles are made by `marked`.
    """
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            rendered = super().render_str(visible(text), **{**options, "markup": False, "emoji": False})
            assert isinstance(rendered, Text)
            return rendered

    stream = (sys.stderr if stderr else sys.stdout) or io.StringIO()  # None: closed when the process began
    width = None if stream.isatty() else PLAIN_WIDTH
    return Plain(file=stream, width=width, markup=False, emoji=False, highlight=False, soft_wrap=False)


def take_any_text() -> None:
    """Write what stdout and stderr have no letters for as escapes: a terminal may know ASCII only."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().replace("-", "").startswith(
            "utf"
        ):
            stream.reconfigure(errors="backslashreplace")


def say(line: str, *, err: bool = False) -> None:
    """Print one line on stdout, or stderr; whatever it holds, it stays one line."""
    typer.echo(visible(line), err=err)


def say_text(text: str, *, exact: bool = False) -> None:
    """Print a text of several lines on stdout. exact: as it is, where stdout is no terminal but a file or a pipe."""
    shown = sys.stdout is not None and sys.stdout.isatty()
    typer.echo(text if exact and not shown else visible(text, lines=True))


def fail(message: str) -> NoReturn:
    """Print one message on stderr and end with exit status 2."""
    warn(message)
    raise typer.Exit(2)


def warn(message: str) -> None:
    """Print one message on stderr."""
    say(f"nco-guard: {message}", err=True)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout; all but printable ASCII escaped, so that any terminal or pipe takes it."""
    typer.echo(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


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
        result.append(visible(text[position:start], lines=True))
        if colours:
            result.append(visible(text[start:end], lines=True), style="bold white on red")
        else:
            result.append(f"[[{visible(text[start:end], lines=True)}]]")
        position = end
    result.append(visible(text[position:], lines=True))
    return result


def stacked(lines: Iterable[str]) -> Text:
    """Lines one below the other, for one cell of a table."""
    from rich.text import Text

    return Text("\n".join(map(visible, lines)))


def table(out: Console, *columns: str) -> Table:
    """A table for `out`, in ASCII where it may end up in a file; columns that begin with `>` align right."""
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD if out.is_terminal else box.ASCII2)
    for column in columns:
        result.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return result
