"""Every snippet in the documentation runs: Python is executed, YAML is loaded, commands are called.

All snippets of a file share one namespace and one folder, in which lie `policy.yaml` (the file's first YAML
snippet, or a policy of this test's), `reply.txt` (clean), `draft.txt` (not clean) and `my-model` (the model
that ships). A fence may be preceded by `<!-- run: no, reason -->`; Python may not. A command line may end
with `# exit 1`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nco_guard.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "integrations").glob("*/README.md")),
]
FENCE = re.compile(
    r"(?:^<!-- run: no, (?P<reason>[^>]+) -->\n+)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S
)
EXIT = re.compile(r"\s+# exit (\d)$")
POLICY = """\
name: docs
rules:
  - {id: codename, strings: [Bluebird]}
  - {id: ssn, regex: '\\b\\d{3}-\\d{2}-\\d{4}\\b'}
"""
# These take minutes and have tests of their own: here their options are only parsed.
ONLY_PARSED = {"demo": ["--help"]}


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    language: str
    body: str
    skipped: bool

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def snippets(page: Path) -> Iterator[Snippet]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("body")) + 1
        yield Snippet(page, line, match["language"], match["body"], match["reason"] is not None)


def commands(snippet: Snippet) -> Iterator[tuple[list[str], int]]:
    for line in snippet.body.splitlines():
        command = line.removeprefix("$ ")
        if not command.startswith("nco-guard "):
            continue
        status = EXIT.search(command)
        arguments = shlex.split(command, comments=True)[1:]
        yield [*arguments, *ONLY_PARSED.get(arguments[0], [])], int(status[1]) if status else 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "reply.txt").write_text("Good morning.\nAll is well.\n")
    (tmp_path / "draft.txt").write_text("Project\nBluebird: 078-05-1120.\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def needs_the_model(page: Path) -> bool:
    return any(word in page.read_text(encoding="utf-8") for word in ("my-model", "nco-guard demo"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_snippet_runs(page: Path, folder: Path) -> None:
    if needs_the_model(page):
        from nco_guard import demo

        (folder / "my-model").symlink_to(demo.model_path())
    namespace: dict[str, object] = {"__name__": "__main__"}
    for snippet in snippets(page):
        if snippet.language == "python":
            assert not snippet.skipped, f"{snippet.place}: Python snippets must run"
            code = "\n" * (snippet.line - 1) + snippet.body
            exec(compile(code, str(page), "exec"), namespace)
        elif snippet.language == "yaml" and not snippet.skipped:
            (folder / "policy.yaml").write_text(snippet.body)
            result = CliRunner().invoke(app, ["check", "policy.yaml"])
            assert result.exit_code == 0, f"{snippet.place}: {result.output}"
        elif snippet.language in {"bash", "console"} and not snippet.skipped:
            for arguments, status in commands(snippet):
                result = CliRunner().invoke(app, arguments)
                assert result.exit_code == status, f"{snippet.place}: {arguments}: {result.output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_fence_names_its_language_and_local_links_lead_somewhere(page: Path) -> None:
    if page.name != "design.md":  # its diagrams are no code
        for snippet in snippets(page):
            assert snippet.language, snippet.place
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"
