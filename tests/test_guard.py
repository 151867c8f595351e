"""The front door: guards are built from policies, files and presets, and keep what they have bound."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.errors import (
    ArgumentError,
    NCOGuardError,
    PatternError,
    PolicyError,
    PresetError,
    TokenizerError,
)
from nco_guard.testing import tiny_tokenizer

POLICY = Policy(
    name="p", rules=(StringRule(id="bad", strings=("duck",)), RegexRule(id="n", regex=r"\d{3}-\d"))
)


@pytest.fixture
def tokenizer() -> Any:
    return tiny_tokenizer("byte-level")


def test_a_guard_comes_from_a_policy_a_file_or_presets(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.to_yaml())
    assert Guard.from_file(path).policy.digest == Guard(POLICY).policy.digest
    assert [rule.id for rule in Guard.from_presets("pii_paper", "ldnoobw").policy.rules][-1] == "ldnoobw.en"
    with pytest.raises(TypeError, match="must be a Policy"):
        Guard({"name": "p"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda: Guard.from_presets("pi"), PresetError, "pii"),
        (lambda: Guard.from_file("nowhere.yaml"), PolicyError, "nowhere.yaml"),
        (
            lambda: Guard(Policy.from_yaml("name: p\nrules: [{preset: ldnoobw, languages: [xx]}]")),
            PresetError,
            "no language of this name",
        ),
        (lambda: Guard(Policy(name="p", rules=(StringRule(id="e", strings=("",)),))), PolicyError, "'e'"),
        (lambda: Guard(Policy(name="p", rules=(RegexRule(id="e", regex="a*"),))), PatternError, "empty"),
        (
            lambda: Guard(Policy(name="p", rules=(RegexRule(id="e", regex="a++"),))),
            PatternError,
            "possessive",
        ),
        (lambda: Guard(Policy(name="p", rules=(POLICY.rules[0], POLICY.rules[0]))), PolicyError, "'bad'"),
        (lambda: StringRule(id="e", strings=("a",), penalty=0), PolicyError, "penalty"),
        (lambda: StringRule(id="e", strings=("a",), penalty=float("nan")), PolicyError, "penalty"),
        (lambda: StringRule(id="e", strings=("a",), stings=("b",)), PolicyError, "strings"),  # type: ignore[call-arg]
        (lambda: Guard(POLICY).bind(object()), TokenizerError, "object"),
    ],
)
def test_bad_input_is_a_typed_error_that_names_the_fault(
    make: Any, error: type[NCOGuardError], named: str
) -> None:
    with pytest.raises(error) as caught:
        make()
    assert named in str(caught.value)


def test_a_bound_guard_is_kept_until_the_tokenizer_changes(tokenizer: Any) -> None:
    guard = Guard(POLICY)
    bound = guard.bind(tokenizer)
    assert guard.bind(tokenizer) is bound
    assert guard.bind(tokenizer, skip_special_tokens=False) is not bound
    tokenizer.add_tokens(["duckling"])
    again = guard.bind(tokenizer)
    assert again is not bound
    assert again.session().mask()[tokenizer.convert_tokens_to_ids("duckling")]


def test_one_bound_guard_serves_many_threads(tokenizer: Any) -> None:
    guard = Guard(POLICY)
    texts = [f"a du {i} 12{i}-4 ducat {i * 7} 55-1" for i in range(8)]
    ids = [tokenizer(text, add_special_tokens=False).input_ids for text in texts]

    def masks(bound: Any, tokens: list[int]) -> list[list[int]]:
        session, found = bound.session(), []
        for token in tokens:
            found.append(session.forbidden_ids().tolist())
            if token in session.forbidden_ids():
                break
            session.advance(token)
        return found

    expected = [masks(Guard(POLICY).bind(tokenizer), tokens) for tokens in ids]
    shared, results = guard.bind(tokenizer), [[] for _ in ids]

    def work(index: int) -> None:
        for _ in range(5):
            results[index] = masks(shared, ids[index])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(ids))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == expected


def test_stats_count_what_is_held(tokenizer: Any) -> None:
    bound = Guard(POLICY).bind(tokenizer)
    before = bound.stats
    session = bound.session()
    for token in tokenizer("a du", add_special_tokens=False).input_ids:
        session.forbidden_ids()
        session.advance(token)
    after = bound.stats
    assert after["joint_states"] > before["joint_states"]
    assert after["table_bytes"] >= before["table_bytes"] > 0
    assert np.isfinite(after["tables_seconds"])


def test_a_guard_has_what_people_use_and_its_docstring_and_page_say_all_of_it() -> None:
    members = {name for name in vars(Guard) if not name.startswith("_")}
    assert len(members) == 18
    page = (Path(__file__).parent.parent / "docs" / "api" / "guard.md").read_text(encoding="utf-8")
    for name in members:
        assert f"`{name}`" in str(Guard.__doc__).partition("\n\n    Building")[0]
        assert f"::: nco_guard.Guard.{name}\n" in page


def test_keywords_that_a_guard_does_not_have_are_named() -> None:
    policy = Policy.from_presets("pii")
    with pytest.raises(ArgumentError, match=r"cach: .* no such argument, did you mean 'cache'"):
        Guard(policy, cach=True)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"zzz: .* it takes policy, audit, cache"):
        Guard(policy, zzz=True)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"audits: .* did you mean 'audit'"):
        Guard.from_file("policy.yaml", audits=None)  # type: ignore[call-arg]
