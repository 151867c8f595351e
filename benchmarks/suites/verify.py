"""Suite `verify`: finished text, in megabytes a second of one core, beside the definition and `re`.

The prose is the docstrings of Python's standard library (text by people, with some code in it, on every machine) with
something forbidden in every 10,000 characters, or a text of yours as it is. Processor time, methods taking turns;
`verify_by_definition` and `re` run on a part of the text, since they take long. Compiling is not counted.

Compared: findings of `Verifier` on the whole text, in pieces and as lines with those of the definition on that part;
where those of `re` are others (it finds no overlaps), their number is recorded.

Other libraries only search: for LDNOOBW's strings in lower-cased text, without borders of words, without exactness;
so their numbers bound from above what a filter made of them could reach.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from benchmarks.errors import MissingPackageError
from benchmarks.harness.plan import Plan, Samples, case_of, check_of
from benchmarks.harness.record import Check, Record
from benchmarks.harness.render import figure, first, ratio, section
from benchmarks.harness.timing import in_turns
from benchmarks.inputs.constraints import PII, PRESETS, WORDS, ConstraintSet
from benchmarks.inputs.searches import SEARCHES
from benchmarks.inputs.texts import megabytes, prose, sown
from benchmarks.methods.world import World
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.scan import Finding, Verifier
from nco_guard.scan.definition import verify_by_definition

__all__ = ["against_definition", "bare_search", "measure", "show", "speeds"]

PIECE = 1 << 16
FASTEST = "Verifier, one text"
DEFINITION, RE = "the definition", "re, a pattern for each rule"
WAYS = (FASTEST, "Verifier, pieces of 64 KiB", "Verifier, texts of 8 lines", DEFINITION, RE)
BARE = "LDNOOBW-en, the bare search"


def _substrings() -> Policy:
    rule = Policy.from_presets("ldnoobw").rules[0].model_copy(update={"whole_word": False})
    return Policy(name="substrings", rules=(rule,))


POLICIES = (
    WORDS,
    ConstraintSet("LDNOOBW-en, substrings, folded", _substrings),
    PII,
    ConstraintSet("secrets", lambda: Policy.from_presets("secrets")),
    PRESETS,
)


def measure(plan: Plan) -> None:
    """All policies, then the bare searches."""
    quick, own = plan.options.quick, plan.options.text
    size, part = (100_000, 10_000) if quick else (4_000_000, 200_000)
    text = sown(prose(size), random.Random(0)) if own is None else own.read_text("utf-8")
    plan.collector.notes[f"verify: {len(text):,} characters; the definition and re on {part:,}"] = None
    for constraint in POLICIES:
        plan.say(f"verify: {constraint.name}")
        cases = {method: case_of("verify", method, constraint, plan.world) for method in WAYS}
        plan.together(cases, plan.bounds(), speeds, constraint, text, text[:part], plan.options.repeats)
        case = case_of("verify", "comparison", constraint, plan.world)
        plan.check(case, against_definition, constraint, text, text[:part], plan.world)
    for name in SEARCHES:
        plan.say(f"verify: the bare search by {name}")
        case = case_of("verify", name, ConstraintSet(BARE, _substrings), plan.world)
        plan.measure(case, plan.bounds(), bare_search, name, text, text[:part], plan.options.repeats)


def speeds(constraint: ConstraintSet, text: str, part: str, rounds: int) -> dict[str, Samples]:
    """Megabytes a second of each round, by method."""
    compiled = compile_policy(constraint.policy)
    verifier, patterns, lines = Verifier(compiled), _patterns(compiled.policy), _lines(text)
    calls: tuple[tuple[str, Callable[[], object]], ...] = (
        (text, lambda: verifier.verify(text)),
        (text, lambda: _streamed(verifier, text)),
        (text, lambda: verifier.verify_many(lines)),
        (part, lambda: verify_by_definition(compiled, part)),
        (part, lambda: [list(pattern.finditer(part)) for pattern in patterns.values()]),
    )
    found = in_turns({method: call for method, (_, call) in zip(WAYS, calls, strict=True)}, rounds)
    samples: dict[str, Samples] = {
        method: {"mb_per_s": [megabytes(of) / seconds for seconds in found[method]]}
        for method, (of, _) in zip(WAYS, calls, strict=True)
    }
    samples[FASTEST]["findings_count"] = [len(verifier.verify(text).findings)]
    samples[RE]["otherwise_count"] = [len(_spans(compiled, part) ^ _spans_by_re(patterns, part))]
    return samples


def against_definition(constraint: ConstraintSet, text: str, part: str, world: World) -> Check:
    """`Verifier` in all its forms."""
    compiled = compile_policy(constraint.policy)
    verifier, lines = Verifier(compiled), _lines(text)[:200]
    expected = verify_by_definition(compiled, part).findings
    same = [verifier.verify(part).findings == expected, _streamed(verifier, part) == expected]
    same.append(_streamed(verifier, text) == verifier.verify(text).findings)
    reports = zip(verifier.verify_many(lines), lines, strict=True)
    same += [report == verify_by_definition(compiled, line) for report, line in reports]
    return check_of(
        constraint, world, DEFINITION, len(same), same.count(False), "reports of texts, not masks"
    )


def _lines(text: str) -> list[str]:
    """Texts of eight lines."""
    lines = text.split("\n")
    return ["\n".join(lines[place : place + 8]) for place in range(0, len(lines), 8)]


def _streamed(verifier: Verifier, text: str) -> tuple[Finding, ...]:
    stream = verifier.stream()
    found = [f for place in range(0, len(text), PIECE) for f in stream.feed(text[place : place + PIECE])]
    return tuple(sorted((*found, *stream.finish()), key=lambda f: (f.start, f.end, f.rule_id)))


def _patterns(policy: Policy) -> dict[str, re.Pattern[str]]:
    """What one would write with `re`: a pattern for each rule."""
    found: dict[str, re.Pattern[str]] = {}
    for rule in policy.rules:
        if isinstance(rule, StringRule):
            pattern = "|".join(map(re.escape, sorted(rule.strings, key=len, reverse=True)))
        elif isinstance(rule, RegexRule):
            pattern = rule.regex
        else:
            continue
        if rule.whole_word:
            pattern = rf"(?<!\w)(?:{pattern})(?!\w)"
        found[rule.id] = re.compile(pattern, re.IGNORECASE if rule.case == "fold" else 0)
    return found


def _spans(compiled: CompiledPolicy, text: str) -> set[tuple[int, int, str]]:
    return {
        (found.start, found.end, found.rule_id) for found in verify_by_definition(compiled, text).findings
    }


def _spans_by_re(patterns: dict[str, re.Pattern[str]], text: str) -> set[tuple[int, int, str]]:
    return {(m.start(), m.end(), rule) for rule, p in patterns.items() for m in p.finditer(text)}


def bare_search(name: str, text: str, part: str, rounds: int) -> Samples:
    """Megabytes a second of a library. Raises `MissingPackageError` where it is not installed."""
    package, slow, prepare = SEARCHES[name]
    of = (part if slow else text).lower()
    rule = Policy.from_presets("ldnoobw").rules[0]
    strings = [string.lower() for string in rule.strings] if isinstance(rule, StringRule) else []
    try:
        search = prepare(strings, of)
    except ImportError as error:
        raise MissingPackageError("this search", package, package) from error
    seconds = in_turns({name: search}, rounds, warm=0)[name]
    return {"mb_per_s": [megabytes(of) / each for each in seconds]}


def show(record: Record) -> str:
    """A row for each policy and method, and one for each library."""
    found = record.find("verify")
    rows = []
    for m in found:
        if m.status == "ok":
            ours = first(found, constraint=m.case.constraint, method=FASTEST)
            times = ratio(ours, m, "mb_per_s") if ours is not None else "-"
            counts = (figure(m, "findings_count"), figure(m, "otherwise_count"))
            rows.append((m.case.constraint, m.case.method, figure(m, "mb_per_s", best=True), times, *counts))
    header = ("constraint", "method", "MB/s, best", "x slower", "findings", "found otherwise")
    return section("## Verifying finished text", "Of one core, processor time.", header, rows, found)
