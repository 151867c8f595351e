"""Suite `closed`: rules that want what was opened to be closed, and every single mask, with all presets.

Each policy of the corpus holds four such rules beside the presets. A text opens them one inside another, with prose
in between, and closes them again; a mask is asked for before every token, once without a limit and once near one.
Processor time of this process, so that a busy machine does not count.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.harness.building import build
from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.record import Record
from benchmarks.harness.render import figure, section
from benchmarks.harness.timing import timed
from benchmarks.inputs.constraints import ConstraintSet
from benchmarks.methods.world import METHODS, World
from nco_guard.errors import ForbiddenTokenError
from nco_guard.policy import Policy, RegexRule, presets

__all__ = ["corpus", "measure", "show", "times"]

SLOW = 0.05
#: What must be closed: a name, its pattern, a text that opens it, and one that closes it.
CLOSED: dict[str, tuple[str, str, str]] = {
    "think": (r"(?s)<think>(?!.*</think>)", "<think>", "</think>"),
    "answer": (r"(?s)<answer>(?!.*</answer>)", "<answer>", "</answer>"),
    "tool": (r"(?s)<tool_call>(?!.*</tool_call>)", "<tool_call>", "</tool_call>"),
    "paren": (r"(?s)\((?!.*\))", "(", ")"),
    "bracket": (r"(?s)\[(?!.*\])", "[", "]"),
    "brace": (r"(?s)\{(?!.*\})", "{", "}"),
    "quote": (r"(?s)“(?!.*”)", "“", "”"),
    "guillemet": (r"(?s)«(?!.*»)", "«", "»"),
    "comment": (r"(?s)<!--(?!.*-->)", "<!--", "-->"),
    "block comment": (r"(?s)/\*(?!.*\*/)", "/*", "*/"),
    "begin": (
        r"(?s)-----BEGIN NOTE-----(?!.*-----END NOTE-----)",
        "-----BEGIN NOTE-----",
        "-----END NOTE-----",
    ),
    "fence": (r"(?s)~~~begin(?!.*~~~end)", "~~~begin", "~~~end"),
}
PROSE = " The assembly met on 12 May; 3 of them said no, x and y did not."


def measure(plan: Plan) -> None:
    """As many policies of the corpus as were asked for."""
    for constraint, text in corpus(plan.options.policies):
        plan.say(f"closed: {constraint.name}")
        case = case_of("closed", "ours", constraint, plan.world)
        plan.measure(case, plan.bounds(6.0), times, constraint, text, plan.world)


def corpus(count: int) -> Iterator[tuple[ConstraintSet, str]]:
    """Each policy of the corpus, and its text."""
    chosen = list(itertools.combinations(CLOSED, 4))
    for names in chosen[:: max(1, len(chosen) // count)][:count]:
        opened = "".join(CLOSED[name][1] + PROSE for name in names)
        closed = "".join(CLOSED[name][2] + PROSE for name in reversed(names))
        yield ConstraintSet(", ".join(names), partial(_policy, names)), PROSE + opened + closed


def _policy(names: Sequence[str]) -> Policy:
    rules = [RegexRule(id=name.replace(" ", "-"), regex=CLOSED[name][0]) for name in names]
    return Policy.from_presets(*presets.available()).with_rules(*rules)


def times(constraint: ConstraintSet, text: str, world: World) -> Samples:
    """Seconds of each mask over the text, without a limit and near one."""
    bound = build(METHODS["ours"], constraint, world).guard()
    session, skipped = bound.session(), 0
    samples: Samples = {"mask_s": [], "near_limit_s": []}
    for token in world.tokenizer.encode(text, add_special_tokens=False):
        for name, remaining in (("mask_s", None), ("near_limit_s", 6)):
            samples[name].append(timed(partial(session.forbidden_ids, remaining), time.process_time)[1])
        try:
            session.advance(token)
        except ForbiddenTokenError:
            skipped += 1
    undecided = float(bound.stats["undecided_masks"])
    return {**samples, "skipped_count": [skipped], "undecided_count": [undecided]}


def show(record: Record) -> str:
    """A row for each policy."""
    found = record.find("closed")
    rows = [
        (
            m.case.constraint,
            str(len(m.samples["mask_s"])),
            figure(m, "mask_s", spread=False),
            str(sum(seconds > SLOW for seconds in m.samples["mask_s"])),
            figure(m, "mask_s", worst=True),
            figure(m, "near_limit_s", worst=True),
            figure(m, "skipped_count"),
            figure(m, "undecided_count"),
        )
        for m in found
        if m.status == "ok"
    ]
    header = ("closed", "masks", "median", "above 50 ms", "worst", "near a limit", "skipped", "undecided")
    return section("## Rules that want something closed", "Processor time.", header, rows, found)
