"""Suite `vocabularies`: scaling in the vocabulary."""

from __future__ import annotations

from benchmarks.harness.plan import Plan, case_of
from benchmarks.harness.record import Record
from benchmarks.harness.setting_up import ALL, scaling, set_up
from benchmarks.harness.timing import turns
from benchmarks.inputs.constraints import PAPER_PII, SUBSTRINGS

__all__ = ["measure", "show"]


def measure(plan: Plan) -> None:
    """Times of setting up a few constraints over every tokenizer that was given."""
    rounds = 1 if plan.options.quick else min(3, plan.options.repeats)
    for world in plan.worlds:
        width = world.vocabulary.width
        for constraint in (SUBSTRINGS, PAPER_PII):
            able = plan.able("vocabularies", constraint, world, ALL, size=width)
            for number, method in turns(able, rounds):
                if number and method.key == "paper-nco":
                    continue
                plan.say(f"vocabulary of {width:,}: {constraint.name}: {method.title}")
                case = case_of("vocabularies", method.key, constraint, world, size=width)
                plan.measure(case, plan.bounds(), set_up, method, constraint, world)


def show(record: Record) -> str:
    """A row for each method and vocabulary."""
    return scaling(record, "vocabularies", by_constraint=True)
