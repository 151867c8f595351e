"""Errors cross from one process to another whole."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import MissingPackageError
from benchmarks.inputs.regex_sets import RegexSetError
from nco_guard import Guard, Policy, RegexRule, errors

MADE: dict[type[errors.NCOGuardError], Callable[[], errors.NCOGuardError]] = {
    errors.PolicyError: lambda: errors.PolicyError("not so", rule_id="r", field="strings"),
    errors.PatternError: lambda: errors.PatternError("not so", construct="(?>", position=3, rule_id="r"),
    errors.PresetError: lambda: errors.PresetError("unknown", field="presets"),
    errors.StateLimitError: lambda: errors.StateLimitError("too many", rule_id="r"),
    errors.ViolationError: lambda: errors.ViolationError(("a", "b"), "model output"),
    errors.RedactionError: lambda: errors.RedactionError(("a", "b")),
    errors.ShapeError: lambda: errors.ShapeError("not so", place="#/properties/age"),
    errors.ShapeLimitError: lambda: errors.ShapeLimitError("not decided", place="#/properties/age"),
    errors.ContradictionError: lambda: errors.ContradictionError([("#/properties/age", ("a", "b"))]),
    errors.InputError: lambda: errors.InputError("file.txt", "is empty", line=3),
    errors.MissingExtraError: lambda: errors.MissingExtraError("this", "hf"),
    MissingPackageError: lambda: MissingPackageError("this", "that"),
    RegexSetError: lambda: RegexSetError(Path("set.txt"), 3, "not so", position=5),
}


def kinds(base: type[errors.NCOGuardError] = errors.NCOGuardError) -> set[type[errors.NCOGuardError]]:
    return {base}.union(*(kinds(kind) for kind in base.__subclasses__()))


@pytest.mark.parametrize("kind", sorted(kinds(), key=lambda kind: kind.__qualname__))
@pytest.mark.parametrize(
    "travel",
    [copy.copy, copy.deepcopy, *(lambda e, n=n: pickle.loads(pickle.dumps(e, n)) for n in range(6))],
)
def test_what_an_error_says_and_names_survives(
    kind: type[errors.NCOGuardError], travel: Callable[[Any], Any]
) -> None:
    error = MADE[kind]() if kind in MADE else kind("what went wrong")
    error.add_note("in row 3")
    other = travel(error)
    assert type(other) is kind
    assert str(other) == str(error)
    assert other.args == error.args
    assert vars(other) == vars(error)


def compile_pattern(pattern: str) -> None:
    Guard(Policy(name="a", rules=(RegexRule(id="x", regex=pattern),)))


def test_a_pool_of_processes_tells_what_is_wrong_with_a_policy() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        answer = pool.apply_async(compile_pattern, ("(?>a)",))
        with pytest.raises(errors.PatternError, match="rule 'x'"):
            answer.get(timeout=120)
