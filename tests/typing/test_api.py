"""What users write is typed: mypy and pyright read the files beside this one, and every package ships its types."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path
from typing import Required, get_origin, get_type_hints

import pytest
from pydantic import BaseModel

from nco_guard import AutomatonRule, Policy, RegexRule, StringRule
from nco_guard.policy import models, rules
from nco_guard.policy.rules import RuleFields, _Rule

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LLAMA = ROOT / "integrations" / "llama-index"
PACKAGES = {
    "nco_guard": ROOT,
    "langchain_nco_guard": ROOT / "integrations" / "langchain",
    "llama_index/llms/nco_guard": LLAMA,
}


def checked(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_agrees_with_every_use_and_every_mark() -> None:
    checked("mypy", "tests/typing/api.py")


def test_pyright_agrees_with_every_use_and_every_mark() -> None:
    checked("pyright", "-p", str(HERE), "--pythonpath", sys.executable)


@pytest.mark.parametrize("package", PACKAGES)
def test_types_are_shipped(package: str) -> None:
    """Wheels hold what is in the folders that they name; `test_packages.py` builds them."""
    home = PACKAGES[package]
    assert (home / package / "py.typed").is_file()
    built = tomllib.loads((home / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert any((home / package).is_relative_to(home / folder) for folder in built["packages"])
    assert "Typing :: Typed" in (home / "pyproject.toml").read_text()


def told(module: object, name: str) -> set[str]:
    """The keywords that type checkers are told a class takes, where that is not left to its fields."""
    tree = ast.parse(Path(str(vars(module)["__file__"])).read_text())
    (owner,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    (told,) = [
        node for node in ast.walk(owner) if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    assert not told.args.args[1:]
    return {each.arg for each in told.args.kwonlyargs}


@pytest.mark.parametrize("kind", [StringRule, RegexRule, AutomatonRule, Policy])
def test_what_constructors_are_said_to_take_is_what_they_take(kind: type[BaseModel]) -> None:
    shared = set() if kind is Policy else set(RuleFields.__annotations__)
    module = models if kind is Policy else rules
    assert told(module, kind.__name__) | shared == set(kind.model_fields)
    assert not told(module, kind.__name__) & shared
    assert "data" in signature(kind.__init__).parameters  # the constructor that runs is pydantic's


def test_fields_of_rules_are_said_to_be_what_they_are() -> None:
    said = get_type_hints(RuleFields, include_extras=True)
    needed = {name for name, each in said.items() if get_origin(each) is Required}
    assert needed == {name for name, each in _Rule.model_fields.items() if each.is_required()}
    said = get_type_hints(RuleFields)
    assert said.pop("ignore") == list[str] | tuple[str, ...]
    assert said == {name: each.annotation for name, each in _Rule.model_fields.items() if name != "ignore"}


def test_fields_of_integrations_are_said_to_be_what_they_are() -> None:
    fields = pytest.importorskip("langchain_nco_guard._fields")
    chats = pytest.importorskip("langchain_nco_guard")
    weights = pytest.importorskip("nco_guard.engines.hf.weights")
    assert set(fields.ChatFields.__annotations__) == set(chats.ChatNCOGuard.model_fields) - {
        *("model", "tokenizer", "guard"),
        *("model_kwargs", "tokenizer_kwargs", *weights.WEIGHT_OPTIONS),  # a pipeline has loaded them
    }
    verified = set(chats.VerifiedChatModel.model_fields) - {"inner", "guard"}
    assert set(fields.VerifiedFields.__annotations__) == verified


def test_fields_of_llms_are_said_to_be_what_they_are() -> None:
    fields = pytest.importorskip("llama_index.llms.nco_guard.fields")
    llms = pytest.importorskip("llama_index.llms.nco_guard")
    core = pytest.importorskip("llama_index.core.llms")
    assert set(fields.LLMFields.__annotations__) == set(core.LLM.model_fields)
    taken = set(signature(llms.NCOGuardLLM.__init__).parameters)
    own = set(fields.NCOGuardFields.__annotations__) - set(core.LLM.model_fields)
    assert own == taken - {
        "self",
        "model",
        "tokenizer",
        "guard",
        "audit",
        "model_kwargs",
        "tokenizer_kwargs",
        "options",
    }


def test_lists_are_kept_as_tuples() -> None:
    listed = StringRule(id="a", strings=["b", "c"], ignore=["*"])
    assert listed == StringRule(id="a", strings=("b", "c"), ignore=("*",))
    assert (listed.strings, listed.ignore) == (("b", "c"), ("*",))
    assert hash(listed) == hash(StringRule(id="a", strings=("b", "c"), ignore=("*",)))
    policy = Policy(name="p", rules=[listed, {"id": "d", "regex": "d"}])
    assert policy.rules == (listed, RegexRule(id="d", regex="d"))
    assert policy.with_rules({"id": "e", "strings": ["e"]}).rules[2] == StringRule(id="e", strings=("e",))
