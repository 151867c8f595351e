"""What is built can be installed: each distribution alone and all together, from wheels and editable.

Slow: `make packages` needs a package index, some 4 GB and a few minutes. Every environment is a fresh `venv` that sees
no other site-packages but one folder with torch and what torch needs, which pip counts as installed: it is shared, as
nothing here depends on where torch lies. The core without extras does not even see that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
CORE, LANGCHAIN, LLAMA = ROOT, ROOT / "integrations" / "langchain", ROOT / "integrations" / "llama-index"
PACKAGES = {"nco_guard": CORE, "langchain_nco_guard": LANGCHAIN, "llama_index": LLAMA}

POLICY = "name: p\nrules:\n  - preset: pii\n"
ABSENT = """
from importlib.util import find_spec
for name in {names}:
    assert find_spec(name) is None, name
"""
#: Where the package comes from, and that importing it needs nothing that is not declared.
FROM = """
import {module} as package
assert {folder!r} in str(package.__file__), package.__file__
"""
GUARDED = """
from nco_guard import Policy, verify
from nco_guard.demo import PROMPTS, load
policy = Policy.from_presets("pii")
question = PROMPTS["pii"][0][-1]["content"]
model, tokenizer = load()

def keeps(text):
    assert text and verify(policy, text).ok
"""
WITH_TRANSFORMERS = """
from nco_guard import Guard
guard = Guard(policy)
keeps(guard.generate(model, tokenizer, PROMPTS["pii"][:1], max_new_tokens=16).texts[0])
keeps("".join(guard.stream(model, tokenizer, PROMPTS["pii"][0], max_new_tokens=16)))
"""
WITH_LANGCHAIN = """
from langchain.agents import create_agent
from langchain_nco_guard import ChatNCOGuard, GuardedPipeline, NCOGuardMiddleware
from transformers import pipeline
pipe = pipeline("text-generation", model=model, tokenizer=tokenizer, max_new_tokens=16)
keeps(GuardedPipeline(pipeline=pipe, guard=policy).invoke(question))
chat = ChatNCOGuard(model=model, tokenizer=tokenizer, guard=policy, max_tokens=16)
keeps("".join(chunk.text for chunk in chat.stream(question)))
agent = create_agent(chat, middleware=[NCOGuardMiddleware(policy)])
keeps(agent.invoke({"messages": [("human", question)]})["messages"][-1].text)
"""
WITH_LLAMA = """
from llama_index.core.llms import ChatMessage
from llama_index.llms.nco_guard import NCOGuardLLM
llm = NCOGuardLLM(model, tokenizer, guard=policy, max_new_tokens=16)
keeps(llm.complete(question).text)
keeps("".join(chunk.delta for chunk in llm.stream_chat([ChatMessage(role="user", content=question)])))
"""
WITH_HUGGINGFACE_LLM = """
from llama_index.llms.huggingface import HuggingFaceLLM
bare = HuggingFaceLLM(model=model, tokenizer=tokenizer, context_window=1024, max_new_tokens=16)
keeps(NCOGuardLLM.from_huggingface_llm(bare, guard=policy).complete(question).text)
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own."""

    path: Path

    def call(self, *command: str | Path, rc: int = 0, where: Path | None = None) -> str:
        """A command of this environment, run where no checkout can be found by accident."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        clean |= {"OMP_NUM_THREADS": "1", "PATH": f"{self.path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            [str(self.path / "bin" / str(command[0])), *map(str, command[1:])],
            capture_output=True,
            text=True,
            cwd=where or self.path,
            env=clean,
            check=False,
        )
        assert done.returncode == rc, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    def pip(self, *arguments: str | Path) -> str:
        return self.call("python", "-m", "pip", "--disable-pip-version-check", *arguments)

    def install(self, *what: str | Path, constraints: Path) -> None:
        self.pip("install", "--quiet", "-c", constraints, *what)
        assert "No broken requirements" in self.pip("check")

    def python(self, *parts: str) -> str:
        return self.call("python", "-c", "\n".join(parts))

    def version(self, distribution: str) -> str:
        return self.python(
            f"from importlib.metadata import version; print(version({distribution!r}))"
        ).strip()


