"""English text: a paragraph with a bit of everything, and the docstrings of Python's standard library."""

from __future__ import annotations

import ast
import random
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from nco_guard.policy import Policy, StringRule, presets

__all__ = ["PROSE", "examples", "megabytes", "prose", "sown"]

PROSE = (
    "The assembly met again in the old town hall, and the secretary read the minutes of the last meeting. Questions "
    "about the budget were sent to mary.jones(at)example, not to the office; her number is 555-01, she said, and her "
    "account ends in 4411-22. Nobody asked why the analysis of the documents had taken so long. A class of students "
    "listened from the gallery: «C'est la vie», said one, 「本当に?」 another. At 10:45 the chair closed the session.\n"
)
_EVERY = 10_000


def prose(size: int) -> str:
    """Docstrings of the standard library, about so many characters."""
    found, length = list[str](), 0
    for docstring in _docstrings():
        if length >= size:
            break
        found.append(docstring)
        length += len(docstring)
    whole = "".join(found)
    return (whole * (size // len(whole) + 1))[:size]


def _docstrings() -> Iterator[str]:
    """All that are long enough to be text."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(path.read_text("utf-8"))
        except (SyntaxError, ValueError):  # some are there to be wrong
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node)
                if text and len(text) > 80:
                    yield text + "\n\n"


def sown(text: str, rng: random.Random) -> str:
    """The text with something that a preset forbids in every 10,000 characters."""
    forbidden = examples()
    rule = Policy.from_presets("ldnoobw").rules[0]
    words = rule.strings if isinstance(rule, StringRule) else ()
    pieces = [text[place : place + _EVERY] for place in range(0, len(text), _EVERY)]
    return "".join(f"{piece} {rng.choice((rng.choice(forbidden), rng.choice(words)))} " for piece in pieces)


def examples() -> list[str]:
    """What the presets of personal data and secrets say that they match."""
    return [t for name in ("pii", "secrets") for p in presets.patterns(name) for t in p.examples.match]


def megabytes(text: str) -> float:
    """Of its UTF-8."""
    return len(text.encode("utf-8", "surrogatepass")) / 1e6
