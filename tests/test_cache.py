"""With a cache on disk everything is as without one, whatever happens to the disk."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nco_guard import BoundGuard, Guard, Policy, RegexRule, StringRule
from nco_guard.automata.characters import ClassAutomaton
from nco_guard.compiler import compile_policy, compiled_rule
from nco_guard.errors import PatternError, PolicyError
from nco_guard.storage.store import Store
from nco_guard.testing import tiny_tokenizer, toy_vocabulary
from nco_guard.tokens import Vocabulary
from tests.masking import random_policies
from tests.slow import rest_slow

POLICY = Policy(
    name="p",
    rules=(
        StringRule(id="words", strings=("duck", "goose"), whole_word=True, case="fold"),
        StringRule(id="plain", strings=("swan",)),
        RegexRule(id="number", regex=r"\b\d{3}-\d{2,4}\b"),
        RegexRule(id="stopped", regex=r"[a-c]{2}\d{2} ?\d{4,6}", stop_at=r"[a-c]{2}\d{2} ?\d{3}"),
        RegexRule(id="told", regex=r"x [a-c]{2,3}\d{2}", stop_at=r"x [a-c]{2}", context="prompt"),
        RegexRule(id="soft", regex=r"\bfoo(?!bar)", penalty=2.0),
        StringRule(id="evasive", strings=("ox",), ignore=("*",), case="fold"),
    ),
)
TEXTS = ["a Duck 12 123-45", "goosex geese SWAN swa", "ab12 345 bc99 1", "foobar foo o*x ox", "555-5555 duck"]
VOCABULARY = toy_vocabulary(
    ["du", "ck", "oo", "123", "45", "-", " 3", "ab1", "foo", "ba", "sw", "an", "o*", "é"]
)

Masks = list[tuple[tuple[int, ...], tuple[float, ...], bool]]


def masks(bound: BoundGuard, texts: Sequence[str] = TEXTS, rng: random.Random | None = None) -> Masks:
    """Everything that is enforced along some texts, forbidden tokens left out; or along random walks."""
    found: Masks = []
    for text in texts:
        session = bound.session("x ")
        for byte in text.encode():
            forbidden = session.forbidden_ids()
            found.append((tuple(forbidden.tolist()), tuple(session.penalties().tolist()), session.may_end))
            token = byte
            if rng is not None:
                allowed = np.flatnonzero(~session.mask())
                if not len(allowed):
                    break
                token = int(rng.choice(allowed.tolist()))
            if token not in forbidden:
                session.advance(token)
            if session.ended:
                break
    return found


def rules_at_fault(bound: BoundGuard, texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Who forbids the bytes of some texts."""
    found = []
    for text in texts:
        session = bound.session()
        for byte in text.encode():
            if byte in session.forbidden_ids():
                found.append(bound.tables.rules_at_fault(session._text.state(bound.tables), byte))
            else:
                session.advance(byte)
    return found


def bound_with(
    store: Store | None, policy: Policy = POLICY, vocabulary: Vocabulary = VOCABULARY
) -> BoundGuard:
    return BoundGuard(compile_policy(policy, store=store), vocabulary, store=store)


EXPECTED = masks(bound_with(None))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def test_what_was_kept_changes_no_mask(store: Store) -> None:
    for _ in range(3):
        bound = bound_with(store)
        assert masks(bound) == EXPECTED
        bound.save()
    assert {"rule", "bytes", "strings", "table"} <= store.sizes().keys()


@pytest.mark.parametrize("seed", rest_slow(range(4), 1))
def test_random_policies_are_enforced_alike_cold_warm_and_without(seed: int, tmp_path: Path) -> None:
    """Kept after a first walk, gone on with on others; decoders that rewrite and prompts included."""
    rng, store = random.Random(seed), Store(tmp_path)
    for _ in range(12):
        policy, vocabulary = random_policies.policy(rng), random_policies.vocabulary(rng, small=True)
        first, second = rng.random(), rng.random()
        texts = ["." * 12] * 2
        cold = bound_with(store, policy, vocabulary)
        masks(cold, texts, random.Random(first))
        cold.save()
        plain = bound_with(None, policy, vocabulary)
        for walk in (first, second):
            warm = bound_with(store, policy, vocabulary)
            expected = masks(plain, texts, random.Random(walk))
            assert masks(warm, texts, random.Random(walk)) == expected, policy.to_json()
            warm.save()


