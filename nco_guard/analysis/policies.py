"""A policy reviewed: rules that are redundant, contradictory, unsatisfiable or expensive, and some that are only odd.

Nothing is said that was not proved, or measured. A proof that meets its bound says so in a note.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from nco_guard.analysis.blocking import Blocked, Work
from nco_guard.analysis.redundancy import redundant
from nco_guard.analysis.remarks import Remark
from nco_guard.analysis.vacuity import expensive, leaves_no_text, unsatisfiable
from nco_guard.compiler import CompiledPolicy, CompiledRule, compile_policy
from nco_guard.masking import JointTables
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.scan import verify

__all__ = ["HasTables", "review", "review_bound"]

#: Strings of at most this many characters, as substrings of anything, forbid a good part of the language.
SHORT = 2
_HIGH_PENALTY = 50
_WORK = 40_000_000  # pairs of threads compared and characters read, of one review
_MUCH = 0.5  # of the memory limit


class HasTables(Protocol):
    """What is needed of a `BoundGuard`."""

    @property
    def tables(self) -> JointTables:
        """The current tables."""


def review(
    policy: Policy | CompiledPolicy, *, progress: Callable[[str], None] | None = None
) -> tuple[Remark, ...]:
    """What there is to say about a policy, without a tokenizer: warnings first as rules come, then notes.

    Exact where it says something: "redundant", "unsatisfiable" and "leaves no text" are proved. Proofs visit some
    thousand states each and say where that did not do (`not-decided`). Cost: some milliseconds a rule, more where
    rules are alike; seconds for hundreds, or for a rule that counts far (`a{8000}`), and no more than some forty
    million comparisons of threads and characters for all of it, which is half a minute (`bound-met`): a count, so that
    every machine says the same. `progress` is told, in a few words, what comes next. Errors: those of compiling.

    Examples:
        >>> rules = [RegexRule(id="digits", regex="[0-9]"), RegexRule(id="year", regex="[0-9]{4}")]
        >>> [(remark.code, remark.rule_ids) for remark in review(Policy(name="p", rules=rules))]
        [('redundant-rule', ('year', 'digits'))]
    """
    compiled = compile_policy(policy) if isinstance(policy, Policy) else policy
    # Rules of their own: machines are not safe to share, and a review should leave nothing in a guard.
    work = Work(_WORK)
    rules = [Blocked(CompiledRule(rule.rule), work) for rule in compiled.rules]
    tell = progress or (lambda _: None)

    def told(what: str) -> Iterator[Blocked]:
        for number, rule in enumerate(rules, 1):
            tell(f"{what} (rule {number} of {len(rules)})")
            yield rule

    remarks = [*_modes(compiled.policy), *_odd(compiled.policy)]
    remarks += unsatisfiable(told("looking for a text that matches"))
    # A rule without a match is within any other, and that is not what is wrong with it.
    empty = {remark.rule_ids[0] for remark in remarks if remark.code == "unsatisfiable-rule"}
    undecided = {remark.rule_ids[0] for remark in remarks if remark.code == "not-decided"}
    tell("comparing rules with each other")
    remarks += redundant([rule for rule in rules if rule.id not in empty | undecided])
    tell("looking for texts that are left")
    remarks += leaves_no_text(rules)
    remarks += _fallback(compiled)
    remarks += expensive(told("looking for how many states it comes to"))
    if work.is_over:
        remarks.append(
            Remark(
                "bound-met",
                (),
                f"not all of this policy was decided within {work.units:,} steps of work; what is said holds",
                "look at rules that count far one by one, or make their repeats shorter",
                "note",
            )
        )
    return tuple(sorted(remarks, key=lambda remark: remark.level == "note"))


def review_bound(bound: HasTables) -> tuple[Remark, ...]:
    """What more there is to say with a tokenizer. Cost: one mask.

    Examples:
        >>> review_bound(Guard.from_presets("pii").bind(tokenizer))
        ()
    """
    tables = bound.tables
    found: list[Remark] = []
    eos, width = set(tables.vocabulary.eos_ids), tables.vocabulary.width
    forbidden = tables.forbidden(tables.start)
    if width - len(forbidden) <= len(eos) and eos.isdisjoint(forbidden.tolist()) and len(eos) < width:
        found.append(
            Remark(
                "nothing-to-write",
                (),
                "at the beginning of a text, no token but its end is allowed",
                "make the rules narrower, or look with `nco-guard explain` at what they forbid",
            )
        )
    if tables.nbytes > _MUCH * tables.memory_limit:
        found.append(
            Remark(
                "expensive-tables",
                (),
                f"the tables take {tables.nbytes >> 20} MiB of their limit of {tables.memory_limit >> 20} MiB",
                "split the policy, or raise memory_limit of BoundGuard",
            )
        )
    return tuple(found)


def _modes(policy: Policy) -> Iterator[Remark]:
    loose = tuple(rule.id for rule in policy.rules if rule.mode != "hard")
    if len(loose) == len(policy.rules):
        yield Remark(
            "nothing-enforced",
            loose,
            "no rule is hard: this policy forbids nothing",
            "leave out penalty and monitor",
        )
    elif loose:
        yield Remark(
            "not-enforced", loose, f"not enforced, only discouraged or recorded: {', '.join(loose)}",
            "nothing, if that is meant", "note",
        )  # fmt: skip


def _odd(policy: Policy) -> Iterator[Remark]:
    for rule in policy.rules:
        if isinstance(rule, StringRule) and not rule.whole_word and any(map(_short, rule.strings)):
            yield Remark(
                "short-string",
                (rule.id,),
                f"rule {rule.id!r} forbids strings of {SHORT} characters or fewer, within words too",
                "whole_word: true would spare the words that contain them",
            )
        if rule.mode == "soft" and math.isfinite(rule.penalty) and rule.penalty > _HIGH_PENALTY:
            yield Remark(
                "high-penalty",
                (rule.id,),
                f"rule {rule.id!r} is soft: a high penalty is no guarantee",
                "leave out penalty to make it hard",
            )
        if isinstance(rule, RegexRule) and rule.checksum != "none" and rule.stop_at is not None:
            yield Remark(
                "blocks-unchecked",
                (rule.id,),
                f"rule {rule.id!r} blocks at its stop_at, where no check digit is known: numbers that fail too",
                "nothing, if that is meant; without stop_at it blocks at the last character",
                "note",
            )


def _short(string: str) -> bool:
    # Scripts from Thai on, Chinese, Japanese and Korean among them, have words of that length, and no spaces between.
    return len(string) <= SHORT and max(string) < "\u0e00"


def _fallback(compiled: CompiledPolicy) -> Sequence[Remark]:
    text = compiled.policy.fallback
    broken = verify(compiled, text).violations if text is not None else ()
    if not broken:
        return []
    names = tuple(dict.fromkeys(found.rule_id for found in broken))
    return [
        Remark(
            "forbidden-fallback",
            names,
            f"fallback breaks {', '.join(map(repr, names))}, so it can never be written",
            "choose another fallback",
        )
    ]
