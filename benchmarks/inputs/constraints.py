"""What is forbidden in the benchmark: a policy and, for methods with less, the same as plain strings and patterns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.inputs.regex_sets import RegexSet, read_regexpspace, regexpspace_shaped
from nco_guard.errors import NCOGuardError
from nco_guard.policy import Policy, RegexRule, StringRule, presets

__all__ = [
    "EVERYTHING",
    "MEASURED",
    "PAPER_PII",
    "PII",
    "PRESETS",
    "SUBSTRINGS",
    "WORDS",
    "ConstraintSet",
    "random_strings",
    "regexes",
    "strings",
]


@dataclass(frozen=True)
class ConstraintSet:
    """name: as reports call it. build: the policy, made when it is asked for.

    beyond: why plain strings and patterns cannot say the same; empty where they can.
    """

    name: str
    build: Callable[[], Policy]
    beyond: str = ""

    @cached_property
    def policy(self) -> Policy:
        """The policy."""
        return self.build()

    @cached_property
    def plain(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Strings and patterns, for methods with nothing else. Raises `NCOGuardError` where they do not suffice."""
        if self.beyond:
            raise NCOGuardError(f"{self.name}: {self.beyond}")
        texts = [s for rule in self.policy.rules if isinstance(rule, StringRule) for s in rule.strings]
        patterns = [rule.regex for rule in self.policy.rules if isinstance(rule, RegexRule)]
        return tuple(dict.fromkeys(texts)), tuple(patterns)


def _substrings() -> Policy:
    return Policy(name="substrings", rules=tuple(presets.load("ldnoobw", languages=["en"], substring=True)))


def _everything() -> Policy:
    words = presets.load("ldnoobw", languages="all")
    return Policy(name="everything", rules=(*presets.load("pii"), *presets.load("secrets"), *words))


SUBSTRINGS = ConstraintSet("LDNOOBW-en, substrings", _substrings)
WORDS = ConstraintSet(
    "LDNOOBW-en, whole words, folded",
    lambda: Policy.from_presets("ldnoobw"),
    "word boundaries: patterns of other engines have no `\\b` and no lookaround",
)
EVERYTHING = ConstraintSet(
    "pii + secrets + ldnoobw, 28 languages",
    _everything,
    "word boundaries, lookaround and stop points, which patterns of other engines do not have",
)
PII = ConstraintSet("pii", lambda: Policy.from_presets("pii"))
PRESETS = ConstraintSet(
    "pii + secrets + LDNOOBW-en", lambda: Policy.from_presets("pii", "secrets", "ldnoobw")
)
PAPER_PII = ConstraintSet("the paper's four PII regexes", lambda: Policy.from_presets("pii_paper"))
MEASURED = (SUBSTRINGS, WORDS, EVERYTHING, PAPER_PII)


def random_strings(count: int, *, seed: int = 0) -> list[str]:
    """`count` distinct strings of 16 lower-case letters."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        data = rng.integers(ord("a"), ord("z") + 1, (count - len(found), 16), np.uint8).tobytes().decode()
        found.update(dict.fromkeys(data[at : at + 16] for at in range(0, len(data), 16)))
    return list(found)


def strings(
    count: int, *, case: Literal["exact", "fold"] = "exact", whole_word: bool = False
) -> ConstraintSet:
    """That many random strings of 16 bytes, as one rule."""
    kind = (", folded" if case == "fold" else "") + (", whole words" if whole_word else "")

    def build() -> Policy:
        listed = tuple(random_strings(count))
        rule = StringRule(id="strings", strings=listed, case=case, whole_word=whole_word)
        return Policy(name="strings", rules=(rule,))

    beyond = "case folding and word boundaries, which lists of other engines do not have" if kind else ""
    return ConstraintSet(f"{count:,} strings{kind}", build, beyond)


def regexes(count: int, file: Path | None = None) -> ConstraintSet:
    """That many patterns: the first of RegexPSPACE's file if there is one, else of generated ones of its shape.

    Raises `NCOGuardError` where the file has fewer.
    """
    found: RegexSet = regexpspace_shaped(count) if file is None else read_regexpspace(file)
    if len(found.patterns) < count:
        raise NCOGuardError(f"{found.name} has {len(found.patterns)} patterns, {count} were asked for")
    name = "RegexPSPACE" if file is not None else "RegexPSPACE-shaped"

    def build() -> Policy:
        rules = tuple(RegexRule(id=f"r{i}", regex=p) for i, p in enumerate(found.patterns[:count]))
        return Policy(name="regexes", rules=rules)

    return ConstraintSet(f"{count:,} {name} regexes", build)