def test_many_small_rules_that_run_as_one_are_kept_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    regexes = sorted(
        {"".join(rng.choices(["a", "b", "c", "a?", "b*", "(a|c)", "."], k=5)) + "c" for _ in range(99)}
    )
    crowd = Policy(
        name="crowd", rules=tuple(RegexRule(id=f"r{i}", regex=regex) for i, regex in enumerate(regexes))
    )
    texts = ["abcabcab", "ccabbac", "xaxbxcx", "aacb"]
    plain, cold = bound_with(None, crowd), bound_with(store, crowd)
    assert len(plain.tables.constraints) < 10
    expected = masks(plain, texts)
    assert masks(cold, texts) == expected
    cold.save()
    warm = bound_with(store, crowd)
    with monkeypatch.context() as patched:
        patched.setattr(ClassAutomaton, "_find", None)
        assert masks(warm, texts) == expected
    # The rules at fault are named by the machine, which is made for that.
    assert rules_at_fault(warm, texts) == rules_at_fault(plain, texts) != []


def test_nothing_is_worked_out_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pattern is read, no proof made, no machine built, for texts that were met before."""
    bound = bound_with(store)
    masks(bound)
    bound.save()
    monkeypatch.setattr(compiled_rule, "begins_with", None)
    monkeypatch.setattr(compiled_rule, "AlternatingMachine", None)
    monkeypatch.setattr(compiled_rule, "parse", None)
    monkeypatch.setattr(ClassAutomaton, "_find", None)
    assert masks(bound_with(store)) == EXPECTED


def test_a_rule_is_remembered_in_whatever_policy_it_stands(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_policy(POLICY, store=store)
    monkeypatch.setattr(compiled_rule, "begins_with", None)
    compile_policy(Policy(name="other", rules=POLICY.rules[3:4]), store=store)
    changed = POLICY.rules[3].model_copy(update={"stop_at": r"[a-c]{2}\d"})
    with pytest.raises(TypeError):  # another rule, so it is proved, or would be
        compile_policy(Policy(name="other", rules=(changed,)), store=store)


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (RegexRule(id="r", regex="a*"), PatternError),
        (RegexRule(id="r", regex=r"(a)\1+x++"), PatternError),
        (RegexRule(id="r", regex="abc|abd", stop_at="abc"), PolicyError),
        (StringRule(id="r", strings=("*",), ignore=("*",)), PolicyError),
    ],
)
def test_a_rule_that_is_refused_is_refused_again(store: Store, rule: Any, error: type[PolicyError]) -> None:
    for _ in range(2):
        with pytest.raises(error) as caught:
            compile_policy(Policy(name="p", rules=(rule,)), store=store)
        with pytest.raises(error) as expected:
            compile_policy(Policy(name="p", rules=(rule,)))
        assert str(caught.value) == str(expected.value)


def test_rules_that_were_not_read_can_still_be_verified(store: Store) -> None:
    guards = [Guard(POLICY, cache=store.folder) for _ in range(2)]
    text = "a duck at 123-45, ab12 3456, fooba and o*x"
    expected = Guard(POLICY).verify(text)
    assert expected.findings
    for guard in guards:
        assert guard.verify(text) == expected


def test_policies_are_revised_with_a_cache(store: Store) -> None:
    for _ in range(2):
        compiled = compile_policy(POLICY, store=store)
        revised = compiled.without("soft").with_rules(StringRule(id="new", strings=("heron", "owl")))
        plain = compile_policy(revised.policy)
        found, expected = (
            masks(BoundGuard(each, VOCABULARY, store=kept), [*TEXTS, "a heron, an owl"])
            for each, kept in ((revised, store), (plain, None))
        )
        assert found == expected


# -- disks ------------------------------------------------------------------------------------------------------


def damaged(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "bytes":
        for place in range(0, len(data), 100):
            data[place] ^= 0xFF
    elif how == "one bit":
        data[len(data) // 2] ^= 1
    elif how == "truncated":
        del data[len(data) // 2 :]
    elif how == "version":
        data = data.replace(b"store 1", b"store 9", 1)
    else:
        data.clear()
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["bytes", "one bit", "truncated", "version", "empty"])
def test_damaged_files_are_made_again(store: Store, how: str) -> None:
    bound_with(store).save()
    before = {path.name: path.read_bytes() for path in store.folder.iterdir()}
    for path in store.folder.iterdir():
        damaged(path, how)
    assert masks(bound_with(store)) == EXPECTED
    assert {path.name: path.read_bytes() for path in store.folder.iterdir()} == before


def test_files_under_wrong_names_are_not_believed(store: Store) -> None:
    bound_with(store).save()
    for kind in ("table", "bytes", "rule"):
        paths = sorted(store.folder.glob(f"{kind}-*"))
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, [*contents[1:], contents[0]], strict=True):
            path.write_bytes(content)
    assert masks(bound_with(store)) == EXPECTED


def test_every_file_may_vanish_at_any_time(store: Store) -> None:
    bound_with(store).save()
    for path in sorted(store.folder.iterdir()):
        content = path.read_bytes()
        path.unlink()
        assert masks(bound_with(store)) == EXPECTED, path.name
        path.write_bytes(content)


def test_a_folder_that_cannot_be_written_is_as_good_as_none(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert masks(bound_with(Store(blocked / "cache"))) == EXPECTED


def test_a_read_only_folder_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bound_with(store).save()
    entries = store.sizes()
    store.folder.chmod(0o500)
    try:
        monkeypatch.setattr(compiled_rule, "begins_with", None)
        assert masks(bound_with(store)) == EXPECTED
    finally:
        store.folder.chmod(0o700)
    assert store.sizes() == entries


@pytest.mark.parametrize("limit", [0, 500, 5_000, 60_000])
def test_a_full_disk_changes_nothing(tmp_path: Path, limit: int) -> None:
    store = Store(tmp_path, limit=limit)
    for _ in range(3):
        bound = bound_with(store)
        assert masks(bound) == EXPECTED
        bound.save()
    assert sum(size for _, size in store.sizes().values()) <= limit


# -- processes --------------------------------------------------------------------------------------------------

WORK = """
import sys
from nco_guard.storage.store import Store
from tests.test_cache import EXPECTED, bound_with, masks
store = Store(sys.argv[1])
for _ in range(4):
    bound = bound_with(store)
    assert masks(bound) == EXPECTED
    bound.save()
