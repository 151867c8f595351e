"""The documentation as a site: it builds strictly, holds every page and public name, and asks nobody for anything.

mkdocs makes warnings of what it sees (pages that are not in the navigation, links and anchors that lead nowhere, names
that mkdocstrings does not find), and `--strict` makes errors of those; the rest is read from the HTML.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NEEDED = ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers", "griffe_pydantic")
# The modules whose `__all__` is the public interface.
PUBLIC = (
    "langchain_nco_guard",
    "llama_index.llms.nco_guard",
    "nco_guard",
    "nco_guard.analysis",
    "nco_guard.audit",
    "nco_guard.audit.report",
    "nco_guard.demo.metrics",
    "nco_guard.engines.hf",
    "nco_guard.engines.hf.continuous",
    "nco_guard.errors",
    "nco_guard.policy.presets",
    "nco_guard.scan",
    "nco_guard.testing",
)
# What a browser loads by itself, and the attribute that says from where.
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


@dataclass
class Page(HTMLParser):
    """What of one HTML page matters here."""

    text: str
    ids: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        self.classes.update(given.get("class", "").split())
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADED.get(tag) in given:
            self.loaded.append(given[LOADED[tag]])


def nav_pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from nav_pages(inner)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: pip install 'nco-guard[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


@cache
def pages(folder: Path) -> dict[str, Page]:
    """All pages, by their place in the site."""
    found = folder.rglob("*.html")
    return {path.relative_to(folder).as_posix(): Page(path.read_text(encoding="utf-8")) for path in found}


def test_every_page_of_docs_is_in_the_navigation_once() -> None:
    nav = list(nav_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert sorted(nav) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert {"index.html", "guarantees.html", "api/guard.html"} <= set(pages(site))


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    known = pages(site)
    checked = 0
    for name, page in known.items():
        if name == "404.html":  # shown at any address, so its links are absolute
            continue
        for link in page.links:
            target = urlsplit(urljoin(f"http://site/{name}", link))
            if target.netloc != "site":
                continue
            path = unquote(target.path).lstrip("/") or "index.html"
            path += "index.html" if path.endswith("/") else ""
            assert path in known or (site / path).is_file(), f"{name}: {link}"
            if target.fragment:
                assert unquote(target.fragment) in known[path].ids, f"{name}: {link}"
            checked += 1
    assert checked > 500


def test_anchors_in_the_readme_exist_on_the_site(site: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(docs/([\w/]+)\.md(?:#([\w-]+))?\)", text)
    assert linked
    for name, anchor in linked:
        page = pages(site)[f"{name}.html"]
        assert not anchor or anchor in page.ids, f"{name}#{anchor}"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for name, page in pages(site).items():
        for address in page.loaded:
            parts = urlsplit(address)
            assert parts.scheme in ("", "data"), f"{name}: {address}"
            assert not parts.netloc, f"{name}: {address}"
        # The theme's script fetches a library for diagrams where a page has some.
        assert "mermaid" not in page.classes, name
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        text = style.read_text(encoding="utf-8")
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"]?(?:https?:)?//", text), style.name


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(site: Path, module: str) -> None:
    known = set().union(*(page.ids for page in pages(site).values()))
    public = pytest.importorskip(module, exc_type=ImportError)
    missing = []
    for name in public.__all__:
        value = getattr(public, name)
        # A name may stand where it is defined; a module is on a page of its own and in PUBLIC itself.
        home = f"{getattr(value, '__module__', module)}.{name}"
        if not isinstance(value, ModuleType) and not {f"{module}.{name}", home} & known:
            missing.append(name)
    assert missing == []
