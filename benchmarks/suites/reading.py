"""Suite `reading`: each reader's own view of a tokenizer, from the tokenizer in memory; ours also from disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.processes import Memory
from benchmarks.harness.record import Record
from benchmarks.harness.render import figure, section, shown, title
from benchmarks.harness.timing import timed, turns
from benchmarks.methods.world import World, read_view
from nco_guard.storage.store import Store
from nco_guard.tokens import PrefixTree, read_vocabulary, shared_tree, shared_vocabulary

__all__ = ["measure", "read_all", "show"]


def measure(plan: Plan) -> None:
    """Every tokenizer that was given."""
    for world in plan.worlds:
        read_all(plan, world)


def show(record: Record) -> str:
    """A row for each reader of each tokenizer."""
    found = record.find("reading")
    rows = [
        (
            m.case.tokenizer,
            title(m.case.method),
            figure(m, "read_s"),
            figure(m, "tree_s"),
            figure(m, "peak_mib"),
        )
        for m in shown(found)
    ]
    header = ("tokenizer", "reader", "time", "of it the prefix tree", "peak memory")
    return section("## Reading the vocabulary", "", header, rows, found)


def _read(world: World, method: str) -> Samples:
    """A reader's own view of the tokenizer, from the tokenizer in memory."""
    with Memory() as memory:
        if method == "ours":
            vocabulary, reading = timed(lambda: read_vocabulary(world.tokenizer))
            _, growing = timed(lambda: PrefixTree(vocabulary.tokens))
            samples = {"read_s": [reading + growing], "vocabulary_s": [reading], "tree_s": [growing]}
        else:
            _, reading = timed(lambda: read_view(method, world.tokenizer, world.vocabulary.width))
            samples = {"read_s": [reading]}
    return {**samples, "peak_mib": [memory.peak_mib]}


def _read_again(world: World, folder: Path) -> Samples:
    """Times of reading from a folder that may hold what an earlier process worked out."""
    store = Store.chosen(folder)
    vocabulary, reading = timed(lambda: shared_vocabulary(world.tokenizer, store=store))
    _, growing = timed(lambda: shared_tree(vocabulary, store))
    return {"read_s": [reading + growing], "vocabulary_s": [reading], "tree_s": [growing]}


def read_all(plan: Plan, world: World) -> None:
    """Reading one tokenizer, by all who read it."""
    for _, method in turns(("ours", "llguidance", "xgrammar"), plan.options.repeats):
        plan.measure(case_of("reading", method, None, world), plan.bounds(), _read, world, method)
    case = case_of("reading", "ours, from disk", None, world)
    with tempfile.TemporaryDirectory() as folder:
        plan.measure(
            case_of("reading", "ours, to disk", None, world),
            plan.bounds(),
            _read_again,
            world,
            Path(folder),
        )
        for _ in range(plan.options.repeats):
            plan.measure(case, plan.bounds(), _read_again, world, Path(folder))
