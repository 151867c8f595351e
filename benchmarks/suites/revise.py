"""Suite `revise`: one string more on a guard of thousands."""

from __future__ import annotations

from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.record import Record
from benchmarks.harness.render import figure, section, shown
from benchmarks.harness.timing import timed
from benchmarks.inputs.constraints import strings
from benchmarks.methods.world import World
from nco_guard.errors import UnsupportedError
from nco_guard.guard import Guard
from nco_guard.policy import Policy, StringRule

__all__ = ["measure", "show"]


def measure(plan: Plan) -> None:
    """One string more: by building everything again, and by `Guard.with_rules`."""
    count = 1_000 if plan.options.quick else 10_000
    for way in ("from scratch", "with_rules"):
        case = case_of("revise", way, strings(count), plan.world, size=count)
        for _ in range(plan.options.repeats):
            plan.say(f"one string more than {count:,}: {way}")
            plan.measure(case, plan.bounds(), _revised, plan.world, count, way)


def _revised(world: World, count: int, way: str) -> Samples:
    """Seconds from a guard in use, bound and stepping, to the mask of one that forbids a string more.

    Raises `UnsupportedError` where the new string is not forbidden after all.
    """
    constraint = strings(count)
    guard = Guard(constraint.policy, cache=False)
    session = guard.bind(world.tokenizer).session()
    for token in world.text(50)[:50]:
        if token not in session.forbidden_ids():
            session.advance(token)
    added = StringRule(id="added", strings=("zzqzzq",))

    def revised() -> Guard:
        if way == "with_rules":
            return guard.with_rules(added)
        return Guard(Policy(name="revised", rules=(*constraint.policy.rules, added)), cache=False)

    changed, making = timed(revised)
    bound, binding = timed(lambda: changed.bind(world.tokenizer))
    _, masking = timed(bound.session().forbidden_ids)
    if changed.verify("zzqzzq").ok:
        raise UnsupportedError("the revised guard does not forbid the new string")
    return {
        "revise_s": [making + binding + masking],
        "make_s": [making],
        "bind_s": [binding],
        "first_mask_s": [masking],
    }


def show(record: Record) -> str:
    """A row for each way."""
    found = record.find("revise")
    rows = [(m.case.method, f"{m.case.size:,}", figure(m, "revise_s")) for m in shown(found)]
    told = "From a guard in use to the first mask of the revised one."
    return section("## One string more", told, ("how", "strings before", "time"), rows, found)