"""


def test_processes_share_a_cache_at_the_same_time(store: Store) -> None:
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", WORK, str(store.folder)]
    # Hash seeds differ, and with them the order of some sets.
    running = [
        subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONHASHSEED": str(seed)})
        for seed in range(2)
    ]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert masks(bound_with(store)) == EXPECTED


AT_EXIT = """
import sys
from tests.test_cache import VOCABULARY, Store, bound_with
bound = bound_with(Store(sys.argv[1]))
session = bound.session()
for byte in b"ab12 3.bc99 1 12 7 o*":
    session.forbidden_ids()
    session.advance(byte)
"""


def test_what_was_found_is_kept_when_the_interpreter_ends(store: Store) -> None:
    root = Path(__file__).parent.parent
    bound = bound_with(store)
    states = bound.stats["automaton_states"]
    subprocess.run([sys.executable, "-c", AT_EXIT, str(store.folder)], cwd=root, check=True)
    assert bound_with(store).stats["automaton_states"] > states


# -- switching on -----------------------------------------------------------------------------------------------


def test_nothing_is_kept_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("NCO_GUARD_CACHE", raising=False)
    tokenizer = tiny_tokenizer()
    Guard(POLICY).bind(tokenizer)
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("NCO_GUARD_CACHE", str(tmp_path / "named"))
    Guard(POLICY, cache=False).bind(tokenizer)
    assert not list(tmp_path.iterdir())
    Guard(POLICY).bind(tokenizer)
    assert [path.name for path in tmp_path.iterdir()] == ["named"]
    monkeypatch.delenv("NCO_GUARD_CACHE")
    Guard(POLICY, cache=True).bind(tokenizer)
    assert len(list(tmp_path.iterdir())) == 2


def test_no_text_of_rules_shows_in_names_and_no_rule_id(store: Store) -> None:
    bound_with(store).save()
    for path in store.folder.iterdir():
        assert not any(rule.id in path.name for rule in POLICY.rules)
