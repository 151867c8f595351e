"""What masks cost: set-up, memory and steps, beside llguidance and the definition, in one run on one machine.

    python benchmarks/masks.py                         the shipped demonstration tokenizer
    python benchmarks/masks.py --tokenizer FOLDER      a folder with tokenizer.json
    python benchmarks/masks.py --json results.json

A step is `forbidden_ids` and `advance` for one sequence. A *new* step meets a joint state for the first time, a *known*
one does not. Times are the thread's own (CPU) time. llguidance's step is computing its mask and consuming a token; what
it cannot express (word boundaries, lookaround, soft rules) is left out. The definition feeds every token's bytes to
every automaton; on a sample of states it is timed and must give the same mask. Ratios are to nco-guard's own time:
above 1, nco-guard is faster.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nco_guard.compiler import compile_policy
from nco_guard.errors import ForbiddenTokenError
from nco_guard.evaluation.peers import LLGuidance
from nco_guard.masking import bruteforce
from nco_guard.policy import Policy, RegexRule, StringRule, presets
from nco_guard.session import BoundGuard
from nco_guard.tokens import PrefixTree, Vocabulary, read_vocabulary

TEXT = (
    "The assembly met again in the old town hall, and the secretary read the minutes of the last meeting. Questions "
    "about the budget were sent to mary.jones(at)example, not to the office; her number is 555-01, she said, and her "
    "account ends in 4411-22. Nobody asked why the analysis of the documents had taken so long. A class of students "
    "listened from the gallery: «C'est la vie», said one, 「本当に?」 another. At 10:45 the chair closed the session.\n"
)
T = TypeVar("T")

# Everything runs in one thread; its own time is what a busy machine disturbs least. It includes what llguidance
# computes, which stays in the calling thread.
clock = time.thread_time


@dataclass(frozen=True)
class Judge:
    """The tokenizer as llguidance sees it, and which tokens it never allows (bool [width])."""

    view: Any
    special: NDArray[np.bool_]


@dataclass(frozen=True)
class Row:
    """One policy's figures; times in microseconds unless the name says otherwise. None: not expressible."""

    policy: str
    rules: int
    compile_ms: float
    bind_ms: float
    table_mib: float
    steps: int
    new_states: int
    new_median: float
    new_p99: float
    new_max: float
    known_median: float
    known_p99: float
    all_mean: float
    peer_setup_ms: float | None
    peer_median: float | None
    peer_p99: float | None
    peer_mean: float | None
    masks_agree: bool | None
    definition_ms: float
    definition_agrees: bool


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result, and seconds."""
    started = clock()
    result = work()
    return result, clock() - started


def policies() -> dict[str, Policy]:
    """The constraints that are measured."""
    substrings = presets.load("ldnoobw", languages=["en"], substring=True)
    return {
        "LDNOOBW-en, substrings": Policy(name="substrings", rules=substrings),
        "LDNOOBW-en, whole words, folded": Policy.from_presets("ldnoobw"),
        "the paper's PII regexes": Policy.from_presets("pii_paper"),
        "pii + secrets + ldnoobw": Policy.from_presets("pii", "secrets", "ldnoobw"),
    }


def peer_constraints(policy: Policy) -> tuple[list[str], list[str]] | None:
    """The policy as plain strings and patterns, where llguidance's dialect has all of it."""
    strings: list[str] = []
    patterns: list[str] = []
    for rule in policy.rules:
        if rule.whole_word or rule.case == "fold" or rule.mode != "hard" or rule.stop_at:
            return None
        if isinstance(rule, StringRule):
            strings.extend(rule.strings)
        elif isinstance(rule, RegexRule) and not any(mark in rule.regex for mark in ("(?", r"\b", "^", "$")):
            patterns.append(rule.regex)
        else:
            return None
    return strings, patterns


def path(bound: BoundGuard, ids: Sequence[int], count: int) -> list[int]:
    """Token ids of the text, over and over, without those that the policy forbids."""
    session, kept = bound.session(), []
    while len(kept) < count:
        for token in ids:
            if not session.mask()[token]:
                session.advance(token)
                kept.append(token)
            if len(kept) == count:
                break
    return kept


def walk(bound: BoundGuard, ids: Sequence[int]) -> tuple[list[float], list[float]]:
    """Seconds of each step: into new joint states, into known ones."""
    session, new, known = bound.session(), [], []
    for token in ids:
        before = bound.tables.state_count
        started = clock()
        session.forbidden_ids()
        session.advance(token)
        elapsed = clock() - started
        (new if bound.tables.state_count > before else known).append(elapsed)
    return new, known


def percentile(values: Sequence[float], share: float) -> float:
    """Of seconds, in microseconds; 0 if there are none."""
    return round(1e6 * float(np.quantile(values, share)), 2) if values else 0.0