def environment(path: Path, *, sees: Environment | None = None) -> Environment:
    subprocess.run([sys.executable, "-m", "venv", str(path)], check=True)
    made = Environment(path)
    if sees is not None:
        ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        (Path(made.python(ask).strip()) / "torch.pth").write_text(sees.python(ask))
    return made


@pytest.fixture(scope="module")
def constraints() -> Path:
    return ROOT / "constraints.txt"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory, constraints: Path) -> Path:
    """Source distributions of all three, and the wheels that were built from them."""
    folder = tmp_path_factory.mktemp("dist")
    builder = environment(tmp_path_factory.mktemp("builder") / "venv")
    builder.pip("install", "--quiet", "build", "hatchling>=1.25")
    for project in PACKAGES.values():
        builder.call("python", "-m", "build", "--no-isolation", "--outdir", folder, project)
    return folder


@pytest.fixture(scope="module")
def torch_only(tmp_path_factory: pytest.TempPathFactory, constraints: Path) -> Environment:
    made = environment(tmp_path_factory.mktemp("torch") / "venv")
    made.install("torch", constraints=constraints)
    return made


def wheel(dist: Path, name: str) -> Path:
    (found,) = dist.glob(f"{name}-*.whl")
    return found


def tracked(folder: Path) -> set[str]:
    """What git knows of a folder, relative to its parent."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder.name]
    listed = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("nco_guard", CORE / "nco_guard"),
        ("langchain_nco_guard", LANGCHAIN / "langchain_nco_guard"),
        ("llama_index_llms_nco_guard", LLAMA / "llama_index"),
    ],
)
def test_no_file_is_missing_from_wheels_and_source_distributions(
    dist: Path, name: str, package: Path
) -> None:
    """Model, presets, templates and type marks included; and nothing comes along that is not the package's."""
    with zipfile.ZipFile(wheel(dist, name)) as archive:
        packed = {entry for entry in archive.namelist() if ".dist-info/" not in entry}
        meta = [entry.partition(".dist-info/")[2] for entry in archive.namelist()]
        assert any(entry.endswith("LICENSE") for entry in meta)
    assert packed == tracked(package)
    (sdist,) = dist.glob(f"{name}-*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert tracked(package) <= files
    assert tracked(package.parent / "tests") <= files
    assert {"README.md", "LICENSE", "pyproject.toml"} <= files


def test_the_core_needs_no_extra_to_verify(dist: Path, tmp_path: Path, constraints: Path) -> None:
    """Without torch: the library imports and verifies, its command too, and what needs more says what."""
    made = environment(tmp_path / "venv")
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "clean.txt").write_text("Nothing to see.")
    (tmp_path / "dirty.txt").write_text("Write to jo@example.com.")
    for source in ([wheel(dist, "nco_guard")], ["-e", CORE]):
        made.install(*source, constraints=constraints)
        made.python(
            ABSENT.format(names=("torch", "transformers", "tokenizers", "langchain_core", "llama_index")),
            FROM.format(module="nco_guard", folder=str(tmp_path if len(source) == 1 else CORE)),
            "from nco_guard import Guard, Policy, verify",
            "policy = Policy.from_presets('pii')",
            "assert verify(policy, 'nothing').ok and not verify(policy, 'to jo@example.com').ok",
            "assert Guard(policy).redact('to jo@example.com').text == 'to [redacted]'",
        )
        made.call("nco-guard", "check", "policy.yaml", where=tmp_path)
        made.call("nco-guard", "verify", "policy.yaml", "clean.txt", where=tmp_path)
        made.call("nco-guard", "verify", "policy.yaml", "dirty.txt", where=tmp_path, rc=1)
        made.python(
            "from nco_guard import Guard",
            "from nco_guard.errors import MissingExtraError",
            "guard = Guard.from_presets('pii')",
            "try:",
            "    guard.generate(None, None, '')",
            "except MissingExtraError as error:",
            "    assert 'nco-guard[hf]' in str(error), error",
            "else:",
            "    raise AssertionError('a text without transformers')",
        )


