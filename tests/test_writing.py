"""What the writing says of the code is so: files that it names exist, words that it explains are used, rooms stand."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

import langchain_nco_guard
import nco_guard

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(
    r"[\w.-]+(/[\w.-]+)*/|[\w.-]+(/[\w.-]+)+|[\w.-]+\.(py|md|toml|yaml|yml|txt)|Makefile|LICENSE"
)
ENTRY = re.compile(r"^\| (?P<word>[^|]+) \| (?P<meaning>.+) \| (?P<where>`[^|]+`) \|$", re.M)
MOST_ENTRIES = 30
TIMED = {"test_pathological.py", "test_turns.py"}
WALKS = ["a new checksum", "a new tokenizer family", "a new engine", "a new sink", "a new framework"]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def paths_of(text: str) -> list[str]:
    """What is written as code and looks like a path; not patterns, urls and commands."""
    words = (match[1] for match in CODE.finditer(FENCE.sub("", text)))
    return [word for word in words if PATH.fullmatch(word)]


def entries() -> list[tuple[str, list[str]]]:
    found = ENTRY.finditer(text_of("docs/glossary.md"))
    return [(match["word"], paths_of(match["where"])) for match in found]


def contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads(text_of("pyproject.toml"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return contracts


def test_no_test_asks_a_clock() -> None:
    """`TIMED`: bounds of minutes for what else would take hours."""
    clock = re.compile(r"\b(perf_counter|monotonic|process_time|time\.time)\(")
    folders = [ROOT / "tests", *ROOT.glob("integrations/*/tests")]
    files = chain.from_iterable(folder.rglob("test_*.py") for folder in folders)
    asking = {path.name for path in files if clock.search(path.read_text("utf-8"))}
    assert asking == TIMED


def test_the_oldest_versions_that_are_tested_are_the_lower_bounds() -> None:
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    bounds = dict(re.findall(r"(\S+?)>=(\S+)", "\n".join([*extras["hf"], *extras["shape"]])))
    pins = dict(re.findall(r"^(\w+)==(\S+)$", text_of("constraints-lowest.txt"), re.M))
    newest = dict(re.findall(r"^(\w+)==(\S+)$", text_of("constraints.txt"), re.M))
    assert set(pins) == {"llguidance", "transformers"}
    for name, pin in pins.items():
        assert pin.removesuffix(".0") == bounds[name]
        assert newest[name] != pin


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
    table = section.partition("|---|---|\n")[2].partition("\n\n")[0]
    drawn = [[match[1] for match in CODE.finditer(row.split(" | ")[0])] for row in table.splitlines()]
    (layers,) = (each["layers"] for each in contracts() if each["name"] == "Layers, downwards only")
    assert drawn == [layer.replace("nco_guard.", "").split(" | ") for layer in layers]


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


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "docs/design.md"])
def test_every_path_that_is_named_exists(page: str) -> None:
    named = paths_of(text_of(page))
    assert named
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing, f"{page} names what is not there: {missing}"


def test_what_contributing_names_is_in_the_files_that_it_names() -> None:
    text = text_of("CONTRIBUTING.md")
    files = [ROOT / path for path in paths_of(text)]
    held = "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
    names = [match[1] for match in CODE.finditer(FENCE.sub("", text))]
    for name in names:
        if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name) and not PATH.fullmatch(name):
            assert re.search(rf"\b{name.rpartition('.')[2]}\b", held), f"{name} is in none of the files"
    placed = re.findall(r"`(\w+(?:\.\w+)*)`,?\s+(?:in\s+|of\s+|\()`([\w/.-]+\.py)`", text)
    assert len(placed) >= 5
    for name, path in placed:
        made = rf"^\s*(?:class |def |){name.rpartition('.')[2]}\b\s*[(:=]"
        assert re.search(made, text_of(path), re.M), f"{name} is not made in {path}"


def test_the_five_walks_lead_through_real_files() -> None:
    walks = text_of("CONTRIBUTING.md").partition("## Five walks")[2].split("\n### ")[1:]
    assert [walk.partition("\n")[0].lower() for walk in walks] == WALKS
    for walk in walks:
        files = {path for path in paths_of(walk) if (ROOT / path).is_file()}
        assert len(files) >= 5
        assert any(path.startswith("tests/") for path in files), walk[:30]


def test_the_hooks_are_what_make_lint_calls_and_nothing_is_fetched() -> None:
    hooks = yaml.safe_load(text_of(".pre-commit-config.yaml"))
    assert [repo["repo"] for repo in hooks["repos"]] == ["local"]
    recipe = text_of("Makefile").partition("\nlint:")[2].partition("\n\n")[0]
    wanted = [line.strip().removeprefix("$(BIN)/") for line in recipe.splitlines()[1:]]
    entries = []
    for hook in hooks["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        assert shutil.which(hook["entry"].split()[0], path=str(Path(sys.executable).parent)), hook["entry"]
        entries.append(hook["entry"] + ("" if hook.get("pass_filenames") is False else " ."))
    assert entries == wanted


def test_nobody_is_named_where_faults_are_reported() -> None:
    text = text_of("SECURITY.md")
    assert "private report" in text
    assert "docs/guarantees.md" in text
    assert "@" not in text


def stale(name: str) -> bool:
    """Whether a dotted name begins at a room of the library and leads nowhere in it."""
    place = ROOT / "nco_guard"
    parts = name.split(".")
    while parts and ((place / parts[0]).is_dir() or (place / f"{parts[0]}.py").is_file()):
        part = parts.pop(0)
        if (place / f"{part}.py").is_file():
            place = place / f"{part}.py"
            break
        place = place / part
    if place == ROOT / "nco_guard" or not parts:
        return False
    sources = [place] if place.is_file() else sorted(place.glob("*.py"))
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    return any(not re.search(rf"\b_?{part}\b", text) for part in parts)


@pytest.mark.parametrize("page", ["docs/design.md", "docs/glossary.md", "CONTRIBUTING.md"])
def test_every_dotted_name_leads_somewhere(page: str) -> None:
    words = (match[1] for match in CODE.finditer(FENCE.sub("", text_of(page))))
    dotted = [word for word in words if re.fullmatch(r"[a-z_]\w*(\.\w+)+", word) and not PATH.fullmatch(word)]
    assert not [word for word in dotted if stale(word)]
    assert stale("masking.nowhere_at_all")
    assert stale("masking.joint.nowhere_at_all")
    assert not stale("masking.joint.JointTables")


def gone(name: str) -> bool:
    """Whether a path, a name of the library or a member of one of its classes that is written out is not there."""
    head, _, rest = name.partition(".")
    if PATH.fullmatch(name):
        return not (ROOT / name).exists()
    if head == "nco_guard":
        room = rest.partition(".")[0]
        there = [ROOT / "nco_guard" / room, ROOT / "nco_guard" / f"{room}.py"]
        return stale(rest) or not (any(map(Path.exists, there)) or hasattr(nco_guard, room))
    if isinstance(made := getattr(nco_guard, head, None), type):
        return not re.search(rf"\b{rest.partition('.')[0]}\b", " ".join([*dir(made), *made.__annotations__]))
    return head != "guard" and stale(name)  # `guard` is somebody's guard


def spoken_of_as_there(text: str) -> list[str]:
    """Names in the changelog that are gone, where no "was `name`" or "`name` is `successor`" says so."""
    text = " ".join(text.split())
    names = [match for match in CODE.finditer(text) if re.fullmatch(r"[\w./-]+", match[1])]
    rooms = {
        match[1].split(".")[1] for match in names if match[1].startswith("nco_guard.") and gone(match[1])
    }
    found = []
    for match in names:
        name, before = match[1], re.split(r"\. |\B- ", text[: match.start()])[-1]
        if not (("." in name and gone(name)) or ("." in name and name.split(".")[0] in rooms)):
            continue
        after = re.match(r" (is|are|was|were) (in )?(it\b|`)| held is| (is|are) gone", text[match.end() :])
        if not after and not re.search(r"\b(was|were) ", before):
            found.append(name)
    return found


def test_the_changelog_calls_what_is_gone_gone() -> None:
    text = text_of("CHANGELOG.md")
    under_way = text.partition("\n## ")[2].partition("\n## ")[0]
    assert "### Changed" in under_way
    assert not spoken_of_as_there(under_way)
    wrong = ["`nco_guard.redaction` is about text", "see `benchmarks/redact.py`", "by `Guard.nothing`"]
    wrong.append("`nco_guard.redaction` is `nco_guard.scan`; by `redaction.redact`")
    assert [len(spoken_of_as_there(each)) for each in wrong] == [1] * 4
    assert not spoken_of_as_there("`Guard.policy`; `masking.tables.nothing` is `nco_guard.verify`")


def test_no_docstring_says_only_that_it_is_the_same() -> None:
    """Whoever reads one does not know what stands above it."""
    rooms = (ROOT / "nco_guard", ROOT / "integrations", ROOT / "benchmarks", ROOT / "tools")
    files = [path for room in rooms for path in room.rglob("*.py") if "tests" not in path.parts]
    assert len(files) > 100
    assert not [path for path in files if '"""The same' in path.read_text(encoding="utf-8")]


def test_all_distributions_have_the_version_that_the_changelog_is_at() -> None:
    (first, *_) = re.findall(r"^## (\S+),", text_of("CHANGELOG.md"), re.M)
    pages = [
        "pyproject.toml",
        *(f"integrations/{each}/pyproject.toml" for each in ("langchain", "llama-index")),
    ]
    found = {tomllib.loads(text_of(page))["project"]["version"] for page in pages}
    found |= {nco_guard.__version__, langchain_nco_guard.__version__}
    assert len(found) == 1
    assert found.pop().partition(".dev")[0] == first
