"""What the writing says of the code is so: files that it names exist, words that it explains are used, rooms stand."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
ENTRY = re.compile(r"^\| (?P<word>[^|]+) \| (?P<meaning>.+) \| (?P<where>`[^|]+`) \|$", re.M)
MOST_ENTRIES = 30


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def paths_of(text: str) -> list[str]:
    """What is written as code and looks like a path; not patterns, urls and commands."""
    words = (match[1] for match in CODE.finditer(FENCE.sub("", text)))
    return [
        word for word in words if re.fullmatch(r"\.?[\w.-]+(/[\w.-]+)*(/|\.(py|md|toml|yaml|yml|txt))", word)
    ]


def entries() -> list[tuple[str, list[str]]]:
    found = ENTRY.finditer(text_of("docs/glossary.md"))
    return [(match["word"], paths_of(match["where"])) for match in found]


def contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads(text_of("pyproject.toml"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return contracts


def test_the_glossary_is_short_and_in_order() -> None:
    words = [word for word, _ in entries()]
    assert len(words) > 20
    assert len(words) <= MOST_ENTRIES
    assert words == sorted(words)


@pytest.mark.parametrize(("word", "files"), entries(), ids=[word for word, _ in entries()])
def test_a_word_of_the_glossary_is_used_where_it_is_said_to_be(word: str, files: list[str]) -> None:
    assert files, "name a file"
    # "future" as futures, "way out" as ways out, "root run" as the root's run
    anyhow = r"\W+".join(rf"{part}(?:s|'s)?" for part in word.split())
    for file in files:
        text = f"{file}\n{text_of(file)}".replace("_", " ")
        assert re.search(rf"\b{anyhow}", text, re.IGNORECASE), f"{file} does not say {word!r}"


def test_the_rooms_are_those_that_the_layers_name() -> None:
    section = text_of("docs/design.md").partition("## The rooms")[2]
    lines = section.split("```")[1].splitlines()
    drawn = [line[:26].split() for line in lines if line.strip() and not line.startswith(" ")]
    (layers,) = (each["layers"] for each in contracts() if each["type"] == "layers")
    assert drawn == [layer.replace("nco_guard.", "").split() for layer in layers]


def test_what_must_not_be_imported_is_told_under_the_rooms() -> None:
    section = text_of("docs/design.md").partition("## The rooms")[2].partition("\n## ")[0]
    points = [" ".join(point.split()) for point in section.split("\n* ")[1:]]
    for contract in contracts():
        if contract["type"] == "forbidden":
            (point,) = (each for each in points if each.startswith(f"*{contract['name']}*"))
            named = {match[1] for match in CODE.finditer(point.split("\n\n")[0])}
            for module in chain(contract["source_modules"], contract["forbidden_modules"]):
                assert module.removeprefix("nco_guard.") in named, module


def test_every_room_is_told() -> None:
    section = text_of("docs/design.md").partition("## The rooms")[2].partition("\n## ")[0]
    for path in sorted((ROOT / "nco_guard").iterdir()):
        name = path.stem
        if name.startswith("_") or (path.is_dir() and not (path / "__init__.py").exists()):
            continue
        if path.is_dir() or path.suffix == ".py":
            assert re.search(rf"\b{name}\b", section), f"{name} is not among the rooms of docs/design.md"