def test_the_core_with_transformers(
    dist: Path, tmp_path: Path, torch_only: Environment, constraints: Path
) -> None:
    made = environment(tmp_path / "venv", sees=torch_only)
    for source in (f"nco-guard[hf] @ {wheel(dist, 'nco_guard').as_uri()}", f"-e{CORE}[hf]"):
        made.install(source, constraints=constraints)
        folder = str(CORE if source.startswith("-e") else tmp_path)
        made.python(ABSENT.format(names=("langchain_core", "llama_index")), GUARDED, WITH_TRANSFORMERS)
        made.python(FROM.format(module="nco_guard", folder=folder))


def test_the_langchain_package_alone_and_as_an_extra(
    dist: Path, tmp_path: Path, torch_only: Environment, constraints: Path
) -> None:
    made = environment(tmp_path / "venv", sees=torch_only)
    core = f"nco-guard[langchain] @ {wheel(dist, 'nco_guard').as_uri()}"
    for source in ([core, "--find-links", dist], ["-e", CORE, "-e", LANGCHAIN]):
        made.install(*source, constraints=constraints)
        folder = str(LANGCHAIN if "-e" in source else tmp_path)
        made.python(
            ABSENT.format(names=("llama_index",)),
            FROM.format(module="langchain_nco_guard", folder=folder),
            GUARDED,
            WITH_LANGCHAIN,
        )


def test_the_llama_index_package_alone_and_as_an_extra(
    dist: Path, tmp_path: Path, torch_only: Environment, constraints: Path
) -> None:
    """Where nothing keeps huggingface_hub below 2, pip takes a 2.x; LangChain's package needs a 1.x. Both work."""
    free = tmp_path / "constraints.txt"
    lines = constraints.read_text().splitlines()
    free.write_text("\n".join(line for line in lines if not line.startswith("huggingface_hub")))
    made = environment(tmp_path / "venv", sees=torch_only)
    core = f"nco-guard[llama-index] @ {wheel(dist, 'nco_guard').as_uri()}"
    for source in ([core, "--find-links", dist], ["-e", CORE, "-e", f"{LLAMA}[huggingface]"]):
        made.install(*source, constraints=free)
        folder = str(LLAMA if "-e" in source else tmp_path)
        made.python(
            ABSENT.format(names=("langchain_core", "langchain")),
            FROM.format(module="llama_index.llms.nco_guard", folder=folder),
            GUARDED,
            WITH_LLAMA,
        )
    assert int(made.version("huggingface_hub").partition(".")[0]) >= 2
    made.python(GUARDED, WITH_LLAMA, WITH_HUGGINGFACE_LLM)
    made.install("huggingface_hub<2", constraints=constraints)
    made.python(GUARDED, WITH_LLAMA, WITH_HUGGINGFACE_LLM)


def test_both_frameworks_together(
    dist: Path, tmp_path: Path, torch_only: Environment, constraints: Path
) -> None:
    made = environment(tmp_path / "venv", sees=torch_only)
    wheels = [wheel(dist, name) for name in ("nco_guard", "langchain_nco_guard")]
    llama = f"llama-index-llms-nco-guard[huggingface] @ {wheel(dist, 'llama_index_llms_nco_guard').as_uri()}"
    for source in ([*wheels, llama], ["-e", CORE, "-e", LANGCHAIN, "-e", LLAMA]):
        made.install(*source, constraints=constraints)
        made.python(GUARDED, WITH_LANGCHAIN, WITH_LLAMA, WITH_HUGGINGFACE_LLM)