def measure(
    name: str, policy: Policy, vocabulary: Vocabulary, ids: Sequence[int], judge: Judge | None, steps: int
) -> Row:
    """All figures of one policy."""
    compiled, compile_seconds = timed(lambda: compile_policy(policy))
    bound, bind_seconds = timed(lambda: BoundGuard(compiled, vocabulary))
    kept = path(BoundGuard(compiled, vocabulary), ids, steps)
    new, known = walk(bound, kept)

    peer: dict[str, Any] = dict.fromkeys(("setup", "median", "p99", "mean", "agree"))
    constraints = peer_constraints(policy)
    if judge is not None and constraints is not None:
        engine = LLGuidance(view=judge.view, threads=1)
        ready, peer["setup"] = timed(lambda: engine.setup(*constraints, None, vocabulary=vocabulary))
        matcher = ready.matcher()
        session, elapsed, peer["agree"] = bound.session(), [], True
        for token in kept:
            started = clock()
            theirs = matcher.forbidden()
            try:
                matcher.advance(token)
            except ForbiddenTokenError:
                peer["agree"] = False
                break
            elapsed.append(clock() - started)
            peer["agree"] &= not ((session.mask() != theirs) & ~judge.special).any()
            session.advance(token)
        peer["median"], peer["p99"] = percentile(elapsed, 0.5), percentile(elapsed, 0.99)
        peer["mean"] = round(1e6 * statistics.fmean(elapsed), 2)

    agrees, definition = True, []
    states = random.Random(0).sample(range(bound.tables.state_count), min(3, bound.tables.state_count))
    for state in states:
        if sum(definition) > 5:  # the definition takes seconds a mask over a large vocabulary
            break
        components = bound.tables.components(state)
        expected, seconds = timed(
            lambda c=components: bruteforce.forbidden(bound.tables.constraints, c, vocabulary)
        )
        definition.append(seconds)
        agrees &= np.flatnonzero(expected).tolist() == bound.tables.forbidden(state).tolist()
    return Row(
        policy=name,
        rules=len(policy.rules),
        compile_ms=round(1e3 * compile_seconds, 2),
        bind_ms=round(1e3 * bind_seconds, 2),
        table_mib=round(bound.tables.nbytes / 2**20, 2),
        steps=len(kept),
        new_states=len(new),
        new_median=percentile(new, 0.5),
        new_p99=percentile(new, 0.99),
        new_max=percentile(new, 1.0),
        known_median=percentile(known, 0.5),
        known_p99=percentile(known, 0.99),
        all_mean=round(1e6 * statistics.fmean([*new, *known]), 2),
        peer_setup_ms=None if peer["setup"] is None else round(1e3 * peer["setup"], 2),
        peer_median=peer["median"],
        peer_p99=peer["p99"],
        peer_mean=peer["mean"],
        masks_agree=peer["agree"],
        definition_ms=round(1e3 * statistics.fmean(definition), 2),
        definition_agrees=agrees,
    )


def ratio(theirs: float | None, ours: float) -> str:
    """How many times ours theirs takes."""
    return "-" if theirs is None or not ours else f"{theirs / ours:,.1f}"


def table(rows: Sequence[Row]) -> str:
    """Ratios as Markdown."""
    lines = [
        "| policy | llguidance / ours: set-up | mean step | median step | p99 step | same masks | "
        "definition / ours: mean step | same masks |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        median = row.known_median if row.steps - row.new_states >= row.new_states else row.new_median
        lines.append(
            f"| {row.policy} | {ratio(row.peer_setup_ms, row.compile_ms + row.bind_ms)} "
            f"| {ratio(row.peer_mean, row.all_mean)} | {ratio(row.peer_median, median)} "
            f"| {ratio(row.peer_p99, max(row.new_p99, row.known_p99))} | {row.masks_agree} "
            f"| {ratio(1e3 * row.definition_ms, row.all_mean)} | {row.definition_agrees} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure, print, and fail if any mask differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokenizer", type=Path, help="a folder with tokenizer.json; default: the shipped one"
    )
    parser.add_argument("--steps", type=int, default=2000, help="tokens of text per policy (default 2000)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()

    from transformers import PreTrainedTokenizerFast

    folder = options.tokenizer or Path(__file__).resolve().parent.parent / "nco_guard" / "demo" / "model"
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    vocabulary, read_seconds = timed(lambda: read_vocabulary(tokenizer))
    tree, tree_seconds = timed(lambda: PrefixTree(vocabulary.tokens))
    judge = None
    if vocabulary.eos_ids and not vocabulary.strips_first_space:
        special = np.array([not token for token in vocabulary.tokens])
        special[[*tokenizer.get_added_vocab().values(), *vocabulary.unusable_ids]] = True
        judge = Judge(LLGuidance.read(tokenizer, vocabulary.width), special)
    ids = tokenizer(TEXT, add_special_tokens=False).input_ids
    print(
        f"{vocabulary.width:,} tokens ({vocabulary.family}); vocabulary read in {read_seconds:.2f} s, prefix tree of "
        f"{len(tree):,} nodes in {1e3 * tree_seconds:.0f} ms ({tree.nbytes / 2**20:.1f} MiB); "
        f"Python {platform.python_version()}, {platform.machine()}\n"
    )
    rows: list[Row] = []
    for name, policy in policies().items():
        row = measure(name, policy, vocabulary, ids, judge, options.steps)
        rows.append(row)
        print(
            f"{name}: {row.rules} rules; compile {row.compile_ms} ms, bind {row.bind_ms} ms, {row.table_mib} MiB; "
            f"{row.steps} steps\n"
            f"  {row.new_states} into new states: median {row.new_median} us, p99 {row.new_p99}, max {row.new_max}; "
            f"the rest: median {row.known_median} us, p99 {row.known_p99}; mean of all {row.all_mean}\n"
            f"  llguidance: set-up {row.peer_setup_ms} ms, median {row.peer_median} us, p99 {row.peer_p99}, "
            f"mean {row.peer_mean}; the definition: {row.definition_ms} ms a mask"
        )
    print(f"\n{table(rows)}")
    if options.json:
        figures = {
            "tokens": vocabulary.width,
            "read_seconds": read_seconds,
            "tree_seconds": tree_seconds,
            "tree_nodes": len(tree),
            "tree_bytes": tree.nbytes,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    agree = all(row.definition_agrees and row.masks_agree is not False for row in rows)
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
