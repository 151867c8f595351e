"""The table of `docs/replies.md`: which family is read and written in which way, from what the tests find."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from nco_guard.replies.formats import ReplyExample, ReplyFormat
from nco_guard.replies.writing import begun_name, written_calls, written_reply
from tests.replies.families import FORMATS, Read, at_start, cut_at_random, read, tools_for

__all__ = ["COLUMNS", "DOCS", "cell", "limits", "row", "table", "written"]

DOCS = Path(__file__).parents[2] / "docs" / "replies.md"
_CALLS = [
    ("find", {"q": "Σ", "n": 3, "deep": {"a": [1, "θ"]}, "on": True}),
    ("now", {}),
    ("find", {"q": "ξ\n'\""}),
]
_NOT = "-"


def _as_said(form: ReplyFormat, example: ReplyExample, pieces: list[str]) -> bool:
    calls = tuple((call.name, call.arguments) for call in example.calls)
    wanted = Read(example.content, example.reasoning, calls, example.invalid)
    return read(form, pieces, prefix=example.prefix, tools=[*example.tools]) == wanted


def _published(form: ReplyFormat, kind: Callable[[ReplyExample], bool]) -> bool:
    """Whether there are published examples of a kind, and all are read as they say."""
    found = [example for example in form.examples if kind(example)]
    return bool(found) and all(_as_said(form, example, [example.text]) for example in found)


def _written(form: ReplyFormat, count: int) -> bool:
    calls = _CALLS[:count]
    text = written_calls(form, calls)
    return read(form, [text], tools=tools_for(_CALLS)) == Read(calls=tuple(calls))


def _content(form: ReplyFormat) -> bool:
    return _published(form, lambda example: bool(example.content))


def _reasoning(form: ReplyFormat) -> bool | None:
    if form.reasoning is None:
        return None
    text = written_reply(form, "Σ.", reasoning="Ω,\nω.")
    return _published(form, lambda example: bool(example.reasoning)) and read(form, [text]) == Read(
        "Σ.", "Ω,\nω."
    )


def _one_call(form: ReplyFormat) -> bool | None:
    if form.call is None:
        return None
    return _published(form, lambda example: len(example.calls) == 1) and _written(form, 1)


def _several_calls(form: ReplyFormat) -> bool | None:
    if form.call is None or not form.call.several:
        return None
    return _published(form, lambda example: len(example.calls) > 1) and _written(form, 3)


def _forced(form: ReplyFormat) -> bool | None:
    if form.call is None:
        return None
    for name, arguments in _CALLS:
        whole, begun = written_calls(form, [(name, arguments)]), begun_name(form, name)
        rest = [*whole.removeprefix(begun)]
        if read(form, rest, tools=tools_for(_CALLS), begun=begun) != Read(calls=((name, arguments),)):
            return False
    return True


def _random_cuts(form: ReplyFormat) -> bool:
    random = Random(form.name)
    return all(
        _as_said(form, example, cut_at_random(example.text, random))
        for example in form.examples
        for _ in range(20)
    )


def _broken_off(form: ReplyFormat) -> bool | None:
    """Of a call that breaks off nothing is lost: it is no call, and what was written of it is told."""
    if form.call is None:
        return None
    calls = _CALLS[:1]
    content = "" if at_start(form) else "Ψ."
    text = written_reply(form, content, calls=calls)
    for end in range(len(text) + 1):
        found = read(form, [text[:end]], tools=tools_for(calls))
        told = found.content + "".join(found.invalid) + str(found.calls)
        if [letter for letter in text[:end] if letter in "ΨΣθ" and letter not in told]:
            return False
        if found.calls not in ((), tuple(calls)):
            return False
    return True


COLUMNS: dict[str, Callable[[ReplyFormat], bool | None]] = {
    "content": _content,
    "reasoning": _reasoning,
    "one call": _one_call,
    "several calls": _several_calls,
    "forced call": _forced,
    "random cuts": _random_cuts,
    "broken-off call": _broken_off,
}
_HEAD = f"| family | name | {' | '.join(COLUMNS)} |"


def cell(form: ReplyFormat, column: str) -> str:
    """What stands in the table: "yes" where all of it holds, a dash where the family has no such thing."""
    found = COLUMNS[column](form)
    return _NOT if found is None else "yes" if found else "NO"


def row(form: ReplyFormat, cells: Sequence[str]) -> str:
    """The family's line of the table."""
    return f"| {form.title} | `{form.name}` | {' | '.join(cells)} |"


def table() -> str:
    """A line for each family, of what is found now."""
    lines = [row(form, [cell(form, column) for column in COLUMNS]) for form in FORMATS]
    return "\n".join([_HEAD, "|---" * (len(COLUMNS) + 2) + "|", *lines])


def limits() -> str:
    """What families cannot say, or what of it is not read; one line where several say the same."""
    named: dict[str, list[str]] = {}
    for form in FORMATS:
        for limit in form.limits:
            named.setdefault(limit, []).append(f"`{form.name}`")
    return "\n".join(f"- {', '.join(names)}: {_shown(limit)}." for limit, names in named.items())


def _shown(limit: str) -> str:
    """Marks as code, so that none of them is taken for a tag of the page."""
    return re.sub(
        r"(<\S+>|\[TOOL_CALLS\]|>>>name|\(string=\)|\(type=\))", lambda found: f"`{found[0]}`", limit
    )


def written() -> dict[str, str]:
    """The lines of the table as the documentation has them, by the family's name."""
    found = re.search(re.escape(_HEAD) + r"\n\|[-|]+\n((?:\|.*\n)+)", DOCS.read_text(encoding="utf-8"))
    lines = found[1].splitlines() if found else []
    return {line.split("`")[1]: line for line in lines}
