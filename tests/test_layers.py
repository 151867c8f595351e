"""The house keeps its layers, and importing it stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

from nco_guard import audit

ROOT = Path(__file__).parent.parent
HOUSES = ("nco_guard", "integrations", "benchmarks", "tools", "tests", "examples")
PACKAGES = (
    ROOT / "nco_guard",
    ROOT / "integrations" / "langchain" / "langchain_nco_guard",
    ROOT / "integrations" / "llama-index" / "llama_index" / "llms" / "nco_guard",
)
DIAGNOSTICS = tuple(
    f"nco_guard.{name}"
    for name in (
        *("analysis", "cli", "demo", "testing", "values"),
        *("audit.anchors", "audit.checking", "audit.integrity", "audit.otel", "audit.report", "audit.sqlite"),
    )
)
WHOLE = ("nco_guard", "langchain_nco_guard", "llama_index.llms.nco_guard", "benchmarks", "tools")
HEAVY = ("torch", "transformers", "tokenizers", "langchain_core", "llama_index")


def test_layers_are_kept() -> None:
    # In a process of its own: it disables the loggers that others have made.
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("room", ["nco_guard", "integrations", "benchmarks", "tools", "tests", "examples"])
def test_files_and_functions_are_short_enough_to_be_read_in_one_go(room: str) -> None:
    found = []
    for path in sorted((ROOT / room).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        nodes = ast.walk(ast.parse(text))
        functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        long = [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= 60]
        if long or text.count("\n") > 600:
            found.append((path, long))
    assert found == []


@pytest.mark.parametrize(
    "name", ["nco_guard", "langchain_nco_guard", "llama_index.llms.nco_guard", "benchmarks", "tools"]
)
def test_no_module_imports_itself_through_others(name: str) -> None:
    """Late imports and those for types count: where two modules need one another, something stands in a wrong place."""
    graph = grimp.build_graph(name, cache_dir=None)
    importing: dict[str, set[str]] = {each: set() for each in graph.modules}
    for each in graph.modules:
        importing[each] = {other for other in graph.find_modules_directly_imported_by(each) if other != each}
    # What imports nothing that is left is in no cycle.
    while free := {each for each, others in importing.items() if not others}:
        importing = {each: others - free for each, others in importing.items() if each not in free}
    assert not importing


# Modules of one subject that rooms have their own part of: the slow form for tests, tensors, rows, requests.
SAME_SUBJECT = {"definition", "device", "requests", "rows"}
# What both integrations have, each for its framework.
IN_EACH_INTEGRATION = {"NCOGuardAuditHandler", "UnobservedCalls"}


def test_a_name_means_one_thing() -> None:
    classes: dict[str, list[Path]] = {}
    modules: dict[str, list[Path]] = {}
    for path in (
        each for room in (*PACKAGES, ROOT / "benchmarks", ROOT / "tools") for each in room.rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.setdefault(node.name, []).append(path)
        room = path.relative_to(ROOT).parts[:2]
        if room[0] == "nco_guard" and room[1] not in ("cli", "testing") and not path.stem.startswith("_"):
            modules.setdefault(path.stem, []).append(path)
    assert {name: found for name, found in classes.items() if len(found) > 1}.keys() == IN_EACH_INTEGRATION
    assert {name: found for name, found in modules.items() if len(found) > 1}.keys() == SAME_SUBJECT


def test_the_benchmarks_are_in_layers_too() -> None:
    """What a harness offers must not know who measures with it."""
    graph = grimp.build_graph("benchmarks", cache_dir=None)
    layers = ["cli", "runner", "report", "suites", "harness", "methods", "inputs", "errors"]
    found = graph.find_illegal_dependencies_for_layers(layers, containers=["benchmarks"])
    assert not {(each.importer, each.imported) for each in found}


def test_the_wheel_holds_the_library_alone() -> None:
    """`make packages` builds it and looks; here is what it is built from."""
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"] == {"packages": ["nco_guard"]}
    assert {"/benchmarks", "/tools"} <= set(targets["sdist"]["include"])
    for package in ("benchmarks", "tools"):
        assert (ROOT / package / "__init__.py").exists()
    for path in (ROOT / "nco_guard").rglob("*.py"):
        names = {name.partition(".")[0] for name in _imported(path)}
        # What enforces shapes is named in one place.
        enforces = {"llguidance"} if path.name == "library.py" else set()
        assert not names & {"benchmarks", "tools", "llguidance", "xgrammar", "matplotlib"} - enforces, path


def _imported(path: Path) -> set[str]:
    """Every name that a file imports, with its module before it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def test_integrations_adapt_messages_and_leave_values_to_the_room_for_them() -> None:
    adapters = [path for package in PACKAGES[1:] for path in package.glob("*cleaning.py")]
    assert [path.name for path in adapters] == ["_cleaning.py", "cleaning.py"]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in adapters) < 250
    # Nothing is parsed, decoded or searched there.
    readers = {"re", "json.loads", "ast", "base64", "html", "codecs", "unicodedata"}
    found = []
    for package in PACKAGES[1:]:
        for path in sorted(package.glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names.append(node.module or "")
                elif isinstance(node, ast.Attribute):
                    names.append(ast.unparse(node))
                if path.name != "testing.py" and not readers.isdisjoint(names):
                    found.append((path.name, node.lineno))
    assert found == []


def test_one_file_knows_the_private_modules_of_re() -> None:
    files = [path for package in PACKAGES for path in package.rglob("*.py")]
    knowing = {
        path.name
        for path in files
        if any(name.startswith(("_sre", "re._", "sre_")) for name in _imported(path))
    }
    assert knowing == {"cpython.py"}


@pytest.mark.parametrize(
    "code",
    [
        "import nco_guard",
        "import nco_guard; nco_guard.Guard.from_presets('pii', 'secrets', 'ldnoobw')",
        "import nco_guard; nco_guard.verify(nco_guard.Policy.from_presets('pii'), 'nothing')",
        "from nco_guard import cli",
        "from nco_guard import audit, compiler, masking, session, testing, tokens",
        "from nco_guard.engines import calls, endings, recording, requests, rows, scores, streaming",
        "import typer.testing, nco_guard.cli as c; "
        "assert typer.testing.CliRunner().invoke(c.app, ['--help']).exit_code == 0",
    ],
)
def test_neither_torch_nor_transformers_is_imported(code: str) -> None:
    show = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_checks_logs_is_found_when_it_is_asked_for() -> None:
    assert [name for name in audit.__all__ if not hasattr(audit, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'nowhere'"):
        _ = audit.nowhere


def test_diagnostics_wait_until_somebody_asks() -> None:
    code = (
        "import sys, nco_guard; guard = nco_guard.Guard.from_presets('pii'); guard.redact('to jo@example.com'); "
        f"print([name for name in sys.modules if name.startswith({DIAGNOSTICS!r})])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_is_shown_by_the_command_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nco_guard.cli", "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Usage" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert not imported & set(HEAVY)


def test_what_a_module_exports_somebody_imports() -> None:
    """By name or as an attribute of the module; or a page documents it, or something exported returns it."""
    paths = [path for room in HOUSES for path in (ROOT / room).rglob("*.py") if ".venv" not in path.parts]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    used: dict[str, set[Path]] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for each in node.names:
                    used.setdefault(f"{node.module}.{each.name}", set()).add(path)
            elif isinstance(node, ast.Attribute):
                used.setdefault(node.attr, set()).add(path)
    pages = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    unused = []
    for path in (path for path in paths if ROOT / "nco_guard" in path.parents and path.name != "__init__.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for name in exported(trees[path]):
            users = used.get(f"{module}.{name}", set()) | used.get(name, set())
            shown = re.search(rf"{module}(\.{name})?$", pages, re.M) or name in returned(trees[path])
            if not users - {path} and not shown:
                unused.append(f"{module}.{name}")
    assert len(trees) > 400
    assert not unused


def exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def returned(tree: ast.Module) -> set[str]:
    """Names of what the functions that a module exports say they return."""
    exports = exported(tree)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in exports]
    found = [ast.walk(function.returns) for function in functions if function.returns]
    return {node.id for each in found for node in each if isinstance(node, ast.Name)}
