"""What is given as `guard=`: one function reads it everywhere, and never looks whether a file exists."""

from __future__ import annotations

import gc
import os
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nco_guard import Guard, Policy, StringRule
from nco_guard.audit import Event, MemorySink
from nco_guard.errors import ArgumentError, AuditError, PolicyError, PresetError, UnsupportedError
from nco_guard.guards import as_guard, derived, guard_for_call
from nco_guard.policy.given import given_policy
from nco_guard.replies import ReplyReader
from nco_guard.values import Cleaner

POLICY = Policy(name="mine", rules=[StringRule(id="word", strings=["zanzibar"])])
WANTED = (
    "guard: a Guard, a Policy, the path of a policy file, a preset's name or a list of names is needed, got "
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which files and folders are called like presets, and a policy like no preset."""
    monkeypatch.chdir(tmp_path)
    for name in ("pii", "mine.yaml", "mine.YML", "sub.yaml"):
        Path(name).write_text(POLICY.to_yaml())
    Path("mine.json").write_text(POLICY.model_dump_json())
    Path("secrets").mkdir()
    Path("secrets", "mine.yaml").write_text(POLICY.to_yaml())
    return tmp_path


@pytest.mark.parametrize(
    "given",
    [
        POLICY,
        "mine.yaml",
        "mine.YML",
        "mine.json",
        "./mine.yaml",
        f"secrets{os.sep}mine.yaml",
        Path("mine.yaml"),
        Path("secrets") / "mine.yaml",
    ],
)
@pytest.mark.usefixtures("folder")
def test_policies_and_their_files(given: Any) -> None:
    assert as_guard(given).policy == POLICY
    assert Cleaner(given).text("a zanzibar") == "a [redacted]"


@pytest.mark.parametrize(
    ("given", "names"),
    [("pii", ["pii"]), (["pii", "secrets"], ["pii", "secrets"]), (("secrets",), ["secrets"])],
)
@pytest.mark.usefixtures("folder")
def test_names_are_presets_whatever_files_there_are(given: Any, names: list[str]) -> None:
    assert as_guard(given).policy == Policy.from_presets(*names)
    assert Cleaner(given).finder.compiled.policy == Policy.from_presets(*names)


def test_a_guard_is_itself() -> None:
    guard = Guard(POLICY)
    assert as_guard(guard) is guard
    compiled = guard.verifier.compiled
    assert Cleaner(guard).finder.compiled is Cleaner(compiled).finder.compiled is compiled


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ("pi", PresetError, r"no preset 'pi'; there are: ldnoobw, pii, .*; a path ends in \.yaml, \.yml"),
        ("zanzibar", PresetError, "no preset of this name"),
        (["pii", "zanzibar"], PresetError, "no preset of this name"),
        ("mine", PresetError, "field 'guard'"),
        ("sub/no.yaml", PolicyError, "field 'guard': .*cannot be read"),
        ("pii/", PolicyError, "unknown kind of file; known suffixes"),
        (Path("pii"), PolicyError, "unknown kind of file; known suffixes"),
        (None, ArgumentError, WANTED + "NoneType; see Policy"),
        (b"pii", ArgumentError, WANTED + "bytes"),
        ({"name": "x"}, ArgumentError, WANTED + r"dict; make one of it: Policy\(\*\*data\)"),
        (POLICY.rules[0], ArgumentError, WANTED + r"StringRule; .*rules=\[rule\]"),
        (list(POLICY.rules), ArgumentError, WANTED + r"list; .*rules=rules\)"),
        ([], ArgumentError, WANTED + "list"),
        (["no.yaml"], ArgumentError, r"guard\[0\]: .* names of presets, not a path; .*with_rules"),
        (["pii", Guard(POLICY)], ArgumentError, r"guard\[1\]: .* not Guard; .*with_rules"),
        (["pii", "pii"], PresetError, r"field 'guard\[1\]': the preset 'pii' is named twice"),
        ({"pii"}, ArgumentError, WANTED + "set"),
        (Guard, ArgumentError, WANTED + "type; give an object of it"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_none_of_these_is_refused_by_name(given: Any, error: type[Exception], says: str) -> None:
    in_a_call = partial(guard_for_call, Guard(POLICY))  # to which None means its own
    for take in (as_guard, given_policy, Cleaner, ReplyReader, in_a_call)[: 4 if given is None else 5]:
        with pytest.raises(error, match=says) as caught:
            take(given)
        assert "zanzibar" not in str(caught.value)


def test_a_sink_goes_to_a_guard_without_one_and_not_beside_another() -> None:
    sink, guard = MemorySink(), Guard(POLICY)
    assert as_guard("pii", audit=sink).log.sink is sink
    heard = as_guard(guard, audit=sink)
    assert (heard.log.sink, heard.log.history, heard.policy) == (sink, guard.log.history, POLICY)
    assert guard.log.sink is None
    with pytest.raises(ArgumentError, match="audit: give a function"):
        guard.with_audit(None)  # type: ignore[arg-type]
    assert [event.kind for event in sink.events] == ["policy_loaded"] * 2
    for take in (lambda it: as_guard(heard, audit=it), heard.log.recorder, heard.log.refuse_second):
        with pytest.raises(UnsupportedError, match=r"audit: the Guard has a sink.* leave audit= out"):
            take(MemorySink())


def test_a_sink_of_who_only_observes_hears_of_no_policy_and_may_fail_where_the_policy_says_so() -> None:
    def full(event: Event) -> None:
        raise OSError("the disk is full")

    sink = MemorySink()
    for source in (POLICY, Guard(POLICY)):
        seen = as_guard(source, audit=sink, enforces=False)
        assert (seen.log.sink, seen.policy, sink.events) == (sink, POLICY, ())
    seen.log.recorder().verification(ok=True, length=1)
    assert [event.kind for event in sink.events] == ["verification"]
    with pytest.raises(AuditError):
        as_guard(POLICY, audit=full, enforces=False).log.recorder().verification(ok=True, length=1)
    lenient = POLICY.model_copy(update={"on_audit_failure": "warn"})
    as_guard(lenient, audit=full, enforces=False).log.recorder().verification(ok=True, length=1)


def test_the_guard_of_a_call() -> None:
    guard, other = Guard(POLICY, audit=MemorySink()), Guard(POLICY)
    assert guard_for_call(guard, None) is guard_for_call(guard, POLICY) is guard
    assert guard_for_call(guard, other) is other
    called = guard_for_call(guard, "pii")
    assert called.policy == Policy.from_presets("pii")
    assert called.log.sink is not None
    assert called.log.history is guard.log.history
    assert guard_for_call(guard, ["pii"]) is called


def test_guards_of_calls_are_kept_for_a_while_and_not_for_ever() -> None:
    guard = Guard(POLICY)

    def of(guard: Guard, word: str) -> Guard:
        policy = Policy(name="p", rules=[StringRule(id="w", strings=[word])])
        return derived(guard, policy.digest, lambda: policy)

    first = weakref.ref(of(guard, "a0"))
    assert of(guard, "a0") is first()
    for number in range(1, 40):
        of(guard, f"a{number}")
    gc.collect()
    assert first() is None
    gone = weakref.ref(guard)
    del guard
    gc.collect()
    assert gone() is None
